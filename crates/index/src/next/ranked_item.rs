//! Batch items packed into one number that sorts by sequence number.

use bolide_base::{MAX_SEQUENCE, SequenceNumber};

use super::batch::BatchItem;

/// Maximum number of items of each sort.
pub(super) const MAX_SORTED: usize = 1 << NUMBER_BITS;
const NUMBER_BITS: u32 = 16;
const RANK_SHIFT: u32 = NUMBER_BITS + 1;
const _: () = assert!(MAX_SEQUENCE.leading_zeros() == RANK_SHIFT);

/// An item with its sequence number, packed into one integer for fast sorting.
///
/// ```text
/// bits 17..64   sequence number
/// bit  16       1 for a version that an index entry points to
/// bits 0..16    number
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RankedItem(u64);

impl RankedItem {
    /// `item`, one of the first [`MAX_SORTED`] of its sort.
    #[inline]
    pub(super) fn new(sequence: SequenceNumber, item: BatchItem) -> Self {
        let (is_version, number) = match item {
            BatchItem::Match(number) => (false, number),
            BatchItem::Version(number) => (true, number),
        };
        Self(sequence << RANK_SHIFT | u64::from(is_version) << NUMBER_BITS | u64::from(number))
    }

    #[inline]
    pub(super) fn sequence(&self) -> SequenceNumber {
        self.0 >> RANK_SHIFT
    }

    #[inline]
    pub(super) fn item(&self) -> BatchItem {
        let number = self.0 as u32 % (1 << NUMBER_BITS);
        if self.0 >> NUMBER_BITS & 1 == 1 { BatchItem::Version(number) } else { BatchItem::Match(number) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranked_items_sort_by_sequence_number() {
        let last = MAX_SORTED as u32 - 1;
        let items =
            [BatchItem::Match(0), BatchItem::Match(last), BatchItem::Version(0), BatchItem::Version(last)];
        let mut all = Vec::new();
        for sequence in [1, 2, 77, MAX_SEQUENCE - 1, MAX_SEQUENCE] {
            for item in items {
                let ranked = RankedItem::new(sequence, item);
                assert_eq!((ranked.sequence(), ranked.item()), (sequence, item));
                all.push(ranked);
            }
        }
        assert!(all.is_sorted());
    }
}
