//! Bitmaps of used granules, and lists of free runs.
//!
//! A bitmap per extent is authoritative: one bit per granule of 256 bytes. Lists by length contain the runs for allocations.
//! Freed runs that readers may still access are in a queue of deferred frees. All of this is volatile; the region stores the
//! bitmaps if its backing requires it.

use std::collections::{BTreeMap, VecDeque};

use super::layout::{
    BITMAP_WORDS, EXTENT_BYTES, GRANULE_BYTES, GRANULES_PER_EXTENT, Place, extent_of, first_free_of,
    within_extent,
};

/// Runs up to this many granules (64 KiB) have a list each.
const LISTED_GRANULES: usize = 256;
/// Released bytes below which neighbouring runs are not joined.
const MIN_JOINED_BYTES: u64 = 64 << 10;

/// The free space of a region, without synchronization: the region's lock protects it.
#[derive(Debug)]
pub(super) struct FreeSpace {
    /// Per extent, bit `g % 64` of word `g / 64`: granule `g` is in use.
    bitmaps: Vec<Box<[u64]>>,
    /// Free runs by length in granules; `short[n - 1]` contains those of length `n`.
    short: Vec<Vec<Place>>,
    long: BTreeMap<usize, Vec<Place>>,
    /// Bits of the non-empty lists of `short`.
    filled: [u64; LISTED_GRANULES / 64],
    deferred: VecDeque<DeferredFree>,
    free_bytes: u64,
    deferred_bytes: u64,
    /// Bytes added to the lists since neighbouring runs were joined.
    released_bytes: u64,
}

/// A freed run that readers may still access.
#[derive(Debug, Clone, Copy)]
struct DeferredFree {
    epoch: u64,
    at: Place,
    granules: usize,
}

/// A changed word of a bitmap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChangedWord {
    pub(super) extent: usize,
    pub(super) index: usize,
    pub(super) value: u64,
}

impl FreeSpace {
    /// Free space without extents.
    pub(super) fn new() -> Self {
        Self {
            bitmaps: Vec::new(),
            short: vec![Vec::new(); LISTED_GRANULES],
            long: BTreeMap::new(),
            filled: [0; LISTED_GRANULES / 64],
            deferred: VecDeque::new(),
            free_bytes: 0,
            deferred_bytes: 0,
            released_bytes: 0,
        }
    }

    /// Adds the bitmap of the next extent: its head is used, the rest unused but on no list.
    pub(super) fn add_extent(&mut self, changed: &mut dyn FnMut(ChangedWord)) {
        let extent = self.bitmaps.len();
        self.bitmaps.push(vec![0; BITMAP_WORDS].into_boxed_slice());
        let head = within_extent(first_free_of(extent)) / GRANULE_BYTES;
        self.set(extent, 0, head, true, changed);
    }

    /// The bitmap of an extent.
    pub(super) fn bitmap(&self, extent: usize) -> Option<&[u64]> {
        self.bitmaps.get(extent).map(|words| &**words)
    }

    /// Allocates a run of exactly `granules` from the lists, splitting a longer one if necessary.
    pub(super) fn allocate(
        &mut self,
        granules: usize,
        changed: &mut dyn FnMut(ChangedWord),
    ) -> Option<Place> {
        let (at, found) = self.remove_run(granules)?;
        if found > granules {
            self.offer(at + (granules * GRANULE_BYTES) as Place, found - granules);
        }
        self.free_bytes -= (granules * GRANULE_BYTES) as u64;
        self.mark_used(at, granules, changed);
        Some(at)
    }

    /// Removes a run of `granules` from its list, or else the shortest longer one.
    fn remove_run(&mut self, granules: usize) -> Option<(Place, usize)> {
        let found =
            self.filled_from(granules).or_else(|| self.long.range(granules..).next().map(|(&n, _)| n))?;
        let at = if found <= LISTED_GRANULES {
            let list = self.short.get_mut(found - 1)?;
            let at = list.pop()?;
            if list.is_empty() {
                self.filled[(found - 1) / 64] &= !(1 << ((found - 1) % 64));
            }
            at
        } else {
            let list = self.long.get_mut(&found)?;
            let at = list.pop()?;
            if list.is_empty() {
                self.long.remove(&found);
            }
            at
        };
        if found > granules {
            // `offer` counts the rest again.
            self.free_bytes -= ((found - granules) * GRANULE_BYTES) as u64;
        }
        Some((at, found))
    }

    /// The shortest listed length of at least `granules` that has runs.
    fn filled_from(&self, granules: usize) -> Option<usize> {
        let first = granules - 1;
        (first / 64..self.filled.len()).find_map(|word| {
            let below = if word == first / 64 { (1_u64 << (first % 64)) - 1 } else { 0 };
            let bits = self.filled[word] & !below;
            (bits != 0).then(|| word * 64 + bits.trailing_zeros() as usize + 1)
        })
    }

    /// Adds a run of unused granules to the lists.
    pub(super) fn offer(&mut self, at: Place, granules: usize) {
        if granules == 0 {
            return;
        }
        self.free_bytes += (granules * GRANULE_BYTES) as u64;
        if granules <= LISTED_GRANULES {
            self.short[granules - 1].push(at);
            self.filled[(granules - 1) / 64] |= 1 << ((granules - 1) % 64);
        } else {
            self.long.entry(granules).or_default().push(at);
        }
    }

    /// Marks a run as used that is on no list.
    pub(super) fn mark_used(&mut self, at: Place, granules: usize, changed: &mut dyn FnMut(ChangedWord)) {
        self.set(extent_of(at), within_extent(at) / GRANULE_BYTES, granules, true, changed);
    }

    /// Frees a used run; its reuse is deferred for the readers of `epoch`. False, without any effect, unless all of it is in use.
    pub(super) fn free(
        &mut self,
        at: Place,
        granules: usize,
        epoch: u64,
        changed: &mut dyn FnMut(ChangedWord),
    ) -> bool {
        let (extent, first) = (extent_of(at), within_extent(at) / GRANULE_BYTES);
        if at < first_free_of(extent) || !self.all_used(extent, first, granules) {
            return false;
        }
        self.set(extent, first, granules, false, changed);
        self.deferred.push_back(DeferredFree { epoch, at, granules });
        self.deferred_bytes += (granules * GRANULE_BYTES) as u64;
        true
    }

    /// Adds the runs freed before `oldest`, the epoch of the oldest reader, to the lists.
    pub(super) fn release(&mut self, oldest: u64) {
        while let Some(run) = self.deferred.front().copied().filter(|run| run.epoch < oldest) {
            self.deferred.pop_front();
            let bytes = (run.granules * GRANULE_BYTES) as u64;
            self.deferred_bytes -= bytes;
            self.released_bytes += bytes;
            self.offer(run.at, run.granules);
        }
    }

    /// Joins neighbouring runs of the lists, which are otherwise divided into ever shorter ones. False, without any effect, unless a
    /// quarter of their bytes was released since the last time.
    pub(super) fn join(&mut self) -> bool {
        if self.released_bytes < MIN_JOINED_BYTES.max(self.free_bytes / 4) {
            return false;
        }
        let mut runs: Vec<(Place, usize)> = Vec::new();
        for (length, list) in self.short.iter_mut().enumerate() {
            runs.extend(list.drain(..).map(|at| (at, length + 1)));
        }
        for (granules, list) in std::mem::take(&mut self.long) {
            runs.extend(list.into_iter().map(|at| (at, granules)));
        }
        runs.sort_unstable();
        self.filled = Default::default();
        (self.free_bytes, self.released_bytes) = (0, 0);
        // Runs of different extents are not neighbours: each extent begins with a head.
        let mut joined: Vec<(Place, usize)> = Vec::with_capacity(runs.len());
        for (at, granules) in runs {
            match joined.last_mut() {
                Some((start, before)) if *start + (*before * GRANULE_BYTES) as Place == at => {
                    *before += granules
                }
                _ => joined.push((at, granules)),
            }
        }
        // In reverse, so that low offsets are allocated first.
        joined.into_iter().rev().for_each(|(at, granules)| self.offer(at, granules));
        true
    }

    /// Whether there are deferred frees.
    pub(super) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Rebuilds the lists from the bitmaps: all maximal unused runs below `end`, without deferred frees.
    pub(super) fn rebuild(&mut self, bitmaps: Vec<Box<[u64]>>, end: Place) {
        *self = Self { bitmaps, ..Self::new() };
        let mut runs = Vec::new();
        for (extent, bitmap) in self.bitmaps.iter().enumerate() {
            let start = (extent * EXTENT_BYTES) as Place;
            let limit = (end.saturating_sub(start) as usize / GRANULE_BYTES).min(GRANULES_PER_EXTENT);
            unused_runs(bitmap, limit, |first, granules| {
                runs.push((start + (first * GRANULE_BYTES) as Place, granules));
            });
        }
        // In reverse, so that low offsets are allocated first.
        for &(at, granules) in runs.iter().rev() {
            self.offer(at, granules);
        }
    }

    /// Bytes on the lists.
    pub(super) fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// Bytes of deferred frees.
    pub(super) fn deferred_bytes(&self) -> u64 {
        self.deferred_bytes
    }

    /// Whether all `granules` granules from `first` on are in use.
    fn all_used(&self, extent: usize, first: usize, granules: usize) -> bool {
        let Some(bitmap) = self.bitmaps.get(extent) else { return false };
        granules > 0
            && first + granules <= GRANULES_PER_EXTENT
            && masks(first, granules).all(|(index, mask)| bitmap[index] & mask == mask)
    }

    fn set(
        &mut self,
        extent: usize,
        first: usize,
        granules: usize,
        used: bool,
        changed: &mut dyn FnMut(ChangedWord),
    ) {
        let Some(bitmap) = self.bitmaps.get_mut(extent) else { return };
        for (index, mask) in masks(first, granules) {
            let Some(word) = bitmap.get_mut(index) else { return };
            *word = if used { *word | mask } else { *word & !mask };
            changed(ChangedWord { extent, index, value: *word });
        }
    }
}

/// The words of a bitmap with the `granules` bits from `first` on, each with the mask of these bits.
pub(super) fn masks(first: usize, granules: usize) -> impl Iterator<Item = (usize, u64)> {
    let end = first + granules;
    (first / 64..end.div_ceil(64)).map(move |index| {
        let low = first.max(index * 64) - index * 64;
        let high = end.min(index * 64 + 64) - index * 64;
        let mask = if high - low == 64 { u64::MAX } else { ((1 << (high - low)) - 1) << low };
        (index, mask)
    })
}

/// Calls `run` with start and length of each maximal run of unused granules below `limit`.
fn unused_runs(bitmap: &[u64], limit: usize, mut run: impl FnMut(usize, usize)) {
    let mut start = None;
    for granule in 0..=limit {
        let used =
            granule == limit || bitmap.get(granule / 64).is_none_or(|word| word >> (granule % 64) & 1 == 1);
        match (start, used) {
            (None, false) => start = Some(granule),
            (Some(first), true) => {
                run(first, granule - first);
                start = None;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> FreeSpace {
        let mut space = FreeSpace::new();
        space.add_extent(&mut |_| ());
        space.add_extent(&mut |_| ());
        space
    }

    #[test]
    fn freed_runs_are_reused_after_their_readers() {
        let mut space = space();
        let start = first_free_of(0);
        space.offer(start, 10);
        assert_eq!(space.free_bytes(), 2560);
        let mut changes = Vec::new();
        let one = space.allocate(3, &mut |change| changes.push(change)).unwrap();
        assert_eq!(one, start);
        assert!(!changes.is_empty() && changes.iter().all(|change| change.extent == 0));
        let two = space.allocate(7, &mut |_| ()).unwrap();
        assert_eq!(two, start + 768);
        assert_eq!(space.allocate(1, &mut |_| ()), None);
        assert!(space.free(one, 3, 5, &mut |_| ()));
        assert!(!space.free(one, 3, 5, &mut |_| ()), "freed twice");
        assert!(!space.free(two, 8, 5, &mut |_| ()), "longer than it was");
        space.release(5);
        assert_eq!((space.free_bytes(), space.deferred_bytes()), (0, 768));
        space.release(6);
        assert_eq!((space.free_bytes(), space.deferred_bytes()), (768, 0));
        assert_eq!(space.allocate(3, &mut |_| ()), Some(one));
    }

    #[test]
    fn the_heads_of_extents_cannot_be_freed() {
        let mut space = space();
        assert!(!space.free(0, 1, 1, &mut |_| ()));
        assert!(!space.free(EXTENT_BYTES as Place, 1, 1, &mut |_| ()));
        assert!(!space.free(EXTENT_BYTES as Place * 9, 1, 1, &mut |_| ()));
    }

    #[test]
    fn long_runs_are_sorted_by_length() {
        let mut space = space();
        let start = first_free_of(1);
        space.offer(start, 1000);
        assert_eq!(space.allocate(300, &mut |_| ()), Some(start));
        assert_eq!(space.allocate(600, &mut |_| ()), Some(start + 300 * 256));
        assert_eq!(space.allocate(200, &mut |_| ()), None);
        assert_eq!(space.allocate(100, &mut |_| ()), Some(start + 900 * 256));
        assert_eq!(space.free_bytes(), 0);
    }

    #[test]
    fn a_rebuilt_space_offers_the_unused_runs() {
        let mut space = space();
        let start = first_free_of(0);
        space.mark_used(start + 256, 2, &mut |_| ());
        let bitmaps = (0..2).map(|extent| space.bitmap(extent).unwrap().into()).collect();
        let mut again = FreeSpace::new();
        again.rebuild(bitmaps, start + 5 * 256);
        assert_eq!(again.free_bytes(), 3 * 256);
        assert_eq!(again.allocate(2, &mut |_| ()), Some(start + 3 * 256));
        assert_eq!(again.allocate(1, &mut |_| ()), Some(start));
        assert_eq!(again.allocate(1, &mut |_| ()), None);
    }
}
