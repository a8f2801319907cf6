//! The pipeline of a commit: one sequence of steps for single puts, single batches and groups.
//!
//! ```text
//! admit      handle healthy, writer throttled, room in the memtables
//! prepare    sequence numbers, stages, space in external trees
//! append     one write to the log
//! apply      memtables, external trees
//! publish    sync as required, last sequence number visible
//! ```
//!
//! The lock of the log is held from the second half of *admit* to the end. [`CommitEnv`] has all that the steps need of
//! the store.

use std::sync::Arc;

use bolide_base::technique::Technique;
use bolide_base::{Error, ErrorKind, MAX_SEQUENCE, Result, SequenceNumber, TreeId};

use super::CommitState;
use super::log::{Log, LogState};
use super::pressure::Pressure;
use super::queue::{CommitQueue, CommitRequest};
use super::recent::RecentCommits;
use super::targets::ActiveBytes;
use super::writes::PendingWrites;
use crate::batch::{BatchReader, Operation, PlacedOperation, StoreBatch};
use crate::options::SyncMode;
use crate::store::health::Health;
use crate::store::read::read_view::ReadView;
use crate::store::read::snapshots::Snapshots;
use crate::store::reserve::Reserve;
use crate::store::stats::Counters;
use crate::store::tree::Tree;

/// Operations of a batch that are prefetched: the memory of more would leave the caches before it is read.
const MAX_PREFETCHED: usize = 256;

/// What a commit needs of the store. Calls are resolved at compile time.
pub(in crate::store) trait CommitEnv {
    /// The log, which is locked from the admission of a commit to its end.
    fn log(&self) -> &Log;

    /// Refuses writes after a failure.
    fn health(&self) -> &Health;

    /// Refuses writes of records on a full disk.
    fn reserve(&self) -> &Reserve;

    /// Receives the published sequence numbers.
    fn snapshots(&self) -> &Snapshots;

    /// Counts bytes.
    fn counters(&self) -> &Counters;

    /// Counts the memory of writable memtables.
    fn active_bytes(&self) -> &ActiveBytes;

    /// The tree `id`.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    fn tree(&self, id: TreeId) -> Result<Arc<Tree>>;

    /// An unregistered view of the state at `applied`, the number of the last applied write.
    fn view_before(&self, applied: SequenceNumber) -> ReadView;

    /// The record of recent commits.
    fn recent(&self) -> &RecentCommits;

    /// Slows writers down.
    fn pressure(&self) -> &Pressure;

    /// Wakes the background threads for a spill, and slows writers down if it is urgent.
    fn note_short_memory(&self);

    /// Starts a new log segment if the writable memtables have no room for `bytes` bytes.
    ///
    /// # Errors
    /// Those of the log and the manifest.
    fn make_room(&self, log: &mut LogState, bytes: usize) -> Result<()>;

    /// True if the writer does the background work that it causes.
    fn works_inline(&self) -> bool;

    /// Does all pending background work.
    fn work(&self);
}

/// Commits through an environment.
#[derive(Clone, Copy)]
pub(in crate::store) struct CommitPipeline<'e, E> {
    pub(super) env: &'e E,
    pub(super) queue: &'e CommitQueue,
}

impl<'e, E: CommitEnv> CommitPipeline<'e, E> {
    #[inline]
    pub(in crate::store) fn new(env: &'e E, queue: &'e CommitQueue) -> Self {
        Self { env, queue }
    }

    /// Assigns sequence numbers from `first` on to one request, runs its stage and seals its batch. Returns true if the
    /// log must be synced before the batch is applied.
    pub(super) fn prepare(
        &self,
        log: &mut LogState,
        first: SequenceNumber,
        request: &mut CommitRequest,
    ) -> Result<bool> {
        check_sequences(first, request.batch.sequence_count())?;
        request.batch.assign(first);
        if let Some(mut stage) = request.stage.take() {
            let before = request.batch.sequence_count();
            let view = self.env.view_before(log.applied);
            let state = CommitState { view: &view, recent: self.env.recent() };
            if let Err(error) = stage.check(&state, &request.batch) {
                stage.refused(std::mem::take(&mut request.batch));
                return Err(error);
            }
            stage.stage(&view, &mut request.batch)?;
            if request.batch.sequence_count() != before {
                return Err(Error::internal("a staged batch took further sequence numbers"));
            }
        }
        let (mut syncs_first, mut is_memory_short, mut has_external) = (false, false, false);
        for id in request.batch.trees() {
            let tree = &log.targets.get(*id, |id| self.env.tree(id))?.tree;
            let new = request.batch.range_deletes(*id);
            if new > 0 {
                tree.state_guard().check_range_tombstones(new)?;
            }
            // Usually more than the share of this tree; a reservation has no cost.
            let reserved = tree.backend().reserve(request.batch.len(), request.batch.len_bytes())?;
            syncs_first |= reserved.syncs_first;
            is_memory_short |= reserved.is_memory_short;
            has_external |= !tree.backend().is_lsm();
        }
        if is_memory_short {
            self.env.note_short_memory();
        }
        request.batch.seal();
        if has_external && Technique::IndexWritePrefetch.is_on() {
            self.prefetch(log, &request.batch)?;
        }
        Ok(syncs_first)
    }

    /// Prefetches what the external trees will read for the first operations of a sealed batch.
    fn prefetch(&self, log: &mut LogState, batch: &StoreBatch) -> Result<()> {
        for placed in BatchReader::new(batch.sealed_bytes())?.take(MAX_PREFETCHED) {
            let placed = placed?;
            let target = log.targets.get(placed.tree, |id| self.env.tree(id))?;
            if let (Some(external), Operation::Entry { key, .. }) =
                (target.tree.backend().external(), placed.operation)
            {
                external.prefetch(key);
            }
        }
        Ok(())
    }

    /// Appends prepared writes to the log and applies them; `last` is the last of their sequence numbers. A failure
    /// poisons the handle, except on a full disk: nothing is appended then, and the writer may free space and try again.
    /// After any other failure the end of the log is unknown.
    #[inline]
    pub(super) fn write<W: PendingWrites>(
        &self,
        log: &mut LogState,
        writes: &W,
        last: SequenceNumber,
        syncs_first: bool,
    ) -> Result<()> {
        let health = self.env.health();
        let written = health.poison_on_panic(|| self.append_and_apply(log, writes, syncs_first));
        written.inspect_err(|error| poison_after_append(health, error))?;
        log.applied = last;
        Ok(())
    }

    #[inline]
    fn append_and_apply<W: PendingWrites>(
        &self,
        log: &mut LogState,
        writes: &W,
        syncs_first: bool,
    ) -> Result<()> {
        self.append(log, writes)?;
        if syncs_first {
            // An append cannot be undone, so a failure poisons the handle even on a full disk.
            let synced = self.env.log().sync_now(log);
            synced.inspect_err(|error| self.env.health().poison(error))?;
        }
        // After the append nothing may fail: a failure is a bug, and poisons the handle like a failed write.
        self.apply(log, writes).map_err(|error| Error::internal(error.to_string()))
    }

    /// Appends writes with one write to the file.
    #[inline]
    fn append<W: PendingWrites>(&self, log: &mut LogState, writes: &W) -> Result<()> {
        let reserve = self.env.reserve();
        if !reserve.is_allocated() && !writes.only_delete() {
            reserve.check(self.env.health())?;
        }
        let log_bytes = log.len();
        if let Err(error) = writes.append_to(log) {
            self.append_again(log, writes, error)?;
        }
        let counters = self.env.counters();
        counters.add_log_bytes(log.len() - log_bytes);
        counters.add_batch_bytes(writes.batch_bytes());
        Ok(())
    }

    /// Repeats an append that failed with `error`, with the space of the reserve: deletes free space.
    #[cold]
    fn append_again<W: PendingWrites>(&self, log: &mut LogState, writes: &W, error: Error) -> Result<()> {
        let may_release = error.kind() == ErrorKind::NoSpace && writes.only_delete();
        if may_release && self.env.reserve().release() { writes.append_to(log) } else { Err(error) }
    }

    /// Passes appended writes to the backends of their trees.
    #[inline]
    fn apply<W: PendingWrites>(&self, log: &mut LogState, writes: &W) -> Result<()> {
        let number = log.number();
        let log_bytes = self.env.counters().log_bytes();
        let oldest_in_use = || self.env.snapshots().oldest();
        writes.for_each(|placed: &PlacedOperation<'_>| {
            let find = |id| self.env.tree(id);
            let target = log.targets.written(placed.tree, number, log_bytes, find)?;
            target.tree.backend().apply(placed, &target.logged.memtable, &oldest_in_use)
        })?;
        log.targets.count_growth(self.env.active_bytes());
        Ok(())
    }

    /// Syncs the log as the modes of the applied writes require, and publishes their last sequence number.
    ///
    /// # Errors
    /// Those of the sync. `Poisoned` if another thread has poisoned the handle since the writes were admitted: the writes
    /// stay invisible, so they are not acknowledged.
    #[inline]
    pub(super) fn publish(
        &self,
        log: &mut LogState,
        last: SequenceNumber,
        sync_modes: impl Iterator<Item = SyncMode>,
    ) -> Result<()> {
        let health = self.env.health();
        health.poison_on_panic(|| {
            let synced = self.env.log().sync_as_required(log, health, sync_modes);
            synced.inspect_err(|error| health.poison(error))?;
            health.check()?;
            self.env.snapshots().publish(last);
            Ok(())
        })
    }

    /// Records published writes for open transactions. Called after [`publish`](Self::publish), under the same lock.
    #[inline]
    pub(super) fn record<W: PendingWrites>(&self, writes: &W, last: SequenceNumber) -> Result<()> {
        if self.env.recent().is_needed() {
            self.env.recent().record(last, writes)?;
        }
        Ok(())
    }
}

/// Poisons the handle after a failed append, unless nothing was appended.
#[cold]
fn poison_after_append(health: &Health, error: &Error) {
    if error.kind() != ErrorKind::NoSpace {
        health.poison(error);
    }
}

/// Fails if `count` sequence numbers from `first` on exceed the largest sequence number.
pub(in crate::store) fn check_sequences(first: SequenceNumber, count: u64) -> Result<()> {
    if first.saturating_add(count) > MAX_SEQUENCE {
        return Err(Error::limit_exceeded("the sequence number", first, MAX_SEQUENCE));
    }
    Ok(())
}

#[cfg(test)]
#[path = "pipeline_tests.rs"]
mod tests;
