//! Batched point reads: each step runs for all reads before the next step of any.
//!
//! A point read is a chain of dependent loads: index, the hint of the block, its cache slot, the directory of the block,
//! the entry. A single read mostly waits for memory. The reads of a batch are independent: each step prefetches the memory
//! of the next step for all reads, so that their cache misses overlap.
//!
//! ```text
//! index search ─> partition (large tables) ─> hint of the block ─> slot ─> directory ─> entry
//! ```

use std::sync::Arc;

use bolide_base::{Result, SequenceNumber, Trailer};

use crate::block::{Block, BlockEntry, BlockLookup};
use crate::footer::IndexLevelCount;
use crate::index_block::IndexBlock;
use crate::pinned_block::{read_child_ahead, read_partition_ahead};
use crate::table_reader::{TableReader, TopIndex};
use crate::value_ref::ValueRef;

/// A lookup of one key in one sstable for [`read_many`]. The caller has checked the filter before.
#[derive(Debug)]
pub struct PointRead<'a> {
    reader: &'a TableReader,
    key: &'a [u8],
    sequence: SequenceNumber,
    state: ReadState<'a>,
}

/// The progress of a read.
#[derive(Debug)]
enum ReadState<'a> {
    /// Not started, or ended without a result.
    Idle,
    /// Next: the search in this partition of a two-level index.
    Partition { top: &'a TopIndex, partition: usize },
    /// Next: the search in this data block.
    Child(BlockLocation<'a>),
    /// Next: the search among these entries of the block.
    Run { location: BlockLocation<'a>, block: Block, run: (usize, usize) },
    /// The entry was found.
    Found(Block, BlockEntry),
}

/// The location of a data block in the index.
#[derive(Debug)]
struct BlockLocation<'a> {
    top: &'a TopIndex,
    partition: usize,
    /// The partition; `None` for an index of one level.
    loaded: Option<Arc<IndexBlock>>,
    child: usize,
}

impl BlockLocation<'_> {
    /// The index block above the data block.
    fn leaf(&self) -> &IndexBlock {
        self.loaded.as_deref().unwrap_or(&self.top.block)
    }

    fn ordinal(&self) -> u64 {
        self.leaf().ordinal(self.child)
    }
}

impl<'a> PointRead<'a> {
    /// A read of the newest version of `key` in `reader` with a sequence number of at most `sequence`.
    pub fn new(reader: &'a TableReader, key: &'a [u8], sequence: SequenceNumber) -> Self {
        Self { reader, key, sequence, state: ReadState::Idle }
    }

    /// The result of [`read_many`]: the newest visible version, which may be a tombstone, with its value, which pins the
    /// block.
    pub fn take(self) -> Option<(Trailer, ValueRef)> {
        match self.state {
            ReadState::Found(block, entry) => {
                Some((entry.trailer, ValueRef::pinned(block.into_bytes(), entry.value())))
            }
            _ => None,
        }
    }

    fn search_index(&mut self) {
        let Some(top) = self.reader.top_index() else { return };
        let child = top.block.find(self.key, self.sequence);
        match top.levels {
            IndexLevelCount::One => {
                self.reader.blocks().prefetch_hint(top.block.ordinal(child));
                self.state = ReadState::Child(BlockLocation { top, partition: 0, loaded: None, child });
            }
            IndexLevelCount::Two => {
                self.reader.blocks().prefetch_hint(top.block.end_ordinal() + child as u64);
                self.state = ReadState::Partition { top, partition: child };
            }
        }
    }

    fn prefetch_partition(&self) {
        if let ReadState::Partition { top, partition } = self.state {
            self.reader.blocks().prefetch_slot(top.block.end_ordinal() + partition as u64);
        }
    }

    /// Searches the partition if it is cached. False if it has to be read.
    fn search_cached_partition(&mut self) -> bool {
        let ReadState::Partition { top, partition } = self.state else { return true };
        let leaf = self.reader.cached_partition(&top.block, partition);
        let is_cached = leaf.is_some();
        if let Some(leaf) = leaf {
            self.enter_partition(top, partition, leaf);
        }
        is_cached
    }

    #[cold]
    fn load_partition(&mut self) -> Result<()> {
        if let ReadState::Partition { top, partition } = self.state {
            let leaf = self.reader.partition(&top.block, partition)?;
            self.enter_partition(top, partition, leaf);
        }
        Ok(())
    }

    fn enter_partition(&mut self, top: &'a TopIndex, partition: usize, leaf: Arc<IndexBlock>) {
        let child = leaf.find(self.key, self.sequence);
        self.reader.blocks().prefetch_hint(leaf.ordinal(child));
        self.state = ReadState::Child(BlockLocation { top, partition, loaded: Some(leaf), child });
    }

    /// Announces the read of the block that the next step needs, unless it is cached.
    #[cold]
    fn read_ahead(&self) {
        match &self.state {
            ReadState::Partition { top, partition } => read_partition_ahead(self.reader, top, *partition),
            ReadState::Child(location) => read_child_ahead(self.reader, location.leaf(), location.child),
            _ => {}
        }
    }

    fn prefetch_slot(&self) {
        if let ReadState::Child(location) = &self.state {
            self.reader.blocks().prefetch_slot(location.ordinal());
        }
    }

    fn prefetch_block(&self) {
        if let ReadState::Child(location) = &self.state {
            self.reader.blocks().prefetch_block(location.ordinal());
        }
    }

    /// Searches the data block if it is cached. False if it has to be read.
    fn search_cached_block(&mut self, values: bool) -> bool {
        let ReadState::Child(location) = &self.state else { return true };
        let block = self.reader.cached_data_block(location.ordinal());
        let is_cached = block.is_some();
        if let Some(block) = block {
            self.enter_block(block, values);
        }
        is_cached
    }

    #[cold]
    fn load_block(&mut self, values: bool) -> Result<()> {
        if let ReadState::Child(location) = &self.state {
            // An earlier read of the batch may have read the same block.
            let block = match self.reader.peek_data_block(location.ordinal()) {
                Some(block) => block,
                None => self.reader.load_data_block(location.leaf(), location.child)?,
            };
            self.enter_block(block, values);
        }
        Ok(())
    }

    fn enter_block(&mut self, block: Block, values: bool) {
        self.state = match std::mem::replace(&mut self.state, ReadState::Idle) {
            ReadState::Child(location) => {
                let run = block.run_of_key(self.key);
                block.prefetch_entry(run.0, values);
                ReadState::Run { location, block, run }
            }
            other => other,
        };
    }

    fn search_entries(&mut self) -> Result<()> {
        self.state = match std::mem::replace(&mut self.state, ReadState::Idle) {
            ReadState::Run { location, block, run } => {
                let (top, leaf, child) = (location.top, location.leaf(), location.child);
                match block.find_in_run(run, self.key, self.sequence) {
                    Ok(BlockLookup::Entry(entry)) => ReadState::Found(block, entry),
                    Ok(BlockLookup::Absent) => ReadState::Idle,
                    Ok(BlockLookup::PastTheEnd) => {
                        match self.reader.find_in_next(
                            top,
                            location.partition,
                            leaf,
                            child,
                            self.key,
                            self.sequence,
                        )? {
                            Some((block, entry)) => ReadState::Found(block, entry),
                            None => ReadState::Idle,
                        }
                    }
                    Err(malformed) => return Err(self.reader.damaged_child(leaf, child, malformed)),
                }
            }
            other => other,
        };
        Ok(())
    }
}

/// Executes all reads; [`PointRead::take`] returns their results. `values` prefetches the values too.
///
/// Costs the same I/O as single reads, and a third of their time if the blocks are cached. Reads of blocks that are not cached
/// are announced together, so that the device serves them at once. Most efficient with 8 to 64 reads.
///
/// # Errors
/// `Corruption` or `Io` from reading a block; the reads have no results then.
pub fn read_many(reads: &mut [PointRead<'_>], values: bool) -> Result<()> {
    let mut partitions = false;
    for read in reads.iter_mut() {
        read.search_index();
        partitions |= matches!(read.state, ReadState::Partition { .. });
    }
    if partitions {
        reads.iter().for_each(PointRead::prefetch_partition);
        step(reads, PointRead::search_cached_partition, PointRead::load_partition)?;
    }
    reads.iter().for_each(PointRead::prefetch_slot);
    reads.iter().for_each(PointRead::prefetch_block);
    step(reads, |read| read.search_cached_block(values), |read| read.load_block(values))?;
    reads.iter_mut().try_for_each(PointRead::search_entries)
}

/// One step of all reads: first of those whose block is cached, where `from_cache` returns true, then of the others, whose
/// blocks are announced before the first of them is read.
fn step<'a>(
    reads: &mut [PointRead<'a>],
    from_cache: impl Fn(&mut PointRead<'a>) -> bool,
    load: impl Fn(&mut PointRead<'a>) -> Result<()>,
) -> Result<()> {
    let mut missing = 0;
    for read in reads.iter_mut() {
        missing += usize::from(!from_cache(read));
    }
    match missing {
        0 => return Ok(()),
        1 => {}
        _ => reads.iter().for_each(PointRead::read_ahead),
    }
    reads.iter_mut().try_for_each(load)
}

#[cfg(test)]
#[path = "point_read_tests.rs"]
mod tests;
