//! The word of a data block that says how its entries are laid out.
//!
//! ```text
//! bits  0..17  length of the prefix
//! bits 18..23  length of every suffix; 0: each entry says its own
//! bits 24..26  bytes of a trailer, 0..7: sequence numbers have 47 bits
//! bit  28      offsets are u32 (else u16)
//! bit  29      all entries are of one kind: trailers are told by their sequence numbers alone
//! ```
//!
//! All other bits are zero. Bits 18..23 and 29 came with the feature [`SHORT_ENTRIES`].

/// The feature bit of an sstable whose blocks may leave out what is the same for all of their entries.
pub(crate) const SHORT_ENTRIES: u64 = 1;

const PREFIX_MASK: u32 = (1 << 18) - 1;
const SUFFIX_SHIFT: u32 = 18;
const SUFFIX_MASK: u32 = 0x3f;
const WIDTH_SHIFT: u32 = 24;
const WIDTH_MASK: u32 = 0x7;
const WIDE_OFFSETS: u32 = 1 << 28;
const ONE_KIND: u32 = 1 << 29;
const UNUSED: u32 =
    !(PREFIX_MASK | SUFFIX_MASK << SUFFIX_SHIFT | WIDTH_MASK << WIDTH_SHIFT | WIDE_OFFSETS | ONE_KIND);

/// Bits of a trailer that tell its kind.
const KIND_BITS: u8 = 8;

/// How the entries of a block are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes that all keys begin with.
    pub(crate) prefix_len: u32,
    /// Bytes of every suffix; 0 where each entry says its own.
    pub(crate) suffix_len: u8,
    /// Bytes of the difference between a trailer and the smallest one.
    pub(crate) trailer_bytes: u8,
    /// Bits by which that difference is short of one of trailers.
    pub(crate) trailer_shift: u8,
    /// Offsets have four bytes instead of two.
    pub(crate) wide: bool,
}

impl Shape {
    /// The shape that `word` says; `None` for a word that says none.
    pub(crate) fn decode(word: u32) -> Option<Self> {
        (word & UNUSED == 0).then_some(Self {
            prefix_len: word & PREFIX_MASK,
            suffix_len: (word >> SUFFIX_SHIFT & SUFFIX_MASK) as u8,
            trailer_bytes: (word >> WIDTH_SHIFT & WIDTH_MASK) as u8,
            trailer_shift: if word & ONE_KIND == 0 { 0 } else { KIND_BITS },
            wide: word & WIDE_OFFSETS != 0,
        })
    }

    /// As it is written. Prefixes are shorter than 2¹⁸ bytes.
    pub(crate) fn encode(self) -> u32 {
        let bit = |set: bool, bit: u32| if set { bit } else { 0 };
        self.prefix_len & PREFIX_MASK
            | u32::from(self.suffix_len) << SUFFIX_SHIFT
            | u32::from(self.trailer_bytes) << WIDTH_SHIFT
            | bit(self.wide, WIDE_OFFSETS)
            | bit(self.trailer_shift != 0, ONE_KIND)
    }
}

/// The length that a shape says of all suffixes, for suffixes of `len` bytes; 0 where it can not say it.
pub(crate) fn suffix_len_of_all(len: usize) -> u8 {
    u8::try_from(len).ok().filter(|&len| u32::from(len) <= SUFFIX_MASK).unwrap_or(0)
}

/// By how many bits trailers that are `smallest` and `largest` apart can be told shorter, if all are of `one_kind`; and
/// the bytes of their differences.
pub(crate) fn trailer_shape(smallest: u64, largest: u64, one_kind: bool) -> (u8, u8) {
    let shift = if one_kind { KIND_BITS } else { 0 };
    let difference = largest.saturating_sub(smallest) >> shift;
    (shift, (u64::BITS - difference.leading_zeros()).div_ceil(8) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_what_they_were_written_as() {
        for (suffix_len, trailer_bytes, trailer_shift, wide) in
            [(0, 0, 0, false), (63, 7, 8, true), (1, 3, 8, false), (12, 4, 0, true)]
        {
            for prefix_len in [0, 1, PREFIX_MASK] {
                let shape = Shape { prefix_len, suffix_len, trailer_bytes, trailer_shift, wide };
                assert_eq!(Shape::decode(shape.encode()), Some(shape));
            }
        }
        for bit in [27, 30, 31] {
            assert_eq!(Shape::decode(1 << bit), None, "bit {bit}");
        }
    }

    #[test]
    fn what_can_not_be_said_is_left_to_the_entries() {
        assert_eq!([0, 1, 63, 64, 300].map(suffix_len_of_all), [0, 1, 63, 0, 0]);
        assert_eq!(trailer_shape(0x501, 0x501, true), (8, 0));
        assert_eq!(trailer_shape(0x501, 0x10_0501, true), (8, 2));
        assert_eq!(trailer_shape(0x501, 0x10_0500, false), (0, 3));
    }
}
