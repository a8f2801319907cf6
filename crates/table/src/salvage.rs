//! Reads a damaged sstable: all blocks with valid checksums, and no others.
//!
//! # Dependencies between the parts
//! | part | if it is damaged |
//! |---|---|
//! | header | nothing is lost: the footer identifies the file too |
//! | data block | its entries are lost; the separators bound its key range |
//! | index partition | the data blocks below it are lost: nothing else stores their lengths |
//! | top index block, footer | the whole file is lost: blocks are not self-delimiting, only the index stores their lengths |
//! | filter, meta blocks, meta index, properties | no entry is lost; only the [owner](crate::TableOwner) is unknown |
//!
//! In a block with a valid checksum, entries count as damaged from the first one that does not decode or is out of order.

use std::sync::Arc;

use bolide_base::{Error, FileIdentity, Result, SequenceNumber, Trailer};
use parking_lot::Mutex;

use crate::block::{Block, BlockEntry};
use crate::file_pool::FileSource;
use crate::footer::{Footer, IndexLevelCount, read_end};
use crate::index_block::{IndexBlock, IndexLevel};
use crate::internal_cursor::InternalCursor;
use crate::options::{MAX_BLOCK_BYTES, MAX_META_BLOCK_BYTES};
use crate::properties::TableProperties;
use crate::stored_block::{BlockHandle, read_block};
use crate::table_reader::MAX_PROPERTIES_BYTES;

/// A part of an sstable that was not readable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedBlock {
    /// Start of the block in its file, in bytes.
    pub offset: u64,
    /// End of the block.
    pub end: u64,
    /// Lower bound of the lost keys; `None` if unknown.
    pub first: Option<Vec<u8>>,
    /// Upper bound of the lost keys, inclusive; `None` if unknown.
    pub last: Option<Vec<u8>>,
    /// The error of the read.
    pub error: String,
}

/// A possibly damaged sstable, open for reading its intact parts.
#[derive(Debug)]
pub struct TableSalvage {
    source: FileSource,
    identity: FileIdentity,
    footer: Footer,
    properties: Result<TableProperties>,
    /// `None` for a table without entries.
    index: Option<(IndexBlock, IndexLevelCount)>,
}

impl TableSalvage {
    /// Opens an sstable. Reads the footer, the top index block and the properties.
    ///
    /// With `expected` the identity and the length must match; bytes after that length are ignored. Without it, the footer
    /// supplies both.
    ///
    /// # Errors
    /// Corruption, Unsupported and those of the file system: the whole file is lost.
    pub fn open(source: FileSource, expected: Option<(FileIdentity, u64)>) -> Result<Self> {
        let length = source.len()?;
        let file_bytes = expected.map_or(length, |(_, file_bytes)| file_bytes.min(length));
        let (identity, footer) =
            read_end(&source, file_bytes, expected.as_ref().map(|(identity, _)| identity))?;
        let read = |handle, limit| read_block(&source, &identity, footer.file_bytes, handle, limit, None);
        let properties = read(footer.properties, MAX_PROPERTIES_BYTES).and_then(|payload| {
            TableProperties::decode(payload.as_slice(), footer.file_bytes)
                .map_err(|malformed| source.corruption(footer.properties.offset, malformed.0))
        });
        let index = match footer.index {
            Some((handle, levels)) => {
                Some((read_index(&source, &identity, &footer, handle, levels.highest())?, levels))
            }
            None => None,
        };
        Ok(Self { source, identity, footer, properties, index })
    }

    /// The identity of the file.
    pub fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// The properties of the file.
    ///
    /// # Errors
    /// The error of reading them.
    pub fn properties(&self) -> Result<&TableProperties> {
        self.properties.as_ref().map_err(Clone::clone)
    }

    /// A cursor over all readable entries. It moves forward only.
    pub fn cursor(self: Arc<Self>) -> SalvageCursor {
        SalvageCursor {
            table: self,
            partition: 0,
            leaf: None,
            child: 0,
            block: None,
            next_entry: 0,
            entry: None,
            key: Vec::new(),
            next_key: Vec::new(),
            started: false,
            skipped: Arc::default(),
        }
    }

    fn partitions(&self) -> usize {
        match &self.index {
            None => 0,
            Some((_, IndexLevelCount::One)) => 1,
            Some((top, IndexLevelCount::Two)) => top.len(),
        }
    }

    /// The separator before a partition.
    fn partition_separator(&self, partition: usize) -> Option<Vec<u8>> {
        match &self.index {
            Some((top, IndexLevelCount::Two)) => top.separator(partition).map(|(key, _)| key),
            _ => None,
        }
    }

    fn smallest_key(&self) -> Option<Vec<u8>> {
        self.properties.as_ref().ok().map(|properties| properties.smallest_key.clone())
    }

    fn largest_key(&self) -> Option<Vec<u8>> {
        self.properties.as_ref().ok().map(|properties| properties.largest_key.clone())
    }

    /// Lower bound of the keys of this partition.
    fn partition_start(&self, partition: usize) -> Option<Vec<u8>> {
        if partition == 0 { self.smallest_key() } else { self.partition_separator(partition) }
    }

    /// Upper bound of the keys of this partition.
    fn partition_end(&self, partition: usize) -> Option<Vec<u8>> {
        if partition + 1 >= self.partitions() {
            self.largest_key()
        } else {
            self.partition_separator(partition + 1)
        }
    }
}

fn read_index(
    source: &FileSource,
    identity: &FileIdentity,
    footer: &Footer,
    handle: BlockHandle,
    level: IndexLevel,
) -> Result<IndexBlock> {
    let payload = read_block(source, identity, footer.file_bytes, handle, MAX_META_BLOCK_BYTES, None)?;
    let end = match level {
        IndexLevel::Leaf => footer.data_end,
        IndexLevel::Top => footer.file_bytes,
    };
    IndexBlock::decode(payload.as_slice(), level, end)
        .map_err(|malformed| source.corruption(handle.offset, malformed.0))
}

/// A cursor over the readable entries of a [`TableSalvage`]. Memory: one index partition and one block.
///
/// It moves forward only, starting at the first entry; other positioning calls are errors of kind Internal. Damage is not
/// an error: it is recorded in [`skipped`](Self::skipped).
#[derive(Debug)]
pub struct SalvageCursor {
    table: Arc<TableSalvage>,
    /// The current partition, and its index block once it was read.
    partition: usize,
    leaf: Option<IndexBlock>,
    /// The next data block of that partition.
    child: usize,
    block: Option<Block>,
    /// The next entry of the block.
    next_entry: usize,
    entry: Option<BlockEntry>,
    /// The key of the current entry.
    key: Vec<u8>,
    next_key: Vec<u8>,
    /// Whether an entry was reached.
    started: bool,
    skipped: Arc<Mutex<Vec<SkippedBlock>>>,
}

impl SalvageCursor {
    /// The blocks skipped so far. The list outlives the cursor.
    pub fn skipped(&self) -> Arc<Mutex<Vec<SkippedBlock>>> {
        Arc::clone(&self.skipped)
    }

    /// Moves to the next readable entry; to none after the last.
    fn advance(&mut self) {
        loop {
            if let Some(block) = &self.block {
                if self.next_entry >= block.count() {
                    self.block = None;
                    continue;
                }
                let entry = block.decode(self.next_entry);
                if let Some(entry) = entry {
                    self.next_key.clear();
                    self.next_key.extend_from_slice(block.prefix());
                    block.complete_key(&entry, &mut self.next_key);
                }
                match entry {
                    Some(entry) if self.is_after_current(&entry) => {
                        self.next_entry += 1;
                        std::mem::swap(&mut self.key, &mut self.next_key);
                        self.entry = Some(entry);
                        self.started = true;
                        return;
                    }
                    _ => self.skip_rest_of_block(),
                }
            } else if !self.load_block() {
                self.entry = None;
                return;
            }
        }
    }

    /// Whether the entry with `next_key` sorts after the current one.
    fn is_after_current(&self, entry: &BlockEntry) -> bool {
        match &self.entry {
            Some(current) if self.started => {
                self.key < self.next_key
                    || (self.key == self.next_key && entry.trailer.sequence() < current.trailer.sequence())
            }
            _ => true,
        }
    }

    fn skip_rest_of_block(&mut self) {
        self.block = None;
        let child = self.child.saturating_sub(1);
        if let Some(handle) = self.leaf.as_ref().and_then(|leaf| leaf.handle(child)) {
            let error =
                self.table.source.corruption(handle.offset, "the entries of a block are out of order");
            self.skip_child(child, handle, &error);
        }
    }

    /// Loads the next readable data block; false if there is none.
    fn load_block(&mut self) -> bool {
        loop {
            if self.leaf.is_none() && !self.load_leaf() {
                return false;
            }
            let Some(leaf) = &self.leaf else { return false };
            if self.child >= leaf.len() {
                self.leaf = None;
                self.partition += 1;
                continue;
            }
            let child = self.child;
            self.child += 1;
            let Some(handle) = leaf.handle(child) else { continue };
            let table = &self.table;
            let read = read_block(
                &table.source,
                &table.identity,
                table.footer.file_bytes,
                handle,
                MAX_BLOCK_BYTES,
                None,
            );
            let block = read.and_then(|payload| {
                Block::new(payload).map_err(|malformed| table.source.corruption(handle.offset, malformed.0))
            });
            match block {
                Ok(block) => {
                    self.block = Some(block);
                    self.next_entry = 0;
                    return true;
                }
                Err(error) => self.skip_child(child, handle, &error),
            }
        }
    }

    /// Loads the index block of the current partition, or of the next readable one.
    fn load_leaf(&mut self) -> bool {
        self.child = 0;
        while self.partition < self.table.partitions() {
            let table = Arc::clone(&self.table);
            let (Some((top, levels)), Some((top_handle, _))) = (&table.index, table.footer.index) else {
                return false;
            };
            let handle = match levels {
                IndexLevelCount::One => Some(top_handle),
                IndexLevelCount::Two => top.handle(self.partition),
            };
            let Some(handle) = handle else { return false };
            match read_index(&table.source, &table.identity, &table.footer, handle, IndexLevel::Leaf) {
                Ok(leaf) => {
                    self.leaf = Some(leaf);
                    return true;
                }
                Err(error) => {
                    let (first, last) =
                        (table.partition_start(self.partition), table.partition_end(self.partition));
                    self.note(handle, first, last, &error);
                    self.partition += 1;
                }
            }
        }
        false
    }

    fn skip_child(&self, child: usize, handle: BlockHandle, error: &Error) {
        let Some(leaf) = &self.leaf else { return };
        let separator = |child| leaf.separator(child).map(|(key, _)| key);
        let first = if child == 0 { self.table.partition_start(self.partition) } else { separator(child) };
        let last = if child + 1 < leaf.len() {
            separator(child + 1)
        } else {
            self.table.partition_end(self.partition)
        };
        self.note(handle, first, last, error);
    }

    fn note(&self, handle: BlockHandle, first: Option<Vec<u8>>, last: Option<Vec<u8>>, error: &Error) {
        let (offset, end, error) = (handle.offset, handle.end(), error.message().to_owned());
        self.skipped.lock().push(SkippedBlock { offset, end, first, last, error });
    }
}

fn forward_only<T>() -> Result<T> {
    Err(Error::internal("a cursor over a damaged sstable moves forward only"))
}

impl InternalCursor for SalvageCursor {
    fn valid(&self) -> bool {
        self.entry.is_some()
    }

    fn key(&self) -> &[u8] {
        if self.entry.is_some() { &self.key } else { &[] }
    }

    fn trailer(&self) -> Trailer {
        self.entry.map_or(Trailer::from_bits(0), |entry| entry.trailer)
    }

    fn value(&self) -> &[u8] {
        match (&self.entry, &self.block) {
            (Some(entry), Some(block)) => block.bytes().get(entry.value()).unwrap_or_default(),
            _ => &[],
        }
    }

    fn seek_to_first(&mut self) -> Result<()> {
        if self.started || self.partition > 0 {
            return forward_only();
        }
        self.advance();
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        forward_only()
    }

    fn seek(&mut self, _key: &[u8], _sequence: SequenceNumber) -> Result<()> {
        forward_only()
    }

    fn seek_before(&mut self, _key: &[u8]) -> Result<()> {
        forward_only()
    }

    fn next(&mut self) -> Result<()> {
        if self.entry.is_some() {
            self.advance();
        }
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        forward_only()
    }
}

#[cfg(test)]
#[path = "salvage_tests.rs"]
mod tests;
