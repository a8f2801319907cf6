//! Handing out space of a region, and taking it back.

use bolide_base::{Error, Result};

use super::free_space::ChangedWord;
use super::layout::{
    EXTENT_BYTES, GRANULE_BYTES, MARK_AT, MAX_ALLOCATION_BYTES, PAGE_BYTES, Place, STATE_AT, bitmap_at,
    extent_of, first_free_of, within_extent,
};
use super::region::Space;
use super::writer::RegionWriter;

/// Allocations for which [`RegionWriter::reserve`] speaks, in bytes at most.
const SMALL_BYTES: usize = if cfg!(bolide_shuttle) { 4 << 10 } else { 64 << 10 };
/// How far the mark moves at a time where moving it costs a fence, in bytes.
const MARK_STEP_BYTES: Place = 64 << 10;

impl RegionWriter<'_> {
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
        let mut space = self.region().space.lock();
        self.distrust_saved(&mut space)?;
        let mut found = space.free.take(granules, &mut changed);
        if found.is_none() && space.free.has_waiting() {
            space.free.release(self.region().pins.oldest());
            found = space.free.take(granules, &mut changed);
        }
        let Some(at) = found else { return self.allocate_fresh(&mut space, granules) };
        space.allocated_since(at, granules);
        drop(space);
        self.zero(at, granules * GRANULE_BYTES)?;
        Ok(at)
    }

    /// Space that was never handed out: zeros as it is.
    fn allocate_fresh(&self, space: &mut Space, granules: usize) -> Result<Place> {
        let bytes = (granules * GRANULE_BYTES) as Place;
        let extent = extent_of(space.next);
        // At the end of an extent `next` is where the following one begins, whether or not that is there.
        let at_end = space.next < first_free_of(extent);
        let left = EXTENT_BYTES as Place - within_extent(space.next) as Place;
        if at_end || left < bytes {
            let extent = if at_end { extent } else { extent + 1 };
            if extent >= self.region().table.len() {
                self.grow(space)?;
            }
            if !at_end {
                space.free.offer(space.next, left as usize / GRANULE_BYTES);
            }
            space.next = first_free_of(extent);
        }
        let at = space.next;
        space.next += bytes;
        self.raise_mark(space)?;
        space.free.mark_used(at, granules, &mut |word| self.note(word));
        space.allocated_since(at, granules);
        Ok(at)
    }

    /// Makes sure that allocations of `bytes` bytes together succeed, whatever their sizes up to 64 KiB: extents are
    /// added now, where a full disk or the limit can still be told.
    ///
    /// It counts on fresh space alone, so it is safe and may ask for more than will be needed.
    ///
    /// # Errors
    /// `NoSpace` at the region's limit, or from the file or the system that gives the memory.
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        // Each extent may leave a run at its end that is too short, and has its head.
        let usable = (EXTENT_BYTES - 2 * PAGE_BYTES - SMALL_BYTES) as u64;
        let mut space = self.region().space.lock();
        loop {
            let whole = self.region().table.len().saturating_sub(extent_of(space.next) + 1) as u64;
            let left = (EXTENT_BYTES - within_extent(space.next)).saturating_sub(SMALL_BYTES + 2 * PAGE_BYTES)
                as u64;
            let here = if extent_of(space.next) < self.region().table.len() { left } else { 0 };
            if here + whole * usable >= bytes {
                return Ok(());
            }
            self.grow(&mut space)?;
        }
    }

    /// Adds an extent.
    pub(super) fn grow(&self, space: &mut Space) -> Result<()> {
        let region = self.region();
        if !region.table.grow(|index| region.extent_memory(index))? {
            return Err(region.full());
        }
        space.free.add_extent(&mut |word| self.note(word));
        Ok(())
    }

    /// Makes the mark cover what is handed out, durably where it has to be.
    fn raise_mark(&self, space: &mut Space) -> Result<()> {
        if self.region().pages.takes_cuts() {
            space.mark = space.next;
            self.store_own(MARK_AT, space.mark);
        } else if space.next > space.mark {
            // Ahead, since it costs a fence. No further than the extent, which is all that is there.
            let extent_end = (space.next - 1).next_multiple_of(EXTENT_BYTES as Place);
            space.mark = space.next.next_multiple_of(MARK_STEP_BYTES).min(extent_end);
            self.store_own_durably(MARK_AT, space.mark)?;
        }
        Ok(())
    }

    /// What was saved of the free space at a clean close is true no more.
    pub(super) fn distrust_saved(&self, space: &mut Space) -> Result<()> {
        if space.saved && !self.region().pages.takes_cuts() {
            self.store_own_durably(STATE_AT, 0)?;
        }
        space.saved = false;
        Ok(())
    }

    /// Gives back space from [`allocate`](Self::allocate): `bytes` is what was asked for. It is handed out
    /// again once no pin lives that is older than this call. The caller has unlinked it before, under this
    /// same writer.
    ///
    /// A range that is not in use is left alone and counted in the statistics.
    pub fn free(&self, at: Place, bytes: usize) {
        let epoch = self.region().pins.retire();
        let mut space = self.region().space.lock();
        let granules = bytes.div_ceil(GRANULE_BYTES);
        // Without the note that the saved free space is stale, the range stays in use.
        let noted = self.distrust_saved(&mut space).is_ok();
        let aligned = at.is_multiple_of(GRANULE_BYTES as Place);
        if !noted || !aligned || !space.free.free(at, granules, epoch, &mut |word| self.note(word)) {
            space.refused_frees += 1;
        }
    }

    /// Writes down a word of a bitmap, where the backing wants that at once.
    pub(super) fn note(&self, changed: ChangedWord) {
        if self.region().pages.takes_cuts() {
            self.store_own(bitmap_at(changed.extent) + 8 * changed.index as Place, changed.value);
        }
    }
}
