//! Finding the space that nothing refers to, after a crash or to be sure.

use bolide_base::{Error, Result};

use super::free_space::masks;
use super::layout::{
    BITMAP_WORDS, EXTENT_BYTES, GRANULE_BYTES, LINE_BYTES, Place, STATE_AT, bitmap_at, extent_of,
    first_free_of, within_extent,
};
use super::region::Region;
use super::writer::RegionWriter;

/// What a walk over the structures of a region has reached.
#[derive(Debug)]
pub struct ReachableSet<'a> {
    region: &'a Region,
    end: Place,
    bitmaps: Vec<Box<[u64]>>,
}

impl ReachableSet<'_> {
    /// The space at `at`, allocated with `bytes` bytes, is reached. Says whether some of it was not before: a walk
    /// may turn back else.
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
            // AllocatorState that was handed out since the walk began counts as reached anyway.
            return if fits || at >= self.end { Ok(false) } else { Err(self.region.out_of_bounds(at, bytes)) };
        };
        Ok(mark(bitmap, first, granules))
    }
}

/// Sets bits and says whether some were not set.
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
    /// Puts on offer all space that `walk` does not mark, and returns how many bytes that is.
    ///
    /// After a crash a region that is durable by itself does not know which of its space is in use; its owner walks
    /// its structures and marks what it reaches. Writers go on meanwhile: what is allocated after the walk began
    /// counts as reached, and what is freed stays freed. The owner's walk must reach, under such changes, every
    /// allocation that is linked throughout. Writers are kept out for a moment when the walk begins and when it
    /// ends, so the calling thread must not hold one.
    ///
    /// # Errors
    /// Those of `walk`, and `Conflict` while another reclamation runs: nothing is put on offer then.
    pub fn reclaim(&self, walk: impl FnOnce(&mut ReachableSet<'_>) -> Result<()>) -> Result<u64> {
        let (end, extents) = {
            // Whatever is allocated now is linked, or lost: no writer is between the two.
            let _gate = self.gate.write();
            let mut space = self.space.lock();
            if space.since.is_some() {
                let message = format!("{}: another reclamation runs", self.name());
                return Err(Error::new(bolide_base::ErrorKind::Conflict, message));
            }
            space.since = Some(Vec::new());
            (space.next, self.table.len())
        };
        let bitmaps = (0..extents).map(|_| vec![0; BITMAP_WORDS].into_boxed_slice()).collect();
        let mut reached = ReachableSet { region: self, end, bitmaps };
        let mut unwinding = ReclamationGuard { region: self, unwinds: true };
        let walked = walk(&mut reached);
        unwinding.unwinds = false;
        drop(unwinding);
        // No writer is between unlinking something and freeing it.
        let gate = self.gate.write();
        let epoch = self.pins.retire();
        let mut space = self.space.lock();
        let since = space.since.take().unwrap_or_default();
        walked?;
        for (at, granules) in since {
            if let Some(bitmap) = reached.bitmaps.get_mut(extent_of(at)) {
                mark(bitmap, within_extent(at) / GRANULE_BYTES, granules);
            }
        }
        let mut lost = Vec::new();
        for (extent, bitmap) in reached.bitmaps.iter_mut().enumerate() {
            let start = (extent * EXTENT_BYTES) as Place;
            // The extent's own head is reached, and so is all behind the end.
            mark(bitmap, 0, within_extent(first_free_of(extent)) / GRANULE_BYTES);
            let used = space.free.bitmap(extent).unwrap_or_default();
            unreachable_runs(used, bitmap, |first, granules| {
                let at = start + (first * GRANULE_BYTES) as Place;
                if at < end {
                    let below = ((end - at) as usize / GRANULE_BYTES).min(granules);
                    lost.push((at, below));
                }
            });
        }
        let writer = RegionWriter::alone(self, &gate);
        writer.invalidate_saved(&mut space)?;
        let mut bytes = 0;
        for (at, granules) in lost {
            if space.free.free(at, granules, epoch, &mut |word| writer.note(word)) {
                bytes += (granules * GRANULE_BYTES) as u64;
            }
        }
        space.is_known = true;
        Ok(bytes)
    }

    /// Writes down which space is in use, so that the next opening need not reclaim: the end of a clean close. The
    /// next allocation or free takes it back. Regions with cuts always have it.
    ///
    /// # Errors
    /// `Corruption` if the region's own extents are not there, which is a bug; those of the mapped file.
    pub fn save_free_space(&self) -> Result<()> {
        if self.pages.supports_checkpoints() {
            return Ok(());
        }
        let writer = self.writer();
        let mut space = self.space.lock();
        // What readers still look at is nobody's at the next opening.
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

/// A walk that panics ends its reclamation: without this, allocations would be noted for it from then on.
struct ReclamationGuard<'a> {
    region: &'a Region,
    unwinds: bool,
}

impl Drop for ReclamationGuard<'_> {
    fn drop(&mut self) {
        if self.unwinds {
            self.region.space.lock().since = None;
        }
    }
}

/// Calls `run` for the runs of granules that are used and not reached.
fn unreachable_runs(used: &[u64], reached: &[u64], mut run: impl FnMut(usize, usize)) {
    let mut start = None;
    let granules = used.len().min(reached.len()) * 64;
    for granule in 0..=granules {
        let bit = |words: &[u64]| words.get(granule / 64).is_some_and(|word| word >> (granule % 64) & 1 == 1);
        let lost = granule < granules && bit(used) && !bit(reached);
        match (start, lost) {
            (None, true) => start = Some(granule),
            (Some(first), false) => {
                run(first, granule - first);
                start = None;
            }
            _ => {}
        }
    }
}
