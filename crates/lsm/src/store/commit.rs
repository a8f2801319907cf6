//! Group commit: one writer leads, the others wait for it.
//!
//! # Algorithm
//! 1. A writer finds the queue without a leader and leads with its own batch; or it queues up and
//!    sleeps until it is done or is made the next leader.
//! 2. The leader assigns sequence numbers, lets batches be staged (they see everything before them,
//!    earlier batches of the group included), appends all of them to the log with one write, inserts
//!    them into the memtables, syncs the log if one of them asks for it, and publishes the last number.
//! 3. It wakes the others with their results and hands the lead to the first that queued meanwhile.
//!
//! A single put goes past the queue where the log is free: see `commit_put`. Who leads then waits for it as for any other who has the
//! lock of the log.
//!
//! # Invariants
//! * Nothing is inserted into a memtable before the append that holds it succeeded.
//! * Nothing is published before the sync that it asked for succeeded.
//! * After a failed write or sync, or a panic after an append began, the store is poisoned: what was appended may or may not survive, so
//!   nothing of it is published and nothing more is written.

use std::collections::VecDeque;
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, MAX_SEQUENCE, Result, SequenceNumber, Trailer};
use parking_lot::{Condvar, Mutex};

use super::log::LogState;
use super::read_view::ReadView;
use super::reserve::only_delete;
use super::{StoreInner, poison};
use crate::batch::{BatchReader, Operation, PlacedOperation, StoreBatch};
use crate::external_tree::{ExternalWrite, ExternalTree};
use crate::memtable::Memtable;
use crate::options::SyncMode;

/// Most encoded bytes that one leader takes along.
const GROUP_BYTES: usize = 1 << 20;

/// Adds to a batch what can only be known inside the commit.
///
/// Synchronous index maintenance reads the old record here and deletes its index entries.
pub trait CommitStage: Send {
    /// Called once, by the thread that leads the commit, before the batch is appended to the log.
    ///
    /// `view` shows everything that was committed before `batch`, and nothing of it.
    /// [`StoreBatch::first_sequence`] is assigned already: operations are added with explicit numbers
    /// ([`StoreBatch::put_at`], [`StoreBatch::delete_at`]), never with new ones.
    ///
    /// # Errors
    /// An error fails this batch alone; nothing of it is written.
    fn stage(&mut self, view: &ReadView, batch: &mut StoreBatch) -> Result<()>;
}

/// One batch on its way.
pub(super) struct Request {
    batch: StoreBatch,
    stage: Option<Box<dyn CommitStage>>,
    sync: SyncMode,
}

/// Writers that wait for a leader.
#[derive(Default)]
pub(super) struct CommitQueue {
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    led: bool,
    waiting: VecDeque<Arc<Ticket>>,
}

/// One waiting writer.
struct Ticket {
    slot: Mutex<Slot>,
    signal: Condvar,
}

enum Slot {
    Waiting(Request),
    /// The writer shall lead, with this request of its own.
    Promoted(Request),
    /// A leader works on it, or its result was collected.
    Taken,
    Done(Result<SequenceNumber>),
}

impl StoreInner {
    /// Commits `batch` and returns its last sequence number.
    pub(super) fn commit(
        &self,
        batch: StoreBatch,
        stage: Option<Box<dyn CommitStage>>,
        sync: SyncMode,
    ) -> Result<SequenceNumber> {
        self.check_writable()?;
        if batch.is_empty() && stage.is_none() {
            return Ok(self.snapshots.published());
        }
        self.throttle(batch.len_bytes())?;
        let request = Request { batch, stage, sync };
        let (own, own_ticket) = match self.join_queue(request) {
            Joined::Leads(request) => (request, None),
            Joined::Queued(ticket) => match ticket.wait() {
                Slot::Promoted(request) => (request, Some(ticket)),
                Slot::Done(result) => return result,
                Slot::Waiting(_) | Slot::Taken => {
                    return Err(Error::internal("a waiting writer was woken without a result"));
                }
            },
        };
        self.lead(own, own_ticket.is_some())
    }

    /// Takes the lead if nobody has it.
    pub(super) fn try_lead(&self) -> Option<Lead<'_>> {
        let mut queue = self.commits.state.lock();
        let leads = !std::mem::replace(&mut queue.led, true);
        leads.then(|| Lead { store: self, followers: Vec::new() })
    }

    fn join_queue(&self, request: Request) -> Joined {
        let mut queue = self.commits.state.lock();
        if !queue.led {
            queue.led = true;
            return Joined::Leads(request);
        }
        let ticket = Arc::new(Ticket { slot: Mutex::new(Slot::Waiting(request)), signal: Condvar::new() });
        queue.waiting.push_back(ticket.clone());
        Joined::Queued(ticket)
    }

    /// Commits the own request and, if others wait, theirs with it.
    fn lead(&self, own: Request, contended: bool) -> Result<SequenceNumber> {
        let mut lead = Lead { store: self, followers: Vec::new() };
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
            lead.followers.push(ticket);
        }
        let mut results = self.commit_group(requests);
        // Inline maintenance belongs to the one who caused it, before the next leader starts.
        if self.options.background_threads == 0 {
            self.run_pending_work();
        }
        for (ticket, result) in lead.followers.drain(..).zip(results.drain(1..)) {
            ticket.finish(result);
        }
        drop(lead);
        results.pop().unwrap_or_else(|| Err(Error::internal("a commit group lost its leader's result")))
    }

    /// Writes one request as [`commit_group`](Self::commit_group) does, without the lists that a group takes.
    fn commit_alone(&self, mut request: Request) -> Result<SequenceNumber> {
        let mut log = self.log.lock();
        self.check_writable()?;
        self.make_room(&mut log, request.batch.len_bytes())?;
        let first = log.applied + 1;
        let syncs_first = self.place(&mut log, first, &mut request)?;
        let last = log.applied + request.batch.sequence_count();
        self.append_and_apply(&mut log, std::iter::once(&request.batch), syncs_first)?;
        log.applied = last;
        self.end_commit(&mut log, last, std::iter::once(request.sync))?;
        Ok(last)
    }

    /// Syncs the log as those ask for whose batches were applied, and publishes the last of their sequence numbers.
    pub(super) fn end_commit(
        &self,
        log: &mut LogState,
        last: SequenceNumber,
        wanted: impl Iterator<Item = SyncMode>,
    ) -> Result<()> {
        self.poison_on_panic(|| {
            self.sync_as_asked(log, wanted).inspect_err(|error| poison(self, error))?;
            if self.check_writable().is_ok() {
                self.snapshots.publish(last);
            }
            Ok(())
        })
    }

    /// Runs `write`, which writes to the log or to the manifest. If it panics the store is poisoned: the log may have records
    /// whose sequence numbers are not counted, and the next write would use them again. The manifest likewise.
    #[inline]
    pub(super) fn poison_on_panic<T>(&self, write: impl FnOnce() -> T) -> T {
        let mut guard = PoisonOnPanic { store: self, armed: true };
        let result = write();
        guard.armed = false;
        result
    }

    /// Writes a group. The results come in the order of the requests.
    fn commit_group(&self, mut requests: Vec<Request>) -> Vec<Result<SequenceNumber>> {
        let mut log = self.log.lock();
        let incoming = requests.iter().map(|request| request.batch.len_bytes()).sum();
        if let Err(error) = self.check_writable().and_then(|()| self.make_room(&mut log, incoming)) {
            return requests.iter().map(|_| Err(error.clone())).collect();
        }
        let mut group = Group::new(requests.len());
        for (position, request) in requests.iter_mut().enumerate() {
            if let Err(error) = self.prepare(&mut log, &mut group, position, request) {
                group.results[position] = Err(error);
            }
        }
        self.write_prepared(&mut log, &mut group);
        let sync = requests.iter().zip(&group.results).filter(|(_, result)| result.is_ok());
        let wanted = sync.map(|(request, _)| request.sync);
        // Where none was applied, all up to this number is published already.
        let last = log.applied;
        match self.end_commit(&mut log, last, wanted) {
            Ok(()) => group.results,
            Err(error) => group.results.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    /// Assigns sequence numbers to one request, stages it and adds its payload to the group.
    fn prepare(
        &self,
        log: &mut LogState,
        group: &mut Group,
        position: usize,
        request: &mut Request,
    ) -> Result<()> {
        if request.stage.is_some() {
            // What is staged must see the batches before it.
            self.write_prepared(log, group);
        }
        let first = log.applied + group.sequences + 1;
        group.syncs_first |= self.place(log, first, request)?;
        group.sequences += request.batch.sequence_count();
        group.results[position] = Ok(log.applied + group.sequences);
        group.prepared.push((position, std::mem::take(&mut request.batch)));
        Ok(())
    }

    /// Assigns sequence numbers from `first` on to one request, stages it and makes it ready to be logged. Whether the log is to
    /// be synced before it is applied.
    fn place(&self, log: &mut LogState, first: SequenceNumber, request: &mut Request) -> Result<bool> {
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
            if let Some(external_tree) = tree.external_tree.get() {
                // More than its share, as a rule; reserving costs nothing.
                external_tree.reserve(request.batch.len(), request.batch.len_bytes())?;
                syncs_first |= external_tree.is_durable_at_once();
            }
        }
        request.batch.seal();
        Ok(syncs_first)
    }

    /// Appends the prepared batches with one write and inserts them into the memtables.
    fn write_prepared(&self, log: &mut LogState, group: &mut Group) {
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

    /// Appends batches with one write and inserts them into the memtables. What fails poisons the store, but for a full
    /// disk: it appended nothing, so the writer may free space and try again. After any other failure the end of
    /// the log is in doubt.
    fn append_and_apply<'b>(
        &self,
        log: &mut LogState,
        batches: impl Iterator<Item = &'b StoreBatch> + Clone,
        syncs_first: bool,
    ) -> Result<()> {
        let applied = self.poison_on_panic(|| self.try_append_and_apply(log, batches, syncs_first));
        applied.inspect_err(|error| self.poison_after_append(error))
    }

    /// Poisons the store after a failed append, unless nothing was appended.
    #[cold]
    pub(super) fn poison_after_append(&self, error: &Error) {
        if error.kind() != ErrorKind::NoSpace {
            poison(self, error);
        }
    }

    fn try_append_and_apply<'b>(
        &self,
        log: &mut LogState,
        batches: impl Iterator<Item = &'b StoreBatch> + Clone,
        syncs_first: bool,
    ) -> Result<()> {
        self.check_writable()?;
        let log_bytes = log.len();
        if !self.has_reserve() && !only_delete(batches.clone()) {
            self.check_reserve()?;
        }
        log.append(batches.clone().map(StoreBatch::sealed_bytes)).or_else(|error| {
            // Deletes free space: they get what is reserved.
            let may_release = error.kind() == ErrorKind::NoSpace && only_delete(batches.clone());
            if may_release && self.release_reserve() {
                log.append(batches.clone().map(StoreBatch::sealed_bytes))
            } else {
                Err(error)
            }
        })?;
        self.counters.add_log_bytes(log.len() - log_bytes);
        if syncs_first {
            // What is appended is not to be taken back, so even a full disk ends it here.
            log.sync(self.runtime.now_micros()).inspect_err(|error| poison(self, error))?;
        }
        for batch in batches {
            self.counters.add_batch_bytes(batch.len_bytes() as u64);
            // Past the append nothing may fail: a failure here is a bug, and poisons like a failed write.
            self.apply(log, batch.sealed_bytes()).map_err(|error| Error::internal(error.to_string()))?;
        }
        Ok(())
    }

    /// Inserts a payload into the memtables.
    fn apply(&self, log: &mut LogState, payload: &[u8]) -> Result<()> {
        let number = log.number();
        for placed in BatchReader::new(payload)? {
            let placed = placed?;
            let target = self.written_target(&mut log.targets, number, placed.tree)?;
            match target.tree.external_tree.get() {
                Some(external_tree) => self.apply_to(&**external_tree, &placed)?,
                None => placed.operation.insert_into(&target.logged.memtable, placed.sequence),
            }
        }
        self.count_growth(&mut log.targets);
        Ok(())
    }
}

impl StoreInner {
    /// Hands a write to the keeper of its tree.
    fn apply_to(&self, external_tree: &dyn ExternalTree, placed: &PlacedOperation<'_>) -> Result<()> {
        let Operation::Entry { kind, key, value } = placed.operation else {
            return Err(Error::internal(format!("a range of the kept tree {} is deleted", placed.tree)));
        };
        let trailer = Trailer::new(placed.sequence, kind);
        external_tree.apply(ExternalWrite { key, trailer, value }, &|| self.snapshots.oldest())
    }
}

impl Operation<'_> {
    /// Inserts the operation into its tree's memtable.
    pub(super) fn insert_into(&self, memtable: &Memtable, sequence: SequenceNumber) {
        match *self {
            Operation::Entry { kind, key, value } => {
                memtable.insert(key, Trailer::new(sequence, kind), value);
            }
            Operation::RangeDelete { start, end } => memtable.delete_range(start, end, sequence),
        }
    }
}

/// Fails where so many sequence numbers from `first` on are more than there are.
pub(super) fn check_sequences(first: SequenceNumber, count: u64) -> Result<()> {
    if first.saturating_add(count) > MAX_SEQUENCE {
        return Err(Error::limit_exceeded("the sequence number", first, MAX_SEQUENCE));
    }
    Ok(())
}

/// A group while it is written.
struct Group {
    results: Vec<Result<SequenceNumber>>,
    /// Batches that wait for the next append, with the positions of their requests.
    prepared: Vec<(usize, StoreBatch)>,
    /// Sequence numbers that the prepared batches take.
    sequences: u64,
    /// A keeper makes durable at once what it is handed: the log goes first.
    syncs_first: bool,
}

impl Group {
    fn new(requests: usize) -> Self {
        let results = (0..requests).map(|_| Err(Error::internal("a batch was not committed"))).collect();
        Self { results, prepared: Vec::with_capacity(requests), sequences: 0, syncs_first: false }
    }
}

enum Joined {
    Leads(Request),
    Queued(Arc<Ticket>),
}

impl CommitQueue {
    /// Takes along who waits, up to a size.
    fn take_group(&self) -> Vec<Arc<Ticket>> {
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
            None => queue.led = false,
        }
    }
}

/// Poisons the store when it is dropped armed: amid a panic.
struct PoisonOnPanic<'a> {
    store: &'a StoreInner,
    armed: bool,
}

impl Drop for PoisonOnPanic<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.armed {
            poison(
                self.store,
                &Error::internal("a thread panicked while it wrote to the log or to the manifest"),
            );
        }
    }
}

/// Hands the lead on when dropped. If the leader panics, its followers are told and the store poisoned.
pub(super) struct Lead<'a> {
    store: &'a StoreInner,
    followers: Vec<Arc<Ticket>>,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        for ticket in self.followers.drain(..) {
            let error = Error::internal("the writer that led this commit panicked");
            poison(self.store, &error);
            ticket.finish(Err(error));
        }
        self.store.commits.hand_over();
    }
}

impl Ticket {
    fn wait(&self) -> Slot {
        let mut slot = self.slot.lock();
        while matches!(*slot, Slot::Waiting(_) | Slot::Taken) {
            self.signal.wait(&mut slot);
        }
        std::mem::replace(&mut slot, Slot::Taken)
    }

    fn len_bytes(&self) -> usize {
        match &*self.slot.lock() {
            Slot::Waiting(request) => request.batch.len_bytes(),
            _ => 0,
        }
    }

    fn take(&self) -> Option<Request> {
        let mut slot = self.slot.lock();
        match std::mem::replace(&mut *slot, Slot::Taken) {
            Slot::Waiting(request) => Some(request),
            other => {
                *slot = other;
                None
            }
        }
    }

    fn promote(&self) {
        let mut slot = self.slot.lock();
        if let Slot::Waiting(request) = std::mem::replace(&mut *slot, Slot::Taken) {
            *slot = Slot::Promoted(request);
        }
        self.signal.notify_one();
    }

    fn finish(&self, result: Result<SequenceNumber>) {
        *self.slot.lock() = Slot::Done(result);
        self.signal.notify_one();
    }
}
