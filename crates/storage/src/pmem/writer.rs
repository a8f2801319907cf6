//! Writing to a region.

use std::result::Result as StdResult;

use bolide_base::{Error, Result};

use super::free_space::ChangedWord;
use super::layout::{
    EXTENT_BYTES, FIRST_PLACE, GRANULE_BYTES, MARK_AT, MAX_ALLOCATION_BYTES, PAGE_BYTES, Place, bitmap_at,
    extent_of, first_free_of, within_extent,
};
use super::region::{Region, Space, root_at};
use super::sync::{Ordering, RwLockReadGuard};
use super::word::Word;

impl Region {
    /// Leave to write. Many writers may be at work at once; a cut waits for all of them, and keeps new ones
    /// out for a moment. A thread must not ask for a second one while it holds one: it might wait for a
    /// cut that waits for it.
    pub fn writer(&self) -> RegionWriter<'_> {
        RegionWriter::new(self, self.gate.read())
    }

    /// Leave to write unless a cut is about to be fixed: for readers that would set a flag, and that can do
    /// without.
    pub fn try_writer(&self) -> Option<RegionWriter<'_>> {
        self.gate.try_read().map(|gate| RegionWriter::new(self, gate))
    }
}

/// Leave to write to a region; see [`Region::writer`].
///
/// Before its first write to a page after a cut began, a writer puts the page's old content aside for the
/// cut: this is part of every method here and cannot be forgotten.
#[derive(Debug)]
pub struct RegionWriter<'a> {
    region: &'a Region,
    /// The epoch of writes: it stays while the gate is held.
    epoch: u64,
    _gate: RwLockReadGuard<'a, ()>,
}

impl<'a> RegionWriter<'a> {
    pub(super) fn new(region: &'a Region, gate: RwLockReadGuard<'a, ()>) -> Self {
        Self { region, epoch: region.pages.epoch(), _gate: gate }
    }

    /// The region.
    pub fn region(&self) -> &'a Region {
        self.region
    }

    /// Stores a word, without an order among stores.
    ///
    /// # Errors
    /// `Corruption` unless `at` is the place of a word.
    #[inline]
    pub fn store(&self, at: Place, value: u64) -> Result<()> {
        self.word(at)?.0.store(value, Ordering::Relaxed);
        Ok(())
    }

    /// Stores a word; who loads it with acquire sees all that was stored before.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    #[inline]
    pub fn store_release(&self, at: Place, value: u64) -> Result<()> {
        self.word(at)?.0.store(value, Ordering::Release);
        Ok(())
    }

    /// Replaces a word if it is `old`. The inner result is that of the exchange: the old value, or the
    /// value that was found instead.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    #[inline]
    pub fn compare_exchange(&self, at: Place, old: u64, new: u64) -> Result<StdResult<u64, u64>> {
        Ok(self.word(at)?.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire))
    }

    /// Sets bits of a word and returns what it was.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    #[inline]
    pub fn fetch_or(&self, at: Place, bits: u64) -> Result<u64> {
        Ok(self.word(at)?.0.fetch_or(bits, Ordering::AcqRel))
    }

    /// Stores `bytes` from `at` on, a multiple of 8; the last word is filled up with zeros. For bytes that
    /// no reader can reach yet: they are stored without an order.
    ///
    /// # Errors
    /// `Corruption` unless all of the words are in one extent.
    pub fn write(&self, at: Place, bytes: &[u8]) -> Result<()> {
        let words = self.words(at, bytes.len())?;
        let mut chunks = bytes.chunks_exact(8);
        for (word, chunk) in words.iter().zip(&mut chunks) {
            word.0.store(u64::from_le_bytes(chunk.try_into().unwrap_or_default()), Ordering::Relaxed);
        }
        let rest = chunks.remainder();
        if let (false, Some(word)) = (rest.is_empty(), words.last()) {
            let mut padded = [0; 8];
            padded[..rest.len()].copy_from_slice(rest);
            word.0.store(u64::from_le_bytes(padded), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Sets an entry point, with release order.
    ///
    /// # Errors
    /// `InvalidInput` for a slot that does not exist.
    pub fn set_root(&self, slot: usize, value: u64) -> Result<()> {
        let at = root_at(slot)?;
        self.own_word(at)?.0.store(value, Ordering::Release);
        Ok(())
    }

    /// What was stored in these bytes shall be durable by the next [`fence`](Self::fence). Does nothing on
    /// a region in memory, whose cuts see to that.
    ///
    /// # Errors
    /// `Corruption` if there are no such bytes.
    #[inline]
    pub fn persist(&self, at: Place, bytes: usize) -> Result<()> {
        let _ = (at, bytes);
        Ok(())
    }

    /// Waits until all that this thread persisted is durable. Does nothing on a region in memory.
    #[inline]
    pub fn fence(&self) {}

    /// New space of `bytes` bytes: zeros, at a multiple of 256, in one extent.
    ///
    /// Space below 64 KiB comes in whole granules of 256 bytes. A few tens of nanoseconds, and the zeroing of
    /// space that was in use before.
    ///
    /// # Errors
    /// `InvalidInput` for no bytes, `LimitExceeded` over [`MAX_ALLOCATION_BYTES`]; `NoSpace` at the region's
    /// limit.
    pub fn allocate(&self, bytes: usize) -> Result<Place> {
        if bytes == 0 {
            return Err(Error::invalid_input("an allocation of no bytes"));
        }
        if bytes > MAX_ALLOCATION_BYTES {
            let (bytes, limit) = (bytes as u64, MAX_ALLOCATION_BYTES as u64);
            return Err(Error::limit_exceeded("the size of an allocation", bytes, limit));
        }
        let granules = bytes.div_ceil(GRANULE_BYTES);
        let mut changed = |word| self.note(word);
        let mut space = self.region.space.lock();
        let mut found = space.free.take(granules, &mut changed);
        if found.is_none() && space.free.has_waiting() {
            space.free.release(self.region.pins.oldest());
            found = space.free.take(granules, &mut changed);
        }
        let Some(at) = found else { return self.allocate_fresh(&mut space, granules) };
        drop(space);
        for word in self.words(at, granules * GRANULE_BYTES)? {
            word.0.store(0, Ordering::Relaxed);
        }
        Ok(at)
    }

    /// Space that was never handed out: zeros as it is.
    fn allocate_fresh(&self, space: &mut Space, granules: usize) -> Result<Place> {
        let bytes = (granules * GRANULE_BYTES) as Place;
        let left = EXTENT_BYTES as Place - within_extent(space.next) as Place;
        // At the very end of an extent `next` lies at the head of one that is not there yet.
        let at_end = extent_of(space.next) >= self.region.table.len();
        if at_end || left < bytes {
            let extent = if at_end { extent_of(space.next) } else { extent_of(space.next) + 1 };
            if extent >= self.region.table.len() {
                self.grow(space)?;
            }
            if !at_end {
                space.free.offer(space.next, left as usize / GRANULE_BYTES);
            }
            space.next = first_free_of(extent);
        }
        let at = space.next;
        space.next += bytes;
        self.raise_mark(space);
        space.free.mark_used(at, granules, &mut |word| self.note(word));
        Ok(at)
    }

    /// Adds an extent.
    pub(super) fn grow(&self, space: &mut Space) -> Result<()> {
        let region = self.region;
        if !region.table.grow(|index| region.extent_memory(index))? {
            return Err(region.full());
        }
        space.free.add_extent(&mut |word| self.note(word));
        Ok(())
    }

    /// Makes the mark cover what is handed out.
    fn raise_mark(&self, space: &mut Space) {
        space.mark = space.next;
        self.store_own(MARK_AT, space.mark);
    }

    /// Gives back space from [`allocate`](Self::allocate): `bytes` is what was asked for. It is handed out
    /// again once no pin lives that is older than this call. The caller has unlinked it before, under this
    /// same writer.
    ///
    /// A range that is not in use is left alone and counted in the statistics.
    pub fn free(&self, at: Place, bytes: usize) {
        let epoch = self.region.pins.retire();
        let mut space = self.region.space.lock();
        let granules = bytes.div_ceil(GRANULE_BYTES);
        let aligned = at.is_multiple_of(GRANULE_BYTES as Place);
        if !aligned || !space.free.free(at, granules, epoch, &mut |word| self.note(word)) {
            space.refused_frees += 1;
        }
    }

    /// Writes down a word of a bitmap, where the backing wants that at once.
    fn note(&self, changed: ChangedWord) {
        if self.region.pages.takes_cuts() {
            self.store_own(bitmap_at(changed.extent) + 8 * changed.index as Place, changed.value);
        }
    }

    /// Stores a word of the region's own.
    pub(super) fn store_own(&self, at: Place, value: u64) {
        if let Ok(word) = self.own_word(at) {
            word.0.store(value, Ordering::Relaxed);
        }
    }

    /// A word to be written.
    #[inline]
    fn word(&self, at: Place) -> Result<&'a Word> {
        if at < FIRST_PLACE {
            return Err(self.region.outside(at, 8));
        }
        self.own_word(at)
    }

    /// The same, the region's own words included.
    #[inline]
    fn own_word(&self, at: Place) -> Result<&'a Word> {
        let region = self.region;
        let word = region.table.word(at).ok_or_else(|| region.outside(at, 8))?;
        self.touch(at);
        Ok(word)
    }

    /// Words to be written.
    fn words(&self, at: Place, bytes: usize) -> Result<&'a [Word]> {
        let words = self.region.words(at, bytes)?;
        let mut page = at;
        while page < at + bytes as Place {
            self.touch(page);
            page = (page / PAGE_BYTES as Place + 1) * PAGE_BYTES as Place;
        }
        Ok(words)
    }

    /// Makes sure that the page of `at` may be written.
    #[inline]
    fn touch(&self, at: Place) {
        let table = &self.region.table;
        if table.epoch(at).is_some_and(|epoch| epoch.load(Ordering::Acquire) != self.epoch) {
            self.region.pages.first_write(table, at);
        }
    }
}
