//! Opening of a deferred external tree, in place of the first flush of its tree.
//!
//! An opening may read a whole index. So the trees that are due are divided among the threads, and a job ends after a time slice,
//! or when the store closes: trees that are left are due again.

use std::sync::Arc;
use std::time::Duration;

use bolide_base::{Result, TreeId};

use crate::options::StoreOptions;
use crate::store::StoreInner;
use crate::store::backend::deferred::Deferral;
use crate::store::commit::log::{Log, LogState, Rotate};
use crate::store::commit::segments::rotate;
use crate::store::jobs::job::{BackgroundJob, JobReport, PickedJob};
use crate::store::jobs::work::WorkState;
use crate::store::tree::Tree;
use crate::store::tree::directory::TreeDirectory;

/// The trees whose external trees one job opens at most.
const MAX_TREES: usize = 64;
/// The time after which a job begins no further opening.
const TIME_SLICE: Duration = Duration::from_millis(50);

/// What the opening of a deferred external tree uses of a store: it excludes commits, and may start a log segment.
pub(in crate::store) trait AttachEnvironment {
    fn options(&self) -> &StoreOptions;

    fn log(&self) -> &Log;

    fn now_micros(&self) -> u64;

    /// True once the store is closing.
    fn is_stopping(&self) -> bool;

    /// As [`Deferral::attach`].
    fn attach(&self, deferral: &Deferral) -> Result<()>;

    /// Starts a new log segment, with a new memtable of `tree`.
    ///
    /// # Errors
    /// Those of the log and the manifest.
    fn rotate(&self, log: &mut LogState, tree: TreeId) -> Result<()>;
}

impl AttachEnvironment for StoreInner {
    fn options(&self) -> &StoreOptions {
        &self.options
    }

    fn log(&self) -> &Log {
        &self.log
    }

    fn now_micros(&self) -> u64 {
        self.runtime.now_micros()
    }

    fn is_stopping(&self) -> bool {
        self.stop_signal().is_stopping()
    }

    fn attach(&self, deferral: &Deferral) -> Result<()> {
        deferral.attach(self)
    }

    fn rotate(&self, log: &mut LogState, tree: TreeId) -> Result<()> {
        rotate(self, log, Rotate::Tree(tree))
    }
}

/// The openings of the external trees of trees, one after the other.
struct AttachJob<'s> {
    env: &'s dyn AttachEnvironment,
    trees: Vec<Arc<Tree>>,
}

impl BackgroundJob for AttachJob<'_> {
    fn begin(&self, work: &mut WorkState) {
        work.flushing.extend(self.trees.iter().map(|tree| tree.id));
    }

    fn run(&self) -> Result<()> {
        let end = self.env.now_micros().saturating_add(TIME_SLICE.as_micros() as u64);
        for tree in &self.trees {
            attach(self.env, tree)?;
            if self.env.is_stopping() || self.env.now_micros() >= end {
                break;
            }
        }
        Ok(())
    }

    fn end(&self, work: &mut WorkState) {
        self.trees.iter().for_each(|tree| _ = work.flushing.remove(&tree.id));
    }

    fn report(&self) -> JobReport {
        JobReport::Failure
    }
}

fn attach(env: &dyn AttachEnvironment, tree: &Arc<Tree>) -> Result<()> {
    let Some(deferral) = tree.deferral.get() else { return Ok(()) };
    // After a failure the tree is flushed to sstables; the next read of the external tree gets the error.
    if env.attach(deferral).is_err() {
        return Ok(());
    }
    // A checkpoint, as by the flush of a tree with an external tree. A new segment only if the present one has its writes.
    let mut log = env.log().lock();
    let active = tree.state_guard().active.clone();
    if !log.is_open() || active.first_log().is_none() {
        return Ok(());
    }
    if active.last_log() >= log.number() {
        return env.rotate(&mut log, tree.id);
    }
    tree.replace_state(|state| state.rotated(env.options().memtable_bytes));
    log.targets.clear();
    Ok(())
}

/// Picks trees that are due for a flush and have deferred external trees.
pub(in crate::store) fn pick_attachment<'s>(
    env: &'s dyn AttachEnvironment,
    trees: &TreeDirectory,
    work: &mut WorkState,
) -> PickedJob<'s> {
    let trees = trees.load();
    let is_due = |tree: &&Arc<Tree>| {
        tree.attaches_at_flush() && !work.flushing.contains(&tree.id) && tree.flushes_due(env.options()) > 0
    };
    let all_due: Vec<_> = trees.values().filter(is_due).collect();
    let share = all_due.len().div_ceil(env.options().background_threads.max(1)).min(MAX_TREES);
    let due: Vec<_> = all_due.into_iter().take(share).cloned().collect();
    (!due.is_empty()).then(|| Box::new(AttachJob { env, trees: due }) as Box<dyn BackgroundJob + 's>)
}
