//! Rebuilds of sorted views in the background: at once if readers demand them, else when writes are idle.

use std::sync::Arc;

use bolide_base::Result;

use crate::store::jobs::environment::ViewEnvironment;
use crate::store::jobs::idle::IdleDetector;
use crate::store::jobs::job::{BackgroundJob, PickedJob};
use crate::store::jobs::sorted_view::{add_failed_views, rebuild_views};
use crate::store::jobs::work::WorkState;
use crate::store::tree::Tree;
use crate::store::tree::directory::TreeDirectory;

/// A rebuild of the sorted views of a tree.
struct ViewRebuildJob<'s> {
    env: ViewEnvironment<'s>,
    tree: Arc<Tree>,
}

impl BackgroundJob for ViewRebuildJob<'_> {
    fn begin(&self, work: &mut WorkState) {
        work.views_due.remove(&self.tree.id);
        work.running_rebuilds += 1;
    }

    fn run(&self) -> Result<()> {
        rebuild_views(self.env, &self.tree)
    }

    fn end(&self, work: &mut WorkState) {
        work.running_rebuilds -= 1;
    }
}

/// True if the views of `tree` are to be rebuilt now.
fn is_rebuild_due(tree: &Tree, idle: &mut IdleDetector, now_micros: u64) -> bool {
    let state = tree.state_guard();
    let newest = state.memtables().filter_map(|logged| logged.memtable.largest_sequence()).max();
    idle.is_idle(newest.unwrap_or(0), 0, now_micros) || state.views.are_demanded()
}

/// Picks a tree whose sorted views are outdated, once they are demanded or its writes are idle.
pub(in crate::store) fn pick_view_rebuild<'s>(
    env: ViewEnvironment<'s>,
    trees: &TreeDirectory,
    now_micros: u64,
    work: &mut WorkState,
) -> PickedJob<'s> {
    add_failed_views(env.files, trees, work);
    let trees = trees.load();
    work.views_due.retain(|tree, _| trees.contains_key(tree));
    let at_once = env.options.background_threads == 0;
    let due = work.views_due.iter_mut().filter_map(|(tree, idle)| Some((trees.get(tree)?, idle)));
    let mut ready =
        due.filter_map(|(tree, idle)| (at_once || is_rebuild_due(tree, idle, now_micros)).then_some(tree));
    let tree = ready.next()?;
    Some(Box::new(ViewRebuildJob { env, tree: tree.clone() }))
}
