//! Forks: where the keys of a segment part from each other.
//!
//! ```text
//! forks      D bytes     for each entry, the first bit in which its key differs from the key before, counted from
//!                        byte B of the keys; 255: further on, or not at all, or nothing is before it
//! B          u16         how many bytes are the same in all keys from the one before the segment to its last
//! ```
//!
//! Of sorted keys, the bits where neighbours part are all that a binary trie of them has: the node above two
//! neighbouring subtrees is the fork between them. A search goes down that trie by the bits of its key that are asked
//! for, blindly, to one entry (as in String B-trees: Ferragina and Grossi, JACM 46, 1999, §3). It compares with this
//! one. The bit where that differs tells which subtree the key is beside, and so its place: one entry is read where
//! the binary search of REMIX §3.2 reads one of each run that it meets.
//!
//! Keys are compared as if zeros followed them. Entries whose forks are 255 are a crowd behind the first of them: the
//! versions of a key, keys that differ in zeros at their end alone, or far behind B. In it the search goes on by whole keys.

#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
use super::descent::descend;
use super::selectors::{below, mask_less};

/// The fork of an entry that differs from the one before too far on to say, or not at all.
pub(crate) const FAR: u8 = u8::MAX;

/// No bit: nothing is known, or there is none.
pub(crate) const NO_FORK: u32 = u32::MAX;

/// Bytes of B.
pub(crate) const BASE_BYTES: usize = 2;

/// The forks of a segment from the absolute ones, [`NO_FORK`] where there is none; puts them into `out` and answers B.
pub(crate) fn encode(absolute: &[u32], out: &mut [u8]) -> u16 {
    let base = absolute.iter().min().map_or(0, |&first| first / 8);
    // Without a fork, or with all of them further on than B can say, all are far.
    let base = u16::try_from(base).unwrap_or(0);
    for (out, fork) in out.iter_mut().zip(absolute) {
        let bits = fork.saturating_sub(8 * u32::from(base));
        *out = u8::try_from(bits).unwrap_or(FAR);
    }
    base
}

/// The absolute fork of entry number `index`; `None` where its byte does not tell.
pub(crate) fn absolute(forks: &[u8], base: u16, index: usize) -> Option<u32> {
    let &fork = forks.get(index).filter(|&&fork| fork != FAR)?;
    Some(8 * u32::from(base) + u32::from(fork))
}

/// The bits of a key that forks may ask for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    bytes: [u8; 32],
}

impl Window {
    /// Those of `key` behind `base` bytes.
    #[inline]
    pub(crate) fn new(key: &[u8], base: u16) -> Self {
        let rest = key.get(usize::from(base)..).unwrap_or_default();
        let mut bytes = [0; 32];
        if let Some(first) = rest.first_chunk() {
            bytes = *first;
        } else if let Some(start) = bytes.get_mut(..rest.len()) {
            start.copy_from_slice(rest);
        }
        Self { bytes }
    }

    /// Whether bit number `fork` is set.
    #[inline]
    fn is_set(&self, fork: u8) -> bool {
        let byte = self.bytes.get(usize::from(fork / 8)).copied().unwrap_or(0);
        fork != FAR && byte >> (7 - fork % 8) & 1 == 1
    }

    /// The entry of a segment with these forks that the search comes to: none of a crowd but its first.
    #[inline]
    pub(crate) fn candidate(&self, forks: &[u8], entries: usize) -> usize {
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
        match *forks.as_chunks().0 {
            [first] => return descend(&[first], entries, |fork| self.is_set(fork)),
            [first, second] => return descend(&[first, second], entries, |fork| self.is_set(fork)),
            [first, second, third, fourth] => {
                return descend(&[first, second, third, fourth], entries, |fork| self.is_set(fork));
            }
            _ => {}
        }
        self.candidate_one_by_one(forks, entries)
    }

    /// [`candidate`](Self::candidate), one entry after the other.
    fn candidate_one_by_one(&self, forks: &[u8], entries: usize) -> usize {
        let (mut leaf, mut at) = (0, 1);
        while at < entries {
            let fork = forks.get(at).copied().unwrap_or(0);
            if self.is_set(fork) {
                leaf = at;
                at += 1;
            } else {
                // All that parts from here on later than at this fork has the bit set.
                at = first_of(mask_less(forks, fork) & !below(at + 1)).min(entries);
            }
        }
        leaf
    }
}

/// What a difference in bit number `bit` of the whole keys says to forks that are counted from byte `base`; `None` for no
/// difference.
#[inline]
pub(crate) fn side(base: u16, bit: Option<u32>) -> Side {
    let Some(bit) = bit else { return Side::Far };
    match bit.checked_sub(8 * u32::from(base)) {
        None => Side::At(0),
        // One more, so that all forks up to this one are smaller.
        Some(bit) => u8::try_from(bit + 1).map_or(Side::Far, Side::At),
    }
}

/// Where a key differs from the entry that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// At a bit in front of all forks that are at least this.
    At(u8),
    /// Behind all bits that forks tell of, or nowhere.
    Far,
}

/// The first entry behind the subtree around entry number `leaf` whose keys share all bits before the fork `side`.
#[inline]
pub(crate) fn behind(forks: &[u8], entries: usize, leaf: usize, side: u8) -> usize {
    first_of(mask_less(forks, side) & !below(leaf + 1)).min(entries)
}

/// The first entry of that subtree.
#[inline]
pub(crate) fn front(forks: &[u8], leaf: usize, side: u8) -> usize {
    (mask_less(forks, side) & below(leaf + 1) & !1).checked_ilog2().unwrap_or(0) as usize
}

/// The number of the first bit set; 64 if there is none.
#[inline]
fn first_of(mask: u64) -> usize {
    mask.trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use bolide_base::key_bits::first_difference;
    use bolide_storage::SimRng;

    use super::*;

    /// Sorted keys of one segment and one before it.
    fn random_keys(rng: &mut SimRng) -> Vec<Vec<u8>> {
        let prefix = vec![b'p'; rng.below(40) as usize];
        let letters = 1 + rng.below(255);
        let (len, count) = (1 + rng.below(60), 2 + rng.below(80));
        let mut key = || {
            let mut key = prefix.clone();
            key.extend((0..rng.below(len)).map(|_| rng.below(letters) as u8));
            key
        };
        let mut keys: Vec<_> = (0..count).map(|_| key()).collect();
        keys.sort();
        keys
    }

    #[test]
    fn one_comparison_tells_the_place_of_any_key() {
        let mut compared_further = 0;
        for seed in 0..3_000 {
            let mut rng = SimRng::new(seed);
            let keys = random_keys(&mut rng);
            let absolute: Vec<u32> = keys
                .windows(2)
                .map(|pair| first_difference(&pair[0], &pair[1]).unwrap_or(NO_FORK))
                .take(64)
                .collect();
            let (before, entries) = (&keys[0], &keys[1..=absolute.len()]);
            let mut forks = [FAR; 64];
            let base = encode(&absolute, &mut forks);
            let mut probes: Vec<Vec<u8>> = entries.to_vec();
            probes.extend(random_keys(&mut rng));
            probes.extend(entries.iter().map(|key| [&key[..], &[0]].concat()));
            for probe in probes.iter().filter(|probe| *probe >= before) {
                let wanted = entries.partition_point(|key| key < probe);
                let window = Window::new(probe, base);
                let leaf = window.candidate(&forks, entries.len());
                assert_eq!(leaf, window.candidate_one_by_one(&forks, entries.len()), "seed {seed}");
                for width in [16, 32].into_iter().filter(|&width| width >= entries.len()) {
                    assert_eq!(leaf, window.candidate(&forks[..width], entries.len()), "seed {seed}");
                }
                let order = entries[leaf].cmp(probe);
                match side(base, first_difference(&entries[leaf], probe)) {
                    Side::At(side) if order.is_lt() => {
                        assert_eq!(behind(&forks, entries.len(), leaf, side), wanted, "seed {seed}");
                    }
                    Side::At(side) => assert_eq!(front(&forks, leaf, side), wanted, "seed {seed}"),
                    Side::Far => {
                        let end = behind(&forks, entries.len(), leaf, FAR);
                        assert!((leaf..=end).contains(&wanted), "seed {seed}");
                        compared_further += usize::from(end > leaf + 1);
                    }
                }
            }
        }
        assert!(compared_further > 1_000, "{compared_further}");
    }

    #[test]
    fn lying_forks_end_a_search_within_the_segment() {
        for seed in 0..2_000 {
            let mut rng = SimRng::new(seed);
            let mut forks = [0; 64];
            forks.iter_mut().for_each(|fork| *fork = rng.below(256) as u8);
            let entries = 1 + rng.below(64) as usize;
            let key: Vec<u8> = (0..rng.below(50)).map(|_| rng.below(256) as u8).collect();
            let window = Window::new(&key, rng.below(20) as u16);
            let leaf = window.candidate(&forks, entries);
            assert!(leaf < entries && window.candidate_one_by_one(&forks, entries) < entries);
            let side = rng.below(256) as u8;
            assert!(behind(&forks, entries, leaf, side) <= entries);
            assert!(front(&forks, leaf, side) <= leaf);
        }
    }

    #[test]
    fn forks_further_on_than_their_base_can_say_are_far() {
        let mut forks = [0; 3];
        assert_eq!(encode(&[8 * 70_000, NO_FORK, 8 * 70_001], &mut forks), 0);
        assert_eq!(forks, [FAR; 3]);
        assert_eq!(encode(&[17, 8 * 2 + 254, 8 * 2 + 255], &mut forks), 2);
        assert_eq!(forks, [1, 254, FAR]);
        assert_eq!(encode(&[NO_FORK; 3], &mut forks), 0);
        assert_eq!(forks, [FAR; 3]);
    }
}
