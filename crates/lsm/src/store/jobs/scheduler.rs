//! The scheduler of background work.
//!
//! Order: compactions in memory, then flushes, then compactions on disk. Flushes free memory and log; a compaction in
//! memory may spare a flush. Several trees may be flushed at once, but one tree by one thread only, so that its runs
//! are added in the order of their age. A flush into partitions has tasks that idle threads share. Compactions of one
//! tree run concurrently if their inputs are disjoint, but not during a flush into its partitions.
//!
//! Without background threads, the thread that causes the work does it, in the same order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bolide_base::{Error, ErrorKind, Result, TreeId};

use super::{PICKERS, clean_up};
use crate::store::jobs::job::{BackgroundJob, JobReport, PickedJob};
use crate::store::jobs::obsolete_files::remove_obsolete_files;
use crate::store::jobs::sorted_view::demand_outdated_views;
use crate::store::jobs::work::WorkState;
use crate::store::verify::note_unreadable;
use crate::store::{Store, StoreInner};

/// Delay before background work resumes after a transient failure.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Interval of the checks for demanded views and for idle writes.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(50);

impl StoreInner {
    pub(in crate::store) fn work_loop(&self) {
        let mut work = self.work.lock();
        while !work.stopping {
            match self.pick_job(&mut work) {
                Some(job) => {
                    drop(work);
                    self.run_job(&*job);
                    work = self.work.lock();
                }
                None => {
                    let interval = self.options.sync_interval;
                    let timeout = if work.waits_for_idle_writes() {
                        interval.min(IDLE_CHECK_INTERVAL)
                    } else {
                        interval
                    };
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
                Some(job) => self.run_job(&*job),
                None => return,
            }
        }
    }

    /// The most urgent job that is due.
    fn pick_job(&self, work: &mut WorkState) -> PickedJob<'_> {
        let is_paused = work.paused || self.runtime.now_micros() < work.paused_until_micros;
        if is_paused || self.health.check().is_err() {
            return None;
        }
        let job = PICKERS.iter().find_map(|pick| pick(self, work))?;
        job.begin(work);
        Some(job)
    }

    /// Runs one job and records its outcome. A panic poisons the store.
    fn run_job(&self, job: &dyn BackgroundJob) {
        let outcome = catch_unwind(AssertUnwindSafe(|| job.run()));
        let result = outcome.unwrap_or_else(|panic| {
            let error = Error::panicked("a background job", &*panic);
            self.health.poison(&error);
            Err(error)
        });
        // Work is retried at once after the reserve was released.
        let (has_succeeded, has_released) = (result.is_ok(), self.reserve.release_for(&result));
        // Derived trees continue without merges. The layer above finds the error and has the tree emptied.
        let is_tolerated = result
            .as_ref()
            .err()
            .zip(job.merged_tree())
            .is_some_and(|(error, tree)| note_unreadable(self.options.reset_tree, tree, error));
        let mut work = self.work.lock();
        job.end(&mut work);
        match result {
            _ if job.report() == JobReport::Nothing => return,
            Ok(()) if job.report() == JobReport::Failure => {}
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
        clean_up(self);
        if has_succeeded {
            self.reserve.allocate(&self.health);
        }
        self.backlog().changed();
    }

    /// Without background threads, the caller does the work, even right after a failure: no other thread retries.
    fn work_without_threads(&self) {
        if self.options.background_threads == 0 {
            self.work.lock().paused_until_micros = 0;
            self.run_pending_work();
        }
    }

    /// Waits until no work is pending or running.
    pub(super) fn drain_work(&self) -> Result<()> {
        self.work.lock().waiting += 1;
        self.work.notify();
        let drained = self.wait_until_idle();
        self.work.lock().waiting -= 1;
        // States that concurrent work read may have kept files alive.
        remove_obsolete_files(&self.files, &self.health, &self.log);
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
            demand_outdated_views(&self.files, &self.trees, &mut work);
            let waiting =
                self.has_flushes_due() || PICKERS.iter().any(|pick| pick(self, &mut work).is_some());
            if work.is_idle() && !waiting {
                return Ok(());
            }
            self.work.wait_for(&mut work, RETRY_AFTER);
        }
    }

    /// Waits until no full memtable is left.
    pub(super) fn wait_for_flushes(&self) -> Result<()> {
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

    /// True if a memtable is due for a flush, whether the flush can begin or not.
    fn has_flushes_due(&self) -> bool {
        self.trees.load().values().any(|tree| tree.flushes_due(&self.options) > 0)
    }

    /// Excludes automatic compactions of `tree` while `job` runs.
    pub(in crate::store) fn with_reserved<T>(
        &self,
        tree: TreeId,
        job: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let mut work = self.work.lock();
        work.reserving += 1;
        while !work.reserved.insert(tree) {
            self.work.wait(&mut work);
        }
        while work.running_compactions.contains_key(&tree) || work.flushing_partitions.contains(&tree) {
            self.work.wait(&mut work);
        }
        work.reserving -= 1;
        drop(work);
        let _reserved = TreeReservation { store: self, tree, was_empty: self.has_no_work(tree) };
        job()
    }

    /// True if neither a flush nor a compaction of `tree` can be due: it has no full memtable and no sstable.
    fn has_no_work(&self, tree: TreeId) -> bool {
        let trees = self.trees.load();
        let state = trees.get(&tree).map(|tree| tree.state_guard());
        state.is_none_or(|state| state.immutables.is_empty() && state.version.runs().is_empty())
    }
}

/// Exclusive access to the compactions of a tree, until dropped. A panic meanwhile poisons the store, as in a
/// background job.
struct TreeReservation<'a> {
    store: &'a StoreInner,
    tree: TreeId,
    /// Whether the tree could have no work at the beginning.
    was_empty: bool,
}

impl Drop for TreeReservation<'_> {
    fn drop(&mut self) {
        let is_panicking = std::thread::panicking();
        if is_panicking {
            self.store.health.poison(&Error::internal("a manual compaction panicked"));
        }
        let mut work = self.store.work.lock();
        work.reserved.remove(&self.tree);
        // A wake-up visits all trees, which costs more than a new tree. The end of a job is one.
        let wakes_later = work.flushing.contains(&self.tree);
        let is_awaited = work.reserving > 0 || is_panicking;
        drop(work);
        if is_awaited || !(wakes_later || self.was_empty && self.store.has_no_work(self.tree)) {
            self.store.backlog().changed();
        }
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
        inner.backlog().changed();
    }
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
