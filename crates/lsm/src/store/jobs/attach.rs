//! Opening of a deferred external tree, in place of the first flush of its tree.

use std::sync::Arc;

use bolide_base::Result;

use crate::store::StoreInner;
use crate::store::commit::log::Rotate;
use crate::store::commit::segments::rotate;
use crate::store::jobs::job::{BackgroundJob, JobReport};
use crate::store::jobs::work::WorkState;
use crate::store::tree::Tree;

/// The trees whose external trees one job opens at most.
const MAX_TREES: usize = 64;

/// The openings of the external trees of trees, one after the other.
struct AttachJob(Vec<Arc<Tree>>);

impl BackgroundJob for AttachJob {
    fn begin(&self, work: &mut WorkState) {
        work.flushing.extend(self.0.iter().map(|tree| tree.id));
    }

    fn run(&self, store: &StoreInner) -> Result<()> {
        self.0.iter().try_for_each(|tree| attach(store, tree))
    }

    fn end(&self, work: &mut WorkState) {
        self.0.iter().for_each(|tree| _ = work.flushing.remove(&tree.id));
    }

    fn report(&self) -> JobReport {
        JobReport::Failure
    }
}

fn attach(store: &StoreInner, tree: &Arc<Tree>) -> Result<()> {
    let Some(deferral) = tree.deferral.get() else { return Ok(()) };
    // After a failure the tree is flushed to sstables; the next read of the external tree gets the error.
    if deferral.attach(store).is_err() {
        return Ok(());
    }
    // A checkpoint, as by the flush of a tree with an external tree. A new segment only if the present one has its writes.
    let mut log = store.log.lock();
    let active = tree.state_guard().active.clone();
    if !log.is_open() || active.first_log().is_none() {
        return Ok(());
    }
    if active.last_log() >= log.number() {
        return rotate(store, &mut log, Rotate::Tree(tree.id));
    }
    tree.replace_state(|state| state.rotated(store.options.memtable_bytes));
    log.targets.clear();
    Ok(())
}

/// Picks trees that are due for a flush and have deferred external trees.
pub(in crate::store) fn pick_attachment(
    store: &StoreInner,
    work: &mut WorkState,
) -> Option<Box<dyn BackgroundJob>> {
    let trees = store.trees.load();
    let is_due = |tree: &&Arc<Tree>| {
        tree.attaches_at_flush() && !work.flushing.contains(&tree.id) && tree.flushes_due(&store.options) > 0
    };
    let due: Vec<_> = trees.values().filter(is_due).take(MAX_TREES).cloned().collect();
    (!due.is_empty()).then(|| Box::new(AttachJob(due)) as Box<dyn BackgroundJob>)
}
