//! What a question to an embedded index cost, and what its filters saved.

use std::fmt;

/// What a question met in the sstables and memtables of a collection. All zero for other kinds of index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EmbeddedCosts {
    /// Entries of memtable indexes that were looked at.
    pub memtable_entries: u64,
    /// Sstables of the collection.
    pub sstables: u64,
    /// Sstables passed over because all their records are newer than the view.
    pub sstables_skipped_by_sequence: u64,
    /// Sstables passed over by their zone map.
    pub sstables_skipped_by_zone_map: u64,
    /// Sstables passed over by their Bloom filter.
    pub sstables_skipped_by_bloom: u64,
    /// Sstables that were written without the index, and so were read whole.
    pub sstables_without_index: u64,
    /// Sstables not looked at, because the question was answered by newer ones.
    pub sstables_not_reached: u64,
    /// Blocks passed over because all their records are newer than the view.
    pub blocks_skipped_by_sequence: u64,
    /// Blocks passed over by their zone map.
    pub blocks_skipped_by_zone_map: u64,
    /// Blocks passed over by their Bloom filter.
    pub blocks_skipped_by_bloom: u64,
    /// Blocks that may have had a match, but were not read, or not even judged, because the question was
    /// answered before.
    pub blocks_not_reached: u64,
    /// Blocks read.
    pub blocks_read: u64,
    /// Questions to Bloom filters of blocks that were answered "maybe".
    pub bloom_hits: u64,
    /// Blocks that were read for such an answer and had no match.
    pub bloom_false_positives: u64,
}

impl EmbeddedCosts {
    /// Adds `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.memtable_entries, other.memtable_entries),
            (&mut self.sstables, other.sstables),
            (&mut self.sstables_skipped_by_sequence, other.sstables_skipped_by_sequence),
            (&mut self.sstables_skipped_by_zone_map, other.sstables_skipped_by_zone_map),
            (&mut self.sstables_skipped_by_bloom, other.sstables_skipped_by_bloom),
            (&mut self.sstables_without_index, other.sstables_without_index),
            (&mut self.sstables_not_reached, other.sstables_not_reached),
            (&mut self.blocks_skipped_by_sequence, other.blocks_skipped_by_sequence),
            (&mut self.blocks_skipped_by_zone_map, other.blocks_skipped_by_zone_map),
            (&mut self.blocks_skipped_by_bloom, other.blocks_skipped_by_bloom),
            (&mut self.blocks_not_reached, other.blocks_not_reached),
            (&mut self.blocks_read, other.blocks_read),
            (&mut self.bloom_hits, other.bloom_hits),
            (&mut self.bloom_false_positives, other.bloom_false_positives),
        ];
        for (sum, more) in pairs {
            *sum += more;
        }
    }
}

/// For people: three lines.
impl fmt::Display for EmbeddedCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "embedded      {} sstables: skipped {} by sequence, {} by zone map, {} by Bloom filter; {} without the index, {} not reached",
            self.sstables,
            self.sstables_skipped_by_sequence,
            self.sstables_skipped_by_zone_map,
            self.sstables_skipped_by_bloom,
            self.sstables_without_index,
            self.sstables_not_reached
        )?;
        writeln!(
            f,
            "              {} blocks read; skipped {} by sequence, {} by zone map, {} by Bloom filter; {} not reached",
            self.blocks_read,
            self.blocks_skipped_by_sequence,
            self.blocks_skipped_by_zone_map,
            self.blocks_skipped_by_bloom,
            self.blocks_not_reached
        )?;
        writeln!(
            f,
            "              {} Bloom hits of blocks, {} of them false; {} entries of memtables looked at",
            self.bloom_hits, self.bloom_false_positives, self.memtable_entries
        )
    }
}
