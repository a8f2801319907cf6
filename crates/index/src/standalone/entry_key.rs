//! The key of a composite entry; see the layout in [`composite`](super::composite).

use bolide_base::{MAX_SEQUENCE, SequenceNumber};

use crate::attribute;
use crate::spec::{EntryOrder, IndexSpec};

/// Bytes of the inverted sequence number.
const SEQUENCE_BYTES: usize = 8;

/// The layout of the entry keys of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryLayout {
    attributes: usize,
    order: EntryOrder,
}

/// A parsed entry key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryKey<'k> {
    /// The encoded values.
    pub secondary_key: &'k [u8],
    /// The sequence number of the record's write.
    pub sequence: SequenceNumber,
    /// The record's key.
    pub primary_key: &'k [u8],
}

impl EntryLayout {
    /// The layout of the index that `spec` declares.
    pub fn of(spec: &IndexSpec) -> Self {
        Self { attributes: spec.attributes().len(), order: spec.entry_order() }
    }

    /// Whether keys contain the sequence number, so that those of one secondary key are sorted newest first.
    pub(crate) fn is_newest_first(self) -> bool {
        self.order == EntryOrder::Newest
    }

    /// Parses the key of an entry with the sequence number `own` in the tree; `None` if it is malformed.
    pub fn parse(self, key: &[u8], own: SequenceNumber) -> Option<EntryKey<'_>> {
        let mut len = 0;
        for _ in 0..self.attributes {
            len += attribute::encoded_len(key.get(len..)?)?;
        }
        self.split(key, len, own)
    }

    /// Parses a key whose secondary key has `len` bytes.
    #[inline]
    pub(crate) fn split(self, key: &[u8], len: usize, own: SequenceNumber) -> Option<EntryKey<'_>> {
        let (secondary_key, rest) = key.split_at_checked(len)?;
        if self.order == EntryOrder::PrimaryKey {
            return Some(EntryKey { secondary_key, sequence: own, primary_key: rest });
        }
        let (inverted, primary_key) = rest.split_first_chunk::<SEQUENCE_BYTES>()?;
        let sequence = !u64::from_be_bytes(*inverted);
        (sequence <= MAX_SEQUENCE).then_some(EntryKey { secondary_key, sequence, primary_key })
    }
}

/// Appends `sequence` so that larger ones sort first.
#[inline]
pub fn put_sequence(key: &mut Vec<u8>, sequence: SequenceNumber) {
    key.extend_from_slice(&(!sequence).to_be_bytes());
}
