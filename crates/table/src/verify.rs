//! Verification of an sstable: reads every byte and checks the consistency of all parts.

use bolide_base::checksum::hash_key;
use bolide_base::interruption::InterruptionSteps;
use bolide_base::{Result, SequenceNumber, Trailer};

use crate::block::Block;
use crate::footer::{FOOTER_BYTES, HEADER_BYTES, IndexLevelCount, read_footer};
use crate::index_block::IndexBlock;
use crate::options::{MAX_BLOCK_BYTES, MAX_META_BLOCK_BYTES};
use crate::properties::TableProperties;
use crate::stored_block::BlockHandle;
use crate::table_reader::TableReader;

/// The result of [`TableReader::verify`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TableVerification {
    /// Entries, all in order.
    pub entries: u64,
    /// Data blocks, all with a valid checksum.
    pub data_blocks: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
}

impl TableReader {
    /// Reads the whole file, without the cache, and checks: header and footer; the checksum of each block; that blocks are
    /// adjacent from the header to the footer; the order of all entries; that each separator of the index sorts between its
    /// neighbours; that the filter passes every key; that the properties match the counts.
    ///
    /// The first defect is an error of kind [`ErrorKind::Corruption`](bolide_base::ErrorKind::Corruption) that contains the
    /// file and the byte. Costs one read per block and memory for one block.
    pub fn verify(&self) -> Result<TableVerification> {
        let mut walk = TableWalk::new(self);
        if let Some(top) = self.top_index() {
            match top.levels {
                IndexLevelCount::One => walk.partition(&top.block, None)?,
                IndexLevelCount::Two => {
                    for partition in 0..top.block.len() {
                        let leaf = self.read_partition(&top.block, partition)?;
                        walk.partition(&leaf, top.block.separator(partition))?;
                    }
                }
            }
        }
        walk.check_properties()?;
        self.verify_layout()?;
        if read_footer(self.source(), self.identity())? != *self.footer() {
            let what = "the footer has changed since the file was opened";
            return Err(self.source().corruption(self.footer().file_bytes, what));
        }
        Ok(TableVerification {
            entries: walk.counted.entries,
            data_blocks: walk.counted.data_blocks,
            file_bytes: self.footer().file_bytes,
        })
    }

    /// Checks that the blocks after the data are adjacent, in the order of `table_builder.rs`, and reads them.
    fn verify_layout(&self) -> Result<()> {
        let footer = self.footer();
        let mut at = footer.data_end;
        // The meta index is sorted by name; the blocks lie in the order in which they were written.
        let mut handles: Vec<BlockHandle> = self.meta_index().iter().map(|(_, handle)| *handle).collect();
        handles.sort_by_key(|handle| handle.offset);
        handles.extend(footer.filter);
        if let (Some((_, IndexLevelCount::Two)), Some(top)) = (footer.index, self.top_index()) {
            handles.extend((0..top.block.len()).filter_map(|partition| top.block.handle(partition)));
        }
        handles.extend(footer.index.map(|(handle, _)| handle));
        handles.extend([footer.meta_index, footer.properties]);
        for handle in handles {
            self.expect_at(at, handle)?;
            // The length of the filter has no other limit than the file; all other blocks are below this limit.
            self.read_raw(handle, MAX_META_BLOCK_BYTES.max(handle.bytes as usize))?;
            at = handle.end();
        }
        if at + FOOTER_BYTES as u64 != footer.file_bytes {
            return Err(self.source().corruption(at, "there are unused bytes before the footer"));
        }
        Ok(())
    }

    fn expect_at(&self, at: u64, handle: BlockHandle) -> Result<()> {
        if handle.offset == at {
            return Ok(());
        }
        let what = format!("a block starts at byte {} instead of here", handle.offset);
        Err(self.source().corruption(at, what))
    }
}

/// A pass over all data blocks.
struct TableWalk<'a> {
    table: &'a TableReader,
    /// Expected start of the next data block.
    at: u64,
    last_key: Vec<u8>,
    last_sequence: SequenceNumber,
    key: Vec<u8>,
    counted: TableProperties,
    steps: InterruptionSteps,
}

impl<'a> TableWalk<'a> {
    fn new(table: &'a TableReader) -> Self {
        Self {
            table,
            at: HEADER_BYTES as u64,
            last_key: Vec::new(),
            last_sequence: 0,
            key: Vec::new(),
            counted: TableProperties::default(),
            steps: InterruptionSteps::default(),
        }
    }

    /// Checks the blocks of one index block of the lowest level; `separator` is the one before it in the level above.
    fn partition(
        &mut self,
        leaf: &IndexBlock,
        separator: Option<(Vec<u8>, Option<SequenceNumber>)>,
    ) -> Result<()> {
        for child in 0..leaf.len() {
            self.steps.step()?;
            let handle = self.table.child_handle(leaf, child)?;
            self.table.expect_at(self.at, handle)?;
            let payload = self.table.read_raw(handle, MAX_BLOCK_BYTES)?;
            let block = self.table.parse_data_block(handle, payload)?;
            let separator = if child == 0 { separator.clone() } else { leaf.separator(child) };
            self.block(handle, &block, separator)?;
            self.at = handle.end();
        }
        Ok(())
    }

    fn block(
        &mut self,
        handle: BlockHandle,
        block: &Block,
        separator: Option<(Vec<u8>, Option<SequenceNumber>)>,
    ) -> Result<()> {
        self.key.clear();
        self.key.extend_from_slice(block.prefix());
        let mut next_start = block.first_start();
        for index in 0..block.count() {
            let entry =
                block.entry(index).map_err(|malformed| self.table.damaged(handle.offset, malformed))?;
            block.complete_key(&entry, &mut self.key);
            if block.entry_start(index) != Some(next_start) {
                return Err(self.wrong(handle, "there is a gap between entries"));
            }
            next_start = entry.value().end;
            if let Some(separator) = separator.as_ref().filter(|_| index == 0) {
                self.check_separator(handle, separator, entry.trailer)?;
            }
            let value = block.bytes().get(entry.value()).unwrap_or_default();
            self.entry(handle, entry.trailer, value)?;
        }
        self.counted.data_blocks += 1;
        Ok(())
    }

    fn check_separator(
        &self,
        handle: BlockHandle,
        separator: &(Vec<u8>, Option<SequenceNumber>),
        first: Trailer,
    ) -> Result<()> {
        let (key, sequence) = separator;
        let good = match sequence {
            Some(sequence) => *key == self.key && *key == self.last_key && *sequence == first.sequence(),
            None => *key > self.last_key && *key <= self.key,
        };
        if good {
            Ok(())
        } else {
            Err(self.wrong(handle, "the index has a wrong separator before this block"))
        }
    }

    fn entry(&mut self, handle: BlockHandle, trailer: Trailer, value: &[u8]) -> Result<()> {
        let first = self.counted.entries == 0;
        let same_key = !first && self.last_key == self.key;
        let in_order =
            first || self.last_key < self.key || same_key && trailer.sequence() < self.last_sequence;
        if !in_order {
            return Err(self.wrong(handle, "the entries are out of order"));
        }
        if !same_key {
            let hash = hash_key(&self.key);
            if !self.table.may_contain_hash(hash) {
                return Err(self.wrong(handle, "the filter excludes a key of the table"));
            }
            self.last_key.clear();
            self.last_key.extend_from_slice(&self.key);
        }
        self.last_sequence = trailer.sequence();
        self.counted.count(&self.key, trailer, value, !same_key);
        Ok(())
    }

    fn wrong(&self, handle: BlockHandle, what: &str) -> bolide_base::Error {
        self.table.source().corruption(handle.offset, what)
    }

    /// Compares the counts with the stored properties; sizes follow from the layout.
    fn check_properties(&self) -> Result<()> {
        let stored = self.table.properties();
        let footer = self.table.footer();
        let expected = TableProperties {
            file_bytes: footer.file_bytes,
            largest_key: self.last_key.clone(),
            data_bytes: footer.data_end - HEADER_BYTES as u64,
            filter_bytes: stored.filter_bytes,
            index_bytes: stored.index_bytes,
            index_partitions: stored.index_partitions,
            meta_bytes: stored.meta_bytes,
            compression: stored.compression,
            bloom_bits_per_key: stored.bloom_bits_per_key,
            owner: stored.owner.clone(),
            ..self.counted.clone()
        };
        if self.at != footer.data_end {
            let what = format!("the data blocks end here instead of at {}", footer.data_end);
            return Err(self.table.source().corruption(self.at, what));
        }
        if *stored == expected {
            return Ok(());
        }
        let what = format!("the properties are {stored:?}, but the table has {expected:?}");
        Err(self.table.source().corruption(footer.properties.offset, what))
    }
}
