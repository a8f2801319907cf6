//! Buffers the secondary keys of an sstable with their entries, and sorts them.
//!
//! The sort is on the path of a flush, and writers may wait for the flush; comparing whole keys would take more than half of
//! the time of building index blocks. So each buffered key has its first eight bytes as an integer, its *head*. An in-place
//! most-significant-digit radix sort partitions the keys by the bits of the head that differ; partitions of some hundreds are
//! sorted by head and sequence number. Whole keys are compared only if heads are equal.

use std::cmp::Reverse;

use bolide_base::technique::Technique;

use super::key_block::VersionEntry;

/// Maximum total bytes of keys; an sstable with more gets no index blocks.
const MAX_KEY_BYTES: usize = 1 << 30;
/// Bits of a radix digit.
const DIGIT_BITS: u32 = 10;
const PARTITIONS: usize = 1 << DIGIT_BITS;
/// Fewer keys than this are sorted by comparison.
const SMALL: usize = 512;

/// A secondary key of a version.
#[derive(Debug, Clone, Copy)]
struct BufferedKey {
    /// The first bytes of the key as an integer with the same order, except that keys may differ in trailing zeros.
    head: u64,
    /// Offset and length of the key.
    at: u32,
    len: u32,
    entry: VersionEntry,
}

impl BufferedKey {
    /// Sorts by head, then newest first.
    #[inline]
    fn sort_key(&self) -> u128 {
        u128::from(self.head) << u64::BITS | u128::from(!self.entry.sequence)
    }
}

/// The secondary keys of an sstable in insertion order.
#[derive(Debug, Default)]
pub(super) struct BufferedKeys {
    /// The bytes of all keys.
    bytes: Vec<u8>,
    keys: Vec<BufferedKey>,
}

impl BufferedKeys {
    /// Appends `key` with its entry. False if the total of key bytes is exceeded.
    #[inline]
    pub(super) fn add(&mut self, key: &[u8], entry: VersionEntry) -> bool {
        let (at, len) = (self.bytes.len(), key.len());
        if at + len > MAX_KEY_BYTES {
            return false;
        }
        self.bytes.extend_from_slice(key);
        self.keys.push(BufferedKey { head: head(key), at: at as u32, len: len as u32, entry });
        true
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// All keys with their entries, in insertion order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], VersionEntry)> {
        self.keys.iter().map(|buffered| (key(&self.bytes, buffered), buffered.entry))
    }

    /// Calls `visit` with all keys and entries, sorted by key and then newest first. The flag is true if the key differs from
    /// the previous one. O(n) for keys that differ in their first bytes, O(n log n) at most.
    pub(super) fn visit_sorted<'n>(&'n mut self, mut visit: impl FnMut(&'n [u8], bool, VersionEntry)) {
        let Self { bytes, keys } = self;
        let bytes: &'n [u8] = bytes;
        sort(keys);
        for group in keys.chunk_by_mut(|left, right| left.head == right.head) {
            let Some(first) = group.first().map(|buffered| key(bytes, buffered)) else { continue };
            let is_one_key = group.iter().skip(1).all(|buffered| key(bytes, buffered) == first);
            if is_one_key {
                let mut is_new_key = true;
                for buffered in &*group {
                    visit(first, std::mem::take(&mut is_new_key), buffered.entry);
                }
                continue;
            }
            group.sort_unstable_by_key(|buffered| (key(bytes, buffered), Reverse(buffered.entry.sequence)));
            let mut previous = None;
            for buffered in &*group {
                let key = key(bytes, buffered);
                visit(key, previous.replace(key) != Some(key), buffered.entry);
            }
        }
    }
}

#[inline]
fn head(key: &[u8]) -> u64 {
    if let Some(head) = key.first_chunk() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0; size_of::<u64>()];
    for (to, from) in head.iter_mut().zip(key) {
        *to = *from;
    }
    u64::from_be_bytes(head)
}

#[inline]
fn key<'n>(bytes: &'n [u8], key: &BufferedKey) -> &'n [u8] {
    bytes.get(key.at as usize..).and_then(|rest| rest.get(..key.len as usize)).unwrap_or_default()
}

/// Sorts by head, then newest first. The recursion is as deep as a head has digits.
fn sort(keys: &mut [BufferedKey]) {
    let Some(first) = keys.first().map(|key| key.head) else { return };
    let differing = keys.iter().fold(0, |bits, key| bits | (key.head ^ first));
    if keys.len() < SMALL || differing == 0 || !Technique::KeySortByBits.is_on() {
        return keys.sort_unstable_by_key(BufferedKey::sort_key);
    }
    let shift = (u64::BITS - differing.leading_zeros()).saturating_sub(DIGIT_BITS);
    let partition = |key: &BufferedKey| (key.head >> shift) as usize % PARTITIONS;
    let mut ends = [0; PARTITIONS];
    keys.iter().for_each(|key| ends[partition(key)] += 1);
    let mut total = 0;
    let mut free = [0; PARTITIONS];
    for (free, end) in free.iter_mut().zip(&mut ends) {
        *free = total;
        total += *end;
        *end = total;
    }
    // Cycle-leader permutation: each swap moves a key to its partition, until this position has one of its own.
    for number in 0..PARTITIONS {
        while free[number] < ends[number] {
            let at = free[number];
            let target = partition(&keys[at]);
            keys.swap(at, free[target]);
            free[target] += 1;
        }
    }
    let mut rest = keys;
    let mut start = 0;
    for end in ends {
        let (front, remaining) = std::mem::take(&mut rest).split_at_mut(end - start);
        (rest, start) = (remaining, end);
        sort(front);
    }
}

#[cfg(test)]
mod tests {
    use bolide_storage::SimRng;

    use super::*;

    /// Keys of many sorts, some of them prefixes of others.
    fn random_key(rng: &mut SimRng, sort: u64) -> Vec<u8> {
        let number = match rng.below(4) {
            0 => rng.below(10),
            1 => rng.below(1 << 16),
            _ => rng.below(1 << 40),
        };
        let bytes = number.to_be_bytes();
        match sort {
            0 => bytes.to_vec(),
            1 => [b"shared by all", &bytes[..]].concat(),
            2 => vec![0; number as usize % 12],
            3 => bytes[8 - rng.below(9) as usize..].to_vec(),
            4 => b"the only key".to_vec(),
            _ => [&(number % 7).to_be_bytes()[..], &b"kkkk"[..number as usize % 5]].concat(),
        }
    }

    #[test]
    fn keys_are_sorted_as_by_comparison() {
        for seed in 0..60 {
            let mut rng = SimRng::new(seed);
            let mut keys = BufferedKeys::default();
            let mut expected = Vec::new();
            let count = [0, 1, 2, 100, SMALL as u64, 3_000, 20_000][seed as usize % 7];
            for number in 0..count {
                let key = random_key(&mut rng, seed % 6);
                // A record with an array of two values has the same entry under two keys.
                let sequence = if rng.below(8) == 0 { rng.below(count) } else { number * 7919 % count };
                let entry = VersionEntry { sequence, block: number as u32, entry: 3, repeated: false };
                assert!(keys.add(&key, entry));
                expected.push((key, Reverse(sequence)));
            }
            expected.sort();
            let mut found = Vec::new();
            keys.visit_sorted(|key, is_new_key, entry| {
                assert_eq!(is_new_key, found.last().is_none_or(|(last, _)| last != key), "seed {seed}");
                found.push((key.to_vec(), Reverse(entry.sequence)));
            });
            assert!(found == expected, "seed {seed}");
        }
    }
}
