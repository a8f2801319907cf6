//! The lookup driver: it turns the candidates of any kind of index into exact answers.
//!
//! 1. **Plan.** The planner chooses by estimated cost between one index, an intersection of several, and a scan of the
//!    table. An index that the query names is always used.
//! 2. **Candidates** stream from the index or the intersection. Predicates on included attributes are checked on the
//!    entries. If candidates come in the order of the query they are passed on one by one. Else they are collected in
//!    bounded memory and sorted; if they exceed it, the index is read again from the last answer on. In newest-first order a
//!    collected candidate is passed on as soon as the sequence bound of the cursor excludes newer ones.
//! 3. **Validation and fetch.** If records are needed, one lookup in the table validates and fetches: the candidate is
//!    current if the record has its sequence number. Else the validator of the index decides, or the table if the validator
//!    cannot.
//! 4. **Check** of all predicates on the fetched record.
//! 5. **Limits.** The driver counts the answers of each value, and skips answers before the query's token.
//!
//! The limit counts validated answers only, so K answers are the first K of all matches, regardless of obsolete
//! candidates. A write is answered once even if several of its values match; writes are identified by sequence number.
//!
//! Nothing is allocated per candidate.

mod covered;
mod emit;
mod execution;
mod fetch;
mod intersect;
mod per_value;
mod plan;
mod resolve;
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

use self::execution::Execution;
use self::intersect::{FilteredCursor, MergeCursor, SequenceSet};
use self::plan::{AccessPath, LookupPlan};

/// Settings of a lookup.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct LookupOptions<'a> {
    /// Memory for candidates that have to be sorted, in bytes. Default: 32 MiB. With less, a query in another order than
    /// that of the index may read it several times.
    pub collect_bytes: usize,
    /// Check all predicates on every fetched record, including those that the index covers. Default: true. It costs one
    /// extraction a record; damage to an index then causes a missing answer instead of a wrong one.
    pub recheck: bool,
    /// The view is a snapshot of the caller, and tokens of the query belong to it. Default: false, the view is the latest
    /// state.
    pub is_snapshot: bool,
    /// How records are fetched.
    pub fetch: FetchOptions<'a>,
    /// A clock in nanoseconds to measure the stages. Default: none.
    pub clock: Option<&'a dyn Fn() -> u64>,
    /// The plan to use regardless of its cost.
    #[cfg(test)]
    pub(crate) forced_plan: plan::ForcedPlan,
}

impl Default for LookupOptions<'_> {
    fn default() -> Self {
        Self {
            collect_bytes: 32 << 20,
            recheck: true,
            is_snapshot: false,
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
    /// A record that was fetched for this answer.
    Fetched(V),
    /// A record in a buffer of the index.
    Borrowed(&'r [u8]),
}

impl<V: Deref<Target = [u8]>> Deref for RowRecord<'_, V> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Fetched(record) => record,
            Self::Borrowed(record) => record,
        }
    }
}

/// One answer; it borrows the key.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Row<'r, V> {
    /// The record's key.
    pub primary_key: &'r [u8],
    /// The sequence number of the record's write.
    pub sequence: SequenceNumber,
    /// The record, for queries that return records.
    pub record: Option<RowRecord<'r, V>>,
    /// The selected values, path by path, for [`Query::select`]; else empty.
    pub values: &'r [Vec<Selected>],
}

/// A collection at a view, with its indexes.
#[derive(Clone, Copy)]
pub struct Lookup<'a, S: ReadSource> {
    /// The view at which answers are exact.
    pub view: &'a S,
    /// The tree of the records.
    pub table: TreeId,
    /// Extracts attributes from records; `None` for a collection without attributes.
    pub extractor: Option<&'a dyn AttributeExtractor>,
    /// The indexes that are complete at the view.
    pub indexes: &'a [&'a dyn SecondaryIndex<S>],
    /// Settings.
    pub options: LookupOptions<'a>,
}

type RecordRef<S> = <<S as ReadSource>::Tree as TreeSource>::Value;

impl<S: ReadSource> Lookup<'_, S> {
    /// Runs `query`: calls `emit` with the answers in order until it breaks, and returns plan and cost. A counting query
    /// emits nothing; the count is [`Explain::answers`].
    ///
    /// # Errors
    /// `InvalidInput` for a malformed query, for predicates on a collection without attributes, and if the index that the
    /// query names cannot serve it; `NotFound` if there is no such index; `Corruption` or `Io` from reading; those of `emit`.
    pub fn run(
        &self,
        query: &Query,
        emit: impl FnMut(Row<'_, RecordRef<S>>) -> Result<ControlFlow<()>>,
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
        let mut explain = match &plan.paths[..] {
            [] => self.run_scan(query, &compiled, emit)?,
            _ => self.run_index(plan, query, &compiled, emit)?,
        };
        (explain.scans_by_choice, explain.alternatives) = (by_choice, alternatives);
        explain.plan_nanos = planned - start;
        explain.reads = ReadCounters::of_this_thread() - before;
        Ok(explain)
    }

    /// A token of a snapshot is valid at that snapshot only.
    fn check_token(&self, compiled: &CompiledQuery<'_>) -> Result<()> {
        let Some(snapshot) = compiled.after.and_then(CursorToken::snapshot) else {
            return Ok(());
        };
        if self.options.is_snapshot && snapshot == self.view.sequence() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Expired,
            "the cursor token belongs to a snapshot that was not passed with it; its data may be gone",
        ))
    }

    fn run_index(
        &self,
        mut plan: LookupPlan<'_, S>,
        query: &Query,
        compiled: &CompiledQuery<'_>,
        emit: impl FnMut(Row<'_, RecordRef<S>>) -> Result<ControlFlow<()>>,
    ) -> Result<Explain> {
        let table = self.view.tree(self.table)?;
        let mut read = 0;
        let set = if compiled.limit == 0 { None } else { self.prepare(&mut plan, compiled, &mut read)? };
        let Some((driving, filtering)) = plan.paths.split_first_mut() else {
            return Err(Error::internal("a plan has no index"));
        };
        if let (Some(token), false) = (compiled.after, compiled.needs_order_values() && !compiled.by_value())
        {
            driving.access.resume_at(compiled.order, &token.value, token.sequence);
        }
        let (driving, filtering) = (&*driving, &*filtering);
        let synchronous =
            |path: &&AccessPath<'_, S>| path.index.spec().maintenance() == Maintenance::Synchronous;
        let validating = filtering.iter().find(synchronous).filter(|_| !synchronous(&driving));
        let validator = validating.unwrap_or(driving).index.validator();
        let validation_tree = validator.tree().map(|tree| self.view.tree(tree)).transpose()?;
        let mut execution = Execution::new(self, compiled, &table, Some(validator), emit);
        execution.validation_tree = validation_tree.as_ref().unwrap_or(&table);
        execution.use_index(driving, filtering, self.options.recheck);
        // The candidates of an index in the sstables come with their records, so the validator decides in any case. A
        // validator without I/O runs before the fetch if that saves work in the table.
        let validates_first = self.options.fetch.by_sequence && validator.is_immediate();
        let by_record = execution.fetch && !validates_first && driving.index.spec().kind().has_tree();
        execution.explain.validation = if by_record { "record" } else { validator.name() };
        execution.explain.candidates = read;
        if self.options.clock.is_some() {
            describe_predicates(query, driving, filtering, &mut execution.explain);
        }
        let empty = |path: &AccessPath<'_, S>| path.access.low >= path.access.end;
        let nothing =
            empty(driving) || filtering.iter().any(empty) || set.as_ref().is_some_and(SequenceSet::is_empty);
        if !nothing && compiled.limit > 0 {
            execution.run(|| {
                let cursor = driving.index.candidates(&driving.access, compiled.order, self.view)?;
                if let Some(set) = &set {
                    return Ok(Box::new(FilteredCursor::new(cursor, set)) as Box<dyn CandidateCursor + '_>);
                }
                if filtering.is_empty() {
                    return Ok(cursor);
                }
                let mut cursors = Vec::with_capacity(filtering.len());
                for path in filtering {
                    cursors.push(path.index.candidates(&path.access, compiled.order, self.view)?);
                }
                Ok(Box::new(MergeCursor::new(cursor, cursors)))
            })?;
        }
        Ok(execution.finish(query, self))
    }

    /// Reads the filtering indexes into a set, unless the plan merges them. An index whose set does not fit into memory is
    /// removed from the plan: its predicates are then checked on records.
    fn prepare(
        &self,
        plan: &mut LookupPlan<'_, S>,
        compiled: &CompiledQuery<'_>,
        read: &mut u64,
    ) -> Result<Option<SequenceSet>> {
        if plan.merge || plan.paths.len() < 2 {
            return Ok(None);
        }
        // The smallest set first: of the following indexes only its members are collected.
        let mut filtering = plan.paths.split_off(1);
        filtering.sort_by(|left, right| left.entries.total_cmp(&right.entries));
        let mut set: Option<SequenceSet> = None;
        for mut path in filtering {
            // A set has no order.
            path.access.near = None;
            if path.access.low >= path.access.end {
                plan.paths.push(path);
                return Ok(Some(SequenceSet::default()));
            }
            let bytes = self.options.collect_bytes;
            let collected = {
                let mut cursor = path.index.candidates(&path.access, compiled.order, self.view)?;
                SequenceSet::collect(&mut *cursor, set.as_ref(), bytes, read)?
            };
            if let Some(collected) = collected {
                set = Some(collected);
                plan.paths.push(path);
            }
        }
        Ok(set)
    }

    fn run_scan(
        &self,
        query: &Query,
        compiled: &CompiledQuery<'_>,
        emit: impl FnMut(Row<'_, RecordRef<S>>) -> Result<ControlFlow<()>>,
    ) -> Result<Explain> {
        let table = self.view.tree(self.table)?;
        let extractor = self.extractor.filter(|_| !compiled.predicates.is_empty());
        let skipped = ScanSkips::default();
        let mut execution = Execution::new(self, compiled, &table, None, emit);
        execution.use_scan();
        execution.explain.access = "scan";
        execution.explain.validation = "none";
        execution.explain.filtered = query.predicates().iter().map(ToString::to_string).collect();
        if compiled.limit > 0 {
            execution.run(|| {
                let records = table.cursor(&[], None)?;
                Ok(Box::new(ScanCursor::new(records, compiled, extractor, &skipped)))
            })?;
        }
        let explain = &mut execution.explain;
        explain.mismatched = skipped.mismatched.get();
        explain.malformed = skipped.malformed.get();
        explain.current = explain.candidates;
        explain.candidates += explain.mismatched + explain.malformed;
        Ok(execution.finish(query, self))
    }
}

/// Adds the predicates to `explain`, by where they are evaluated.
fn describe_predicates<S: ReadSource>(
    query: &Query,
    driving: &AccessPath<'_, S>,
    filtering: &[AccessPath<'_, S>],
    explain: &mut Explain,
) {
    for (number, predicate) in query.predicates().iter().enumerate() {
        let covers = |path: &AccessPath<'_, S>| path.access.covered.contains(&number);
        let list = if covers(driving) || filtering.iter().any(covers) {
            &mut explain.covered
        } else if driving.access.covers_predicate(number) {
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
