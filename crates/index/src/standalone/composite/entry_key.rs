//! The key of a composite entry; see the layout in [`super`].

use bolide_base::{MAX_SEQUENCE, SequenceNumber};

use crate::attribute;

/// Bytes of the inverted sequence number.
pub(super) const SEQUENCE_BYTES: usize = 8;

/// A key taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryKey<'k> {
    /// The encoded values.
    pub(crate) secondary_key: &'k [u8],
    /// The sequence number of the record's write.
    pub(crate) sequence: SequenceNumber,
    /// The record's key.
    pub(crate) primary_key: &'k [u8],
}

impl<'k> EntryKey<'k> {
    /// Takes apart the key of an index over `attributes` attributes; `None` where it is malformed.
    pub(crate) fn parse(key: &'k [u8], attributes: usize) -> Option<Self> {
        let mut len = 0;
        for _ in 0..attributes {
            len += attribute::encoded_len(key.get(len..)?)?;
        }
        Self::split(key, len)
    }

    /// Takes apart a key whose secondary key has `len` bytes.
    #[inline]
    pub(crate) fn split(key: &'k [u8], len: usize) -> Option<Self> {
        let (secondary_key, rest) = key.split_at_checked(len)?;
        let (inverted, primary_key) = rest.split_first_chunk::<SEQUENCE_BYTES>()?;
        let sequence = !u64::from_be_bytes(*inverted);
        (sequence <= MAX_SEQUENCE).then_some(Self { secondary_key, sequence, primary_key })
    }
}

/// Appends `sequence` so that larger ones sort first.
#[inline]
pub(super) fn put_sequence(key: &mut Vec<u8>, sequence: SequenceNumber) {
    key.extend_from_slice(&(!sequence).to_be_bytes());
}
