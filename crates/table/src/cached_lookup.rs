//! Point reads without file access: of the filter, the index and the blocks in memory.

use bolide_base::{Result, SequenceNumber, Trailer};

use crate::block::BlockLookup;
use crate::footer::IndexLevelCount;
use crate::table_reader::TableReader;
use crate::value_ref::ValueRef;

/// The result of a read of memory alone.
#[derive(Debug)]
pub enum CachedLookup {
    /// The newest version at or below the sequence number, which may be a tombstone.
    Found(Trailer, ValueRef),
    /// The sstable has no such version.
    Absent,
    /// A block that is needed is not in memory.
    NotCached,
}

impl TableReader {
    /// As [`get_hashed`](Self::get_hashed), from memory alone: reads no file and waits for none. Counts as a use of a cached
    /// block.
    ///
    /// # Errors
    /// `Corruption` for a cached block with malformed entries.
    pub fn get_cached(&self, key: &[u8], hash: u64, sequence: SequenceNumber) -> Result<CachedLookup> {
        let Some(top) = self.top_index() else { return Ok(CachedLookup::Absent) };
        if !self.may_contain_hash(hash) {
            return Ok(CachedLookup::Absent);
        }
        let child = top.block.find(key, sequence);
        let partition;
        let (leaf, child) = match top.levels {
            IndexLevelCount::One => (&*top.block, child),
            IndexLevelCount::Two => {
                let Some(cached) = self.cached_partition(&top.block, child) else {
                    return Ok(CachedLookup::NotCached);
                };
                partition = cached;
                (&*partition, partition.find(key, sequence))
            }
        };
        let Some(block) = self.cached_data_block(leaf.ordinal(child)) else {
            return Ok(CachedLookup::NotCached);
        };
        match block.find(key, sequence) {
            Ok(BlockLookup::Entry(entry)) => {
                let value = entry.value();
                Ok(CachedLookup::Found(entry.trailer, ValueRef::pinned(block.into_bytes(), value)))
            }
            Ok(BlockLookup::Absent) => Ok(CachedLookup::Absent),
            // The next block of this leaf may start with further versions of the key; that of another leaf is not looked at.
            Ok(BlockLookup::PastTheEnd) => {
                let is_last = child + 1 >= leaf.len();
                let ends = if is_last {
                    top.levels == IndexLevelCount::One
                } else {
                    !leaf.continues(child + 1, key)
                };
                Ok(if ends { CachedLookup::Absent } else { CachedLookup::NotCached })
            }
            Err(malformed) => Err(self.damaged_child(leaf, child, malformed)),
        }
    }
}
