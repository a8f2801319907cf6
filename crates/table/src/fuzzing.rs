//! Entry points to the decoders of this crate for fuzz targets. Not part of the API: names may change.
//!
//! Each function accepts any bytes and performs all operations of the store on them. It must neither panic nor allocate
//! more memory than a small multiple of their length.

use std::path::Path;
use std::sync::Arc;

use bolide_base::{EntryKind, FileIdentity, MAX_SEQUENCE, Result, Trailer};
use bolide_storage::{MemVfs, Vfs};

use crate::block::{Block, MalformedBlock};
use crate::block_cache::BlockCache;
use crate::bloom::BloomFilter;
use crate::describe::TableDetail;
use crate::file_pool::FileSource;
use crate::footer::{
    FOOTER_BYTES, Footer, HEADER_BYTES, IndexLevelCount, encode_header, parse_footer, rewrite_footer,
};
use crate::index_block::{IndexBlock, IndexLevel};
use crate::internal_cursor::InternalCursor;
use crate::meta_collector::{MetaCollector, decode_meta_index};
use crate::options::{Compression, TableOptions};
use crate::properties::TableProperties;
use crate::salvage::TableSalvage;
use crate::stored_block::{BlockHandle, PADDING, Payload};
use crate::table_builder::TableBuilder;
use crate::table_reader::TableReader;

/// The identity that repaired tables get.
const IDENTITY: FileIdentity = FileIdentity { file_number: 9, tag: 0xdb };

/// Decodes `bytes` as the payload of a data block: every entry, and searches for its keys.
pub fn data_block(bytes: &[u8]) {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len() + PADDING, 0);
    let Ok(block) = Block::new(Payload { bytes: padded.into(), len: bytes.len() }) else {
        return;
    };
    let _: std::result::Result<(), MalformedBlock> = (|| {
        let mut key = block.prefix().to_vec();
        for index in 0..block.count() {
            let entry = block.entry(index)?;
            block.complete_key(&entry, &mut key);
            assert!(block.bytes().get(entry.value()).is_some(), "a value lies outside its block");
            block.lower_bound(&key, entry.trailer.sequence())?;
            block.find(&key, MAX_SEQUENCE)?;
        }
        block.find(bytes, 0)?;
        Ok(())
    })();
}

/// Decodes `bytes` as an index block of either level.
pub fn index_block(bytes: &[u8]) {
    for level in [IndexLevel::Leaf, IndexLevel::Top] {
        if let Ok(index) = IndexBlock::decode(bytes, level, 1 << 40) {
            for child in 0..=index.len() {
                let (key, sequence) = index.separator(child).unwrap_or_default();
                index.continues(child, &key);
                assert!(index.find(&key, sequence.unwrap_or(MAX_SEQUENCE)) < index.len());
                assert_eq!(index.handle(child).is_some(), child < index.len());
            }
            index.child_of_ordinal(index.end_ordinal() - 1).expect("the last child is found");
            index.find(bytes, 7);
        }
    }
}

/// Decodes `bytes` as each of the small parts: filter, properties, index of meta blocks.
pub fn small_parts(bytes: &[u8]) {
    if let Some(filter) = BloomFilter::decode(bytes) {
        filter.may_contain(bytes.len() as u64);
    }
    if let Ok(properties) = TableProperties::decode(bytes, 1) {
        let again = TableProperties::decode(&properties.encode(), 1);
        assert!(again.as_ref() == Ok(&properties), "{again:?} instead of {properties:?}");
    }
    drop(decode_meta_index(bytes, 0, 1 << 40));
}

/// Corrects the header, the identification of the footer and every reachable checksum in `bytes`, then performs all
/// operations on the table.
pub fn table(bytes: &[u8]) {
    let bytes = repair(bytes);
    drop(exercise(&bytes));
}

/// Corrects the checksums of all reachable blocks in `bytes`, so that damage passes as data. For tests of a reader that
/// serves damaged blocks. `identity` is that of the file, which is not compressed.
pub fn forge_checksums(bytes: &mut [u8], identity: &FileIdentity) {
    if let Some(footer) = parse_footer(bytes) {
        repair_blocks(bytes, &footer, identity);
    }
}

/// As [`table`], for a valid table with edits. The first byte of `recipe` selects the options of the table; each
/// three further bytes change one byte of it.
pub fn edited_table(recipe: &[u8]) {
    let Some((&kind, edits)) = recipe.split_first() else {
        return;
    };
    let Ok(mut bytes) = good_table(kind) else {
        return;
    };
    for &[low, high, change] in edits.as_chunks().0 {
        let at = usize::from(u16::from_le_bytes([low, high])) % bytes.len();
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= change;
        }
    }
    table(&bytes);
}

/// A small table with several blocks, partitions, versions and a meta block.
fn good_table(kind: u8) -> Result<Vec<u8>> {
    let compression = match kind % 3 {
        0 => Compression::None,
        1 => Compression::Lz4,
        _ => Compression::Zstd(1),
    };
    let options = TableOptions::default()
        .compression(compression)
        .block_bytes(256)
        .bloom_bits_per_key(u32::from(kind / 3 % 2) * 10)
        .index_partition_bytes(if (kind / 6).is_multiple_of(2) { 256 } else { 64 << 10 });
    let vfs = MemVfs::new();
    let path = Path::new("000009.sst");
    let file = vfs.create(path)?;
    let mut builder = TableBuilder::new(Arc::clone(&file), IDENTITY, &options, vec![Box::new(OneMetaBlock)])?;
    for number in 0..u64::from(kind) {
        let versions = if number % 16 == 0 { 24 } else { 1 };
        for version in (1..=versions).rev() {
            let key = format!("key/{:04}", number * 7);
            let entry = if number % 5 == 0 { EntryKind::Delete } else { EntryKind::Put };
            builder.add(key.as_bytes(), Trailer::new(number + version, entry), &[kind; 9])?;
        }
    }
    let properties = builder.finish()?;
    let mut bytes = vec![0; properties.file_bytes as usize];
    file.read_exact_at(0, &mut bytes)?;
    Ok(bytes)
}

struct OneMetaBlock;

impl MetaCollector for OneMetaBlock {
    fn add(&mut self, _: &[u8], _: Trailer, _: &[u8], _: u64) {}

    fn finish_block(&mut self, _: BlockHandle) {}

    fn finish(&mut self) -> Result<Vec<(String, Vec<u8>)>> {
        Ok(vec![("meta".to_owned(), vec![1; 50])])
    }
}

fn exercise(bytes: &[u8]) -> Result<()> {
    let vfs = MemVfs::new();
    let path = Path::new("000009.sst");
    vfs.create(path)?.append(bytes)?;
    let source = FileSource::direct("000009.sst", vfs.open(path)?);
    if let Ok(table) = TableSalvage::open(source.clone(), None) {
        let mut cursor = Arc::new(table).cursor();
        cursor.seek_to_first()?;
        while cursor.valid() {
            cursor.next()?;
        }
    }
    let table = Arc::new(TableReader::open(source, IDENTITY, BlockCache::new(1 << 20))?);
    drop(table.verify());
    drop(table.describe(TableDetail::Entries, &mut std::io::sink()));
    for name in table.meta_block_names() {
        drop(table.meta_block(name));
    }
    for fill_cache in [false, true] {
        let mut cursor = table.cursor(fill_cache);
        drop(cursor.seek_to_first());
        while cursor.valid() {
            drop(table.get(cursor.key(), cursor.trailer().sequence()));
            drop(cursor.next());
        }
        drop(cursor.seek_to_last());
        while cursor.valid() {
            drop(cursor.prev());
        }
        for key in [&table.properties().smallest_key, &table.properties().largest_key] {
            drop(table.newest(key, MAX_SEQUENCE));
            drop(cursor.seek(key, 5));
            drop(cursor.seek_before(key));
        }
    }
    Ok(())
}

/// `bytes` with correct magic numbers, identities, lengths and checksums, as far as their handles are valid.
fn repair(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().max(HEADER_BYTES + FOOTER_BYTES), 0);
    if let Some(header) = bytes.get_mut(..HEADER_BYTES) {
        header.copy_from_slice(&encode_header(&IDENTITY));
    }
    rewrite_footer(&mut bytes, &IDENTITY);
    if let Some(footer) = parse_footer(&bytes) {
        repair_blocks(&mut bytes, &footer, &IDENTITY);
        rewrite_footer(&mut bytes, &IDENTITY);
    }
    bytes
}

fn repair_blocks(bytes: &mut [u8], footer: &Footer, identity: &FileIdentity) {
    repair_block(bytes, footer.properties, identity);
    repair_block(bytes, footer.meta_index, identity);
    footer.filter.into_iter().for_each(|handle| repair_block(bytes, handle, identity));
    for (_, handle) in decode_meta_index(stored(bytes, footer.meta_index), 0, u64::MAX).unwrap_or_default() {
        repair_block(bytes, handle, identity);
    }
    let Some((handle, levels)) = footer.index else {
        return;
    };
    repair_block(bytes, handle, identity);
    let Ok(top) = IndexBlock::decode(stored(bytes, handle), levels.highest(), u64::MAX) else {
        return;
    };
    for child in (0..top.len()).filter_map(|child| top.handle(child)) {
        repair_block(bytes, child, identity);
        if levels == IndexLevelCount::Two
            && let Ok(leaf) = IndexBlock::decode(stored(bytes, child), IndexLevel::Leaf, u64::MAX)
        {
            (0..leaf.len())
                .filter_map(|block| leaf.handle(block))
                .for_each(|block| repair_block(bytes, block, identity));
        }
    }
}

/// The stored bytes of a block, which are its payload if it is not compressed.
fn stored(bytes: &[u8], handle: BlockHandle) -> &[u8] {
    let start = usize::try_from(handle.offset).unwrap_or(usize::MAX);
    bytes.get(start..).and_then(|rest| rest.get(..handle.bytes as usize)).unwrap_or_default()
}

fn repair_block(bytes: &mut [u8], handle: BlockHandle, identity: &FileIdentity) {
    let Ok(start) = usize::try_from(handle.offset) else {
        return;
    };
    let covered = handle.bytes as usize + 1;
    let Some(block) = bytes.get_mut(start..).and_then(|rest| rest.get_mut(..covered + 8)) else {
        return;
    };
    let (covered, checksum) = block.split_at_mut(covered);
    checksum.copy_from_slice(&identity.checksum(handle.offset, covered).to_le_bytes());
}
