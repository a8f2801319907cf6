//! Reads of the newest version of a key, through the row cache.
//!
//! # Contents of a row
//! A row contains the newest version of its key in the sstables of a tree. A reader searches the memtables first. If
//! they have no version of the key, the row is the result, provided that the reader sees its sequence number.
//!
//! # Correctness
//! Compactions do not change the newest version of a key; only flushes add newer versions to sstables. So:
//!
//! 1. A flush passes the newest version of each of its keys to the cache before it is published: a row is updated, or
//!    removed if the key is deleted. Meanwhile no result is wrong: a reader of the old state finds that version in the
//!    memtables, or must not see it and then ignores the row too.
//! 2. A reader inserts a row from sstables only if no flush has begun since its read began, which it checks under the
//!    lock of the row. A flush that begins later updates the row under the same lock.
//! 3. A reader whose state is older than the last flush never inserts a row, for the same reason.
//! 4. Range tombstones are checked as for any version. Flushed tombstones are removed one day, with all that they
//!    deleted in sstables; so a flush with range tombstones invalidates all rows of the tree.
//!
//! Trees whose compactions drop or merge entries by rules of the layer above have no rows.
//!
//! Only reads of the newest state use the cache: a view may be older than the rows.

use std::collections::VecDeque;
use std::sync::Arc;

use bolide_base::checksum::hash_key;
use bolide_base::{EntryKind, Result, SequenceNumber, Trailer, TreeId};
use bolide_table::ValueRef;

use crate::cursor::InternalCursor;
use crate::memtable::Visibility;
use crate::row_cache::{HashedKey, RowCache, RowLookup};
use crate::store::Store;
use crate::store::read::point_lookup::PointLookup;
use crate::store::tree::logged_memtable::LoggedMemtable;
use crate::store::tree::row_gate::{RowGate, RowUpdate};
use crate::store::tree::tree_views::note_get;
use crate::store::tree::{Tree, TreeState};

/// Number of keys whose rows a flush prefetches in advance.
const PREFETCH_DISTANCE: usize = 16;

impl Store {
    /// The newest visible value of `key` in `tree`. Registers nothing; takes only the lock of a shard of the row cache.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree; `Corruption` or `Io` from reading an sstable.
    pub fn get_latest(&self, tree: TreeId, key: &[u8]) -> Result<Option<(SequenceNumber, ValueRef)>> {
        let trees = self.inner.trees.load();
        let Some(tree) = trees.get(&tree) else {
            return self.inner.trees.get(tree).map(|_| None);
        };
        let flushes = tree.row_gate.flushes();
        let (state, sequence) = tree.newest_state(|| self.inner.snapshots.published());
        let reader = NewestReader { rows: &self.inner.rows, gate: &tree.row_gate, flushes };
        reader.get(&state, key, sequence)
    }
}

/// A reader of single keys in the newest state of a tree.
struct NewestReader<'s> {
    rows: &'s RowCache,
    gate: &'s RowGate,
    /// The count of flushes before the state was read.
    flushes: u64,
}

impl NewestReader<'_> {
    fn get(
        &self,
        state: &TreeState,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<Option<(SequenceNumber, ValueRef)>> {
        let lookup = PointLookup::new(key, sequence);
        // Read after the state: a reader of a state without a range tombstone has the owner since its removal.
        let Some(owner) = self.gate.owner(self.rows).filter(|_| !self.rows.is_off()) else {
            return lookup.value(state);
        };
        let hashed_key = HashedKey { owner, key, hash: lookup.hash };
        self.rows.prefetch(hashed_key.hash);
        if let Some((trailer, value)) = lookup.in_memtables(state) {
            self.rows.record_request(hashed_key.hash);
            let visible = lookup.is_visible(state, trailer);
            return Ok(visible.then(|| (trailer.sequence(), ValueRef::from(value))));
        }
        let is_ghost = match self.rows.get(hashed_key, sequence) {
            RowLookup::Hit(written, value) => {
                note_get(false);
                let visible = state.is_put_visible(key, written, sequence);
                return Ok(visible.then(|| (written, ValueRef::from(value))));
            }
            RowLookup::Miss { is_ghost } => is_ghost,
        };
        let found = lookup.in_tables::<(Trailer, ValueRef)>(state)?;
        let visible = found.filter(|(trailer, _)| lookup.is_visible(state, *trailer));
        if is_ghost
            && let Some((trailer, value)) = &visible
            && trailer.kind() == Some(EntryKind::Put)
        {
            self.rows
                .put(hashed_key, trailer.sequence(), value, || self.gate.is_unchanged_since(self.flushes));
        }
        Ok(visible.map(|(trailer, value)| (trailer.sequence(), value)))
    }
}

/// Updates the rows of `tree` with the newest versions in `flushed`, newest memtable first. The result must be held
/// until the state of the tree has the versions in sstables.
pub(in crate::store) fn update_rows<'t>(
    rows: &RowCache,
    tree: &'t Tree,
    flushed: &[Arc<LoggedMemtable>],
) -> Option<RowUpdate<'t>> {
    let gate = &tree.row_gate;
    if flushed.is_empty() || rows.is_off() {
        return None;
    }
    let row_update = RowUpdate::begin(gate);
    let Some(owner) = gate.owner(rows) else { return Some(row_update) };
    let has_ranges = flushed.iter().any(|logged| logged.memtable.has_range_tombstones());
    if has_ranges || !rows.is_untouched() && update_rows_of_owner(rows, owner, flushed).is_err() {
        gate.invalidate(rows);
    }
    Some(row_update)
}

/// As [`update_rows`], for the rows of `owner`.
fn update_rows_of_owner(rows: &RowCache, owner: u32, flushed: &[Arc<LoggedMemtable>]) -> Result<()> {
    for logged in flushed.iter().rev() {
        let newest = || logged.memtable.cursor(Visibility::At(SequenceNumber::MAX));
        let (mut cursor, mut prefetch_cursor) = (newest(), newest());
        cursor.seek_to_first()?;
        prefetch_cursor.seek_to_first()?;
        // Hashes of the keys between the two cursors.
        let mut hashes = VecDeque::with_capacity(PREFETCH_DISTANCE);
        while cursor.valid() {
            while hashes.len() < PREFETCH_DISTANCE && prefetch_cursor.valid() {
                let hash = hash_key(prefetch_cursor.key());
                rows.prefetch(hash);
                hashes.push_back(hash);
                prefetch_cursor.next()?;
            }
            let (key, trailer) = (cursor.key(), cursor.trailer());
            let value = (trailer.kind() == Some(EntryKind::Put)).then(|| cursor.value());
            let hash = hashes.pop_front().unwrap_or_else(|| hash_key(key));
            rows.renew(HashedKey { owner, key, hash }, trailer.sequence(), value);
            cursor.next()?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the test needs concurrent threads")]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use bolide_base::TreeId;
    use bolide_storage::{MemVfs, SystemRuntime};
    use bolide_table::BlockCache;

    use super::*;
    use crate::StoreBatch;
    use crate::layout::Layout;
    use crate::options::{StoreOptions, SyncMode, TreeOptions};
    use crate::store::StoreComponents;

    fn open(threads: usize, layout: Layout) -> (Store, TreeId) {
        open_with(threads, layout, true)
    }

    fn open_with(threads: usize, layout: Layout, memory_compaction: bool) -> (Store, TreeId) {
        let mut options = StoreOptions::new("/db");
        options.background_threads = threads;
        options.memtable_bytes = 64 << 10;
        options.row_cache_bytes = 64 << 10;
        options.memory_compaction = memory_compaction;
        let components = StoreComponents {
            vfs: Arc::new(MemVfs::new()),
            runtime: Arc::new(SystemRuntime::default()),
            cache: BlockCache::new(1 << 20),
        };
        let store = Store::open(options, components).unwrap();
        let tree = TreeOptions { layout, ..TreeOptions::default() };
        let tree = store.create_tree(tree, b"").unwrap();
        (store, tree)
    }

    fn write(store: &Store, change: impl FnOnce(&mut StoreBatch) -> Result<()>) -> SequenceNumber {
        let mut batch = StoreBatch::new();
        change(&mut batch).unwrap();
        store.commit(batch, None, SyncMode::None).unwrap()
    }

    fn get(store: &Store, tree: TreeId, key: &[u8]) -> Option<Vec<u8>> {
        store.get_latest(tree, key).unwrap().map(|(_, value)| value.to_vec())
    }

    /// Reads a key often enough to insert its row.
    fn warm(store: &Store, tree: TreeId, key: &[u8]) -> Option<Vec<u8>> {
        get(store, tree, key);
        get(store, tree, key);
        get(store, tree, key)
    }

    #[test]
    fn the_third_get_of_a_flushed_key_hits_its_row() {
        let (store, tree) = open(0, Layout::Leveled);
        write(&store, |batch| batch.put(tree, b"a", b"one"));
        store.flush().unwrap();
        assert_eq!(warm(&store, tree, b"a"), Some(b"one".to_vec()));
        let stats = store.stats().rows;
        assert_eq!((stats.hits, stats.misses, stats.inserts, stats.rows), (1, 2, 1, 1));
        // A newer version in the memtable hides the row, and the flush updates the row.
        write(&store, |batch| batch.put(tree, b"a", b"two"));
        assert_eq!(get(&store, tree, b"a"), Some(b"two".to_vec()));
        store.flush().unwrap();
        assert_eq!(get(&store, tree, b"a"), Some(b"two".to_vec()));
        assert_eq!(store.stats().rows.hits, 2);
        write(&store, |batch| batch.delete(tree, b"a"));
        assert_eq!(get(&store, tree, b"a"), None);
        store.flush().unwrap();
        assert_eq!((warm(&store, tree, b"a"), store.stats().rows.hits), (None, 2));
    }

    #[test]
    fn rows_of_deleted_ranges_stay_invalid_after_the_removal_of_the_tombstone() {
        let (store, tree) = open(0, Layout::Leveled);
        for key in [b"a", b"b", b"c"] {
            write(&store, |batch| batch.put(tree, key, key));
        }
        store.flush().unwrap();
        for key in [b"a", b"b", b"c"] {
            assert!(warm(&store, tree, key).is_some());
        }
        write(&store, |batch| batch.delete_range(tree, b"a", b"c"));
        assert_eq!((get(&store, tree, b"b"), get(&store, tree, b"c")), (None, Some(b"c".to_vec())));
        store.flush().unwrap();
        assert_eq!((get(&store, tree, b"b"), get(&store, tree, b"c")), (None, Some(b"c".to_vec())));
        // The range tombstone is removed, and all that it deleted.
        store.compact(tree).unwrap();
        assert!(!store.tree_reader(tree).unwrap().has_range_tombstones());
        assert_eq!((warm(&store, tree, b"a"), warm(&store, tree, b"b")), (None, None));
        assert_eq!(warm(&store, tree, b"c"), Some(b"c".to_vec()));
    }

    #[test]
    fn snapshots_ignore_newer_rows() {
        let (store, tree) = open(0, Layout::Leveled);
        write(&store, |batch| batch.put(tree, b"a", b"one"));
        let view = store.read_view();
        write(&store, |batch| batch.put(tree, b"a", b"two"));
        store.flush().unwrap();
        assert_eq!(warm(&store, tree, b"a"), Some(b"two".to_vec()));
        assert_eq!(&*view.get(tree, b"a").unwrap().unwrap().1, b"one");
        assert_eq!(get(&store, tree, b"a"), Some(b"two".to_vec()));
    }

    /// A version read before a flush is not inserted after it, whether it was current at the read or not.
    #[test]
    fn a_reader_that_began_before_a_flush_inserts_no_row() {
        let (store, tree) = open(0, Layout::Leveled);
        write(&store, |batch| batch.put(tree, b"a", b"one"));
        store.flush().unwrap();
        get(&store, tree, b"a");
        let handle = store.inner.trees.get(tree).unwrap();
        let (flushes, state) = (handle.row_gate.flushes(), handle.state());
        let sequence = store.published_sequence();
        write(&store, |batch| batch.put(tree, b"a", b"two"));
        let reader = NewestReader { rows: &store.inner.rows, gate: &handle.row_gate, flushes };
        store.flush().unwrap();
        // The first read left a ghost, so the flush inserted a row of the new version: this reader must not use it.
        assert_eq!(store.stats().rows.rows, 1);
        assert_eq!(&*reader.get(&state, b"a", sequence).unwrap().unwrap().1, b"one");
        assert_eq!(get(&store, tree, b"a"), Some(b"two".to_vec()));
        // Likewise during a flush.
        write(&store, |batch| batch.put(tree, b"b", b"one"));
        store.flush().unwrap();
        let row_update = RowUpdate::begin(&handle.row_gate);
        let flushes = handle.row_gate.flushes();
        let reader = NewestReader { rows: &store.inner.rows, gate: &handle.row_gate, flushes };
        for _ in 0..3 {
            let found = reader.get(&handle.state(), b"b", store.published_sequence()).unwrap();
            assert_eq!(&*found.unwrap().1, b"one");
        }
        assert_eq!(store.stats().rows.rows, 1);
        drop(row_update);
        assert_eq!(warm(&store, tree, b"b"), Some(b"one".to_vec()));
        assert_eq!(store.stats().rows.rows, 2);
    }

    /// Readers see at least the writes that were committed before the read, concurrently with flushes and compactions.
    #[test]
    fn concurrent_readers_see_committed_writes_during_flushes() {
        const KEYS: usize = 64;
        let layouts = [Layout::Leveled, Layout::Partitioned];
        for (layout, in_memory) in layouts.into_iter().flat_map(|layout| [(layout, false), (layout, true)]) {
            let (store, tree) = open_with(2, layout, in_memory);
            let committed: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
            let (stopped, rounds) = (AtomicBool::new(false), 60_000_u64);
            std::thread::scope(|scope| {
                let reader = |seed: u64| {
                    let (store, committed, stopped) = (&store, &committed, &stopped);
                    move || {
                        let mut number = seed;
                        while !stopped.load(Ordering::Relaxed) {
                            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
                            let key = (number >> 33) as usize % KEYS;
                            let min_version = committed[key].load(Ordering::Acquire);
                            let found = store.get_latest(tree, &key.to_be_bytes()).unwrap();
                            let (sequence, value) = match found {
                                Some((sequence, value)) => (sequence, value),
                                None => {
                                    assert!(
                                        min_version == 0
                                            || min_version % 7 == 0
                                            || is_newer(committed, key, min_version)
                                    );
                                    continue;
                                }
                            };
                            let version = u64::from_be_bytes(*value.first_chunk().unwrap());
                            assert!(
                                version >= min_version,
                                "key {key}: {version} at {sequence} is older than {min_version}"
                            );
                        }
                    }
                };
                let readers = [scope.spawn(reader(3)), scope.spawn(reader(5))];
                for version in 1..=20 * rounds {
                    // Readers may wait for a processor: writes go on until they have hit a row.
                    let has_hit = || in_memory || store.stats().rows.hits > 0;
                    if version > rounds && version % 1_024 == 0 && has_hit() {
                        break;
                    }
                    // A few keys are written rarely, so that they have rows most of the time.
                    let key = (version * version % 31) as usize + if version % 64 == 0 { 32 } else { 0 };
                    write(&store, |batch| match version % 7 {
                        0 => batch.delete(tree, &key.to_be_bytes()),
                        _ => batch.put(tree, &key.to_be_bytes(), &[version.to_be_bytes(); 6].concat()),
                    });
                    committed[key].store(version, Ordering::Release);
                }
                stopped.store(true, Ordering::Relaxed);
                readers.into_iter().for_each(|reader| reader.join().unwrap());
            });
            let stats = store.stats();
            // With compaction in memory, all keys may always be in memtables.
            let is_covered =
                if in_memory { stats.writes.memory_compactions > 3 } else { stats.rows.hits > 0 };
            assert!(is_covered && stats.writes.flushes > 3, "{stats:?}");
            store.close().unwrap();
        }
    }

    /// True if `key` was written again after `version` was committed.
    fn is_newer(committed: &[AtomicU64], key: usize, version: u64) -> bool {
        // A write is visible shortly before it is recorded.
        std::thread::sleep(std::time::Duration::from_millis(50));
        committed[key].load(Ordering::Acquire) > version
    }
}
