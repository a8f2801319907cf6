//! Which entries a flush or a compaction keeps.
//!
//! # Algorithm
//! The sequence numbers in use (those of live views, and the published one) cut time into stripes. Two
//! versions of a key in one stripe look the same to every reader from now on but for the newer one, so
//! of each key the newest version of each stripe is kept. It is dropped all the same where
//! * a range tombstone of the same stripe covers it,
//! * it is a tombstone of the oldest stripe, and nothing older of its key can lie outside the inputs.
//!
//! Of what is kept, the tree's filter may drop more; see [`FilteredOutput`](super::FilteredOutput).
//!
//! Operands of a merge do not replace each other, not even those with one sequence number: all of them are kept here, down to
//! the newest put or tombstone of their stripe, and left to the tree's merge operator (see [`super::merge`]).
//!
//! Sequence numbers are never changed: validators compare them.
//!
//! # Invariants
//! * Entries come in tree order. Entries in = entries kept + entries dropped.
//! * A decision depends on the numbers in use when the work started. Views that came later read at or
//!   above the newest of them.

use std::sync::Arc;

use bolide_base::{EntryKind, SequenceNumber, Trailer};

use crate::range_tombstones::RangeTombstones;

/// What becomes of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Kept,
    /// It goes: the same entry came before, and what became of that counts.
    Copy,
    /// It goes: no view can see it any more.
    Unseen,
}

/// Decides entry by entry, in tree order.
#[derive(Debug)]
pub struct Retention {
    /// Sequence numbers in use, ascending.
    in_use: Vec<SequenceNumber>,
    ranges: Arc<RangeTombstones>,
    /// True if no older version of any key of the inputs can lie outside of them.
    bottom: bool,
    last_key: Vec<u8>,
    /// The sequence number of the entry before; `None` before the first entry.
    last_sequence: Option<SequenceNumber>,
    /// The stripe of the last put or tombstone of `last_key` met so far: it hides the rest of it.
    hidden_stripe: Option<usize>,
    dropped: u64,
}

impl Retention {
    /// For a flush or compaction that starts now.
    ///
    /// `in_use` was read before `ranges`, so that no range tombstone at or below its first number is
    /// missing.
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

    /// All range tombstones up to this number are applied to what is kept.
    pub fn filtered_through(&self) -> SequenceNumber {
        self.oldest_in_use()
    }

    /// How many entries were dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// True if the entry is kept.
    pub fn keeps(&mut self, key: &[u8], trailer: Trailer) -> bool {
        self.judge(key, trailer) == Fate::Kept
    }

    /// What becomes of an entry.
    pub(super) fn judge(&mut self, key: &[u8], trailer: Trailer) -> Fate {
        let stripe = self.stripe(trailer.sequence());
        let (mut shadowed, mut is_copy) = (false, false);
        if self.last_sequence.is_some() && self.last_key == key {
            // A back-fill that was interrupted writes its operands again; merged they may stand for more by now.
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
            false => Fate::Kept,
            true if is_copy => Fate::Copy,
            true => Fate::Unseen,
        }
    }

    fn is_dead(&self, key: &[u8], trailer: Trailer, stripe: usize) -> bool {
        let sequence = trailer.sequence();
        // Entries above the newest number in use are not published yet: nothing is known of them.
        let Some(&end_of_stripe) = self.in_use.get(stripe) else { return false };
        if !self.ranges.is_empty() && self.ranges.newest_covering(key, end_of_stripe) > sequence {
            return true;
        }
        if stripe > 0 {
            return false;
        }
        trailer.is_delete() && self.bottom
    }

    /// True if no older version of any key of the inputs can lie outside of them.
    pub(super) fn is_bottom(&self) -> bool {
        self.bottom
    }

    /// The oldest sequence number at which views see what is in `stripe`; `None` for what is not
    /// published yet.
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

    fn kept(mut retention: Retention, entries: &[(&str, u64, EntryKind)]) -> Vec<(String, u64)> {
        let mut kept = Vec::new();
        for &(key, sequence, kind) in entries {
            if retention.keeps(key.as_bytes(), Trailer::new(sequence, kind)) {
                kept.push((key.to_owned(), sequence));
            }
        }
        assert_eq!(kept.len() as u64 + retention.dropped(), entries.len() as u64);
        kept
    }

    fn no_ranges() -> Arc<RangeTombstones> {
        Arc::new(RangeTombstones::default())
    }

    const PUT: EntryKind = EntryKind::Put;
    const DELETE: EntryKind = EntryKind::Delete;

    #[test]
    fn the_newest_version_of_each_stripe_stays() {
        let retention = Retention::new(vec![5, 9], no_ranges(), false);
        let entries = [("a", 8, PUT), ("a", 7, PUT), ("a", 5, PUT), ("a", 3, DELETE), ("b", 3, DELETE)];
        assert_eq!(kept(retention, &entries), [("a".into(), 8), ("a".into(), 5), ("b".into(), 3)]);
    }

    #[test]
    fn unpublished_entries_stay() {
        let retention = Retention::new(vec![5], no_ranges(), true);
        assert_eq!(kept(retention, &[("a", 7, DELETE), ("a", 4, PUT)]).len(), 2);
    }

    #[test]
    fn tombstones_go_at_the_bottom_once_every_view_sees_them() {
        let entries = [("a", 8, DELETE), ("a", 2, PUT), ("b", 4, DELETE), ("b", 1, PUT)];
        let at_bottom = Retention::new(vec![5, 9], no_ranges(), true);
        assert_eq!(kept(at_bottom, &entries), [("a".into(), 8), ("a".into(), 2)]);
        let above = Retention::new(vec![5, 9], no_ranges(), false);
        assert_eq!(kept(above, &entries), [("a".into(), 8), ("a".into(), 2), ("b".into(), 4)]);
    }

    #[test]
    fn operands_hide_nothing_and_are_hidden_by_puts_and_tombstones_alone() {
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
        assert_eq!(kept(retention, &entries), expected);
        let retention = Retention::new(vec![9], no_ranges(), false);
        assert_eq!(kept(retention, &[("a", 8, PUT), ("a", 7, MERGE), ("b", 7, MERGE)]).len(), 2);
    }

    #[test]
    fn equal_entries_are_kept_once() {
        let retention = Retention::new(vec![9], no_ranges(), false);
        assert_eq!(kept(retention, &[("a", 3, PUT), ("a", 3, PUT)]).len(), 1);
    }

    #[test]
    fn a_copy_that_goes_is_told_from_a_version_that_nobody_sees() {
        let mut retention = Retention::new(vec![9], no_ranges(), false);
        let entries = [("a", 5), ("a", 5), ("a", 3), ("a", 3), ("b", 3), ("b", 3)];
        let fates =
            entries.map(|(key, sequence)| retention.judge(key.as_bytes(), Trailer::new(sequence, PUT)));
        assert_eq!(fates, [Fate::Kept, Fate::Copy, Fate::Unseen, Fate::Copy, Fate::Kept, Fate::Copy]);
    }
}
