//! Query costs of an embedded index, and the reads that its filters saved.

use std::fmt;

/// What a query read and skipped in sstables and memtables. All zero for other kinds of index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EmbeddedCosts {
    /// Entries of memtable indexes that were read.
    pub memtable_entries: u64,
    /// Sstables of the collection.
    pub sstables: u64,
    /// Sstables skipped because all their records are newer than the view.
    pub sstables_skipped_by_sequence: u64,
    /// Sstables skipped by their zone map.
    pub sstables_skipped_by_zone_map: u64,
    /// Sstables skipped by their Bloom filter.
    pub sstables_skipped_by_bloom: u64,
    /// Sstables that were written without the index, and were read completely.
    pub sstables_without_index: u64,
    /// Sstables that were not reached, because newer ones satisfied the query.
    pub sstables_not_reached: u64,
    /// Blocks skipped because all their records are newer than the view.
    pub blocks_skipped_by_sequence: u64,
    /// Blocks skipped by their zone map.
    pub blocks_skipped_by_zone_map: u64,
    /// Blocks skipped by their Bloom filter.
    pub blocks_skipped_by_bloom: u64,
    /// Blocks that may have had a match but were not read, or not even filtered, because the query was satisfied before.
    pub blocks_not_reached: u64,
    /// Blocks read.
    pub blocks_read: u64,
    /// Blocks that a Bloom filter admitted.
    pub bloom_hits: u64,
    /// Blocks of these that were read and had no match.
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

/// Three lines of text.
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
