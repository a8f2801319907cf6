//! Work that waits for a pause of the writes: sorted views are renewed, kept trees are tidied.

use super::StoreInner;
use super::idle::IdleDetector;
use super::scheduler::{BackgroundJob, WorkState};
use super::tree::Tree;

/// Writes to a kept tree that do not end a pause: a few each millisecond.
const FEW_WRITES: u64 = 1_000;

/// Whether the views of `tree` are to be renewed now.
fn renews_now(tree: &Tree, idle: &mut IdleDetector, now_micros: u64) -> bool {
    let state = tree.state_guard();
    let newest = state.memtables().filter_map(|logged| logged.memtable.largest_sequence()).max();
    idle.has_lasted(newest.unwrap_or(0), 0, now_micros) || state.views.are_demanded()
}

impl StoreInner {
    /// A tree whose sorted views are behind, once somebody wants them or it is quiet.
    pub(super) fn pick_view_rebuild(&self, work: &mut WorkState) -> Option<BackgroundJob> {
        self.add_failed_views(work);
        let trees = self.trees.load();
        work.views_due.retain(|tree, _| trees.contains_key(tree));
        let now = self.runtime.now_micros();
        let at_once = self.options.background_threads == 0;
        let due = work.views_due.iter_mut().filter_map(|(tree, seen)| Some((trees.get(tree)?, seen)));
        let mut ready =
            due.filter_map(|(tree, seen)| (at_once || renews_now(tree, seen, now)).then_some(tree));
        let tree = ready.next()?;
        Some(BackgroundJob::RebuildViews(tree.clone()))
    }

    /// A kept tree with garbage, once writes to it pause or somebody waits.
    pub(super) fn pick_garbage_collection(&self, work: &mut WorkState) -> Option<BackgroundJob> {
        let now = self.runtime.now_micros();
        let trees = self.trees.load();
        let WorkState { garbage_due, flushing, waiting, .. } = work;
        garbage_due.retain(|tree, _| trees.contains_key(tree));
        let kept = trees.values().filter_map(|tree| Some((tree, tree.external_tree.get()?)));
        for (tree, external_tree) in kept.filter(|(tree, _)| !flushing.contains(&tree.id)) {
            let Some(newest) = external_tree.garbage_through(&|| self.snapshots.oldest()) else {
                garbage_due.remove(&tree.id);
                continue;
            };
            let idle = garbage_due.entry(tree.id).or_default();
            if idle.has_lasted(newest, FEW_WRITES, now) || *waiting > 0 {
                return Some(BackgroundJob::CollectGarbage(tree.clone()));
            }
        }
        None
    }
}
