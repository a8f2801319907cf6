//! Deferred publication: when readers see the sstables of a flush into partitions.
//!
//! If a tree has readers, the sstables are published together with the views over them (see `sorted_view`). Until then
//! readers use the full memtables and the old views, which is cheaper than a search of each new sstable.
//!
//! ```text
//! manifest      before | sstables              | views
//! readers       memtables, old views           | sstables, views
//! ```
//!
//! # Correctness
//! The old state has the same contents as the new one; it only takes more memory. No other thread changes the sstables
//! of the tree meanwhile: no compaction runs during such a flush, and a change of the layout waits for it. Other edits
//! about these sstables (views that another thread was rebuilding, the removal of range tombstones) check
//! [`Tree::publication_pending`] first, under the lock of the versions, because the state of the tree differs from the
//! manifest. After a crash the manifest counts.
//!
//! # Cost for writers
//! Publication is no longer deferred once so many more memtables are full that writers would wait for the next one.
//! This is checked between partitions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::Result;

use crate::store::StoreInner;
use crate::store::read::newest_reads::update_rows;
use crate::store::tree::logged_memtable::LoggedMemtable;
use crate::store::tree::{Tree, TreeState};
use crate::version::VersionSet;

/// The changes of a flush to the state of a tree, apart from the version.
#[derive(Clone, Copy)]
pub(in crate::store) struct FlushedMemtables<'a> {
    /// The memtables whose entries are in sstables now, or in `retained`.
    pub(in crate::store) memtables: &'a [Arc<LoggedMemtable>],
    /// Replaces them.
    pub(in crate::store) retained: Option<&'a Arc<LoggedMemtable>>,
}

/// The state `now` with the memtables of `flushed` replaced by the version in the manifest. Without `flushed`, `now`
/// itself.
pub(in crate::store) fn next_state(
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
pub(in crate::store) fn publish_state(
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
    pub(in crate::store) fn publish_flush(
        &self,
        tree: &Arc<Tree>,
        flushed: FlushedMemtables<'_>,
    ) -> Result<()> {
        let next = next_state(tree, &self.versions.lock(), Some(flushed), &tree.state_guard());
        let can_defer = self.can_defer_views(tree, &next) || self.writers_need_room(tree);
        let Some(view_rebuild_lock) = tree.view_rebuild_lock.try_lock().filter(|_| !can_defer) else {
            let row_update = update_rows(&self.rows, tree, flushed.memtables);
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
    pub(in crate::store) fn writers_need_room(&self, tree: &Tree) -> bool {
        tree.state_guard().pending_flushes() >= self.options.max_immutable_memtables
    }
}

#[cfg(test)]
#[path = "deferred_publication_tests.rs"]
mod tests;
