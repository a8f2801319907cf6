//! The position of a query among its answers.

use bolide_base::SequenceNumber;

use crate::cursor_token::CursorToken;
use crate::query::Query;

/// The answers of a query so far: their number, and the position of the last one.
#[derive(Debug, Clone, Default)]
pub struct AnswerProgress {
    limit: u64,
    answers: u64,
    /// The sequence number of the last answer.
    last: Option<SequenceNumber>,
    /// The value of the last answer in a value order; else empty.
    value: Vec<u8>,
    exhausted: bool,
}

impl AnswerProgress {
    /// No answers yet, of at most `limit`.
    #[inline]
    pub fn new(limit: usize) -> Self {
        Self { limit: limit as u64, ..Self::default() }
    }

    /// The number of answers.
    #[inline]
    pub fn answers(&self) -> u64 {
        self.answers
    }

    /// The number of answers that are still wanted.
    #[inline]
    pub(super) fn wanted(&self) -> usize {
        self.limit.saturating_sub(self.answers).try_into().unwrap_or(usize::MAX)
    }

    /// Whether the limit is reached.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.answers >= self.limit
    }

    /// Counts an answer.
    #[inline]
    pub(super) fn count(&mut self) {
        self.answers += 1;
    }

    /// Sets the position of the last answer; `value` is empty unless it determines the order.
    #[inline]
    pub(super) fn set_last(&mut self, value: &[u8], sequence: SequenceNumber) {
        self.value.clear();
        self.value.extend_from_slice(value);
        self.last = Some(sequence);
    }

    /// Marks that no answers follow.
    #[inline]
    pub(super) fn set_exhausted(&mut self) {
        self.exhausted = true;
    }

    /// The token with which `query` continues after the last answer; `snapshot` is the sequence number of its snapshot, if
    /// it has one. `None` without an answer, and if no answers follow.
    pub fn token(&self, query: &Query, snapshot: Option<SequenceNumber>) -> Option<CursorToken> {
        let sequence = self.last.filter(|_| !self.exhausted)?;
        Some(CursorToken { query: query.fingerprint(), snapshot, sequence, value: self.value.clone() })
    }
}
