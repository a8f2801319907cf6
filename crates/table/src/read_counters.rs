//! What one thread reads from tables, counted as it goes.
//!
//! The counters are plain cells of the thread: counting costs an addition to memory that is in the cache, under a
//! nanosecond, so it is always on. Whoever wants to know what a piece of work cost takes the counters before
//! and after it, in the thread that does it.

use std::cell::Cell;
use std::ops::{AddAssign, Sub};

/// Counts since the thread began. See [`ReadCounters::of_this_thread`].
///
/// ```
/// use bolide_table::ReadCounters;
/// let before = ReadCounters::of_this_thread();
/// let cost = ReadCounters::of_this_thread() - before;
/// assert_eq!(cost, ReadCounters::default());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ReadCounters {
    /// Blocks found in the block cache, data blocks and index partitions alike.
    pub blocks_cached: u64,
    /// Blocks of any kind read from files.
    pub blocks_read: u64,
    /// Bytes of those on disk, checksums included.
    pub bytes_read: u64,
    /// Bloom filters asked about a key.
    pub bloom_checks: u64,
    /// How many of them said that the key is not there.
    pub bloom_negatives: u64,
    /// Zone maps asked about a value or a range.
    pub zone_checks: u64,
    /// How many of them said that nothing is there.
    pub zone_negatives: u64,
    /// Sstables, or whole sorted runs, left out because of the range of their sequence numbers: counted for each key that
    /// was looked for.
    pub tables_skipped: u64,
    /// Memtables left out because of the range of their sequence numbers, likewise.
    pub memtables_skipped: u64,
    /// Keys looked for in an sstable without asking its Bloom filter, because no other component could hold them.
    pub filters_skipped: u64,
}

thread_local! {
    static COUNTERS: Cell<ReadCounters> = const { Cell::new(ReadCounters::ZERO) };
}

impl ReadCounters {
    const ZERO: Self = Self {
        blocks_cached: 0,
        blocks_read: 0,
        bytes_read: 0,
        bloom_checks: 0,
        bloom_negatives: 0,
        zone_checks: 0,
        zone_negatives: 0,
        tables_skipped: 0,
        memtables_skipped: 0,
        filters_skipped: 0,
    };

    /// What this thread has counted so far.
    pub fn of_this_thread() -> Self {
        COUNTERS.with(Cell::get)
    }

    /// Lets `change` add to the counters of this thread. For whoever keeps filters and zone maps of its own.
    #[inline]
    pub fn count(change: impl FnOnce(&mut Self)) {
        COUNTERS.with(|counters| {
            let mut now = counters.get();
            change(&mut now);
            counters.set(now);
        });
    }
}

impl Sub for ReadCounters {
    type Output = Self;

    /// What was counted since `before`.
    fn sub(self, before: Self) -> Self {
        Self {
            blocks_cached: self.blocks_cached.wrapping_sub(before.blocks_cached),
            blocks_read: self.blocks_read.wrapping_sub(before.blocks_read),
            bytes_read: self.bytes_read.wrapping_sub(before.bytes_read),
            bloom_checks: self.bloom_checks.wrapping_sub(before.bloom_checks),
            bloom_negatives: self.bloom_negatives.wrapping_sub(before.bloom_negatives),
            zone_checks: self.zone_checks.wrapping_sub(before.zone_checks),
            zone_negatives: self.zone_negatives.wrapping_sub(before.zone_negatives),
            tables_skipped: self.tables_skipped.wrapping_sub(before.tables_skipped),
            memtables_skipped: self.memtables_skipped.wrapping_sub(before.memtables_skipped),
            filters_skipped: self.filters_skipped.wrapping_sub(before.filters_skipped),
        }
    }
}

impl AddAssign for ReadCounters {
    /// Adds what was counted elsewhere: by a thread that took over a part of the work.
    fn add_assign(&mut self, other: Self) {
        self.blocks_cached = self.blocks_cached.wrapping_add(other.blocks_cached);
        self.blocks_read = self.blocks_read.wrapping_add(other.blocks_read);
        self.bytes_read = self.bytes_read.wrapping_add(other.bytes_read);
        self.bloom_checks = self.bloom_checks.wrapping_add(other.bloom_checks);
        self.bloom_negatives = self.bloom_negatives.wrapping_add(other.bloom_negatives);
        self.zone_checks = self.zone_checks.wrapping_add(other.zone_checks);
        self.zone_negatives = self.zone_negatives.wrapping_add(other.zone_negatives);
        self.tables_skipped = self.tables_skipped.wrapping_add(other.tables_skipped);
        self.memtables_skipped = self.memtables_skipped.wrapping_add(other.memtables_skipped);
        self.filters_skipped = self.filters_skipped.wrapping_add(other.filters_skipped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_counts_for_itself() {
        let before = ReadCounters::of_this_thread();
        ReadCounters::count(|counters| counters.blocks_read += 2);
        std::thread::spawn(|| ReadCounters::count(|counters| counters.blocks_read += 7)).join().unwrap();
        let cost = ReadCounters::of_this_thread() - before;
        assert_eq!(cost, ReadCounters { blocks_read: 2, ..ReadCounters::default() });
    }

    #[test]
    fn every_counter_is_added_and_taken_away() {
        let all = |number: u64| ReadCounters {
            blocks_cached: number,
            blocks_read: 2 * number,
            bytes_read: 3 * number,
            bloom_checks: 4 * number,
            bloom_negatives: 5 * number,
            zone_checks: 6 * number,
            zone_negatives: 7 * number,
            tables_skipped: 8 * number,
            memtables_skipped: 9 * number,
            filters_skipped: 10 * number,
        };
        let mut sum = all(3);
        sum += all(4);
        assert_eq!((sum, all(9) - all(2)), (all(7), all(7)));
    }
}
