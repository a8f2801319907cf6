//! Places of groups and entries together with the page they lie in, each in one word.
//!
//! ```text
//! group pointer   bits  0..40  place of the group / 8
//!                 bits 40..50  words from the start of its page to the group
//!                 bits 50..60  length of the page / 8
//!
//! entry place     bits  0..40  place of the entry / 8
//!                 bits 40..50  words from the start of its page to the entry
//!                 bits 50..60  words from the start of its page to its group
//!                 bit      60  one for an inline entry: the place is that of its record
//! ```
//!
//! Zero is no place. Places must be below 8 TiB: [`MAX_PLACE`].

use bolide_base::{Error, Result};
use bolide_storage::pmem::Place;

/// Exclusive upper bound of places in the region of a tree.
pub(crate) const MAX_PLACE: Place = 1 << 43;

const PLACE_BITS: u32 = 40;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;
const OFFSET_MASK: u64 = (1 << 10) - 1;
const INLINE: u64 = 1 << 60;

/// A link to a group, in the 40 bits reserved in group headers.
#[inline]
pub(crate) fn link_of(at: Place) -> u64 {
    debug_assert!(at.is_multiple_of(8) && at < MAX_PLACE);
    (at / 8) & PLACE_MASK
}

/// The place that the low 40 bits of `word` link to.
#[inline]
pub(crate) fn linked_place(word: u64) -> Place {
    (word & PLACE_MASK) * 8
}

/// Rejects a place that does not fit into a link.
pub(crate) fn check_place(at: Place, bytes: usize) -> Result<()> {
    if at + bytes as u64 > MAX_PLACE {
        return Err(Error::limit_exceeded("the size of an index region in bytes", at, MAX_PLACE));
    }
    Ok(())
}

/// The place of a group and of its page, and the length of the page; the value of a secondary key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct GroupPointer(u64);

impl GroupPointer {
    /// The group at `at` of the page at `page`, which has `page_bytes` bytes.
    #[inline]
    pub(crate) fn new(page: Place, at: Place, page_bytes: usize) -> Self {
        let offset = (at.wrapping_sub(page) / 8) & OFFSET_MASK;
        let words = (page_bytes as u64 / 8) & OFFSET_MASK;
        Self(link_of(at) | offset << PLACE_BITS | words << (PLACE_BITS + 10))
    }

    /// The pointer in `word`; `None` for zero, which marks a key that is being removed.
    #[inline]
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self(word))
    }

    #[inline]
    pub(crate) fn word(self) -> u64 {
        self.0
    }

    /// The place of the group.
    #[inline]
    pub(crate) fn at(self) -> Place {
        linked_place(self.0)
    }

    /// The place of its page.
    #[inline]
    pub(crate) fn page(self) -> Place {
        self.at().wrapping_sub((self.0 >> PLACE_BITS & OFFSET_MASK) * 8)
    }

    /// Bytes of the page.
    #[inline]
    pub(crate) fn page_bytes(self) -> usize {
        (self.0 >> (PLACE_BITS + 10) & OFFSET_MASK) as usize * 8
    }

    /// The group at `at` of the same page.
    #[inline]
    pub(crate) fn in_same_page(self, at: Place) -> Self {
        Self::new(self.page(), at, self.page_bytes())
    }
}

/// The place of an entry, for flagging it as obsolete while its cursor exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EntryPlace(u64);

/// The common part of the places of the entries of one group.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GroupPlace(u64);

impl GroupPlace {
    /// The group `group` words into the page at `page`.
    #[inline]
    pub(crate) fn new(page: Place, group: usize) -> Self {
        Self((page / 8) & PLACE_MASK | (group as u64 & OFFSET_MASK) << (PLACE_BITS + 10))
    }

    /// The entry `at` words into the page, which is not longer than offsets allow.
    #[inline]
    pub(crate) fn entry(self, at: usize) -> EntryPlace {
        EntryPlace(self.0.wrapping_add((at as u64 & OFFSET_MASK).wrapping_mul(1 | 1 << PLACE_BITS)))
    }
}

impl EntryPlace {
    /// The inline entry of the record at `record`.
    #[inline]
    pub(crate) fn inline(record: Place) -> Self {
        Self(link_of(record) | INLINE)
    }

    /// True for an inline entry: its place is that of its record.
    #[inline]
    pub(crate) fn is_inline(self) -> bool {
        self.0 & INLINE != 0
    }

    /// The place as a number, and back by [`from_number`](Self::from_number).
    #[inline]
    pub fn number(self) -> u64 {
        self.0
    }

    /// The place with this number.
    #[inline]
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The place of the entry's header.
    #[inline]
    pub(crate) fn at(self) -> Place {
        linked_place(self.0)
    }

    /// The place of its page.
    #[inline]
    pub(crate) fn page(self) -> Place {
        self.at().wrapping_sub((self.0 >> PLACE_BITS & OFFSET_MASK) * 8)
    }

    /// The place of its group.
    #[inline]
    pub(crate) fn group(self) -> Place {
        self.page().wrapping_add((self.0 >> (PLACE_BITS + 10) & OFFSET_MASK) * 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_pages_round_trip() {
        let page = MAX_PLACE - 4096;
        for offset in [0_u64, 16, 40, 4088] {
            let pointer = GroupPointer::new(page, page + offset, 4096);
            assert_eq!((pointer.at(), pointer.page(), pointer.page_bytes()), (page + offset, page, 4096));
            let place = GroupPlace::new(page, offset as usize / 8).entry(4088 / 8);
            assert_eq!((place.at(), place.page(), place.group()), (page + 4088, page, page + offset));
        }
        assert_eq!(GroupPointer::from_word(0), None);
        let inline = EntryPlace::inline(page);
        assert!(inline.is_inline() && inline.at() == page);
        assert!(check_place(page, 4096).is_ok());
        assert!(check_place(page, 4097).is_err());
    }
}
