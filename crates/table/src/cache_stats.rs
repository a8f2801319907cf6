//! What a block cache tells of itself.

use std::sync::atomic::{AtomicU64, Ordering};

/// How a [`BlockCache`](crate::BlockCache) is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BlockCacheStats {
    /// Questions for a block that was there. Threads that ask at the same moment may be counted as one.
    pub hits: u64,
    /// Questions for a block that was not there.
    pub misses: u64,
    /// Blocks that were put in.
    pub inserts: u64,
    /// Blocks that are in.
    pub blocks: u64,
    /// Bytes that they take, with an estimate of the cache's own overhead.
    pub used_bytes: u64,
    /// The budget.
    pub capacity_bytes: u64,
}

/// Hits are counted apart by block, so that threads seldom write the same cache line.
pub(crate) const HIT_COUNTERS: usize = 16;

#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct HitCounter(AtomicU64);

impl HitCounter {
    /// Not one atomic step, which would cost as much as the rest of a hit: two threads at the same
    /// counter may count one hit for two.
    #[inline]
    pub(crate) fn count(&self) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// The hits so far.
    pub(crate) fn count_so_far(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
