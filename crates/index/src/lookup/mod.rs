//! The one lookup driver: it turns the candidates of whatever index into exact answers.
//!
//! 1. **Choose** an index: the one that the query names, else the one whose keys its predicates narrow most,
//!    equalities before ranges. Without any, the table is scanned.
//! 2. **Candidates** stream from the index. Where they come in the order of the query they are passed on
//!    one by one; else they are collected in a bounded memory, sorted, and, should more
//!    have come than fit, read again from behind the last answer. In newest-first order a candidate is passed
//!    on as soon as the cursor's sequence bound says that nothing newer can come.
//! 3. **Settle** each candidate at the view. Where records are wanted, one lookup in the table both validates
//!    and fetches: the candidate is current if the record has its sequence number. Else the index's
//!    validator decides, and where it cannot, the table.
//! 4. **Check** all predicates on the fetched record.
//!
//! The limit counts settled answers only, so K answers are the first K of all matches, never fewer because
//! some candidates were obsolete. A write is answered once, however many of its values match: writes
//! are told apart by sequence number, of which each has its own.
//!
//! Nothing is allocated per candidate.

mod run;
mod settle;
mod window;

use std::cell::Cell;
use std::ops::ControlFlow;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber, TreeId};

use crate::access::Access;
use crate::explain::Explain;
use crate::extractor::AttributeExtractor;
use crate::query::{CompiledQuery, Projection, Query};
use crate::scan::ScanCursor;
use crate::secondary_index::SecondaryIndex;
use crate::source::{ReadSource, TreeSource};

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
    /// A clock in nanoseconds, to measure the stages with. Default: none.
    pub clock: Option<&'a dyn Fn() -> u64>,
}

impl Default for LookupOptions<'_> {
    fn default() -> Self {
        Self { collect_bytes: 32 << 20, recheck: true, clock: None }
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
    pub record: Option<V>,
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
        match self.choose(query, &compiled)? {
            Some((index, access)) => self.run_index(index, &access, query, &compiled, emit),
            None => self.run_scan(query, &compiled, emit),
        }
    }

    /// The index to use for `query` and how it serves it; `None` for a scan.
    fn choose(
        &self,
        query: &Query,
        compiled: &CompiledQuery<'_>,
    ) -> Result<Option<(&dyn SecondaryIndex<S>, Access)>> {
        if let Some(name) = query.forced_index() {
            let index = self.indexes.iter().find(|index| index.spec().name() == name).ok_or_else(|| {
                Error::new(ErrorKind::NotFound, format!("the collection has no index named {name:?}"))
            })?;
            let access = index.access(compiled).ok_or_else(|| {
                Error::invalid_input(format!(
                    "index {name} cannot serve this query: no predicate is on `{}`",
                    index.spec().attributes_text()
                ))
            })?;
            return Ok(Some((*index, access)));
        }
        let mut best: Option<(&dyn SecondaryIndex<S>, Access)> = None;
        for index in self.indexes {
            if let Some(access) = index.access(compiled)
                && best.as_ref().is_none_or(|(_, other)| access.rank() > other.rank())
            {
                best = Some((*index, access));
            }
        }
        Ok(best)
    }

    fn run_index(
        &self,
        index: &dyn SecondaryIndex<S>,
        access: &Access,
        query: &Query,
        compiled: &CompiledQuery<'_>,
        emit: impl FnMut(Row<'_, Value<S>>) -> Result<ControlFlow<()>>,
    ) -> Result<Explain> {
        let table = self.view.tree(self.table)?;
        let validator = index.validator();
        let covers_all = access.covered.len() == compiled.predicates.len();
        let by_record = compiled.order_predicate.is_some() && access.order_attribute.is_none();
        let records = compiled.projection == Projection::Records;
        let mut run = Run::new(self, compiled, &table, Some(validator), emit);
        run.fetch = records || !covers_all || by_record;
        run.check = !covers_all || self.options.recheck;
        run.order_by_record = by_record;
        run.explain.index = Some(index.spec().name().to_owned());
        run.explain.access = index.spec().kind().name();
        run.explain.validation = if run.fetch { "record" } else { validator.name() };
        if self.options.clock.is_some() {
            for (position, predicate) in query.predicates().iter().enumerate() {
                let covered = access.covered.contains(&position);
                let list = if covered { &mut run.explain.covered } else { &mut run.explain.filtered };
                list.push(predicate.to_string());
            }
        }
        if access.low < access.end && compiled.limit > 0 {
            run.drive(|| index.candidates(access, compiled.order, self.view))?;
        }
        Ok(run.explain)
    }

    fn run_scan(
        &self,
        query: &Query,
        compiled: &CompiledQuery<'_>,
        emit: impl FnMut(Row<'_, Value<S>>) -> Result<ControlFlow<()>>,
    ) -> Result<Explain> {
        let table = self.view.tree(self.table)?;
        let extractor = self.extractor.filter(|_| !compiled.predicates.is_empty());
        let mismatched = Cell::new(0);
        let mut run = Run::new(self, compiled, &table, None, emit);
        run.fetch = compiled.projection == Projection::Records;
        run.settled = true;
        run.explain.access = "scan";
        run.explain.validation = "none";
        run.explain.filtered = query.predicates().iter().map(ToString::to_string).collect();
        if compiled.limit > 0 {
            run.drive(|| {
                let records = table.cursor(&[], None)?;
                Ok(Box::new(ScanCursor::new(records, compiled, extractor, &mismatched)))
            })?;
        }
        run.explain.mismatched = mismatched.get();
        run.explain.current = run.explain.candidates;
        run.explain.candidates += mismatched.get();
        Ok(run.explain)
    }
}

#[cfg(test)]
mod tests;
