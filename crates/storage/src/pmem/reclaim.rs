//! Reclamation of unreachable space, after a crash or as a check.

use bolide_base::{Error, Result};

use super::free_space::masks;
use super::layout::{
    BITMAP_WORDS, EXTENT_BYTES, GRANULE_BYTES, LINE_BYTES, Place, STATE_AT, bitmap_at, extent_of,
    first_free_of, within_extent,
};
use super::region::Region;
use super::writer::RegionWriter;

/// The space that a walk over the structures of a region has reached.
#[derive(Debug)]
pub struct ReachableSet<'a> {
    region: &'a Region,
    end: Place,
    bitmaps: Vec<Box<[u64]>>,
}

impl ReachableSet<'_> {
    /// Marks the allocation of `bytes` bytes at `at` as reachable. Returns false if it was marked already: then the walk need not
    /// descend.
    ///
    /// # Errors
    /// `Corruption` if there cannot be such an allocation.
    pub fn mark(&mut self, at: Place, bytes: usize) -> Result<bool> {
        let (extent, granules) = (extent_of(at), bytes.div_ceil(GRANULE_BYTES));
        let first = within_extent(at) / GRANULE_BYTES;
        let fits = at.is_multiple_of(GRANULE_BYTES as Place)
            && at >= first_free_of(extent)
            && granules <= EXTENT_BYTES / GRANULE_BYTES - first
            && at < self.end;
        let Some(bitmap) = self.bitmaps.get_mut(extent).filter(|_| fits) else {
            // Space that was allocated since the start of the walk counts as reachable anyway.
            return if fits || at >= self.end {
                Ok(false)
            } else {
                Err(self.region.out_of_bounds(at, bytes))
            };
        };
        Ok(mark(bitmap, first, granules))
    }
}

/// Sets bits; returns whether some were not set.
fn mark(bitmap: &mut [u64], first: usize, granules: usize) -> bool {
    let mut fresh = false;
    for (index, mask) in masks(first, granules) {
        if let Some(word) = bitmap.get_mut(index) {
            fresh |= *word & mask != mask;
            *word |= mask;
        }
    }
    fresh
}

impl Region {
    /// Frees all space that `walk` does not mark; returns its size in bytes.
    ///
    /// After a crash of a mapped region the used space is unknown. The owner walks its structures and marks the allocations it
    /// reaches. Writers continue meanwhile: allocations after the start of the walk count as reachable, and frees stay effective.
    /// Under such changes the walk must reach every allocation that is linked throughout. Writers are blocked for a short time at
    /// the start and at the end of the walk, so the calling thread must not hold one.
    ///
    /// # Errors
    /// Errors of `walk`, and `Conflict` while another reclamation runs: then nothing is freed.
    pub fn reclaim(&self, walk: impl FnOnce(&mut ReachableSet<'_>) -> Result<()>) -> Result<u64> {
        let (end, extents) = {
            // Without active writers, every allocation is either linked or lost.
            let _gate = self.gate.write();
            let mut space = self.space.lock();
            if space.since_reclamation.is_some() {
                let message = format!("{}: another reclamation runs", self.name());
                return Err(Error::new(bolide_base::ErrorKind::Conflict, message));
            }
            space.since_reclamation = Some(Vec::new());
            (space.next, self.table.len())
        };
        let bitmaps = (0..extents).map(|_| vec![0; BITMAP_WORDS].into_boxed_slice()).collect();
        let mut reached = ReachableSet { region: self, end, bitmaps };
        let mut unwinding = ReclamationGuard { region: self, unwinds: true };
        let walked = walk(&mut reached);
        unwinding.unwinds = false;
        drop(unwinding);
        // No writer is between an unlinking and its free.
        let gate = self.gate.write();
        let epoch = self.pins.retire();
        let mut space = self.space.lock();
        let allocations = space.since_reclamation.take().unwrap_or_default();
        walked?;
        for (at, granules) in allocations {
            if let Some(bitmap) = reached.bitmaps.get_mut(extent_of(at)) {
                mark(bitmap, within_extent(at) / GRANULE_BYTES, granules);
            }
        }
        let mut unreachable = Vec::new();
        for (extent, bitmap) in reached.bitmaps.iter_mut().enumerate() {
            let start = (extent * EXTENT_BYTES) as Place;
            // The head of the extent is reachable, and so is all space behind the end.
            mark(bitmap, 0, within_extent(first_free_of(extent)) / GRANULE_BYTES);
            let used = space.free.bitmap(extent).unwrap_or_default();
            unreachable_runs(used, bitmap, |first, granules| {
                let at = start + (first * GRANULE_BYTES) as Place;
                if at < end {
                    let below = ((end - at) as usize / GRANULE_BYTES).min(granules);
                    unreachable.push((at, below));
                }
            });
        }
        let writer = RegionWriter::alone(self, &gate);
        writer.invalidate_saved(&mut space)?;
        let mut bytes = 0;
        for (at, granules) in unreachable {
            if space.free.free(at, granules, epoch, &mut |word| writer.note(word)) {
                bytes += (granules * GRANULE_BYTES) as u64;
            }
        }
        space.is_known = true;
        Ok(bytes)
    }

    /// Stores the bitmaps at the end of a clean close, so that the next opening need not reclaim. The next allocation or free
    /// invalidates them. Regions with checkpoints always have valid bitmaps.
    ///
    /// # Errors
    /// `Corruption` if extents are missing, which is a bug; errors of the mapped file.
    pub fn save_free_space(&self) -> Result<()> {
        if self.pages.supports_checkpoints() {
            return Ok(());
        }
        let writer = self.writer();
        let mut space = self.space.lock();
        // Deferred frees count as free: the next opening has no readers of them.
        for extent in 0..self.table.len() {
            let bitmap = space.free.bitmap(extent).unwrap_or_default();
            for (index, &word) in bitmap.iter().enumerate() {
                writer.store_own(bitmap_at(extent) + 8 * index as Place, word);
            }
            writer.persist(bitmap_at(extent), (BITMAP_WORDS * 8).next_multiple_of(LINE_BYTES))?;
        }
        writer.fence();
        writer.store_own_durably(STATE_AT, 1)?;
        space.saved = true;
        Ok(())
    }
}

/// Ends a reclamation whose walk panics; otherwise allocations would be recorded for it forever.
struct ReclamationGuard<'a> {
    region: &'a Region,
    unwinds: bool,
}

impl Drop for ReclamationGuard<'_> {
    fn drop(&mut self) {
        if self.unwinds {
            self.region.space.lock().since_reclamation = None;
        }
    }
}

/// Calls `run` for the runs of granules that are used and not reachable.
fn unreachable_runs(used: &[u64], reached: &[u64], mut run: impl FnMut(usize, usize)) {
    let mut start = None;
    let granules = used.len().min(reached.len()) * 64;
    for granule in 0..=granules {
        let bit = |words: &[u64]| words.get(granule / 64).is_some_and(|word| word >> (granule % 64) & 1 == 1);
        let unreachable = granule < granules && bit(used) && !bit(reached);
        match (start, unreachable) {
            (None, true) => start = Some(granule),
            (Some(first), false) => {
                run(first, granule - first);
                start = None;
            }
            _ => {}
        }
    }
}
