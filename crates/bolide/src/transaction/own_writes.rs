//! The writes of a transaction to one collection, as the transaction reads them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bolide_base::{MAX_SEQUENCE, SequenceNumber};

use super::key_ranges::KeyRanges;

/// The largest number of writes of a transaction.
pub(super) const MAX_WRITES: u64 = 1 << 32;

/// Memory of a write beside key and record, in bytes.
const WRITE_BYTES: usize = 96;

/// The provisional sequence number of write number `position` of a transaction: above those of all commits.
pub(super) fn provisional(position: u64) -> SequenceNumber {
    MAX_SEQUENCE - MAX_WRITES + position
}

/// A record that the transaction put.
#[derive(Debug, Clone)]
pub(super) struct OwnRecord {
    /// Provisional.
    pub(super) sequence: SequenceNumber,
    pub(super) record: Arc<[u8]>,
}

/// What a transaction wrote under a key.
#[derive(Debug, Clone, Copy)]
pub(super) enum OwnWrite<'w> {
    /// Nothing: the record is that of the snapshot.
    None,
    /// It deleted the record.
    Deleted,
    Put(&'w OwnRecord),
}

/// The last writes of a transaction to the keys of one collection.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnWrites {
    /// The record of each key; `None` if it was deleted.
    records: BTreeMap<Vec<u8>, Option<OwnRecord>>,
    /// Deleted ranges. Keys that were put later are in `records`.
    deleted: KeyRanges,
    bytes: usize,
}

impl OwnWrites {
    pub(super) fn put(&mut self, key: &[u8], record: &[u8], sequence: SequenceNumber) {
        self.set(key, Some(OwnRecord { sequence, record: record.into() }));
    }

    pub(super) fn delete(&mut self, key: &[u8]) {
        self.set(key, None);
    }

    fn set(&mut self, key: &[u8], record: Option<OwnRecord>) {
        self.bytes += write_bytes(key, record.as_ref());
        if let Some(replaced) = self.records.insert(key.to_vec(), record) {
            self.bytes -= write_bytes(key, replaced.as_ref());
        }
    }

    pub(super) fn delete_range(&mut self, start: &[u8], end: &[u8]) {
        let within: Vec<Vec<u8>> = self.written(start, end).map(|(key, _)| key.to_vec()).collect();
        for key in within {
            if let Some(removed) = self.records.remove(&key) {
                self.bytes -= write_bytes(&key, removed.as_ref());
            }
        }
        self.deleted.insert(start, end);
    }

    /// What the transaction wrote under `key`.
    pub(super) fn get(&self, key: &[u8]) -> OwnWrite<'_> {
        match self.records.get(key) {
            Some(Some(record)) => OwnWrite::Put(record),
            Some(None) => OwnWrite::Deleted,
            None if self.deleted.contains(key) => OwnWrite::Deleted,
            None => OwnWrite::None,
        }
    }

    /// Whether the record of the snapshot under `key` is hidden.
    pub(super) fn masks(&self, key: &[u8]) -> bool {
        !matches!(self.get(key), OwnWrite::None)
    }

    /// The deleted range around `key`.
    pub(super) fn deleted_around(&self, key: &[u8]) -> Option<(&[u8], &[u8])> {
        self.deleted.around(key)
    }

    /// The ranges that were deleted.
    pub(super) fn deleted(&self) -> &KeyRanges {
        &self.deleted
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.deleted.is_empty()
    }

    /// The number of single keys that were written.
    pub(super) fn keys(&self) -> usize {
        self.records.len()
    }

    /// The records that were put, in key order.
    pub(super) fn records(&self) -> impl Iterator<Item = (&[u8], &OwnRecord)> {
        self.records.iter().filter_map(|(key, record)| Some((&key[..], record.as_ref()?)))
    }

    /// Single keys that were written in `start..end`.
    pub(super) fn written<'w>(
        &'w self,
        start: &'w [u8],
        end: &'w [u8],
    ) -> impl Iterator<Item = (&'w [u8], &'w Option<OwnRecord>)> {
        let range = (start < end)
            .then(|| self.records.range::<[u8], _>((Bound::Included(start), Bound::Excluded(end))));
        range.into_iter().flatten().map(|(key, record)| (&key[..], record))
    }

    /// The first record that was put within `bounds`.
    pub(super) fn first_put(&self, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> Option<(&[u8], &OwnRecord)> {
        let mut range = is_range(&bounds).then(|| self.records.range::<[u8], _>(bounds))?;
        range.find_map(|(key, record)| Some((&key[..], record.as_ref()?)))
    }

    /// The last record that was put within `bounds`.
    pub(super) fn last_put(&self, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> Option<(&[u8], &OwnRecord)> {
        let range = is_range(&bounds).then(|| self.records.range::<[u8], _>(bounds))?;
        range.rev().find_map(|(key, record)| Some((&key[..], record.as_ref()?)))
    }

    /// The memory of the writes, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes + self.deleted.memory_bytes()
    }
}

/// False for bounds that a map of the standard library panics on.
fn is_range(bounds: &(Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    match bounds {
        (Bound::Included(start), Bound::Included(end)) => start <= end,
        (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => {
            start < end
        }
        _ => true,
    }
}

fn write_bytes(key: &[u8], record: Option<&OwnRecord>) -> usize {
    WRITE_BYTES + key.len() + record.map_or(0, |record| record.record.len())
}
