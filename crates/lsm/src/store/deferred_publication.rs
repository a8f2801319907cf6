//! When readers see what a flush into partitions brought.
//!
//! Where a tree is read, they see the sstables together with the views over them (see `sorted_view`). Until then they go on with
//! the full memtables and the views from before, instead of asking each new sstable by itself.
//!
//! ```text
//! manifest      before | sstables        | views
//! readers       memtables, views from before   | sstables, views
//! ```
//!
//! # Why it is right
//! The state from before says the same as the one that follows; it only takes more memory. Nobody else changes the sstables of the
//! tree meanwhile: no compaction runs beside such a flush, and another layout waits for it. What else says something of them in the
//! manifest (views that somebody was renewing, deleted ranges that are to be forgotten) looks at [`Tree::publication_pending`] first,
//! under the lock of the versions, as the state of the tree is not what the manifest says. A crash finds what that says.
//!
//! # Writers hardly wait for it
//! As soon as so many further memtables are full that writers would have to wait for the next one, the sstables are shown as they
//! are. It is looked at between partitions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::Result;

use super::StoreInner;
use super::logged_memtable::LoggedMemtable;
use super::tree::{Tree, TreeState};
use crate::version::VersionSet;

/// The changes of a flush to the state of a tree, apart from the version.
#[derive(Clone, Copy)]
pub(super) struct FlushedMemtables<'a> {
    /// The memtables whose entries are in sstables now, or in `retained`.
    pub(super) memtables: &'a [Arc<LoggedMemtable>],
    /// Replaces them.
    pub(super) retained: Option<&'a Arc<LoggedMemtable>>,
}

/// The state `now` with the memtables of `flushed` replaced by the version in the manifest. Without `flushed`, `now`
/// itself.
pub(super) fn next_state(
    tree: &Tree,
    versions: &VersionSet,
    flushed: Option<FlushedMemtables<'_>>,
    now: &TreeState,
) -> TreeState {
    match flushed.zip(versions.current(tree.id)) {
        Some((flushed, version)) => now.installed(version, flushed.memtables, flushed.retained.cloned()),
        None => now.clone(),
    }
}

/// Replaces the state of `tree` by the result of `change` for the [`next_state`].
pub(super) fn publish_state(
    tree: &Tree,
    versions: &VersionSet,
    flushed: Option<FlushedMemtables<'_>>,
    change: impl FnOnce(TreeState) -> TreeState,
) {
    tree.replace_state(|now| change(next_state(tree, versions, flushed, now)));
    if flushed.is_some() {
        tree.publication_pending.store(false, Ordering::Release);
    }
}

impl StoreInner {
    /// Publishes a flush that is in the manifest: with rebuilt views if readers demand them.
    ///
    /// # Errors
    /// As [`rebuild_views`](Self::rebuild_views); the flush is published nevertheless.
    pub(super) fn publish_flush(&self, tree: &Arc<Tree>, flushed: FlushedMemtables<'_>) -> Result<()> {
        let next = next_state(tree, &self.versions.lock(), Some(flushed), &tree.state_guard());
        let can_defer = self.can_defer_views(tree, &next) || self.writers_need_room(tree);
        let Some(view_rebuild_lock) = tree.view_rebuild_lock.try_lock().filter(|_| !can_defer) else {
            let row_update = self.update_rows(tree, flushed.memtables);
            publish_state(tree, &self.versions.lock(), Some(flushed), |next| next);
            drop(row_update);
            // Writers that wait for a free memtable may continue.
            self.wake_workers();
            return self.refresh_views(tree);
        };
        let rebuilt = self.rebuild_views_locked(tree, Some(flushed));
        drop(view_rebuild_lock);
        self.wake_workers();
        // Work is left if another thread requested a rebuild, writers would have waited, or the rebuild failed.
        if rebuilt.is_err() {
            self.work.lock().add_views_due([tree.id]);
        } else if tree.rebuild_requested.load(Ordering::SeqCst) || tree.state_guard().views.are_behind() {
            return self.refresh_views(tree);
        }
        rebuilt
    }

    /// True if writers wait once one more memtable of `tree` is full.
    pub(super) fn writers_need_room(&self, tree: &Tree) -> bool {
        tree.state_guard().pending_flushes() >= self.options.max_immutable_memtables
    }
}

#[cfg(test)]
#[path = "deferred_publication_tests.rs"]
mod tests;
