//! Forgetting range tombstones that hide nothing any more.
//!
//! A tombstone in a tree's ledger is consulted by every read of the tree, and by every validation of an
//! index over it. It may go once no view is older than it and nothing older than it is left to hide:
//! not in the tree, and not in the trees that depend on it (indexes over its records).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::{Result, SequenceNumber, TreeId};

use super::tree::{Tree, TreeState};
use super::{Store, StoreInner};
use crate::range_tombstones::RangeTombstone;
use crate::version::VersionEdit;

impl StoreInner {
    /// Removes spent tombstones from the ledgers. Called after background work; an error is not lost, it
    /// poisons the store like any failed manifest write, or leaves the ledger as it is.
    pub(super) fn remove_spent_tombstones(&self) {
        // One at a time, and not while readers see another ledger than the manifest has: who finds a tombstone spent that was removed
        // would remove it twice.
        let _locked = self.tombstone_removal.lock();
        let trees: Vec<_> = self.trees.load().values().cloned().collect();
        for tree in trees {
            if !tree.state_guard().version.range_tombstones().is_empty() {
                let _ = self.remove_spent_tombstones_of(&tree);
            }
        }
    }

    fn remove_spent_tombstones_of(&self, tree: &Arc<Tree>) -> Result<()> {
        self.check_writable()?;
        // Readers may still have what was forgotten in the manifest. The flush that has them wait asks again at its end.
        if tree.publication_pending.load(Ordering::Acquire) {
            return Ok(());
        }
        let oldest = self.snapshots.oldest();
        let state = tree.state();
        let mut spent = state.version.spent_range_tombstones(oldest, flushed_through(&state));
        for dependent in tree.dependents.read().iter() {
            if let Ok(dependent) = self.tree(*dependent) {
                let state = dependent.state();
                let kept = dependent.external_tree.get().map(|external_tree| external_tree.clear_through());
                // A keeper that is not there now may come back with what it had.
                let is_away = kept.is_none() && self.versions.lock().external_root(dependent.id).is_some();
                spent.retain(|tombstone| match kept {
                    Some(clear_through) => tombstone.sequence <= clear_through,
                    None => !is_away && is_clear_of(&state, tombstone),
                });
            }
        }
        if spent.is_empty() {
            return Ok(());
        }
        let mut edit = VersionEdit::new();
        for tombstone in spent {
            edit.remove_range_tombstone(tree.id, tombstone);
        }
        self.install(tree, edit, &[])
    }
}

/// All entries of `state` at or below this number are in sstables.
fn flushed_through(state: &TreeState) -> SequenceNumber {
    let waiting = state.memtables().filter_map(|logged| logged.memtable.smallest_sequence()).min();
    waiting.map_or(SequenceNumber::MAX, |smallest| smallest.saturating_sub(1))
}

/// True if no entry of `state` can be older than `tombstone` and about a record that it deleted: the compactions of
/// the tree drop such entries.
fn is_clear_of(state: &TreeState, tombstone: &RangeTombstone) -> bool {
    let is_newer = |smallest: SequenceNumber| smallest >= tombstone.sequence;
    let memtables = state.memtables().filter_map(|logged| logged.memtable.smallest_sequence());
    let mut tables = state.version.tables().map(|table| table.meta());
    memtables.into_iter().all(is_newer)
        && tables.all(|meta| is_newer(meta.smallest_sequence) || meta.filtered_through >= tombstone.sequence)
}

impl Store {
    /// Says that the tree `dependent` holds entries about the records of `tree` (an index over it): a
    /// range tombstone of `tree` is kept until `dependent` is clear of what it deleted, or dropped. The
    /// compaction filter of `dependent` must drop such entries, or it is kept for ever.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree.
    pub fn add_dependent(&self, tree: TreeId, dependent: TreeId) -> Result<()> {
        self.inner.tree(tree)?.dependents.write().insert(dependent);
        Ok(())
    }
}
