//! Removal of range tombstones that hide nothing any more.
//!
//! Every read of a tree, and every validation of an index over it, checks the range tombstones of the tree. A tombstone
//! may be removed once no view is older, and it hides no older entries: neither in the tree, nor in the trees that
//! depend on it (indexes over its records).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::{Result, SequenceNumber, TreeId};
use parking_lot::Mutex;

use crate::range_tombstones::RangeTombstone;
use crate::store::Store;
use crate::store::jobs::environment::InstallEnvironment;
use crate::store::jobs::install::install;
use crate::store::tree::directory::TreeDirectory;
use crate::store::tree::{Tree, TreeState};
use crate::version::VersionEdit;

/// Removes spent range tombstones. Called after background work. An error is not lost: like any failed manifest
/// write it poisons the store, or the tombstones remain.
pub(in crate::store) fn remove_spent_tombstones(
    removal: &Mutex<()>,
    trees: &TreeDirectory,
    env: InstallEnvironment<'_>,
) {
    // One thread at a time, and not while the published state differs from the manifest: a removed tombstone would
    // be found spent, and removed twice.
    let _locked = removal.lock();
    let all = trees.load_full();
    for tree in all.values().filter(|tree| !tree.state_guard().version.range_tombstones().is_empty()) {
        let _ = remove_spent_tombstones_of(trees, env, tree);
    }
}

fn remove_spent_tombstones_of(
    trees: &TreeDirectory,
    env: InstallEnvironment<'_>,
    tree: &Arc<Tree>,
) -> Result<()> {
    env.health.check()?;
    // The published state may have tombstones that the manifest has not. The pending flush calls this again at its
    // end.
    if tree.publication_pending.load(Ordering::Acquire) {
        return Ok(());
    }
    let oldest = env.snapshots.oldest();
    let state = tree.state();
    let mut spent = state.version.spent_range_tombstones(oldest, flushed_through(&state));
    for dependent in tree.dependents.read().iter() {
        if let Ok(dependent) = trees.get(*dependent) {
            let state = dependent.state();
            let clear_through = dependent.backend().clear_through();
            // An external tree that is not set yet may have older entries.
            let is_unset =
                clear_through.is_none() && env.files.versions.lock().external_root(dependent.id).is_some();
            spent.retain(|tombstone| match clear_through {
                Some(clear_through) => tombstone.sequence <= clear_through,
                None => !is_unset && is_clear_of(&state, tombstone),
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
    install(env, tree, edit, &[])
}

/// All entries of `state` at or below this number are in sstables.
fn flushed_through(state: &TreeState) -> SequenceNumber {
    let waiting = state.memtables().filter_map(|logged| logged.memtable.smallest_sequence()).min();
    waiting.map_or(SequenceNumber::MAX, |smallest| smallest.saturating_sub(1))
}

/// True if no entry of `state` can be older than `tombstone` and belong to a record that it deleted: compactions of the
/// tree drop such entries.
fn is_clear_of(state: &TreeState, tombstone: &RangeTombstone) -> bool {
    let is_newer = |smallest: SequenceNumber| smallest >= tombstone.sequence;
    let memtables = state.memtables().filter_map(|logged| logged.memtable.smallest_sequence());
    let mut tables = state.version.tables().map(|table| table.meta());
    memtables.into_iter().all(is_newer)
        && tables.all(|meta| is_newer(meta.smallest_sequence) || meta.filtered_through >= tombstone.sequence)
}

impl Store {
    /// Declares that the tree `dependent` has entries about the records of `tree` (an index over it). A range tombstone
    /// of `tree` then remains until `dependent` has no entries of the deleted records, or is dropped. The compaction
    /// filter of `dependent` must drop such entries; otherwise the tombstone remains for ever.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree.
    pub fn add_dependent(&self, tree: TreeId, dependent: TreeId) -> Result<()> {
        self.inner.trees.get(tree)?.dependents.write().insert(dependent);
        Ok(())
    }
}
