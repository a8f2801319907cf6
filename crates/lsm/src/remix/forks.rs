//! Forks: the first bits in which neighbouring keys of a segment differ.
//!
//! ```text
//! forks      D bytes     for each entry, the first bit in which its key differs from the previous key, counted from
//!                        byte B of the keys; 255: a later bit, no difference, or no previous key
//! B          u16         the number of bytes equal in all keys, from the key before the segment to its last key
//! ```
//!
//! The forks of sorted keys define their binary trie: the node above two neighbouring subtrees is the fork between
//! them. A search descends this trie by the bits of its key, without key comparisons, to one entry, the leaf (as in
//! String B-trees: Ferragina and Grossi, JACM 46, 1999, §3), and compares the key with the leaf. The first differing
//! bit determines the subtree that the key precedes or follows, and so its position. The search reads one entry;
//! the binary search of REMIX §3.2 reads one entry of each run that it compares with.
//!
//! Keys are compared as if followed by zeros. An entry and the following ones whose forks are 255 form a cluster:
//! versions of a key, keys that differ only in trailing zeros, or keys that differ far behind B. Within a cluster the
//! search compares whole keys.

#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
use bolide_base::technique::Technique;

#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
use super::descent::descend;
use super::selectors::{below, mask_less};

/// The fork of an entry that does not differ from the previous one, or in a bit beyond the range of a fork.
pub(crate) const FAR: u8 = u8::MAX;

/// No bit: unknown, or no difference.
pub(crate) const NO_FORK: u32 = u32::MAX;

/// Bytes of B.
pub(crate) const BASE_BYTES: usize = 2;

/// Encodes the forks of a segment into `out` and returns B. `absolute` has a bit number or [`NO_FORK`] for each entry.
pub(crate) fn encode(absolute: &[u32], out: &mut [u8]) -> u16 {
    let base = absolute.iter().min().map_or(0, |&first| first / 8);
    // Without a fork, or with all of them beyond the range of B, all forks are FAR.
    let base = u16::try_from(base).unwrap_or(0);
    for (out, fork) in out.iter_mut().zip(absolute) {
        let bits = fork.saturating_sub(8 * u32::from(base));
        *out = u8::try_from(bits).unwrap_or(FAR);
    }
    base
}

/// The absolute fork of entry number `index`; `None` if its byte is [`FAR`].
pub(crate) fn absolute(forks: &[u8], base: u16, index: usize) -> Option<u32> {
    let &fork = forks.get(index).filter(|&&fork| fork != FAR)?;
    Some(8 * u32::from(base) + u32::from(fork))
}

/// The bits of a key that forks can test: 32 bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyWindow {
    bytes: [u8; 32],
}

impl KeyWindow {
    /// The bits of `key` from byte `base` on.
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

    /// The leaf of the descent: an entry of a segment with these forks, of a cluster its first.
    #[inline]
    pub(crate) fn candidate(&self, forks: &[u8], entries: usize) -> usize {
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
        match *forks.as_chunks().0 {
            _ if !Technique::ForkGroups.is_on() => {}
            [first] => return descend(&[first], entries, |fork| self.is_set(fork)),
            [first, second] => return descend(&[first, second], entries, |fork| self.is_set(fork)),
            [first, second, third, fourth] => {
                return descend(&[first, second, third, fourth], entries, |fork| self.is_set(fork));
            }
            _ => {}
        }
        self.candidate_portable(forks, entries)
    }

    /// [`candidate`](Self::candidate) without SIMD.
    fn candidate_portable(&self, forks: &[u8], entries: usize) -> usize {
        let (mut leaf, mut at) = (0, 1);
        while at < entries {
            let fork = forks.get(at).copied().unwrap_or(0);
            if self.is_set(fork) {
                leaf = at;
                at += 1;
            } else {
                // Skips the subtree of the keys that have the bit set.
                at = first_of(mask_less(forks, fork) & !below(at + 1)).min(entries);
            }
        }
        leaf
    }
}

/// The bound for forks counted from byte `base` if the key differs from the leaf first in bit number `bit` of the
/// whole keys; `None` means no difference.
#[inline]
pub(crate) fn fork_bound(base: u16, bit: Option<u32>) -> ForkBound {
    let Some(bit) = bit else { return ForkBound::Far };
    match bit.checked_sub(8 * u32::from(base)) {
        None => ForkBound::At(0),
        // Plus one, so that all forks up to this bit are smaller.
        Some(bit) => u8::try_from(bit + 1).map_or(ForkBound::Far, ForkBound::At),
    }
}

/// The first difference between a key and the leaf, relative to the forks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForkBound {
    /// The key differs in a bit before all forks that are at least this value.
    At(u8),
    /// The key differs after all bits of the forks, or does not differ.
    Far,
}

/// The end of the subtree around entry number `leaf` whose keys share all bits before the fork `bound`.
#[inline]
pub(crate) fn subtree_end(forks: &[u8], entries: usize, leaf: usize, bound: u8) -> usize {
    first_of(mask_less(forks, bound) & !below(leaf + 1)).min(entries)
}

/// The first entry of that subtree.
#[inline]
pub(crate) fn subtree_start(forks: &[u8], leaf: usize, bound: u8) -> usize {
    (mask_less(forks, bound) & below(leaf + 1) & !1).checked_ilog2().unwrap_or(0) as usize
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
    fn one_comparison_finds_the_position_of_any_key() {
        let mut cluster_searches = 0;
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
                let window = KeyWindow::new(probe, base);
                let leaf = window.candidate(&forks, entries.len());
                assert_eq!(leaf, window.candidate_portable(&forks, entries.len()), "seed {seed}");
                for width in [16, 32].into_iter().filter(|&width| width >= entries.len()) {
                    assert_eq!(leaf, window.candidate(&forks[..width], entries.len()), "seed {seed}");
                }
                let order = entries[leaf].cmp(probe);
                match fork_bound(base, first_difference(&entries[leaf], probe)) {
                    ForkBound::At(bound) if order.is_lt() => {
                        assert_eq!(subtree_end(&forks, entries.len(), leaf, bound), wanted, "seed {seed}");
                    }
                    ForkBound::At(bound) => {
                        assert_eq!(subtree_start(&forks, leaf, bound), wanted, "seed {seed}")
                    }
                    ForkBound::Far => {
                        let end = subtree_end(&forks, entries.len(), leaf, FAR);
                        assert!((leaf..=end).contains(&wanted), "seed {seed}");
                        cluster_searches += usize::from(end > leaf + 1);
                    }
                }
            }
        }
        assert!(cluster_searches > 1_000, "{cluster_searches}");
    }

    #[test]
    fn a_search_by_invalid_forks_ends_within_the_segment() {
        for seed in 0..2_000 {
            let mut rng = SimRng::new(seed);
            let mut forks = [0; 64];
            forks.iter_mut().for_each(|fork| *fork = rng.below(256) as u8);
            let entries = 1 + rng.below(64) as usize;
            let key: Vec<u8> = (0..rng.below(50)).map(|_| rng.below(256) as u8).collect();
            let window = KeyWindow::new(&key, rng.below(20) as u16);
            let leaf = window.candidate(&forks, entries);
            assert!(leaf < entries && window.candidate_portable(&forks, entries) < entries);
            let bound = rng.below(256) as u8;
            assert!(subtree_end(&forks, entries, leaf, bound) <= entries);
            assert!(subtree_start(&forks, leaf, bound) <= leaf);
        }
    }

    #[test]
    fn forks_beyond_the_range_of_their_base_are_far() {
        let mut forks = [0; 3];
        assert_eq!(encode(&[8 * 70_000, NO_FORK, 8 * 70_001], &mut forks), 0);
        assert_eq!(forks, [FAR; 3]);
        assert_eq!(encode(&[17, 8 * 2 + 254, 8 * 2 + 255], &mut forks), 2);
        assert_eq!(forks, [1, 254, FAR]);
        assert_eq!(encode(&[NO_FORK; 3], &mut forks), 0);
        assert_eq!(forks, [FAR; 3]);
    }
}
