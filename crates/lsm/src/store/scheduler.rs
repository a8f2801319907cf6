//! What work waits, who does it, and when it is done.
//!
//! Flushes go before compactions: they free memory and log; compactions in memory go before flushes, which they may spare. Several trees may be flushed at once, one
//! tree by one thread only, so that its runs are added in the order of their age; a flush into partitions has
//! tasks that idle threads share. Compactions of one tree run side by side where their inputs do not touch, and not
//! beside a flush into its partitions.
//!
//! With no background threads the same work is done by whoever caused it, in a fixed order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bolide_base::{Error, ErrorKind, Result, TreeId};

use super::idle::IdleDetector;
use super::partition_flush::Round;
use super::tree::Tree;
use super::{Store, StoreInner, poison};
use crate::compaction::{CompactionPlan, VersionShape, policy_for};
use crate::options::Layout;
use crate::version::LAST_LEVEL;

/// After a background failure that may pass, work rests for so long.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// How often it is looked whether views are wanted, and writes pause.
const LOOK_FOR_PAUSES: Duration = Duration::from_millis(50);

/// Background work in progress.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) stopping: bool,
    /// Until the store is started nothing is picked.
    paused: bool,
    /// Trees that are flushed or compacted in memory, and kept trees that are tidied.
    pub(super) flushing: BTreeSet<TreeId>,
    /// Those of them whose flush goes into partitions.
    flushing_partitions: BTreeSet<TreeId>,
    /// Flushes into partitions with tasks for whoever has time.
    pub(super) rounds: Vec<Arc<Round>>,
    /// Files that running compactions read, by tree.
    busy_files: BTreeMap<TreeId, BTreeSet<u64>>,
    running_compactions: BTreeMap<TreeId, usize>,
    /// Trees that somebody compacts by hand.
    reserved: BTreeSet<TreeId>,
    /// The last failure that did not poison the store, until somebody was told.
    failure: Option<Error>,
    /// Trees whose sorted views are behind although nothing is flushed.
    pub(super) views_due: BTreeMap<TreeId, IdleDetector>,
    /// How many of them are renewed now.
    running_renewals: usize,
    /// Kept trees with garbage that is collected when writes pause.
    pub(super) untidy: BTreeMap<TreeId, IdleDetector>,
    /// Callers that wait until nothing is left to be done.
    pub(super) waiting: usize,
    /// How many REMIX files had turned out damaged when that was looked at last.
    pub(super) view_failures_seen: u64,
    /// Work rests until then after a failure.
    rests_until_micros: u64,
}

impl Work {
    pub(super) fn new(paused: bool) -> Self {
        Self { paused, ..Self::default() }
    }

    pub(super) fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    /// Notes trees whose sorted views are behind.
    pub(super) fn views_are_due(&mut self, trees: impl IntoIterator<Item = TreeId>) {
        for tree in trees {
            self.views_due.entry(tree).or_default();
        }
    }

    fn is_idle(&self) -> bool {
        self.flushing.is_empty() && self.running_compactions.is_empty() && self.running_renewals == 0
    }
}

impl fmt::Debug for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Round").finish_non_exhaustive()
    }
}

/// One piece of work.
pub(super) enum Job {
    Flush { tree: Arc<Tree>, into_partitions: bool },
    CompactMemory(Arc<Tree>),
    Help(Arc<Round>),
    Compact(Arc<Tree>, CompactionPlan),
    Renew(Arc<Tree>),
    Tidy(Arc<Tree>),
}

impl StoreInner {
    /// Tells the threads that there may be something to do.
    pub(super) fn work_arrived(&self) {
        self.update_pressure();
        // The lock orders this signal after the look of a thread that is about to sleep.
        drop(self.work.lock());
        self.work_signal.notify_all();
    }

    /// True once the store is closing: long work should end early.
    pub(super) fn is_stopping(&self) -> bool {
        self.work.lock().stopping || self.poisoned.get().is_some()
    }

    pub(super) fn work_loop(&self) {
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
                    let watches = !work.views_due.is_empty() || !work.untidy.is_empty();
                    let most = if watches { interval.min(LOOK_FOR_PAUSES) } else { interval };
                    self.work_signal.wait_for(&mut work, most);
                    drop(work);
                    self.sync_overdue_log();
                    work = self.work.lock();
                }
            }
        }
    }

    /// Does all work that waits, in the calling thread.
    pub(super) fn run_pending_work(&self) {
        loop {
            let job = self.pick_job(&mut self.work.lock());
            match job {
                Some(job) => self.run_job(job),
                None => return,
            }
        }
    }

    fn pick_job(&self, work: &mut Work) -> Option<Job> {
        let rests = work.paused || self.runtime.now_micros() < work.rests_until_micros;
        if rests || self.check_writable().is_err() {
            return None;
        }
        if let Some(round) = work.rounds.iter().find(|round| round.has_tasks()) {
            return Some(Job::Help(round.clone()));
        }
        let job = self.pick_memory_compaction(work).or_else(|| self.pick_flush(work));
        let job = job.or_else(|| self.pick_compaction(work));
        let job = job.or_else(|| self.pick_renewal(work)).or_else(|| self.pick_tidying(work))?;
        match &job {
            Job::Flush { tree, into_partitions } => {
                work.flushing.insert(tree.id);
                if *into_partitions {
                    work.flushing_partitions.insert(tree.id);
                }
            }
            Job::Help(_) => {}
            Job::Renew(tree) => {
                work.views_due.remove(&tree.id);
                work.running_renewals += 1;
            }
            Job::Tidy(tree) => {
                work.untidy.remove(&tree.id);
                work.flushing.insert(tree.id);
            }
            Job::CompactMemory(tree) => _ = work.flushing.insert(tree.id),
            Job::Compact(tree, plan) => {
                work.busy_files.entry(tree.id).or_default().extend(plan.busy_files());
                *work.running_compactions.entry(tree.id).or_insert(0) += 1;
            }
        }
        Some(job)
    }

    /// The tree whose full memtables hold back the oldest segment of the log, of those whose flush need not wait for a
    /// compaction. Not the one with the most: where writes come faster than one tree is flushed, the others would never have
    /// their turn, and the log would grow without end.
    fn pick_flush(&self, work: &Work) -> Option<Job> {
        let trees = self.trees.load();
        let mut waiting: Vec<_> = trees
            .values()
            .filter(|tree| !work.flushing.contains(&tree.id))
            .map(|tree| (self.flushes_due(tree), tree))
            .filter(|(count, _)| *count > 0)
            .collect();
        waiting.sort_by_key(|(count, tree)| (tree.oldest_full_log(), std::cmp::Reverse(*count), tree.id));
        waiting.into_iter().find_map(|(count, tree)| {
            let into_partitions = self.goes_into_partitions(work, tree, count)?;
            Some(Job::Flush { tree: tree.clone(), into_partitions })
        })
    }

    /// Whether the full memtables of `tree` go into partitions, or to level 0; `None` while they had better wait for a
    /// compaction after which they can go into partitions.
    fn goes_into_partitions(&self, work: &Work, tree: &Arc<Tree>, waiting: usize) -> Option<bool> {
        if tree.options().layout != Layout::Partitioned || tree.external_tree.get().is_some() {
            return Some(false);
        }
        if work.reserved.contains(&tree.id) || tree.unreadable.get().is_some() {
            return Some(false);
        }
        let is_alone = !work.running_compactions.contains_key(&tree.id);
        let state = tree.state_guard();
        let is_clear = state.version.runs().first().is_none_or(|run| run.level() == LAST_LEVEL);
        match is_alone && is_clear {
            true => Some(true),
            // Nobody else compacts, and by now the runs of level 0 are many: writers would wait for good.
            false if waiting >= self.options.max_immutable_memtables.max(1) => Some(false),
            false => None,
        }
    }

    /// Full memtables of `tree` that are to be flushed now. Into partitions several go together.
    pub(super) fn flushes_due(&self, tree: &Tree) -> usize {
        let state = tree.state_guard();
        if tree.writes_all.load(Ordering::Acquire) {
            return state.immutables.len();
        }
        let goes_together = tree.options().layout == Layout::Partitioned && tree.external_tree.get().is_none();
        let most = self.options.max_immutable_memtables.max(1);
        let together = if goes_together { self.options.partition_memtables.clamp(1, most) } else { 1 };
        let waiting = state.waiting();
        if waiting < together { 0 } else { waiting }
    }

    /// True if a memtable waits to be flushed, whether that can begin or not.
    fn has_flushes_due(&self) -> bool {
        self.trees.load().values().any(|tree| self.flushes_due(tree) > 0)
    }

    /// The most urgent compaction of all trees.
    fn pick_compaction(&self, work: &Work) -> Option<Job> {
        let none = BTreeSet::new();
        let trees = self.trees.load();
        let mut best: Option<(f64, Job)> = None;
        let is_free = |tree: &&Arc<Tree>| {
            !work.reserved.contains(&tree.id)
                && !work.flushing_partitions.contains(&tree.id)
                && tree.external_tree.get().is_none()
                && tree.unreadable.get().is_none()
        };
        for tree in trees.values().filter(is_free) {
            let state = tree.state_guard();
            let shape = VersionShape::of(&state.version);
            let busy = work.busy_files.get(&tree.id).unwrap_or(&none);
            let policy = policy_for(&tree.options(), self.options.partition_tables);
            if let Some(plan) = policy.pick(&shape, busy)
                && best.as_ref().is_none_or(|(score, _)| plan.score > *score)
            {
                best = Some((plan.score, Job::Compact(tree.clone(), plan)));
            }
        }
        best.map(|(_, job)| job)
    }

    /// Runs one piece of work and notes how it went. A panic poisons the store.
    fn run_job(&self, job: Job) {
        let outcome = catch_unwind(AssertUnwindSafe(|| match &job {
            Job::Flush { tree, into_partitions } => self.flush(tree, *into_partitions),
            Job::CompactMemory(tree) => self.compact_memory(tree),
            // What goes wrong with a task is told to the thread whose flush it is.
            Job::Help(round) => {
                round.work(self);
                Ok(())
            }
            Job::Compact(tree, plan) => self.compact_tree(tree, plan),
            Job::Renew(tree) => self.renew_views(tree),
            Job::Tidy(tree) => self.tidy_external(tree),
        }));
        let result = outcome.unwrap_or_else(|panic| {
            let error = Error::panicked("a background job", &*panic);
            poison(self, &error);
            Err(error)
        });
        // With the reserve released the work is tried again at once.
        let (has_worked, has_released) = (result.is_ok(), self.releases_reserve_for(&result));
        // Derived trees go on without merges. The layer above finds the error and has the tree emptied.
        let is_set_aside = result.as_ref().err().is_some_and(|error| self.note_unreadable(&job, error));
        let mut work = self.work.lock();
        match &job {
            Job::Flush { tree, .. } => {
                work.flushing.remove(&tree.id);
                work.flushing_partitions.remove(&tree.id);
            }
            Job::Help(_) => return,
            Job::Renew(_) => work.running_renewals -= 1,
            Job::Tidy(tree) | Job::CompactMemory(tree) => _ = work.flushing.remove(&tree.id),
            Job::Compact(tree, plan) => work.forget_compaction(tree.id, plan),
        }
        match result {
            // That memory was compacted says nothing of a disk that was full.
            Ok(()) if matches!(job, Job::CompactMemory(_)) => {}
            Ok(()) => work.failure = None,
            Err(_) if has_released => {}
            Err(error) if error.kind() == ErrorKind::Closed => {}
            Err(_) if is_set_aside => {}
            Err(error) => {
                work.rests_until_micros = self.runtime.now_micros() + RETRY_AFTER.as_micros() as u64;
                work.failure = Some(error);
            }
        }
        drop(work);
        self.forget_spent_ranges();
        self.remove_obsolete_files();
        if has_worked {
            self.take_reserve();
        }
        self.work_arrived();
    }

    /// Where there are no threads to wait for, whoever asks for the work does it, also if it failed a
    /// moment ago: nobody else would ever try again.
    fn work_without_threads(&self) {
        if self.options.background_threads == 0 {
            self.work.lock().rests_until_micros = 0;
            self.run_pending_work();
        }
    }

    /// Waits until nothing waits to be done or is being done.
    fn settle(&self) -> Result<()> {
        self.work.lock().waiting += 1;
        self.work_signal.notify_all();
        let settled = self.wait_until_idle();
        self.work.lock().waiting -= 1;
        // What was looked at while others worked may have kept files from going.
        self.remove_obsolete_files();
        settled
    }

    fn wait_until_idle(&self) -> Result<()> {
        self.work_without_threads();
        let mut work = self.work.lock();
        loop {
            self.check_writable()?;
            if let Some(error) = work.take_failure() {
                return Err(error);
            }
            self.find_failed_views(&mut work);
            // Whoever waits wants the views, too.
            for tree in work.views_due.keys().filter_map(|tree| self.tree(*tree).ok()) {
                tree.state_guard().views.want();
            }
            let waiting = self.has_flushes_due()
                || self.pick_memory_compaction(&work).is_some()
                || self.pick_compaction(&work).is_some()
                || self.pick_renewal(&mut work).is_some()
                || self.pick_tidying(&mut work).is_some();
            if work.is_idle() && !waiting {
                return Ok(());
            }
            self.work_signal.wait_for(&mut work, RETRY_AFTER);
        }
    }

    /// Waits until no full memtable is left.
    fn wait_for_flushes(&self) -> Result<()> {
        self.work_without_threads();
        let mut work = self.work.lock();
        loop {
            self.check_writable()?;
            if let Some(error) = work.take_failure() {
                return Err(error);
            }
            if work.flushing.is_empty() && !self.has_flushes_due() {
                return Ok(());
            }
            self.work_signal.wait_for(&mut work, RETRY_AFTER);
        }
    }

    /// Keeps automatic compactions away from `tree` while `job` runs.
    pub(super) fn with_reserved<T>(&self, tree: TreeId, job: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut work = self.work.lock();
        while !work.reserved.insert(tree) {
            self.work_signal.wait(&mut work);
        }
        while work.running_compactions.contains_key(&tree) || work.flushing_partitions.contains(&tree) {
            self.work_signal.wait(&mut work);
        }
        drop(work);
        let _reserved = Reserved { store: self, tree };
        job()
    }
}

/// A tree that is compacted by hand, until this is dropped. A panic meanwhile poisons the store, as one of a background job.
struct Reserved<'a> {
    store: &'a StoreInner,
    tree: TreeId,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.store.work.lock().reserved.remove(&self.tree);
        if std::thread::panicking() {
            poison(self.store, &Error::internal("a compaction by hand panicked"));
        }
        self.store.work_arrived();
    }
}

impl Work {
    /// Notes that a compaction of `tree` reads `file` alone, unless another one does, a flush goes into partitions, or the tree is
    /// compacted by hand: then false.
    pub(super) fn reserve_file(&mut self, tree: TreeId, file: u64) -> bool {
        let is_free = !self.reserved.contains(&tree)
            && !self.flushing_partitions.contains(&tree)
            && self.busy_files.get(&tree).is_none_or(|busy| !busy.contains(&file));
        if is_free {
            self.busy_files.entry(tree).or_default().insert(file);
            *self.running_compactions.entry(tree).or_insert(0) += 1;
        }
        is_free
    }

    pub(super) fn forget_compaction(&mut self, tree: TreeId, plan: &CompactionPlan) {
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

impl Store {
    /// Lets background work begin where the store was opened with
    /// [`start_paused`](crate::StoreOptions::start_paused).
    pub fn start(&self) {
        let inner = &*self.inner;
        inner.work.lock().paused = false;
        if inner.options.background_threads == 0 && !inner.options.read_only {
            inner.run_pending_work();
        }
        inner.work_arrived();
    }

    /// Writes all memtables to sstables and waits for it.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, `Poisoned`, `ReadOnly`.
    pub fn flush(&self) -> Result<()> {
        let inner = &*self.inner;
        inner.check_writable()?;
        inner.rotate_all()?;
        inner.wait_for_flushes()
    }

    /// Flushes `tree` and merges all its sorted runs into one, dropping everything that no view needs.
    /// Cost: reads and writes the whole tree.
    ///
    /// # Errors
    /// As [`flush`](Self::flush); `NotFound`.
    pub fn compact(&self, tree: TreeId) -> Result<()> {
        self.flush()?;
        let inner = &*self.inner;
        let tree = inner.tree(tree)?;
        inner.with_reserved(tree.id, || {
            // Only now: a keeper may have been set while this waited.
            if tree.external_tree.get().is_some() {
                return Ok(());
            }
            let state = tree.state();
            let shape = VersionShape::of(&state.version);
            match policy_for(&tree.options(), inner.options.partition_tables).full(&shape) {
                Some(plan) => inner.with_reserve(|| inner.compact_tree(&tree, &plan)),
                None => Ok(()),
            }
        })?;
        inner.forget_spent_ranges();
        inner.remove_obsolete_files();
        inner.take_reserve();
        Ok(())
    }

    /// Waits until all flushes and compactions that are due were done, and the garbage of keepers was collected as in a
    /// pause of the writes.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn wait_until_settled(&self) -> Result<()> {
        self.inner.check_writable()?;
        self.inner.settle()
    }
}

impl std::ops::Drop for Store {
    fn drop(&mut self) {
        // Errors were reported to whoever waited for the data; recovery replays the log.
        let _ = self.close_files();
    }
}

impl Store {
    /// Syncs the log, stops the background threads and marks the log as closed, so that damage in its
    /// last record can be told from a torn write at the next opening. Memtables are not flushed: the
    /// log has them. Keepers write down what changed; where they fail, the log has that too.
    ///
    /// # Errors
    /// `Io` or `Poisoned`: then the next opening recovers as after a crash, or, where a keeper failed, from the log.
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
        let cut = inner.cut_before_closing();
        let mut log = inner.log.lock();
        inner.check_writable()?;
        inner.sync_and_check(&mut log)?;
        let end = log.close();
        inner.versions.lock().close(end).and(cut)
    }
}

impl StoreInner {
    fn rotate_all(&self) -> Result<()> {
        let mut log = self.log.lock();
        if self.trees.load().values().any(|tree| tree.state_guard().active.first_log().is_some()) {
            self.rotate(&mut log, super::log::Rotate::Everything)?;
        }
        for tree in self.trees.load().values() {
            // Also what was kept back or waits for others is to be flushed, and nothing kept back. Only now: a flush that began
            // before the last memtable was full does not have that.
            tree.writes_all.store(!tree.state_guard().immutables.is_empty(), Ordering::Release);
        }
        self.work_arrived();
        Ok(())
    }

    /// True if `tree` was dropped or the store is closing: work on it should end.
    pub(super) fn is_abandoned(&self, tree: &Tree) -> bool {
        tree.dropped.load(Ordering::Acquire) || self.is_stopping()
    }
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
