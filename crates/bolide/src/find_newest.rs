//! The short cut for the newest records of one value: index alone, without plan, driver and registered view.
//!
//! # Why it needs no registered view
//! It reads as of the newest published number. What such a reader needs is taken away only by somebody who saw a newer
//! number published. So if the same number is still the newest one afterwards, nothing that it needs was taken; else it asks
//! again, with a view.
//!
//! # Records
//! Where records are wanted and not keys alone, the index says which writes they are, and they are read by their sequence
//! numbers, all at once and where they lie. What a write put never changes, so whichever is found is right; where one
//! is not, because it was replaced since and compacted away, the driver answers. It does so too where there are
//! [many](MAX_RECORDS), and where they come from files, since it has several threads for these. Each record is looked at
//! as the driver does: it has to have the value.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use bolide_base::{ErrorKind, Result, SequenceNumber};
use bolide_index::{
    AttributeValues, CursorToken, FetchedTold, NewestKeys, NewestQuestion, NewestTold, Query,
};
use bolide_lsm::store::KnownWrite;
use bolide_table::ReadCounters;

use crate::find::{AnswerRef, FindOptions};
use crate::handle::Collection;
use crate::index_set::{Index, IndexSet};

/// The most records that are fetched here: all of them are held at a time.
const MAX_RECORDS: usize = 64;
/// Records from which on several threads are worth it where they come from files.
const WORTH_SHARING: usize = 8;
/// Questions that are left to the driver after one whose records came from files.
const LEFT_TO_THREADS: u32 = 16;

thread_local! {
    /// Memory that is used again.
    static FOUND: Cell<Option<Box<NewestKeys>>> = const { Cell::new(None) };
    /// How many more questions for records are left to the driver.
    static LEFT: Cell<u32> = const { Cell::new(0) };
}

impl Collection {
    /// Answers `query` by a short cut: hands the answers to `give` until it breaks. `None` where there is no short cut;
    /// then nothing was given.
    ///
    /// # Errors
    /// Those of `give`; `InvalidInput` for a snapshot of another database; `NotFound` if the collection was dropped;
    /// `Corruption` or `Io`.
    #[inline]
    pub(crate) fn find_newest(
        &self,
        query: &Query,
        options: &FindOptions,
        give: impl FnMut(AnswerRef<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<Option<NewestTold>> {
        let Some(question) = query.newest_of_value().filter(|_| !options.measure) else {
            return Ok(None);
        };
        let mut names = None;
        let mut found = FOUND.take().unwrap_or_default();
        let ask = &mut |question: &NewestQuestion<'_>, at: SequenceNumber, found: &mut NewestKeys| {
            // Later than the number: writes up to it are in every index that is still here.
            let set = self.state.indexes_guard();
            let index = set.only_index_on(question.path, at);
            let wanted = |index: &&Arc<Index>| query.forced_index().is_none_or(|name| name == index.name);
            let Some(index) = index.filter(wanted) else { return Ok(false) };
            let is_told = self.prefetch_index(index, question, at, found)?;
            names = is_told.then(|| Names::of(index));
            Ok(is_told)
        };
        let given = self.answer_newest(question, options, &mut found, ask, give);
        let told = given.map(|given| {
            let (given, names) = given.zip(names)?;
            let snapshot = options.snapshot.as_ref().map(|snapshot| snapshot.sequence());
            let next = given.last.map(|last| CursorToken::behind(query, snapshot, last));
            Some(names.told(given, &found, next))
        });
        found.shrink();
        FOUND.set(Some(found));
        told
    }

    /// Has `ask` answer `question` as of a number that it is given, fetches the records if they are wanted, and hands
    /// the answers to `give`. `None` where that is left to the driver; then nothing was given.
    ///
    /// # Errors
    /// As [`find_newest`](Self::find_newest).
    #[inline]
    pub(crate) fn answer_newest(
        &self,
        mut question: NewestQuestion<'_>,
        options: &FindOptions,
        found: &mut NewestKeys,
        ask: &mut impl FnMut(&NewestQuestion<'_>, SequenceNumber, &mut NewestKeys) -> Result<bool>,
        give: impl FnMut(AnswerRef<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<Option<Given>> {
        let limit = question.limit;
        let most = if question.records { self.fetched_here(options, limit) } else { usize::MAX };
        if most == 0 {
            return Ok(None);
        }
        // One more is asked for, to see whether there are too many.
        question.limit = limit.min(most.saturating_add(1));
        let Some(at) = self.prefetch_as_of_now(&question, options, found, ask)? else { return Ok(None) };
        if !question.records {
            let rows = found.iter().map(|(sequence, key)| (sequence, key, None));
            return give_rows(limit, rows, give).map(Some);
        }
        match found.len() > most {
            true => Ok(None),
            false => self.give_records(&question, limit, at, found, give),
        }
    }

    /// How many records at most are fetched here, of a query for `limit`: where several threads would share them, fewer.
    fn fetched_here(&self, options: &FindOptions, limit: usize) -> usize {
        let fetch = self.handle.engine.fetching.options(options.fetch_settings());
        let left = LEFT.get();
        if !fetch.by_sequence {
            return 0;
        }
        if fetch.threads <= 1 {
            return MAX_RECORDS;
        }
        if left > 0 && limit >= WORTH_SHARING {
            LEFT.set(left - 1);
            return 0;
        }
        MAX_RECORDS.min(fetch.shared_from.saturating_sub(1))
    }

    /// Has `ask` answer a question at the snapshot of `options`, or as of now: returns the number that it was answered at.
    #[inline]
    fn prefetch_as_of_now(
        &self,
        question: &NewestQuestion<'_>,
        options: &FindOptions,
        found: &mut NewestKeys,
        ask: &mut impl FnMut(&NewestQuestion<'_>, SequenceNumber, &mut NewestKeys) -> Result<bool>,
    ) -> Result<Option<SequenceNumber>> {
        self.state.check_live()?;
        let store = &self.handle.engine.store;
        if let Some(snapshot) = &options.snapshot {
            let at = snapshot.view_of(&self.handle)?.sequence();
            return Ok(ask(question, at, found)?.then_some(at));
        }
        let at = store.published_sequence();
        if !ask(question, at, found)? {
            return Ok(None);
        }
        // What was read before is read before the number is.
        fence(Ordering::Acquire);
        if store.published_sequence() == at {
            return Ok(Some(at));
        }
        let view = self.handle.engine.read_view();
        Ok(ask(question, view.sequence(), found)?.then_some(view.sequence()))
    }

    /// Has `index` answer a question, into `found`. False if it cannot.
    #[inline]
    pub(crate) fn prefetch_index(
        &self,
        index: &Index,
        question: &NewestQuestion<'_>,
        at: SequenceNumber,
        found: &mut NewestKeys,
    ) -> Result<bool> {
        let oldest_in_use = || self.handle.engine.store.oldest_in_use();
        index.structure.newest_keys(question.value, question.limit, at, &oldest_in_use, found)
    }

    /// Fetches the records of what was found and hands at most `limit` to `give`; `None` if that is left to the driver.
    fn give_records(
        &self,
        question: &NewestQuestion<'_>,
        limit: usize,
        at: SequenceNumber,
        found: &NewestKeys,
        give: impl FnMut(AnswerRef<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<Option<Given>> {
        let before = ReadCounters::of_this_thread();
        let writes: Vec<KnownWrite<'_>> =
            found.iter().map(|(sequence, key)| KnownWrite { key, sequence }).collect();
        let fetched = self.handle.engine.store.with_exact(self.state.tree, at, &writes, |records| {
            let reads = ReadCounters::of_this_thread() - before;
            if 2 * reads.blocks_read >= records.len() as u64 && records.len() >= WORTH_SHARING {
                LEFT.set(LEFT_TO_THREADS);
            }
            if !have_value(&self.state.indexes_guard(), question, records)? {
                return Ok(None);
            }
            let bytes = records.iter().map(|record| record.len() as u64).sum();
            let fetched = Box::new(FetchedTold { records: records.len() as u64, bytes, reads });
            let rows =
                found.iter().zip(records).map(|((sequence, key), record)| (sequence, key, Some(*record)));
            let given = give_rows(limit, rows, give)?;
            Ok(Some(Given { fetched: Some(fetched), ..given }))
        });
        match fetched {
            Ok(fetched) => Ok(fetched.flatten()),
            // Dropped meanwhile: that is for the driver to say.
            Err(error) if error.kind() == ErrorKind::NotFound && self.state.check_live().is_err() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether each of `records` has the value that is asked for: false also where no index is on its path any more.
fn have_value(set: &IndexSet, question: &NewestQuestion<'_>, records: &[&[u8]]) -> Result<bool> {
    let (extractor, Some(slot)) = (set.extractor()?, set.plan.slot(question.path)) else {
        return Ok(false);
    };
    let mut values = AttributeValues::new();
    for record in records {
        // Where the record is malformed, the driver skips and counts it.
        if !extractor.extract_stored(record, &set.plan, &mut values)? {
            return Ok(false);
        }
        if !values.values(slot).any(|found| found == question.value) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What an index that answered is called.
pub(crate) struct Names {
    index: Arc<str>,
    access: &'static str,
    validation: &'static str,
}

impl Names {
    #[inline]
    pub(crate) fn of(index: &Index) -> Self {
        Self {
            index: index.shown_name.clone(),
            access: index.spec().kind().name(),
            validation: index.structure.validator().name(),
        }
    }

    /// What is told of answers of this index.
    #[inline]
    pub(crate) fn told(self, given: Given, found: &NewestKeys, next: Option<CursorToken>) -> NewestTold {
        NewestTold {
            index: self.index,
            access: self.access,
            validation: self.validation,
            current: found.len() as u64,
            answers: given.answers,
            costs: found.costs(),
            fetched: given.fetched,
            next,
        }
    }
}

/// How many answers were given, behind which write a further query goes on, and what was fetched for them.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub(crate) answers: u64,
    pub(crate) last: Option<SequenceNumber>,
    pub(crate) fetched: Option<Box<FetchedTold>>,
}

/// Hands at most `limit` answers to `give`.
#[inline]
fn give_rows<'f>(
    limit: usize,
    rows: impl Iterator<Item = (SequenceNumber, &'f [u8], Option<&'f [u8]>)>,
    mut give: impl FnMut(AnswerRef<'_>) -> Result<ControlFlow<()>>,
) -> Result<Given> {
    let (mut answers, mut last) = (0, None);
    for (sequence, key, record) in rows {
        answers += 1;
        let flow = give(AnswerRef { key, sequence, record, values: &[] })?;
        if flow.is_break() || answers as usize == limit {
            last = Some(sequence);
            break;
        }
    }
    Ok(Given { answers, last, fetched: None })
}
