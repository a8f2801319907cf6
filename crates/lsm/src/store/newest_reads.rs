//! Reading the newest version of a single key, through the cache of rows.
//!
//! # What a row is worth
//! A row of a tree says what the newest version of its key is, memtables left aside. A reader asks the memtables first; what
//! they do not have is what the row says, if the reader sees its number.
//!
//! # Why it is right
//! Compactions do not change what is newest; only flushes bring newer versions to sstables. So:
//!
//! 1. A flush, before readers see what it wrote, hands the newest version of each of its keys to the cache: a row takes it
//!    over, and goes if the key is deleted. Nothing is wrong in between: who reads the state from before finds that version in
//!    the memtables, or must not see it and then does not take the row either.
//! 2. A reader makes a row of what it found in sstables only if no flush has begun since it came, which it looks at
//!    under the lock of the row. A flush that begins afterwards gets to the row by the same lock.
//! 3. A reader whose state is older than the last flush never makes a row, for the same reason.
//! 4. Deleted ranges are asked as for any version that was found. Flushed ones vanish one day, with all that they
//!    deleted in sstables; so a flush that brings one gives up all rows of the tree.
//!
//! Trees whose compactions drop or merge entries by rules of the layer above have no rows.
//!
//! Only reads of the newest state go through the cache: a view may be older than what rows say.

use std::collections::VecDeque;
use std::sync::Arc;

use bolide_base::checksum::hash_key;
use bolide_base::{EntryKind, Result, SequenceNumber, TreeId};
use bolide_table::ValueRef;

use super::logged_memtable::LoggedMemtable;
use super::row_gate::{Renewing, RowGate};
use super::tree::{Tree, TreeState};
use super::tree_views::note_get;
use super::{Store, StoreInner};
use crate::cursor::InternalCursor;
use crate::memtable::Visibility;
use crate::row_cache::{HashedKey, RowCache, RowLookup};

/// Keys whose rows a flush asks for ahead of the one at hand.
const KEYS_AHEAD: usize = 16;

impl Store {
    /// The newest visible value of `key` in `tree`. Registers nothing, and takes no lock but that of a few cached rows.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree; `Corruption` or `Io` from reading an sstable.
    pub fn get_latest(&self, tree: TreeId, key: &[u8]) -> Result<Option<(SequenceNumber, ValueRef)>> {
        let trees = self.inner.trees.load();
        let Some(tree) = trees.get(&tree) else {
            return self.inner.tree(tree).map(|_| None);
        };
        let flushes = tree.row_gate.flushes();
        let (state, sequence) = tree.newest_state(|| self.inner.snapshots.published());
        let reader = NewestReader { rows: &self.inner.rows, gate: &tree.row_gate, flushes };
        reader.get(&state, key, sequence)
    }
}

/// Who reads single keys of a tree as it is.
struct NewestReader<'s> {
    rows: &'s RowCache,
    gate: &'s RowGate,
    /// As counted before the state was looked at.
    flushes: u64,
}

impl NewestReader<'_> {
    fn get(
        &self,
        state: &TreeState,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<Option<(SequenceNumber, ValueRef)>> {
        // Behind the state: who sees a state without a deleted range has the owner since.
        let Some(owner) = self.gate.owner(self.rows).filter(|_| !self.rows.is_off()) else {
            return state.get(key, sequence);
        };
        let of_key = HashedKey { owner, key, hash: hash_key(key) };
        self.rows.prefetch(of_key.hash);
        if let Some((trailer, value)) = state.newest_in_memtables(key, of_key.hash, sequence) {
            self.rows.record_request(of_key.hash);
            let shown = state.is_visible(key, trailer, sequence);
            return Ok(shown.then(|| (trailer.sequence(), ValueRef::from(value))));
        }
        let is_ghost = match self.rows.get(of_key, sequence) {
            RowLookup::Hit(written, value) => {
                note_get(false);
                let shown = state.is_put_visible(key, written, sequence);
                return Ok(shown.then(|| (written, ValueRef::from(value))));
            }
            RowLookup::Miss { is_ghost } => is_ghost,
        };
        let found = state.newest_in_tables(key, of_key.hash, sequence)?;
        let shown = found.filter(|(trailer, _)| state.is_visible(key, *trailer, sequence));
        if is_ghost
            && let Some((trailer, value)) = &shown
            && trailer.kind() == Some(EntryKind::Put)
        {
            self.rows.put(of_key, trailer.sequence(), value, || self.gate.is_as_of(self.flushes));
        }
        Ok(shown.map(|(trailer, value)| (trailer.sequence(), value)))
    }
}

impl StoreInner {
    /// Hands the newest versions in `flushed`, newest memtable first, to the rows of `tree`. What is returned is to be kept until
    /// the tree has a state in which they are in sstables.
    pub(super) fn update_rows<'t>(
        &self,
        tree: &'t Tree,
        flushed: &[Arc<LoggedMemtable>],
    ) -> Option<Renewing<'t>> {
        let gate = &tree.row_gate;
        if flushed.is_empty() || self.rows.is_off() {
            return None;
        }
        let row_update = Renewing::begin(gate);
        let Some(owner) = gate.owner(&self.rows) else { return Some(row_update) };
        let has_ranges = flushed.iter().any(|logged| logged.memtable.has_range_tombstones());
        if has_ranges || !self.rows.is_untouched() && self.update_rows_of_owner(owner, flushed).is_err() {
            gate.give_up(&self.rows);
        }
        Some(row_update)
    }

    /// As [`update_rows`](Self::update_rows), for the rows of `owner`.
    fn update_rows_of_owner(&self, owner: u32, flushed: &[Arc<LoggedMemtable>]) -> Result<()> {
        for logged in flushed.iter().rev() {
            let newest = || logged.memtable.cursor(Visibility::At(SequenceNumber::MAX));
            let (mut cursor, mut next_state) = (newest(), newest());
            cursor.seek_to_first()?;
            next_state.seek_to_first()?;
            // Those of the keys between the two.
            let mut hashes = VecDeque::with_capacity(KEYS_AHEAD);
            while cursor.valid() {
                while hashes.len() < KEYS_AHEAD && next_state.valid() {
                    let hash = hash_key(next_state.key());
                    self.rows.prefetch(hash);
                    hashes.push_back(hash);
                    next_state.next()?;
                }
                let (key, trailer) = (cursor.key(), cursor.trailer());
                let value = (trailer.kind() == Some(EntryKind::Put)).then(|| cursor.value());
                let hash = hashes.pop_front().unwrap_or_else(|| hash_key(key));
                self.rows.renew(HashedKey { owner, key, hash }, trailer.sequence(), value);
                cursor.next()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "threads beside each other are what is tested")]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use bolide_base::TreeId;
    use bolide_storage::{MemVfs, SystemRuntime};
    use bolide_table::BlockCache;

    use super::super::StoreComponents;
    use super::*;
    use crate::StoreBatch;
    use crate::options::{Layout, StoreOptions, SyncMode, TreeOptions};

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

    /// Asks often enough for a row.
    fn warm(store: &Store, tree: TreeId, key: &[u8]) -> Option<Vec<u8>> {
        get(store, tree, key);
        get(store, tree, key);
        get(store, tree, key)
    }

    #[test]
    fn the_third_get_of_a_flushed_key_finds_its_row() {
        let (store, tree) = open(0, Layout::Leveled);
        write(&store, |batch| batch.put(tree, b"a", b"one"));
        store.flush().unwrap();
        assert_eq!(warm(&store, tree, b"a"), Some(b"one".to_vec()));
        let stats = store.stats().rows;
        assert_eq!((stats.hits, stats.misses, stats.inserts, stats.rows), (1, 2, 1, 1));
        // A newer one in the memtable comes first, and takes the row over with the flush.
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
    fn rows_of_deleted_ranges_do_not_come_back_when_the_ranges_are_forgotten() {
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
        // Nothing is left of the range, nor of what it deleted.
        store.compact(tree).unwrap();
        assert!(!store.tree_reader(tree).unwrap().has_range_tombstones());
        assert_eq!((warm(&store, tree, b"a"), warm(&store, tree, b"b")), (None, None));
        assert_eq!(warm(&store, tree, b"c"), Some(b"c".to_vec()));
    }

    #[test]
    fn snapshots_go_past_rows_that_are_newer() {
        let (store, tree) = open(0, Layout::Leveled);
        write(&store, |batch| batch.put(tree, b"a", b"one"));
        let view = store.read_view();
        write(&store, |batch| batch.put(tree, b"a", b"two"));
        store.flush().unwrap();
        assert_eq!(warm(&store, tree, b"a"), Some(b"two".to_vec()));
        assert_eq!(&*view.get(tree, b"a").unwrap().unwrap().1, b"one");
        assert_eq!(get(&store, tree, b"a"), Some(b"two".to_vec()));
    }

    /// What a reader found before a flush is no row after it, whether it was current when it came or not.
    #[test]
    fn a_reader_from_before_a_flush_makes_no_row() {
        let (store, tree) = open(0, Layout::Leveled);
        write(&store, |batch| batch.put(tree, b"a", b"one"));
        store.flush().unwrap();
        get(&store, tree, b"a");
        let handle = store.inner.tree(tree).unwrap();
        let (flushes, state) = (handle.row_gate.flushes(), handle.state());
        let sequence = store.published_sequence();
        write(&store, |batch| batch.put(tree, b"a", b"two"));
        let reader = NewestReader { rows: &store.inner.rows, gate: &handle.row_gate, flushes };
        store.flush().unwrap();
        // The note of the first question had the flush make a row of the new version: it is not for this reader.
        assert_eq!(store.stats().rows.rows, 1);
        assert_eq!(&*reader.get(&state, b"a", sequence).unwrap().unwrap().1, b"one");
        assert_eq!(get(&store, tree, b"a"), Some(b"two".to_vec()));
        // Nor while a flush runs.
        write(&store, |batch| batch.put(tree, b"b", b"one"));
        store.flush().unwrap();
        let row_update = Renewing::begin(&handle.row_gate);
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

    /// Readers never see less than what was committed when they asked, while flushes and compactions go on beside them.
    #[test]
    fn readers_beside_flushes_see_what_was_committed() {
        const KEYS: usize = 64;
        let layouts = [Layout::Leveled, Layout::Partitioned];
        for (layout, in_memory) in layouts.into_iter().flat_map(|layout| [(layout, false), (layout, true)]) {
            let (store, tree) = open_with(2, layout, in_memory);
            let committed: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
            let (ends, rounds) = (AtomicBool::new(false), 60_000_u64);
            std::thread::scope(|scope| {
                let reader = |seed: u64| {
                    let (store, committed, ends) = (&store, &committed, &ends);
                    move || {
                        let mut number = seed;
                        while !ends.load(Ordering::Relaxed) {
                            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
                            let key = (number >> 33) as usize % KEYS;
                            let at_least = committed[key].load(Ordering::Acquire);
                            let found = store.get_latest(tree, &key.to_be_bytes()).unwrap();
                            let (sequence, value) = match found {
                                Some((sequence, value)) => (sequence, value),
                                None => {
                                    assert!(
                                        at_least == 0
                                            || at_least % 7 == 0
                                            || is_newer(committed, key, at_least)
                                    );
                                    continue;
                                }
                            };
                            let version = u64::from_be_bytes(*value.first_chunk().unwrap());
                            assert!(
                                version >= at_least,
                                "key {key}: {version} at {sequence} behind {at_least}"
                            );
                        }
                    }
                };
                let readers = [scope.spawn(reader(3)), scope.spawn(reader(5))];
                for version in 1..=20 * rounds {
                    // Readers may have to wait for a processor: until they have met a row.
                    let is_met = || in_memory || store.stats().rows.hits > 0;
                    if version > rounds && version % 1_024 == 0 && is_met() {
                        break;
                    }
                    // A few keys are written rarely, so that they are rows most of the time.
                    let key = (version * version % 31) as usize + if version % 64 == 0 { 32 } else { 0 };
                    write(&store, |batch| match version % 7 {
                        0 => batch.delete(tree, &key.to_be_bytes()),
                        _ => batch.put(tree, &key.to_be_bytes(), &[version.to_be_bytes(); 6].concat()),
                    });
                    committed[key].store(version, Ordering::Release);
                }
                ends.store(true, Ordering::Relaxed);
                readers.into_iter().for_each(|reader| reader.join().unwrap());
            });
            let stats = store.stats();
            // Where memtables are compacted in memory, all keys may be there at all times.
            let meets = if in_memory { stats.writes.memory_compactions > 3 } else { stats.rows.hits > 0 };
            assert!(meets && stats.writes.flushes > 3, "{stats:?}");
            store.close().unwrap();
        }
    }

    /// Whether `key` was written again since `version` was committed.
    fn is_newer(committed: &[AtomicU64], key: usize, version: u64) -> bool {
        // The write is visible a moment before it is noted.
        std::thread::sleep(std::time::Duration::from_millis(50));
        committed[key].load(Ordering::Acquire) > version
    }
}
