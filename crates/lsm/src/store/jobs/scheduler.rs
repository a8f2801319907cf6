//! The scheduler of background work.
//!
//! Order: compactions in memory, then flushes, then compactions on disk. Flushes free memory and log; a compaction in
//! memory may spare a flush. Several trees may be flushed at once, but one tree by one thread only, so that its runs
//! are added in the order of their age. A flush into partitions has tasks that idle threads share. Compactions of one
//! tree run concurrently if their inputs are disjoint, but not during a flush into its partitions.
//!
//! Without background threads, the thread that causes the work does it, in the same order.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bolide_base::{Error, ErrorKind, Result, TreeId};

use crate::compaction::{CompactionPlan, VersionShape};
use crate::layout::FlushTarget;
use crate::store::jobs::partition_flush::PartitionFlush;
use crate::store::jobs::work::WorkState;
use crate::store::tree::Tree;
use crate::store::verify::note_unreadable;
use crate::store::{Store, StoreInner};
use crate::version::LAST_LEVEL;

/// Delay before background work resumes after a transient failure.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Interval of the checks for demanded views and for idle writes.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(50);

impl fmt::Debug for PartitionFlush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionFlush").finish_non_exhaustive()
    }
}

/// A unit of background work.
pub(in crate::store) enum BackgroundJob {
    Flush { tree: Arc<Tree>, target: FlushTarget },
    CompactMemory(Arc<Tree>),
    AssistFlush(Arc<PartitionFlush>),
    Compact(Arc<Tree>, CompactionPlan),
    RebuildViews(Arc<Tree>),
    CollectGarbage(Arc<Tree>),
}

impl StoreInner {
    /// Wakes the worker threads: there may be work.
    pub(in crate::store) fn wake_workers(&self) {
        self.pressure.update(&self.trees);
        self.work.wake();
    }

    /// True once the store is closing: long work should end early.
    pub(in crate::store) fn is_stopping(&self) -> bool {
        self.work.lock().stopping || self.health.is_poisoned()
    }

    pub(in crate::store) fn work_loop(&self) {
        let mut work = self.work.lock();
        while !work.stopping {
            match self.pick_job(&mut work) {
                Some(job) => {
                    drop(work);
                    self.run_job(job);
                    work = self.work.lock();
                }
                None => {
                    let interval = self.options.sync_interval;
                    let checks_idle = !work.views_due.is_empty() || !work.garbage_due.is_empty();
                    let timeout = if checks_idle { interval.min(IDLE_CHECK_INTERVAL) } else { interval };
                    self.work.wait_for(&mut work, timeout);
                    drop(work);
                    self.log.sync_overdue(&self.health);
                    work = self.work.lock();
                }
            }
        }
    }

    /// Does all pending work in the calling thread.
    pub(in crate::store) fn run_pending_work(&self) {
        loop {
            let job = self.pick_job(&mut self.work.lock());
            match job {
                Some(job) => self.run_job(job),
                None => return,
            }
        }
    }

    fn pick_job(&self, work: &mut WorkState) -> Option<BackgroundJob> {
        let is_paused = work.paused || self.runtime.now_micros() < work.paused_until_micros;
        if is_paused || self.health.check().is_err() {
            return None;
        }
        if let Some(flush) = work.partition_flushes.iter().find(|flush| flush.has_tasks()) {
            return Some(BackgroundJob::AssistFlush(flush.clone()));
        }
        let job = self.pick_memory_compaction(work).or_else(|| self.pick_flush(work));
        let job = job.or_else(|| self.pick_compaction(work));
        let job =
            job.or_else(|| self.pick_view_rebuild(work)).or_else(|| self.pick_garbage_collection(work))?;
        match &job {
            BackgroundJob::Flush { tree, target } => {
                work.flushing.insert(tree.id);
                if *target == FlushTarget::Partitions {
                    work.flushing_partitions.insert(tree.id);
                }
            }
            BackgroundJob::AssistFlush(_) => {}
            BackgroundJob::RebuildViews(tree) => {
                work.views_due.remove(&tree.id);
                work.running_rebuilds += 1;
            }
            BackgroundJob::CollectGarbage(tree) => {
                work.garbage_due.remove(&tree.id);
                work.flushing.insert(tree.id);
            }
            BackgroundJob::CompactMemory(tree) => _ = work.flushing.insert(tree.id),
            BackgroundJob::Compact(tree, plan) => {
                work.busy_files.entry(tree.id).or_default().extend(plan.busy_files());
                *work.running_compactions.entry(tree.id).or_insert(0) += 1;
            }
        }
        Some(job)
    }

    /// A flush of the tree whose full memtables need the oldest log segment, among those whose flush need not wait for
    /// a compaction. Not the tree with the most memtables: if writes to one tree are faster than its flushes, other
    /// trees would starve and the log would grow without bound.
    fn pick_flush(&self, work: &WorkState) -> Option<BackgroundJob> {
        let trees = self.trees.load();
        let mut waiting: Vec<_> = trees
            .values()
            .filter(|tree| !work.flushing.contains(&tree.id))
            .map(|tree| (self.flushes_due(tree), tree))
            .filter(|(count, _)| *count > 0)
            .collect();
        waiting.sort_by_key(|(count, tree)| (tree.oldest_full_log(), std::cmp::Reverse(*count), tree.id));
        waiting.into_iter().find_map(|(count, tree)| {
            let target = self.flush_target(work, tree, count)?;
            Some(BackgroundJob::Flush { tree: tree.clone(), target })
        })
    }

    /// The target of the next flush of `tree`. `None` while a flush into partitions should wait for a compaction that
    /// empties the levels above the partitions.
    fn flush_target(&self, work: &WorkState, tree: &Arc<Tree>, waiting: usize) -> Option<FlushTarget> {
        let target = tree.flush_target();
        let is_excluded = work.reserved.contains(&tree.id) || tree.unreadable.get().is_some();
        if target == FlushTarget::FirstLevel || is_excluded {
            return Some(FlushTarget::FirstLevel);
        }
        let is_alone = !work.running_compactions.contains_key(&tree.id);
        let state = tree.state_guard();
        let is_clear = state.version.runs().first().is_none_or(|run| run.level() == LAST_LEVEL);
        match is_alone && is_clear {
            true => Some(target),
            // No other work of the tree runs, and level 0 has many runs: writers would wait for ever.
            false if waiting >= self.options.max_immutable_memtables.max(1) => Some(FlushTarget::FirstLevel),
            false => None,
        }
    }

    /// Number of full memtables of `tree` that are due for a flush. A flush into partitions takes several together.
    pub(in crate::store) fn flushes_due(&self, tree: &Tree) -> usize {
        let state = tree.state_guard();
        if tree.flush_all.load(Ordering::Acquire) {
            return state.immutables.len();
        }
        let max = self.options.max_immutable_memtables.max(1);
        let together = match tree.flush_target() {
            FlushTarget::FirstLevel => 1,
            FlushTarget::Partitions => self.options.partition_memtables.clamp(1, max),
        };
        let waiting = state.pending_flushes();
        if waiting < together { 0 } else { waiting }
    }

    /// True if a memtable is due for a flush, whether the flush can begin or not.
    fn has_flushes_due(&self) -> bool {
        self.trees.load().values().any(|tree| self.flushes_due(tree) > 0)
    }

    /// The most urgent compaction of all trees.
    fn pick_compaction(&self, work: &WorkState) -> Option<BackgroundJob> {
        let none = BTreeSet::new();
        let trees = self.trees.load();
        let mut best: Option<(f64, BackgroundJob)> = None;
        let is_free = |tree: &&Arc<Tree>| {
            !work.reserved.contains(&tree.id)
                && !work.flushing_partitions.contains(&tree.id)
                && tree.backend().is_lsm()
                && tree.unreadable.get().is_none()
        };
        for tree in trees.values().filter(is_free) {
            let state = tree.state_guard();
            let shape = VersionShape::of(&state.version);
            let busy = work.busy_files.get(&tree.id).unwrap_or(&none);
            let policy = tree.compaction_policy(self.options.partition_tables);
            if let Some(plan) = policy.pick(&shape, busy)
                && best.as_ref().is_none_or(|(score, _)| plan.score > *score)
            {
                best = Some((plan.score, BackgroundJob::Compact(tree.clone(), plan)));
            }
        }
        best.map(|(_, job)| job)
    }

    /// Runs one job and records its outcome. A panic poisons the store.
    fn run_job(&self, job: BackgroundJob) {
        let outcome = catch_unwind(AssertUnwindSafe(|| match &job {
            BackgroundJob::Flush { tree, target } => self.flush(tree, *target),
            BackgroundJob::CompactMemory(tree) => self.compact_memory(tree),
            // The thread that owns the flush receives the error of a task.
            BackgroundJob::AssistFlush(flush) => {
                flush.run_tasks(self);
                Ok(())
            }
            BackgroundJob::Compact(tree, plan) => self.compact_tree(tree, plan),
            BackgroundJob::RebuildViews(tree) => self.rebuild_views(tree),
            BackgroundJob::CollectGarbage(tree) => self.collect_external_garbage(tree),
        }));
        let result = outcome.unwrap_or_else(|panic| {
            let error = Error::panicked("a background job", &*panic);
            self.health.poison(&error);
            Err(error)
        });
        // Work is retried at once after the reserve was released.
        let (has_succeeded, has_released) = (result.is_ok(), self.reserve.release_for(&result));
        // Derived trees continue without merges. The layer above finds the error and has the tree emptied.
        let is_tolerated = result.as_ref().err().is_some_and(|error| match &job {
            BackgroundJob::Compact(tree, _) | BackgroundJob::Flush { tree, .. } => {
                note_unreadable(self.options.reset_tree, tree, error)
            }
            _ => false,
        });
        let mut work = self.work.lock();
        match &job {
            BackgroundJob::Flush { tree, .. } => {
                work.flushing.remove(&tree.id);
                work.flushing_partitions.remove(&tree.id);
            }
            BackgroundJob::AssistFlush(_) => return,
            BackgroundJob::RebuildViews(_) => work.running_rebuilds -= 1,
            BackgroundJob::CollectGarbage(tree) | BackgroundJob::CompactMemory(tree) => {
                _ = work.flushing.remove(&tree.id)
            }
            BackgroundJob::Compact(tree, plan) => work.end_compaction(tree.id, plan),
        }
        match result {
            // A compaction in memory does not prove that a full disk has space again.
            Ok(()) if matches!(job, BackgroundJob::CompactMemory(_)) => {}
            Ok(()) => work.failure = None,
            Err(_) if has_released => {}
            Err(error) if error.kind() == ErrorKind::Closed => {}
            Err(_) if is_tolerated => {}
            Err(error) => {
                work.paused_until_micros = self.runtime.now_micros() + RETRY_AFTER.as_micros() as u64;
                work.failure = Some(error);
            }
        }
        drop(work);
        self.remove_spent_tombstones();
        self.remove_obsolete_files();
        if has_succeeded {
            self.reserve.allocate(&self.health);
        }
        self.wake_workers();
    }

    /// Without background threads, the caller does the work, even right after a failure: no other thread retries.
    fn work_without_threads(&self) {
        if self.options.background_threads == 0 {
            self.work.lock().paused_until_micros = 0;
            self.run_pending_work();
        }
    }

    /// Waits until no work is pending or running.
    fn drain_work(&self) -> Result<()> {
        self.work.lock().waiting += 1;
        self.work.notify();
        let drained = self.wait_until_idle();
        self.work.lock().waiting -= 1;
        // States that concurrent work read may have kept files alive.
        self.remove_obsolete_files();
        drained
    }

    fn wait_until_idle(&self) -> Result<()> {
        self.work_without_threads();
        let mut work = self.work.lock();
        loop {
            self.health.check()?;
            if let Some(error) = work.take_failure() {
                return Err(error);
            }
            self.add_failed_views(&mut work);
            // A waiting caller demands the views.
            for tree in work.views_due.keys().filter_map(|tree| self.tree(*tree).ok()) {
                tree.state_guard().views.demand();
            }
            let waiting = self.has_flushes_due()
                || self.pick_memory_compaction(&work).is_some()
                || self.pick_compaction(&work).is_some()
                || self.pick_view_rebuild(&mut work).is_some()
                || self.pick_garbage_collection(&mut work).is_some();
            if work.is_idle() && !waiting {
                return Ok(());
            }
            self.work.wait_for(&mut work, RETRY_AFTER);
        }
    }

    /// Waits until no full memtable is left.
    fn wait_for_flushes(&self) -> Result<()> {
        self.work_without_threads();
        let mut work = self.work.lock();
        loop {
            self.health.check()?;
            if let Some(error) = work.take_failure() {
                return Err(error);
            }
            if work.flushing.is_empty() && !self.has_flushes_due() {
                return Ok(());
            }
            self.work.wait_for(&mut work, RETRY_AFTER);
        }
    }

    /// Excludes automatic compactions of `tree` while `job` runs.
    pub(in crate::store) fn with_reserved<T>(
        &self,
        tree: TreeId,
        job: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let mut work = self.work.lock();
        while !work.reserved.insert(tree) {
            self.work.wait(&mut work);
        }
        while work.running_compactions.contains_key(&tree) || work.flushing_partitions.contains(&tree) {
            self.work.wait(&mut work);
        }
        drop(work);
        let _reserved = TreeReservation { store: self, tree };
        job()
    }
}

/// Exclusive access to the compactions of a tree, until dropped. A panic meanwhile poisons the store, as in a
/// background job.
struct TreeReservation<'a> {
    store: &'a StoreInner,
    tree: TreeId,
}

impl Drop for TreeReservation<'_> {
    fn drop(&mut self) {
        self.store.work.lock().reserved.remove(&self.tree);
        if std::thread::panicking() {
            self.store.health.poison(&Error::internal("a manual compaction panicked"));
        }
        self.store.wake_workers();
    }
}

impl Store {
    /// Starts background work of a store that was opened with [`start_paused`](crate::StoreOptions::start_paused).
    pub fn start(&self) {
        let inner = &*self.inner;
        inner.work.lock().paused = false;
        if inner.options.background_threads == 0 && !inner.options.read_only {
            inner.run_pending_work();
        }
        inner.wake_workers();
    }

    /// Writes all memtables to sstables and waits until it is done.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, `Poisoned`, `ReadOnly`.
    pub fn flush(&self) -> Result<()> {
        let inner = &*self.inner;
        inner.health.check()?;
        inner.rotate_all()?;
        inner.wait_for_flushes()
    }

    /// Flushes `tree` and merges all its sorted runs into one, without the versions that no view needs. Cost: reads and
    /// writes the whole tree.
    ///
    /// # Errors
    /// As [`flush`](Self::flush); `NotFound`.
    pub fn compact(&self, tree: TreeId) -> Result<()> {
        self.flush()?;
        let inner = &*self.inner;
        let tree = inner.tree(tree)?;
        inner.with_reserved(tree.id, || {
            // Checked only now: an external tree may have been set during the wait.
            if !tree.backend().is_lsm() {
                return Ok(());
            }
            let state = tree.state();
            let shape = VersionShape::of(&state.version);
            match tree.compaction_policy(inner.options.partition_tables).full(&shape) {
                Some(plan) => inner.reserve.with(|| inner.compact_tree(&tree, &plan)),
                None => Ok(()),
            }
        })?;
        inner.remove_spent_tombstones();
        inner.remove_obsolete_files();
        inner.reserve.allocate(&inner.health);
        Ok(())
    }

    /// Waits until all due flushes and compactions are done, and external trees have collected their garbage as in idle
    /// time.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn wait_until_settled(&self) -> Result<()> {
        self.inner.health.check()?;
        self.inner.drain_work()
    }
}

impl std::ops::Drop for Store {
    fn drop(&mut self) {
        // Waiting callers received the errors; recovery replays the log.
        let _ = self.close_files();
    }
}

impl Store {
    /// Syncs the log, stops the background threads and marks the log as closed, so that the next opening can
    /// distinguish damage in the last record from a torn write. Memtables are not flushed: the log contains them.
    /// External trees write a checkpoint; if it fails, the log contains their writes too.
    ///
    /// # Errors
    /// `Io` or `Poisoned`: then the next opening recovers as after a crash. If only an external tree failed, it replays
    /// the log.
    pub fn close(mut self) -> Result<()> {
        self.close_files()
    }

    fn close_files(&mut self) -> Result<()> {
        self.workers.stop();
        let inner = &*self.inner;
        if inner.options.read_only {
            return Ok(());
        }
        if !inner.log.lock().is_open() {
            return Ok(());
        }
        let checkpointed = inner.checkpoint_before_close();
        let mut log = inner.log.lock();
        inner.health.check()?;
        inner.log.sync_and_check(&mut log, &inner.health)?;
        let end = log.close();
        inner.versions.lock().close(end).and(checkpointed)
    }
}

impl StoreInner {
    fn rotate_all(&self) -> Result<()> {
        let mut log = self.log.lock();
        if self.trees.load().values().any(|tree| tree.state_guard().active.first_log().is_some()) {
            self.rotate(&mut log, crate::store::commit::log::Rotate::All)?;
        }
        for tree in self.trees.load().values() {
            // Retained entries and memtables that wait for more are flushed too, and nothing is retained. Set only now:
            // a flush that began before the last rotation does not include that memtable.
            tree.flush_all.store(!tree.state_guard().immutables.is_empty(), Ordering::Release);
        }
        self.wake_workers();
        Ok(())
    }

    /// True if `tree` was dropped or the store is closing: work on it should end.
    pub(in crate::store) fn is_abandoned(&self, tree: &Tree) -> bool {
        tree.dropped.load(Ordering::Acquire) || self.is_stopping()
    }
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
