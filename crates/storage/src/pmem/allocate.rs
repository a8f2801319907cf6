//! Allocation of space in a region.

use bolide_base::{Error, Result};

use super::free_space::ChangedWord;
use super::layout::{
    EXTENT_BYTES, GRANULE_BYTES, MARK_AT, MAX_ALLOCATION_BYTES, PAGE_BYTES, Place, STATE_AT, bitmap_at,
    extent_of, first_free_of, within_extent,
};
use super::memory_count::MemoryCount;
use super::region::AllocatorState;
use super::writer::RegionWriter;

/// The largest allocation that [`RegionWriter::reserve`] covers, in bytes.
const MAX_RESERVED_BYTES: usize = if cfg!(bolide_shuttle) { 4 << 10 } else { 64 << 10 };
/// The step of the high-water mark where raising it costs a fence, in bytes.
const HIGH_WATER_STEP_BYTES: Place = 64 << 10;

impl RegionWriter<'_> {
    /// Allocates `bytes` bytes: zeros, at a multiple of 256, in one extent.
    ///
    /// The size is rounded up to whole granules of 256 bytes. Cost: a few tens of nanoseconds, and zeroing reused space.
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
        self.invalidate_saved(&mut space)?;
        let mut found = space.free.allocate(granules, &mut changed);
        if found.is_none() && space.free.has_deferred() {
            space.free.release(self.region().pins.oldest());
            found = space.free.allocate(granules, &mut changed);
        }
        if found.is_none() && space.free.join() {
            found = space.free.allocate(granules, &mut changed);
        }
        let Some(at) = found else { return self.allocate_fresh(&mut space, granules) };
        space.record_allocation(at, granules);
        drop(space);
        self.zero(at, granules * GRANULE_BYTES)?;
        Ok(at)
    }

    /// Allocates space above the high-water mark, which is already zero.
    fn allocate_fresh(&self, space: &mut AllocatorState, granules: usize) -> Result<Place> {
        let bytes = (granules * GRANULE_BYTES) as Place;
        let extent = extent_of(space.next);
        // At the end of an extent `next` is the start of the following one, which may not exist yet.
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
        self.region().memory.report_through(space.next);
        self.raise_high_water(space)?;
        space.free.mark_used(at, granules, &mut |word| self.note(word));
        space.record_allocation(at, granules);
        Ok(at)
    }

    /// Guarantees that allocations of `bytes` bytes in total succeed, for any sizes up to 64 KiB: adds extents now, while a full
    /// disk or the limit can still be reported.
    ///
    /// It counts only fresh space, so it is conservative and may add more than necessary.
    ///
    /// # Errors
    /// `NoSpace` at the region's limit, or if the file, the system or the memory budget has no space.
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        self.reserve_with_memory(bytes, 0)
    }

    /// As [`reserve`](Self::reserve) for at most `bytes` bytes, of which `likely` are likely to be allocated. The memory budget
    /// grants those that do not fit into free space, and counts them from now on. What is allocated beyond them is counted too,
    /// but not refused.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub fn reserve_with_memory(&self, bytes: u64, likely: u64) -> Result<()> {
        // Each extent has a head, and may have a tail that is too short.
        let usable = (EXTENT_BYTES - 2 * PAGE_BYTES - MAX_RESERVED_BYTES) as u64;
        let mut space = self.region().space.lock();
        if space.free.free_bytes() < bytes || self.region().memory.is_ahead() {
            let fresh = likely.saturating_sub(space.free.free_bytes());
            self.region().memory.request_through(MemoryCount::step_behind(space.next, fresh))?;
        }
        loop {
            let whole = self.region().table.len().saturating_sub(extent_of(space.next) + 1) as u64;
            let left = (EXTENT_BYTES - within_extent(space.next))
                .saturating_sub(MAX_RESERVED_BYTES + 2 * PAGE_BYTES) as u64;
            let here = if extent_of(space.next) < self.region().table.len() { left } else { 0 };
            if here + whole * usable >= bytes {
                return Ok(());
            }
            self.grow(&mut space)?;
        }
    }

    /// Adds an extent.
    pub(super) fn grow(&self, space: &mut AllocatorState) -> Result<()> {
        let region = self.region();
        if !region.table.grow(|index| region.extent_memory(index))? {
            return Err(region.full());
        }
        space.free.add_extent(&mut |word| self.note(word));
        Ok(())
    }

    /// Raises the high-water mark to the allocated space, durably if the backing requires it.
    fn raise_high_water(&self, space: &mut AllocatorState) -> Result<()> {
        if self.region().pages.supports_checkpoints() {
            space.mark = space.next;
            self.store_own(MARK_AT, space.mark);
        } else if space.next > space.mark {
            // In steps, since each one costs a fence; not beyond the end of the extent.
            let extent_end = (space.next - 1).next_multiple_of(EXTENT_BYTES as Place);
            space.mark = space.next.next_multiple_of(HIGH_WATER_STEP_BYTES).min(extent_end);
            self.store_own_durably(MARK_AT, space.mark)?;
        }
        Ok(())
    }

    /// Invalidates the free space that was saved at a clean close.
    pub(super) fn invalidate_saved(&self, space: &mut AllocatorState) -> Result<()> {
        if space.saved && !self.region().pages.supports_checkpoints() {
            self.store_own_durably(STATE_AT, 0)?;
        }
        space.saved = false;
        Ok(())
    }

    /// Frees space of [`allocate`](Self::allocate) with the same `bytes`. It is reused once no pin from before this call is left.
    /// The caller has unlinked it before, under the same writer.
    ///
    /// A range that is not in use stays unchanged, and is counted as a refused free.
    pub fn free(&self, at: Place, bytes: usize) {
        let epoch = self.region().pins.retire();
        let mut space = self.region().space.lock();
        let granules = bytes.div_ceil(GRANULE_BYTES);
        // If the saved free space cannot be invalidated, the range stays in use.
        let invalidated = self.invalidate_saved(&mut space).is_ok();
        let aligned = at.is_multiple_of(GRANULE_BYTES as Place);
        if !invalidated || !aligned || !space.free.free(at, granules, epoch, &mut |word| self.note(word)) {
            space.refused_frees += 1;
        }
    }

    /// Stores a word of a bitmap if the backing requires it immediately.
    pub(super) fn note(&self, changed: ChangedWord) {
        if self.region().pages.supports_checkpoints() {
            self.store_own(bitmap_at(changed.extent) + 8 * changed.index as Place, changed.value);
        }
    }
}
