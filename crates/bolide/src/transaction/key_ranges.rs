//! A set of keys as disjoint ranges.

use std::collections::BTreeMap;
use std::ops::Bound;

/// Memory of a range beside its keys, in bytes.
const RANGE_BYTES: usize = 64;

/// Disjoint ranges of keys, each from a first key to an exclusive end. Ranges that touch are merged.
#[derive(Debug, Clone, Default)]
pub(super) struct KeyRanges {
    ends: BTreeMap<Vec<u8>, Vec<u8>>,
    bytes: usize,
}

impl KeyRanges {
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The memory of the ranges, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the keys from `start` to `end`, exclusive.
    pub(super) fn insert(&mut self, start: &[u8], end: &[u8]) {
        if start >= end {
            return;
        }
        let (mut start, mut end) = (start.to_vec(), end.to_vec());
        while let Some((first, behind)) = self.touching(&start, &end) {
            self.ends.remove(&first);
            self.bytes -= range_bytes(&first, &behind);
            start = start.min(first);
            end = end.max(behind);
        }
        self.bytes += range_bytes(&start, &end);
        self.ends.insert(start, end);
    }

    /// The last range that touches `start..end`.
    fn touching(&self, start: &[u8], end: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let (first, behind) =
            self.ends.range::<[u8], _>((Bound::Unbounded, Bound::Included(end))).next_back()?;
        (&behind[..] >= start).then(|| (first.clone(), behind.clone()))
    }

    /// The ranges, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.ends.iter().map(|(start, end)| (&start[..], &end[..]))
    }

    /// The range that contains `key`.
    pub(super) fn around(&self, key: &[u8]) -> Option<(&[u8], &[u8])> {
        let (first, end) =
            self.ends.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
        (key < &end[..]).then_some((first, end))
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.around(key).is_some()
    }

    /// The common keys with `start..end`, as ranges in ascending order.
    pub(super) fn common<'r>(
        &'r self,
        start: &'r [u8],
        end: &'r [u8],
    ) -> impl Iterator<Item = (&'r [u8], &'r [u8])> {
        let before = self.around(start).map(|(_, behind)| (start, behind.min(end)));
        let inside =
            (start < end).then(|| self.ends.range::<[u8], _>((Bound::Excluded(start), Bound::Excluded(end))));
        let inside =
            inside.into_iter().flatten().map(move |(first, behind)| (&first[..], (&behind[..]).min(end)));
        before.filter(|_| start < end).into_iter().chain(inside)
    }
}

fn range_bytes(start: &[u8], end: &[u8]) -> usize {
    RANGE_BYTES + start.len() + end.len()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bolide_storage::SimRng;

    use super::*;

    #[test]
    fn ranges_equal_a_set_of_keys() {
        for seed in 0..200 {
            let mut rng = SimRng::new(seed);
            let (mut ranges, mut keys) = (KeyRanges::default(), BTreeSet::new());
            for _ in 0..12 {
                let (start, end) = (rng.below(40) as u8, rng.below(40) as u8);
                ranges.insert(&[start], &[end]);
                keys.extend(start..end);
                for key in 0..41 {
                    assert_eq!(ranges.contains(&[key]), keys.contains(&key), "seed {seed}");
                }
                let (low, behind) = (rng.below(40) as u8, rng.below(40) as u8);
                let common =
                    ranges.common(&[low], &[behind]).flat_map(|(first, end)| first[0]..end[0]).collect();
                let want: BTreeSet<u8> =
                    keys.iter().copied().filter(|key| (low..behind).contains(key)).collect();
                assert_eq!(want, common, "seed {seed}");
                assert_eq!(ranges.bytes, ranges.ends.len() * (RANGE_BYTES + 2), "seed {seed}");
            }
        }
    }
}
