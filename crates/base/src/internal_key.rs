//! Sequence numbers and the trailer that orders the versions of one key.
//!
//! An entry of a tree is `(user key, trailer, value)`. Entries are ordered by user key ascending,
//! then by sequence number **descending**, so that the newest version of a key comes first.
//!
//! ```text
//! trailer  u64   bits 63..8  sequence number (47 bits used)
//!                bits  7..0  entry kind
//! ```

use std::cmp::Ordering;
use std::fmt;

/// The position of a write in the total order of all writes of a database. The first write has 1; 0
/// stands for "before every write".
pub type SequenceNumber = u64;

/// The largest sequence number: 47 bits, so that a PKey entry of a PS-Tree can store it together with its
/// obsolete flag (Perseid §4.2).
pub const MAX_SEQUENCE: SequenceNumber = (1 << 47) - 1;

/// The id of a tree (a collection's records, or one stand-alone index) in a database. Never reused.
pub type TreeId = u32;

/// The effect of an entry on its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EntryKind {
    /// A tombstone: the key is absent from this sequence number on.
    Delete = 0,
    /// The key has this value from this sequence number on.
    Put = 1,
    /// The value is to be merged with the older versions of the key.
    Merge = 2,
}

impl EntryKind {
    /// The kind with this code, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Delete),
            1 => Some(Self::Put),
            2 => Some(Self::Merge),
            _ => None,
        }
    }
}

/// A sequence number and an entry kind in one word.
///
/// ```
/// use bolide_base::{EntryKind, Trailer};
/// let trailer = Trailer::new(7, EntryKind::Put);
/// assert_eq!((trailer.sequence(), trailer.kind()), (7, Some(EntryKind::Put)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Trailer(u64);

impl Trailer {
    /// Packs `sequence` (at most [`MAX_SEQUENCE`]) and `kind`.
    #[inline]
    pub fn new(sequence: SequenceNumber, kind: EntryKind) -> Self {
        debug_assert!(sequence <= MAX_SEQUENCE);
        Self(sequence << 8 | kind as u64)
    }

    /// The trailer with these bits, as read from a file: the kind may be unknown.
    #[inline]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The bits as written to a file.
    #[inline]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The sequence number.
    #[inline]
    pub fn sequence(self) -> SequenceNumber {
        self.0 >> 8
    }

    /// The kind; `None` if the bits contain a code that this version does not support.
    #[inline]
    pub fn kind(self) -> Option<EntryKind> {
        EntryKind::from_code(self.0 as u8)
    }

    /// Whether the entry is a tombstone.
    #[inline]
    pub fn is_delete(self) -> bool {
        self.0 as u8 == EntryKind::Delete as u8
    }
}

impl fmt::Debug for Trailer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.sequence())?;
        match self.kind() {
            Some(kind) => write!(f, ",{kind:?}"),
            None => write!(f, ",kind {}", self.0 as u8),
        }
    }
}

/// Compares two entries in tree order: user key ascending, sequence number descending.
#[inline]
pub fn compare_entries(
    left_key: &[u8],
    left: SequenceNumber,
    right_key: &[u8],
    right: SequenceNumber,
) -> Ordering {
    left_key.cmp(right_key).then_with(|| right.cmp(&left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_version_comes_first() {
        assert_eq!(compare_entries(b"a", 9, b"a", 3), Ordering::Less);
        assert_eq!(compare_entries(b"a", 1, b"b", 9), Ordering::Less);
        assert_eq!(compare_entries(b"ab", 1, b"a", 9), Ordering::Greater);
    }

    #[test]
    fn trailer_holds_the_largest_sequence() {
        let trailer = Trailer::new(MAX_SEQUENCE, EntryKind::Merge);
        assert_eq!(trailer.sequence(), MAX_SEQUENCE);
        assert_eq!(Trailer::from_bits(trailer.bits()), trailer);
        assert_eq!(Trailer::from_bits(0x1ff).kind(), None);
    }
}
