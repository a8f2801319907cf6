//! The records of an update or delete, one by one, each once, in an order in which the operation can be resumed without
//! reading its beginning again.
//!
//! | plan | order |
//! |---|---|
//! | an index whose candidates come oldest first, newest first, or by value | that order |
//! | a scan | of keys: one pass over the collection for any number of records |
//! | others | oldest first: the candidates are collected in bounded memory, and read again if they exceed it |

use std::ops::Bound;

use bolide_base::interruption::InterruptionSteps;
use bolide_base::{Result, SequenceNumber};
use bolide_index::{Order, Projection, Query, RecordQuery};

use super::FoundRecord;
use super::position::LastRecord;
use crate::answer_cursor::AnswerCursor;
use crate::find_options::FindOptions;
use crate::handle::Collection;
use crate::iterator::Cursor;
use crate::options::IterOptions;
use crate::snapshot::Snapshot;

/// The records of an operation.
pub(super) trait FoundRecords {
    /// The next record that was written at or before the beginning of the operation.
    fn next(&mut self) -> Result<Option<FoundRecord>>;

    /// The last record that was returned; `None` if it is known that no further ones follow.
    fn last_record(&mut self) -> Option<LastRecord>;
}

/// Answers in an order of the driver.
pub(super) struct OrderedAnswers {
    answers: AnswerCursor,
    order: Order,
    until: SequenceNumber,
}

impl OrderedAnswers {
    /// The answers to `query` at `snapshot`, which begin after `last_record` or at the start; `None` if they are read better in the
    /// order of keys.
    pub(super) fn open(
        collection: &Collection,
        query: &Query,
        snapshot: &Snapshot,
        until: SequenceNumber,
        last_record: Option<LastRecord>,
    ) -> Result<Option<Self>> {
        let options = FindOptions::default().snapshot(snapshot);
        let answers = |query: Query, order| collection.answers(&query.order(order), &options);
        match last_record {
            Some(LastRecord::Key(_)) => return Ok(None),
            Some(LastRecord::Answer(order, token)) => {
                let answers = answers(query.clone().after(token), order)?;
                return Ok(Some(Self { answers, order, until }));
            }
            None => {}
        }
        let order = Order::Oldest;
        let mut oldest = answers(query.clone(), order)?;
        let outcome = oldest.outcome();
        let explain = outcome.explain();
        if explain.is_full_scan() {
            // A query that is known to have no answers is no scan.
            let is_empty = collection.estimate(query)?.is_exact;
            return Ok(is_empty.then_some(Self { answers: oldest, order, until }));
        }
        // Candidates in another order are read in that one: by the same index, which is not planned again.
        if !explain.streamed
            && let Some(order @ (Order::Newest | Order::Value)) = explain.candidate_order
        {
            let is_one = explain.intersected.is_empty() && explain.united.is_empty();
            let again = match explain.index.as_deref().filter(|_| is_one) {
                Some(index) => query.clone().using_index(index),
                None => query.clone(),
            };
            // The index may have been dropped meanwhile, or be refused memory: the answers that are open need no other plan.
            if let Ok(mut answers) = answers(again, order)
                && answers.outcome().explain().streamed
            {
                return Ok(Some(Self { answers, order, until }));
            }
        }
        Ok(Some(Self { answers: oldest, order, until }))
    }
}

impl FoundRecords for OrderedAnswers {
    fn next(&mut self) -> Result<Option<FoundRecord>> {
        while let Some(answer) = self.answers.next()? {
            if answer.sequence <= self.until {
                let record = answer.record.unwrap_or_default().to_vec();
                return Ok(Some(FoundRecord { key: answer.key.to_vec(), sequence: answer.sequence, record }));
            }
            if self.order == Order::Oldest {
                // Later answers are later writes.
                break;
            }
        }
        Ok(None)
    }

    fn last_record(&mut self) -> Option<LastRecord> {
        let token = self.answers.outcome().next_token()?.clone();
        Some(LastRecord::Answer(self.order, token.without_snapshot()))
    }
}

/// The matching records of a collection in the order of keys.
pub(super) struct KeyScan<'q> {
    records: Cursor,
    on_records: RecordQuery<'q>,
    until: SequenceNumber,
    with_records: bool,
    is_positioned: bool,
    steps: InterruptionSteps,
}

impl<'q> KeyScan<'q> {
    /// The records at `snapshot` that `on_records`, which evaluates `query`, accepts, after the key of `last_record`.
    pub(super) fn open(
        collection: &Collection,
        query: &Query,
        on_records: RecordQuery<'q>,
        snapshot: &Snapshot,
        until: SequenceNumber,
        last_record: Option<&LastRecord>,
    ) -> Result<Self> {
        let low = match last_record {
            Some(LastRecord::Key(key)) => Bound::Excluded(key.clone()),
            _ => Bound::Unbounded,
        };
        let options = IterOptions::default().snapshot(snapshot).range((low, Bound::Unbounded));
        let records = collection.cursor(&options)?;
        let with_records = query.projection() == Projection::Records;
        let steps = InterruptionSteps::default();
        Ok(Self { records, on_records, until, with_records, is_positioned: false, steps })
    }
}

impl FoundRecords for KeyScan<'_> {
    fn next(&mut self) -> Result<Option<FoundRecord>> {
        loop {
            self.steps.step()?;
            if std::mem::replace(&mut self.is_positioned, true) {
                self.records.next()?;
            } else {
                self.records.seek_to_first()?;
            }
            if !self.records.valid() {
                return Ok(None);
            }
            let (record, sequence) = (self.records.value(), self.records.sequence());
            if sequence <= self.until && self.on_records.evaluate(record)? {
                let record = if self.with_records { record.to_vec() } else { Vec::new() };
                return Ok(Some(FoundRecord { key: self.records.key().to_vec(), sequence, record }));
            }
        }
    }

    fn last_record(&mut self) -> Option<LastRecord> {
        self.records.valid().then(|| LastRecord::Key(self.records.key().to_vec()))
    }
}
