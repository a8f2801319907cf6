//! What a question to an index of kind `next` cost, and what its global index saved.

use std::fmt;

/// What a question met in the sstables and memtables of a collection. All zero for other kinds of index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NextCosts {
    /// Index blocks of all sstables.
    pub index_blocks: u64,
    /// Those among them that the global index led to.
    pub index_blocks_met: u64,
    /// Those among these that a filter over the keys of their sstable spared a question for one key.
    pub index_blocks_filtered: u64,
    /// Those among the others that were read.
    pub index_blocks_read: u64,
    /// Those among the read ones that had no key in the range of the question: the ε of NEXT §3.4.
    pub false_positives: u64,
    /// Entries in the range that were taken from index blocks.
    pub entries: u64,
    /// Data blocks read for them; those of sstables without the index count too.
    pub data_blocks_read: u64,
    /// Entries whose data block had been read already.
    pub data_blocks_spared: u64,
    /// Entries whose record a newer version beside it has replaced.
    pub replaced: u64,
    /// Sstables without the index, which were read whole.
    pub sstables_without_index: u64,
    /// Entries of memtable indexes that were looked at.
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

/// For people: two lines.
impl fmt::Display for NextCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "index blocks  {} of {} met by the global index, {} of them spared by filters, {} read, {} of them in vain; {} entries; {} sstables without the index",
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
            "data blocks   {} read, {} more times had already; {} records replaced beside; {} entries of memtables looked at",
            self.data_blocks_read, self.data_blocks_spared, self.replaced, self.memtable_entries
        )
    }
}
