//! The shape word of a data block: the layout of its entries.
//!
//! ```text
//! bits  0..17  length of the prefix
//! bits 18..23  length of every suffix; 0: each entry stores its own
//! bits 24..26  bytes of a trailer, 0..7: sequence numbers have 47 bits
//! bit  28      offsets are u32 (else u16)
//! bit  29      all entries are of one kind: trailers are stored as differences of sequence numbers
//! ```
//!
//! All other bits are zero. Bits 18..23 and 29 need the feature [`SHORT_ENTRIES`].

/// The feature bit of an sstable whose blocks may omit properties that all of their entries share.
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

/// Bits of a trailer for the kind.
const KIND_BITS: u8 = 8;

/// The layout of the entries of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockShape {
    /// Length of the common prefix of all keys, in bytes.
    pub(crate) prefix_len: u32,
    /// Length of every suffix, in bytes; 0 if each entry stores its own.
    pub(crate) suffix_len: u8,
    /// Bytes of the difference between a trailer and the smallest one.
    pub(crate) trailer_bytes: u8,
    /// Right shift of the difference between trailers: the bits of the kind if all kinds are equal, else 0.
    pub(crate) trailer_shift: u8,
    /// Offsets have four bytes instead of two.
    pub(crate) wide: bool,
}

impl BlockShape {
    /// The shape of an encoded word; `None` for an invalid word.
    pub(crate) fn decode(word: u32) -> Option<Self> {
        (word & UNUSED == 0).then_some(Self {
            prefix_len: word & PREFIX_MASK,
            suffix_len: (word >> SUFFIX_SHIFT & SUFFIX_MASK) as u8,
            trailer_bytes: (word >> WIDTH_SHIFT & WIDTH_MASK) as u8,
            trailer_shift: if word & ONE_KIND == 0 { 0 } else { KIND_BITS },
            wide: word & WIDE_OFFSETS != 0,
        })
    }

    /// The encoded word. Prefixes are shorter than 2¹⁸ bytes.
    pub(crate) fn encode(self) -> u32 {
        let bit = |set: bool, bit: u32| if set { bit } else { 0 };
        self.prefix_len & PREFIX_MASK
            | u32::from(self.suffix_len) << SUFFIX_SHIFT
            | u32::from(self.trailer_bytes) << WIDTH_SHIFT
            | bit(self.wide, WIDE_OFFSETS)
            | bit(self.trailer_shift != 0, ONE_KIND)
    }
}

/// The common suffix length for the shape word; 0 if `len` is out of its range.
pub(crate) fn suffix_len_of_all(len: usize) -> u8 {
    u8::try_from(len).ok().filter(|&len| u32::from(len) <= SUFFIX_MASK).unwrap_or(0)
}

/// The right shift of the differences of trailers between `smallest` and `largest`, with or without equal kinds, and the
/// bytes of the shifted differences.
pub(crate) fn trailer_shape(smallest: u64, largest: u64, one_kind: bool) -> (u8, u8) {
    let shift = if one_kind { KIND_BITS } else { 0 };
    let difference = largest.saturating_sub(smallest) >> shift;
    (shift, (u64::BITS - difference.leading_zeros()).div_ceil(8) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_round_trip() {
        for (suffix_len, trailer_bytes, trailer_shift, wide) in
            [(0, 0, 0, false), (63, 7, 8, true), (1, 3, 8, false), (12, 4, 0, true)]
        {
            for prefix_len in [0, 1, PREFIX_MASK] {
                let shape = BlockShape { prefix_len, suffix_len, trailer_bytes, trailer_shift, wide };
                assert_eq!(BlockShape::decode(shape.encode()), Some(shape));
            }
        }
        for bit in [27, 30, 31] {
            assert_eq!(BlockShape::decode(1 << bit), None, "bit {bit}");
        }
    }

    #[test]
    fn suffix_lengths_out_of_range_are_stored_in_the_entries() {
        assert_eq!([0, 1, 63, 64, 300].map(suffix_len_of_all), [0, 1, 63, 0, 0]);
        assert_eq!(trailer_shape(0x501, 0x501, true), (8, 0));
        assert_eq!(trailer_shape(0x501, 0x10_0501, true), (8, 2));
        assert_eq!(trailer_shape(0x501, 0x10_0500, false), (0, 3));
    }
}
