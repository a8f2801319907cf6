//! Garbage collection of external trees, when writes are idle.

use std::sync::Arc;

use bolide_base::Result;

use crate::store::backend::external::collect_external_garbage;
use crate::store::jobs::environment::GarbageEnvironment;
use crate::store::jobs::job::{BackgroundJob, PickedJob};
use crate::store::jobs::work::WorkState;
use crate::store::tree::Tree;
use crate::store::tree::directory::TreeDirectory;

/// Number of writes to an external tree, in the idle interval, up to which it is idle: a few each millisecond.
const MAX_IDLE_WRITES: u64 = 1_000;

/// A garbage collection of an external tree.
struct GarbageJob<'s> {
    env: GarbageEnvironment<'s>,
    tree: Arc<Tree>,
}

impl BackgroundJob for GarbageJob<'_> {
    fn begin(&self, work: &mut WorkState) {
        work.garbage_due.remove(&self.tree.id);
        work.flushing.insert(self.tree.id);
    }

    fn run(&self) -> Result<()> {
        collect_external_garbage(self.env, &self.tree)
    }

    fn end(&self, work: &mut WorkState) {
        work.flushing.remove(&self.tree.id);
    }
}

/// Picks a tree with garbage in its external tree, once its writes are idle or a caller waits.
pub(in crate::store) fn pick_garbage_collection<'s>(
    env: GarbageEnvironment<'s>,
    trees: &TreeDirectory,
    now_micros: u64,
    work: &mut WorkState,
) -> PickedJob<'s> {
    let trees = trees.load();
    let WorkState { garbage_due, flushing, waiting, .. } = work;
    garbage_due.retain(|tree, _| trees.contains_key(tree));
    for tree in trees.values().filter(|tree| !flushing.contains(&tree.id)) {
        let Some(newest) = tree.backend().garbage_through(&|| env.snapshots.oldest()) else {
            garbage_due.remove(&tree.id);
            continue;
        };
        let idle = garbage_due.entry(tree.id).or_default();
        if idle.is_idle(newest, MAX_IDLE_WRITES, now_micros) || *waiting > 0 {
            return Some(Box::new(GarbageJob { env, tree: tree.clone() }));
        }
    }
    None
}
