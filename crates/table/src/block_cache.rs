//! A cache of decoded blocks with a budget in bytes, shared by all tables and, if wanted, by several
//! databases.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use crate::block::Block;
use crate::index_block::IndexBlock;

/// Which block: whose (see `FileSource::cache_owner`), of which file, at which offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheKey {
    pub(crate) owner: u64,
    pub(crate) file_number: u64,
    pub(crate) offset: u64,
}

impl Hash for CacheKey {
    /// One multiplication per field; [`SpreadHasher`] finishes the mixing.
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let file = self.owner.rotate_left(40) ^ self.file_number;
        state.write_u64(file.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.offset);
    }
}

/// Spreads one word over all bits. Keys are offsets of blocks, which nobody outside can choose freely
/// enough to make them collide.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SpreadHasher(u64);

impl Hasher for SpreadHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ 0x243f_6a88_85a3_08d3) * 0x9fb2_1c65_1e98_df25;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct SpreadHash;

impl BuildHasher for SpreadHash {
    type Hasher = SpreadHasher;

    #[inline]
    fn build_hasher(&self) -> SpreadHasher {
        SpreadHasher::default()
    }
}

/// A block in the cache.
#[derive(Debug, Clone)]
pub(crate) enum CachedBlock {
    Data(Block),
    Index(Arc<IndexBlock>),
}

/// What an entry costs beside the bytes of its block: the slot, its place in the hash table, the
/// allocation.
const OVERHEAD_BYTES: usize = 160;

#[derive(Debug, Clone, Copy)]
struct ByBytes;

impl Weighter<CacheKey, CachedBlock> for ByBytes {
    #[inline]
    fn weight(&self, _: &CacheKey, block: &CachedBlock) -> u64 {
        let bytes = match block {
            CachedBlock::Data(block) => block.memory_bytes(),
            CachedBlock::Index(index) => index.memory_bytes(),
        };
        (bytes + OVERHEAD_BYTES) as u64
    }
}

type Blocks = Cache<CacheKey, CachedBlock, ByBytes, SpreadHash, DefaultLifecycle<CacheKey, CachedBlock>>;

/// Decoded blocks within a budget of bytes; the ones that are least worth keeping leave first.
///
/// Safe to share between threads. A block in the cache was verified when it was read from disk. Blocks
/// of removed files leave by and by, as file numbers are never used again.
pub struct BlockCache {
    blocks: Blocks,
    hits: [HitCounter; HIT_COUNTERS],
    misses: AtomicU64,
    inserts: AtomicU64,
}

/// Hits are counted apart by block, so that threads seldom write the same cache line.
const HIT_COUNTERS: usize = 16;

#[derive(Debug, Default)]
#[repr(align(64))]
struct HitCounter(AtomicU64);

impl HitCounter {
    /// Not one atomic step, which would cost more than the rest of a hit: two threads at the same
    /// counter may count one hit for two.
    #[inline]
    fn count(&self) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

/// How a [`BlockCache`] is doing.
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

impl BlockCache {
    /// A cache of at most `bytes` bytes. Zero caches nothing.
    ///
    /// Memory is taken as blocks come in, but for a few bytes per block that it may hold.
    pub fn new(bytes: u64) -> Arc<Self> {
        let estimated_blocks = usize::try_from(bytes / 4096).unwrap_or(usize::MAX).clamp(16, 1 << 24);
        let options = OptionsBuilder::new()
            .estimated_items_capacity(estimated_blocks)
            .weight_capacity(bytes)
            .shards(shards_for(bytes))
            .build()
            // Both required settings are there.
            .unwrap_or_else(|_| unreachable!("capacities are set"));
        let blocks = Cache::with_options(options, ByBytes, SpreadHash, DefaultLifecycle::default());
        Arc::new(Self {
            blocks,
            hits: Default::default(),
            misses: AtomicU64::new(0),
            inserts: AtomicU64::new(0),
        })
    }

    #[inline]
    pub(crate) fn get(&self, key: &CacheKey) -> Option<CachedBlock> {
        let found = self.blocks.get(key);
        match &found {
            Some(_) => self.hits[(key.offset >> 12) as usize % HIT_COUNTERS].count(),
            None => drop(self.misses.fetch_add(1, Ordering::Relaxed)),
        }
        found
    }

    /// As [`get`](Self::get), without a word about how useful the block is.
    pub(crate) fn peek(&self, key: &CacheKey) -> Option<CachedBlock> {
        self.blocks.peek(key)
    }

    pub(crate) fn insert(&self, key: CacheKey, block: CachedBlock) {
        self.inserts.fetch_add(1, Ordering::Relaxed);
        self.blocks.insert(key, block);
    }

    /// How the cache is doing. Cheap, and exact only while nobody uses it.
    pub fn stats(&self) -> BlockCacheStats {
        BlockCacheStats {
            hits: self.hits.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum(),
            misses: self.misses.load(Ordering::Relaxed),
            inserts: self.inserts.load(Ordering::Relaxed),
            blocks: self.blocks.len() as u64,
            used_bytes: self.blocks.weight(),
            capacity_bytes: self.blocks.capacity(),
        }
    }

    /// Drops all blocks. Readers that hold one keep it.
    pub fn clear(&self) {
        self.blocks.clear();
    }
}

/// A shard holds a block only if it fits the shard's part of the budget, so small caches have few.
fn shards_for(bytes: u64) -> usize {
    const MIN_SHARD_BYTES: u64 = 4 << 20;
    usize::try_from(bytes / MIN_SHARD_BYTES).unwrap_or(usize::MAX).clamp(1, 16)
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCache").field("stats", &self.stats()).finish()
    }
}
