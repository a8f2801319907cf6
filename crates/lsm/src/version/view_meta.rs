//! The facts about a REMIX file in the manifest.
//!
//! ```text
//! view := number, file bytes, flags (bit 0: serves point reads), tag (8 bytes), count, count numbers of sstables, ascending
//! ```
//!
//! All but the tag are varints.

use std::collections::BTreeSet;

use bolide_base::FileIdentity;
use bolide_base::coding::{Decoder, put_u64, put_varint};

/// The maximum number of sstables of a REMIX file.
pub(super) const MAX_VIEW_TABLES: usize = 64 << 10;

/// A REMIX file of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ViewMeta {
    /// The number of the file.
    pub number: u64,
    /// The tag of the file.
    pub tag: u64,
    /// The length in bytes.
    pub file_bytes: u64,
    /// Whether point reads use it: it has tags, or its sstables have no Bloom filters.
    pub serves_reads: bool,
    /// The sstables of the view. At least one.
    pub tables: BTreeSet<u64>,
}

impl ViewMeta {
    /// The number and the tag of the file.
    pub(super) fn identity(&self) -> FileIdentity {
        FileIdentity { file_number: self.number, tag: self.tag }
    }

    /// Appends the encoding.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.number, self.file_bytes, u64::from(self.serves_reads)] {
            put_varint(out, number);
        }
        put_u64(out, self.tag);
        put_varint(out, self.tables.len() as u64);
        self.tables.iter().for_each(|&number| put_varint(out, number));
    }

    /// Decodes the output of [`encode`](Self::encode); `None` for anything else.
    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Option<Self> {
        let (number, file_bytes) = (decoder.varint()?, decoder.varint()?);
        let serves_reads = decoder.length(1)? == 1;
        let tag = decoder.u64()?;
        let count = decoder.length(MAX_VIEW_TABLES)?;
        let numbers = (0..count).map(|_| decoder.varint()).collect::<Option<Vec<u64>>>()?;
        let ascends = count > 0 && numbers.is_sorted_by(|left, right| left < right);
        ascends.then(|| Self { number, tag, file_bytes, serves_reads, tables: numbers.into_iter().collect() })
    }
}
