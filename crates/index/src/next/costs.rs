//! The cost of a query through an index of kind `next`.

use std::fmt;

/// Blocks and entries that a query read from the sstables and memtables of a collection. All zero for other kinds of index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NextCosts {
    /// Index blocks of all sstables.
    pub index_blocks: u64,
    /// Index blocks that the global index returned.
    pub index_blocks_met: u64,
    /// Of these, blocks that a filter over the keys of their sstable excluded, in a query for one key.
    pub index_blocks_filtered: u64,
    /// Of the others, blocks that were read.
    pub index_blocks_read: u64,
    /// Of these, blocks without a key in the range of the query: the ε of NEXT §3.4.
    pub false_positives: u64,
    /// Entries in the range that were read from index blocks.
    pub entries: u64,
    /// Data blocks read for the entries, or of sstables without the index.
    pub data_blocks_read: u64,
    /// Entries whose data block was already read.
    pub data_blocks_spared: u64,
    /// Entries whose record is replaced by a newer version in the same sstable.
    pub replaced: u64,
    /// Sstables without the index, which were scanned.
    pub sstables_without_index: u64,
    /// Entries of memtable indexes that were examined.
    pub memtable_entries: u64,
}

impl NextCosts {
    /// Adds `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.index_blocks, other.index_blocks),
            (&mut self.index_blocks_met, other.index_blocks_met),
            (&mut self.index_blocks_filtered, other.index_blocks_filtered),
            (&mut self.index_blocks_read, other.index_blocks_read),
            (&mut self.false_positives, other.false_positives),
            (&mut self.entries, other.entries),
            (&mut self.data_blocks_read, other.data_blocks_read),
            (&mut self.data_blocks_spared, other.data_blocks_spared),
            (&mut self.replaced, other.replaced),
            (&mut self.sstables_without_index, other.sstables_without_index),
            (&mut self.memtable_entries, other.memtable_entries),
        ];
        for (sum, more) in pairs {
            *sum += more;
        }
    }
}

/// Two lines of text.
impl fmt::Display for NextCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "index blocks  {} of {} met by the global index, {} excluded by filters, {} read, {} false positives; {} entries; \
             {} sstables without the index",
            self.index_blocks_met,
            self.index_blocks,
            self.index_blocks_filtered,
            self.index_blocks_read,
            self.false_positives,
            self.entries,
            self.sstables_without_index
        )?;
        writeln!(
            f,
            "data blocks   {} read, {} reused; {} records replaced in their sstable; {} memtable entries examined",
            self.data_blocks_read, self.data_blocks_spared, self.replaced, self.memtable_entries
        )
    }
}
