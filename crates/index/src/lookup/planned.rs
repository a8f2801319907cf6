//! A query with its plan, and what its execution reads: the part of a lookup that does not change while rows are read.

use bolide_base::{Error, ErrorKind, Result};

use crate::candidate::CandidateCursor;
use crate::compiled_query::CompiledQuery;
use crate::cursor_token::CursorToken;
use crate::explain::{Alternative, Explain};
use crate::query::Query;
use crate::recent_scan::RecentScan;
use crate::scan::ScanCursor;
use crate::source::{ReadSource, TreeSource};
use crate::spec::Maintenance;

use super::Lookup;
use super::access_path::AccessPath;
use super::execution::Execution;
use super::intersect::{FilteredCursor, MergeCursor, SequenceSet, SetReads};
use super::plan::LookupPlan;
use super::progress::AnswerProgress;
use super::union::{OpenMember, UnionCursor};

/// A planned query, made by [`Lookup::plan`]: [`rows`](Self::rows) executes it.
pub struct PlannedLookup<'p, S: ReadSource> {
    lookup: &'p Lookup<'p, S>,
    query: &'p Query,
    compiled: CompiledQuery<'p>,
    /// The access paths: none for a scan. The first is the driving index; the others filter its candidates.
    paths: Vec<AccessPath<'p, S>>,
    /// The writes that the filtering indexes return, unless the plan merges them.
    set: Option<SequenceSet>,
    table: S::Tree,
    /// The tree that the validator reads, if it is not the table.
    validation_tree: Option<S::Tree>,
    /// What was read for the set.
    set_reads: SetReads,
    scans_by_choice: bool,
    alternatives: Vec<Alternative>,
    unused: Vec<String>,
    plan_nanos: u64,
}

impl<'p, S: ReadSource> PlannedLookup<'p, S> {
    #[inline]
    pub(super) fn new(lookup: &'p Lookup<'_, S>, query: &'p Query) -> Result<Self> {
        let compiled = CompiledQuery::new(query)?;
        if lookup.extractor.is_none() && compiled.needs_attributes() {
            return Err(Error::invalid_input(
                "the records of this collection have no attributes: it needs an extractor",
            ));
        }
        check_token(lookup, &compiled)?;
        let now = || lookup.options.clock.map_or(0, |clock| clock());
        let start = now();
        let explains = lookup.options.clock.is_some();
        let mut plan = lookup.choose_plan(query, &compiled, explains)?;
        let plan_nanos = now() - start;
        let mut unused: Vec<String> =
            plan.refused.iter().map(|refused| format!("{}: {}", refused.name, refused.why)).collect();
        if explains {
            unused.extend(lookup.unused(query, &compiled, &plan));
        }
        let table = lookup.view.tree(lookup.table)?;
        let mut set_reads = SetReads::default();
        let set = match compiled.limit {
            0 => None,
            _ => read_set(lookup, &mut plan, &compiled, &mut set_reads)?,
        };
        let LookupPlan { mut paths, scans_by_choice, alternatives, .. } = plan;
        if let Some(driving) = paths.first_mut()
            && let Some(token) = compiled.after
            && (!compiled.needs_order_values() || compiled.by_value())
        {
            for access in driving.accesses_mut() {
                access.resume_at(compiled.order, &token.value, token.sequence);
            }
        }
        let validator = validating(&paths).and_then(|path| path.index.validator().tree());
        let validation_tree = validator.map(|tree| lookup.view.tree(tree)).transpose()?;
        Ok(Self {
            lookup,
            query,
            compiled,
            paths,
            set,
            table,
            validation_tree,
            set_reads,
            scans_by_choice,
            alternatives,
            unused,
            plan_nanos,
        })
    }

    /// The state of an execution before its first candidate.
    #[inline]
    pub(super) fn execution(&self) -> Execution<'_, S> {
        match self.paths.split_first() {
            Some((driving, filtering)) => self.execution_of_index(driving, filtering),
            None => self.execution_of_scan(),
        }
    }

    /// False if it is known that there are no candidates.
    pub(super) fn has_candidates(&self) -> bool {
        self.compiled.limit > 0
            && !self.compiled.is_never_true()
            && !self.paths.iter().any(AccessPath::is_empty)
            && !self.set.as_ref().is_some_and(SequenceSet::is_empty)
    }

    #[inline]
    fn execution_of_index<'e>(
        &'e self,
        driving: &'e AccessPath<'p, S>,
        filtering: &[AccessPath<'p, S>],
    ) -> Execution<'e, S> {
        let validator = validating(&self.paths).map(|path| path.index.validator());
        let mut execution = Execution::new(self.lookup, &self.compiled, &self.table, validator);
        execution.validation_tree = self.validation_tree.as_ref().unwrap_or(&self.table);
        let options = &self.lookup.options;
        execution.use_index(driving, filtering, options.recheck);
        // The candidates of an index in the sstables come with their records, so the validator decides in any case. A
        // validator without I/O runs before the fetch if that saves work in the table.
        let is_immediate = validator.is_some_and(|validator| validator.is_immediate());
        let validates_first = options.fetch.by_sequence && is_immediate;
        let by_record = execution.fetch && !validates_first && driving.index.spec().kind().has_tree();
        execution.explain.validation = match validator {
            Some(validator) if !by_record => validator.name(),
            _ => "record",
        };
        execution.explain.candidates = self.set_reads.candidates;
        self.set_reads.costs.iter().for_each(|costs| execution.explain.add_costs(*costs));
        if options.clock.is_some() {
            describe_predicates(self.query, driving, filtering, &mut execution.explain);
        }
        self.describe_plan(&mut execution.explain);
        execution
    }

    fn execution_of_scan(&self) -> Execution<'_, S> {
        let mut execution = Execution::new(self.lookup, &self.compiled, &self.table, None);
        execution.use_scan();
        execution.explain.access = "scan";
        execution.explain.validation = "none";
        execution.explain.filtered = texts_of_parts(self.query);
        self.describe_plan(&mut execution.explain);
        execution
    }

    fn describe_plan(&self, explain: &mut Explain) {
        explain.scans_by_choice = self.scans_by_choice;
        explain.alternatives.clone_from(&self.alternatives);
        explain.unused.clone_from(&self.unused);
        explain.plan_nanos = self.plan_nanos;
    }

    /// The candidates of the plan, from the first one on.
    pub(super) fn candidates(&self) -> Result<Box<dyn CandidateCursor + '_>> {
        let Some((driving, filtering)) = self.paths.split_first() else {
            if let Some(recent) = RecentScan::new(&self.table, &self.compiled, self.lookup.view.sequence()) {
                return Ok(Box::new(recent));
            }
            let extractor = self.lookup.extractor.filter(|_| self.compiled.needs_attributes());
            let records = self.table.cursor(&[], None)?;
            return Ok(Box::new(ScanCursor::new(records, &self.compiled, extractor)));
        };
        let cursor = self.open(driving)?;
        if let Some(set) = &self.set {
            return Ok(Box::new(FilteredCursor::new(cursor, set)));
        }
        if filtering.is_empty() {
            return Ok(cursor);
        }
        let mut cursors = Vec::with_capacity(filtering.len());
        for path in filtering {
            cursors.push(self.open(path)?);
        }
        Ok(Box::new(MergeCursor::new(cursor, cursors)))
    }

    fn open<'c>(&'c self, path: &'c AccessPath<'p, S>) -> Result<Box<dyn CandidateCursor + 'c>> {
        open_path(path, &self.compiled, self.lookup.view)
    }

    /// The token with which the query continues.
    pub(super) fn token(&self, progress: &AnswerProgress) -> Option<CursorToken> {
        let snapshot = self.lookup.options.is_snapshot.then(|| self.lookup.view.sequence());
        progress.token(self.query, snapshot)
    }
}

/// The candidates of `path`.
fn open_path<'c, S: ReadSource>(
    path: &'c AccessPath<'_, S>,
    compiled: &CompiledQuery<'_>,
    view: &'c S,
) -> Result<Box<dyn CandidateCursor + 'c>> {
    let order = compiled.index_order();
    if !path.is_union() {
        return path.index.candidates(&path.access, order, view);
    }
    let open: OpenMember<'c> = Box::new(move |number| match path.member(number) {
        Some((index, access)) => index.candidates(access, order, view),
        None => Err(Error::internal("a union has no member with this number")),
    });
    Ok(Box::new(UnionCursor::new(path.members(), order, compiled.has_order_values(), open)?))
}

/// The path whose index validates: the driving one, or a filtering one that has no obsolete entries. `None` for a scan, and
/// for a union of several indexes, of which none validates the candidates of all.
fn validating<'v, 'i, S: ReadSource>(paths: &'v [AccessPath<'i, S>]) -> Option<&'v AccessPath<'i, S>> {
    let synchronous = |path: &&AccessPath<'_, S>| path.index.spec().maintenance() == Maintenance::Synchronous;
    let (driving, filtering) = paths.split_first()?;
    let driving = driving.has_one_index().then_some(driving);
    let usable = filtering.iter().filter(|path| path.has_one_index());
    usable.clone().find(synchronous).filter(|_| !driving.as_ref().is_some_and(synchronous)).or(driving)
}

/// A token of a snapshot is valid at that snapshot only.
fn check_token<S: ReadSource>(lookup: &Lookup<'_, S>, compiled: &CompiledQuery<'_>) -> Result<()> {
    let Some(snapshot) = compiled.after.and_then(CursorToken::snapshot) else {
        return Ok(());
    };
    if lookup.options.is_snapshot && snapshot == lookup.view.sequence() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Expired,
        "the cursor token belongs to a snapshot that was not passed with it; its data may be gone",
    ))
}

/// Reads the filtering indexes into a set, unless the plan merges them. An index whose set does not fit into memory is
/// removed from the plan: its predicates are then checked on records.
fn read_set<S: ReadSource>(
    lookup: &Lookup<'_, S>,
    plan: &mut LookupPlan<'_, S>,
    compiled: &CompiledQuery<'_>,
    reads: &mut SetReads,
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
        path.accesses_mut().for_each(|access| access.near = None);
        if path.is_empty() {
            plan.paths.push(path);
            return Ok(Some(SequenceSet::default()));
        }
        let bytes = lookup.options.collect_bytes;
        let collected = {
            let mut cursor = open_path(&path, compiled, lookup.view)?;
            SequenceSet::collect(&mut *cursor, set.as_ref(), bytes, reads)?
        };
        if let Some(collected) = collected {
            set = Some(collected);
            plan.paths.push(path);
        }
    }
    Ok(set)
}

/// Adds the predicates to `explain`, by where they are evaluated.
fn describe_predicates<S: ReadSource>(
    query: &Query,
    driving: &AccessPath<'_, S>,
    filtering: &[AccessPath<'_, S>],
    explain: &mut Explain,
) {
    for (number, text) in texts_of_parts(query).into_iter().enumerate() {
        let covers = |path: &AccessPath<'_, S>| path.access.covered.contains(&number);
        let list = if covers(driving) || filtering.iter().any(covers) {
            &mut explain.covered
        } else if driving.access.covers_predicate(number) {
            &mut explain.included
        } else {
            &mut explain.filtered
        };
        list.push(text);
    }
}

/// The parts of the conjunction, by number.
fn texts_of_parts(query: &Query) -> Vec<String> {
    let predicates = query.predicates().iter().map(ToString::to_string);
    predicates.chain(query.term_nodes().iter().map(|term| term.summary())).collect()
}
