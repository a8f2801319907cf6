//! The rows of a query that an index answers alone: see [`newest_keys`](crate::newest_keys).

use std::ops::ControlFlow;

use bolide_base::{Result, SequenceNumber};

use super::progress::AnswerProgress;
use super::{Row, RowRecord, RowSource};
use crate::newest_keys::NewestKeys;

/// The records of [`NewestKeys`] as rows, up to a limit. They are current and need no validation.
pub struct NewestRows<'f, K> {
    keys: K,
    /// The records of the keys, if the query returns records.
    records: Option<std::slice::Iter<'f, &'f [u8]>>,
    progress: AnswerProgress,
}

/// The rows of `found`, with `records` in the same order.
#[inline]
pub fn newest_rows<'f>(
    found: &'f NewestKeys,
    records: Option<&'f [&'f [u8]]>,
    limit: usize,
) -> NewestRows<'f, impl Iterator<Item = (SequenceNumber, &'f [u8])>> {
    let records = records.map(<[_]>::iter);
    NewestRows { keys: found.iter(), records, progress: AnswerProgress::new(limit) }
}

impl<K> NewestRows<'_, K> {
    /// The answers so far.
    #[inline]
    pub fn into_progress(self) -> AnswerProgress {
        self.progress
    }
}

impl<'f, K: Iterator<Item = (SequenceNumber, &'f [u8])>> RowSource for NewestRows<'f, K> {
    type Record = &'f [u8];

    #[inline]
    fn until<R>(&mut self, mut each: impl FnMut(Row<'_, &'f [u8]>) -> ControlFlow<R>) -> Result<Option<R>> {
        while !self.progress.is_complete() {
            let Some((sequence, primary_key)) = self.keys.next() else {
                self.progress.set_exhausted();
                return Ok(None);
            };
            let record = self.records.as_mut().and_then(Iterator::next);
            let record = record.map(|record| RowRecord::Borrowed(record));
            self.progress.count();
            self.progress.set_last(&[], sequence);
            if let ControlFlow::Break(result) = each(Row { primary_key, sequence, record, values: &[] }) {
                return Ok(Some(result));
            }
        }
        Ok(None)
    }
}
