//! Caller-defined meta blocks: named byte strings in an sstable.
//!
//! ```text
//! meta index   n × { name length varint, name, offset varint, stored bytes varint }    names ascend
//! ```

use bolide_base::coding::{Decoder, put_bytes, put_varint};
use bolide_base::limits::MAX_NAME_BYTES;
use bolide_base::{Result, Trailer};

use crate::block::MalformedBlock;
use crate::stored_block::BlockHandle;

/// Observes the entries of an sstable while it is written, and adds meta blocks to it: filters on attributes, zone maps,
/// blocks of a secondary index.
///
/// Calls are in file order: `add` for each entry of a data block, `finish_block` after its last entry, and finally `finish`
/// once. The sstable does not interpret the meta blocks.
pub trait MetaCollector: Send {
    /// Adds an entry of data block number `block` (from 0).
    fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8], block: u64);

    /// Ends the current data block, which lies at `handle`.
    fn finish_block(&mut self, handle: BlockHandle);

    /// The meta blocks to write: names, unique in the table and at most 255 bytes long, and their
    /// bytes, at most [`MAX_META_BLOCK_BYTES`](crate::MAX_META_BLOCK_BYTES). An error fails the table.
    fn finish(&mut self) -> Result<Vec<(String, Vec<u8>)>>;

    /// Bytes for the manifest entry of the sstable, which allow decisions on the file without reading it. Called after
    /// [`finish`](Self::finish). Empty by default.
    fn attachment(&mut self) -> Vec<u8> {
        Vec::new()
    }
}

/// The names of the meta blocks and their locations, by name.
pub(crate) type MetaIndex = Vec<(String, BlockHandle)>;

/// Writes the index of meta blocks, which must be sorted by name.
pub(crate) fn encode_meta_index(index: &MetaIndex) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, handle) in index {
        put_bytes(&mut out, name.as_bytes());
        put_varint(&mut out, handle.offset);
        put_varint(&mut out, handle.bytes.into());
    }
    out
}

/// Reads the index of meta blocks. All must lie between `data_end` and `file_bytes`.
pub(crate) fn decode_meta_index(
    payload: &[u8],
    data_end: u64,
    file_bytes: u64,
) -> std::result::Result<MetaIndex, MalformedBlock> {
    const DAMAGED: MalformedBlock = MalformedBlock("the index of meta blocks does not decode");
    let mut input = Decoder::new(payload);
    let mut index = MetaIndex::new();
    while !input.is_empty() {
        let name = input.bytes().filter(|name| name.len() <= MAX_NAME_BYTES).ok_or(DAMAGED)?;
        let name = str::from_utf8(name).map_err(|_| DAMAGED)?.to_owned();
        let offset = input.varint().filter(|&offset| offset >= data_end).ok_or(DAMAGED)?;
        let bytes = input.varint().and_then(|bytes| u32::try_from(bytes).ok()).ok_or(DAMAGED)?;
        let handle = BlockHandle { offset, bytes };
        if handle.end() > file_bytes || index.last().is_some_and(|(last, _)| *last >= name) {
            return Err(DAMAGED);
        }
        index.push((name, handle));
    }
    Ok(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_round_trips_and_malformed_ones_are_rejected() {
        let index = vec![
            ("a".to_owned(), BlockHandle { offset: 100, bytes: 20 }),
            ("zone map".to_owned(), BlockHandle { offset: 129, bytes: 20 }),
        ];
        let bytes = encode_meta_index(&index);
        assert_eq!(decode_meta_index(&bytes, 100, 158).unwrap(), index);
        assert!(decode_meta_index(&bytes, 101, 158).is_err());
        assert!(decode_meta_index(&bytes, 100, 157).is_err());
        assert!(decode_meta_index(&[&bytes[..], &bytes[..]].concat(), 100, 158).is_err());
        for len in 1..bytes.len() {
            let whole_first = len == 4;
            assert_eq!(decode_meta_index(&bytes[..len], 100, 158).is_ok(), whole_first, "{len}");
        }
    }
}
