//! Counters of table reads per thread.
//!
//! The counters are thread-local cells. Counting costs an addition in cached memory, below one nanosecond, so it is always
//! enabled. The cost of an operation is the difference of the counters before and after it in its thread.

use std::cell::Cell;
use std::ops::{AddAssign, Sub};

/// Counts since the start of the thread. See [`ReadCounters::of_this_thread`].
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
    /// Bytes of these blocks on disk, checksums included.
    pub bytes_read: u64,
    /// Checks of Bloom filters for a key.
    pub bloom_checks: u64,
    /// Bloom filter checks that excluded the key.
    pub bloom_negatives: u64,
    /// Checks of zone maps for a value or a range.
    pub zone_checks: u64,
    /// Zone map checks that excluded all entries.
    pub zone_negatives: u64,
    /// Sstables, or whole sorted runs, skipped because of their range of sequence numbers; counted per key looked up.
    pub tables_skipped: u64,
    /// Memtables skipped because of their range of sequence numbers; counted per key looked up.
    pub memtables_skipped: u64,
    /// Lookups in an sstable without a Bloom filter check, because no other component could contain the key.
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

    /// The counts of this thread so far.
    pub fn of_this_thread() -> Self {
        COUNTERS.with(Cell::get)
    }

    /// Updates the counters of this thread with `change`. For callers with filters and zone maps of their own.
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

    /// The counts since `before`.
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
    /// Adds the counts of another thread that executed a part of the work.
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
    fn counters_are_per_thread() {
        let before = ReadCounters::of_this_thread();
        ReadCounters::count(|counters| counters.blocks_read += 2);
        std::thread::spawn(|| ReadCounters::count(|counters| counters.blocks_read += 7)).join().unwrap();
        let cost = ReadCounters::of_this_thread() - before;
        assert_eq!(cost, ReadCounters { blocks_read: 2, ..ReadCounters::default() });
    }

    #[test]
    fn every_counter_is_added_and_subtracted() {
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
