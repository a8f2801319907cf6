//! Candidates with a planted bug.

use std::collections::VecDeque;

use bolide::{Order, Result, SequenceNumber};
use bolide_index::{Candidate, CandidateCursor, CandidateOrigin, TreeSource};

use super::{Flaw, PAUSES};

/// An owned copy of a candidate.
#[derive(Debug, Clone)]
struct OwnedCandidate {
    primary_key: Vec<u8>,
    sequence: SequenceNumber,
    order_value: Vec<u8>,
    repeated: bool,
    included: Vec<u8>,
    newer_runs: Option<u32>,
    record: Option<Vec<u8>>,
    checked: bool,
}

impl OwnedCandidate {
    fn of(candidate: &Candidate<'_>) -> Self {
        Self {
            primary_key: candidate.primary_key.to_vec(),
            sequence: candidate.sequence,
            order_value: candidate.order_value.to_vec(),
            repeated: candidate.repeated,
            included: candidate.included.to_vec(),
            newer_runs: candidate.origin.newer_runs,
            record: candidate.origin.record.map(<[u8]>::to_vec),
            checked: candidate.origin.checked,
        }
    }

    fn as_candidate(&self) -> Candidate<'_> {
        let mut candidate = Candidate::new(&self.primary_key, self.sequence);
        candidate.order_value = &self.order_value;
        candidate.repeated = self.repeated;
        candidate.included = &self.included;
        candidate.origin = CandidateOrigin {
            newer_runs: self.newer_runs,
            record: self.record.as_deref(),
            checked: self.checked,
            ..CandidateOrigin::default()
        };
        candidate
    }
}

/// The candidates of a query with a planted bug.
pub(super) struct FlawedCursor<'v, T> {
    inner: Box<dyn CandidateCursor + 'v>,
    flaw: Flaw,
    /// The order of the query.
    query_order: Order,
    /// The tree of the records.
    table: T,
    /// Candidates read from `inner` and altered, but not yet returned.
    pending: VecDeque<OwnedCandidate>,
    /// The candidate that the caller borrows.
    current: Option<OwnedCandidate>,
    /// The last candidate as read from `inner`.
    previous: Option<OwnedCandidate>,
    /// The pauses before the cursor was opened.
    pauses: u64,
}

impl<'v, T: TreeSource> FlawedCursor<'v, T> {
    pub(super) fn new(
        inner: Box<dyn CandidateCursor + 'v>,
        flaw: Flaw,
        query_order: Order,
        table: T,
    ) -> Self {
        let (pending, pauses) = (VecDeque::new(), PAUSES.get());
        Self { inner, flaw, query_order, table, pending, current: None, previous: None, pauses }
    }

    fn read(&mut self) -> Result<Option<OwnedCandidate>> {
        Ok(self.inner.next()?.map(|candidate| OwnedCandidate::of(&candidate)))
    }

    /// Reads from `inner` until a candidate is pending or `inner` is exhausted.
    fn fill_pending(&mut self) -> Result<()> {
        let is_first = self.previous.is_none();
        let Some(mut next) = self.read()? else {
            if self.flaw == Flaw::DropsLast {
                self.pending.clear();
            }
            return Ok(());
        };
        let previous = self.previous.replace(next.clone()).unwrap_or_else(|| next.clone());
        match self.flaw {
            Flaw::DropsFirst if is_first => return self.fill_pending(),
            Flaw::DropsKey if next.primary_key.ends_with(b"b") => return self.fill_pending(),
            Flaw::DropsLast if is_first => {
                self.pending.push_back(next);
                return self.fill_pending();
            }
            Flaw::Repeats => {
                next.repeated = false;
                self.pending.push_back(next.clone());
            }
            Flaw::SwapsNeighbours if self.inner.order().is_some() => {
                if let Some(neighbour) = self.read()? {
                    self.pending.push_back(neighbour);
                }
            }
            Flaw::WrongSequence => next.sequence = next.sequence.saturating_sub(1),
            Flaw::Resurrects => {
                let newest = self.table.newest_sequence(&next.primary_key)?;
                next.sequence = newest.unwrap_or(next.sequence);
            }
            Flaw::WrongValue => next.order_value = previous.order_value,
            Flaw::WrongIncluded => next.included = previous.included,
            _ => {}
        }
        self.pending.push_back(next);
        Ok(())
    }
}

impl<T: TreeSource + Send> CandidateCursor for FlawedCursor<'_, T> {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        if self.flaw == Flaw::EndsAtPause && self.pauses != PAUSES.get() {
            return Ok(None);
        }
        // One candidate stays pending, so that the last one can be dropped.
        let enough = if self.flaw == Flaw::DropsLast { 2 } else { 1 };
        if self.pending.len() < enough {
            self.fill_pending()?;
        }
        self.current = self.pending.pop_front();
        Ok(self.current.as_ref().map(OwnedCandidate::as_candidate))
    }

    fn sequence_bound(&self) -> SequenceNumber {
        if self.flaw == Flaw::BoundTooLow {
            return 0;
        }
        let pending = self.pending.iter().map(|candidate| candidate.sequence).max();
        self.inner.sequence_bound().max(pending.unwrap_or(0))
    }

    fn order(&self) -> Option<Order> {
        if self.flaw == Flaw::ClaimsOrder { Some(self.query_order) } else { self.inner.order() }
    }
}
