//! A cursor over the entries of an sstable, in both directions.

use std::sync::Arc;

use bolide_base::{MAX_SEQUENCE, Result, SequenceNumber, Trailer};

use crate::block::{Block, BlockEntry, MalformedBlock};
use crate::footer::IndexLevelCount;
use crate::index_block::IndexBlock;
use crate::internal_cursor::InternalCursor;
use crate::pinned_block::{PinnedBlock, read_child_ahead};
use crate::readahead::Readahead;
use crate::table_reader::TableReader;
use crate::value_ref::ValueRef;

/// The position of an entry in its sstable. Positions ascend in tree order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TablePosition {
    /// Number of the data block, from 0.
    pub block: u64,
    /// Number of the entry in its block, from 0.
    pub entry: u32,
}

/// A cursor over the entries of one sstable. See [`InternalCursor`] for its states.
///
/// It pins one data block and, for a large index, one index partition. A step inside a block does no I/O and, once the key
/// buffer has grown, allocates nothing.
#[derive(Debug)]
pub struct TableCursor {
    table: Arc<TableReader>,
    readahead: Readahead,
    /// The index partition above the block; the whole index if it has one level.
    leaf: Option<Arc<IndexBlock>>,
    /// Number of `leaf` in the top index; 0 if the index has one level.
    partition: usize,
    /// Number of the block in `leaf`.
    child: usize,
    /// The predicted number in `leaf` of the block of the next seek.
    guess: usize,
    block: Option<Block>,
    /// The current entry and its number in the block; `None` while the cursor is invalid.
    entry: Option<BlockEntry>,
    index: usize,
    /// The current key. Its prefix is that of the current block.
    key: Vec<u8>,
}

impl TableReader {
    /// A cursor over all entries. With `fill_cache`, blocks that it reads are inserted into the cache. Without it, as for a
    /// compaction, they are not, and its reads do not count as uses.
    ///
    /// In both cases it reads ahead, up to 256 KiB at a time, after it has read several consecutive blocks.
    pub fn cursor(self: &Arc<Self>, fill_cache: bool) -> TableCursor {
        TableCursor::new(Arc::clone(self), fill_cache)
    }
}

impl TableCursor {
    pub(crate) fn new(table: Arc<TableReader>, fill_cache: bool) -> Self {
        Self {
            table,
            readahead: Readahead::new(fill_cache),
            leaf: None,
            partition: 0,
            child: 0,
            guess: 0,
            block: None,
            entry: None,
            index: 0,
            key: Vec::new(),
        }
    }

    /// The table of the cursor.
    pub fn table(&self) -> &Arc<TableReader> {
        &self.table
    }

    /// The position of the current entry; `None` if the cursor is invalid.
    pub fn position(&self) -> Option<TablePosition> {
        self.entry?;
        let block = self.leaf.as_ref()?.ordinal(self.child);
        Some(TablePosition { block, entry: self.index as u32 })
    }

    /// Moves to the entry at `position`; invalid if there is no such block or entry. Costs at most two block reads.
    pub fn seek_position(&mut self, position: TablePosition) -> Result<()> {
        if self.enter_numbered_block(position.block)? {
            self.go_to_entry(position.entry as usize)
        } else {
            Ok(())
        }
    }

    /// Makes data block number `block` the current one; the cursor is invalid until
    /// [`go_to_entry`](Self::go_to_entry). False if there is no such block. Costs at most two block reads.
    ///
    /// # Errors
    /// `Corruption` and `Io` from reading the block.
    #[inline]
    pub fn enter_numbered_block(&mut self, block: u64) -> Result<bool> {
        self.entry = None;
        if self.block.is_some() && self.leaf.as_ref().is_some_and(|leaf| leaf.ordinal(self.child) == block) {
            return Ok(true);
        }
        self.change_numbered_block(block)
    }

    fn change_numbered_block(&mut self, block: u64) -> Result<bool> {
        let Some(top) = self.table.top_index() else { return Ok(false) };
        let Some(mut child) = top.block.child_of_ordinal(block) else { return Ok(false) };
        let mut partition = 0;
        if top.levels == IndexLevelCount::Two {
            partition = child;
            self.enter_partition(partition)?;
            match self.leaf.as_ref().and_then(|leaf| leaf.child_of_ordinal(block)) {
                Some(found) => child = found,
                None => return Ok(false),
            }
        }
        self.enter_partition(partition)?;
        self.enter_block(child)?;
        Ok(self.block.is_some())
    }

    /// Moves to entry number `index` of the current block; invalid if there is none. No I/O.
    ///
    /// # Errors
    /// `Corruption` if the block is inconsistent.
    #[inline]
    pub fn go_to_entry(&mut self, index: usize) -> Result<()> {
        if index < self.block.as_ref().map_or(0, Block::count) {
            self.set_entry(index)
        } else {
            self.entry = None;
            Ok(())
        }
    }

    /// The first of the entries `low..high` of the current block at or after `(key, sequence)`; `high` if there is none. No
    /// I/O; does not move the cursor.
    ///
    /// # Errors
    /// `Corruption` if the block is inconsistent or has fewer entries.
    #[inline]
    pub fn lower_bound_between(
        &mut self,
        low: usize,
        high: usize,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<usize> {
        let found = self.block.as_ref().map(|block| block.lower_bound_between(low, high, key, sequence));
        match found {
            Some(Ok(index)) => Ok(index),
            Some(Err(malformed)) => Err(self.damaged(malformed)),
            None => Ok(high),
        }
    }

    /// The current block, pinned; `None` if there is none.
    #[inline]
    pub fn pinned_block(&self) -> Option<PinnedBlock> {
        self.block.clone().map(PinnedBlock::new)
    }

    /// Prefetches entry number `index` of the current block.
    #[inline]
    pub fn prefetch_entry(&self, index: usize) {
        if let Some(block) = &self.block {
            block.prefetch_entry(index, true);
        }
    }

    /// Moves to the next entry of the current block; invalid after its last one. No I/O.
    ///
    /// # Errors
    /// `Corruption` if the block is inconsistent.
    #[inline]
    pub fn next_in_block(&mut self) -> Result<()> {
        let entries = self.block.as_ref().map_or(0, Block::count);
        if self.entry.is_some() && self.index + 1 < entries {
            self.set_entry(self.index + 1)
        } else {
            self.entry = None;
            Ok(())
        }
    }

    /// The sequence number of the previous entry, if it is in the same block and has the same key: the next newer version. No
    /// I/O.
    ///
    /// # Errors
    /// `Corruption` if the block is inconsistent.
    #[inline]
    pub fn newer_in_block(&mut self) -> Result<Option<SequenceNumber>> {
        let (Some(block), Some(entry)) = (&self.block, &self.entry) else { return Ok(None) };
        block.newer_version(self.index, entry).map_err(|malformed| self.damaged(malformed))
    }

    /// The value of the current entry, pinned: it stays valid after the next step, without a copy.
    pub fn value_ref(&self) -> ValueRef {
        match (&self.block, &self.entry) {
            (Some(block), Some(entry)) => ValueRef::pinned(block.bytes().clone(), entry.value()),
            _ => ValueRef::from(Vec::new()),
        }
    }

    /// Whether the previous block contains versions, newer ones, of the current entry's key.
    #[inline]
    pub fn continues_block_before(&self) -> bool {
        let (Some(leaf), Some(_)) = (&self.leaf, self.entry) else { return false };
        if self.child > 0 {
            return leaf.continues(self.child, &self.key);
        }
        // The level above stores the separator before a partition.
        self.table.top_index().is_some_and(|top| {
            top.levels == IndexLevelCount::Two && top.block.continues(self.partition, &self.key)
        })
    }

    /// The number of index partitions; 1 for an index of one level, 0 for an empty table.
    fn partitions(&self) -> usize {
        match self.table.top_index() {
            Some(top) if top.levels == IndexLevelCount::Two => top.block.len(),
            Some(_) => 1,
            None => 0,
        }
    }

    /// Makes `partition` the current index partition.
    fn enter_partition(&mut self, partition: usize) -> Result<()> {
        let Some(top) = self.table.top_index() else {
            return Ok(());
        };
        if self.leaf.is_some() && self.partition == partition {
            return Ok(());
        }
        self.block = None;
        self.entry = None;
        self.leaf = None;
        self.leaf = Some(match top.levels {
            IndexLevelCount::One => Arc::clone(&top.block),
            IndexLevelCount::Two => self.table.partition(&top.block, partition)?,
        });
        self.partition = partition;
        Ok(())
    }

    /// Makes data block number `child` of the current partition the current block.
    fn enter_block(&mut self, child: usize) -> Result<()> {
        self.entry = None;
        if self.block.is_some() && self.child == child {
            return Ok(());
        }
        self.block = None;
        let Some(leaf) = &self.leaf else {
            return Ok(());
        };
        let block = self.readahead.block(&self.table, leaf, child)?;
        self.key.clear();
        self.key.extend_from_slice(block.prefix());
        self.block = Some(block);
        self.child = child;
        Ok(())
    }

    /// Enters the index partition of `(key, sequence)`. Returns the number of its data block in the partition, or `None` for
    /// an empty table.
    #[inline]
    fn child_of(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<Option<usize>> {
        self.entry = None;
        let Some(top) = self.table.top_index() else {
            return Ok(None);
        };
        if top.levels == IndexLevelCount::One {
            let child = top.block.find_from_guess(self.guess, key, sequence);
            self.enter_partition(0)?;
            return Ok(Some(child));
        }
        let partition = top.block.find_from_guess(self.partition, key, sequence);
        self.enter_partition(partition)?;
        Ok(self.leaf.as_ref().map(|leaf| leaf.find_from_guess(self.guess, key, sequence)))
    }

    /// Enters the data block that may contain `(key, sequence)`. False for an empty table.
    fn enter_block_of(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<bool> {
        let Some(child) = self.child_of(key, sequence)? else {
            return Ok(false);
        };
        self.enter_block(child)?;
        Ok(true)
    }

    /// Moves to the first entry of the next block; invalid after the last one.
    #[cold]
    fn enter_next_block(&mut self) -> Result<()> {
        self.entry = None;
        let children = self.leaf.as_ref().map_or(0, |leaf| leaf.len());
        if self.child + 1 < children {
            self.enter_block(self.child + 1)?;
        } else if self.partition + 1 < self.partitions() {
            self.enter_partition(self.partition + 1)?;
            self.enter_block(0)?;
        } else {
            return Ok(());
        }
        self.set_entry(0)
    }

    /// Moves to the last entry of the previous block; invalid before the first one.
    #[cold]
    fn enter_previous_block(&mut self) -> Result<()> {
        self.entry = None;
        if self.child > 0 {
            self.enter_block(self.child - 1)?;
        } else if self.partition > 0 {
            self.enter_partition(self.partition - 1)?;
            let children = self.leaf.as_ref().map_or(0, |leaf| leaf.len());
            self.enter_block(children.saturating_sub(1))?;
        } else {
            return Ok(());
        }
        self.set_last_entry()
    }

    fn set_last_entry(&mut self) -> Result<()> {
        match self.block.as_ref().map_or(0, Block::count).checked_sub(1) {
            Some(last) => self.set_entry(last),
            None => Ok(()),
        }
    }

    /// Makes entry number `index` of the current block the current entry.
    #[inline]
    fn set_entry(&mut self, index: usize) -> Result<()> {
        let Some(block) = &self.block else {
            return Ok(());
        };
        match block.entry(index) {
            Ok(entry) => {
                block.complete_key(&entry, &mut self.key);
                self.entry = Some(entry);
                self.index = index;
                Ok(())
            }
            Err(malformed) => Err(self.damaged(malformed)),
        }
    }

    #[cold]
    fn damaged(&mut self, malformed: MalformedBlock) -> bolide_base::Error {
        self.entry = None;
        let handle = self.leaf.as_ref().and_then(|leaf| leaf.handle(self.child));
        self.table.damaged(handle.unwrap_or_default().offset, malformed)
    }

    /// The number of the first entry of the current block at or after `(key, sequence)`.
    #[inline]
    fn lower_bound(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<usize> {
        match self.block.as_ref().map_or(Ok(0), |block| block.lower_bound(key, sequence)) {
            Ok(index) => Ok(index),
            Err(malformed) => Err(self.damaged(malformed)),
        }
    }
}

impl InternalCursor for TableCursor {
    #[inline]
    fn valid(&self) -> bool {
        self.entry.is_some()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        if self.entry.is_some() { &self.key } else { &[] }
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.entry.map_or(Trailer::from_bits(0), |entry| entry.trailer)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        match (&self.block, &self.entry) {
            (Some(block), Some(entry)) => block.bytes().get(entry.value()).unwrap_or_default(),
            _ => &[],
        }
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.entry = None;
        if self.partitions() == 0 {
            return Ok(());
        }
        self.enter_partition(0)?;
        self.enter_block(0)?;
        self.set_entry(0)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.entry = None;
        let Some(last) = self.partitions().checked_sub(1) else {
            return Ok(());
        };
        self.enter_partition(last)?;
        let children = self.leaf.as_ref().map_or(0, |leaf| leaf.len());
        self.enter_block(children.saturating_sub(1))?;
        self.set_last_entry()
    }

    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        if !self.enter_block_of(key, sequence)? {
            return Ok(());
        }
        let index = self.lower_bound(key, sequence)?;
        let entries = self.block.as_ref().map_or(0, Block::count);
        if index < entries { self.set_entry(index) } else { self.enter_next_block() }
    }

    /// Finds the block in the index and prefetches its cache slot.
    #[inline]
    fn prepare_seek(&mut self, key: &[u8], sequence: SequenceNumber) {
        // The seek itself reports an error of reading the index partition.
        if let Ok(Some(child)) = self.child_of(key, sequence)
            && let Some(leaf) = &self.leaf
        {
            self.guess = child;
            self.table.blocks().prefetch_slot(leaf.ordinal(child));
        }
    }

    /// Prefetches the first lines of the block, or announces its read.
    #[inline]
    fn prepare_next_stage(&mut self) -> bool {
        if let Some(leaf) = &self.leaf {
            self.table.blocks().prefetch_block(leaf.ordinal(self.guess));
            read_child_ahead(&self.table, leaf, self.guess);
        }
        false
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        // No entry is newer than the largest sequence number: this is the first position of the key.
        if !self.enter_block_of(key, MAX_SEQUENCE)? {
            return Ok(());
        }
        match self.lower_bound(key, MAX_SEQUENCE)?.checked_sub(1) {
            Some(index) => self.set_entry(index),
            None => self.enter_previous_block(),
        }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let (Some(block), Some(_)) = (&self.block, &self.entry) else {
            return Ok(());
        };
        if self.index + 1 < block.count() { self.set_entry(self.index + 1) } else { self.enter_next_block() }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if self.entry.is_none() {
            return Ok(());
        }
        match self.index.checked_sub(1) {
            Some(index) => self.set_entry(index),
            None => self.enter_previous_block(),
        }
    }
}
