//! The properties of an sstable.
//!
//! ```text
//! fields   n × { tag varint, length varint, bytes }    tags ascend
//! ```
//! Numbers are varints inside their bytes. A reader skips unknown tags, so that later versions may add some without a new
//! format. A tag that every reader needs has a feature bit too.

use bolide_base::coding::{Decoder, put_bytes, put_varint};
use bolide_base::{EntryKind, MAX_SEQUENCE, SequenceNumber, Trailer};

use crate::block::MalformedBlock;
use crate::options::Compression;
use crate::owner::{TableOwner, bounded};

/// Counts, sizes and ranges of an sstable. Stored in the file, except
/// [`file_bytes`](Self::file_bytes).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TableProperties {
    /// Length of the file.
    pub file_bytes: u64,
    /// The first user key; empty for a table without entries.
    pub smallest_key: Vec<u8>,
    /// The last user key.
    pub largest_key: Vec<u8>,
    /// The smallest sequence number of all entries, tombstones included; 0 for a table without entries.
    pub smallest_sequence: SequenceNumber,
    /// The largest sequence number of all entries.
    pub largest_sequence: SequenceNumber,
    /// Entries of all kinds.
    pub entries: u64,
    /// Entries that are tombstones.
    pub tombstones: u64,
    /// Entries that are merges.
    pub merges: u64,
    /// Different user keys.
    pub distinct_keys: u64,
    /// Bytes of all user keys, as they were added.
    pub raw_key_bytes: u64,
    /// Bytes of all values.
    pub raw_value_bytes: u64,
    /// Data blocks.
    pub data_blocks: u64,
    /// Bytes of the data blocks on disk, frames included.
    pub data_bytes: u64,
    /// Bytes of the filter on disk.
    pub filter_bytes: u64,
    /// Bytes of all index blocks on disk.
    pub index_bytes: u64,
    /// Index blocks below the top one; 0 where the index is a single block.
    pub index_partitions: u64,
    /// Bytes of the caller-defined meta blocks on disk.
    pub meta_bytes: u64,
    /// The compression of the table.
    pub compression: Compression,
    /// Bits of the filter per key; 0 for none.
    pub bloom_bits_per_key: u32,
    /// The tree that the table was written for; `None` if the writer did not store it.
    pub owner: Option<TableOwner>,
}

/// Tag of the smallest key; the largest key has the next one.
const SMALLEST_KEY: u64 = 1;
const LARGEST_KEY: u64 = 2;
/// First tag of the numbers, in the order of [`TableProperties::numbers`].
const FIRST_NUMBER: u64 = 3;
/// The number of number fields.
const NUMBERS: usize = 15;
/// Tags of the owner: its tree, its options, its descriptor.
const OWNER_TREE: u64 = 18;
const OWNER_OPTIONS: u64 = 19;
const OWNER_DESCRIPTOR: u64 = 20;

impl TableProperties {
    /// Counts one entry. Entries are added in tree order; `new_key` is whether the key differs from that of the previous
    /// entry.
    #[inline]
    pub(crate) fn count(&mut self, key: &[u8], trailer: Trailer, value: &[u8], new_key: bool) {
        let sequence = trailer.sequence();
        if self.entries == 0 {
            self.smallest_sequence = sequence;
            self.smallest_key = key.to_vec();
        }
        self.entries += 1;
        self.tombstones += u64::from(trailer.is_delete());
        self.merges += u64::from(trailer.kind() == Some(EntryKind::Merge));
        self.distinct_keys += u64::from(new_key);
        self.raw_key_bytes += key.len() as u64;
        self.raw_value_bytes += value.len() as u64;
        self.smallest_sequence = self.smallest_sequence.min(sequence);
        self.largest_sequence = self.largest_sequence.max(sequence);
    }

    /// The numbers in the order of their tags. Tags are never reused.
    fn numbers(&self) -> [u64; NUMBERS] {
        [
            self.smallest_sequence,
            self.largest_sequence,
            self.entries,
            self.tombstones,
            self.merges,
            self.distinct_keys,
            self.raw_key_bytes,
            self.raw_value_bytes,
            self.data_blocks,
            self.data_bytes,
            self.filter_bytes,
            self.index_bytes,
            self.index_partitions,
            self.meta_bytes,
            u64::from(self.bloom_bits_per_key) << 8 | compression_code(self.compression),
        ]
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, SMALLEST_KEY);
        put_bytes(&mut out, &self.smallest_key);
        put_varint(&mut out, LARGEST_KEY);
        put_bytes(&mut out, &self.largest_key);
        for (tag, number) in (FIRST_NUMBER..).zip(self.numbers()) {
            put_varint(&mut out, tag);
            let mut bytes = Vec::with_capacity(10);
            put_varint(&mut bytes, number);
            put_bytes(&mut out, &bytes);
        }
        if let Some(owner) = &self.owner {
            put_varint(&mut out, OWNER_TREE);
            let mut bytes = Vec::with_capacity(5);
            put_varint(&mut bytes, owner.tree.into());
            put_bytes(&mut out, &bytes);
            for (tag, field) in [(OWNER_OPTIONS, &owner.options), (OWNER_DESCRIPTOR, &owner.descriptor)] {
                if let Some(field) = field {
                    put_varint(&mut out, tag);
                    put_bytes(&mut out, field);
                }
            }
        }
        out
    }

    pub(crate) fn decode(payload: &[u8], file_bytes: u64) -> Result<Self, MalformedBlock> {
        const DAMAGED: MalformedBlock = MalformedBlock("the properties do not decode");
        let mut input = Decoder::new(payload);
        let mut numbers = [0; NUMBERS];
        let mut properties = Self { file_bytes, ..Self::default() };
        let mut last_tag = 0;
        while !input.is_empty() {
            let tag = input.varint().filter(|&tag| tag > last_tag).ok_or(DAMAGED)?;
            let bytes = input.bytes().ok_or(DAMAGED)?;
            last_tag = tag;
            let slot = tag.checked_sub(FIRST_NUMBER).and_then(|slot| usize::try_from(slot).ok());
            match (tag, slot.and_then(|slot| numbers.get_mut(slot))) {
                (SMALLEST_KEY, _) => properties.smallest_key = bytes.to_vec(),
                (LARGEST_KEY, _) => properties.largest_key = bytes.to_vec(),
                (_, Some(slot)) => *slot = Decoder::new(bytes).varint().ok_or(DAMAGED)?,
                (_, None) => properties.decode_owner(tag, bytes).ok_or(DAMAGED)?,
            }
        }
        properties.set_numbers(numbers).ok_or(DAMAGED)?;
        Ok(properties)
    }

    /// Reads a field of the owner. Fields without a preceding tree field, and other tags, are skipped.
    fn decode_owner(&mut self, tag: u64, bytes: &[u8]) -> Option<()> {
        if tag == OWNER_TREE {
            let tree = u32::try_from(Decoder::new(bytes).varint()?).ok()?;
            self.owner = Some(TableOwner { tree, options: None, descriptor: None });
        } else if let Some(owner) = &mut self.owner {
            match tag {
                OWNER_OPTIONS => owner.options = bounded(bytes),
                OWNER_DESCRIPTOR => owner.descriptor = bounded(bytes),
                _ => {}
            }
        }
        Some(())
    }

    fn set_numbers(&mut self, numbers: [u64; NUMBERS]) -> Option<()> {
        let options;
        [
            self.smallest_sequence,
            self.largest_sequence,
            self.entries,
            self.tombstones,
            self.merges,
            self.distinct_keys,
            self.raw_key_bytes,
            self.raw_value_bytes,
            self.data_blocks,
            self.data_bytes,
            self.filter_bytes,
            self.index_bytes,
            self.index_partitions,
            self.meta_bytes,
            options,
        ] = numbers;
        self.compression = compression_of(options & 0xff)?;
        self.bloom_bits_per_key = u32::try_from(options >> 8).ok()?;
        let ordered = self.smallest_key <= self.largest_key
            && self.smallest_sequence <= self.largest_sequence
            && self.largest_sequence <= MAX_SEQUENCE
            && self.tombstones <= self.entries;
        ordered.then_some(())
    }
}

/// 0 none, 1 lz4, 2.. zstd of level 1 and higher.
fn compression_code(compression: Compression) -> u64 {
    match compression {
        Compression::None => 0,
        Compression::Lz4 => 1,
        Compression::Zstd(level) => 1 + level.clamp(1, 22) as u64,
    }
}

fn compression_of(code: u64) -> Option<Compression> {
    match code {
        0 => Some(Compression::None),
        1 => Some(Compression::Lz4),
        2..=23 => Some(Compression::Zstd(code as i32 - 1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> TableProperties {
        let mut properties = TableProperties {
            file_bytes: 12_345,
            compression: Compression::Zstd(22),
            bloom_bits_per_key: 10,
            data_blocks: 3,
            ..TableProperties::default()
        };
        properties.count(b"a", Trailer::new(9, EntryKind::Put), b"value", true);
        properties.count(b"a", Trailer::new(4, EntryKind::Delete), b"", false);
        properties.largest_key = b"a".to_vec();
        properties.owner = Some(TableOwner::new(7, b"options", b"descriptor"));
        properties
    }

    #[test]
    fn properties_round_trip() {
        let properties = sample();
        assert_eq!((properties.smallest_sequence, properties.largest_sequence), (4, 9));
        assert_eq!(TableProperties::decode(&properties.encode(), 12_345), Ok(properties));
    }

    #[test]
    fn an_owner_round_trips_without_its_long_fields() {
        let long = vec![1; crate::MAX_OWNER_BYTES + 1];
        for owner in [
            None,
            Some(TableOwner::new(u32::MAX, b"", b"")),
            Some(TableOwner::new(1, &long, b"descriptor")),
            Some(TableOwner::new(1, b"options", &long)),
        ] {
            let properties = TableProperties { owner, ..sample() };
            assert_eq!(TableProperties::decode(&properties.encode(), 12_345), Ok(properties));
        }
        let mut bytes = TableProperties { owner: None, ..sample() }.encode();
        put_varint(&mut bytes, OWNER_TREE);
        put_bytes(&mut bytes, &[0xff, 0xff, 0xff, 0xff, 0x1f]);
        assert!(TableProperties::decode(&bytes, 1).is_err(), "a tree over 32 bits");
    }

    #[test]
    fn unknown_tags_are_skipped() {
        let mut bytes = sample().encode();
        put_varint(&mut bytes, 1000);
        put_bytes(&mut bytes, b"from a later version");
        assert_eq!(TableProperties::decode(&bytes, 12_345), Ok(sample()));
    }

    #[test]
    fn damage_is_rejected_or_harmless() {
        let bytes = sample().encode();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                drop(TableProperties::decode(&damaged, 1));
            }
            drop(TableProperties::decode(&bytes[..at], 1));
        }
        let out_of_order = [&bytes[..], &bytes[..]].concat();
        assert!(TableProperties::decode(&out_of_order, 1).is_err());
    }
}
