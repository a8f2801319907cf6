//! A sorted run with random access to its entries by position.

use std::fmt;
use std::sync::Arc;

use bolide_base::{Error, Result};
use bolide_table::{KeyCounts, PinnedBlock, TableCursor, TableReader};

use crate::cursor::RunTables;
use crate::version::SortedRun;

/// The position of an entry in a run: the number of its data block, counted through all sstables of the run, and its
/// number in the block. After the last entry: the number of blocks, and 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct BlockPosition {
    pub(crate) block: u32,
    pub(crate) entry: u32,
}

/// The open sstables of one sorted run, with the number of entries of each of their blocks in memory (REMIX §4.1).
///
/// Pins the sstables: while a view has the run, no file of it is removed.
pub struct ViewRun {
    tables: Box<[ViewTable]>,
    counts: KeyCounts,
    entries: u64,
    /// Pins the sstables.
    pin: Option<Arc<SortedRun>>,
}

struct ViewTable {
    reader: Arc<TableReader>,
    /// The number of its first block in the run.
    first_block: u32,
}

impl ViewRun {
    /// The run of `tables`, which are in key order and do not overlap. Reads their key counts.
    ///
    /// # Errors
    /// `Corruption` and `Io` from reading; `LimitExceeded` for more than 2³² - 1 blocks.
    pub fn new(tables: Vec<Arc<TableReader>>) -> Result<Arc<Self>> {
        Self::pinned(tables, None)
    }

    /// The view run of a sorted run of a tree. Opens its sstables.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of(run: &Arc<SortedRun>) -> Result<Arc<Self>> {
        let tables: Result<Vec<_>> =
            SortedRun::tables(run).iter().map(|table| table.reader().cloned()).collect();
        Self::pinned(tables?, Some(Arc::clone(run)))
    }

    fn pinned(readers: Vec<Arc<TableReader>>, pin: Option<Arc<SortedRun>>) -> Result<Arc<Self>> {
        let mut counts = Vec::new();
        let mut tables = Vec::with_capacity(readers.len());
        for reader in readers {
            let first_block = u32::try_from(counts.len()).map_err(|_| too_many_blocks(counts.len()))?;
            counts.extend(reader.key_counts()?.iter());
            tables.push(ViewTable { reader, first_block });
        }
        if u32::try_from(counts.len()).is_err() {
            return Err(too_many_blocks(counts.len()));
        }
        let entries = tables.iter().map(|table| table.reader.properties().entries).sum();
        let counts = KeyCounts::new(&counts);
        let counts = match tables.first() {
            Some(table) => counts.moved_to(table.reader.cache().memory_pool()),
            None => counts,
        };
        Ok(Arc::new(Self { tables: tables.into(), counts, entries, pin }))
    }

    /// The open sstables, in key order.
    pub fn readers(&self) -> impl ExactSizeIterator<Item = &Arc<TableReader>> {
        self.tables.iter().map(|table| &table.reader)
    }

    /// The number of entries, including old versions and tombstones.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The number of data blocks.
    pub fn blocks(&self) -> u32 {
        self.counts.blocks() as u32
    }

    /// The sorted run of the tree, if this was created from one.
    pub fn sorted_run(&self) -> Option<&Arc<SortedRun>> {
        self.pin.as_ref()
    }

    /// The memory use of the counts in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.counts.memory_bytes()
    }

    /// The largest number of entries in a block.
    pub(crate) fn largest_count(&self) -> u32 {
        self.counts.largest()
    }

    /// The number of entries of block number `block`; 0 after the last block.
    #[inline]
    pub(crate) fn count(&self, block: u32) -> u32 {
        self.counts.get(block as usize).unwrap_or(0)
    }

    /// Prefetches the counts that [`advance`](Self::advance) reads.
    #[inline]
    pub(crate) fn prefetch_count(&self, block: u32) {
        self.counts.prefetch(block as usize);
    }

    /// The position `steps` entries after `from`. No I/O.
    #[inline]
    pub(crate) fn advance(&self, from: BlockPosition, steps: u32) -> BlockPosition {
        let BlockPosition { mut block, entry } = from;
        let mut entry = entry.saturating_add(steps);
        while let Some(count) = self.counts.get(block as usize)
            && entry >= count
        {
            entry -= count;
            block += 1;
        }
        BlockPosition { block, entry }
    }

    /// The position before `from`; `from` itself if that is the first one.
    #[inline]
    pub(crate) fn retreat(&self, from: BlockPosition) -> BlockPosition {
        match (from.entry.checked_sub(1), from.block.checked_sub(1)) {
            (Some(entry), _) => BlockPosition { entry, ..from },
            (None, Some(block)) => BlockPosition { block, entry: self.count(block).saturating_sub(1) },
            (None, None) => from,
        }
    }

    /// The number of the sstable of block number `block`, and the block's number in the sstable.
    #[inline]
    pub(crate) fn table_of(&self, block: u32) -> (usize, u64) {
        let table = match &*self.tables {
            [_] => 0,
            tables => tables.partition_point(|table| table.first_block <= block).saturating_sub(1),
        };
        let first = self.tables.get(table).map_or(0, |table| table.first_block);
        (table, u64::from(block.saturating_sub(first)))
    }

    /// Sstable number `table`.
    #[inline]
    pub(crate) fn reader(&self, table: usize) -> Option<&Arc<TableReader>> {
        self.tables.get(table).map(|table| &table.reader)
    }

    /// Data block number `block`, through the cache.
    #[inline]
    pub(crate) fn pinned_block(&self, block: u32, fill_cache: bool) -> Result<PinnedBlock> {
        let (table, number) = self.table_of(block);
        let pinned = match self.reader(table) {
            Some(reader) => reader.numbered_blocks().pin(number, fill_cache)?,
            None => None,
        };
        pinned.ok_or_else(|| self.damaged(block))
    }

    /// The block of the entry at `at`, through the cache. Fills the cache.
    #[inline]
    pub(crate) fn block_of(&self, at: BlockPosition) -> Result<PinnedBlock> {
        match self.block_in_cache(at, true) {
            Some(pinned) => Ok(pinned),
            None => self.pinned_block(at.block, true),
        }
    }

    /// The block of the entry at `at` if it is in the cache. With `count_use`, the cache counts this as a use. No I/O.
    #[inline]
    pub(crate) fn block_in_cache(&self, at: BlockPosition, count_use: bool) -> Option<PinnedBlock> {
        let (table, number) = self.table_of(at.block);
        self.reader(table)?.numbered_blocks().pin_cached(number, at.entry as usize, count_use)
    }

    /// Starts reading block number `block` from its file in the background, unless it is cached.
    pub(crate) fn read_ahead(&self, block: u32) {
        let (table, number) = self.table_of(block);
        if let Some(reader) = self.reader(table) {
            reader.numbered_blocks().read_ahead(number);
        }
    }

    /// Prefetches what [`prefetch_listed`](Self::prefetch_listed) reads.
    #[inline]
    pub(crate) fn prefetch_hint(&self, block: u32) {
        let (table, number) = self.table_of(block);
        if let Some(reader) = self.reader(table) {
            reader.numbered_blocks().prefetch_hint(number);
        }
    }

    /// Prefetches the cache slot of the block of the entry at `at`, the block, and the entry's offset in the block.
    #[inline]
    pub(crate) fn prefetch_listed(&self, at: BlockPosition) {
        let (table, number) = self.table_of(at.block);
        if let Some(reader) = self.reader(table) {
            reader.numbered_blocks().prefetch_directory(number, at.entry as usize);
        }
    }

    /// As [`prefetch_listed`](Self::prefetch_listed), and prefetches the likely location of the entry.
    #[inline]
    pub(crate) fn prefetch_likely(&self, at: BlockPosition) {
        let (table, number) = self.table_of(at.block);
        if let Some(reader) = self.reader(table) {
            reader.numbered_blocks().prefetch_predicted(number, at.entry as usize);
        }
    }

    /// Prefetches the key of the entry at `at`, if its block is in the cache.
    #[inline]
    pub(crate) fn prefetch_entry(&self, at: BlockPosition) {
        let (table, number) = self.table_of(at.block);
        if let Some(reader) = self.reader(table) {
            reader.numbered_blocks().prefetch_content(number, at.entry as usize);
        }
    }

    /// The error for a block that contradicts the view or its table.
    #[cold]
    pub(crate) fn damaged(&self, block: u32) -> Error {
        let (table, number) = self.table_of(block);
        match self.reader(table) {
            Some(reader) => reader.numbered_blocks().damaged(number),
            None => Error::internal("a sorted view refers to a run without sstables"),
        }
    }
}

fn too_many_blocks(blocks: usize) -> Error {
    Error::limit_exceeded("the data blocks of a sorted run", blocks as u64, u32::MAX.into())
}

impl RunTables for Arc<ViewRun> {
    type Cursor = TableCursor;

    fn tables(&self) -> usize {
        self.tables.len()
    }

    fn position(&self, key: &[u8]) -> usize {
        self.tables.partition_point(|table| table.reader.properties().largest_key.as_slice() < key)
    }

    fn open(&self, index: usize, fill_cache: bool) -> Result<Option<TableCursor>> {
        Ok(self.reader(index).map(|reader| reader.cursor(fill_cache)))
    }
}

impl fmt::Debug for ViewRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<u64> = self.readers().map(|reader| reader.identity().file_number).collect();
        f.debug_struct("ViewRun").field("tables", &numbers).field("entries", &self.entries).finish()
    }
}
