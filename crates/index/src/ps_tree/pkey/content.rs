//! The value of the record of a secondary key: its only entry, or the place of its newest group.
//!
//! ```text
//! value    0: the key is being removed
//!
//! inline   bit       0  obsolete
//! entry    bits  1..48  sequence number
//!          bits 48..61  length of the body in bytes
//!          bit      61  covered
//!          bit      62  overflow
//!          bit      63  one
//!
//! pages    bits  0..40  place of the newest group / 8
//!          bits 40..50  words from the start of its page to the group
//!          bits 50..60  length of the page / 8
//!          bits 60..64  zero
//! ```
//!
//! An inline entry is the [header of an entry](super::entry), rotated by 16 bits. Its body follows the key in the record and
//! never changes. A key gets a page with its second entry.

use super::entry::EntryHeader;
use super::pointer::GroupPointer;

const INLINE: u64 = 1 << 63;
const ROTATION: u32 = 16;
/// The obsolete bit of an inline entry.
pub(crate) const INLINE_OBSOLETE: u64 = 1;

/// The longest body of an inline entry, in bytes.
pub(crate) const MAX_INLINE_BODY_BYTES: usize = 255;

/// The parsed value of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyContent {
    /// The key is being removed.
    Removed,
    /// The key has one entry.
    Inline(EntryHeader),
    /// The key has pages.
    Pages(GroupPointer),
}

impl KeyContent {
    /// Parses the value of a record; `None` if it is invalid.
    #[inline]
    pub(crate) fn parse(word: u64) -> Option<Self> {
        if word & INLINE != 0 {
            return EntryHeader::parse((word & !INLINE).rotate_left(ROTATION)).map(Self::Inline);
        }
        Some(GroupPointer::from_word(word).map_or(Self::Removed, Self::Pages))
    }

    /// The place of the newest group, if the key has pages.
    #[inline]
    pub(crate) fn pages(self) -> Option<GroupPointer> {
        match self {
            Self::Pages(newest) => Some(newest),
            Self::Removed | Self::Inline(_) => None,
        }
    }
}

/// The value of a record with an inline entry.
#[inline]
pub(crate) fn inline_word(header: EntryHeader) -> u64 {
    header.word().rotate_right(ROTATION) | INLINE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip_and_bits_have_their_places() {
        let header = EntryHeader::parse(0x1234_5678_9abc << 17 | 1 << 13 | 77).unwrap();
        let word = inline_word(header);
        assert_eq!(KeyContent::parse(word), Some(KeyContent::Inline(header)));
        let Some(KeyContent::Inline(flagged)) = KeyContent::parse(word | INLINE_OBSOLETE) else {
            panic!("an inline entry");
        };
        assert!(flagged.is_obsolete() && !header.is_obsolete() && flagged.sequence() == header.sequence());
        assert_eq!(KeyContent::parse(0), Some(KeyContent::Removed));
        assert_eq!(KeyContent::parse(INLINE), None, "a header without a sequence number");
        let pages = GroupPointer::new(1 << 42, (1 << 42) + 16, 4096);
        assert_eq!(KeyContent::parse(pages.word()), Some(KeyContent::Pages(pages)));
    }
}
