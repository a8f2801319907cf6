//! How far the making of an index is, shared by its builder, writers and queries.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bolide_base::{Error, SequenceNumber};
use parking_lot::Mutex;

use crate::catalog::IndexState;

/// How far the making of an index is.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Complete for every view at or after this sequence number; `u64::MAX` while it is being built.
    complete_since: AtomicU64,
    /// Set when the index is dropped: a builder stops.
    cancelled: AtomicBool,
    /// Why the last attempt to build it failed.
    problem: Mutex<Option<Error>>,
}

impl Progress {
    pub(crate) fn building() -> Self {
        Self::complete_since(u64::MAX)
    }

    pub(crate) fn complete_since(sequence: SequenceNumber) -> Self {
        Self {
            complete_since: AtomicU64::new(sequence),
            cancelled: AtomicBool::new(false),
            problem: Mutex::new(None),
        }
    }

    pub(crate) fn state(&self) -> IndexState {
        match self.complete_since.load(Ordering::Acquire) {
            u64::MAX => IndexState::Building,
            _ => IndexState::Ready,
        }
    }

    /// Whether a view at `sequence` finds everything in the index.
    #[inline]
    pub(crate) fn serves(&self, sequence: SequenceNumber) -> bool {
        self.complete_since.load(Ordering::Acquire) <= sequence
    }

    pub(crate) fn publish(&self, since: SequenceNumber) {
        *self.problem.lock() = None;
        self.complete_since.store(since, Ordering::Release);
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    pub(crate) fn fail(&self, problem: Error) {
        *self.problem.lock() = Some(problem);
    }

    pub(crate) fn problem(&self) -> Option<Error> {
        self.problem.lock().clone()
    }
}
