//! The queue of writers that wait for a leader.
//!
//! A writer that finds the queue without a leader leads. Otherwise it enqueues its request and sleeps until the request
//! is committed, or the writer becomes the next leader.

use std::collections::VecDeque;
use std::sync::Arc;

use bolide_base::{Error, Result, SequenceNumber};
use parking_lot::{Condvar, Mutex};

use super::CommitStage;
use crate::batch::StoreBatch;
use crate::options::SyncMode;
use crate::store::health::Health;

/// Maximum encoded bytes of a group, unless it has one batch.
const GROUP_BYTES: usize = 1 << 20;

/// A batch to be committed.
pub(super) struct CommitRequest {
    pub(super) batch: StoreBatch,
    pub(super) stage: Option<Box<dyn CommitStage>>,
    pub(super) sync: SyncMode,
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
pub(super) struct CommitTicket {
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

/// The role of a writer in the queue.
pub(super) enum QueueRole {
    /// It leads with its own request, and nothing else waits.
    Leader(CommitRequest),
    /// It waited and leads now, with its own request; other writers may wait.
    Successor(CommitRequest),
    /// A leader has committed its request.
    Follower(Result<SequenceNumber>),
}

impl CommitQueue {
    /// Enters the queue. Waits until the writer leads, or its request was committed.
    pub(super) fn enter(&self, request: CommitRequest) -> QueueRole {
        let ticket = {
            let mut queue = self.state.lock();
            if !queue.has_leader {
                queue.has_leader = true;
                return QueueRole::Leader(request);
            }
            let state = Mutex::new(TicketState::Waiting(request));
            let ticket = Arc::new(CommitTicket { state, signal: Condvar::new() });
            queue.waiting.push_back(ticket.clone());
            ticket
        };
        match ticket.wait() {
            TicketState::Promoted(request) => QueueRole::Successor(request),
            TicketState::Done(result) => QueueRole::Follower(result),
            TicketState::Waiting(_) | TicketState::Empty => {
                QueueRole::Follower(Err(Error::internal("a waiting writer was woken without a result")))
            }
        }
    }

    /// Becomes the leader if there is none.
    pub(super) fn try_lead<'q>(&'q self, health: &'q Health) -> Option<CommitLeader<'q>> {
        let is_leader = !std::mem::replace(&mut self.state.lock().has_leader, true);
        is_leader.then(|| self.leadership(health))
    }

    /// The leadership of a writer whose role is that of the leader.
    pub(super) fn leadership<'q>(&'q self, health: &'q Health) -> CommitLeader<'q> {
        CommitLeader { queue: self, health, followers: Vec::new() }
    }

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

/// Leadership of the commit queue: passed on when dropped. If the leader panics, its followers fail and the handle is
/// poisoned.
pub(in crate::store) struct CommitLeader<'q> {
    queue: &'q CommitQueue,
    health: &'q Health,
    followers: Vec<Arc<CommitTicket>>,
}

impl CommitLeader<'_> {
    /// Makes waiting writers followers, and returns their requests behind `own`.
    pub(super) fn gather(&mut self, own: CommitRequest) -> Vec<CommitRequest> {
        let mut requests = Vec::with_capacity(1);
        requests.push(own);
        for ticket in self.queue.take_group() {
            requests.extend(ticket.take());
            self.followers.push(ticket);
        }
        requests
    }

    /// Wakes the followers with their results, which follow that of the leader, and returns that.
    pub(super) fn finish(mut self, mut results: Vec<Result<SequenceNumber>>) -> Result<SequenceNumber> {
        for (ticket, result) in self.followers.drain(..).zip(results.drain(1..)) {
            ticket.finish(result);
        }
        drop(self);
        results.pop().unwrap_or_else(|| Err(Error::internal("a commit group lost its leader's result")))
    }
}

impl Drop for CommitLeader<'_> {
    fn drop(&mut self) {
        for ticket in self.followers.drain(..) {
            let error = Error::internal("the leader of this commit panicked");
            self.health.poison(&error);
            ticket.finish(Err(error));
        }
        self.queue.hand_over();
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

#[cfg(test)]
mod tests {
    use super::super::super::jobs::work::WorkQueue;
    use super::*;

    fn request(key: &[u8]) -> CommitRequest {
        let mut batch = StoreBatch::new();
        batch.put(1, key, b"value").unwrap();
        CommitRequest { batch, stage: None, sync: SyncMode::None }
    }

    #[test]
    fn a_leader_commits_for_waiting_writers_and_hands_over_to_later_ones() {
        let (queue, health) = (CommitQueue::default(), Health::new(false, Arc::new(WorkQueue::new(false))));
        let mut leader = queue.try_lead(&health).unwrap();
        assert!(queue.try_lead(&health).is_none());
        let ticket = |key: &[u8]| {
            let state = Mutex::new(TicketState::Waiting(request(key)));
            let ticket = Arc::new(CommitTicket { state, signal: Condvar::new() });
            queue.state.lock().waiting.push_back(ticket.clone());
            ticket
        };
        let follower = ticket(b"b");
        assert_eq!(leader.gather(request(b"a")).len(), 2);
        let later = ticket(b"c");
        assert_eq!(leader.finish(vec![Ok(1), Ok(2)]).unwrap(), 1);
        assert!(matches!(follower.wait(), TicketState::Done(Ok(2))));
        assert!(matches!(later.wait(), TicketState::Promoted(_)));
        assert!(queue.try_lead(&health).is_none(), "the later writer leads");
        drop(queue.leadership(&health));
        assert!(queue.try_lead(&health).is_some() && health.check().is_ok());
    }

    #[test]
    fn followers_of_a_leader_without_results_fail_and_poison_the_handle() {
        let (queue, health) = (CommitQueue::default(), Health::new(false, Arc::new(WorkQueue::new(false))));
        let mut leader = queue.try_lead(&health).unwrap();
        let state = Mutex::new(TicketState::Waiting(request(b"b")));
        let follower = Arc::new(CommitTicket { state, signal: Condvar::new() });
        queue.state.lock().waiting.push_back(follower.clone());
        leader.gather(request(b"a"));
        drop(leader);
        assert!(matches!(follower.wait(), TicketState::Done(Err(_))));
        assert!(health.is_poisoned());
    }
}
