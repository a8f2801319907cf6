//! Anchor keys: the first key of each segment. A search begins with a binary search over them.
//!
//! ```text
//! anchors  := one for each segment, in order
//! anchor   := shared varint, length varint, bytes [sequence varint]
//! shared      bytes shared with the previous anchor, shifted left by one; bit 0: a sequence number follows
//! ```
//!
//! An anchor without a sequence number sorts before all versions of its key. An anchor has a sequence number if the
//! versions of its key continue from the previous segment: it is that of the segment's first entry.

use std::cmp::Ordering;
use std::sync::Arc;

use bolide_base::SequenceNumber;
use bolide_base::coding::{Decoder, put_bytes, put_varint};
use bolide_base::limits::MAX_TREE_KEY_BYTES;
use bolide_memory::{LargeArray, MemoryPool};

use crate::key_heads::{KeyHeads, SampleRank};

/// The anchors of a REMIX in memory: an array of the eight-byte heads of the keys, and the concatenated rests.
#[derive(Debug)]
pub(crate) struct Anchors {
    heads: KeyHeads,
    /// For each key, the bytes after the shared prefix and the head. For a key too short to fill the head, the bytes
    /// after the shared prefix.
    rests: LargeArray<u8>,
    /// The end of each rest in `rests`, with [`SHORT`] set if the key does not fill the head.
    ends: LargeArray<u32>,
    /// Sequence numbers of the anchors that have one, by segment.
    exact: Box<[(u32, SequenceNumber)]>,
}

/// The bit of an end that marks a key too short for a head.
const SHORT: u32 = 1 << 31;
/// The length of a head in bytes.
const HEAD_BYTES: usize = 8;

/// Anchors under construction.
#[derive(Debug, Default)]
pub(crate) struct AnchorList {
    keys: Vec<u8>,
    ends: Vec<u32>,
    exact: Vec<(u32, SequenceNumber)>,
}

impl AnchorList {
    /// Adds the anchor of the next segment. Returns false if the keys together are too long.
    pub(crate) fn push(&mut self, key: &[u8], sequence: Option<SequenceNumber>) -> bool {
        let (Ok(number), Ok(end)) =
            (u32::try_from(self.ends.len()), u32::try_from(self.keys.len() + key.len()))
        else {
            return false;
        };
        if end >= SHORT {
            return false;
        }
        self.keys.extend_from_slice(key);
        self.ends.push(end);
        self.exact.extend(sequence.map(|sequence| (number, sequence)));
        true
    }

    fn key(&self, index: usize) -> &[u8] {
        bytes_between(
            &self.keys,
            index.checked_sub(1).and_then(|before| self.ends.get(before)),
            self.ends.get(index),
        )
    }

    pub(crate) fn finish(self) -> Anchors {
        let heads = KeyHeads::new((0..self.ends.len()).map(|index| self.key(index)));
        let skipped = heads.shared().len() + HEAD_BYTES;
        let mut rests = Vec::new();
        let mut ends = Vec::with_capacity(self.ends.len());
        for index in 0..self.ends.len() {
            let key = self.key(index);
            let (rest, short) = match key.get(skipped..) {
                Some(rest) => (rest, 0),
                None => (key.get(heads.shared().len()..).unwrap_or_default(), SHORT),
            };
            rests.extend_from_slice(rest);
            // Not longer than all keys together, which `push` limits.
            ends.push(rests.len() as u32 | short);
        }
        Anchors { heads, rests: rests.into(), ends: ends.into(), exact: self.exact.into() }
    }
}

#[inline]
fn bytes_between<'a>(bytes: &'a [u8], start: Option<&u32>, end: Option<&u32>) -> &'a [u8] {
    let offset = |end: &u32| (end & !SHORT) as usize;
    bytes.get(start.map_or(0, offset)..end.map_or(0, offset)).unwrap_or_default()
}

impl Anchors {
    /// The same anchors in the memory of `pool`.
    #[must_use]
    pub(crate) fn moved_to(self, pool: &Arc<MemoryPool>) -> Self {
        let (heads, rests) = (self.heads.moved_to(pool), self.rests.moved_to(pool));
        Self { heads, rests, ends: self.ends.moved_to(pool), ..self }
    }

    /// The number of anchors: one for each segment.
    pub(crate) fn count(&self) -> usize {
        self.ends.len()
    }

    /// The head of anchor number `index` and the bytes after it; `None` if its key is too short for a head.
    #[inline]
    fn parts(&self, index: usize) -> Option<([u8; HEAD_BYTES], &[u8])> {
        let end = self.ends.get(index)?;
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before));
        let rest = bytes_between(&self.rests, start, Some(end));
        (end & SHORT == 0).then(|| (self.heads.head(index), rest))
    }

    /// The bytes after the shared prefix of a key too short for a head.
    #[inline]
    fn short(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before));
        bytes_between(&self.rests, start, self.ends.get(index))
    }

    /// The key of anchor number `index`; empty after the last.
    pub(crate) fn key(&self, index: usize) -> Vec<u8> {
        if index >= self.count() {
            return Vec::new();
        }
        match self.parts(index) {
            Some((head, rest)) => [self.heads.shared(), &head, rest].concat(),
            None => [self.heads.shared(), self.short(index)].concat(),
        }
    }

    /// Compares the key of anchor number `index` with `key`.
    #[inline]
    fn compare(&self, index: usize, key: &[u8]) -> Ordering {
        let shared = self.heads.shared();
        let Some(suffix) = key.strip_prefix(shared) else { return shared.cmp(key) };
        match (self.parts(index), suffix.split_first_chunk()) {
            (Some((head, rest)), Some((first, behind))) => head.cmp(first).then_with(|| rest.cmp(behind)),
            (Some((head, _)), None) => head.as_slice().cmp(suffix),
            (None, _) => self.short(index).cmp(suffix),
        }
    }

    /// The sequence number of anchor number `index`, if it has one.
    #[inline]
    pub(crate) fn sequence(&self, index: usize) -> Option<SequenceNumber> {
        if self.exact.is_empty() {
            return None;
        }
        let found = self.exact.binary_search_by_key(&index, |&(number, _)| number as usize).ok()?;
        self.exact.get(found).map(|&(_, sequence)| sequence)
    }

    /// The number of anchors before `(key, sequence)` in tree order. An anchor without a sequence number is before all
    /// versions of its key. The first entry at or after `(key, sequence)` is in the segment of the last of these
    /// anchors, or is the first entry of the next segment. (Two merge operands of a key may have equal sequence numbers:
    /// the anchor of a segment that starts with the second is not before them.)
    #[inline]
    pub(crate) fn count_through(&self, key: &[u8], sequence: SequenceNumber) -> usize {
        self.count_through_near(self.near(key), key, sequence)
    }

    /// As [`count_through`](Self::count_through), if at least `from` anchors are known to be before it. Fast if few more
    /// are.
    #[inline]
    pub(crate) fn count_through_from(&self, from: usize, key: &[u8], sequence: SequenceNumber) -> usize {
        self.heads.count_before_from(from, key, |index| self.is_before(index, key, sequence))
    }

    /// The first half of [`count_through`](Self::count_through). Prefetches what the second half reads.
    #[inline]
    pub(crate) fn near(&self, key: &[u8]) -> SampleRank {
        let near = self.heads.sample_rank(key);
        self.heads.prefetch(near);
        near
    }

    /// The second half, from the result of [`near`](Self::near) for `key`.
    #[inline]
    pub(crate) fn count_through_near(&self, near: SampleRank, key: &[u8], sequence: SequenceNumber) -> usize {
        self.heads.count_before_ranked(near, key, |index| self.is_before(index, key, sequence))
    }

    /// Whether anchor number `index` is before `(key, sequence)`.
    #[inline]
    fn is_before(&self, index: usize, key: &[u8], sequence: SequenceNumber) -> bool {
        match self.compare(index, key) {
            Ordering::Equal => self.sequence(index).is_none_or(|anchor| anchor > sequence),
            order => order == Ordering::Less,
        }
    }

    /// Whether anchor number `index` has a sequence number and this key: the key's versions continue in its segment.
    #[inline]
    pub(crate) fn continues(&self, index: usize, key: &[u8]) -> bool {
        !self.exact.is_empty() && self.sequence(index).is_some() && self.compare(index, key).is_eq()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        // The heads take eight bytes each.
        self.rests.len() + (4 + HEAD_BYTES) * self.ends.len() + size_of_val(&*self.exact)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut before = Vec::new();
        for index in 0..self.count() {
            let key = self.key(index);
            let shared = key.iter().zip(&before).take_while(|(left, right)| left == right).count();
            let sequence = self.sequence(index);
            put_varint(&mut out, (shared as u64) << 1 | u64::from(sequence.is_some()));
            put_bytes(&mut out, key.get(shared..).unwrap_or_default());
            sequence.into_iter().for_each(|sequence| put_varint(&mut out, sequence));
            before = key;
        }
        out
    }

    /// Decodes `count` anchors. `None` unless they fill `payload` and ascend. `starts_old` returns whether the first
    /// entry of a segment is an old version: exactly then its anchor has a sequence number.
    pub(crate) fn decode(payload: &[u8], count: usize, starts_old: impl Fn(usize) -> bool) -> Option<Self> {
        let mut input = Decoder::new(payload);
        let mut list = AnchorList::default();
        let mut key = Vec::new();
        let mut last: Option<SequenceNumber> = None;
        for index in 0..count {
            let word = input.length(2 * MAX_TREE_KEY_BYTES + 1)?;
            let rest = input.bytes()?;
            let shared = word >> 1;
            if shared > key.len() || shared + rest.len() > MAX_TREE_KEY_BYTES {
                return None;
            }
            let order = key.get(shared..).unwrap_or_default().cmp(rest);
            key.truncate(shared);
            key.extend_from_slice(rest);
            let sequence = if word & 1 == 1 { Some(input.varint()?) } else { None };
            let ascends = index == 0
                || order == Ordering::Less
                || (order == Ordering::Equal
                    && sequence.is_some_and(|sequence| last.is_none_or(|last| sequence <= last)));
            if !ascends || sequence.is_some() != starts_old(index) || !list.push(&key, sequence) {
                return None;
            }
            last = sequence;
        }
        input.is_empty().then(|| list.finish())
    }
}

#[cfg(test)]
mod tests {
    use bolide_base::MAX_SEQUENCE;

    use super::*;

    fn sample() -> Anchors {
        let mut list = AnchorList::default();
        for (key, sequence) in [
            (&b"apple"[..], None),
            (b"apply", None),
            (b"apply", Some(40)),
            (b"apply", Some(12)),
            (b"b", None),
        ] {
            assert!(list.push(key, sequence));
        }
        list.finish()
    }

    #[test]
    fn a_search_counts_the_anchors_before_a_key() {
        let anchors = sample();
        for (key, sequence, through) in [
            (&b"a"[..], 0, 0),
            (b"apple", MAX_SEQUENCE, 1),
            (b"apple", 0, 1),
            (b"apply", MAX_SEQUENCE, 2),
            (b"apply", 41, 2),
            (b"apply", 40, 2),
            (b"apply", 39, 3),
            (b"apply", 13, 3),
            (b"apply", 12, 3),
            (b"apply", 11, 4),
            (b"apply", 0, 4),
            (b"az", 7, 4),
            (b"b", MAX_SEQUENCE, 5),
            (b"zzz", 0, 5),
        ] {
            assert_eq!(anchors.count_through(key, sequence), through, "{}#{sequence}", key.escape_ascii());
        }
        assert!(anchors.continues(3, b"apply") && !anchors.continues(1, b"apply"));
    }

    #[test]
    fn keys_of_all_lengths_round_trip_and_compare_bytewise() {
        for seed in 0..300 {
            let mut rng = bolide_storage::SimRng::new(seed);
            let shared = vec![b's'; rng.below(12) as usize];
            let mut random_key = || {
                let mut key = shared.clone();
                key.extend((0..rng.below(14)).map(|_| rng.below(3) as u8));
                key
            };
            let mut keys: Vec<_> = (0..60).map(|_| random_key()).collect();
            let probes: Vec<_> = (0..60).map(|_| random_key()).chain([Vec::new(), b"t".to_vec()]).collect();
            keys.sort();
            keys.dedup();
            let mut list = AnchorList::default();
            assert!(keys.iter().all(|key| list.push(key, None)));
            let anchors = list.finish();
            for (index, key) in keys.iter().enumerate() {
                assert_eq!(&anchors.key(index), key, "seed {seed}");
                for probe in probes.iter().chain(&keys) {
                    assert_eq!(anchors.compare(index, probe), key.cmp(probe), "seed {seed}");
                }
            }
            assert!(anchors.key(keys.len()).is_empty());
            for probe in probes.iter().chain(&keys) {
                let through = keys.partition_point(|key| key <= probe);
                assert_eq!(anchors.count_through(probe, MAX_SEQUENCE), through, "seed {seed}");
            }
        }
    }

    #[test]
    fn anchors_round_trip_and_damage_is_rejected_or_harmless() {
        let anchors = sample();
        let bytes = anchors.encode();
        let old = |index: usize| index == 2 || index == 3;
        let again = Anchors::decode(&bytes, 5, old).unwrap();
        assert_eq!(again.encode(), bytes);
        assert!(Anchors::decode(&bytes, 4, old).is_none());
        assert!(Anchors::decode(&bytes, 5, |_| false).is_none());
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                drop(Anchors::decode(&damaged, 5, old));
            }
            assert!(Anchors::decode(&bytes[..at], 5, old).is_none());
        }
    }
}
