//! The one lookup driver: it turns the candidates of whatever index into exact answers.
//!
//! 1. **Choose** a plan by its estimated cost: one index, several intersected, or a scan of the table; an index
//!    that the query names is obeyed.
//! 2. **Candidates** stream from the index or the intersection. Predicates on attributes that the entries
//!    include are checked on these. Where they come in the order of the query they are passed on
//!    one by one; else they are collected in a bounded memory, sorted, and, should more
//!    have come than fit, read again from behind the last answer. In newest-first order a candidate is passed
//!    on as soon as the cursor's sequence bound says that nothing newer can come.
//! 3. **Settle** each candidate at the view. Where records are wanted, one lookup in the table both validates
//!    and fetches: the candidate is current if the record has its sequence number. Else the index's
//!    validator decides, and where it cannot, the table.
//! 4. **Check** all predicates on the fetched record.
//! 5. **Count** what one value may have of answers, and leave out what lies before the query's token.
//!
//! The limit counts settled answers only, so K answers are the first K of all matches, never fewer because
//! some candidates were obsolete. A write is answered once, however many of its values match: writes
//! are told apart by sequence number, of which each has its own.
//!
//! Nothing is allocated per candidate.

mod covered;
mod fetch;
mod give;
mod intersect;
mod per_value;
mod plan;
mod run;
mod settle;
mod window;

use std::ops::{ControlFlow, Deref};

use bolide_base::{Error, ErrorKind, Result, SequenceNumber, TreeId};

use bolide_table::ReadCounters;

use crate::attribute::Value as Selected;
use crate::candidate::CandidateCursor;
use crate::cursor_token::CursorToken;
use crate::explain::Explain;
use crate::extractor::AttributeExtractor;
use crate::fetch::FetchOptions;
use crate::query::{CompiledQuery, Query};
use crate::scan::{ScanCursor, ScanSkips};
use crate::secondary_index::SecondaryIndex;
use crate::source::{ReadSource, TreeSource};
use crate::spec::Maintenance;

use self::intersect::{FilteredCursor, MergeCursor, SequenceSet};
use self::plan::{Leg, Plan};
use self::run::Run;

/// Settings of a lookup.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct LookupOptions<'a> {
    /// Memory for candidates that have to be sorted, in bytes. Default: 32 MiB. With less, an order that the
    /// index does not deliver may take several passes over it.
    pub collect_bytes: usize,
    /// Check on every fetched record also those predicates that the index settles. Default: true. It
    /// costs one extraction a record, and turns damage to an index into a missing answer instead of a
    /// wrong one.
    pub recheck: bool,
    /// The caller keeps the view: it is a snapshot. Tokens of the query then belong to it. Default: false, the view
    /// is the latest state.
    pub held: bool,
    /// How records are fetched.
    pub fetch: FetchOptions<'a>,
    /// A clock in nanoseconds, to measure the stages with. Default: none.
    pub clock: Option<&'a dyn Fn() -> u64>,
    /// Which plan to take, whatever it costs.
    #[cfg(test)]
    pub(crate) forced_plan: plan::ForcedPlan,
}

impl Default for LookupOptions<'_> {
    fn default() -> Self {
        Self {
            collect_bytes: 32 << 20,
            recheck: true,
            held: false,
            fetch: FetchOptions::default(),
            clock: None,
            #[cfg(test)]
            forced_plan: plan::ForcedPlan::default(),
        }
    }
}

/// The record of an answer.
#[derive(Debug, Clone, Copy)]
pub enum RowRecord<'r, V> {
    /// It was fetched for this answer.
    Fetched(V),
    /// It lies where the index read it.
    Lent(&'r [u8]),
}

impl<V: Deref<Target = [u8]>> Deref for RowRecord<'_, V> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Fetched(record) => record,
            Self::Lent(record) => record,
        }
    }
}

/// One answer; it borrows the key.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Row<'r, V> {
    /// The record's key.
    pub primary_key: &'r [u8],
    /// The sequence number of the write that the answer is.
    pub sequence: SequenceNumber,
    /// The record, if the query asks for records.
    pub record: Option<RowRecord<'r, V>>,
    /// The selected values, path by path, for [`Query::select`]; else empty.
    pub values: &'r [Vec<Selected>],
}

/// What is asked: a collection at a view, with its indexes.
#[derive(Clone, Copy)]
pub struct Lookup<'a, S: ReadSource> {
    /// The view that answers are exact for.
    pub view: &'a S,
    /// The tree of the records.
    pub table: TreeId,
    /// Finds attributes in records; `None` for a collection without attributes.
    pub extractor: Option<&'a dyn AttributeExtractor>,
    /// The indexes that are complete at the view.
    pub indexes: &'a [&'a dyn SecondaryIndex<S>],
    /// Settings.
    pub options: LookupOptions<'a>,
}

type Value<S> = <<S as ReadSource>::Tree as TreeSource>::Value;

impl<S: ReadSource> Lookup<'_, S> {
    /// Answers `query`: hands the answers to `emit` in order until it breaks, and says what it cost. A counting query
    /// emits nothing; the count is [`Explain::answers`].
    ///
    /// # Errors
    /// `InvalidInput` for a malformed query, for predicates on a collection without attributes, and
    /// where the index that the query names cannot serve it; `NotFound` where there is no such index; `Corruption` or
    /// `Io` from reading; those of `emit`.
    pub fn run(
        &self,
        query: &Query,
        emit: impl FnMut(Row<'_, Value<S>>) -> Result<ControlFlow<()>>,
    ) -> Result<Explain> {
        let compiled = CompiledQuery::new(query)?;
        if self.extractor.is_none() && !compiled.predicates.is_empty() {
            return Err(Error::invalid_input(
                "the records of this collection have no attributes: it needs an extractor",
            ));
        }
        self.check_token(&compiled)?;
        let start = self.options.clock.map_or(0, |clock| clock());
        let before = ReadCounters::of_this_thread();
        let mut plan = self.plan(query, &compiled, self.options.clock.is_some())?;
        let planned = self.options.clock.map_or(0, |clock| clock());
        let (by_choice, alternatives) = (plan.scans_by_choice, std::mem::take(&mut plan.alternatives));
        let mut explain = match &plan.legs[..] {
            [] => self.run_scan(query, &compiled, emit)?,
            _ => self.run_index(plan, query, &compiled, emit)?,
        };
        (explain.scans_by_choice, explain.alternatives) = (by_choice, alternatives);
        explain.plan_nanos = planned - start;
        explain.reads = ReadCounters::of_this_thread() - before;
        Ok(explain)
    }

    /// A token of a snapshot goes on at that snapshot alone.
    fn check_token(&self, compiled: &CompiledQuery<'_>) -> Result<()> {
        let Some(snapshot) = compiled.after.and_then(CursorToken::snapshot) else {
            return Ok(());
        };
        if self.options.held && snapshot == self.view.sequence() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Expired,
            "the cursor token belongs to a snapshot that was not passed with it: what it saw may be gone",
        ))
    }

    fn run_index(
        &self,
        mut plan: Plan<'_, S>,
        query: &Query,
        compiled: &CompiledQuery<'_>,
        emit: impl FnMut(Row<'_, Value<S>>) -> Result<ControlFlow<()>>,
    ) -> Result<Explain> {
        let table = self.view.tree(self.table)?;
        let mut read = 0;
        let set = if compiled.limit == 0 { None } else { self.prepare(&mut plan, compiled, &mut read)? };
        let Some((lead, others)) = plan.legs.split_first_mut() else {
            return Err(Error::internal("a plan has no index"));
        };
        if let (Some(token), false) = (compiled.after, compiled.needs_order_values() && !compiled.by_value()) {
            lead.access.resume_at(compiled.order, &token.value, token.sequence);
        }
        let (lead, others) = (&*lead, &*others);
        let synchronous = |leg: &&Leg<'_, S>| leg.index.spec().maintenance() == Maintenance::Synchronous;
        let validator =
            others.iter().find(synchronous).filter(|_| !synchronous(&lead)).unwrap_or(lead).index.validator();
        let asked = validator.tree().map(|tree| self.view.tree(tree)).transpose()?;
        let mut run = Run::new(self, compiled, &table, Some(validator), emit);
        run.asked = asked.as_ref().unwrap_or(&table);
        run.read_through(lead, others, self.options.recheck);
        // An index in the sstables has the record in hand: what validates is the same with it and without.
        // One that costs no I/O comes first where that saves work in the table.
        let comes_first = self.options.fetch.by_sequence && validator.is_immediate();
        let by_record = run.fetch && !comes_first && lead.index.spec().kind().is_standalone();
        run.explain.validation = if by_record { "record" } else { validator.name() };
        run.explain.candidates = read;
        if self.options.clock.is_some() {
            describe_predicates(query, lead, others, &mut run.explain);
        }
        let empty = |leg: &Leg<'_, S>| leg.access.low >= leg.access.end;
        let nothing =
            empty(lead) || others.iter().any(empty) || set.as_ref().is_some_and(SequenceSet::is_empty);
        if !nothing && compiled.limit > 0 {
            run.drive(|| {
                let cursor = lead.index.candidates(&lead.access, compiled.order, self.view)?;
                if let Some(set) = &set {
                    return Ok(Box::new(FilteredCursor::new(cursor, set)) as Box<dyn CandidateCursor + '_>);
                }
                if others.is_empty() {
                    return Ok(cursor);
                }
                let mut cursors = Vec::with_capacity(others.len());
                for leg in others {
                    cursors.push(leg.index.candidates(&leg.access, compiled.order, self.view)?);
                }
                Ok(Box::new(MergeCursor::new(cursor, cursors)))
            })?;
        }
        Ok(run.finish(query, self))
    }

    /// Reads the indexes that do not lead into a set, where the plan does not merge them. One whose set does
    /// not fit leaves the plan: its predicates are then checked on records.
    fn prepare(
        &self,
        plan: &mut Plan<'_, S>,
        compiled: &CompiledQuery<'_>,
        read: &mut u64,
    ) -> Result<Option<SequenceSet>> {
        if plan.merge || plan.legs.len() < 2 {
            return Ok(None);
        }
        // A narrow set first: what follows is kept only as far as it is in it.
        let mut others = plan.legs.split_off(1);
        others.sort_by(|left, right| left.entries.total_cmp(&right.entries));
        let mut set: Option<SequenceSet> = None;
        for mut leg in others {
            // A set has no order.
            leg.access.near = None;
            if leg.access.low >= leg.access.end {
                plan.legs.push(leg);
                return Ok(Some(SequenceSet::default()));
            }
            let bytes = self.options.collect_bytes;
            let collected = {
                let mut cursor = leg.index.candidates(&leg.access, compiled.order, self.view)?;
                SequenceSet::collect(&mut *cursor, set.as_ref(), bytes, read)?
            };
            if let Some(collected) = collected {
                set = Some(collected);
                plan.legs.push(leg);
            }
        }
        Ok(set)
    }

    fn run_scan(
        &self,
        query: &Query,
        compiled: &CompiledQuery<'_>,
        emit: impl FnMut(Row<'_, Value<S>>) -> Result<ControlFlow<()>>,
    ) -> Result<Explain> {
        let table = self.view.tree(self.table)?;
        let extractor = self.extractor.filter(|_| !compiled.predicates.is_empty());
        let skipped = ScanSkips::default();
        let mut run = Run::new(self, compiled, &table, None, emit);
        run.read_table();
        run.explain.access = "scan";
        run.explain.validation = "none";
        run.explain.filtered = query.predicates().iter().map(ToString::to_string).collect();
        if compiled.limit > 0 {
            run.drive(|| {
                let records = table.cursor(&[], None)?;
                Ok(Box::new(ScanCursor::new(records, compiled, extractor, &skipped)))
            })?;
        }
        run.explain.mismatched = skipped.mismatched.get();
        run.explain.malformed = skipped.malformed.get();
        run.explain.current = run.explain.candidates;
        run.explain.candidates += run.explain.mismatched + run.explain.malformed;
        Ok(run.finish(query, self))
    }
}

/// Notes which predicates are settled where, as written.
fn describe_predicates<S: ReadSource>(
    query: &Query,
    lead: &Leg<'_, S>,
    others: &[Leg<'_, S>],
    explain: &mut Explain,
) {
    for (number, predicate) in query.predicates().iter().enumerate() {
        let covers = |leg: &Leg<'_, S>| leg.access.covered.contains(&number);
        let list = if covers(lead) || others.iter().any(covers) {
            &mut explain.covered
        } else if lead.access.covers_predicate(number) {
            &mut explain.included
        } else {
            &mut explain.filtered
        };
        list.push(predicate.to_string());
    }
}

#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod tests;
