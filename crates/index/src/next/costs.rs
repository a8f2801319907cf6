//! The cost of a query through an index of kind `next`.

use std::fmt;

crate::index_costs! {
    /// Blocks and entries that a query read from the sstables and memtables of a collection.
    #[non_exhaustive]
    pub struct NextCosts for "next" {
        /// Index blocks of all sstables.
        index_blocks,
        /// Index blocks that the global index returned.
        index_blocks_met,
        /// Of these, blocks that a filter over the keys of their sstable excluded, in a query for one key.
        index_blocks_filtered,
        /// Of the others, blocks that were read.
        index_blocks_read,
        /// Of these, blocks without a key in the range of the query: the ε of NEXT §3.4.
        false_positives,
        /// Entries in the range that were read from index blocks.
        entries,
        /// Data blocks read for the entries, or of sstables without the index.
        data_blocks_read,
        /// Entries whose data block was already read.
        data_blocks_spared,
        /// Entries whose record is replaced by a newer version in the same sstable.
        replaced,
        /// Sstables without the index, which were scanned.
        sstables_without_index,
        /// Entries of memtable indexes that were examined.
        memtable_entries,
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
