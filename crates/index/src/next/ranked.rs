//! Items in the order of their writes.

use bolide_base::{MAX_SEQUENCE, SequenceNumber};

use super::batch::Item;

/// More items of a sort are not sorted.
pub(super) const MAX_SORTED: usize = 1 << NUMBER_BITS;
const NUMBER_BITS: u32 = 16;
const RANK_SHIFT: u32 = NUMBER_BITS + 1;
const _: () = assert!(MAX_SEQUENCE.leading_zeros() == RANK_SHIFT);

/// An item by its rank, in one number: many are sorted at once.
///
/// ```text
/// bits 17..64   sequence number
/// bit  16       1 for a version that an entry names
/// bits 0..16    number
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ranked(u64);

impl Ranked {
    /// `item`, one of the first [`MAX_SORTED`] of its sort.
    #[inline]
    pub(super) fn new(sequence: SequenceNumber, item: Item) -> Self {
        let (is_version, number) = match item {
            Item::Found(number) => (false, number),
            Item::Version(number) => (true, number),
        };
        Self(sequence << RANK_SHIFT | u64::from(is_version) << NUMBER_BITS | u64::from(number))
    }

    #[inline]
    pub(super) fn sequence(&self) -> SequenceNumber {
        self.0 >> RANK_SHIFT
    }

    #[inline]
    pub(super) fn item(&self) -> Item {
        let number = self.0 as u32 % (1 << NUMBER_BITS);
        if self.0 >> NUMBER_BITS & 1 == 1 { Item::Version(number) } else { Item::Found(number) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranked_items_come_by_their_writes() {
        let last = MAX_SORTED as u32 - 1;
        let items = [Item::Found(0), Item::Found(last), Item::Version(0), Item::Version(last)];
        let mut all = Vec::new();
        for sequence in [1, 2, 77, MAX_SEQUENCE - 1, MAX_SEQUENCE] {
            for item in items {
                let ranked = Ranked::new(sequence, item);
                assert_eq!((ranked.sequence(), ranked.item()), (sequence, item));
                all.push(ranked);
            }
        }
        assert!(all.is_sorted());
    }
}
