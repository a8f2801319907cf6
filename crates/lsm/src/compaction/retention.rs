//! The rule that selects the entries that a flush or a compaction writes.
//!
//! # Algorithm
//! The sequence numbers in use (those of live views, and the published one) divide time into stripes. Of two versions of a
//! key in one stripe, every present and later reader sees only the newer one. So the newest version of each key in each
//! stripe is retained. It is dropped all the same if
//! * a range tombstone of the same stripe covers it, or
//! * it is a tombstone of the oldest stripe, and no older version of its key can exist outside of the inputs.
//!
//! The filter of the tree may drop more of the retained entries; see [`FilteredOutput`](super::FilteredOutput).
//!
//! Merge operands do not replace each other, not even those with one sequence number. All are retained, down to the newest
//! put or tombstone of their stripe, and merged by the tree's merge operator (see [`super::merge`]).
//!
//! Sequence numbers are never changed: validators compare them.
//!
//! # Invariants
//! * Entries are added in tree order. Entries in = entries retained + entries dropped.
//! * A decision depends on the numbers in use at the start of the work. Later views read at or above the newest of them.

use std::sync::Arc;

use bolide_base::{EntryKind, SequenceNumber, Trailer};

use crate::range_tombstones::RangeTombstones;

/// The decision about an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetentionDecision {
    Retain,
    /// Drop it: an equal entry was decided on before.
    DropCopy,
    /// Drop it: no view can see it any more.
    DropHidden,
}

/// Decides on one entry at a time, in tree order.
#[derive(Debug)]
pub struct Retention {
    /// Sequence numbers in use, ascending.
    in_use: Vec<SequenceNumber>,
    ranges: Arc<RangeTombstones>,
    /// True if no older version of any key of the inputs can exist outside of them.
    bottom: bool,
    last_key: Vec<u8>,
    /// The sequence number of the previous entry; `None` before the first entry.
    last_sequence: Option<SequenceNumber>,
    /// The stripe of the last put or tombstone of `last_key` so far: it hides the rest of the stripe.
    hidden_stripe: Option<usize>,
    dropped: u64,
}

impl Retention {
    /// The retention of a flush or compaction that starts now.
    ///
    /// `in_use` was read before `ranges`, so that no range tombstone at or below its first number is missing.
    pub fn new(in_use: Vec<SequenceNumber>, ranges: Arc<RangeTombstones>, bottom: bool) -> Self {
        Self {
            in_use,
            ranges,
            bottom,
            last_key: Vec::new(),
            last_sequence: None,
            hidden_stripe: None,
            dropped: 0,
        }
    }

    /// All range tombstones up to this number are applied to the retained entries.
    pub fn filtered_through(&self) -> SequenceNumber {
        self.oldest_in_use()
    }

    /// The number of dropped entries so far.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// True if the entry is retained.
    pub fn retains(&mut self, key: &[u8], trailer: Trailer) -> bool {
        self.decide(key, trailer) == RetentionDecision::Retain
    }

    /// Decides on an entry.
    pub(super) fn decide(&mut self, key: &[u8], trailer: Trailer) -> RetentionDecision {
        let stripe = self.stripe(trailer.sequence());
        let (mut shadowed, mut is_copy) = (false, false);
        if self.last_sequence.is_some() && self.last_key == key {
            // An interrupted back-fill writes its operands again; the merged ones may contain more by now.
            let is_operand = trailer.kind() == Some(EntryKind::Merge);
            let repeated = self.last_sequence == Some(trailer.sequence()) && !is_operand;
            is_copy = repeated;
            shadowed = (repeated || self.hidden_stripe == Some(stripe)) && stripe < self.in_use.len();
        } else {
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
            self.hidden_stripe = None;
        }
        self.last_sequence = Some(trailer.sequence());
        if trailer.kind() != Some(EntryKind::Merge) {
            self.hidden_stripe = Some(stripe);
        }
        let drops = shadowed || self.is_dead(key, trailer, stripe);
        self.dropped += u64::from(drops);
        match drops {
            false => RetentionDecision::Retain,
            true if is_copy => RetentionDecision::DropCopy,
            true => RetentionDecision::DropHidden,
        }
    }

    fn is_dead(&self, key: &[u8], trailer: Trailer, stripe: usize) -> bool {
        let sequence = trailer.sequence();
        // Entries above the newest number in use are not published yet: every one may be visible later.
        let Some(&end_of_stripe) = self.in_use.get(stripe) else { return false };
        if !self.ranges.is_empty() && self.ranges.newest_covering(key, end_of_stripe) > sequence {
            return true;
        }
        if stripe > 0 {
            return false;
        }
        trailer.is_delete() && self.bottom
    }

    /// True if no older version of any key of the inputs can exist outside of them.
    pub(super) fn is_bottom(&self) -> bool {
        self.bottom
    }

    /// The oldest sequence number at which views see the entries of `stripe`; `None` for entries that are not published yet.
    pub(super) fn end_of_stripe(&self, stripe: usize) -> Option<SequenceNumber> {
        self.in_use.get(stripe).copied()
    }

    /// The position of the smallest number in use at or above `sequence`.
    pub(super) fn stripe(&self, sequence: SequenceNumber) -> usize {
        match self.in_use.as_slice() {
            [only] => usize::from(sequence > *only),
            in_use => in_use.partition_point(|&number| number < sequence),
        }
    }

    fn oldest_in_use(&self) -> SequenceNumber {
        self.in_use.first().copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retained(mut retention: Retention, entries: &[(&str, u64, EntryKind)]) -> Vec<(String, u64)> {
        let mut retained = Vec::new();
        for &(key, sequence, kind) in entries {
            if retention.retains(key.as_bytes(), Trailer::new(sequence, kind)) {
                retained.push((key.to_owned(), sequence));
            }
        }
        assert_eq!(retained.len() as u64 + retention.dropped(), entries.len() as u64);
        retained
    }

    fn no_ranges() -> Arc<RangeTombstones> {
        Arc::new(RangeTombstones::default())
    }

    const PUT: EntryKind = EntryKind::Put;
    const DELETE: EntryKind = EntryKind::Delete;

    #[test]
    fn the_newest_version_of_each_stripe_is_retained() {
        let retention = Retention::new(vec![5, 9], no_ranges(), false);
        let entries = [("a", 8, PUT), ("a", 7, PUT), ("a", 5, PUT), ("a", 3, DELETE), ("b", 3, DELETE)];
        assert_eq!(retained(retention, &entries), [("a".into(), 8), ("a".into(), 5), ("b".into(), 3)]);
    }

    #[test]
    fn unpublished_entries_are_retained() {
        let retention = Retention::new(vec![5], no_ranges(), true);
        assert_eq!(retained(retention, &[("a", 7, DELETE), ("a", 4, PUT)]).len(), 2);
    }

    #[test]
    fn tombstones_are_dropped_at_the_bottom_once_every_view_sees_them() {
        let entries = [("a", 8, DELETE), ("a", 2, PUT), ("b", 4, DELETE), ("b", 1, PUT)];
        let at_bottom = Retention::new(vec![5, 9], no_ranges(), true);
        assert_eq!(retained(at_bottom, &entries), [("a".into(), 8), ("a".into(), 2)]);
        let above = Retention::new(vec![5, 9], no_ranges(), false);
        assert_eq!(retained(above, &entries), [("a".into(), 8), ("a".into(), 2), ("b".into(), 4)]);
    }

    #[test]
    fn operands_hide_nothing_and_are_hidden_only_by_puts_and_tombstones() {
        const MERGE: EntryKind = EntryKind::Merge;
        let retention = Retention::new(vec![5, 9], no_ranges(), true);
        let entries = [
            ("a", 8, MERGE),
            ("a", 7, MERGE),
            ("a", 6, PUT),
            ("a", 6, MERGE),
            ("a", 5, MERGE),
            ("a", 4, DELETE),
        ];
        let expected = [("a".into(), 8), ("a".into(), 7), ("a".into(), 6), ("a".into(), 5)];
        assert_eq!(retained(retention, &entries), expected);
        let retention = Retention::new(vec![9], no_ranges(), false);
        assert_eq!(retained(retention, &[("a", 8, PUT), ("a", 7, MERGE), ("b", 7, MERGE)]).len(), 2);
    }

    #[test]
    fn equal_entries_are_retained_once() {
        let retention = Retention::new(vec![9], no_ranges(), false);
        assert_eq!(retained(retention, &[("a", 3, PUT), ("a", 3, PUT)]).len(), 1);
    }

    #[test]
    fn a_dropped_copy_is_distinguished_from_a_hidden_version() {
        let mut retention = Retention::new(vec![9], no_ranges(), false);
        let entries = [("a", 5), ("a", 5), ("a", 3), ("a", 3), ("b", 3), ("b", 3)];
        let decisions =
            entries.map(|(key, sequence)| retention.decide(key.as_bytes(), Trailer::new(sequence, PUT)));
        use RetentionDecision::{DropCopy, DropHidden, Retain};
        assert_eq!(decisions, [Retain, DropCopy, DropHidden, DropCopy, Retain, DropCopy]);
    }
}
