//! What a block cache tells of itself.

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
