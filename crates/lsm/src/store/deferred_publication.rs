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
//! manifest (views that somebody was renewing, deleted ranges that are to be forgotten) looks at [`Tree::unshown`] first,
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

/// What a flush changes in the state of a tree but for the version.
#[derive(Clone, Copy)]
pub(super) struct Flushed<'a> {
    /// The memtables whose entries are in sstables now, or in `retained`.
    pub(super) memtables: &'a [Arc<LoggedMemtable>],
    /// Takes their place.
    pub(super) retained: Option<&'a Arc<LoggedMemtable>>,
}

/// `now` with what `flushed` changes, and as the manifest has the tree; `now` itself without that.
pub(super) fn ahead(
    tree: &Tree,
    versions: &VersionSet,
    flushed: Option<Flushed<'_>>,
    now: &TreeState,
) -> TreeState {
    match flushed.zip(versions.current(tree.id)) {
        Some((flushed, version)) => now.installed(version, flushed.memtables, flushed.retained.cloned()),
        None => now.clone(),
    }
}

/// Gives `tree` the state that `change` makes of the one that is [`ahead`].
pub(super) fn show(
    tree: &Tree,
    versions: &VersionSet,
    flushed: Option<Flushed<'_>>,
    change: impl FnOnce(TreeState) -> TreeState,
) {
    tree.replace_state(|now| change(ahead(tree, versions, flushed, now)));
    if flushed.is_some() {
        tree.unshown.store(false, Ordering::Release);
    }
}

impl StoreInner {
    /// Lets readers of `tree` see what the manifest says since a flush: with views where these are wanted now.
    ///
    /// # Errors
    /// As [`renew_views`](Self::renew_views); readers see it all the same.
    pub(super) fn show_flushed(&self, tree: &Arc<Tree>, flushed: Flushed<'_>) -> Result<()> {
        let next = ahead(tree, &self.versions.lock(), Some(flushed), &tree.state_guard());
        let may_wait = self.views_may_wait(tree, &next) || self.writers_need_room(tree);
        let Some(renewing) = tree.renewing.try_lock().filter(|_| !may_wait) else {
            let rows = self.renew_rows(tree, flushed.memtables);
            show(tree, &self.versions.lock(), Some(flushed), |next| next);
            drop(rows);
            // Writers who wait for room may have it now.
            self.work_arrived();
            return self.views_changed(tree);
        };
        let renewed = self.renew_now(tree, Some(flushed));
        drop(renewing);
        self.work_arrived();
        // Something is left to do where others came by, writers would have had to wait, or it failed.
        if renewed.is_err() {
            self.work.lock().views_are_due([tree.id]);
        } else if tree.views_wait.load(Ordering::SeqCst) || tree.state_guard().views.are_behind() {
            return self.views_changed(tree);
        }
        renewed
    }

    /// True if writers wait once one more memtable of `tree` is full.
    pub(super) fn writers_need_room(&self, tree: &Tree) -> bool {
        tree.state_guard().waiting() >= self.options.max_immutable_memtables
    }
}

#[cfg(test)]
#[path = "deferred_publication_tests.rs"]
mod tests;
