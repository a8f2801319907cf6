//! The queue of background work: what runs, what is reserved, what is due, and the signal of changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bolide_base::{Error, TreeId};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::idle::IdleDetector;
use crate::compaction::CompactionPlan;
use crate::store::health::WaitingThreads;
use crate::store::jobs::shared_tasks::SharedTasks;

/// The state of the background work, and the signal for its changes.
pub(in crate::store) struct WorkQueue {
    state: Mutex<WorkState>,
    signal: Condvar,
}

impl WorkQueue {
    /// An empty queue. No job is picked while `paused`.
    pub(in crate::store) fn new(paused: bool) -> Self {
        Self { state: Mutex::new(WorkState::new(paused)), signal: Condvar::new() }
    }

    pub(in crate::store) fn lock(&self) -> MutexGuard<'_, WorkState> {
        self.state.lock()
    }

    /// Wakes all waiting threads after a change of the state, whose lock the caller has held.
    pub(in crate::store) fn notify(&self) {
        self.signal.notify_all();
    }

    /// Wakes all waiting threads after a change outside of the state.
    pub(in crate::store) fn wake(&self) {
        // The lock orders this signal after the last check of a thread that is about to sleep.
        drop(self.state.lock());
        self.signal.notify_all();
    }

    pub(in crate::store) fn wait(&self, state: &mut MutexGuard<'_, WorkState>) {
        self.signal.wait(state);
    }

    pub(in crate::store) fn wait_for(&self, state: &mut MutexGuard<'_, WorkState>, timeout: Duration) {
        self.signal.wait_for(state, timeout);
    }
}

impl WaitingThreads for WorkQueue {
    fn wake_all(&self) {
        self.wake();
    }
}

/// State of the background work.
#[derive(Debug, Default)]
pub(in crate::store) struct WorkState {
    pub(in crate::store) stopping: bool,
    /// True until the store is started: no job is picked.
    pub(in crate::store) paused: bool,
    /// Trees that are being flushed or compacted in memory, and trees whose external tree is collecting garbage.
    pub(in crate::store) flushing: BTreeSet<TreeId>,
    /// The trees of `flushing` whose flush goes into partitions.
    pub(in crate::store) flushing_partitions: BTreeSet<TreeId>,
    /// Running jobs with tasks for idle threads.
    pub(in crate::store) shared_tasks: Vec<Arc<dyn SharedTasks>>,
    /// Input files of running compactions, by tree.
    pub(in crate::store) busy_files: BTreeMap<TreeId, BTreeSet<u64>>,
    pub(in crate::store) running_compactions: BTreeMap<TreeId, usize>,
    /// Trees under exclusive access of a caller; see `with_reserved`.
    pub(in crate::store) reserved: BTreeSet<TreeId>,
    /// Number of callers that wait for exclusive access.
    pub(in crate::store) reserving: usize,
    /// The last failure that did not poison the store, until it is reported.
    pub(in crate::store) failure: Option<Error>,
    /// Trees with outdated sorted views.
    pub(in crate::store) views_due: BTreeMap<TreeId, IdleDetector>,
    /// Number of running view rebuilds.
    pub(in crate::store) running_rebuilds: usize,
    /// Trees with garbage in their external tree, which is collected when writes are idle.
    pub(in crate::store) garbage_due: BTreeMap<TreeId, IdleDetector>,
    /// Number of callers that wait until no work is left.
    pub(in crate::store) waiting: usize,
    /// Number of damaged REMIX files at the last check.
    pub(in crate::store) view_failures_seen: u64,
    /// Time until which work pauses after a failure.
    pub(in crate::store) paused_until_micros: u64,
}

impl WorkState {
    fn new(paused: bool) -> Self {
        Self { paused, ..Self::default() }
    }

    pub(in crate::store) fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    /// Adds trees with outdated sorted views.
    pub(in crate::store) fn add_views_due(&mut self, trees: impl IntoIterator<Item = TreeId>) {
        for tree in trees {
            self.views_due.entry(tree).or_default();
        }
    }

    /// True if work is due once writes are idle.
    pub(in crate::store) fn waits_for_idle_writes(&self) -> bool {
        !self.views_due.is_empty() || !self.garbage_due.is_empty()
    }

    pub(in crate::store) fn is_idle(&self) -> bool {
        self.flushing.is_empty() && self.running_compactions.is_empty() && self.running_rebuilds == 0
    }

    /// Reserves `file` for a compaction of `tree`. Returns false if another compaction reads it, a flush into
    /// partitions runs, or the tree is reserved.
    pub(in crate::store) fn reserve_file(&mut self, tree: TreeId, file: u64) -> bool {
        let is_free = !self.reserved.contains(&tree)
            && !self.flushing_partitions.contains(&tree)
            && self.busy_files.get(&tree).is_none_or(|busy| !busy.contains(&file));
        if is_free {
            self.busy_files.entry(tree).or_default().insert(file);
            *self.running_compactions.entry(tree).or_insert(0) += 1;
        }
        is_free
    }

    pub(in crate::store) fn begin_compaction(&mut self, tree: TreeId, plan: &CompactionPlan) {
        self.busy_files.entry(tree).or_default().extend(plan.busy_files());
        *self.running_compactions.entry(tree).or_insert(0) += 1;
    }

    pub(in crate::store) fn end_compaction(&mut self, tree: TreeId, plan: &CompactionPlan) {
        if let Some(busy) = self.busy_files.get_mut(&tree) {
            for file in plan.busy_files() {
                busy.remove(&file);
            }
        }
        if let Some(count) = self.running_compactions.get_mut(&tree) {
            *count -= 1;
            if *count == 0 {
                self.running_compactions.remove(&tree);
                self.busy_files.remove(&tree);
            }
        }
    }
}
