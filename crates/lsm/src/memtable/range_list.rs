//! The range tombstones of a memtable.

use bolide_base::SequenceNumber;
use parking_lot::RwLock;

use crate::range_tombstones::RangeTombstone;

use super::sync::{AtomicUsize, Ordering};

#[derive(Default)]
pub(super) struct RangeList {
    list: RwLock<Vec<RangeTombstone>>,
    len: AtomicUsize,
    bytes: AtomicUsize,
}

impl RangeList {
    pub(super) fn add(&self, start: &[u8], end: &[u8], sequence: SequenceNumber) {
        let mut list = self.list.write();
        list.push(RangeTombstone { start: start.to_vec(), end: end.to_vec(), sequence });
        let bytes = size_of::<RangeTombstone>() + start.len() + end.len();
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.len.store(list.len(), Ordering::Release);
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn all(&self) -> Vec<RangeTombstone> {
        self.list.read().clone()
    }

    pub(super) fn newest_covering(&self, key: &[u8], at_most: SequenceNumber) -> SequenceNumber {
        let list = self.list.read();
        let covers = |tombstone: &&RangeTombstone| {
            tombstone.sequence <= at_most && *tombstone.start <= *key && *key < *tombstone.end
        };
        list.iter().filter(covers).map(|tombstone| tombstone.sequence).max().unwrap_or(0)
    }
}
