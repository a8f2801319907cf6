//! Work for idle writes: rebuilds of sorted views, garbage collection of external trees.

use crate::store::StoreInner;
use crate::store::jobs::idle::IdleDetector;
use crate::store::jobs::scheduler::BackgroundJob;
use crate::store::jobs::work::WorkState;
use crate::store::tree::Tree;

/// Number of writes to an external tree, in the idle interval, up to which it is idle: a few each millisecond.
const MAX_IDLE_WRITES: u64 = 1_000;

/// True if the views of `tree` are to be rebuilt now.
fn is_rebuild_due(tree: &Tree, idle: &mut IdleDetector, now_micros: u64) -> bool {
    let state = tree.state_guard();
    let newest = state.memtables().filter_map(|logged| logged.memtable.largest_sequence()).max();
    idle.is_idle(newest.unwrap_or(0), 0, now_micros) || state.views.are_demanded()
}

impl StoreInner {
    /// A tree whose sorted views are outdated, once they are demanded or its writes are idle.
    pub(in crate::store) fn pick_view_rebuild(&self, work: &mut WorkState) -> Option<BackgroundJob> {
        self.add_failed_views(work);
        let trees = self.trees.load();
        work.views_due.retain(|tree, _| trees.contains_key(tree));
        let now = self.runtime.now_micros();
        let at_once = self.options.background_threads == 0;
        let due = work.views_due.iter_mut().filter_map(|(tree, idle)| Some((trees.get(tree)?, idle)));
        let mut ready =
            due.filter_map(|(tree, idle)| (at_once || is_rebuild_due(tree, idle, now)).then_some(tree));
        let tree = ready.next()?;
        Some(BackgroundJob::RebuildViews(tree.clone()))
    }

    /// A tree with garbage in its external tree, once its writes are idle or a caller waits.
    pub(in crate::store) fn pick_garbage_collection(&self, work: &mut WorkState) -> Option<BackgroundJob> {
        let now = self.runtime.now_micros();
        let trees = self.trees.load();
        let WorkState { garbage_due, flushing, waiting, .. } = work;
        garbage_due.retain(|tree, _| trees.contains_key(tree));
        for tree in trees.values().filter(|tree| !flushing.contains(&tree.id)) {
            let Some(newest) = tree.backend().garbage_through(&|| self.snapshots.oldest()) else {
                garbage_due.remove(&tree.id);
                continue;
            };
            let idle = garbage_due.entry(tree.id).or_default();
            if idle.is_idle(newest, MAX_IDLE_WRITES, now) || *waiting > 0 {
                return Some(BackgroundJob::CollectGarbage(tree.clone()));
            }
        }
        None
    }
}
