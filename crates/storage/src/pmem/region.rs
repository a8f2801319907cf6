//! A region: byte-addressable memory of 64-bit words, read without locks.

use std::cmp::Ordering as Order;
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, Result};

use super::dirty::DirtyPages;
use super::extent::{ExtentMemory, ExtentTable, HeapExtent};
use super::free_space::FreeSpace;
use super::growth::Growth;
use super::latency::{Latency, LatencyModel};
use super::layout::{
    EXTENT_BYTES, FIRST_PLACE, FORMAT_VERSION, ID_AT, MAGIC, MAGIC_AT, MARK_AT, OPEN_COUNT_AT, PAGE_BYTES,
    Place, ROOT_SLOTS, ROOTS_AT, STATE_AT, VERSION_AT, first_free_of, within_extent,
};
use super::line_model::LineModel;
use super::mapped::MappedFile;
use super::pins::{OwnedPin, Pin, Pins};
use super::sync::{AtomicU64, Mutex, Ordering, RwLock};
use super::word::Word;
use super::write_back::WriteBack;

/// How a region is made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RegionOptions {
    /// The region's name in messages. Default: `region`.
    pub name: String,
    /// A number that tells regions apart; kept with the region and checked when it is read again.
    /// Default: 0.
    pub id: u64,
    /// How large the region may grow, in bytes, rounded up to whole extents. Default: 64 GiB. The table of
    /// extents takes 16 bytes for each 4 MiB of it.
    pub limit_bytes: u64,
    /// Delays that make memory as slow as another kind. Default: none.
    pub latency: Option<LatencyModel>,
}

impl Default for RegionOptions {
    fn default() -> Self {
        Self {
            name: "region".into(),
            id: 0,
            limit_bytes: if cfg!(miri) { 32 << 20 } else { 64 << 30 },
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

    /// Sets how large the region may grow, in bytes.
    #[must_use]
    pub fn limit_bytes(mut self, bytes: u64) -> Self {
        self.limit_bytes = bytes;
        self
    }

    /// Sets delays.
    #[must_use]
    pub fn latency(mut self, model: LatencyModel) -> Self {
        self.latency = Some(model);
        self
    }
}

/// Figures of a region at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegionStats {
    /// Bytes of address space that the region has taken, whole extents.
    pub reserved_bytes: u64,
    /// Bytes below which everything was handed out at some time.
    pub high_water_bytes: u64,
    /// Bytes handed out and not freed.
    pub allocated_bytes: u64,
    /// Bytes that can be handed out without growing.
    pub free_bytes: u64,
    /// Bytes freed that wait until no reader can look at them any more.
    pub deferred_bytes: u64,
    /// Frees that were refused because their range was not in use: damage, or a mistake of the owner.
    pub refused_frees: u64,
    /// Pages that the next cut would write.
    pub dirty_pages: u64,
    /// Calls of `RegionWriter::persist` on backings where it does something.
    pub persist_calls: u64,
    /// Lines of 64 bytes that those calls covered.
    pub persisted_lines: u64,
}

/// Where a region's words lie.
#[derive(Debug)]
pub(super) enum Backing {
    /// In memory; cuts make them durable.
    Memory,
    /// In memory, with a model of the lines that are not durable yet.
    Simulated(LineModel),
    /// In a mapped file.
    Mapped(MappedFile),
}

/// What changes with allocations.
#[derive(Debug)]
pub(super) struct AllocatorState {
    pub(super) free: FreeSpace,
    /// Where the next fresh granule lies.
    pub(super) next: Place,
    /// No byte at or above it was ever handed out: the header's word.
    pub(super) mark: Place,
    pub(super) refused_frees: u64,
    /// The bitmaps that were saved at a clean close are true.
    pub(super) saved: bool,
    /// No space counts as in use without being it, as far as is known.
    pub(super) is_known: bool,
    /// What was handed out since a reclamation began, while one runs.
    pub(super) since: Option<Vec<(Place, usize)>>,
}

impl AllocatorState {
    /// Takes note of an allocation for the reclamation that runs, if one does.
    pub(super) fn record_allocation(&mut self, at: Place, granules: usize) {
        if let Some(since) = &mut self.since {
            since.push((at, granules));
        }
    }
}

/// Byte-addressable memory of 64-bit words, in extents of 4 MiB, that many threads read without locks while
/// others write.
///
/// * Reading: any thread, at any time. A place out_of_bounds of the region is an error of kind
///   [`ErrorKind::Corruption`], never a panic: places come from stored bytes.
/// * Writing: through [`writer`](Self::writer). One logical change, with its allocations and frees, belongs
///   under one writer: then no cut sees half of it.
/// * ReclamationGuard: readers of a structure that frees memory hold a [`pin`](Self::pin).
///
/// Every access is one of an atomic word, so there are no data races whatever callers do.
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
    pub(super) latency: Option<Latency>,
    pub(super) gate: RwLock<()>,
    pub(super) pins: Arc<Pins>,
    pub(super) space: Mutex<AllocatorState>,
    pub(super) growth: Growth,
    pub(super) persist_calls: AtomicU64,
    pub(super) persisted_lines: AtomicU64,
    name: String,
}

impl Region {
    /// A new, empty region in memory. What is to survive is written down by cuts.
    ///
    /// # Errors
    /// `NoSpace` if the system refuses 4 MiB of memory.
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
        let writer = self.writer();
        writer.grow(&mut self.space.lock())?;
        writer.store_own(VERSION_AT, FORMAT_VERSION);
        writer.store_own(ID_AT, id);
        writer.store_own(OPEN_COUNT_AT, 1);
        writer.store_own(STATE_AT, u64::from(self.pages.supports_checkpoints()));
        writer.store_own(MARK_AT, first_free_of(0));
        writer.persist(0, PAGE_BYTES)?;
        writer.fence();
        // Last: a region without it was never finished.
        writer.store_own_durably(MAGIC_AT, MAGIC)
    }

    /// A region that has no memory yet.
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
            since: None,
        };
        Self {
            table: ExtentTable::new(limit),
            pages: DirtyPages::new(supports_checkpoints),
            backing,
            latency: options.latency.map(Latency::new),
            gate: RwLock::new(()),
            pins: Arc::new(Pins::new()),
            space: Mutex::new(space),
            growth: Growth::default(),
            persist_calls: AtomicU64::new(0),
            persisted_lines: AtomicU64::new(0),
            name: options.name.clone(),
        }
    }

    /// Makes memory ready for as much as the region has grown since the last call, and one extent of 4 MiB at least: in
    /// huge pages where the system has them. For background threads: it takes milliseconds for each extent. Does nothing for
    /// small regions, for those in files, and where memory is short.
    pub fn prepare_growth(&self) {
        if matches!(self.backing, Backing::Memory) {
            self.growth.prepare(self.table.len());
        }
    }

    /// Memory for the extent `index`.
    pub(super) fn extent_memory(&self, index: usize) -> Result<Box<dyn ExtentMemory>> {
        match &self.backing {
            Backing::Memory | Backing::Simulated(_) => match self.growth.take() {
                Some(ready) => Ok(Box::new(ready)),
                None => Ok(Box::new(HeapExtent::new()?)),
            },
            Backing::Mapped(file) => file.extent(index),
        }
    }

    /// The word at `at`, a multiple of 8, without an order among loads.
    ///
    /// # Errors
    /// `Corruption` if there is no such word.
    #[inline]
    pub fn load(&self, at: Place) -> Result<u64> {
        self.word(at).map(Word::get)
    }

    /// The word at `at`; all that its writer stored before with or ahead of a release is seen afterwards.
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
                self.delay(at, 8);
                Ok(word)
            }
            _ => Err(self.out_of_bounds(at, 8)),
        }
    }

    /// The words of the `bytes` bytes from `at` on, a multiple of 8, rounded up to a whole word: one
    /// resolution for a whole node or page. They must lie in one extent, as every allocation does.
    ///
    /// # Errors
    /// `Corruption` if some of them are not there.
    #[inline]
    pub fn words(&self, at: Place, bytes: usize) -> Result<&[Word]> {
        match self.table.words(at, bytes.div_ceil(8)) {
            Some(words) if at >= FIRST_PLACE => {
                self.delay(at, bytes);
                Ok(words)
            }
            _ => Err(self.out_of_bounds(at, bytes)),
        }
    }

    /// As [`words`](Self::words), for who reads a part of them alone: a [latency model](LatencyModel) does not count
    /// it, but for what [`note_read`](Self::note_read) is told.
    ///
    /// # Errors
    /// As [`words`](Self::words).
    #[inline]
    pub fn words_uncounted(&self, at: Place, bytes: usize) -> Result<&[Word]> {
        let words = self.table.words(at, bytes.div_ceil(8));
        words.filter(|_| at >= FIRST_PLACE).ok_or_else(|| self.out_of_bounds(at, bytes))
    }

    /// The `bytes` bytes from `at` on are read now: where there is a [latency model](LatencyModel), waits as it says.
    #[inline]
    pub fn note_read(&self, at: Place, bytes: usize) {
        self.delay(at, bytes);
    }

    /// Asks the processor for the cache lines of the `bytes` bytes from `at` on, which will be read soon: such lines
    /// come from memory together. Reads nothing, and does nothing for a place that is not there.
    #[inline]
    pub fn prefetch(&self, at: Place, bytes: usize) {
        if let Some(words) = self.table.words(at, bytes.div_ceil(8)) {
            ExtentTable::prefetch(words);
        }
    }

    /// As [`prefetch`](Self::prefetch), but the last line first: for who begins to read there.
    #[inline]
    pub fn prefetch_backward(&self, at: Place, bytes: usize) {
        if let Some(words) = self.table.words(at, bytes.div_ceil(8)) {
            ExtentTable::prefetch_backward(words);
        }
    }

    /// [`prefetch`](Self::prefetch) for words that were looked up already.
    #[inline(always)]
    pub fn prefetch_words(words: &[Word]) {
        ExtentTable::prefetch(words);
    }

    /// Waits as the latency model says, if there is one.
    #[inline]
    fn delay(&self, at: Place, bytes: usize) {
        if let Some(latency) = &self.latency {
            latency.read(at, bytes);
        }
    }

    /// Appends `len` bytes from `at` on to `out`. `at` need not be aligned.
    ///
    /// # Errors
    /// `Corruption` if some of them are not there; `out` is as it was then.
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

    /// Compares the `len` bytes from `at` on with `with`, byte by byte, a prefix before what it begins.
    /// Nothing is copied. `at` need not be aligned.
    ///
    /// # Errors
    /// `Corruption` if some of the bytes are not there.
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

    /// The words over which `len` bytes from `at` on lie, and how many bits of the first come before them.
    #[inline]
    fn spanning(&self, at: Place, len: usize) -> Result<(&[Word], u32)> {
        let before = (at % 8) as usize;
        let words = self.words(at - before as Place, len.saturating_add(before))?;
        Ok((words, 8 * before as u32))
    }

    /// The word of an entry point, with acquire order; 0 if it was never set.
    ///
    /// # Errors
    /// `InvalidInput` for a slot at or above [`ROOT_SLOTS`].
    pub fn root(&self, slot: usize) -> Result<u64> {
        self.table.word(root_at(slot)?).map(Word::acquire).ok_or_else(|| self.out_of_bounds(0, 8))
    }

    /// How often the region was opened for writing, the first time counted. What a lock word or a mark says
    /// that was left by an earlier opening, it says no more.
    pub fn open_count(&self) -> u64 {
        self.own(OPEN_COUNT_AT)
    }

    /// The id given when the region was made.
    pub fn id(&self) -> u64 {
        self.own(ID_AT)
    }

    /// The name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// While the pin lives, nothing that is freed after this call is handed out again.
    #[inline]
    pub fn pin(&self) -> Pin<'_> {
        Pin::new(&self.pins)
    }

    /// The same without a borrow of the region, for cursors that are kept.
    pub fn pin_owned(&self) -> OwnedPin {
        OwnedPin::new(&self.pins)
    }

    /// Figures of this moment.
    pub fn stats(&self) -> RegionStats {
        let space = self.space.lock();
        let begun = (0..self.table.len()).filter(|&extent| first_free_of(extent) <= space.next);
        let heads: u64 = begun.map(|extent| within_extent(first_free_of(extent)) as u64).sum();
        let (free, waiting) = (space.free.free_bytes(), space.free.deferred_bytes());
        RegionStats {
            reserved_bytes: (self.table.len() * EXTENT_BYTES) as u64,
            high_water_bytes: space.mark,
            allocated_bytes: space.next.saturating_sub(heads + free + waiting),
            free_bytes: free + space.mark.saturating_sub(space.next),
            deferred_bytes: waiting,
            refused_frees: space.refused_frees,
            dirty_pages: self.pages.len() as u64,
            persist_calls: self.persist_calls.load(Ordering::Relaxed),
            persisted_lines: self.persisted_lines.load(Ordering::Relaxed),
        }
    }

    /// Whether the region knows which of its space is in use. After a crash a region that is durable by itself does not:
    /// all space below the mark counts as in use, until a [reclamation](Self::reclaim).
    pub fn is_free_space_known(&self) -> bool {
        self.space.lock().is_known
    }

    /// How lines are written back to persistent memory; `None` for regions that are not mapped.
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

/// The eight bytes that begin `shift` bits into the word `index`. Bytes behind the last word are zeros.
#[inline]
fn shifted(words: &[Word], index: usize, shift: u32) -> u64 {
    let low = words.get(index).map_or(0, Word::get);
    if shift == 0 {
        return low;
    }
    let high = words.get(index + 1).map_or(0, Word::get);
    (low >> shift) | (high << (64 - shift))
}

/// The place of a root.
pub(super) fn root_at(slot: usize) -> Result<Place> {
    if slot < ROOT_SLOTS {
        return Ok(ROOTS_AT + 8 * slot as Place);
    }
    Err(Error::invalid_input(format!("a region has {ROOT_SLOTS} roots; there is no root {slot}")))
}
