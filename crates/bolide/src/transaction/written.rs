//! The writes of other commits to collections that a transaction has read, for comparisons with records.

use std::collections::{BTreeMap, BTreeSet};

use bolide_base::{SequenceNumber, TreeId};

use super::key_ranges::KeyRanges;

/// The keys and ranges that other commits wrote, by the tree of the records.
#[derive(Debug, Default)]
pub(super) struct WrittenByOthers<'c> {
    /// Written keys, of collections with queries.
    pub(super) keys: BTreeMap<TreeId, BTreeSet<&'c [u8]>>,
    pub(super) deleted: BTreeMap<TreeId, RangesDeletedByOthers<'c>>,
}

/// Deleted ranges of one collection. Those that overlap are one, so that no record is read twice.
#[derive(Debug, Default)]
pub(super) struct RangesDeletedByOthers<'c> {
    merged: KeyRanges,
    /// Each range with the last sequence number of its commit.
    each: Vec<(&'c [u8], &'c [u8], SequenceNumber)>,
}

impl<'c> RangesDeletedByOthers<'c> {
    /// Adds the keys from `start` to `end`, exclusive, which the commit with this last sequence number deleted.
    pub(super) fn insert(&mut self, start: &'c [u8], end: &'c [u8], sequence: SequenceNumber) {
        self.merged.insert(start, end);
        self.each.push((start, end, sequence));
    }

    /// The disjoint ranges, ascending.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.merged.iter()
    }

    /// The last sequence number of the first commit that deleted `key`.
    pub(super) fn commit_of(&self, key: &[u8]) -> SequenceNumber {
        let of_key = self.each.iter().find(|(start, end, _)| (*start..*end).contains(&key));
        of_key.map_or(0, |(_, _, sequence)| *sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_ranges_are_one_and_keep_their_commits() {
        let mut deleted = RangesDeletedByOthers::default();
        for (start, end, sequence) in [("d", "g", 5), ("a", "c", 6), ("b", "e", 7), ("m", "n", 8)] {
            deleted.insert(start.as_bytes(), end.as_bytes(), sequence);
        }
        let ranges: Vec<_> = deleted.ranges().collect();
        assert_eq!(ranges, [(&b"a"[..], &b"g"[..]), (b"m", b"n")]);
        let commits = [b"a", b"b", b"c", b"d", b"f", b"m"].map(|key| deleted.commit_of(key));
        assert_eq!(commits, [6, 6, 7, 5, 5, 8]);
    }
}
