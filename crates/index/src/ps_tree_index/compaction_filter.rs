//! The filter of compactions of the sstables of an index: drops stale entries, and marks.
//!
//! A mark concerns the version table alone. It comes to an sstable if memtables were flushed before the index was opened, and stays
//! there if the sstable has entries at or below the cut too. A checkpoint contains all writes through its sequence number, so no
//! mark at or below that is ever transferred again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bolide_base::{Result, SequenceNumber};
use bolide_lsm::compaction::{CompactionFilter, FilteredEntry};

use super::log_entry::marked_key;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct SpilledEntryFilter {
    /// Drops stale entries.
    pub(super) entries: Arc<dyn CompactionFilter>,
    /// The region is durable through this sequence number; 0 before it is opened.
    pub(super) durable: Arc<AtomicU64>,
}

impl CompactionFilter for SpilledEntryFilter {
    fn drops(
        &self,
        key: &[u8],
        sequence: SequenceNumber,
        value: &[u8],
        oldest_in_use: SequenceNumber,
    ) -> Result<bool> {
        match marked_key(key) {
            Some(_) => Ok(sequence <= self.durable.load(Ordering::Acquire)),
            None => self.entries.drops(key, sequence, value, oldest_in_use),
        }
    }

    fn drops_many(
        &self,
        entries: &[FilteredEntry<'_>],
        oldest_in_use: SequenceNumber,
        out: &mut Vec<bool>,
    ) -> Result<()> {
        // Marks are before all entries.
        let marks = entries.partition_point(|entry| marked_key(entry.key).is_some());
        let (marks, entries) = entries.split_at(marks);
        for mark in marks {
            out.push(self.drops(mark.key, mark.sequence, mark.value, oldest_in_use)?);
        }
        self.entries.drops_many(entries, oldest_in_use, out)
    }

    fn shrinks(&self, entry: FilteredEntry<'_>, oldest_in_use: SequenceNumber) -> Result<Option<Vec<u8>>> {
        match marked_key(entry.key) {
            Some(_) => Ok(None),
            None => self.entries.shrinks(entry, oldest_in_use),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ps_tree_index::log_entry::put_mark;

    /// Drops entries with odd sequence numbers.
    #[derive(Debug)]
    struct DropsOdd;

    impl CompactionFilter for DropsOdd {
        fn drops(&self, key: &[u8], sequence: SequenceNumber, _: &[u8], _: SequenceNumber) -> Result<bool> {
            assert!(marked_key(key).is_none());
            Ok(sequence % 2 == 1)
        }
    }

    #[test]
    fn marks_that_a_checkpoint_contains_are_dropped() {
        let durable = Arc::new(AtomicU64::new(0));
        let filter = SpilledEntryFilter { entries: Arc::new(DropsOdd), durable: durable.clone() };
        let mark = |sequence| {
            let mut key = Vec::new();
            put_mark(&mut key, b"key", Some(sequence));
            (key, sequence)
        };
        let entry = |sequence: SequenceNumber| {
            ([&b"value"[..], &(!sequence).to_be_bytes(), b"key"].concat(), sequence)
        };
        let entries = [mark(9), mark(8), mark(3), entry(5), entry(4)];
        let filtered = || {
            let entry = |(key, sequence): &(Vec<u8>, _)| (key.clone(), *sequence);
            let owned: Vec<_> = entries.iter().map(entry).collect();
            let of =
                owned.iter().map(|(key, sequence)| FilteredEntry { key, sequence: *sequence, value: &[] });
            let mut out = Vec::new();
            filter.drops_many(&of.collect::<Vec<_>>(), 20, &mut out).unwrap();
            out
        };
        assert_eq!(filtered(), [false, false, false, true, false], "the region is not open");
        durable.store(8, Ordering::Release);
        assert_eq!(filtered(), [false, true, true, true, false]);
    }
}
