//! A region: byte-addressable memory of 64-bit words with lock-free reads.

use std::cmp::Ordering as Order;
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, Result};
use bolide_memory::MemoryHolder;

use super::dirty::DirtyPages;
use super::extent::{ExtentMemory, ExtentTable, HeapExtent};
use super::free_space::FreeSpace;
use super::growth::Growth;
#[cfg(feature = "paper")]
use super::latency::{Latency, LatencyModel};
use super::layout::{
    EXTENT_BYTES, FIRST_PLACE, FORMAT_VERSION, ID_AT, MAGIC, MAGIC_AT, MARK_AT, OPEN_COUNT_AT, PAGE_BYTES,
    Place, ROOT_SLOTS, ROOTS_AT, STATE_AT, VERSION_AT, first_free_of, within_extent,
};
use super::line_model::LineModel;
use super::mapped::MappedFile;
use super::memory_count::MemoryCount;
use super::pins::{OwnedPin, Pin, Pins};
use super::sync::{AtomicU64, Mutex, Ordering, RwLock};
use super::word::Word;
use super::write_back::WriteBack;

/// Options of a region.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RegionOptions {
    /// The region's name in messages. Default: `region`.
    pub name: String,
    /// The identity of the region, stored in it and checked at each opening. Default: 0.
    pub id: u64,
    /// The maximum size of the region in bytes, rounded up to whole extents. Default: 64 GiB. The table of extents takes 16 bytes
    /// for each 4 MiB of it.
    pub limit_bytes: u64,
    /// Counts the memory of a region in memory. Default: none.
    pub memory: Option<Arc<MemoryHolder>>,
    /// Delays that simulate slower memory. Default: none.
    #[cfg(feature = "paper")]
    pub latency: Option<LatencyModel>,
}

impl Default for RegionOptions {
    fn default() -> Self {
        Self {
            name: "region".into(),
            id: 0,
            limit_bytes: if cfg!(miri) { 32 << 20 } else { 64 << 30 },
            memory: None,
            #[cfg(feature = "paper")]
            latency: None,
        }
    }
}

impl RegionOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name in messages.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the id.
    #[must_use]
    pub fn id(mut self, id: u64) -> Self {
        self.id = id;
        self
    }

    /// Sets the maximum size of the region, in bytes.
    #[must_use]
    pub fn limit_bytes(mut self, bytes: u64) -> Self {
        self.limit_bytes = bytes;
        self
    }

    /// Counts the memory of the region with `holder`, and refuses reservations that its budget does not allow.
    #[must_use]
    pub fn memory(mut self, holder: Arc<MemoryHolder>) -> Self {
        self.memory = Some(holder);
        self
    }

    /// Sets the delays.
    #[cfg(feature = "paper")]
    #[must_use]
    pub fn latency(mut self, model: LatencyModel) -> Self {
        self.latency = Some(model);
        self
    }
}

/// Statistics of a region.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegionStats {
    /// Address space of the region in bytes, whole extents.
    pub reserved_bytes: u64,
    /// The high-water mark: the space below it was allocated at some time.
    pub high_water_bytes: u64,
    /// Bytes allocated and not freed.
    pub allocated_bytes: u64,
    /// Bytes that can be allocated without growth.
    pub free_bytes: u64,
    /// Freed bytes that readers may still access.
    pub deferred_bytes: u64,
    /// Frees of a range that was not in use: damage, or a bug of the owner.
    pub refused_frees: u64,
    /// Pages of the next checkpoint.
    pub dirty_pages: u64,
    /// Calls of `RegionWriter::persist` on backings where it has an effect.
    pub persist_calls: u64,
    /// Lines of 64 bytes that these calls persisted.
    pub persisted_lines: u64,
}

/// The memory of a region's words.
#[derive(Debug)]
pub(super) enum Backing {
    /// In memory; checkpoints make them durable.
    Memory,
    /// In memory, with a model of the durability of each line.
    Simulated(LineModel),
    /// In a mapped file.
    Mapped(MappedFile),
}

/// The state of the allocator.
#[derive(Debug)]
pub(super) struct AllocatorState {
    pub(super) free: FreeSpace,
    /// The next granule that was never allocated.
    pub(super) next: Place,
    /// The high-water mark of the header: no byte at or above it was ever allocated.
    pub(super) mark: Place,
    pub(super) refused_frees: u64,
    /// The bitmaps of a clean close are valid.
    pub(super) saved: bool,
    /// False after a crash: then unused space may count as used.
    pub(super) is_known: bool,
    /// Allocations since the start of the running reclamation.
    pub(super) since_reclamation: Option<Vec<(Place, usize)>>,
}

impl AllocatorState {
    /// Records an allocation for the running reclamation, if there is one.
    pub(super) fn record_allocation(&mut self, at: Place, granules: usize) {
        if let Some(allocations) = &mut self.since_reclamation {
            allocations.push((at, granules));
        }
    }
}

/// Byte-addressable memory of 64-bit words in extents of 4 MiB, with lock-free reads beside concurrent writes.
///
/// * Reads: any thread, at any time. An offset outside of the region is an error of kind [`ErrorKind::Corruption`], never a
///   panic: offsets come from stored bytes.
/// * Writes: through [`writer`](Self::writer). One logical change with its allocations and frees belongs under one writer, so
///   that a checkpoint contains all or nothing of it.
/// * Frees: readers of a structure that frees memory hold a [`pin`](Self::pin).
///
/// Every access uses atomic words, so no use can cause a data race.
///
/// ```
/// use bolide_storage::pmem::{Region, RegionOptions};
/// let region = Region::in_memory(RegionOptions::new())?;
/// let writer = region.writer();
/// let at = writer.allocate(300)?;
/// writer.write(at, b"some bytes")?;
/// writer.set_root(0, at)?;
/// drop(writer);
/// let mut bytes = Vec::new();
/// region.read(region.root(0)? + 5, 5, &mut bytes)?;
/// assert_eq!(bytes, b"bytes");
/// # Ok::<(), bolide_base::Error>(())
/// ```
#[derive(Debug)]
pub struct Region {
    pub(super) table: ExtentTable,
    pub(super) pages: DirtyPages,
    pub(super) backing: Backing,
    #[cfg(feature = "paper")]
    pub(super) latency: Option<Latency>,
    pub(super) gate: RwLock<()>,
    pub(super) pins: Arc<Pins>,
    pub(super) space: Mutex<AllocatorState>,
    pub(super) growth: Growth,
    pub(super) memory: MemoryCount,
    pub(super) persist_calls: AtomicU64,
    pub(super) persisted_lines: AtomicU64,
    name: String,
}

impl Region {
    /// A new, empty region in memory. Checkpoints make it durable.
    ///
    /// # Errors
    /// `NoSpace` if the system refuses 4 MiB of address space, or the budget 64 KiB.
    pub fn in_memory(options: RegionOptions) -> Result<Self> {
        Self::new_with(&options, Backing::Memory)
    }

    /// A new, empty region.
    pub(super) fn new_with(options: &RegionOptions, backing: Backing) -> Result<Self> {
        let region = Self::without_extents(options, backing);
        region.initialize(options.id)?;
        Ok(region)
    }

    /// Fills the first extent.
    pub(super) fn initialize(&self, id: u64) -> Result<()> {
        self.memory.request_through(first_free_of(0))?;
        let writer = self.writer();
        writer.grow(&mut self.space.lock())?;
        writer.store_own(VERSION_AT, FORMAT_VERSION);
        writer.store_own(ID_AT, id);
        writer.store_own(OPEN_COUNT_AT, 1);
        writer.store_own(STATE_AT, u64::from(self.pages.supports_checkpoints()));
        writer.store_own(MARK_AT, first_free_of(0));
        writer.persist(0, PAGE_BYTES)?;
        writer.fence();
        // Last: a region without it is incomplete.
        writer.store_own_durably(MAGIC_AT, MAGIC)
    }

    /// A region without memory.
    pub(super) fn without_extents(options: &RegionOptions, backing: Backing) -> Self {
        let limit = options.limit_bytes.div_ceil(EXTENT_BYTES as u64).clamp(1, 1 << 26) as usize;
        let supports_checkpoints = matches!(backing, Backing::Memory);
        let space = AllocatorState {
            free: FreeSpace::new(),
            next: first_free_of(0),
            mark: first_free_of(0),
            refused_frees: 0,
            saved: false,
            is_known: true,
            since_reclamation: None,
        };
        Self {
            table: ExtentTable::new(limit),
            pages: DirtyPages::new(supports_checkpoints),
            backing,
            #[cfg(feature = "paper")]
            latency: options.latency.map(Latency::new),
            gate: RwLock::new(()),
            pins: Arc::new(Pins::new()),
            space: Mutex::new(space),
            growth: Growth::default(),
            memory: MemoryCount::new(options.memory.clone().filter(|_| supports_checkpoints)),
            persist_calls: AtomicU64::new(0),
            persisted_lines: AtomicU64::new(0),
            name: options.name.clone(),
        }
    }

    /// Preallocates as many extents of 4 MiB as the region has grown by since the last call, at least one, in huge pages if the
    /// system has them. For background threads: milliseconds per extent. No effect for small regions, for regions in files, and
    /// without memory.
    pub fn prepare_growth(&self) {
        if matches!(self.backing, Backing::Memory) {
            self.growth.prepare(self.table.len(), &self.memory);
        }
    }

    /// Memory for the extent `index`.
    pub(super) fn extent_memory(&self, index: usize) -> Result<Box<dyn ExtentMemory>> {
        match &self.backing {
            Backing::Memory | Backing::Simulated(_) => match self.growth.take() {
                Some(prepared) => Ok(Box::new(prepared)),
                None => Ok(Box::new(HeapExtent::new()?)),
            },
            Backing::Mapped(file) => file.extent(index),
        }
    }

    /// The word at `at`, a multiple of 8, relaxed.
    ///
    /// # Errors
    /// `Corruption` if there is no such word.
    #[inline]
    pub fn load(&self, at: Place) -> Result<u64> {
        self.word(at).map(Word::get)
    }

    /// The word at `at`, with acquire order.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    #[inline]
    pub fn load_acquire(&self, at: Place) -> Result<u64> {
        self.word(at).map(Word::acquire)
    }

    #[inline]
    fn word(&self, at: Place) -> Result<&Word> {
        match self.table.word(at) {
            Some(word) if at >= FIRST_PLACE => {
                #[cfg(feature = "paper")]
                self.delay(at, 8);
                Ok(word)
            }
            _ => Err(self.out_of_bounds(at, 8)),
        }
    }

    /// The words of the `bytes` bytes from `at` on, a multiple of 8, rounded up to whole words: one lookup for a node or page.
    /// They must be in one extent, as every allocation is.
    ///
    /// # Errors
    /// `Corruption` if some of them do not exist.
    #[inline]
    pub fn words(&self, at: Place, bytes: usize) -> Result<&[Word]> {
        match self.table.words(at, bytes.div_ceil(8)) {
            Some(words) if at >= FIRST_PLACE => {
                #[cfg(feature = "paper")]
                self.delay(at, bytes);
                Ok(words)
            }
            _ => Err(self.out_of_bounds(at, bytes)),
        }
    }

    /// As [`words`](Self::words), for prefetches and partial reads: the latency model of the feature `paper` does not count
    /// them.
    ///
    /// # Errors
    /// As [`words`](Self::words).
    #[inline]
    pub fn words_uncounted(&self, at: Place, bytes: usize) -> Result<&[Word]> {
        let words = self.table.words(at, bytes.div_ceil(8));
        words.filter(|_| at >= FIRST_PLACE).ok_or_else(|| self.out_of_bounds(at, bytes))
    }

    /// Reports a read of the `bytes` bytes from `at` on to the [latency model](LatencyModel), if there is one; it delays the
    /// call.
    #[cfg(feature = "paper")]
    #[inline]
    pub fn note_read(&self, at: Place, bytes: usize) {
        self.delay(at, bytes);
    }

    /// Prefetches the cache lines of the `bytes` bytes from `at` on, so that they are loaded concurrently. No effect for an
    /// offset that does not exist.
    #[inline]
    pub fn prefetch(&self, at: Place, bytes: usize) {
        if let Some(words) = self.table.words(at, bytes.div_ceil(8)) {
            ExtentTable::prefetch(words);
        }
    }

    /// As [`prefetch`](Self::prefetch), the last line first, for backward reads.
    #[inline]
    pub fn prefetch_backward(&self, at: Place, bytes: usize) {
        if let Some(words) = self.table.words(at, bytes.div_ceil(8)) {
            ExtentTable::prefetch_backward(words);
        }
    }

    /// As [`prefetch`](Self::prefetch), for resolved words.
    #[inline(always)]
    pub fn prefetch_words(words: &[Word]) {
        ExtentTable::prefetch(words);
    }

    /// Waits for the delay of the latency model, if there is one.
    #[cfg(feature = "paper")]
    #[inline]
    fn delay(&self, at: Place, bytes: usize) {
        if let Some(latency) = &self.latency {
            latency.read(at, bytes);
        }
    }

    /// Appends `len` bytes from `at` on to `out`. `at` need not be aligned.
    ///
    /// # Errors
    /// `Corruption` if some of them do not exist; then `out` is unchanged.
    pub fn read(&self, at: Place, len: usize, out: &mut Vec<u8>) -> Result<()> {
        let (words, shift) = self.spanning(at, len)?;
        out.reserve(len + 8);
        let end = out.len() + len;
        let mut words = words.iter().map(Word::get);
        if shift == 0 {
            words.for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        } else {
            let mut low = words.next().unwrap_or(0);
            for high in words {
                out.extend_from_slice(&((low >> shift) | (high << (64 - shift))).to_le_bytes());
                low = high;
            }
            out.extend_from_slice(&(low >> shift).to_le_bytes());
        }
        out.truncate(end);
        Ok(())
    }

    /// Compares the `len` bytes from `at` on with `with` lexicographically, without a copy. `at` need not be aligned.
    ///
    /// # Errors
    /// `Corruption` if some of the bytes do not exist.
    pub fn compare(&self, at: Place, len: usize, with: &[u8]) -> Result<Order> {
        let (words, shift) = self.spanning(at, len)?;
        let common = with.get(..len).unwrap_or(with);
        let mut chunks = common.chunks_exact(8);
        let mut index = 0;
        for chunk in &mut chunks {
            let theirs = u64::from_be_bytes(chunk.try_into().unwrap_or_default());
            match shifted(words, index, shift).swap_bytes().cmp(&theirs) {
                Order::Equal => index += 1,
                order => return Ok(order),
            }
        }
        let rest = chunks.remainder();
        if !rest.is_empty() {
            let mut padded = [0; 8];
            padded[..rest.len()].copy_from_slice(rest);
            let ours = shifted(words, index, shift).swap_bytes() & (u64::MAX << (64 - 8 * rest.len()));
            match ours.cmp(&u64::from_be_bytes(padded)) {
                Order::Equal => {}
                order => return Ok(order),
            }
        }
        Ok(len.cmp(&with.len()))
    }

    /// The words of the `len` bytes from `at` on, and the number of bits of the first word before `at`.
    #[inline]
    fn spanning(&self, at: Place, len: usize) -> Result<(&[Word], u32)> {
        let before = (at % 8) as usize;
        let words = self.words(at - before as Place, len.saturating_add(before))?;
        Ok((words, 8 * before as u32))
    }

    /// The value of a root, with acquire order; 0 if it was never set.
    ///
    /// # Errors
    /// `InvalidInput` for a slot at or above [`ROOT_SLOTS`].
    pub fn root(&self, slot: usize) -> Result<u64> {
        self.table.word(root_at(slot)?).map(Word::acquire).ok_or_else(|| self.out_of_bounds(0, 8))
    }

    /// The number of openings for writing, including the first. A lock word or a mark of an earlier opening is void.
    pub fn open_count(&self) -> u64 {
        self.own(OPEN_COUNT_AT)
    }

    /// The id of the region from its creation.
    pub fn id(&self) -> u64 {
        self.own(ID_AT)
    }

    /// The name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A pin: while it exists, memory freed after this call is not reused.
    #[inline]
    pub fn pin(&self) -> Pin<'_> {
        Pin::new(&self.pins)
    }

    /// As [`pin`](Self::pin), without a borrow of the region, for long-lived cursors.
    pub fn pin_owned(&self) -> OwnedPin {
        OwnedPin::new(&self.pins)
    }

    /// The current statistics.
    pub fn stats(&self) -> RegionStats {
        let space = self.space.lock();
        let begun = (0..self.table.len()).filter(|&extent| first_free_of(extent) <= space.next);
        let heads: u64 = begun.map(|extent| within_extent(first_free_of(extent)) as u64).sum();
        let (free, deferred) = (space.free.free_bytes(), space.free.deferred_bytes());
        RegionStats {
            reserved_bytes: (self.table.len() * EXTENT_BYTES) as u64,
            high_water_bytes: space.mark,
            allocated_bytes: space.next.saturating_sub(heads + free + deferred),
            free_bytes: free + space.mark.saturating_sub(space.next),
            deferred_bytes: deferred,
            refused_frees: space.refused_frees,
            dirty_pages: self.pages.len() as u64,
            persist_calls: self.persist_calls.load(Ordering::Relaxed),
            persisted_lines: self.persisted_lines.load(Ordering::Relaxed),
        }
    }

    /// Whether the used space is known. After a crash of a mapped region it is not: all space below the high-water mark counts as
    /// used until a [reclamation](Self::reclaim).
    pub fn is_free_space_known(&self) -> bool {
        self.space.lock().is_known
    }

    /// The instruction that writes lines back to persistent memory; `None` for regions that are not mapped.
    pub fn write_back(&self) -> Option<WriteBack> {
        match &self.backing {
            Backing::Mapped(file) => Some(file.write_back()),
            Backing::Memory | Backing::Simulated(_) => None,
        }
    }

    /// A word of the header page.
    pub(super) fn own(&self, at: Place) -> u64 {
        self.table.word(at).map_or(0, Word::get)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn out_of_bounds(&self, at: Place, bytes: usize) -> Error {
        let what = format!("{bytes} bytes at this place are not in the region, or not aligned");
        Error::corruption(&self.name, at, what)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn full(&self) -> Error {
        let limit = self.table.limit() as u64 * EXTENT_BYTES as u64;
        let message = format!("{}: the region is at its limit of {limit} bytes", self.name);
        Error::new(ErrorKind::NoSpace, message)
    }
}

/// The eight bytes from bit `shift` of the word `index` on. Bytes behind the last word are zeros.
#[inline]
fn shifted(words: &[Word], index: usize, shift: u32) -> u64 {
    let low = words.get(index).map_or(0, Word::get);
    if shift == 0 {
        return low;
    }
    let high = words.get(index + 1).map_or(0, Word::get);
    (low >> shift) | (high << (64 - shift))
}

/// The offset of a root.
pub(super) fn root_at(slot: usize) -> Result<Place> {
    if slot < ROOT_SLOTS {
        return Ok(ROOTS_AT + 8 * slot as Place);
    }
    Err(Error::invalid_input(format!("a region has {ROOT_SLOTS} roots; there is no root {slot}")))
}
