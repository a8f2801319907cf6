//! The range tombstones of a memtable.

use bolide_base::SequenceNumber;
use parking_lot::RwLock;

use super::sync::{AtomicUsize, Ordering};
use crate::range_tombstones::{RangeTombstone, RangeTombstones};

/// A set of range tombstones with concurrent insertion and search.
#[derive(Default)]
pub(super) struct RangeList {
    /// More than one set only if one is full, since insertion must not fail.
    sets: RwLock<Vec<RangeTombstones>>,
    count: AtomicUsize,
    bytes: AtomicUsize,
}

impl RangeList {
    /// Adds a tombstone. Ignores an empty range.
    pub(super) fn add(&self, start: &[u8], end: &[u8], sequence: SequenceNumber) {
        if start >= end {
            return;
        }
        let tombstone = RangeTombstone { start: start.to_vec(), end: end.to_vec(), sequence };
        let mut sets = self.sets.write();
        let added = sets.last_mut().is_some_and(|last| last.add(tombstone.clone()).is_ok());
        if !added {
            sets.extend(RangeTombstones::from_tombstones([tombstone]));
        }
        // The tombstone itself, and an estimate for its part of the search structure.
        let bytes = size_of::<RangeTombstone>() + start.len() + end.len() + 128;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Release);
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn all(&self) -> Vec<RangeTombstone> {
        self.sets.read().iter().flat_map(RangeTombstones::iter).cloned().collect()
    }

    pub(super) fn newest_covering(&self, key: &[u8], max_sequence: SequenceNumber) -> SequenceNumber {
        self.sets.read().iter().map(|set| set.newest_covering(key, max_sequence)).max().unwrap_or(0)
    }
}
