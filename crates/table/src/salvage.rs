//! Reads an sstable of which parts are damaged: all blocks whose checksums hold, and no others.
//!
//! # What is needed
//! | part | if it is damaged |
//! |---|---|
//! | header | nothing is lost: the footer identifies the file too |
//! | data block | its entries are lost; its key range is known from the separators |
//! | index partition | the data blocks below it are lost: nothing else stores their lengths |
//! | top index block, footer | the whole file is lost: blocks are not self-delimiting, only the index stores where one ends |
//! | filter, meta blocks, meta index, properties | no entry is lost; without the properties the [owner](crate::TableOwner) is not known |
//!
//! A block with a good checksum whose entries do not decode, or are out of order, counts as damaged from that entry on.

use std::sync::Arc;

use bolide_base::{Error, FileIdentity, Result, SequenceNumber, Trailer};
use parking_lot::Mutex;

use crate::block::{Block, Entry};
use crate::file_pool::FileSource;
use crate::footer::{Footer, IndexLevelCount, read_end};
use crate::index_block::{IndexBlock, IndexLevel};
use crate::internal_cursor::InternalCursor;
use crate::options::{MAX_BLOCK_BYTES, MAX_META_BLOCK_BYTES};
use crate::properties::TableProperties;
use crate::stored_block::{BlockHandle, read_block};
use crate::table_reader::MAX_PROPERTIES_BYTES;

/// A part of an sstable that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedBlock {
    /// Where the block starts in its file, in bytes.
    pub offset: u64,
    /// Where it ends.
    pub end: u64,
    /// No key below this one is lost; `None` if that is not known.
    pub first: Option<Vec<u8>>,
    /// No key above this one is lost; `None` if that is not known.
    pub last: Option<Vec<u8>>,
    /// What is wrong with it.
    pub error: String,
}

/// An sstable that may be damaged, open for reading what is left of it.
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
    /// With `expected` its identity and its length must be these; bytes behind that length are ignored. Without, those that the
    /// footer holds are taken.
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
    /// What is wrong with them.
    pub fn properties(&self) -> Result<&TableProperties> {
        self.properties.as_ref().map_err(Clone::clone)
    }

    /// A cursor over all entries that can be read. It moves forward only.
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

    /// The separator in front of a partition.
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

    /// No entry of this partition has a key below the result.
    fn partition_start(&self, partition: usize) -> Option<Vec<u8>> {
        if partition == 0 { self.smallest_key() } else { self.partition_separator(partition) }
    }

    /// No entry of this partition has a key above the result.
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

/// A cursor over the entries of a [`TableSalvage`] that can be read. Memory: one index partition and one block.
///
/// It moves forward only, from the first entry on: other positions are errors of kind Internal. Damage is no error: it goes to
/// [`skipped`](Self::skipped).
#[derive(Debug)]
pub struct SalvageCursor {
    table: Arc<TableSalvage>,
    /// The partition that is read, and its index block once it is.
    partition: usize,
    leaf: Option<IndexBlock>,
    /// The data block of that partition that comes next.
    child: usize,
    block: Option<Block>,
    /// The entry of the block that comes next.
    next_entry: usize,
    entry: Option<Entry>,
    /// The key of the current entry.
    key: Vec<u8>,
    next_key: Vec<u8>,
    /// True once an entry was reached.
    started: bool,
    skipped: Arc<Mutex<Vec<SkippedBlock>>>,
}

impl SalvageCursor {
    /// What was skipped so far. The list outlives the cursor.
    pub fn skipped(&self) -> Arc<Mutex<Vec<SkippedBlock>>> {
        Arc::clone(&self.skipped)
    }

    /// Goes to the next entry that can be read; to none behind the last.
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
                    Some(entry) if self.is_behind(&entry) => {
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

    /// Whether the entry with `next_key` comes behind the current one.
    fn is_behind(&self, entry: &Entry) -> bool {
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

    /// Loads the next data block that can be read; false if there is none.
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

    /// Loads the index block of the current partition, or of the next one that can be read.
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
