//! Opening of a deferred external tree, in place of the first flush of its tree.

use std::sync::Arc;

use bolide_base::Result;

use crate::store::StoreInner;
use crate::store::commit::log::Rotate;
use crate::store::commit::segments::rotate;
use crate::store::jobs::job::{BackgroundJob, JobReport};
use crate::store::jobs::work::WorkState;
use crate::store::tree::Tree;

/// The opening of the external tree of a tree.
struct AttachJob(Arc<Tree>);

impl BackgroundJob for AttachJob {
    fn begin(&self, work: &mut WorkState) {
        work.flushing.insert(self.0.id);
    }

    fn run(&self, store: &StoreInner) -> Result<()> {
        let Some(deferral) = self.0.deferral.get() else { return Ok(()) };
        // After a failure the tree is flushed to sstables; the next read of the external tree gets the error.
        if deferral.attach(store).is_err() {
            return Ok(());
        }
        // A checkpoint, as by the flush of a tree with an external tree. A new segment only if the present one has its writes.
        let mut log = store.log.lock();
        let active = self.0.state_guard().active.clone();
        if !log.is_open() || active.first_log().is_none() {
            return Ok(());
        }
        if active.last_log() >= log.number() {
            return rotate(store, &mut log, Rotate::Tree(self.0.id));
        }
        self.0.replace_state(|state| state.rotated(store.options.memtable_bytes));
        log.targets.clear();
        Ok(())
    }

    fn end(&self, work: &mut WorkState) {
        work.flushing.remove(&self.0.id);
    }

    fn report(&self) -> JobReport {
        JobReport::Failure
    }
}

/// Picks a tree that is due for a flush and has a deferred external tree.
pub(in crate::store) fn pick_attachment(
    store: &StoreInner,
    work: &mut WorkState,
) -> Option<Box<dyn BackgroundJob>> {
    let trees = store.trees.load();
    let is_due = |tree: &&Arc<Tree>| {
        tree.attaches_at_flush() && !work.flushing.contains(&tree.id) && tree.flushes_due(&store.options) > 0
    };
    let tree = trees.values().find(is_due)?;
    Some(Box::new(AttachJob(tree.clone())))
}
