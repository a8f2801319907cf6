//! Writes to a region.

use std::result::Result as StdResult;

use bolide_base::Result;

use super::layout::{FIRST_PLACE, LINE_BYTES, PAGE_BYTES, Place};
use super::region::{Backing, Region, root_at};
use super::sync::{AtomicU64, Ordering, RwLockReadGuard, RwLockWriteGuard};
use super::word::Word;
use super::write_back;

impl Region {
    /// A writer. Several writers may be active at once; the start of a checkpoint waits for all of them and blocks new ones for a
    /// short time. A thread must not create a second writer while it has one: it could wait for a checkpoint that waits for it.
    pub fn writer(&self) -> RegionWriter<'_> {
        RegionWriter::new(self, self.gate.read())
    }

    /// A writer, or `None` while a checkpoint starts: for readers that set an optional flag.
    pub fn try_writer(&self) -> Option<RegionWriter<'_>> {
        self.gate.try_read().map(|gate| RegionWriter::new(self, gate))
    }

    /// Calls `check` without active writers: waits for all writers, and blocks new ones until `check` returns. For checks that
    /// compare parts of a structure. The calling thread must not hold or create a [`writer`](Self::writer).
    pub fn with_writers_blocked<T>(&self, check: impl FnOnce() -> T) -> T {
        let _gate = self.gate.write();
        check()
    }

    /// Calls `change` with the only active writer: waits for all others, and blocks new ones until `change` returns. For changes of
    /// which other writers must see all or nothing. The calling thread must not hold or create another [`writer`](Self::writer).
    ///
    /// ```
    /// use bolide_storage::pmem::{Region, RegionOptions};
    /// let region = Region::in_memory(RegionOptions::new())?;
    /// region.with_only_writer(|writer| writer.set_root(0, 7))?;
    /// assert_eq!(region.root(0)?, 7);
    /// # Ok::<(), bolide_base::Error>(())
    /// ```
    pub fn with_only_writer<T>(&self, change: impl FnOnce(&RegionWriter<'_>) -> T) -> T {
        let gate = self.gate.write();
        change(&RegionWriter::alone(self, &gate))
    }
}

/// A writer of a region; see [`Region::writer`].
///
/// Before its first write to a page since the start of a checkpoint, a writer copies the page for the checkpoint. Every method
/// does this.
#[derive(Debug)]
pub struct RegionWriter<'a> {
    region: &'a Region,
    /// The epoch of writes, constant while the gate is held.
    epoch: u64,
    _gate: Option<RwLockReadGuard<'a, ()>>,
}

impl<'a> RegionWriter<'a> {
    pub(super) fn new(region: &'a Region, gate: RwLockReadGuard<'a, ()>) -> Self {
        Self { region, epoch: region.pages.epoch(), _gate: Some(gate) }
    }

    /// A writer for the holder of the exclusive gate.
    pub(super) fn alone(region: &'a Region, _exclusive: &RwLockWriteGuard<'a, ()>) -> Self {
        Self { region, epoch: region.pages.epoch(), _gate: None }
    }

    /// The region.
    pub fn region(&self) -> &'a Region {
        self.region
    }

    /// Stores a word, relaxed.
    ///
    /// # Errors
    /// `Corruption` unless `at` is the offset of a word.
    #[inline]
    pub fn store(&self, at: Place, value: u64) -> Result<()> {
        let word = self.word(at)?;
        self.change(at, word, |word| word.store(value, Ordering::Relaxed));
        Ok(())
    }

    /// Stores a word, with release order.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    #[inline]
    pub fn store_release(&self, at: Place, value: u64) -> Result<()> {
        let word = self.word(at)?;
        self.change(at, word, |word| word.store(value, Ordering::Release));
        Ok(())
    }

    /// Replaces a word if it is `old`. The inner result is that of the exchange: the old value, or the different current value.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    #[inline]
    pub fn compare_exchange(&self, at: Place, old: u64, new: u64) -> Result<StdResult<u64, u64>> {
        let word = self.word(at)?;
        Ok(self.change(at, word, |word| word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)))
    }

    /// Sets bits of a word; returns its previous value.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    #[inline]
    pub fn fetch_or(&self, at: Place, bits: u64) -> Result<u64> {
        let word = self.word(at)?;
        Ok(self.change(at, word, |word| word.fetch_or(bits, Ordering::AcqRel)))
    }

    /// Stores `bytes` from `at` on, a multiple of 8, relaxed; the last word is padded with zeros. For bytes that no reader can
    /// reach yet.
    ///
    /// # Errors
    /// `Corruption` unless all of the words are in one extent.
    pub fn write(&self, at: Place, bytes: &[u8]) -> Result<()> {
        let words = self.words(at, bytes.len())?;
        let mut chunks = bytes.chunks_exact(8);
        for ((word, chunk), at) in words.iter().zip(&mut chunks).zip((at..).step_by(8)) {
            let value = u64::from_le_bytes(chunk.try_into().unwrap_or_default());
            self.change(at, word, |word| word.store(value, Ordering::Relaxed));
        }
        let rest = chunks.remainder();
        if let (false, Some(word)) = (rest.is_empty(), words.last()) {
            let mut padded = [0; 8];
            padded[..rest.len()].copy_from_slice(rest);
            let at = at + (bytes.len() - rest.len()) as Place;
            self.change(at, word, |word| word.store(u64::from_le_bytes(padded), Ordering::Relaxed));
        }
        Ok(())
    }

    /// Sets a root, with release order, and persists it: durable after the next [`fence`](Self::fence).
    ///
    /// # Errors
    /// `InvalidInput` for a slot that does not exist.
    pub fn set_root(&self, slot: usize, value: u64) -> Result<()> {
        let at = root_at(slot)?;
        let word = self.own_word(at)?;
        self.change(at, word, |word| word.store(value, Ordering::Release));
        self.persist(at, 8)
    }

    /// Persists stored bytes: they are durable after the next [`fence`](Self::fence) of this thread. No effect on a region in
    /// memory, whose checkpoints make it durable.
    ///
    /// # Errors
    /// `Corruption` if some of the bytes do not exist.
    #[inline]
    pub fn persist(&self, at: Place, bytes: usize) -> Result<()> {
        let region = self.region;
        #[cfg(feature = "paper")]
        if region.latency.is_some() {
            return self.persist_lines(at, bytes);
        }
        match &region.backing {
            Backing::Memory => Ok(()),
            _ => self.persist_lines(at, bytes),
        }
    }

    #[inline(never)]
    fn persist_lines(&self, at: Place, bytes: usize) -> Result<()> {
        let region = self.region;
        let first = at - at % LINE_BYTES as Place;
        let lines = (at.saturating_add(bytes as Place).saturating_sub(first)).div_ceil(LINE_BYTES as Place);
        let words = region.table.words(first, lines as usize * LINE_BYTES / 8);
        let words = words.ok_or_else(|| region.out_of_bounds(at, bytes))?;
        region.persist_calls.fetch_add(1, Ordering::Relaxed);
        region.persisted_lines.fetch_add(lines, Ordering::Relaxed);
        #[cfg(feature = "paper")]
        if let Some(latency) = &region.latency {
            latency.written(at, bytes);
        }
        match &region.backing {
            Backing::Memory => Ok(()),
            Backing::Simulated(model) => {
                model.persist(first, lines);
                Ok(())
            }
            Backing::Mapped(file) => {
                file.write_back().lines(words).map_err(|error| file.failed("write back", error))
            }
        }
    }

    /// Waits until all persisted bytes of this thread are durable. No effect on a region in memory.
    #[inline]
    pub fn fence(&self) {
        match &self.region.backing {
            Backing::Memory => {}
            Backing::Simulated(model) => model.fence(),
            Backing::Mapped(_) => write_back::fence(),
        }
    }

    /// Stores a word, including those of the region's metadata.
    pub(super) fn store_own(&self, at: Place, value: u64) {
        if let Ok(word) = self.own_word(at) {
            self.change(at, word, |word| word.store(value, Ordering::Relaxed));
        }
    }

    /// As [`store_own`](Self::store_own), durable on return.
    pub(super) fn store_own_durably(&self, at: Place, value: u64) -> Result<()> {
        self.store_own(at, value);
        self.persist(at, 8)?;
        self.fence();
        Ok(())
    }

    /// Changes the word at `at`, through the line model of a simulated region.
    #[inline]
    fn change<T>(&self, at: Place, word: &Word, change: impl FnOnce(&AtomicU64) -> T) -> T {
        match &self.region.backing {
            Backing::Simulated(model) => model.change(&self.region.table, at, || change(&word.0)),
            _ => change(&word.0),
        }
    }

    /// A word for a write.
    #[inline]
    fn word(&self, at: Place) -> Result<&'a Word> {
        if at < FIRST_PLACE {
            return Err(self.region.out_of_bounds(at, 8));
        }
        self.own_word(at)
    }

    /// As [`word`](Self::word), including the region's metadata.
    #[inline]
    fn own_word(&self, at: Place) -> Result<&'a Word> {
        let region = self.region;
        let word = region.table.word(at).ok_or_else(|| region.out_of_bounds(at, 8))?;
        self.prepare_page(at);
        Ok(word)
    }

    /// Stores zeros and persists them.
    pub(super) fn zero(&self, at: Place, bytes: usize) -> Result<()> {
        for (word, at) in self.words(at, bytes)?.iter().zip((at..).step_by(8)) {
            self.change(at, word, |word| word.store(0, Ordering::Relaxed));
        }
        self.persist(at, bytes)
    }

    /// Words for a write.
    fn words(&self, at: Place, bytes: usize) -> Result<&'a [Word]> {
        let words = self.region.words(at, bytes)?;
        let mut page = at;
        while page < at + bytes as Place {
            self.prepare_page(page);
            page = (page / PAGE_BYTES as Place + 1) * PAGE_BYTES as Place;
        }
        Ok(words)
    }

    /// Prepares the page of `at` for a write.
    #[inline]
    fn prepare_page(&self, at: Place) {
        let table = &self.region.table;
        if table.epoch(at).is_some_and(|epoch| epoch.load(Ordering::Acquire) != self.epoch) {
            self.region.pages.first_write(table, at);
        }
    }
}
