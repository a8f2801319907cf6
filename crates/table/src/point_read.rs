//! Many point reads at once, each step of all of them before the next step of any.
//!
//! A point read is a chain of loads: index, the cache's word for the block, its slot, the block's directory,
//! the entry. Each waits for the one before, so a read alone mostly waits for memory. The reads of a
//! list need not wait for each other: each step asks for what the next one will load, for all reads, before any
//! of them goes on.
//!
//! ```text
//! index search ─> partition (large tables) ─> word of the block ─> slot ─> directory ─> entry
//! ```

use std::sync::Arc;

use bolide_base::{Result, SequenceNumber, Trailer};

use crate::block::{Block, Entry, Found};
use crate::footer::IndexLevelCount;
use crate::index_block::IndexBlock;
use crate::table_reader::{TableReader, TopIndex};
use crate::value_ref::ValueRef;

/// One key to be looked for in one sstable by [`read_many`]. The caller has asked the filter already.
#[derive(Debug)]
pub struct PointRead<'a> {
    reader: &'a TableReader,
    key: &'a [u8],
    sequence: SequenceNumber,
    state: State<'a>,
}

/// How far a read has come.
#[derive(Debug)]
enum State<'a> {
    /// Not begun; or ended without an answer.
    Idle,
    /// In this partition of a two-level index.
    Partition { top: &'a TopIndex, partition: usize },
    /// In this data block.
    Child(Place<'a>),
    /// Among these entries of the block.
    Run { place: Place<'a>, block: Block, run: (usize, usize) },
    /// Found.
    Found(Block, Entry),
}

/// A data block by its place in the index.
#[derive(Debug)]
struct Place<'a> {
    top: &'a TopIndex,
    partition: usize,
    /// The partition itself; `None` where the index has one level.
    loaded: Option<Arc<IndexBlock>>,
    child: usize,
}

impl Place<'_> {
    /// The index block over the data block.
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
        Self { reader, key, sequence, state: State::Idle }
    }

    /// What [`read_many`] found: the newest visible version, tombstones included, with its value, which
    /// stays in its block.
    pub fn take(self) -> Option<(Trailer, ValueRef)> {
        match self.state {
            State::Found(block, entry) => {
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
                self.reader.prefetch_hint(top.block.ordinal(child));
                self.state = State::Child(Place { top, partition: 0, loaded: None, child });
            }
            IndexLevelCount::Two => {
                self.reader.prefetch_hint(top.block.end_ordinal() + child as u64);
                self.state = State::Partition { top, partition: child };
            }
        }
    }

    fn prefetch_partition(&self) {
        if let State::Partition { top, partition } = self.state {
            self.reader.prefetch_slot(top.block.end_ordinal() + partition as u64);
        }
    }

    fn search_partition(&mut self) -> Result<()> {
        if let State::Partition { top, partition } = self.state {
            let leaf = self.reader.partition(&top.block, partition)?;
            let child = leaf.find(self.key, self.sequence);
            self.reader.prefetch_hint(leaf.ordinal(child));
            self.state = State::Child(Place { top, partition, loaded: Some(leaf), child });
        }
        Ok(())
    }

    fn prefetch_slot(&self) {
        if let State::Child(place) = &self.state {
            self.reader.prefetch_slot(place.ordinal());
        }
    }

    fn prefetch_block(&self) {
        if let State::Child(place) = &self.state {
            self.reader.prefetch_block(place.ordinal());
        }
    }

    fn search_block(&mut self, values: bool) -> Result<()> {
        self.state = match std::mem::replace(&mut self.state, State::Idle) {
            State::Child(place) => {
                let block = self.reader.data_block(place.leaf(), place.child)?;
                let run = block.run_of_key(self.key);
                block.prefetch_entry(run.0, values);
                State::Run { place, block, run }
            }
            other => other,
        };
        Ok(())
    }

    fn search_entries(&mut self) -> Result<()> {
        self.state = match std::mem::replace(&mut self.state, State::Idle) {
            State::Run { place, block, run } => {
                let (top, leaf, child) = (place.top, place.leaf(), place.child);
                match block.find_in_run(run, self.key, self.sequence) {
                    Ok(Found::Entry(entry)) => State::Found(block, entry),
                    Ok(Found::Absent) => State::Idle,
                    Ok(Found::PastTheEnd) => {
                        match self.reader.find_in_next(
                            top,
                            place.partition,
                            leaf,
                            child,
                            self.key,
                            self.sequence,
                        )? {
                            Some((block, entry)) => State::Found(block, entry),
                            None => State::Idle,
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

/// Looks for what every read wants; each then has its answer to be [taken](PointRead::take). `values` says whether the values will be looked at.
///
/// Costs the I/O of as many single reads, and a third of their time where blocks are cached. Best with
/// 8 to 64 reads.
///
/// # Errors
/// `Corruption` or `Io` from reading a block; the reads are of no use then.
pub fn read_many(reads: &mut [PointRead<'_>], values: bool) -> Result<()> {
    let mut partitions = false;
    for read in reads.iter_mut() {
        read.search_index();
        partitions |= matches!(read.state, State::Partition { .. });
    }
    if partitions {
        reads.iter().for_each(PointRead::prefetch_partition);
        reads.iter_mut().try_for_each(PointRead::search_partition)?;
    }
    reads.iter().for_each(PointRead::prefetch_slot);
    reads.iter().for_each(PointRead::prefetch_block);
    reads.iter_mut().try_for_each(|read| read.search_block(values))?;
    reads.iter_mut().try_for_each(PointRead::search_entries)
}
