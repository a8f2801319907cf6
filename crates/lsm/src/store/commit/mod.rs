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
//! A single put bypasses the queue if the log is free: see `commit_put`. A leader waits for it at the lock of the log.
//!
//! # Invariants
//! * An entry is inserted into a memtable only after the append of its record succeeded.
//! * A sequence number is published only after the sync that its batch requires succeeded.
//! * After a failed write or sync, or a panic after an append began, the store is poisoned: the appended records may or
//!   may not survive, so none of them is published and nothing more is written.

pub(super) mod log;
pub(super) mod pressure;
pub(super) mod put;
pub(super) mod targets;

use std::collections::VecDeque;
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, MAX_SEQUENCE, Result, SequenceNumber};
use parking_lot::{Condvar, Mutex};

use crate::batch::{BatchReader, StoreBatch};
use crate::options::SyncMode;
use crate::store::StoreInner;
use crate::store::commit::log::LogState;
use crate::store::read::read_view::ReadView;
use crate::store::reserve::only_delete;

/// Maximum encoded bytes of a group, unless it has one batch.
const GROUP_BYTES: usize = 1 << 20;

/// Completes a batch with operations that depend on the state at its commit.
///
/// Synchronous index maintenance reads the old record in a stage and deletes its index entries.
pub trait CommitStage: Send {
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

/// A batch to be committed.
pub(in crate::store) struct CommitRequest {
    batch: StoreBatch,
    stage: Option<Box<dyn CommitStage>>,
    sync: SyncMode,
}

/// The queue of writers that wait for a leader.
#[derive(Default)]
pub(in crate::store) struct CommitQueue {
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    has_leader: bool,
    waiting: VecDeque<Arc<CommitTicket>>,
}

/// A waiting writer.
struct CommitTicket {
    state: Mutex<TicketState>,
    signal: Condvar,
}

enum TicketState {
    Waiting(CommitRequest),
    /// The writer becomes the leader, with its own request.
    Promoted(CommitRequest),
    /// A leader works on the request, or its result was collected.
    Empty,
    Done(Result<SequenceNumber>),
}

impl StoreInner {
    /// Commits `batch` and returns its last sequence number.
    pub(in crate::store) fn commit(
        &self,
        batch: StoreBatch,
        stage: Option<Box<dyn CommitStage>>,
        sync: SyncMode,
    ) -> Result<SequenceNumber> {
        self.health.check()?;
        if batch.is_empty() && stage.is_none() {
            return Ok(self.snapshots.published());
        }
        self.throttle(batch.len_bytes())?;
        let request = CommitRequest { batch, stage, sync };
        let (own, own_ticket) = match self.join_queue(request) {
            QueueEntry::Leader(request) => (request, None),
            QueueEntry::Follower(ticket) => match ticket.wait() {
                TicketState::Promoted(request) => (request, Some(ticket)),
                TicketState::Done(result) => return result,
                TicketState::Waiting(_) | TicketState::Empty => {
                    return Err(Error::internal("a waiting writer was woken without a result"));
                }
            },
        };
        self.lead(own, own_ticket.is_some())
    }

    /// Becomes the leader if there is none.
    pub(in crate::store) fn try_lead(&self) -> Option<CommitLeader<'_>> {
        let mut queue = self.commits.state.lock();
        let is_leader = !std::mem::replace(&mut queue.has_leader, true);
        is_leader.then(|| CommitLeader { store: self, followers: Vec::new() })
    }

    fn join_queue(&self, request: CommitRequest) -> QueueEntry {
        let mut queue = self.commits.state.lock();
        if !queue.has_leader {
            queue.has_leader = true;
            return QueueEntry::Leader(request);
        }
        let ticket = Arc::new(CommitTicket {
            state: Mutex::new(TicketState::Waiting(request)),
            signal: Condvar::new(),
        });
        queue.waiting.push_back(ticket.clone());
        QueueEntry::Follower(ticket)
    }

    /// Commits the request of the leader and, if `contended`, those of waiting writers with it.
    fn lead(&self, own: CommitRequest, contended: bool) -> Result<SequenceNumber> {
        let mut leader = CommitLeader { store: self, followers: Vec::new() };
        if !contended {
            let result = self.commit_alone(own);
            if self.options.background_threads == 0 {
                self.run_pending_work();
            }
            return result;
        }
        let mut requests = Vec::with_capacity(1);
        requests.push(own);
        for ticket in self.commits.take_group() {
            requests.extend(ticket.take());
            leader.followers.push(ticket);
        }
        let mut results = self.commit_group(requests);
        // Inline maintenance is done by the writer that caused it, before the next leader starts.
        if self.options.background_threads == 0 {
            self.run_pending_work();
        }
        for (ticket, result) in leader.followers.drain(..).zip(results.drain(1..)) {
            ticket.finish(result);
        }
        drop(leader);
        results.pop().unwrap_or_else(|| Err(Error::internal("a commit group lost its leader's result")))
    }

    /// Commits one request as [`commit_group`](Self::commit_group) does, without the allocations of a group.
    fn commit_alone(&self, mut request: CommitRequest) -> Result<SequenceNumber> {
        let mut log = self.log.lock();
        self.health.check()?;
        self.make_room(&mut log, request.batch.len_bytes())?;
        let first = log.applied + 1;
        let syncs_first = self.prepare_batch(&mut log, first, &mut request)?;
        let last = log.applied + request.batch.sequence_count();
        self.append_and_apply(&mut log, std::iter::once(&request.batch), syncs_first)?;
        log.applied = last;
        self.end_commit(&mut log, last, std::iter::once(request.sync))?;
        Ok(last)
    }

    /// Syncs the log as the modes of the applied batches require, and publishes their last sequence number.
    pub(in crate::store) fn end_commit(
        &self,
        log: &mut LogState,
        last: SequenceNumber,
        sync_modes: impl Iterator<Item = SyncMode>,
    ) -> Result<()> {
        self.health.poison_on_panic(|| {
            self.sync_as_required(log, sync_modes).inspect_err(|error| self.health.poison(error))?;
            if self.health.check().is_ok() {
                self.snapshots.publish(last);
            }
            Ok(())
        })
    }

    /// Commits a group. The results are in the order of the requests.
    fn commit_group(&self, mut requests: Vec<CommitRequest>) -> Vec<Result<SequenceNumber>> {
        let mut log = self.log.lock();
        let incoming = requests.iter().map(|request| request.batch.len_bytes()).sum();
        if let Err(error) = self.health.check().and_then(|()| self.make_room(&mut log, incoming)) {
            return requests.iter().map(|_| Err(error.clone())).collect();
        }
        let mut group = CommitGroup::new(requests.len());
        for (position, request) in requests.iter_mut().enumerate() {
            if let Err(error) = self.prepare(&mut log, &mut group, position, request) {
                group.results[position] = Err(error);
            }
        }
        self.write_prepared(&mut log, &mut group);
        let sync = requests.iter().zip(&group.results).filter(|(_, result)| result.is_ok());
        let sync_modes = sync.map(|(request, _)| request.sync);
        // If no batch was applied, this number is already published.
        let last = log.applied;
        match self.end_commit(&mut log, last, sync_modes) {
            Ok(()) => group.results,
            Err(error) => group.results.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    /// Prepares one request and adds its batch to the group.
    fn prepare(
        &self,
        log: &mut LogState,
        group: &mut CommitGroup,
        position: usize,
        request: &mut CommitRequest,
    ) -> Result<()> {
        if request.stage.is_some() {
            // The stage must read the batches before its own.
            self.write_prepared(log, group);
        }
        let first = log.applied + group.sequences + 1;
        group.syncs_first |= self.prepare_batch(log, first, request)?;
        group.sequences += request.batch.sequence_count();
        group.results[position] = Ok(log.applied + group.sequences);
        group.prepared.push((position, std::mem::take(&mut request.batch)));
        Ok(())
    }

    /// Assigns sequence numbers from `first` on to one request, runs its stage and seals its batch. Returns true if the
    /// log must be synced before the batch is applied.
    fn prepare_batch(
        &self,
        log: &mut LogState,
        first: SequenceNumber,
        request: &mut CommitRequest,
    ) -> Result<bool> {
        check_sequences(first, request.batch.sequence_count())?;
        request.batch.assign(first);
        if let Some(mut stage) = request.stage.take() {
            let before = request.batch.sequence_count();
            let view = ReadView::unregistered(self.shared(), log.applied);
            stage.stage(&view, &mut request.batch)?;
            if request.batch.sequence_count() != before {
                return Err(Error::internal("a staged batch took further sequence numbers"));
            }
        }
        let mut syncs_first = false;
        for id in request.batch.trees() {
            let tree = &self.target(&mut log.targets, *id)?.tree;
            let new = request.batch.range_deletes(*id);
            if new > 0 {
                tree.state_guard().check_range_tombstones(new)?;
            }
            // Usually more than the share of this tree; a reservation has no cost.
            syncs_first |= tree.backend().reserve(request.batch.len(), request.batch.len_bytes())?;
        }
        request.batch.seal();
        Ok(syncs_first)
    }

    /// Appends the prepared batches with one write and applies them.
    fn write_prepared(&self, log: &mut LogState, group: &mut CommitGroup) {
        if group.prepared.is_empty() {
            return;
        }
        let batches = group.prepared.iter().map(|(_, batch)| batch);
        if let Err(error) = self.append_and_apply(log, batches, group.syncs_first) {
            for (position, _) in &group.prepared {
                group.results[*position] = Err(error.clone());
            }
        } else {
            log.applied += group.sequences;
        }
        group.sequences = 0;
        group.prepared.clear();
    }

    /// Appends batches with one write and inserts them into the memtables. A failure poisons the store, except on a
    /// full disk: nothing is appended then, and the writer may free space and try again. After any other failure the
    /// end of the log is unknown.
    fn append_and_apply<'b>(
        &self,
        log: &mut LogState,
        batches: impl Iterator<Item = &'b StoreBatch> + Clone,
        syncs_first: bool,
    ) -> Result<()> {
        let applied = self.health.poison_on_panic(|| self.try_append_and_apply(log, batches, syncs_first));
        applied.inspect_err(|error| self.poison_after_append(error))
    }

    /// Poisons the store after a failed append, unless nothing was appended.
    #[cold]
    pub(in crate::store) fn poison_after_append(&self, error: &Error) {
        if error.kind() != ErrorKind::NoSpace {
            self.health.poison(error);
        }
    }

    fn try_append_and_apply<'b>(
        &self,
        log: &mut LogState,
        batches: impl Iterator<Item = &'b StoreBatch> + Clone,
        syncs_first: bool,
    ) -> Result<()> {
        self.health.check()?;
        let log_bytes = log.len();
        if !self.reserve.is_allocated() && !only_delete(batches.clone()) {
            self.reserve.check(&self.health)?;
        }
        log.append(batches.clone().map(StoreBatch::sealed_bytes)).or_else(|error| {
            // Deletes free space, so they may use the reserve.
            let may_release = error.kind() == ErrorKind::NoSpace && only_delete(batches.clone());
            if may_release && self.reserve.release() {
                log.append(batches.clone().map(StoreBatch::sealed_bytes))
            } else {
                Err(error)
            }
        })?;
        self.counters.add_log_bytes(log.len() - log_bytes);
        if syncs_first {
            // An append cannot be undone, so a failure poisons the store even on a full disk.
            log.sync(self.runtime.now_micros()).inspect_err(|error| self.health.poison(error))?;
        }
        for batch in batches {
            self.counters.add_batch_bytes(batch.len_bytes() as u64);
            // After the append nothing may fail: a failure is a bug, and poisons the store like a failed write.
            self.apply(log, batch.sealed_bytes()).map_err(|error| Error::internal(error.to_string()))?;
        }
        Ok(())
    }

    /// Inserts the operations of a payload into the memtables.
    fn apply(&self, log: &mut LogState, payload: &[u8]) -> Result<()> {
        let number = log.number();
        for placed in BatchReader::new(payload)? {
            let placed = placed?;
            let target = self.written_target(&mut log.targets, number, placed.tree)?;
            let oldest_in_use = || self.snapshots.oldest();
            target.tree.backend().apply(&placed, &target.logged.memtable, &oldest_in_use)?;
        }
        self.count_growth(&mut log.targets);
        Ok(())
    }
}

/// Fails if `count` sequence numbers from `first` on exceed the largest sequence number.
pub(in crate::store) fn check_sequences(first: SequenceNumber, count: u64) -> Result<()> {
    if first.saturating_add(count) > MAX_SEQUENCE {
        return Err(Error::limit_exceeded("the sequence number", first, MAX_SEQUENCE));
    }
    Ok(())
}

/// State of a group during its commit.
struct CommitGroup {
    results: Vec<Result<SequenceNumber>>,
    /// Batches of the next append, with the positions of their requests.
    prepared: Vec<(usize, StoreBatch)>,
    /// Number of sequence numbers of the prepared batches.
    sequences: u64,
    /// True if an external tree makes writes durable immediately: the log is synced before they are applied.
    syncs_first: bool,
}

impl CommitGroup {
    fn new(requests: usize) -> Self {
        let results = (0..requests).map(|_| Err(Error::internal("a batch was not committed"))).collect();
        Self { results, prepared: Vec::with_capacity(requests), sequences: 0, syncs_first: false }
    }
}

enum QueueEntry {
    Leader(CommitRequest),
    Follower(Arc<CommitTicket>),
}

impl CommitQueue {
    /// Removes waiting writers from the queue, up to [`GROUP_BYTES`].
    fn take_group(&self) -> Vec<Arc<CommitTicket>> {
        let mut queue = self.state.lock();
        let mut bytes = 0;
        let mut group = Vec::new();
        while let Some(ticket) = queue.waiting.front() {
            bytes += ticket.len_bytes();
            if bytes > GROUP_BYTES && !group.is_empty() {
                break;
            }
            group.extend(queue.waiting.pop_front());
        }
        group
    }

    fn hand_over(&self) {
        let mut queue = self.state.lock();
        match queue.waiting.pop_front() {
            Some(ticket) => ticket.promote(),
            None => queue.has_leader = false,
        }
    }
}

/// Leadership of the commit queue: passed on when dropped. If the leader panics, its followers fail and the store is
/// poisoned.
pub(in crate::store) struct CommitLeader<'a> {
    store: &'a StoreInner,
    followers: Vec<Arc<CommitTicket>>,
}

impl Drop for CommitLeader<'_> {
    fn drop(&mut self) {
        for ticket in self.followers.drain(..) {
            let error = Error::internal("the leader of this commit panicked");
            self.store.health.poison(&error);
            ticket.finish(Err(error));
        }
        self.store.commits.hand_over();
    }
}

impl CommitTicket {
    fn wait(&self) -> TicketState {
        let mut state = self.state.lock();
        while matches!(*state, TicketState::Waiting(_) | TicketState::Empty) {
            self.signal.wait(&mut state);
        }
        std::mem::replace(&mut state, TicketState::Empty)
    }

    fn len_bytes(&self) -> usize {
        match &*self.state.lock() {
            TicketState::Waiting(request) => request.batch.len_bytes(),
            _ => 0,
        }
    }

    fn take(&self) -> Option<CommitRequest> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, TicketState::Empty) {
            TicketState::Waiting(request) => Some(request),
            other => {
                *state = other;
                None
            }
        }
    }

    fn promote(&self) {
        let mut state = self.state.lock();
        if let TicketState::Waiting(request) = std::mem::replace(&mut *state, TicketState::Empty) {
            *state = TicketState::Promoted(request);
        }
        self.signal.notify_one();
    }

    fn finish(&self, result: Result<SequenceNumber>) {
        *self.state.lock() = TicketState::Done(result);
        self.signal.notify_one();
    }
}
