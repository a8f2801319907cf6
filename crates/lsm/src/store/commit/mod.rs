//! Group commit: one writer leads and commits the batches of all waiting writers.
//!
//! # Algorithm
//! 1. A writer that finds the queue without a leader leads with its own batch. Otherwise it enqueues its batch and
//!    sleeps until the batch is committed or the writer becomes the next leader.
//! 2. The leader assigns sequence numbers and runs the stages of the batches (a stage reads everything before its
//!    batch, earlier batches of the group included). It appends all batches to the log with one write, inserts them
//!    into the memtables, syncs the log if a batch requires it, and publishes the last sequence number.
//! 3. It wakes the followers with their results, and makes the first writer that enqueued meanwhile the next leader.
//!
//! A single put bypasses the queue if the log is free: see [`put`]. A leader waits for it at the lock of the log. All
//! commits run the steps of one [`pipeline`], which needs no more of the store than [`CommitEnv`].
//!
//! | file | concept |
//! |---|---|
//! | [`queue`] | writers that wait, and the leader |
//! | [`pipeline`], [`writes`] | the steps of a commit; the writes of one append |
//! | [`put`], [`group`] | the fast path of a single put; batches and groups of them |
//! | [`recent`], [`sync`] | the record of recent commits, for the checks of transactions; its lock |
//! | [`targets`] | a cache of the memtables that writes go to |
//! | [`log`], [`pressure`] | the log and its segments; write throttling |
//!
//! # Invariants
//! * An entry is inserted into a memtable only after the append of its record succeeded.
//! * A sequence number is published only after the sync that its batch requires succeeded.
//! * After a failed write or sync, or a panic after an append began, the store is poisoned: the appended records may or
//!   may not survive, so none of them is published and nothing more is written.

mod group;
pub(super) mod log;
mod pipeline;
pub(super) mod pressure;
mod put;
mod queue;
pub(super) mod recent;
pub(super) mod segments;
mod sync;
pub(super) mod targets;
mod writes;

use std::sync::Arc;

use bolide_base::technique::Technique;
use bolide_base::{Result, SequenceNumber, TreeId};

use self::log::{Log, LogState};
pub(super) use self::pipeline::check_sequences;
use self::pipeline::{CommitEnv, CommitPipeline};
use self::pressure::Pressure;
pub(super) use self::queue::CommitQueue;
use self::recent::{RecentCommits, TransactionView};
use self::segments::make_room;
use self::targets::ActiveBytes;
use super::health::Health;
use super::read::read_view::ReadView;
use super::read::snapshots::Snapshots;
use super::reserve::Reserve;
use super::stats::Counters;
use super::tree::Tree;
use super::{Store, StoreInner};
use crate::batch::StoreBatch;
use crate::options::SyncMode;

/// The state before a batch: everything applied, earlier batches of its group included.
#[derive(Debug)]
pub struct CommitState<'s> {
    /// Everything before the batch, and nothing of it. Not all of it is published.
    pub view: &'s ReadView,
    /// The commits since the oldest open transaction began, up to [`view`](Self::view).
    pub recent: &'s RecentCommits,
}

/// Checks a batch at its commit, and completes it with operations that depend on the state then.
///
/// Synchronous index maintenance reads the old record in a stage and deletes its index entries.
pub trait CommitStage: Send {
    /// Called once, by the leader, before [`stage`](Self::stage). `batch` has its sequence numbers, and nothing staged.
    ///
    /// # Errors
    /// An error fails this batch alone: nothing of it is written.
    fn check(&mut self, state: &CommitState<'_>, batch: &StoreBatch) -> Result<()> {
        let _ = (state, batch);
        Ok(())
    }

    /// Called by the leader after [`check`](Self::check) has returned an error, with the batch, which is not written. Other
    /// writers wait for it.
    fn refused(&mut self, batch: StoreBatch) {
        drop(batch);
    }

    /// Called once, by the leader, before the batch is appended to the log.
    ///
    /// `view` contains everything committed before `batch`, and nothing of `batch`. [`StoreBatch::first_sequence`] is
    /// already assigned: operations are added with explicit numbers ([`StoreBatch::put_at`],
    /// [`StoreBatch::delete_at`]), never with new ones.
    ///
    /// # Errors
    /// An error fails this batch alone: nothing of it is written.
    fn stage(&mut self, view: &ReadView, batch: &mut StoreBatch) -> Result<()>;
}

impl StoreInner {
    /// The pipeline of all commits.
    #[inline]
    fn pipeline(&self) -> CommitPipeline<'_, Self> {
        CommitPipeline::new(self, &self.commits)
    }
}

impl Store {
    /// Commits `batch` atomically and returns its last sequence number.
    ///
    /// When it returns, the batch is in the log (synced according to `sync`) and visible to every later view. `stage`
    /// runs inside the commit.
    ///
    /// # Errors
    /// `NotFound` for an unknown tree; `NoSpace` if the disk is full, with nothing written; `Poisoned`
    /// after an earlier failure; `ReadOnly`; what `stage` returned.
    pub fn commit(
        &self,
        batch: StoreBatch,
        stage: Option<Box<dyn CommitStage>>,
        sync: SyncMode,
    ) -> Result<SequenceNumber> {
        self.inner.pipeline().commit(batch, stage, sync)
    }

    /// A view of everything committed so far, at which a transaction reads: all commits after it are recorded. Costs about
    /// as much as a [`read_view`](Self::read_view); each commit costs an allocation and a copy of its keys as long as it
    /// exists.
    pub fn transaction_view(&self) -> TransactionView {
        TransactionView::open(self.inner.clone())
    }

    /// The record of recent commits.
    pub fn recent_commits(&self) -> &RecentCommits {
        &self.inner.recent
    }

    /// Commits a batch that puts `value` under `key` of `tree`, and returns its sequence number.
    ///
    /// # Errors
    /// `LimitExceeded` for a key or a value over its limit; else as [`commit`](Self::commit).
    pub fn put(&self, tree: TreeId, key: &[u8], value: &[u8], sync: SyncMode) -> Result<SequenceNumber> {
        let pipeline = self.inner.pipeline();
        if Technique::SinglePuts.is_on()
            && let Some(sequence) = pipeline.put_alone(tree, key, value, sync)?
        {
            return Ok(sequence);
        }
        let mut batch = StoreBatch::with_capacity(key.len() + value.len() + 32);
        batch.put(tree, key, value)?;
        pipeline.commit(batch, None, sync)
    }
}

impl CommitEnv for StoreInner {
    #[inline]
    fn log(&self) -> &Log {
        &self.log
    }

    #[inline]
    fn health(&self) -> &Health {
        &self.health
    }

    #[inline]
    fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    #[inline]
    fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    #[inline]
    fn counters(&self) -> &Counters {
        &self.counters
    }

    #[inline]
    fn active_bytes(&self) -> &ActiveBytes {
        &self.active_bytes
    }

    fn tree(&self, id: TreeId) -> Result<Arc<Tree>> {
        self.trees.get(id)
    }

    fn view_before(&self, applied: SequenceNumber) -> ReadView {
        ReadView::unregistered(self.shared(), applied)
    }

    #[inline]
    fn recent(&self) -> &RecentCommits {
        &self.recent
    }

    #[inline]
    fn pressure(&self) -> &Pressure {
        &self.pressure
    }

    #[cold]
    fn note_short_memory(&self) {
        self.backlog().changed();
    }

    #[inline]
    fn make_room(&self, log: &mut LogState, bytes: usize) -> Result<()> {
        make_room(self, log, bytes)
    }

    #[inline]
    fn works_inline(&self) -> bool {
        self.options.background_threads == 0
    }

    fn work(&self) {
        self.run_pending_work();
    }
}
