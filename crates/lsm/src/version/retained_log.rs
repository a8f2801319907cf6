//! The log position of the entries that a flush retained.
//!
//! ```text
//! retained := segment varint, start varint, end varint     all 0 for none
//! ```
//!
//! Invariants: segment > 0; start < end.

use bolide_base::coding::{Decoder, put_varint};

/// A part of a log segment: whole records with entries of one tree that a flush retained and logged again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetainedLog {
    /// The segment. Not 0.
    pub segment: u64,
    /// The start of the first record, in bytes.
    pub start: u64,
    /// The end of the last record. Above `start`.
    pub end: u64,
}

impl RetainedLog {
    /// Appends the encoding of `retained`.
    pub(super) fn encode(retained: Option<Self>, out: &mut Vec<u8>) {
        let (segment, start, end) = retained.map_or((0, 0, 0), |log| (log.segment, log.start, log.end));
        for number in [segment, start, end] {
            put_varint(out, number);
        }
    }

    /// Decodes the output of [`encode`](Self::encode); `None` for anything else.
    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Option<Option<Self>> {
        let (segment, start, end) = (decoder.varint()?, decoder.varint()?, decoder.varint()?);
        match (segment, start, end) {
            (0, 0, 0) => Some(None),
            _ if segment > 0 && start < end => Some(Some(Self { segment, start, end })),
            _ => None,
        }
    }
}
