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
use bolide_base::technique::Technique;

use crate::store::jobs::environment::FlushEnvironment;
use crate::store::jobs::publication::{FlushedMemtables, next_state, publish_state, writers_need_room};
use crate::store::jobs::sorted_view::{can_defer_views, rebuild_views_locked, refresh_views};
use crate::store::read::newest_reads::update_rows;
use crate::store::tree::Tree;

/// Publishes a flush that is in the manifest: with rebuilt views if readers demand them.
///
/// # Errors
/// As [`rebuild_views`](rebuild_views); the flush is published nevertheless.
pub(in crate::store) fn publish_flush(
    env: &FlushEnvironment<'_>,
    tree: &Arc<Tree>,
    flushed: FlushedMemtables<'_>,
) -> Result<()> {
    let (options, install) = (env.tables.merge.options, env.tables.install);
    let next = next_state(tree, &install.files.versions.lock(), Some(flushed), &tree.state_guard());
    let publishes_at_once = can_defer_views(options, tree, &next)
        || writers_need_room(options, tree)
        || !Technique::DeferredPublication.is_on();
    let Some(view_rebuild_lock) = tree.view_rebuild_lock.try_lock().filter(|_| !publishes_at_once) else {
        let row_update = update_rows(install.rows, tree, flushed.memtables);
        publish_state(tree, &install.files.versions.lock(), Some(flushed), |next| next);
        drop(row_update);
        // Writers that wait for a free memtable may continue.
        env.backlog.changed();
        return refresh_views(env.tables.views(), tree);
    };
    let rebuilt = rebuild_views_locked(env.tables.views(), tree, Some(flushed));
    drop(view_rebuild_lock);
    env.backlog.changed();
    // Work is left if another thread requested a rebuild, writers would have waited, or the rebuild failed.
    if rebuilt.is_err() {
        env.tables.merge.stop.work.lock().add_views_due([tree.id]);
    } else if tree.rebuild_requested.load(Ordering::SeqCst) || tree.state_guard().views.are_behind() {
        return refresh_views(env.tables.views(), tree);
    }
    rebuilt
}

#[cfg(test)]
#[path = "deferred_publication_tests.rs"]
mod tests;
