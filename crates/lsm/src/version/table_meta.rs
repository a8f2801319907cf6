//! The facts about an sstable that are known without opening it.
//!
//! ```text
//! meta  := number varint, file bytes varint,
//!          smallest key bytes, largest key bytes,
//!          smallest sequence varint, largest sequence varint,
//!          entries varint, tombstones varint, filtered through varint
//! bytes := length varint, bytes
//! ```
//!
//! The attachment is not part of this encoding: an sstable with one is added by another operation of the manifest, which
//! has it behind the meta; see [`super::version_edit`].
//!
//! Invariants: number > 0; entries > 0; tombstones <= entries; smallest key <= largest key;
//! 0 <= smallest sequence <= largest sequence <= 2^47 - 1; keys are within `MAX_TREE_KEY_BYTES`.

use bolide_base::coding::{Decoder, put_bytes, put_u64, put_varint};
use bolide_base::limits::MAX_TREE_KEY_BYTES;
use bolide_base::{FileIdentity, MAX_SEQUENCE, SequenceNumber};
use bolide_table::TableProperties;

/// The facts about one sstable in the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableMeta {
    /// The number of its file.
    pub number: u64,
    /// The tag of its file.
    pub tag: u64,
    /// The length of its file in bytes.
    pub file_bytes: u64,
    /// The smallest user key.
    pub smallest_key: Vec<u8>,
    /// The largest user key.
    pub largest_key: Vec<u8>,
    /// The smallest sequence number of the entries.
    pub smallest_sequence: SequenceNumber,
    /// The largest sequence number of the entries.
    pub largest_sequence: SequenceNumber,
    /// The number of entries, tombstones and old versions included. At least one.
    pub entries: u64,
    /// The number of tombstones.
    pub tombstones: u64,
    /// No entry is covered by a range tombstone of the tree with this sequence number or a smaller one: the writer of the
    /// file dropped such entries. 0: not known.
    pub filtered_through: SequenceNumber,
    /// The layer above's summary of the file, to avoid reading it; empty for none. At most [`MAX_ATTACHMENT_BYTES`].
    pub attachment: Vec<u8>,
}

/// The maximum length of an attachment of an sstable, in bytes (64 KiB).
pub const MAX_ATTACHMENT_BYTES: usize = 64 << 10;

impl TableMeta {
    /// The meta of the file `identity` that was just written with `properties`.
    pub fn new(
        identity: FileIdentity,
        properties: &TableProperties,
        filtered_through: SequenceNumber,
    ) -> Self {
        let FileIdentity { file_number: number, tag } = identity;
        Self {
            number,
            tag,
            file_bytes: properties.file_bytes,
            smallest_key: properties.smallest_key.clone(),
            largest_key: properties.largest_key.clone(),
            smallest_sequence: properties.smallest_sequence,
            largest_sequence: properties.largest_sequence,
            entries: properties.entries,
            tombstones: properties.tombstones,
            filtered_through,
            attachment: Vec::new(),
        }
    }

    /// The same meta with `attachment`, unless that is over [`MAX_ATTACHMENT_BYTES`]: then nothing more is known of the file.
    #[must_use]
    pub fn with_attachment(mut self, attachment: Vec<u8>) -> Self {
        if attachment.len() <= MAX_ATTACHMENT_BYTES {
            self.attachment = attachment;
        }
        self
    }

    /// The number and the tag of the file.
    pub fn identity(&self) -> FileIdentity {
        FileIdentity { file_number: self.number, tag: self.tag }
    }

    /// True if the ranges of user keys have a key in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.smallest_key <= other.largest_key && other.smallest_key <= self.largest_key
    }

    /// Appends the encoded meta.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.number);
        put_varint(out, self.file_bytes);
        put_bytes(out, &self.smallest_key);
        put_bytes(out, &self.largest_key);
        put_varint(out, self.smallest_sequence);
        put_varint(out, self.largest_sequence);
        put_varint(out, self.entries);
        put_varint(out, self.tombstones);
        put_varint(out, self.filtered_through);
        put_u64(out, self.tag);
    }

    /// Decodes the output of [`encode`](Self::encode); `None` unless all invariants hold. Allocates at most the length of the
    /// input.
    pub fn decode(decoder: &mut Decoder<'_>) -> Option<Self> {
        let mut meta = Self {
            number: decoder.varint()?,
            tag: 0,
            file_bytes: decoder.varint()?,
            smallest_key: decode_key(decoder)?,
            largest_key: decode_key(decoder)?,
            smallest_sequence: decoder.varint()?,
            largest_sequence: decoder.varint()?,
            entries: decoder.varint()?,
            tombstones: decoder.varint()?,
            filtered_through: decoder.varint()?,
            attachment: Vec::new(),
        };
        meta.tag = decoder.u64()?;
        meta.check().is_ok().then_some(meta)
    }

    /// Checks the invariants in the module documentation, as far as one meta determines them.
    ///
    /// # Errors
    /// A description of the violated invariant.
    pub fn check(&self) -> Result<(), &'static str> {
        let longest = self.smallest_key.len().max(self.largest_key.len());
        let rules = [
            (self.number > 0, "an sstable has the number 0"),
            (self.entries > 0, "an sstable has no entries"),
            (self.tombstones <= self.entries, "an sstable has more tombstones than entries"),
            (self.smallest_key <= self.largest_key, "the keys of an sstable are out of order"),
            (longest <= MAX_TREE_KEY_BYTES, "a key of an sstable is too long"),
            (self.smallest_sequence <= self.largest_sequence, "sequence numbers are out of order"),
            (self.largest_sequence <= MAX_SEQUENCE, "a sequence number is too large"),
            (self.filtered_through <= MAX_SEQUENCE, "a sequence number is too large"),
            (self.attachment.len() <= MAX_ATTACHMENT_BYTES, "the attachment of an sstable is too long"),
        ];
        rules.into_iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, what)| Err(what))
    }
}

pub(super) fn decode_key(decoder: &mut Decoder<'_>) -> Option<Vec<u8>> {
    let len = decoder.length(MAX_TREE_KEY_BYTES)?;
    decoder.take(len).map(<[u8]>::to_vec)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A meta of `number` from `smallest` to `largest` with plausible counts.
    pub(crate) fn meta(number: u64, smallest: &str, largest: &str) -> TableMeta {
        TableMeta {
            number,
            tag: 0xa5 << 56 | number,
            file_bytes: 1000,
            smallest_key: smallest.into(),
            largest_key: largest.into(),
            smallest_sequence: number,
            largest_sequence: number + 5,
            entries: 10,
            tombstones: 1,
            filtered_through: 0,
            attachment: Vec::new(),
        }
    }

    #[test]
    fn a_meta_round_trips_and_no_part_of_it_decodes() {
        let meta = meta(7, "apple", "pear");
        let mut bytes = Vec::new();
        meta.encode(&mut bytes);
        assert_eq!(TableMeta::decode(&mut Decoder::new(&bytes)), Some(meta));
        for cut in 0..bytes.len() {
            assert_eq!(TableMeta::decode(&mut Decoder::new(&bytes[..cut])), None);
        }
    }

    #[test]
    fn broken_invariants_are_refused() {
        let good = meta(7, "a", "b");
        let broken = [
            TableMeta { number: 0, ..good.clone() },
            TableMeta { entries: 0, tombstones: 0, ..good.clone() },
            TableMeta { tombstones: 11, ..good.clone() },
            TableMeta { smallest_key: b"c".to_vec(), ..good.clone() },
            TableMeta { smallest_sequence: 13, ..good.clone() },
            TableMeta { largest_sequence: MAX_SEQUENCE + 1, ..good.clone() },
            TableMeta { filtered_through: MAX_SEQUENCE + 1, ..good.clone() },
            TableMeta { largest_key: vec![b'x'; MAX_TREE_KEY_BYTES + 1], ..good },
        ];
        for meta in broken {
            let mut bytes = Vec::new();
            meta.encode(&mut bytes);
            assert_eq!(TableMeta::decode(&mut Decoder::new(&bytes)), None);
        }
    }
}
