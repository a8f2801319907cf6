//! Query costs of an embedded index, and the reads that its filters saved.

use std::fmt;

crate::index_costs! {
    /// What a query read and skipped in sstables and memtables.
    #[non_exhaustive]
    pub struct EmbeddedCosts for "embedded" {
        /// Entries of memtable indexes that were read.
        memtable_entries,
        /// Sstables of the collection.
        sstables,
        /// Sstables skipped because all their records are newer than the view.
        sstables_skipped_by_sequence,
        /// Sstables skipped by their zone map.
        sstables_skipped_by_zone_map,
        /// Sstables skipped by their Bloom filter.
        sstables_skipped_by_bloom,
        /// Sstables that were written without the index, and were read completely.
        sstables_without_index,
        /// Sstables that were not reached, because newer ones satisfied the query.
        sstables_not_reached,
        /// Blocks skipped because all their records are newer than the view.
        blocks_skipped_by_sequence,
        /// Blocks skipped by their zone map.
        blocks_skipped_by_zone_map,
        /// Blocks skipped by their Bloom filter.
        blocks_skipped_by_bloom,
        /// Blocks that may have had a match but were not read, or not even filtered, because the query was satisfied before.
        blocks_not_reached,
        /// Blocks read.
        blocks_read,
        /// Blocks that a Bloom filter admitted.
        bloom_hits,
        /// Blocks of these that were read and had no match.
        bloom_false_positives,
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
