//! The planner: chooses between one index, an intersection of several, and a scan of the table.
//!
//! Each plan has a cost in nanoseconds. It depends on the estimated number of candidates of each index within the query's
//! bounds (from block indexes, without reading data), on the limit, and on whether candidates come in the query's order. The
//! constants below were measured on one machine, with records of 300 bytes, one sorted run and all blocks in the cache, by
//!
//! ```text
//! cargo run --release -p bolide-bench --example plan_costs
//! ```
//!
//! Only their ratios matter, and a wrong choice between plans of similar cost costs little. If blocks are not cached, fetches
//! cost more than the constants, and scans, which read blocks sequentially, less so: the planner then favours indexes too
//! much.
//!
//! The number of records that satisfy several predicates is estimated as if attributes were independent. Unknown shares are
//! guessed: a tenth for an equality, a third for a range.

use bolide_base::{Error, ErrorKind, Result};

use crate::compiled_query::CompiledQuery;
use crate::explain::Alternative;
use crate::query::{Order, Projection, Query};
use crate::secondary_index::SecondaryIndex;
use crate::source::{ReadSource, TreeSource};
use crate::spec::Maintenance;

use super::Lookup;
use super::access_path::AccessPath;
use super::covered::CoveredAttributes;
use super::refused::{RefusedIndex, first_refused};
use super::union::MAX_MERGED;

/// Opening a cursor and its first seek: one or two blocks in each sorted run.
const SEEK_NANOS: f64 = 1_730.0;
/// Reading the next entry of an index.
const CANDIDATE_NANOS: f64 = 57.0;
/// Inserting or looking up a number in the set of an intersection: a memory access that misses the caches. Not measured.
const SET_NANOS: f64 = 60.0;
/// Collecting a candidate that has to be sorted.
const SORT_NANOS: f64 = 61.0;
/// Fetching a record by key (a filter and a block in some runs) and extracting its attributes.
const FETCH_NANOS: f64 = 1_279.0;
/// Validating a candidate without fetching the value.
const VALIDATE_NANOS: f64 = 549.0;
/// Reading the next record of a scan, and extracting its attributes.
const SCAN_NANOS: f64 = 222.0;

/// A scan must be cheaper than the best index by this factor: a scan always reads all records, while an index may read fewer
/// than estimated.
const SCAN_RELUCTANCE: f64 = 1.3;
/// Smaller tables are not scanned if there is an index: both plans are fast.
const MIN_SCANNED_RECORDS: f64 = 1_000.0;
/// A plan must be cheaper than the best one before it by this factor. Estimates are coarse, and of two plans of about equal
/// cost the earlier one, whose key covers more predicates, is the safer one.
const MARGIN: f64 = 0.9;
/// The share of records that satisfy an equality, or a range, if no index provides an estimate.
const UNKNOWN_EQUAL: f64 = 0.1;
const UNKNOWN_RANGE: f64 = 0.33;
/// Maximum members of a union whose entries are estimated.
const MAX_ESTIMATED: usize = 64;
/// Maximum access paths that are considered; the least selective are dropped.
const MAX_PATHS: usize = 16;

/// The plan of a query.
pub(super) struct LookupPlan<'i, S: ReadSource> {
    /// The access paths: none for a scan. The first is the driving index; the others filter its candidates.
    pub(super) paths: Vec<AccessPath<'i, S>>,
    /// True if all paths are merged by sequence number; else the filtering ones are read into a set.
    pub(super) merge: bool,
    /// True if an index could serve the query, but a scan is cheaper.
    pub(super) scans_by_choice: bool,
    /// All plans considered, for explain.
    pub(super) alternatives: Vec<Alternative>,
    /// Estimated number of answers without a limit; 0 without an estimate.
    pub(super) matches: f64,
    /// The indexes that could not be read.
    pub(super) refused: Vec<RefusedIndex>,
}

impl<'i, S: ReadSource> LookupPlan<'i, S> {
    /// The plan with these paths, without estimates.
    fn of(paths: Vec<AccessPath<'i, S>>) -> Self {
        let (alternatives, refused) = (Vec::new(), Vec::new());
        Self { paths, merge: false, scans_by_choice: false, alternatives, matches: 0.0, refused }
    }
}

/// The plan that a test requires.
#[cfg(test)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum ForcedPlan {
    /// The cheapest.
    #[default]
    Cheapest,
    /// The largest intersection that was considered; merged if that is possible and `merge` is set.
    Intersect { merge: bool },
}

/// The input of cost estimates.
struct Estimates<'p, 'q> {
    query: &'p CompiledQuery<'q>,
    /// Records of the table.
    records: f64,
    /// The share of records that satisfies each predicate.
    shares: Vec<f64>,
}

impl<'a, S: ReadSource> Lookup<'a, S> {
    /// Chooses the plan for a query. `explain`: returns the alternatives too.
    pub(super) fn choose_plan(
        &self,
        query: &Query,
        compiled: &CompiledQuery<'_>,
        explain: bool,
    ) -> Result<LookupPlan<'a, S>> {
        if let Some(name) = query.forced_index() {
            return self.forced(name, compiled);
        }
        let (paths, refused) = self.readable_paths(compiled)?;
        let plan = self.plan_of(compiled, paths, explain)?;
        Ok(LookupPlan { refused, ..plan })
    }

    /// The plan for a query with these access paths.
    fn plan_of(
        &self,
        compiled: &CompiledQuery<'_>,
        paths: Vec<AccessPath<'a, S>>,
        explain: bool,
    ) -> Result<LookupPlan<'a, S>> {
        let decided = match &paths[..] {
            [] => true,
            [only] if !only.is_union() => {
                only.access.covered.len() == compiled.parts() && compiled.limit < usize::MAX
            }
            _ => false,
        };
        if decided && !explain {
            return Ok(LookupPlan::of(paths));
        }
        self.cheapest(compiled, paths, decided, explain)
    }

    /// The plan for a query with its costs, and the estimated number of answers without a limit.
    pub(super) fn estimated_plan(
        &self,
        query: &Query,
        compiled: &CompiledQuery<'_>,
    ) -> Result<(LookupPlan<'a, S>, f64)> {
        let forced = query.forced_index().is_some();
        let paths = match forced {
            true => self.choose_plan(query, compiled, false)?.paths,
            false => self.readable_paths(compiled)?.0,
        };
        let plan = self.cheapest(compiled, paths, forced, true)?;
        let matches = plan.matches;
        Ok((plan, matches))
    }

    /// The access paths of the indexes that can be read, and the other indexes that would serve the query. Opens the former;
    /// indexes that do not serve the query stay closed.
    fn readable_paths(
        &self,
        compiled: &CompiledQuery<'_>,
    ) -> Result<(Vec<AccessPath<'a, S>>, Vec<RefusedIndex>)> {
        let mut refused = Vec::new();
        loop {
            let is_allowed = |name: &str| !refused.iter().any(|known: &RefusedIndex| known.name == name);
            let paths = self.all_paths(compiled, &is_allowed);
            match first_refused(paths.iter().flat_map(AccessPath::indexes))? {
                // Another index may serve an alternative of a union.
                Some(found) => refused.push(found),
                None => return Ok((paths, refused)),
            }
        }
    }

    /// The access paths of all indexes with `is_allowed` names, the most selective first.
    fn all_paths(
        &self,
        compiled: &CompiledQuery<'_>,
        is_allowed: &dyn Fn(&str) -> bool,
    ) -> Vec<AccessPath<'a, S>> {
        let mut paths = Vec::new();
        for index in self.indexes.iter().filter(|index| is_allowed(index.spec().name())) {
            self.add_paths(*index, compiled, &mut paths);
        }
        if !compiled.terms.is_empty() {
            self.add_unions(compiled, is_allowed, &mut paths);
        }
        paths.sort_by_key(|path| std::cmp::Reverse(path.access.rank()));
        paths.truncate(MAX_PATHS);
        paths
    }

    /// The plan for the index that the query names.
    fn forced(&self, name: &str, compiled: &CompiledQuery<'_>) -> Result<LookupPlan<'a, S>> {
        let index = self.indexes.iter().find(|index| index.spec().name() == name).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("the collection has no index named {name:?}"))
        })?;
        let mut paths = Vec::new();
        self.add_paths(*index, compiled, &mut paths);
        if paths.is_empty() {
            self.add_unions(compiled, &|other| other == name, &mut paths);
        }
        paths.truncate(1);
        if paths.is_empty() {
            return Err(self.cannot_serve(*index, compiled));
        }
        Ok(LookupPlan::of(paths))
    }

    /// Adds the access paths of `index` for the query. Different values of an array may satisfy several predicates on one
    /// attribute, so each predicate gets its own access.
    fn add_paths(
        &self,
        index: &'a dyn SecondaryIndex<S>,
        compiled: &CompiledQuery<'_>,
        paths: &mut Vec<AccessPath<'a, S>>,
    ) {
        let mut used: Vec<usize> = Vec::new();
        while paths.len() < 4 * MAX_PATHS && used.len() < compiled.predicates.len() {
            let access = if used.is_empty() {
                index.access(compiled)
            } else {
                let (rest, numbers) = compiled.without(|number| used.contains(&number));
                index.access(&rest).map(|mut access| {
                    for covered in &mut access.covered {
                        *covered = numbers.get(*covered).copied().unwrap_or(usize::MAX);
                    }
                    access
                })
            };
            let Some(mut access) = access.filter(|access| !access.covered.is_empty()) else { return };
            used.extend_from_slice(&access.covered);
            access.add_included(index.spec(), compiled);
            paths.push(AccessPath::new(index, access));
        }
    }

    fn cheapest(
        &self,
        compiled: &CompiledQuery<'_>,
        mut paths: Vec<AccessPath<'a, S>>,
        decided: bool,
        explain: bool,
    ) -> Result<LookupPlan<'a, S>> {
        let records = (self.view.tree(self.table)?.estimate(&[], None)? as f64).max(1.0);
        let unknown = |equal: bool| if equal { UNKNOWN_EQUAL } else { UNKNOWN_RANGE };
        let of_predicates = compiled.predicates.iter().map(|predicate| unknown(predicate.is_equal));
        let of_terms = compiled.terms.iter().map(|term| term.guessed_share(UNKNOWN_EQUAL, UNKNOWN_RANGE));
        let shares = of_predicates.chain(of_terms).collect();
        let mut estimates = Estimates { query: compiled, records, shares };
        self.estimate_paths(&mut estimates, &mut paths)?;

        let mut alternatives = Vec::new();
        let mut best: Option<(f64, Vec<usize>, bool)> = None;
        let mut consider = |cost: f64, chosen: Vec<usize>, merge: bool| {
            alternatives.push((cost, chosen.clone()));
            if best.as_ref().is_none_or(|(best_cost, ..)| cost < *best_cost * MARGIN) {
                best = Some((cost, chosen, merge));
            }
        };
        for (number, path) in paths.iter().enumerate() {
            consider(estimates.cost(&[path], false), vec![number], false);
        }
        self.consider_intersections(&estimates, &paths, &mut consider);
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
                let largest = alternatives.iter().max_by_key(|(_, numbers)| numbers.len());
                let numbers = largest.map(|(_, numbers)| numbers.clone()).unwrap_or_default();
                let streams = compiled.order == Order::Newest
                    && numbers.iter().all(|number| paths[*number].newest_first);
                (numbers, merge && streams)
            }
        };
        let alternatives =
            if explain { describe(&estimates, &paths, &alternatives, &chosen) } else { Vec::new() };
        let scans_by_choice = chosen.is_empty() && !paths.is_empty();
        let mut slots: Vec<Option<AccessPath<'a, S>>> = paths.into_iter().map(Some).collect();
        let paths =
            chosen.iter().filter_map(|number| slots.get_mut(*number).and_then(Option::take)).collect();
        let (matches, refused) = (estimates.matches(), Vec::new());
        Ok(LookupPlan { paths, merge, scans_by_choice, alternatives, matches, refused })
    }

    /// Estimates the entries of each path, and determines the order of its candidates.
    fn estimate_paths(
        &self,
        estimates: &mut Estimates<'_, '_>,
        paths: &mut [AccessPath<'a, S>],
    ) -> Result<()> {
        let query = estimates.query;
        for path in paths.iter_mut() {
            let guess: f64 =
                path.access.covered.iter().filter_map(|number| estimates.shares.get(*number)).product();
            path.entries = self.estimate_members(path, guess * estimates.records)?;
            let order = self.order_of(path, query.index_order())?;
            path.in_order = order == Some(query.order);
            path.newest_first = order == Some(Order::Newest);
        }
        // A path that covers a superset of predicates has no more entries, whatever the estimate is.
        for number in 0..paths.len() {
            let covered = |path: &AccessPath<'a, S>| path.access.covered.clone();
            let own = covered(&paths[number]);
            let min = paths
                .iter()
                .filter(|other| !other.access.covered.is_empty())
                .filter(|other| other.access.covered.iter().all(|one| own.contains(one)))
                .map(|other| other.entries)
                .fold(paths[number].entries, f64::min);
            paths[number].entries = min;
        }
        for path in paths.iter() {
            for number in &path.access.covered {
                if let ([_], Some(share)) = (&path.access.covered[..], estimates.shares.get_mut(*number)) {
                    *share = (path.entries / estimates.records).min(1.0);
                }
            }
        }
        Ok(())
    }

    /// The estimated candidates of all members of `path`; `guess` if they are unknown. Of many members, some are estimated.
    fn estimate_members(&self, path: &AccessPath<'a, S>, guess: f64) -> Result<f64> {
        let step = path.members().div_ceil(MAX_ESTIMATED);
        let (mut entries, mut estimated) = (0.0, 0);
        for (index, access) in (0..path.members()).step_by(step).filter_map(|number| path.member(number)) {
            let Some(known) = index.estimate(access, self.view)? else { return Ok(guess) };
            entries += known as f64;
            estimated += 1;
        }
        Ok(entries * path.members() as f64 / f64::from(estimated.max(1)))
    }

    /// The order in which the candidates of `path` come.
    fn order_of(&self, path: &AccessPath<'a, S>, order: Order) -> Result<Option<Order>> {
        if path.is_union() && path.members() > MAX_MERGED {
            return Ok(None);
        }
        let mut found = None;
        // Lists have many members of one form, in one index.
        let members = if path.has_one_index() { path.members().min(MAX_ESTIMATED) } else { path.members() };
        for (number, (index, access)) in (0..members).filter_map(|number| path.member(number)).enumerate() {
            // Opening a cursor reads no data.
            let own = index.candidates(access, order, self.view)?.order();
            if number > 0 && own != found {
                return Ok(None);
            }
            found = own;
        }
        Ok(found.filter(|found| !path.is_union() || *found == order))
    }

    /// Extends the most selective index by others, one after the other, while that reduces the cost.
    fn consider_intersections(
        &self,
        estimates: &Estimates<'_, '_>,
        paths: &[AccessPath<'a, S>],
        consider: &mut impl FnMut(f64, Vec<usize>, bool),
    ) {
        let mut by_entries: Vec<usize> = (0..paths.len()).collect();
        by_entries.sort_by(|left, right| paths[*left].entries.total_cmp(&paths[*right].entries));
        let Some(first) = by_entries.first().copied() else { return };
        let mut chosen = vec![first];
        let mut cost = f64::INFINITY;
        for number in by_entries.into_iter().skip(1) {
            let adds = |one: &usize| !chosen.iter().any(|number| paths[*number].access.covered.contains(one));
            if !paths[number].access.covered.iter().any(adds) {
                continue;
            }
            let mut with = chosen.clone();
            with.push(number);
            let all: Vec<&AccessPath<'a, S>> = with.iter().map(|number| &paths[*number]).collect();
            let merge = estimates.query.order == Order::Newest && all.iter().all(|path| path.newest_first);
            // The driving index is one in the query's order; else the largest, so that the set is small.
            let driving = (0..with.len())
                .max_by(|left, right| {
                    let key = |at: &usize| (all[*at].in_order, all[*at].entries);
                    let (left, right) = (key(left), key(right));
                    left.0.cmp(&right.0).then(left.1.total_cmp(&right.1))
                })
                .unwrap_or(0);
            let mut ordered = with.clone();
            let driving = ordered.remove(driving);
            ordered.insert(0, driving);
            let all: Vec<&AccessPath<'a, S>> = ordered.iter().map(|number| &paths[*number]).collect();
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
    /// Estimated records that satisfy all predicates.
    fn matches(&self) -> f64 {
        self.records * self.shares.iter().product::<f64>()
    }

    /// The fraction of all matches that the limit allows.
    fn part(&self) -> f64 {
        if self.query.limit == usize::MAX {
            return 1.0;
        }
        (self.query.limit as f64 / self.matches().max(0.5)).min(1.0)
    }

    /// Estimated nanoseconds of a plan with these paths, of which the first is the driving one.
    fn cost<S: ReadSource>(&self, paths: &[&AccessPath<'_, S>], merge: bool) -> f64 {
        let Some(driving) = paths.first() else { return self.scan_cost() };
        let covers = |number: usize| {
            driving.access.covers_predicate(number)
                || paths.iter().any(|path| path.access.covered.contains(&number))
        };
        let all_covered = (0..self.shares.len()).all(covers);
        let by_record = self.query.by_value() && !driving.has_order_value();
        let fetch = match self.query.projection {
            Projection::Records => true,
            Projection::Values => {
                driving.is_union()
                    || !CoveredAttributes::new(self.query, &driving.access, driving.index.spec()).selects()
            }
            Projection::Keys | Projection::Count | Projection::Parts => false,
        } || !all_covered
            || by_record;
        let synchronous =
            paths.iter().any(|path| path.index.spec().maintenance() == Maintenance::Synchronous);
        let resolve_nanos = match (fetch, synchronous) {
            (true, _) => FETCH_NANOS,
            (false, true) => 0.0,
            (false, false) => VALIDATE_NANOS,
        };
        let streams = merge || driving.in_order || self.query.projection == Projection::Count;
        let part = self.part();
        let read_part = if streams { part } else { 1.0 };
        let mut candidates = driving.entries;
        let mut nanos = SEEK_NANOS * paths.iter().map(|path| path.members()).sum::<usize>() as f64;
        for other in paths.iter().skip(1) {
            let part = if merge { part } else { 1.0 };
            nanos += other.entries * part * (CANDIDATE_NANOS + if merge { 0.0 } else { SET_NANOS });
            candidates *= (other.entries / self.records).min(1.0);
        }
        nanos += driving.entries * read_part * CANDIDATE_NANOS;
        if paths.len() > 1 && !merge {
            nanos += driving.entries * read_part * SET_NANOS;
        }
        if !streams {
            nanos += candidates * SORT_NANOS;
        }
        let resolved = if by_record { candidates } else { candidates * part };
        nanos + resolved * resolve_nanos
    }

    /// Estimated nanoseconds of a scan of the table.
    fn scan_cost(&self) -> f64 {
        let fetched = match self.query.projection {
            Projection::Records | Projection::Values => self.matches() * self.part(),
            Projection::Keys | Projection::Count | Projection::Parts => 0.0,
        };
        SEEK_NANOS + self.records * SCAN_NANOS + fetched * FETCH_NANOS
    }
}

/// The plans that were considered, for explain.
fn describe<S: ReadSource>(
    estimates: &Estimates<'_, '_>,
    paths: &[AccessPath<'_, S>],
    considered: &[(f64, Vec<usize>)],
    chosen: &[usize],
) -> Vec<Alternative> {
    let names = |number: &usize| {
        paths.get(*number).into_iter().flat_map(|path| {
            std::iter::once(path.index.spec().name().to_owned()).chain(path.united_indexes())
        })
    };
    let mut all: Vec<Alternative> = considered
        .iter()
        .map(|(cost, numbers)| Alternative {
            indexes: numbers.iter().flat_map(names).collect(),
            candidates: match &numbers[..] {
                [] => estimates.records as u64,
                _ => numbers
                    .iter()
                    .filter_map(|number| paths.get(*number))
                    .map(|path| path.entries as u64)
                    .sum(),
            },
            estimated_nanos: *cost as u64,
            chosen: numbers == chosen,
        })
        .collect();
    all.sort_by_key(|one| (std::cmp::Reverse(one.chosen), one.estimated_nanos));
    all
}
