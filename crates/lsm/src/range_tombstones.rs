//! The deleted key ranges of one tree.
//!
//! A range tombstone hides every older version of every key in its range. It stays in this ledger, apart from the sstables,
//! until it hides nothing any more.
//!
//! # Structure
//! The tombstones are stored in groups of descending size, each at least twice as large as the next (Bentley and Saxe's
//! logarithmic method), so adding one has an amortised logarithmic cost. A group of more than `PLAIN_GROUP` tombstones is a
//! segment tree over the ends of its ranges: each range is stored at the O(log n) nodes that compose it, and a key is covered
//! by the O(log n) nodes above its elementary interval. The sequence numbers of each node are sorted, so "the newest at or
//! below S" is a binary search.
//!
//! * `newest_covering`: O(log² n) for present reads, O(log³ n) for past ones, without allocation; constant for an empty set.
//! * memory: O(n log n) numbers, however much the ranges overlap.
//! * Groups are immutable and shared: a clone copies some pointers.

use std::sync::Arc;

use bolide_base::limits::MAX_RANGE_TOMBSTONES;
use bolide_base::{Error, Result, SequenceNumber};

use crate::key_heads::KeyHeads;

/// Groups up to this size are searched linearly.
const PLAIN_GROUP: usize = 8;

/// A deleted range of user keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RangeTombstone {
    /// The first deleted key.
    pub start: Vec<u8>,
    /// The first key behind the range.
    pub end: Vec<u8>,
    /// Versions of these keys with a smaller sequence number are deleted.
    pub sequence: SequenceNumber,
}

impl RangeTombstone {
    /// True if `key` is in the range.
    #[inline]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start.as_slice() <= key && key < self.end.as_slice()
    }

    /// True if the range has a key in common with `smallest..=largest`.
    pub fn overlaps(&self, smallest: &[u8], largest: &[u8]) -> bool {
        self.start.as_slice() <= largest && smallest < self.end.as_slice()
    }
}

/// A set of range tombstones, searchable by key.
#[derive(Debug, Clone, Default)]
pub struct RangeTombstones {
    /// Largest first.
    groups: Vec<Arc<TombstoneGroup>>,
    count: usize,
}

impl RangeTombstones {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The set of these tombstones. Empty ranges are skipped.
    ///
    /// # Errors
    /// LimitExceeded over [`MAX_RANGE_TOMBSTONES`].
    pub fn from_tombstones(tombstones: impl IntoIterator<Item = RangeTombstone>) -> Result<Self> {
        let all: Vec<_> = tombstones.into_iter().filter(|one| one.start < one.end).map(Arc::new).collect();
        check_limit(all.len())?;
        let count = all.len();
        let groups = if all.is_empty() { Vec::new() } else { vec![Arc::new(TombstoneGroup::new(all))] };
        Ok(Self { groups, count })
    }

    /// True if no range is deleted.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The number of tombstones.
    pub fn len(&self) -> usize {
        self.count
    }

    /// The sequence number of the newest tombstone over `key` at or below `at_most`; 0 if there is none.
    #[inline]
    pub fn newest_covering(&self, key: &[u8], at_most: SequenceNumber) -> SequenceNumber {
        self.groups.iter().map(|group| group.newest_covering(key, at_most)).max().unwrap_or(0)
    }

    /// The sequence number of the newest tombstone; 0 if there is none.
    pub fn newest(&self) -> SequenceNumber {
        self.iter().map(|tombstone| tombstone.sequence).max().unwrap_or(0)
    }

    /// Adds a tombstone. An empty range changes nothing. Clones of the set are not affected.
    ///
    /// # Errors
    /// LimitExceeded when the set has [`MAX_RANGE_TOMBSTONES`] already.
    pub fn add(&mut self, tombstone: RangeTombstone) -> Result<()> {
        if tombstone.start >= tombstone.end {
            return Ok(());
        }
        check_limit(self.count + 1)?;
        let mut members = vec![Arc::new(tombstone)];
        while let Some(last) = self.groups.pop_if(|last| last.members.len() < 2 * members.len()) {
            members.extend(last.members.iter().cloned());
        }
        self.groups.push(Arc::new(TombstoneGroup::new(members)));
        self.count += 1;
        Ok(())
    }

    /// Removes one tombstone equal to `tombstone`; returns false if there is none. Rebuilds its group.
    pub fn remove(&mut self, tombstone: &RangeTombstone) -> bool {
        for (position, group) in self.groups.iter().enumerate() {
            let Some(found) = group.members.iter().position(|one| **one == *tombstone) else { continue };
            let mut members = group.members.clone();
            members.swap_remove(found);
            if members.is_empty() {
                self.groups.remove(position);
            } else if let Some(slot) = self.groups.get_mut(position) {
                // The group may now be too small for its position; that only costs a search step.
                *slot = Arc::new(TombstoneGroup::new(members));
            }
            self.count -= 1;
            return true;
        }
        false
    }

    /// Retains the tombstones for which `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&RangeTombstone) -> bool) {
        let retained: Vec<_> = self
            .groups
            .iter()
            .flat_map(|group| &group.members)
            .filter(|tombstone| keep(tombstone))
            .cloned()
            .collect();
        self.count = retained.len();
        self.groups =
            if retained.is_empty() { Vec::new() } else { vec![Arc::new(TombstoneGroup::new(retained))] };
    }

    /// All tombstones, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &RangeTombstone> {
        self.groups.iter().flat_map(|group| &group.members).map(|tombstone| &**tombstone)
    }
}

fn check_limit(count: usize) -> Result<()> {
    if count > MAX_RANGE_TOMBSTONES {
        let what = "the number of range tombstones of a tree";
        return Err(Error::limit_exceeded(what, count as u64, MAX_RANGE_TOMBSTONES as u64));
    }
    Ok(())
}

/// A searchable group of tombstones.
#[derive(Debug)]
struct TombstoneGroup {
    members: Vec<Arc<RangeTombstone>>,
    tree: Option<SegmentTree>,
}

impl TombstoneGroup {
    fn new(members: Vec<Arc<RangeTombstone>>) -> Self {
        let tree = (members.len() > PLAIN_GROUP).then(|| SegmentTree::new(&members));
        Self { members, tree }
    }

    fn newest_covering(&self, key: &[u8], at_most: SequenceNumber) -> SequenceNumber {
        match &self.tree {
            Some(tree) => tree.newest_covering(&self.members, key, at_most),
            None => {
                let covers = |one: &&Arc<RangeTombstone>| one.sequence <= at_most && one.contains(key);
                self.members.iter().filter(covers).map(|one| one.sequence).max().unwrap_or(0)
            }
        }
    }
}

/// One end of a member's range.
#[derive(Debug, Clone, Copy)]
struct Border {
    member: u32,
    is_end: bool,
}

impl Border {
    fn key(self, members: &[Arc<RangeTombstone>]) -> &[u8] {
        match members.get(self.member as usize) {
            Some(member) if self.is_end => &member.end,
            Some(member) => &member.start,
            None => &[],
        }
    }
}

/// A segment tree over the elementary intervals between neighbouring range ends.
#[derive(Debug)]
struct SegmentTree {
    /// The distinct range ends, ascending. Interval i is from border i to border i + 1.
    borders: Vec<Border>,
    heads: KeyHeads,
    /// For each interval, the newest tombstone over it: the result for readers of the present, without a walk up the tree.
    newest: Vec<SequenceNumber>,
    /// The first number of each node: node n has `sequences[starts[n]..starts[n + 1]]`. Node n has the children 2n and 2n + 1;
    /// leaf i is node `borders.len() + i`.
    starts: Vec<u32>,
    /// The sequence numbers of the nodes, ascending within each.
    sequences: Vec<SequenceNumber>,
}

impl SegmentTree {
    fn new(members: &[Arc<RangeTombstone>]) -> Self {
        let mut borders: Vec<Border> = (0..members.len() as u32)
            .flat_map(|member| [Border { member, is_end: false }, Border { member, is_end: true }])
            .collect();
        borders.sort_by(|left, right| left.key(members).cmp(right.key(members)));
        borders.dedup_by(|right, left| left.key(members) == right.key(members));
        let leaves = borders.len();
        let mut node_sequences: Vec<Vec<SequenceNumber>> = vec![Vec::new(); 2 * leaves];
        for member in members {
            let position = |key: &[u8]| borders.partition_point(|border| border.key(members) < key);
            let (mut left, mut right) = (position(&member.start) + leaves, position(&member.end) + leaves);
            while left < right {
                for (edge, odd) in [(left, left % 2 == 1), (right.wrapping_sub(1), right % 2 == 1)] {
                    if odd && let Some(node) = node_sequences.get_mut(edge) {
                        node.push(member.sequence);
                    }
                }
                left = left.div_ceil(2);
                right /= 2;
            }
        }
        let mut starts = Vec::with_capacity(node_sequences.len() + 1);
        let mut sequences = Vec::new();
        for node in &mut node_sequences {
            starts.push(sequences.len() as u32);
            node.sort_unstable();
            sequences.append(node);
        }
        starts.push(sequences.len() as u32);
        let heads = KeyHeads::new(borders.iter().map(|border| border.key(members)));
        let mut tree = Self { borders, heads, newest: Vec::new(), starts, sequences };
        tree.newest = (0..leaves).map(|interval| tree.walk(interval, SequenceNumber::MAX)).collect();
        tree
    }

    fn newest_covering(
        &self,
        members: &[Arc<RangeTombstone>],
        key: &[u8],
        at_most: SequenceNumber,
    ) -> SequenceNumber {
        let behind = self.heads.count_before(key, |position| {
            self.borders.get(position).is_some_and(|border| border.key(members) <= key)
        });
        // No interval is before the first border, and no range covers the interval behind the last one.
        let Some(interval) = behind.checked_sub(1) else { return 0 };
        match self.newest.get(interval) {
            Some(&newest) if newest > at_most => self.walk(interval, at_most),
            Some(&newest) => newest,
            None => 0,
        }
    }

    /// The newest tombstone over an interval at or below `at_most`; 0 if there is none.
    fn walk(&self, interval: usize, at_most: SequenceNumber) -> SequenceNumber {
        let mut newest = 0;
        let mut node = self.borders.len() + interval;
        while node > 0 {
            let node_sequences = self.node_sequences(node);
            let count = node_sequences.partition_point(|&sequence| sequence <= at_most);
            let last = count.checked_sub(1).and_then(|last| node_sequences.get(last));
            newest = newest.max(last.copied().unwrap_or(0));
            node /= 2;
        }
        newest
    }

    fn node_sequences(&self, node: usize) -> &[SequenceNumber] {
        match (self.starts.get(node), self.starts.get(node + 1)) {
            (Some(&start), Some(&end)) => {
                self.sequences.get(start as usize..end as usize).unwrap_or_default()
            }
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator, so that a failing seed can be run again.
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % limit
        }
    }

    fn tombstone(start: u64, end: u64, sequence: u64) -> RangeTombstone {
        RangeTombstone { start: key(start), end: key(end), sequence }
    }

    fn key(number: u64) -> Vec<u8> {
        format!("{number:03}").into_bytes()
    }

    fn check(set: &RangeTombstones, model: &[RangeTombstone], seed: u64) {
        assert_eq!((set.len(), set.is_empty()), (model.len(), model.is_empty()));
        let highest = model.iter().map(|one| one.sequence).max().unwrap_or(0);
        for number in 0..60 {
            for at_most in [0, 1, highest / 2, highest, u64::MAX] {
                let covers = |one: &&RangeTombstone| one.sequence <= at_most && one.contains(&key(number));
                let expected = model.iter().filter(covers).map(|one| one.sequence).max().unwrap_or(0);
                assert_eq!(set.newest_covering(&key(number), at_most), expected, "seed {seed}, key {number}");
            }
        }
        let mut all: Vec<_> = set.iter().cloned().collect();
        let mut expected = model.to_vec();
        all.sort();
        expected.sort();
        assert_eq!(all, expected, "seed {seed}");
    }

    #[test]
    fn every_result_equals_that_of_a_plain_list() {
        for seed in 0..60 {
            let mut random = Random(seed);
            let mut set = RangeTombstones::new();
            let mut model: Vec<RangeTombstone> = Vec::new();
            for sequence in 1..=random.below(120) {
                if !model.is_empty() && random.below(4) == 0 {
                    let victim = model.swap_remove(random.below(model.len() as u64) as usize);
                    assert!(set.remove(&victim));
                    assert!(!set.remove(&victim));
                } else {
                    let start = random.below(60);
                    let one = tombstone(start, start + 1 + random.below(30), sequence);
                    model.push(one.clone());
                    set.add(one).unwrap();
                }
                if sequence % 13 == 0 {
                    check(&set, &model, seed);
                }
            }
            check(&set, &model, seed);
            check(&RangeTombstones::from_tombstones(model.clone()).unwrap(), &model, seed);
            let before = set.clone();
            set.retain(|one| one.sequence % 2 == 0);
            check(&before, &model, seed);
            model.retain(|one| one.sequence % 2 == 0);
            check(&set, &model, seed);
        }
    }

    #[test]
    fn an_empty_range_deletes_nothing() {
        let mut set = RangeTombstones::new();
        set.add(tombstone(5, 5, 1)).unwrap();
        set.add(tombstone(6, 5, 2)).unwrap();
        assert!(set.is_empty());
        assert_eq!(set.newest_covering(&key(5), 9), 0);
    }

    #[test]
    fn the_limit_holds_at_its_edge_and_nested_ranges_stay_small() {
        let limit = MAX_RANGE_TOMBSTONES as u64;
        let nested = |sequence: u64| RangeTombstone {
            start: sequence.to_be_bytes().to_vec(),
            end: (u64::MAX - sequence).to_be_bytes().to_vec(),
            sequence,
        };
        let mut set = RangeTombstones::from_tombstones((1..limit).map(nested)).unwrap();
        set.add(nested(limit)).unwrap();
        let error = set.add(nested(limit + 1)).unwrap_err();
        assert_eq!(error.kind(), bolide_base::ErrorKind::LimitExceeded);
        assert_eq!(set.len(), MAX_RANGE_TOMBSTONES);
        assert_eq!(set.newest_covering(&1_000_u64.to_be_bytes(), u64::MAX), 1_000);
        assert_eq!(set.newest_covering(&1_000_u64.to_be_bytes(), 400), 400);
        let numbers: usize =
            set.groups.iter().filter_map(|group| group.tree.as_ref()).map(|tree| tree.sequences.len()).sum();
        assert!(numbers < 40 * MAX_RANGE_TOMBSTONES);
    }
}
