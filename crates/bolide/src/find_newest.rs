//! Fast path for the newest records of one value: a single index answers, without a plan, the lookup driver and a
//! registered view.
//!
//! # Why no registered view is needed
//! The query reads as of the newest published sequence number. Data that such a reader needs is removed only after a
//! newer number is published. If the same number is still the newest one afterwards, nothing was removed; otherwise the
//! query runs again with a registered view.
//!
//! # Records
//! If a query returns records, the index yields their writes. All records are read at once by sequence number and are
//! lent without a copy. A write never changes, so every record that is found is right. If one is missing because it was
//! replaced and compacted away, the driver answers. The driver also answers for [many records](MAX_RECORDS), and for
//! records in files, because it fetches with several threads. Each record is checked as in the driver: it must have the
//! value.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use bolide_base::{ErrorKind, Result, SequenceNumber};
use bolide_index::{
    AnswerProgress, AttributeValues, CursorToken, FetchStatistics, NewestKeys, NewestQuery, NewestRows,
    NewestStatistics, Query, RecordCheck, RowSource, check_record, newest_rows,
};
use bolide_lsm::store::KnownWrite;
use bolide_table::ReadCounters;

use crate::find::AnswerRef;
use crate::find_options::FindOptions;
use crate::handle::{Collection, Engine};
use crate::index_set::{Index, IndexSet};

/// The maximum number of records that are fetched here; all of them are in memory at a time.
const MAX_RECORDS: usize = 64;
/// The number of records from which several threads are worthwhile if the records are in files.
const WORTH_SHARING: usize = 8;
/// Queries that run in the driver after one whose records were in files.
const DRIVER_QUERIES: u32 = 16;

thread_local! {
    /// Reused memory.
    static FOUND: Cell<Option<Box<NewestKeys>>> = const { Cell::new(None) };
    /// The number of further queries for records that run in the driver.
    static DRIVER_QUERIES_LEFT: Cell<u32> = const { Cell::new(0) };
}

impl Collection {
    /// Answers `query` on the fast path and passes the answers to `each` until it breaks. Returns `None` if there is no
    /// fast path; then `each` was not called.
    ///
    /// # Errors
    /// Those of `each`; `InvalidInput` for a snapshot of another database; `NotFound` if the collection was dropped;
    /// `Corruption` or `Io`.
    #[inline]
    pub(crate) fn find_newest(
        &self,
        query: &Query,
        options: &FindOptions,
        each: impl FnMut(AnswerRef<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<Option<NewestStatistics>> {
        let Some(newest) = query.newest_query().filter(|_| !options.measure) else {
            return Ok(None);
        };
        let mut names = None;
        let mut found = FOUND.take().unwrap_or_default();
        let run = &mut |newest: &NewestQuery<'_>, at: SequenceNumber, found: &mut NewestKeys| {
            // Loaded after the number: writes up to it are in every index of the set.
            let set = self.state.indexes_guard();
            let index = set.only_index_on(newest.path, at);
            let is_allowed = |index: &&Arc<Index>| query.forced_index().is_none_or(|name| name == index.name);
            let Some(index) = index.filter(is_allowed) else { return Ok(false) };
            let has_answers = self.query_index(index, newest, at, found)?;
            names = has_answers.then(|| IndexNames::of(index));
            Ok(has_answers)
        };
        let delivered = self.answer_newest(newest, options, &mut found, run, each);
        let statistics = delivered.map(|delivered| {
            let (delivered, names) = delivered.zip(names)?;
            let snapshot = options.snapshot.as_ref().map(|snapshot| snapshot.sequence());
            let next = delivered.progress.token(query, snapshot);
            Some(names.statistics(delivered, &found, next))
        });
        found.shrink();
        FOUND.set(Some(found));
        statistics
    }

    /// Runs `newest` with `run` at a sequence number, fetches the records if the query returns them, and passes the
    /// answers to `each`. Returns `None` if the driver has to answer; then `each` was not called.
    ///
    /// # Errors
    /// As [`find_newest`](Self::find_newest).
    #[inline]
    pub(crate) fn answer_newest(
        &self,
        mut newest: NewestQuery<'_>,
        options: &FindOptions,
        found: &mut NewestKeys,
        run: &mut impl FnMut(&NewestQuery<'_>, SequenceNumber, &mut NewestKeys) -> Result<bool>,
        each: impl FnMut(AnswerRef<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<Option<DeliveredAnswers>> {
        let limit = newest.limit;
        let max_records =
            if newest.records { max_records(&self.handle.engine, options, limit) } else { usize::MAX };
        if max_records == 0 {
            return Ok(None);
        }
        // One more is read, to detect that there are too many.
        newest.limit = limit.min(max_records.saturating_add(1));
        let at = self.query_at_snapshot_or_now(&newest, options, found, run);
        let at = match at {
            // The index was dropped before it was read: the driver chooses again. It reports a dropped collection.
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            at => self.without_damaged(at)?,
        };
        let Some(at) = at else { return Ok(None) };
        if !newest.records {
            return deliver(newest_rows(found, None, limit), each).map(Some);
        }
        match found.len() > max_records {
            true => Ok(None),
            false => self.deliver_records(&newest, limit, at, found, each),
        }
    }

    /// Runs `newest` with `run` at the snapshot of `options`, or as of now. Returns the sequence number of the answers.
    #[inline]
    fn query_at_snapshot_or_now(
        &self,
        newest: &NewestQuery<'_>,
        options: &FindOptions,
        found: &mut NewestKeys,
        run: &mut impl FnMut(&NewestQuery<'_>, SequenceNumber, &mut NewestKeys) -> Result<bool>,
    ) -> Result<Option<SequenceNumber>> {
        self.state.check_live()?;
        let store = &self.handle.engine.store;
        if let Some(snapshot) = &options.snapshot {
            let at = snapshot.view_of(&self.handle)?.sequence();
            return Ok(run(newest, at, found)?.then_some(at));
        }
        let at = store.published_sequence();
        if !run(newest, at, found)? {
            return Ok(None);
        }
        // The reads above are ordered before the read of the number.
        fence(Ordering::Acquire);
        if store.published_sequence() == at {
            return Ok(Some(at));
        }
        let view = self.handle.engine.read_view();
        Ok(run(newest, view.sequence(), found)?.then_some(view.sequence()))
    }

    /// Reads the answers of `index` to `newest` into `found`. Returns false if the index cannot answer.
    #[inline]
    pub(crate) fn query_index(
        &self,
        index: &Index,
        newest: &NewestQuery<'_>,
        at: SequenceNumber,
        found: &mut NewestKeys,
    ) -> Result<bool> {
        let oldest_in_use = || self.handle.engine.store.oldest_in_use();
        index.structure.newest_keys(newest.value, newest.limit, at, &oldest_in_use, found)
    }

    /// Fetches the records of `found` and passes at most `limit` of them to `each`. Returns `None` if the driver has to
    /// answer.
    fn deliver_records(
        &self,
        newest: &NewestQuery<'_>,
        limit: usize,
        at: SequenceNumber,
        found: &NewestKeys,
        each: impl FnMut(AnswerRef<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<Option<DeliveredAnswers>> {
        let before = ReadCounters::of_this_thread();
        let writes: Vec<KnownWrite<'_>> =
            found.iter().map(|(sequence, key)| KnownWrite { key, sequence }).collect();
        let fetched = self.handle.engine.store.with_exact(self.state.tree, at, &writes, |records| {
            let reads = ReadCounters::of_this_thread() - before;
            if 2 * reads.blocks_read >= records.len() as u64 && records.len() >= WORTH_SHARING {
                DRIVER_QUERIES_LEFT.set(DRIVER_QUERIES);
            }
            if !have_value(&self.state.indexes_guard(), newest, records)? {
                return Ok(None);
            }
            let bytes = records.iter().map(|record| record.len() as u64).sum();
            let fetched = Box::new(FetchStatistics { records: records.len() as u64, bytes, reads });
            let delivered = deliver(newest_rows(found, Some(records), limit), each);
            // An error of `each` is not one of the index.
            Ok(Some(delivered.map(|delivered| DeliveredAnswers { fetched: Some(fetched), ..delivered })))
        });
        match fetched {
            // The collection was dropped meanwhile: the driver reports it.
            Err(error) if error.kind() == ErrorKind::NotFound && self.state.check_live().is_err() => Ok(None),
            fetched => self.without_damaged(fetched)?.flatten().transpose(),
        }
    }
}

/// Whether each of `records` has the queried value; false if no index on its path exists any more.
fn have_value(set: &IndexSet, newest: &NewestQuery<'_>, records: &[&[u8]]) -> Result<bool> {
    let (extractor, Some(slot)) = (set.extractor()?, set.plan.slot(newest.path)) else {
        return Ok(false);
    };
    let mut values = AttributeValues::new();
    for record in records {
        let has_value = |values: &AttributeValues| values.values(slot).any(|found| found == newest.value);
        // The driver skips and counts other records.
        if check_record(extractor, record, &set.plan, &mut values, has_value)? != RecordCheck::Match {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Names of an index that answered, for the query statistics.
pub(crate) struct IndexNames {
    index: Arc<str>,
    access: &'static str,
    validation: &'static str,
}

impl IndexNames {
    #[inline]
    pub(crate) fn of(index: &Index) -> Self {
        Self {
            index: index.public_name.clone(),
            access: index.spec().kind().name(),
            validation: index.structure.validator().name(),
        }
    }

    /// The query statistics of answers of this index.
    #[inline]
    pub(crate) fn statistics(
        self,
        delivered: DeliveredAnswers,
        found: &NewestKeys,
        next: Option<CursorToken>,
    ) -> NewestStatistics {
        NewestStatistics {
            index: self.index,
            access: self.access,
            validation: self.validation,
            current: found.len() as u64,
            answers: delivered.progress.answers(),
            costs: found.costs(),
            fetched: delivered.fetched,
            next,
        }
    }
}

/// The answers passed to the caller, and the cost of the fetched records.
#[derive(Debug, Clone)]
pub(crate) struct DeliveredAnswers {
    pub(crate) progress: AnswerProgress,
    pub(crate) fetched: Option<Box<FetchStatistics>>,
}

/// Passes `rows` to `each`.
#[inline]
fn deliver<'f>(
    mut rows: NewestRows<'f, impl Iterator<Item = (SequenceNumber, &'f [u8])>>,
    mut each: impl FnMut(AnswerRef<'_>) -> Result<ControlFlow<()>>,
) -> Result<DeliveredAnswers> {
    rows.visit(|row| each(AnswerRef::of(&row)))?;
    Ok(DeliveredAnswers { progress: rows.into_progress(), fetched: None })
}

/// The maximum number of records that this path fetches for a query with `limit`: fewer if several threads would
/// share them, 0 if the driver answers.
fn max_records(engine: &Engine, options: &FindOptions, limit: usize) -> usize {
    let fetch = engine.fetching.options(options.fetch_settings());
    let left = DRIVER_QUERIES_LEFT.get();
    if !fetch.by_sequence {
        return 0;
    }
    if fetch.threads <= 1 {
        return MAX_RECORDS;
    }
    if left > 0 && limit >= WORTH_SHARING {
        DRIVER_QUERIES_LEFT.set(left - 1);
        return 0;
    }
    MAX_RECORDS.min(fetch.shared_from.saturating_sub(1))
}
