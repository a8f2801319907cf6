//! Garbage collection of external trees, when writes are idle.

use std::sync::Arc;

use bolide_base::Result;

use crate::store::StoreInner;
use crate::store::backend::external::collect_external_garbage;
use crate::store::jobs::job::BackgroundJob;
use crate::store::jobs::work::WorkState;
use crate::store::tree::Tree;

/// Number of writes to an external tree, in the idle interval, up to which it is idle: a few each millisecond.
const MAX_IDLE_WRITES: u64 = 1_000;

/// A garbage collection of an external tree.
struct GarbageJob(Arc<Tree>);

impl BackgroundJob for GarbageJob {
    fn begin(&self, work: &mut WorkState) {
        work.garbage_due.remove(&self.0.id);
        work.flushing.insert(self.0.id);
    }

    fn run(&self, store: &StoreInner) -> Result<()> {
        collect_external_garbage(store, &self.0)
    }

    fn end(&self, work: &mut WorkState) {
        work.flushing.remove(&self.0.id);
    }
}

/// Picks a tree with garbage in its external tree, once its writes are idle or a caller waits.
pub(in crate::store) fn pick_garbage_collection(
    store: &StoreInner,
    work: &mut WorkState,
) -> Option<Box<dyn BackgroundJob>> {
    let now = store.runtime.now_micros();
    let trees = store.trees.load();
    let WorkState { garbage_due, flushing, waiting, .. } = work;
    garbage_due.retain(|tree, _| trees.contains_key(tree));
    for tree in trees.values().filter(|tree| !flushing.contains(&tree.id)) {
        let Some(newest) = tree.backend().garbage_through(&|| store.snapshots.oldest()) else {
            garbage_due.remove(&tree.id);
            continue;
        };
        let idle = garbage_due.entry(tree.id).or_default();
        if idle.is_idle(newest, MAX_IDLE_WRITES, now) || *waiting > 0 {
            return Some(Box::new(GarbageJob(tree.clone())));
        }
    }
    None
}
