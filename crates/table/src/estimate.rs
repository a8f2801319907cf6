//! Estimate of the number of entries in a range of keys, from the index of an sstable.

use bolide_base::{MAX_SEQUENCE, Result};

use crate::footer::IndexLevelCount;
use crate::table_reader::TableReader;

impl TableReader {
    /// The estimated number of entries, of all kinds and versions, with keys in `low..end`; no upper bound if `end` is `None`.
    ///
    /// Counts the data blocks between the two keys and assumes that they have equal numbers of entries. If they do, the error
    /// is below the entries of two blocks. Reads no data block, and at most two index partitions of a two-level index,
    /// through the cache.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading an index partition.
    pub fn estimate_entries(&self, low: &[u8], end: Option<&[u8]>) -> Result<u64> {
        let properties = self.properties();
        let blocks = properties.data_blocks;
        if blocks == 0
            || low > properties.largest_key.as_slice()
            || end.is_some_and(|end| end <= low || end <= properties.smallest_key.as_slice())
        {
            return Ok(0);
        }
        let from_start = low <= properties.smallest_key.as_slice();
        let to_end = end.is_none_or(|end| end > properties.largest_key.as_slice());
        if from_start && to_end {
            return Ok(properties.entries);
        }
        let first = if from_start { 0 } else { self.block_of(low)? };
        // The last block is counted as a whole.
        let last = match end {
            Some(end) if !to_end => self.block_of(end)?,
            _ => blocks,
        };
        let entries_of_block = properties.entries as f64 / blocks as f64;
        // If both keys are in one block, any part of it may lie between them.
        let within = last.saturating_sub(first) as f64;
        Ok((entries_of_block * within.max(0.5)).ceil() as u64)
    }

    /// The number of the data block for `key`.
    fn block_of(&self, key: &[u8]) -> Result<u64> {
        let Some(top) = self.top_index() else {
            return Ok(0);
        };
        let child = top.block.find(key, MAX_SEQUENCE);
        Ok(match top.levels {
            IndexLevelCount::One => top.block.ordinal(child),
            IndexLevelCount::Two => {
                let leaf = self.partition(&top.block, child)?;
                leaf.ordinal(leaf.find(key, MAX_SEQUENCE))
            }
        })
    }
}
