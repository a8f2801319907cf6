//! A unit of background work.

use std::sync::Arc;

use bolide_base::Result;

use crate::store::StoreInner;
use crate::store::jobs::environment::MergeEnvironment;
use crate::store::jobs::shared_tasks::{SharedTasks, TaskEnvironment};
use crate::store::jobs::work::WorkState;
use crate::store::tree::Tree;

/// A unit of background work. It holds the parts of the store that it uses; the scheduler has no other access to it.
pub(in crate::store) trait BackgroundJob {
    /// Records what the job uses. Called under the lock of the work, right after the job was picked.
    fn begin(&self, work: &mut WorkState);

    /// Does the work.
    ///
    /// # Errors
    /// A failure that does not poison the handle is reported to a waiting caller, and the work is tried again.
    fn run(&self) -> Result<()>;

    /// Removes what [`begin`](Self::begin) recorded. Called under the lock of the work, also after a failure.
    fn end(&self, work: &mut WorkState);

    /// The tree whose sstables the job reads or writes. A derived tree with damaged sstables is not merged any more, and its
    /// failure is not reported.
    fn merged_tree(&self) -> Option<&Tree> {
        None
    }

    /// The part of the outcome that the scheduler records.
    fn report(&self) -> JobReport {
        JobReport::All
    }
}

/// The part of the outcome of a job that the scheduler records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum JobReport {
    /// A failure, and a success, which clears an earlier failure.
    All,
    /// A failure. A success proves nothing: for example, not that a full disk has space again.
    Failure,
    /// Nothing: another thread receives the outcome.
    Nothing,
}

/// A job that is due; `None` if there is none.
pub(in crate::store) type PickedJob<'s> = Option<Box<dyn BackgroundJob + 's>>;

/// Picks a job that is due, and gives it the parts of the store that it uses.
pub(in crate::store) type Picker = for<'s> fn(&'s StoreInner, &mut WorkState) -> PickedJob<'s>;

/// Help with the tasks of a job that another thread runs.
struct AssistJob<'s> {
    env: MergeEnvironment<'s>,
    tasks: Arc<dyn SharedTasks>,
}

impl BackgroundJob for AssistJob<'_> {
    fn begin(&self, _work: &mut WorkState) {}

    fn run(&self) -> Result<()> {
        let MergeEnvironment { files, options, stop, .. } = self.env;
        let is_abandoned = |tree: &Tree| stop.is_abandoned(tree);
        self.tasks.run_tasks(TaskEnvironment { files, options, is_abandoned: &is_abandoned });
        Ok(())
    }

    fn end(&self, _work: &mut WorkState) {}

    fn report(&self) -> JobReport {
        JobReport::Nothing
    }
}

/// Picks tasks of a job that another thread runs.
pub(in crate::store) fn pick_shared_tasks<'s>(
    env: MergeEnvironment<'s>,
    work: &mut WorkState,
) -> PickedJob<'s> {
    let tasks = work.shared_tasks.iter().find(|tasks| tasks.has_tasks())?;
    Some(Box::new(AssistJob { env, tasks: tasks.clone() }))
}
