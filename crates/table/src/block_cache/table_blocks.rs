//! The blocks of one table in the cache: which slots they are in, by their numbers, and where they lie.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bolide_storage::LargeArray;

use super::{BlockCache, CachedBlock, HIT_COUNTERS, Slot};
use crate::block::Block;
use crate::block_memory::{BlockMemory, MEMORY_HEADER_BYTES};
use crate::prefetch::{LINE_BYTES, prefetch, prefetch_line};
use crate::read_counters::ReadCounters;

/// Where a block was put last.
#[derive(Debug, Default)]
#[repr(align(8))]
pub(super) struct Hint {
    /// 0, or 1 + the number of its slot.
    slot: AtomicU32,
    /// The lower bits of the number of its first cache line in memory. Those of all blocks have the upper ones in common
    /// as a rule: all that is lost otherwise is a prefetch.
    line: AtomicU32,
}

/// Bits of an address that are those in its cache line, and those that a hint has.
const LINE_BITS: u32 = LINE_BYTES.trailing_zeros();
const NEAR_BITS: u32 = LINE_BITS + u32::BITS;
/// Where, behind the start of a block in memory, the directory starts, if what its keys have in common is of usual length.
const DIRECTORY_AT: u64 = 40;
/// The bytes of an entry in the directory as a rule.
const LISTED_BYTES: u64 = 6;

/// Most bytes of an entry that are asked for before it is known where it lies.
const GUESSED_BYTES: u64 = 2 * LINE_BYTES as u64;

/// Where entries lie in the data block that was put in last, for those that have not been looked at: where records are alike in
/// length, they lie there in all blocks.
#[derive(Debug, Default)]
struct Layout {
    /// 0 where entries differ in length; else, in the lower half, where the first entry starts, counted from where the block lies in memory, and in
    /// the upper one how far it is from one to the next.
    guess: AtomicU64,
}

impl Layout {
    fn learn(&self, block: &Block) {
        let guess = block.stride().map_or(0, |(first, stride)| {
            (u64::from(first) + MEMORY_HEADER_BYTES) | (u64::from(stride) << u32::BITS)
        });
        if self.guess.load(Ordering::Relaxed) != guess {
            self.guess.store(guess, Ordering::Relaxed);
        }
    }

    /// Where entry number `index` likely starts, and how long it is; 0 for a length where that is not known.
    #[inline]
    fn entry(&self, index: usize) -> (u64, u64) {
        let guess = self.guess.load(Ordering::Relaxed);
        let (first, stride) = (guess & u64::from(u32::MAX), guess >> u32::BITS);
        (first.wrapping_add(stride.wrapping_mul(index as u64)), stride)
    }
}

/// The blocks of one open table in a [`BlockCache`], by number. They leave the cache with it.
pub(crate) struct TableBlocks {
    cache: Arc<BlockCache>,
    /// Number of the table in the cache, in the upper half.
    key: u64,
    hints: LargeArray<Hint>,
    layout: Layout,
}

impl TableBlocks {
    /// Registers a table of `blocks` blocks; those beyond 2³² are not cached.
    pub(crate) fn new(cache: Arc<BlockCache>, blocks: u64) -> Self {
        let table = cache.next_table.fetch_add(1, Ordering::Relaxed);
        // Numbers run out after four thousand million tables: then nothing more is cached.
        let blocks = if table == 0 { 0 } else { blocks.min(u32::MAX.into()) };
        if table == 0 {
            cache.next_table.store(0, Ordering::Relaxed);
        }
        Self {
            cache,
            key: u64::from(table) << 32,
            hints: LargeArray::from_fn(blocks as usize, |_| Hint::default()),
            layout: Layout::default(),
        }
    }

    /// Where blocks that are to be put in lie.
    pub(crate) fn memory(&self) -> &Arc<BlockMemory> {
        &self.cache.memory
    }

    #[inline]
    pub(super) fn hint(&self, number: u64) -> Option<&Hint> {
        self.hints.get(usize::try_from(number).ok()?)
    }

    #[inline]
    fn slot(&self, number: u64) -> Option<&Slot> {
        self.slot_of(self.hint(number)?)
    }

    #[inline]
    fn slot_of(&self, hint: &Hint) -> Option<&Slot> {
        self.cache.slots.get(hint.slot.load(Ordering::Relaxed).checked_sub(1)?)
    }

    /// Asks the processor for the start of the block that `hint` is of, with its reference count, and for what it says of
    /// entry number `index`.
    #[inline]
    fn prefetch_start(&self, hint: &Hint, index: usize) {
        let [start, listed] = self.addresses(hint, index);
        prefetch_line(start);
        prefetch_line(listed);
    }

    /// As [`prefetch_start`](Self::prefetch_start), and for the entry where it likely lies: then nothing waits for the directory
    /// first.
    #[inline]
    fn prefetch_all(&self, hint: &Hint, index: usize) {
        let [start, listed] = self.addresses(hint, index);
        prefetch_line(start);
        prefetch_line(listed);
        let (entry, len) = self.guessed(start, index);
        for line in (entry..entry + len).step_by(LINE_BYTES) {
            prefetch_line(line);
        }
    }

    /// Where entry number `index` of the block in the line at `start` likely lies, and how much of it is asked for.
    #[inline]
    pub(super) fn guessed(&self, start: u64, index: usize) -> (u64, u64) {
        let (entry, stride) = self.layout.entry(index);
        (start.wrapping_add(entry), stride.min(GUESSED_BYTES))
    }

    /// Addresses in the first line of the block that `hint` is of and, as a rule, in the line of entry number `index` of its
    /// directory.
    #[inline]
    pub(super) fn addresses(&self, hint: &Hint, index: usize) -> [u64; 2] {
        let far = self.cache.far.load(Ordering::Relaxed) << NEAR_BITS;
        let start = far | u64::from(hint.line.load(Ordering::Relaxed)) << LINE_BITS;
        [start, start + DIRECTORY_AT + LISTED_BYTES * index as u64]
    }

    /// Block number `number`, if it is in the cache; counts as a use.
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
    fn count_hit(&self, slot: &Slot, number: u64) {
        slot.mark_used();
        self.cache.hits[number as usize % HIT_COUNTERS].count();
        ReadCounters::count(|counters| counters.blocks_cached += 1);
    }

    /// Data block number `number`, if it is in the cache; with `use_it` it counts as a use, a miss never. Asks for what a
    /// comparison with entry number `index` reads before it waits for the block's reference count.
    #[inline]
    pub(crate) fn data_block(&self, number: u64, index: usize, use_it: bool) -> Option<Block> {
        let hint = self.hint(number)?;
        let slot = self.slot_of(hint)?;
        self.prefetch_all(hint, index);
        let held = slot.block.lock();
        let found = slot.key.load(Ordering::Relaxed) == self.key | number;
        let Some(CachedBlock::Data(block)) = held.as_ref().filter(|_| found) else { return None };
        block.prefetch_listed(index);
        let block = block.clone();
        if use_it {
            self.count_hit(slot, number);
        }
        Some(block)
    }

    /// As [`get`](Self::get), of a data block, which `work` sees where it lies. False if it is not there.
    #[inline]
    pub(crate) fn use_data_block(&self, number: u64, work: impl FnOnce(&Block)) -> bool {
        if let Some(slot) = self.slot(number) {
            let held = slot.block.lock();
            if slot.key.load(Ordering::Relaxed) == self.key | number
                && let Some(CachedBlock::Data(block)) = &*held
            {
                work(block);
                drop(held);
                self.count_hit(slot, number);
                return true;
            }
        }
        self.cache.misses.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// Asks the processor for the hint of block `number`, which [`prefetch_slot`](Self::prefetch_slot) reads.
    #[inline]
    pub(crate) fn prefetch_hint(&self, number: u64) {
        if let Some(hint) = self.hint(number) {
            prefetch(hint, 1);
        }
    }

    /// Asks the processor for what [`get`](Self::get) of block `number` looks at first.
    #[inline]
    pub(crate) fn prefetch_slot(&self, number: u64) {
        self.prefetch_hinted_slot(number);
    }

    /// As [`prefetch_slot`](Self::prefetch_slot): the hint of block `number`, if it leads to a slot.
    #[inline]
    fn prefetch_hinted_slot(&self, number: u64) -> Option<&Hint> {
        let hint = self.hint(number)?;
        prefetch(self.slot_of(hint)?, 1);
        Some(hint)
    }

    /// Asks the processor for all that [`data_block`](Self::data_block) of block `number` looks at.
    #[inline]
    pub(crate) fn prefetch_listed(&self, number: u64, index: usize) {
        if let Some(hint) = self.prefetch_hinted_slot(number) {
            self.prefetch_start(hint, index);
        }
    }

    /// As [`prefetch_listed`](Self::prefetch_listed), and for the entry where it likely lies.
    #[inline]
    pub(crate) fn prefetch_likely(&self, number: u64, index: usize) {
        if let Some(hint) = self.prefetch_hinted_slot(number) {
            self.prefetch_all(hint, index);
        }
    }

    /// Asks the processor for the tables at the start of block `number`, if it is in the cache.
    #[inline]
    pub(crate) fn prefetch_block(&self, number: u64) {
        self.glance(number, Block::prefetch);
    }

    /// Lets `ask` see data block `number`, if it is in the cache and nobody else looks at it just now.
    #[inline]
    pub(crate) fn glance(&self, number: u64, ask: impl FnOnce(&Block)) {
        if let Some(slot) = self.slot(number)
            && slot.key.load(Ordering::Relaxed) == self.key | number
            && let Some(block) = slot.block.try_lock()
            && let Some(CachedBlock::Data(block)) = &*block
        {
            ask(block);
        }
    }

    /// Asks the processor for the first `len` bytes of meta block number `number`, if it is in the cache and nobody else
    /// looks at it just now.
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

    /// As [`get`](Self::get), without a word about how useful the block is.
    pub(crate) fn peek(&self, number: u64) -> Option<CachedBlock> {
        self.slot(number)?.get(self.key | number)
    }

    /// Puts block number `number` in.
    pub(crate) fn insert(&self, number: u64, block: CachedBlock) {
        let Some(hint) = self.hint(number) else { return };
        let address = block.address();
        if let CachedBlock::Data(data) = &block {
            self.layout.learn(data);
        }
        // Two threads may read the same block at once: the second finds the first one's here.
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

    /// The bytes that all blocks of the cache may take.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.cache.capacity_bytes
    }

    /// The bytes that the hints take.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.hints.memory_bytes()
    }
}

/// Blocks that a table that is dropped removes before it lets others at the queues.
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
