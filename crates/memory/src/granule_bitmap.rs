//! The allocation bitmap of a slab: one bit for each of its *granules*, blocks of equal size.

/// Granules of a slab.
pub(crate) const GRANULES: usize = 8192;
const WORDS: usize = GRANULES / 64;

/// A bit for each granule of a slab.
#[derive(Debug)]
pub(crate) struct GranuleBitmap {
    /// Bits of used granules are set.
    used: Box<[u64; WORDS]>,
    free: usize,
    /// The end of the last allocation, where the next search starts.
    from: usize,
}

impl GranuleBitmap {
    /// A bitmap of free granules.
    pub(crate) fn new() -> Self {
        Self { used: Box::new([0; WORDS]), free: GRANULES, from: 0 }
    }

    /// The number of used granules.
    pub(crate) fn used(&self) -> usize {
        GRANULES - self.free
    }

    /// True if no granule is used.
    pub(crate) fn is_empty(&self) -> bool {
        self.free == GRANULES
    }

    /// The first used (or free) granule at or behind `from`; [`GRANULES`] if there is none.
    fn next(&self, used: bool, from: usize) -> usize {
        let flip = if used { 0 } else { u64::MAX };
        let mut mask = u64::MAX << (from % 64);
        for (number, word) in self.used.iter().enumerate().skip(from / 64) {
            let found = (word ^ flip) & mask;
            if found != 0 {
                return 64 * number + found.trailing_zeros() as usize;
            }
            mask = u64::MAX;
        }
        GRANULES
    }

    /// Allocates `count` adjacent free granules, at least one; returns the number of the first. `None` if no such run exists.
    /// Reads each word at most twice.
    pub(crate) fn allocate(&mut self, count: usize) -> Option<usize> {
        if self.free < count {
            return None;
        }
        let start = self.find(self.from, GRANULES, count).or_else(|| self.find(0, self.from, count))?;
        self.flip(start, count);
        self.free -= count;
        self.from = start + count;
        Some(start)
    }

    /// The start of `count` adjacent free granules, at or behind `from` and before `until`.
    fn find(&self, mut from: usize, until: usize, count: usize) -> Option<usize> {
        loop {
            let start = self.next(false, from);
            if start >= until || start + count > GRANULES {
                return None;
            }
            let end = self.next(true, start);
            if end - start >= count {
                return Some(start);
            }
            from = end;
        }
    }

    /// Frees `count` used granules from number `start` on.
    pub(crate) fn free(&mut self, start: usize, count: usize) {
        self.flip(start, count);
        self.free += count;
    }

    /// Inverts the bits of `count` granules from number `start` on.
    fn flip(&mut self, start: usize, count: usize) {
        let end = start + count;
        for (number, word) in self.used.iter_mut().enumerate().take(end.div_ceil(64)).skip(start / 64) {
            let first = start.saturating_sub(64 * number);
            let behind = (end - 64 * number).min(64);
            *word ^= u64::MAX << first & u64::MAX >> (64 - behind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_random::TestRandom;

    #[test]
    fn the_bitmap_equals_a_list_of_flags() {
        let seeds = if cfg!(miri) { 1 } else { 20 };
        for seed in 0..seeds {
            let mut rng = TestRandom::new(seed);
            let largest = [3, 20, 300, GRANULES as u64][rng.below(4) as usize];
            let (mut granules, mut flags) = (GranuleBitmap::new(), vec![false; GRANULES]);
            let mut live: Vec<(usize, usize)> = Vec::new();
            for _ in 0..if cfg!(miri) { 5 } else { 4_000 } {
                let count = 1 + rng.below(largest) as usize;
                if rng.below(5) > 1 || live.is_empty() {
                    match granules.allocate(count) {
                        Some(start) => {
                            let run = flags.get_mut(start..start + count).expect("it lies in the slab");
                            assert!(run.iter().all(|flag| !flag), "seed {seed}: allocated twice");
                            run.fill(true);
                            live.push((start, count));
                        }
                        None => {
                            let longest = flags.split(|flag| *flag).map(<[bool]>::len).max();
                            assert!(longest.is_none_or(|free| free < count), "seed {seed}: there was room");
                        }
                    }
                } else {
                    let (start, count) = live.swap_remove(rng.below(live.len() as u64) as usize);
                    granules.free(start, count);
                    flags[start..start + count].fill(false);
                }
                assert_eq!(granules.free, flags.iter().filter(|flag| !**flag).count(), "seed {seed}");
                assert_eq!(granules.is_empty(), live.is_empty(), "seed {seed}");
            }
        }
    }
}
