//! Statistics of a block cache.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters and sizes of a [`BlockCache`](crate::BlockCache).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BlockCacheStats {
    /// Lookups that found their block. Concurrent hits may be counted once.
    pub hits: u64,
    /// Lookups that did not find their block.
    pub misses: u64,
    /// Blocks that were inserted.
    pub inserts: u64,
    /// Blocks in the cache.
    pub blocks: u64,
    /// Memory of these blocks, with an estimate of the cache's own overhead.
    pub used_bytes: u64,
    /// The budget.
    pub capacity_bytes: u64,
}

/// Number of hit counters. Each block uses one of them, so that threads seldom write the same cache line.
pub(crate) const HIT_COUNTERS: usize = 16;

#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct HitCounter(AtomicU64);

impl HitCounter {
    /// Increments the counter without an atomic read-modify-write, which would cost as much as the rest of a hit:
    /// concurrent hits of one counter may be counted once.
    #[inline]
    pub(crate) fn count(&self) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// The number of hits.
    pub(crate) fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
