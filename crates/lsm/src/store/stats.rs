//! Statistics of a store.

use std::sync::atomic::{AtomicU64, Ordering};

use bolide_base::{SequenceNumber, TreeId};

use super::Store;
use super::tree::Tree;
use crate::layout::Layout;
use crate::row_cache::RowCacheStats;
use crate::store::jobs::obsolete_files::cut_tails;
use crate::version::CutTail;

/// Counters since the store was opened.
#[derive(Debug, Default)]
pub(super) struct Counters {
    table_bytes_flushed: AtomicU64,
    table_bytes_compacted: AtomicU64,
    pub(super) compaction_bytes_read: AtomicU64,
    pub(super) flushes: AtomicU64,
    pub(super) compactions: AtomicU64,
    pub(super) trivial_moves: AtomicU64,
    pub(super) entries_dropped: AtomicU64,
    /// Written only under the lock of the log, like `batch_bytes`.
    log_bytes: AtomicU64,
    batch_bytes: AtomicU64,
    pub(super) throttled_nanos: AtomicU64,
    pub(super) retained_bytes: AtomicU64,
    pub(super) aborts: AtomicU64,
    pub(super) minor_compactions: AtomicU64,
    pub(super) major_compactions: AtomicU64,
    pub(super) splits: AtomicU64,
    pub(super) view_bytes: AtomicU64,
    pub(super) memory_compactions: AtomicU64,
    pub(super) entries_dropped_in_memory: AtomicU64,
}

impl Counters {
    /// Counts the bytes that a flush wrote to one of several partitions.
    pub(super) fn flushed_into(&self, bytes: u64) {
        self.table_bytes_flushed.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of log records since the store was opened.
    pub(super) fn log_bytes(&self) -> u64 {
        self.log_bytes.load(Ordering::Relaxed)
    }

    /// Adds bytes of log records. The caller holds the lock of the log.
    #[inline]
    pub(super) fn add_log_bytes(&self, bytes: u64) {
        self.log_bytes.store(self.log_bytes() + bytes, Ordering::Relaxed);
    }

    /// Adds bytes of committed batches. The caller holds the lock of the log.
    #[inline]
    pub(super) fn add_batch_bytes(&self, bytes: u64) {
        self.batch_bytes.store(self.batch_bytes.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
    }

    pub(super) fn flushed(&self, bytes: u64) {
        self.table_bytes_flushed.fetch_add(bytes, Ordering::Relaxed);
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn compacted(&self, bytes_read: u64, bytes_written: u64, entries_dropped: u64) {
        self.compaction_bytes_read.fetch_add(bytes_read, Ordering::Relaxed);
        self.table_bytes_compacted.fetch_add(bytes_written, Ordering::Relaxed);
        self.entries_dropped.fetch_add(entries_dropped, Ordering::Relaxed);
        self.compactions.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes since the store was opened; in bytes where the name ends in `_bytes`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteCounters {
    /// Encoded batches that callers committed.
    pub batch_bytes: u64,
    /// Log records with their headers.
    pub log_bytes: u64,
    /// Sstables written by flushes.
    pub flushed_bytes: u64,
    /// Sstables written by compactions.
    pub compacted_bytes: u64,
    /// Sstables read by compactions.
    pub compaction_bytes_read: u64,
    /// Flushes done.
    pub flushes: u64,
    /// Compactions done, moves not counted.
    pub compactions: u64,
    /// Files moved to another level without being rewritten.
    pub trivial_moves: u64,
    /// Entries that compactions and flushes dropped because no view can see them any more.
    pub entries_dropped: u64,
    /// Time that writers waited because of throttling, in microseconds.
    pub throttled_micros: u64,
    /// Log records with entries that flushes retained; part of [`log_bytes`](Self::log_bytes).
    pub retained_bytes: u64,
    /// Partitions whose new entries a flush retained (REMIX §4.2, as the next three).
    pub aborts: u64,
    /// Partitions that a flush added sstables to.
    pub minor_compactions: u64,
    /// Partitions of which a flush rewrote the newest runs.
    pub major_compactions: u64,
    /// Partitions that a flush divided.
    pub splits: u64,
    /// REMIX files written; not part of the others.
    pub view_bytes: u64,
    /// Compactions of full memtables in memory, instead of flushes.
    pub memory_compactions: u64,
    /// Entries that compactions in memory dropped because no view can see them any more; not part of
    /// [`entries_dropped`](Self::entries_dropped).
    pub entries_dropped_in_memory: u64,
}

impl WriteCounters {
    /// Bytes written to sstables and REMIX files for each byte of a committed batch, without the log. 0 before the
    /// first write.
    pub fn write_amplification(&self) -> f64 {
        if self.batch_bytes == 0 {
            return 0.0;
        }
        (self.flushed_bytes + self.compacted_bytes + self.view_bytes) as f64 / self.batch_bytes as f64
    }
}

/// One level of a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelStats {
    /// Its number; 0 is the first on disk.
    pub level: usize,
    /// Sorted runs.
    pub runs: usize,
    /// Partitions; 1 where the level has no boundaries.
    pub partitions: usize,
    /// Sstables.
    pub tables: usize,
    /// Bytes on disk.
    pub bytes: u64,
    /// Entries, dead versions and tombstones included.
    pub entries: u64,
    /// Tombstones among them.
    pub tombstones: u64,
}

/// One tree.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeStats {
    /// Its number.
    pub tree: TreeId,
    /// Its layout.
    pub layout: Layout,
    /// Bytes of its memtables, in memory.
    pub memtable_bytes: usize,
    /// Entries in its memtables.
    pub memtable_entries: usize,
    /// Full memtables that wait for a flush, without those compacted in memory.
    pub immutable_memtables: usize,
    /// Bytes of the log with entries that the last flush retained.
    pub retained_bytes: u64,
    /// Levels with entries.
    pub levels: Vec<LevelStats>,
    /// Memory of filters and indexes of its open sstables, of its sorted views, and of attachments of the layer above
    /// to sstables and memtables.
    pub resident_bytes: usize,
    /// Of these, the bytes of the sorted views over its runs; 0 without views.
    pub sorted_view_bytes: usize,
    /// Bytes of the REMIX files of its sorted views.
    pub sorted_view_file_bytes: u64,
    /// Range tombstones in force.
    pub range_tombstones: usize,
    /// Bytes of files that flushes and compactions wrote since the tree was created, without the log.
    pub written_bytes: u64,
}

impl TreeStats {
    /// Bytes on disk.
    pub fn disk_bytes(&self) -> u64 {
        self.levels.iter().map(|level| level.bytes).sum()
    }

    /// Entries on disk and in memtables, dead versions and tombstones included.
    pub fn entries(&self) -> u64 {
        self.levels.iter().map(|level| level.entries).sum::<u64>() + self.memtable_entries as u64
    }
}

/// A store at one moment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoreStats {
    /// Its trees, by number.
    pub trees: Vec<TreeStats>,
    /// What was written since it was opened.
    pub writes: WriteCounters,
    /// The newest sequence number that readers may see.
    pub sequence: SequenceNumber,
    /// The oldest sequence number that a view still reads.
    pub oldest_view: SequenceNumber,
    /// Views that are alive.
    pub views: usize,
    /// Length of the log segment in use, in bytes.
    pub log_segment_bytes: u64,
    /// Finished log segments that some memtable still needs.
    pub old_log_segments: usize,
    /// REMIX files found damaged or missing since the opening; they are rebuilt.
    pub damaged_views: u64,
    /// Ends of log segments that recoveries cut off, oldest first, as long as their files exist.
    pub cut_tails: Vec<CutTail>,
    /// The last log segment that recovery read, if its synced length was unexpectedly unknown: the marker was missing,
    /// although machine and mount are the same since the segment was written.
    pub unmarked_log: Option<u64>,
    /// The row cache: records that were read more than once.
    pub rows: RowCacheStats,
}

impl Store {
    /// Statistics of the store and of each tree. Takes short locks. I/O: the roots of external trees that are not open yet, once.
    pub fn stats(&self) -> StoreStats {
        let inner = &*self.inner;
        let (log_bytes, unmarked_log, sequence) = {
            let log = inner.log.lock();
            (log.len(), log.unmarked, inner.snapshots.published())
        };
        // A guard in the expression below would live until its end.
        let old_log_segments = inner.log.finished.lock().len();
        let cut_tails = cut_tails(&inner.files, &inner.log);
        StoreStats {
            trees: inner.trees.load().values().map(|tree| tree.stats()).collect(),
            writes: inner.counters.read(),
            sequence,
            oldest_view: inner.snapshots.oldest(),
            views: inner.snapshots.count(),
            log_segment_bytes: log_bytes,
            old_log_segments,
            damaged_views: inner.files.tables.view_failures.count(),
            cut_tails,
            unmarked_log,
            rows: inner.rows.stats(),
        }
    }
}

impl Counters {
    /// The current values.
    fn read(&self) -> WriteCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WriteCounters {
            batch_bytes: read(&self.batch_bytes),
            log_bytes: read(&self.log_bytes),
            flushed_bytes: read(&self.table_bytes_flushed),
            compacted_bytes: read(&self.table_bytes_compacted),
            compaction_bytes_read: read(&self.compaction_bytes_read),
            flushes: read(&self.flushes),
            compactions: read(&self.compactions),
            trivial_moves: read(&self.trivial_moves),
            entries_dropped: read(&self.entries_dropped),
            throttled_micros: read(&self.throttled_nanos) / 1_000,
            retained_bytes: read(&self.retained_bytes),
            aborts: read(&self.aborts),
            minor_compactions: read(&self.minor_compactions),
            major_compactions: read(&self.major_compactions),
            splits: read(&self.splits),
            view_bytes: read(&self.view_bytes),
            memory_compactions: read(&self.memory_compactions),
            entries_dropped_in_memory: read(&self.entries_dropped_in_memory),
        }
    }
}

impl Tree {
    /// Statistics of the tree.
    fn stats(&self) -> TreeStats {
        let state = self.state();
        let mut levels: Vec<LevelStats> = Vec::new();
        let mut resident_bytes: usize =
            state.memtables().map(|logged| logged.attachments.memory_bytes()).sum();
        resident_bytes += state.version.attachments().memory_bytes();
        for (level, runs) in state.version.levels().iter().enumerate().filter(|(_, runs)| !runs.is_empty()) {
            let partitions = state.version.boundaries(level).len() + 1;
            let mut stats = LevelStats { level, runs: runs.len(), partitions, ..LevelStats::default() };
            for table in runs.iter().flat_map(|run| run.tables()) {
                stats.tables += 1;
                stats.bytes += table.meta().file_bytes;
                stats.entries += table.meta().entries;
                stats.tombstones += table.meta().tombstones;
                resident_bytes += table.memory_bytes();
            }
            levels.push(stats);
        }
        let sorted_view_bytes = state.views.memory_bytes();
        resident_bytes += sorted_view_bytes;
        let unopened = || self.deferral.get().map(|deferral| deferral.stats());
        if let Some(external) = self.backend().stats().or_else(unopened) {
            resident_bytes += external.memory_bytes;
            let (bytes, entries) = (external.disk_bytes, external.entries);
            levels.insert(0, LevelStats { bytes, entries, ..LevelStats::default() });
        }
        TreeStats {
            tree: self.id,
            layout: self.options().layout,
            memtable_bytes: state.memtables().map(|logged| logged.memtable.memory_bytes()).sum(),
            memtable_entries: state.memtables().map(|logged| logged.memtable.entries()).sum(),
            immutable_memtables: state.pending_flushes(),
            retained_bytes: state.retained_bytes(),
            levels,
            resident_bytes,
            sorted_view_bytes,
            sorted_view_file_bytes: state.views.file_bytes(),
            range_tombstones: state.version.range_tombstones().len(),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
        }
    }
}
