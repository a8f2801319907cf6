//! Chooses how to answer a query: one index, several intersected, or a scan of the table.
//!
//! Each way is given a cost in nanoseconds, from estimates of how many candidates each index has within
//! the query's bounds (told from block indexes, without reading data), the limit, and whether candidates come in
//! the query's order. The constants below were measured on one machine, with records of 300 bytes, one sorted run and
//! everything in the block cache, by
//!
//! ```text
//! cargo run --release -p bolide-bench --example plan_costs
//! ```
//!
//! Only their proportions matter, and choices are close only where either is good. Where blocks are not cached, a
//! fetch is dearer than they say, and a scan, which reads blocks in their order, less so: choices then err towards
//! indexes.
//!
//! How many records satisfy several predicates is estimated as if attributes were independent. What is not
//! known is guessed: a tenth for an equality, a third for a range.

use bolide_base::{Error, ErrorKind, Result};

use crate::access::Access;
use crate::explain::Alternative;
use crate::query::{CompiledQuery, Order, Projection, Query};
use crate::secondary_index::SecondaryIndex;
use crate::source::{ReadSource, TreeSource};
use crate::spec::Maintenance;

use super::Lookup;
use super::covered::Covered;

/// Opening a cursor and its first seek: one or two blocks in each sorted run.
const SEEK_NANOS: f64 = 1_730.0;
/// The next entry of an index.
const CANDIDATE_NANOS: f64 = 57.0;
/// Keeping or looking up a number in the set of an intersection: a memory access that misses the caches. The one
/// that is not measured.
const SET_NANOS: f64 = 60.0;
/// Collecting a candidate that has to be sorted.
const SORT_NANOS: f64 = 61.0;
/// Fetching a record by key (a filter and a block in some runs) and extracting its attributes.
const FETCH_NANOS: f64 = 1_279.0;
/// The same without its value.
const VALIDATE_NANOS: f64 = 549.0;
/// The next record of a scan, and extracting its attributes.
const SCAN_NANOS: f64 = 222.0;

/// A scan must be this much cheaper than the best index: an index reads less where an estimate is wrong, and a
/// scan always reads everything.
const SCAN_RELUCTANCE: f64 = 1.3;
/// Tables smaller than this are not scanned where there is an index: either takes no time.
const MIN_SCANNED_RECORDS: f64 = 1_000.0;
/// A plan must be cheaper than the one before it by this factor: estimates are coarse, and of two that are
/// about equal the one that settles more by its key is the safer one.
const MARGIN: f64 = 0.9;
/// The share of records that satisfy an equality, or a range, where no index tells.
const UNKNOWN_EQUAL: f64 = 0.1;
const UNKNOWN_RANGE: f64 = 0.33;
/// Accesses that are considered; those that narrow least are left out.
const MAX_LEGS: usize = 16;

/// One index and the part of it that is read.
pub(super) struct Leg<'i, S: ReadSource> {
    pub(super) index: &'i dyn SecondaryIndex<S>,
    pub(super) access: Access,
    /// About how many candidates that part has.
    pub(super) entries: f64,
    /// Whether candidates come in the order of the query.
    in_order: bool,
    /// Whether they come newest first.
    newest_first: bool,
}

/// How a query is answered.
pub(super) struct Plan<'i, S: ReadSource> {
    /// The indexes: none for a scan; the first leads, its candidates are filtered by those of the others.
    pub(super) legs: Vec<Leg<'i, S>>,
    /// True if all legs are merged by sequence number; else the others go into a set.
    pub(super) merge: bool,
    /// True if indexes could have served, and a scan was cheaper.
    pub(super) scans_by_choice: bool,
    /// What was considered, for explain.
    pub(super) alternatives: Vec<Alternative>,
}

/// The plan that a test wants.
#[cfg(test)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum ForcedPlan {
    /// The cheapest.
    #[default]
    Cheapest,
    /// As many indexes as were considered together; merged where that is possible and wanted.
    Intersect { merge: bool },
}

/// What costs are computed from.
struct Estimates<'p, 'q> {
    query: &'p CompiledQuery<'q>,
    /// Records of the table.
    records: f64,
    /// The share of records that satisfies each predicate.
    shares: Vec<f64>,
}

impl<'a, S: ReadSource> Lookup<'a, S> {
    /// Chooses the plan for a query. `explain`: say what else was considered.
    pub(super) fn plan(
        &self,
        query: &Query,
        compiled: &CompiledQuery<'_>,
        explain: bool,
    ) -> Result<Plan<'a, S>> {
        if let Some(name) = query.forced_index() {
            return self.forced(name, compiled);
        }
        let mut legs = Vec::new();
        for index in self.indexes {
            self.add_legs(*index, compiled, &mut legs);
        }
        legs.sort_by_key(|leg| std::cmp::Reverse(leg.access.rank()));
        legs.truncate(MAX_LEGS);
        let decided = match &legs[..] {
            [] => true,
            [only] => only.access.covered.len() == compiled.predicates.len() && compiled.limit < usize::MAX,
            _ => false,
        };
        if decided && !explain {
            return Ok(Plan { legs, merge: false, scans_by_choice: false, alternatives: Vec::new() });
        }
        self.cheapest(compiled, legs, decided, explain)
    }

    /// The index that the query names, and nothing else.
    fn forced(&self, name: &str, compiled: &CompiledQuery<'_>) -> Result<Plan<'a, S>> {
        let index = self.indexes.iter().find(|index| index.spec().name() == name).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("the collection has no index named {name:?}"))
        })?;
        let mut legs = Vec::new();
        self.add_legs(*index, compiled, &mut legs);
        legs.truncate(1);
        if legs.is_empty() {
            return Err(Error::invalid_input(format!(
                "index {name} cannot serve this query: no predicate is on `{}`",
                index.spec().attributes_text()
            )));
        }
        Ok(Plan { legs, merge: false, scans_by_choice: false, alternatives: Vec::new() })
    }

    /// Adds the ways in which `index` serves the query. Several predicates on one attribute may be met by several
    /// values of an array, so each gets an access of its own.
    fn add_legs(
        &self,
        index: &'a dyn SecondaryIndex<S>,
        compiled: &CompiledQuery<'_>,
        legs: &mut Vec<Leg<'a, S>>,
    ) {
        let mut taken: Vec<usize> = Vec::new();
        while legs.len() < 4 * MAX_LEGS && taken.len() < compiled.predicates.len() {
            let access = if taken.is_empty() {
                index.access(compiled)
            } else {
                let (rest, stay) = compiled.without(|number| taken.contains(&number));
                index.access(&rest).map(|mut access| {
                    for covered in &mut access.covered {
                        *covered = stay.get(*covered).copied().unwrap_or(usize::MAX);
                    }
                    access
                })
            };
            let Some(mut access) = access.filter(|access| !access.covered.is_empty()) else { return };
            taken.extend_from_slice(&access.covered);
            access.add_included(index.spec(), compiled);
            let leg = Leg { index, access, entries: 0.0, in_order: false, newest_first: false };
            legs.push(leg);
        }
    }

    fn cheapest(
        &self,
        compiled: &CompiledQuery<'_>,
        mut legs: Vec<Leg<'a, S>>,
        decided: bool,
        explain: bool,
    ) -> Result<Plan<'a, S>> {
        let records = (self.view.tree(self.table)?.estimate(&[], None)? as f64).max(1.0);
        let unknown = |equal: bool| if equal { UNKNOWN_EQUAL } else { UNKNOWN_RANGE };
        let shares = compiled.predicates.iter().map(|predicate| unknown(predicate.is_equal)).collect();
        let mut estimates = Estimates { query: compiled, records, shares };
        self.estimate_legs(&mut estimates, &mut legs)?;

        let mut alternatives = Vec::new();
        let mut best: Option<(f64, Vec<usize>, bool)> = None;
        let mut consider = |cost: f64, chosen: Vec<usize>, merge: bool| {
            alternatives.push((cost, chosen.clone()));
            if best.as_ref().is_none_or(|(least, ..)| cost < *least * MARGIN) {
                best = Some((cost, chosen, merge));
            }
        };
        for (number, leg) in legs.iter().enumerate() {
            consider(estimates.cost(&[leg], false), vec![number], false);
        }
        self.consider_intersections(&estimates, &legs, &mut consider);
        let scan = estimates.scan_cost();
        let scans = match &best {
            None => true,
            Some(_) if decided => false,
            Some((cost, ..)) => records >= MIN_SCANNED_RECORDS && scan * SCAN_RELUCTANCE < *cost,
        };
        alternatives.push((scan, Vec::new()));
        let (chosen, merge) = match best {
            Some((_, chosen, merge)) if !scans => (chosen, merge),
            _ => (Vec::new(), false),
        };
        #[cfg(test)]
        let (chosen, merge) = match self.options.forced_plan {
            ForcedPlan::Cheapest => (chosen, merge),
            ForcedPlan::Intersect { merge } => {
                let most = alternatives.iter().max_by_key(|(_, legs)| legs.len());
                let legs_of = most.map(|(_, legs)| legs.clone()).unwrap_or_default();
                let streams =
                    compiled.order == Order::Newest && legs_of.iter().all(|leg| legs[*leg].newest_first);
                (legs_of, merge && streams)
            }
        };
        let alternatives =
            if explain { describe(&estimates, &legs, &alternatives, &chosen) } else { Vec::new() };
        let scans_by_choice = chosen.is_empty() && !legs.is_empty();
        let mut slots: Vec<Option<Leg<'a, S>>> = legs.into_iter().map(Some).collect();
        let legs = chosen.iter().filter_map(|number| slots.get_mut(*number).and_then(Option::take)).collect();
        Ok(Plan { legs, merge, scans_by_choice, alternatives })
    }

    /// Asks the indexes how much they have, and in which order.
    fn estimate_legs(&self, estimates: &mut Estimates<'_, '_>, legs: &mut [Leg<'a, S>]) -> Result<()> {
        let query = estimates.query;
        for leg in legs.iter_mut() {
            let guess: f64 =
                leg.access.covered.iter().filter_map(|number| estimates.shares.get(*number)).product();
            let known = leg.index.estimate(&leg.access, self.view)?;
            leg.entries = known.map_or(guess * estimates.records, |entries| entries as f64);
            // Opening a cursor reads nothing.
            let order = leg.index.candidates(&leg.access, query.order, self.view)?.order();
            leg.in_order = order == Some(query.order);
            leg.newest_first = order == Some(Order::Newest);
        }
        // Who settles more of the same has no more entries, whatever blocks say.
        for number in 0..legs.len() {
            let covered = |leg: &Leg<'a, S>| leg.access.covered.clone();
            let own = covered(&legs[number]);
            let least = legs
                .iter()
                .filter(|other| other.access.covered.iter().all(|one| own.contains(one)))
                .map(|other| other.entries)
                .fold(legs[number].entries, f64::min);
            legs[number].entries = least;
        }
        for leg in legs.iter() {
            for number in &leg.access.covered {
                if let ([_], Some(share)) = (&leg.access.covered[..], estimates.shares.get_mut(*number)) {
                    *share = (leg.entries / estimates.records).min(1.0);
                }
            }
        }
        Ok(())
    }

    /// Adds to the best single index those that make it cheaper, one after the other.
    fn consider_intersections(
        &self,
        estimates: &Estimates<'_, '_>,
        legs: &[Leg<'a, S>],
        consider: &mut impl FnMut(f64, Vec<usize>, bool),
    ) {
        let mut by_entries: Vec<usize> = (0..legs.len()).collect();
        by_entries.sort_by(|left, right| legs[*left].entries.total_cmp(&legs[*right].entries));
        let Some(first) = by_entries.first().copied() else { return };
        let mut chosen = vec![first];
        let mut cost = f64::INFINITY;
        for number in by_entries.into_iter().skip(1) {
            let adds = |one: &usize| !chosen.iter().any(|number| legs[*number].access.covered.contains(one));
            if !legs[number].access.covered.iter().any(adds) {
                continue;
            }
            let mut with = chosen.clone();
            with.push(number);
            let all: Vec<&Leg<'a, S>> = with.iter().map(|number| &legs[*number]).collect();
            let merge = estimates.query.order == Order::Newest && all.iter().all(|leg| leg.newest_first);
            // The one in the query's order leads; else the largest, so that the set stays small.
            let lead = (0..with.len())
                .max_by(|left, right| {
                    let key = |at: &usize| (all[*at].in_order, all[*at].entries);
                    let (left, right) = (key(left), key(right));
                    left.0.cmp(&right.0).then(left.1.total_cmp(&right.1))
                })
                .unwrap_or(0);
            let mut ordered = with.clone();
            let lead = ordered.remove(lead);
            ordered.insert(0, lead);
            let all: Vec<&Leg<'a, S>> = ordered.iter().map(|number| &legs[*number]).collect();
            let with_cost = estimates.cost(&all, merge);
            consider(with_cost, ordered, merge);
            if with_cost >= cost && !cfg!(test) {
                return;
            }
            (cost, chosen) = (with_cost, with);
        }
    }
}

impl Estimates<'_, '_> {
    /// The share of records that satisfies the predicates whose numbers `take` takes.
    fn share(&self, take: impl Fn(usize) -> bool) -> f64 {
        self.shares.iter().enumerate().filter(|(number, _)| take(*number)).map(|(_, share)| share).product()
    }

    /// About how many records are answers, but for the limit.
    fn matches(&self) -> f64 {
        self.records * self.share(|_| true)
    }

    /// Which part of all answers the limit leaves.
    fn part(&self) -> f64 {
        if self.query.limit == usize::MAX {
            return 1.0;
        }
        (self.query.limit as f64 / self.matches().max(0.5)).min(1.0)
    }

    /// Nanoseconds to answer by these indexes, of which the first leads.
    fn cost<S: ReadSource>(&self, legs: &[&Leg<'_, S>], merge: bool) -> f64 {
        let Some(lead) = legs.first() else { return self.scan_cost() };
        let settles = |number: usize| legs.iter().any(|leg| leg.access.covered.contains(&number));
        let all_settled = (0..self.shares.len()).all(|number| settles(number) || lead.access.covers_predicate(number));
        let by_record = self.query.by_value() && !lead.access.has_order_value();
        let fetch = match self.query.projection {
            Projection::Records => true,
            Projection::Values => !Covered::new(self.query, &lead.access, lead.index.spec()).selects(),
            Projection::Keys | Projection::Count => false,
        } || !all_settled
            || by_record;
        let synchronous = legs.iter().any(|leg| leg.index.spec().maintenance() == Maintenance::Synchronous);
        let settle = match (fetch, synchronous) {
            (true, _) => FETCH_NANOS,
            (false, true) => 0.0,
            (false, false) => VALIDATE_NANOS,
        };
        let streams = merge || lead.in_order || self.query.projection == Projection::Count;
        let part = self.part();
        let read_part = if streams { part } else { 1.0 };
        let mut candidates = lead.entries;
        let mut nanos = SEEK_NANOS * legs.len() as f64;
        for other in legs.iter().skip(1) {
            let part = if merge { part } else { 1.0 };
            nanos += other.entries * part * (CANDIDATE_NANOS + if merge { 0.0 } else { SET_NANOS });
            candidates *= (other.entries / self.records).min(1.0);
        }
        nanos += lead.entries * read_part * CANDIDATE_NANOS;
        if legs.len() > 1 && !merge {
            nanos += lead.entries * read_part * SET_NANOS;
        }
        if !streams {
            nanos += candidates * SORT_NANOS;
        }
        let settled = if by_record { candidates } else { candidates * part };
        nanos + settled * settle
    }

    /// Nanoseconds to answer by scanning the table.
    fn scan_cost(&self) -> f64 {
        let fetched = match self.query.projection {
            Projection::Records | Projection::Values => self.matches() * self.part(),
            Projection::Keys | Projection::Count => 0.0,
        };
        SEEK_NANOS + self.records * SCAN_NANOS + fetched * FETCH_NANOS
    }
}

/// The plans that were considered, for people.
fn describe<S: ReadSource>(
    estimates: &Estimates<'_, '_>,
    legs: &[Leg<'_, S>],
    considered: &[(f64, Vec<usize>)],
    chosen: &[usize],
) -> Vec<Alternative> {
    let name = |number: &usize| legs.get(*number).map_or("", |leg| leg.index.spec().name());
    let mut all: Vec<Alternative> = considered
        .iter()
        .map(|(cost, numbers)| Alternative {
            indexes: numbers.iter().map(|number| name(number).to_owned()).collect(),
            candidates: match &numbers[..] {
                [] => estimates.records as u64,
                _ => {
                    numbers.iter().filter_map(|number| legs.get(*number)).map(|leg| leg.entries as u64).sum()
                }
            },
            estimated_nanos: *cost as u64,
            chosen: numbers == chosen,
        })
        .collect();
    all.sort_by_key(|one| (std::cmp::Reverse(one.chosen), one.estimated_nanos));
    all
}
