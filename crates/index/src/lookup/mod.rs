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
//! The driver is a pull cursor, [`RowCursor`]: it reads candidates until the next answer is known, and holds its state between
//! two answers. [`Lookup::run`] is a loop over it.
//!
//! The limit counts validated answers only, so K answers are the first K of all matches, regardless of obsolete
//! candidates. A write is answered once even if several of its values match; writes are identified by sequence number.
//!
//! Nothing is allocated per candidate.

mod access_path;
mod covered;
mod emit;
mod estimate;
mod execution;
mod fetch;
mod intersect;
mod newest_rows;
mod per_value;
mod plan;
mod planned;
mod progress;
mod refused;
mod resolve;
mod row;
mod row_cursor;
mod union;
mod union_plan;
mod unused;
mod window;

use std::ops::ControlFlow;
use std::sync::Arc;

use bolide_base::{Result, TreeId};
use bolide_memory::MemoryBudget;
use bolide_table::ReadCounters;

use crate::explain::Explain;
use crate::extractor::AttributeExtractor;
use crate::fetch::FetchOptions;
use crate::query::Query;
use crate::secondary_index::SecondaryIndex;
use crate::source::{ReadSource, TreeSource};

pub use self::estimate::QueryEstimate;
pub use self::newest_rows::{NewestRows, newest_rows};
pub use self::planned::PlannedLookup;
pub use self::progress::AnswerProgress;
pub use self::row::{Row, RowRecord, RowSource};
pub use self::row_cursor::RowCursor;

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
    /// The budget of the memory for sorts and fetched records. Default: none.
    pub memory: Option<&'a Arc<MemoryBudget>>,
    /// A clock in nanoseconds to measure the stages. Default: none.
    pub clock: Option<&'a (dyn Fn() -> u64 + Sync)>,
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
            memory: None,
            clock: None,
            #[cfg(test)]
            forced_plan: plan::ForcedPlan::default(),
        }
    }
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
    /// As [`plan`](Self::plan) and [`RowSource::next_with`]; those of `emit`.
    pub fn run(
        &self,
        query: &Query,
        emit: impl FnMut(Row<'_, RecordRef<S>>) -> Result<ControlFlow<()>>,
    ) -> Result<Explain> {
        let before = ReadCounters::of_this_thread();
        let planned = self.plan(query)?;
        let mut rows = planned.rows()?;
        rows.visit(emit)?;
        let mut explain = rows.finish();
        explain.reads = ReadCounters::of_this_thread() - before;
        Ok(explain)
    }

    /// Chooses the plan of `query`. If it intersects several indexes, the filtering ones may be read.
    ///
    /// # Errors
    /// `InvalidInput` for a malformed query, for predicates on a collection without attributes, and if the index that the
    /// query names cannot serve it; `NotFound` if there is no such index; `Corruption` or `Io` from reading.
    #[inline]
    pub fn plan<'p>(&'p self, query: &'p Query) -> Result<PlannedLookup<'p, S>> {
        PlannedLookup::new(self, query)
    }
}

#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod tests;
