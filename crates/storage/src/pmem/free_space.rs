//! Which granules are in use, and which runs of free ones are on offer.
//!
//! The truth is a bitmap per extent, one bit per granule of 256 bytes. Runs that may be handed out at once
//! stand in lists by their length; what was freed and may still be read waits behind them, in the order of
//! the frees. All of it is volatile; the region writes the bitmaps where its backing keeps them.

use std::collections::{BTreeMap, VecDeque};

use super::layout::{
    BITMAP_WORDS, EXTENT_BYTES, GRANULE_BYTES, GRANULES_PER_EXTENT, Place, extent_of, first_free_of,
    within_extent,
};

/// Runs up to this many granules (64 KiB) have a list each.
const LISTED_GRANULES: usize = 256;

/// The free space of a region. Not synchronised: the region's lock holds it.
#[derive(Debug)]
pub(super) struct FreeSpace {
    /// Per extent, bit `g % 64` of word `g / 64`: granule `g` is in use or waits.
    bitmaps: Vec<Box<[u64]>>,
    /// Runs on offer by length in granules; `short[n - 1]` has those of length `n`.
    short: Vec<Vec<Place>>,
    long: BTreeMap<usize, Vec<Place>>,
    /// Which lists of `short` have runs.
    filled: [u64; LISTED_GRANULES / 64],
    waiting: VecDeque<Waiting>,
    free_bytes: u64,
    waiting_bytes: u64,
}

/// A run that readers may still look at.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    epoch: u64,
    at: Place,
    granules: usize,
}

/// A word of a bitmap that has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChangedWord {
    pub(super) extent: usize,
    pub(super) index: usize,
    pub(super) value: u64,
}

impl FreeSpace {
    /// Without extents.
    pub(super) fn new() -> Self {
        Self {
            bitmaps: Vec::new(),
            short: vec![Vec::new(); LISTED_GRANULES],
            long: BTreeMap::new(),
            filled: [0; LISTED_GRANULES / 64],
            waiting: VecDeque::new(),
            free_bytes: 0,
            waiting_bytes: 0,
        }
    }

    /// Adds the bitmap of the next extent: its head in use, all else unused but not on offer.
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

    /// Takes a run of exactly `granules` from the lists, cutting a longer one if need be, and marks it used.
    pub(super) fn take(&mut self, granules: usize, changed: &mut dyn FnMut(ChangedWord)) -> Option<Place> {
        let (at, found) = self.take_run(granules)?;
        if found > granules {
            self.offer(at + (granules * GRANULE_BYTES) as Place, found - granules);
        }
        self.free_bytes -= (granules * GRANULE_BYTES) as u64;
        self.mark_used(at, granules, changed);
        Some(at)
    }

    /// Takes a run of `granules` off its list, or the shortest that is longer.
    fn take_run(&mut self, granules: usize) -> Option<(Place, usize)> {
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
            // The rest goes back by `offer`, which counts it.
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

    /// Puts a run on offer whose granules are not in use.
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

    /// Marks a run used that is on no list.
    pub(super) fn mark_used(&mut self, at: Place, granules: usize, changed: &mut dyn FnMut(ChangedWord)) {
        self.set(extent_of(at), within_extent(at) / GRANULE_BYTES, granules, true, changed);
    }

    /// Lets a used run wait for the readers of `epoch`. False, and nothing done, unless all of it is in use.
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
        self.waiting.push_back(Waiting { epoch, at, granules });
        self.waiting_bytes += (granules * GRANULE_BYTES) as u64;
        true
    }

    /// Puts on offer what was freed before `oldest`, the epoch of the oldest reader.
    pub(super) fn release(&mut self, oldest: u64) {
        while let Some(run) = self.waiting.front().copied().filter(|run| run.epoch < oldest) {
            self.waiting.pop_front();
            self.waiting_bytes -= (run.granules * GRANULE_BYTES) as u64;
            self.offer(run.at, run.granules);
        }
    }

    /// Whether anything waits for readers.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes the bitmaps as they are now for the truth: all unused runs below `end` are on offer, in one
    /// piece each, and nothing waits.
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
        // From the back, so that the lists hand out low places first.
        for &(at, granules) in runs.iter().rev() {
            self.offer(at, granules);
        }
    }

    /// Bytes on offer.
    pub(super) fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// Bytes that wait for readers.
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// Whether all of `granules` from `first` on are in use.
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

/// The words of a bitmap that hold `granules` bits from `first` on, each with the mask of its bits.
pub(super) fn masks(first: usize, granules: usize) -> impl Iterator<Item = (usize, u64)> {
    let end = first + granules;
    (first / 64..end.div_ceil(64)).map(move |index| {
        let low = first.max(index * 64) - index * 64;
        let high = end.min(index * 64 + 64) - index * 64;
        let mask = if high - low == 64 { u64::MAX } else { ((1 << (high - low)) - 1) << low };
        (index, mask)
    })
}

/// Calls `run` with start and length of each longest run of unused granules below `limit`.
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
    fn runs_are_cut_handed_out_and_come_back_when_readers_are_gone() {
        let mut space = space();
        let start = first_free_of(0);
        space.offer(start, 10);
        assert_eq!(space.free_bytes(), 2560);
        let mut changes = Vec::new();
        let one = space.take(3, &mut |change| changes.push(change)).unwrap();
        assert_eq!(one, start);
        assert!(!changes.is_empty() && changes.iter().all(|change| change.extent == 0));
        let two = space.take(7, &mut |_| ()).unwrap();
        assert_eq!(two, start + 768);
        assert_eq!(space.take(1, &mut |_| ()), None);
        assert!(space.free(one, 3, 5, &mut |_| ()));
        assert!(!space.free(one, 3, 5, &mut |_| ()), "freed twice");
        assert!(!space.free(two, 8, 5, &mut |_| ()), "longer than it was");
        space.release(5);
        assert_eq!((space.free_bytes(), space.waiting_bytes()), (0, 768));
        space.release(6);
        assert_eq!((space.free_bytes(), space.waiting_bytes()), (768, 0));
        assert_eq!(space.take(3, &mut |_| ()), Some(one));
    }

    #[test]
    fn the_heads_of_extents_cannot_be_freed() {
        let mut space = space();
        assert!(!space.free(0, 1, 1, &mut |_| ()));
        assert!(!space.free(EXTENT_BYTES as Place, 1, 1, &mut |_| ()));
        assert!(!space.free(EXTENT_BYTES as Place * 9, 1, 1, &mut |_| ()));
    }

    #[test]
    fn long_runs_are_kept_by_length() {
        let mut space = space();
        let start = first_free_of(1);
        space.offer(start, 1000);
        assert_eq!(space.take(300, &mut |_| ()), Some(start));
        assert_eq!(space.take(600, &mut |_| ()), Some(start + 300 * 256));
        assert_eq!(space.take(200, &mut |_| ()), None);
        assert_eq!(space.take(100, &mut |_| ()), Some(start + 900 * 256));
        assert_eq!(space.free_bytes(), 0);
    }

    #[test]
    fn a_rebuilt_space_offers_what_the_bitmaps_leave() {
        let mut space = space();
        let start = first_free_of(0);
        space.mark_used(start + 256, 2, &mut |_| ());
        let bitmaps = (0..2).map(|extent| space.bitmap(extent).unwrap().into()).collect();
        let mut again = FreeSpace::new();
        again.rebuild(bitmaps, start + 5 * 256);
        assert_eq!(again.free_bytes(), 3 * 256);
        assert_eq!(again.take(2, &mut |_| ()), Some(start + 3 * 256));
        assert_eq!(again.take(1, &mut |_| ()), Some(start));
        assert_eq!(again.take(1, &mut |_| ()), None);
    }
}
