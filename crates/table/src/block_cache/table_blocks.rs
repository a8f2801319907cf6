//! The blocks of one table in the cache: their slots and addresses by block number.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bolide_base::technique::Technique;
use bolide_memory::{CACHE_LINE_BYTES, LargeArray, SHARED_HEADER_BYTES, prefetch, prefetch_address};

use super::{BlockCache, CacheSlot, CachedBlock, HIT_COUNTERS};
use crate::block::Block;
use crate::read_counters::ReadCounters;

/// The last location of a block in the cache.
#[derive(Debug, Default)]
#[repr(align(8))]
pub(super) struct Hint {
    /// 0, or 1 + the number of its slot.
    slot: AtomicU32,
    /// The lower bits of the number of its first cache line in memory. The upper bits are usually common to all blocks;
    /// if not, only a prefetch is lost.
    line: AtomicU32,
}

/// Bits of an address within its cache line, and bits of an address below the upper bits in `BlockCache::far`.
const LINE_BITS: u32 = CACHE_LINE_BYTES.trailing_zeros();
const NEAR_BITS: u32 = LINE_BITS + u32::BITS;
/// Usual offset of the directory from the start of a block in memory, for a common prefix of usual length.
const DIRECTORY_AT: u64 = 40;
/// Usual size of a directory entry, in bytes.
const DIRECTORY_ENTRY_BYTES: u64 = 6;

/// Maximum number of bytes of an entry that are prefetched at a predicted address.
const MAX_PREDICTED_BYTES: u64 = 2 * CACHE_LINE_BYTES as u64;

/// The positions of entries in the last inserted data block, a prediction for other blocks. If records have equal
/// lengths, entries have the same positions in all blocks.
#[derive(Debug, Default)]
struct EntryPositions {
    /// 0 if entries differ in length. Else the lower half is the offset of the first entry from the start of the block in
    /// memory, and the upper half is the distance between neighbouring entries.
    packed: AtomicU64,
}

impl EntryPositions {
    fn update(&self, block: &Block) {
        let packed = block.stride().map_or(0, |(first, stride)| {
            (u64::from(first) + SHARED_HEADER_BYTES) | (u64::from(stride) << u32::BITS)
        });
        if self.packed.load(Ordering::Relaxed) != packed {
            self.packed.store(packed, Ordering::Relaxed);
        }
    }

    /// The predicted start and length of entry number `index`; length 0 without a prediction.
    #[inline]
    fn entry(&self, index: usize) -> (u64, u64) {
        let packed = self.packed.load(Ordering::Relaxed);
        let (first, stride) = (packed & u64::from(u32::MAX), packed >> u32::BITS);
        (first.wrapping_add(stride.wrapping_mul(index as u64)), stride)
    }
}

/// The blocks of one open table in a [`BlockCache`], by number. Removed from the cache when this is dropped.
pub(crate) struct TableBlocks {
    cache: Arc<BlockCache>,
    /// Number of the table in the cache, in the upper half.
    key: u64,
    hints: LargeArray<Hint>,
    positions: EntryPositions,
}

impl TableBlocks {
    /// Registers a table of `blocks` blocks. Blocks after the first 2³² are not cached.
    pub(crate) fn new(cache: Arc<BlockCache>, blocks: u64) -> Self {
        let table = cache.next_table.fetch_add(1, Ordering::Relaxed);
        // Table numbers are exhausted after four billion tables: then nothing more is cached.
        let blocks = if table == 0 { 0 } else { blocks.min(u32::MAX.into()) };
        if table == 0 {
            cache.next_table.store(0, Ordering::Relaxed);
        }
        Self {
            hints: LargeArray::from_fn(&cache.pool, blocks as usize, |_| Hint::default()),
            cache,
            key: u64::from(table) << 32,
            positions: EntryPositions::default(),
        }
    }

    /// The cache.
    pub(crate) fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }

    #[inline]
    pub(super) fn hint(&self, number: u64) -> Option<&Hint> {
        self.hints.get(usize::try_from(number).ok()?)
    }

    #[inline]
    fn slot(&self, number: u64) -> Option<&CacheSlot> {
        self.slot_of(self.hint(number)?)
    }

    #[inline]
    fn slot_of(&self, hint: &Hint) -> Option<&CacheSlot> {
        self.cache.slots.get(hint.slot.load(Ordering::Relaxed).checked_sub(1)?)
    }

    /// Prefetches the start of the block of `hint`, with its reference count, and the directory entry of entry number
    /// `index`.
    #[inline]
    fn prefetch_start(&self, hint: &Hint, index: usize) {
        let [start, directory_entry] = self.addresses(hint, index);
        prefetch_address(start);
        prefetch_address(directory_entry);
    }

    /// As [`prefetch_start`](Self::prefetch_start), and prefetches the entry at its predicted address, without waiting for
    /// the directory.
    #[inline]
    fn prefetch_all(&self, hint: &Hint, index: usize) {
        let [start, directory_entry] = self.addresses(hint, index);
        prefetch_address(start);
        prefetch_address(directory_entry);
        let (entry, len) = self.predicted(start, index);
        for line in (entry..entry + len).step_by(CACHE_LINE_BYTES) {
            prefetch_address(line);
        }
    }

    /// The predicted address of entry number `index` of the block at `start`, and the number of bytes to prefetch.
    #[inline]
    pub(super) fn predicted(&self, start: u64, index: usize) -> (u64, u64) {
        let (entry, stride) =
            if Technique::EntryPrefetch.is_on() { self.positions.entry(index) } else { (0, 0) };
        (start.wrapping_add(entry), stride.min(MAX_PREDICTED_BYTES))
    }

    /// Addresses in the first line of the block of `hint` and, usually, in the line of the directory entry of entry number
    /// `index`.
    #[inline]
    pub(super) fn addresses(&self, hint: &Hint, index: usize) -> [u64; 2] {
        let far = self.cache.far.load(Ordering::Relaxed) << NEAR_BITS;
        let start = far | u64::from(hint.line.load(Ordering::Relaxed)) << LINE_BITS;
        [start, start + DIRECTORY_AT + DIRECTORY_ENTRY_BYTES * index as u64]
    }

    /// Block number `number`, if it is cached. Counts as a use.
    #[inline]
    pub(crate) fn get(&self, number: u64) -> Option<CachedBlock> {
        if let Some(slot) = self.slot(number)
            && let Some(block) = slot.get(self.key | number)
        {
            self.count_hit(slot, number);
            return Some(block);
        }
        self.cache.misses.fetch_add(1, Ordering::Relaxed);
        None
    }

    #[inline]
    fn count_hit(&self, slot: &CacheSlot, number: u64) {
        slot.mark_used();
        self.cache.hits[number as usize % HIT_COUNTERS].count();
        ReadCounters::count(|counters| counters.blocks_cached += 1);
    }

    /// Data block number `number`, if it is cached. With `use_it` a hit counts as a use; a miss is never counted. Prefetches
    /// the bytes that a comparison with entry number `index` reads before it increments the block's reference count.
    #[inline]
    pub(crate) fn data_block(&self, number: u64, index: usize, use_it: bool) -> Option<Block> {
        let hint = self.hint(number)?;
        let slot = self.slot_of(hint)?;
        self.prefetch_all(hint, index);
        let guard = slot.block.lock();
        let found = slot.key.load(Ordering::Relaxed) == self.key | number;
        let Some(CachedBlock::Data(block)) = guard.as_ref().filter(|_| found) else { return None };
        block.prefetch_directory_entry(index);
        let block = block.clone();
        if use_it {
            self.count_hit(slot, number);
        }
        Some(block)
    }

    /// Calls `work` with a cached data block in place, as a use. Returns false if it is not cached.
    #[inline]
    pub(crate) fn with_data_block(&self, number: u64, work: impl FnOnce(&Block)) -> bool {
        if let Some(slot) = self.slot(number) {
            let guard = slot.block.lock();
            if slot.key.load(Ordering::Relaxed) == self.key | number
                && let Some(CachedBlock::Data(block)) = &*guard
            {
                work(block);
                drop(guard);
                self.count_hit(slot, number);
                return true;
            }
        }
        self.cache.misses.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// Prefetches the hint of block `number`, which [`prefetch_slot`](Self::prefetch_slot) reads.
    #[inline]
    pub(crate) fn prefetch_hint(&self, number: u64) {
        if let Some(hint) = self.hint(number) {
            prefetch(hint, 1);
        }
    }

    /// Prefetches the memory that [`get`](Self::get) of block `number` reads first.
    #[inline]
    pub(crate) fn prefetch_slot(&self, number: u64) {
        self.prefetch_hinted_slot(number);
    }

    /// As [`prefetch_slot`](Self::prefetch_slot). Returns the hint of block `number` if it refers to a slot.
    #[inline]
    fn prefetch_hinted_slot(&self, number: u64) -> Option<&Hint> {
        let hint = self.hint(number)?;
        prefetch(self.slot_of(hint)?, 1);
        Some(hint)
    }

    /// Prefetches all memory that [`data_block`](Self::data_block) of block `number` reads.
    #[inline]
    pub(crate) fn prefetch_directory_entry(&self, number: u64, index: usize) {
        if let Some(hint) = self.prefetch_hinted_slot(number) {
            self.prefetch_start(hint, index);
        }
    }

    /// As [`prefetch_directory_entry`](Self::prefetch_directory_entry), and prefetches the entry at its predicted address.
    #[inline]
    pub(crate) fn prefetch_predicted(&self, number: u64, index: usize) {
        if let Some(hint) = self.prefetch_hinted_slot(number) {
            self.prefetch_all(hint, index);
        }
    }

    /// Prefetches the fixed fields and the directory of block `number`, if it is cached.
    #[inline]
    pub(crate) fn prefetch_block(&self, number: u64) {
        self.try_with_data_block(number, Block::prefetch);
    }

    /// Calls `work` with data block `number`, if it is cached and its slot is not locked.
    #[inline]
    pub(crate) fn try_with_data_block(&self, number: u64, work: impl FnOnce(&Block)) {
        if let Some(slot) = self.slot(number)
            && slot.key.load(Ordering::Relaxed) == self.key | number
            && let Some(block) = slot.block.try_lock()
            && let Some(CachedBlock::Data(block)) = &*block
        {
            work(block);
        }
    }

    /// Prefetches the first `len` bytes of meta block number `number`, if it is cached and its slot is not locked.
    #[inline]
    pub(crate) fn prefetch_meta(&self, number: u64, len: usize) {
        if let Some(slot) = self.slot(number)
            && slot.key.load(Ordering::Relaxed) == self.key | number
            && let Some(block) = slot.block.try_lock()
            && let Some(CachedBlock::Meta(payload)) = &*block
        {
            prefetch(&*payload.bytes, len);
        }
    }

    /// Whether block number `number` is cached, without a lock: an insertion or eviction at the same time may be missed.
    #[inline]
    pub(crate) fn holds(&self, number: u64) -> bool {
        self.slot(number).is_some_and(|slot| slot.key.load(Ordering::Relaxed) == self.key | number)
    }

    /// As [`get`](Self::get), without counting a use.
    pub(crate) fn peek(&self, number: u64) -> Option<CachedBlock> {
        self.slot(number)?.get(self.key | number)
    }

    /// Inserts block number `number`.
    pub(crate) fn insert(&self, number: u64, block: CachedBlock) {
        let Some(hint) = self.hint(number) else { return };
        let address = block.address();
        if let CachedBlock::Data(data) = &block {
            self.positions.update(data);
        }
        // Two threads may read the same block concurrently: the second one finds the block of the first one.
        if self.peek(number).is_none()
            && let Some(slot) = self.cache.insert(self.key | number, block)
        {
            hint.line.store((address >> LINE_BITS) as u32, Ordering::Relaxed);
            hint.slot.store(slot + 1, Ordering::Relaxed);
            let far = address >> NEAR_BITS;
            if self.cache.far.load(Ordering::Relaxed) != far {
                self.cache.far.store(far, Ordering::Relaxed);
            }
        }
    }

    /// Capacity of the whole cache, in bytes.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.cache.capacity_bytes()
    }

    /// Memory of the hints, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.hints.memory_bytes()
    }
}

/// Maximum number of blocks that the drop of a table removes per acquisition of the queue lock.
const REMOVED_AT_ONCE: usize = 256;

impl Drop for TableBlocks {
    fn drop(&mut self) {
        let mut number = 0;
        for hints in self.hints.chunks(REMOVED_AT_ONCE) {
            let mut left = Vec::new();
            let mut queues = self.cache.queues.lock();
            for hint in hints {
                if let Some(slot) = hint.slot.load(Ordering::Relaxed).checked_sub(1) {
                    queues.remove(&self.cache.slots, slot, self.key | number, &mut left);
                }
                number += 1;
            }
            drop(queues);
            drop(left);
        }
        self.cache.queues.lock().sweep(&self.cache.slots);
    }
}
