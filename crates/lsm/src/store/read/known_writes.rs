//! Reads of writes whose sequence number is known.
//!
//! An index stores the sequence number of each record. Every memtable and every sstable has a range of sequence
//! numbers: a zone map. So most components are excluded before their keys or filters are read (Perseid §4.4.1).
//!
//! # Two queries
//! * **The value of a write** ([`TreeView::get_exact_many`]), for callers that know that the write is the newest of its
//!   key. Only components whose range contains the number are searched, for versions at or below it. If that leaves one
//!   sstable, its Bloom filter is skipped: the sstable contains the write.
//! * **The value of a write if it is the newest** ([`TreeView::get_current_many`]), for all other callers. Components
//!   with only smaller numbers are skipped: they contain neither the write nor a newer one. All others may contain a
//!   newer write and are searched as usual, filters included.
//!
//! # Correctness
//! No assumption depends on the layout. Each key is compared with the range of each component, so overlapping ranges,
//! as those of levels, cost a filter check or two but never a wrong result. In a tiered tree, and in a leveled one as
//! long as all of level 0 is merged into one level below, the ranges of runs are disjoint, and one component is left. A
//! version counts only if its number is equal: for a wrong number, or a write that is gone, the result is `None` after
//! one block read.
//!
//! The first component with a version at or below the number decides, since all versions of the key in older ones are
//! older.

use bolide_base::{Result, SequenceNumber, TreeId};
use bolide_table::ValueRef;

use crate::store::Store;
use crate::store::read::batch_read::{FoundValue, SearchScope};
use crate::store::read::point_lookup::{Containing, NotOlder};
use crate::store::read::read_view::TreeView;
use crate::store::tree::TreeState;

/// A write of a key with a known sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KnownWrite<'k> {
    /// The key.
    pub key: &'k [u8],
    /// The sequence number of the write.
    pub sequence: SequenceNumber,
}

/// Scope of the versions with exactly these numbers.
struct Exact<'w> {
    writes: &'w [KnownWrite<'w>],
    view: SequenceNumber,
}

impl Exact<'_> {
    fn sequence(&self, position: usize) -> SequenceNumber {
        self.writes.get(position).map_or(0, |write| write.sequence)
    }
}

impl SearchScope for Exact<'_> {
    type KeyReach = Containing;
    const MUST_EXIST: bool = true;

    fn max_sequence(&self, position: usize) -> SequenceNumber {
        self.sequence(position)
    }

    fn reach(&self, position: usize) -> Containing {
        Containing { write: self.sequence(position), view: self.view }
    }
}

/// Scope of the newest versions that a view sees, unless they are older than these numbers.
struct NotReplaced<'w> {
    writes: &'w [KnownWrite<'w>],
    view: SequenceNumber,
}

impl SearchScope for NotReplaced<'_> {
    type KeyReach = NotOlder;
    const MUST_EXIST: bool = false;

    fn max_sequence(&self, _position: usize) -> SequenceNumber {
        self.view
    }

    fn reach(&self, position: usize) -> NotOlder {
        let oldest = self.writes.get(position).map_or(SequenceNumber::MAX, |write| write.sequence);
        NotOlder { oldest, view: self.view }
    }
}

impl TreeState {
    /// Calls `emit` for each of `writes`, in order, with the value of exactly that version if it is within `scope`.
    fn find_writes<R: SearchScope>(
        &self,
        writes: &[KnownWrite<'_>],
        view: SequenceNumber,
        scope: &R,
        out: &mut Vec<Option<ValueRef>>,
    ) -> Result<()> {
        let keys: Vec<&[u8]> = writes.iter().map(|write| write.key).collect();
        let mut wanted = writes.iter().map(|write| write.sequence);
        self.find_many(&keys, view, scope, true, |found| {
            let wanted = wanted.next();
            let found = found.filter(|(sequence, _)| wanted == Some(*sequence));
            out.push(found.map(|(_, value)| value.into_value()));
        })
    }
}

impl Store {
    /// Passes the values of `writes` to `work`, in their order and without copies. Returns `None` without a call of
    /// `work` if a write is not found; see [`TreeView::get_exact`], which reads at a view. Nothing is registered: a
    /// write that was replaced after `sequence` may have been compacted away.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree; `Corruption` or `Io` from reading an sstable; those of `work`.
    pub fn with_exact<T>(
        &self,
        tree: TreeId,
        sequence: SequenceNumber,
        writes: &[KnownWrite<'_>],
        work: impl FnOnce(&[&[u8]]) -> Result<T>,
    ) -> Result<Option<T>> {
        let tree = self.inner.trees.get(tree)?;
        let state = tree.state_guard();
        let keys: Vec<&[u8]> = writes.iter().map(|write| write.key).collect();
        let mut found_values = Vec::with_capacity(writes.len());
        let mut wanted = writes.iter();
        state.find_many(&keys, sequence, &Exact { writes, view: sequence }, true, |found| {
            let wanted = wanted.next().map_or(0, |write| write.sequence);
            found_values.extend(found.filter(|(written, _)| *written == wanted).map(|(_, value)| value));
        })?;
        if found_values.len() < writes.len() {
            return Ok(None);
        }
        let values: Vec<&[u8]> = found_values.iter().map(FoundValue::value).collect();
        work(&values).map(Some)
    }
}

impl TreeView {
    /// The value of the write of `key` at `sequence`, for a caller that knows that this view sees no newer write of the
    /// key. `None` if the write is a delete, is covered by a range tombstone, is too new for this view, or is not
    /// stored: a compaction may have dropped it after a newer write. Newer writes do not change the result.
    ///
    /// Cost: the search of one memtable or one block if sequence ranges are disjoint.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading an sstable.
    pub fn get_exact(&self, key: &[u8], sequence: SequenceNumber) -> Result<Option<ValueRef>> {
        let mut found = Vec::with_capacity(1);
        self.get_exact_many(&[KnownWrite { key, sequence }], &mut found)?;
        Ok(found.pop().flatten())
    }

    /// [`get_exact`](Self::get_exact) for each of `writes`: results are appended to `out` in their order. Cache misses
    /// overlap, and sorted keys share blocks; see [`get_many`](Self::get_many).
    ///
    /// # Errors
    /// As [`get_exact`](Self::get_exact); `out` then has fewer results than there are writes.
    pub fn get_exact_many(&self, writes: &[KnownWrite<'_>], out: &mut Vec<Option<ValueRef>>) -> Result<()> {
        let view = self.sequence();
        self.state().find_writes(writes, view, &Exact { writes, view }, out)
    }

    /// The value of each of `writes` if it is the newest write of its key that this view sees; `None` if it was
    /// replaced or deleted. Results are appended to `out` in their order.
    ///
    /// Equivalent to [`get_many`](Self::get_many) and a comparison of the numbers, without a search of components that
    /// only contain older writes.
    ///
    /// # Errors
    /// As [`get_exact_many`](Self::get_exact_many).
    pub fn get_current_many(&self, writes: &[KnownWrite<'_>], out: &mut Vec<Option<ValueRef>>) -> Result<()> {
        let view = self.sequence();
        self.state().find_writes(writes, view, &NotReplaced { writes, view }, out)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bolide_base::{EntryKind, Trailer, TreeId};
    use bolide_storage::{MemVfs, SystemRuntime};
    use bolide_table::{BlockCache, ReadCounters};

    use super::*;
    use crate::options::{StoreOptions, SyncMode, TreeOptions};
    use crate::store::tree::logged_memtable::LoggedMemtable;
    use crate::store::{Store, StoreComponents};
    use crate::version::{SortedRun, Version};
    use crate::{StoreBatch, TreeView};

    const VIEW: SequenceNumber = 1_000;

    fn exact(state: &TreeState, key: &[u8], sequence: SequenceNumber) -> Option<Vec<u8>> {
        let (writes, mut out) = ([KnownWrite { key, sequence }], Vec::new());
        state.find_writes(&writes, VIEW, &Exact { writes: &writes, view: VIEW }, &mut out).unwrap();
        out.pop().flatten().map(ValueRef::into_vec)
    }

    fn current(state: &TreeState, key: &[u8], sequence: SequenceNumber) -> Option<Vec<u8>> {
        let (writes, mut out) = ([KnownWrite { key, sequence }], Vec::new());
        state.find_writes(&writes, VIEW, &NotReplaced { writes: &writes, view: VIEW }, &mut out).unwrap();
        out.pop().flatten().map(ValueRef::into_vec)
    }

    /// The sstables of two trees with interleaved keys and interleaved sequence numbers, one above the other, like the
    /// levels of a large tree.
    fn overlapping() -> (Store, TreeState, Vec<(Vec<u8>, SequenceNumber)>) {
        let mut options = StoreOptions::new("/db");
        options.background_threads = 0;
        let components = StoreComponents {
            vfs: Arc::new(MemVfs::new()),
            runtime: Arc::new(SystemRuntime::default()),
            cache: BlockCache::new(1 << 20),
        };
        let store = Store::open(options, components).unwrap();
        let trees: [TreeId; 2] = [0, 1].map(|_| store.create_tree(TreeOptions::default(), b"").unwrap());
        let mut writes = Vec::new();
        for number in 0..100 {
            let key = format!("key{number:04}").into_bytes();
            let mut batch = StoreBatch::new();
            batch.put(trees[number % 2], &key, &key).unwrap();
            writes.push((key, store.commit(batch, None, SyncMode::None).unwrap()));
        }
        store.flush().unwrap();
        let view = store.read_view();
        let tables = |tree: TreeId| -> Vec<_> {
            let view: TreeView = view.tree(tree).unwrap();
            view.state().version.tables().cloned().collect()
        };
        let runs = vec![
            SortedRun::new(5, 0, tables(trees[0])).unwrap(),
            SortedRun::new(6, 0, tables(trees[1])).unwrap(),
        ];
        let version = Arc::new(Version::of_runs(trees[0], runs).unwrap());
        (
            store,
            TreeState { active: Arc::default(), immutables: Vec::new(), version, views: Default::default() },
            writes,
        )
    }

    #[test]
    fn overlapping_levels_are_searched_with_their_filters() {
        let (_store, state, writes) = overlapping();
        let before = ReadCounters::of_this_thread();
        for (key, sequence) in &writes {
            assert_eq!(exact(&state, key, *sequence).as_ref(), Some(key));
            assert_eq!(current(&state, key, *sequence).as_ref(), Some(key));
            // The number of a neighbour: it is in the other level, under another key.
            assert_eq!(exact(&state, key, sequence ^ 1), None);
            assert_eq!(current(&state, key, sequence + 1), None);
        }
        let cost = ReadCounters::of_this_thread() - before;
        // Only at both ends the range of one level does not overlap the other.
        assert!(cost.filters_skipped <= 6 && cost.bloom_checks > 390, "{cost:?}");
    }

    #[test]
    fn exact_reads_return_all_values_or_none() {
        let mut options = StoreOptions::new("/db");
        options.background_threads = 0;
        let components = StoreComponents {
            vfs: Arc::new(MemVfs::new()),
            runtime: Arc::new(SystemRuntime::default()),
            cache: BlockCache::new(1 << 20),
        };
        let store = Store::open(options, components).unwrap();
        let tree = store.create_tree(TreeOptions::default(), b"").unwrap();
        let put = |key: &[u8], value: &[u8]| {
            let mut batch = StoreBatch::new();
            batch.put(tree, key, value).unwrap();
            store.commit(batch, None, SyncMode::None).unwrap()
        };
        // More than one chunk of the search, half of them in an sstable.
        let keys: Vec<Vec<u8>> = (0..90).map(|number| format!("key{number:04}").into_bytes()).collect();
        let mut sequences: Vec<_> = keys.iter().take(45).map(|key| put(key, key)).collect();
        store.flush().unwrap();
        sequences.extend(keys.iter().skip(45).map(|key| put(key, key)));
        let mut writes: Vec<KnownWrite<'_>> =
            keys.iter().zip(&sequences).map(|(key, &sequence)| KnownWrite { key, sequence }).rev().collect();
        let read_all = |at: SequenceNumber, writes: &[KnownWrite<'_>]| {
            let copied = |values: &[&[u8]]| Ok(values.iter().map(|value| value.to_vec()).collect::<Vec<_>>());
            store.with_exact(tree, at, writes, copied).unwrap()
        };
        let now = store.published_sequence();
        assert_eq!(read_all(now, &writes).unwrap(), keys.iter().rev().cloned().collect::<Vec<_>>());
        assert_eq!(read_all(now - 1, &writes), None, "the newest write is not visible yet");
        // An older write is found until it is compacted away.
        let newer = put(&keys[7], b"newer");
        assert!(read_all(now, &writes).is_some());
        writes[3].sequence = newer;
        assert_eq!(read_all(now + 1, &writes), None, "no write of that key has this number");
        assert!(store.with_exact(tree + 100, now, &writes, |_| Ok(())).is_err());
    }

    #[test]
    fn overlapping_memtables_are_all_searched() {
        let logged = |entries: &[(&[u8], SequenceNumber)]| {
            let logged = LoggedMemtable::default();
            for (key, sequence) in entries {
                logged.memtable.insert(key, Trailer::new(*sequence, EntryKind::Put), b"value");
            }
            Arc::new(logged)
        };
        let state = TreeState {
            active: logged(&[(b"a", 7), (b"c", 3)]),
            immutables: vec![logged(&[(b"a", 2), (b"b", 5)])],
            version: Arc::new(Version::of_runs(1, Vec::new()).unwrap()),
            views: Default::default(),
        };
        for (key, sequence, is_current) in
            [(b"a", 7, true), (b"c", 3, true), (b"a", 2, false), (b"b", 5, true)]
        {
            assert!(exact(&state, key, sequence).is_some() || !is_current);
            assert_eq!(current(&state, key, sequence).is_some(), is_current);
        }
        assert!(exact(&state, b"a", 2).is_some(), "the older version is in another component");
        assert!(exact(&state, b"a", 5).is_none() && exact(&state, b"b", 3).is_none());
    }

    #[test]
    fn writes_above_the_view_are_not_found() {
        let logged = LoggedMemtable::default();
        logged.memtable.insert(b"a", Trailer::new(VIEW + 1, EntryKind::Put), b"value");
        let version = Arc::new(Version::of_runs(1, Vec::new()).unwrap());
        let state = TreeState {
            active: Arc::new(logged),
            immutables: Vec::new(),
            version,
            views: Default::default(),
        };
        assert!(exact(&state, b"a", VIEW + 1).is_none() && current(&state, b"a", VIEW + 1).is_none());
    }
}
