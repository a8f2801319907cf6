//! A window of candidates that are validated or fetched together and emitted in order.

use bolide_base::SequenceNumber;
use bolide_lsm::store::KnownWrite;

use crate::candidate::{Candidate, CandidateOrigin};
use crate::in_sstable::matches::MAX_COPIED_RECORD_BYTES;

/// Candidates of the first window; fewer with a smaller limit.
const FIRST_WINDOW: usize = 64;
/// Initial capacity for candidates.
const INITIAL_CAPACITY: usize = 16;
/// Initial capacity for their bytes.
const INITIAL_BYTES: usize = 512;
/// Maximum candidates of a window.
const MAX_WINDOW: usize = 4096;

/// Candidates that are resolved together.
pub(super) struct CandidateWindow<V> {
    pub(super) candidates: Vec<WindowCandidate>,
    /// For each candidate: primary key, order value, included attributes, and the record if the index returned it.
    bytes: Vec<u8>,
    /// The states of the candidates, in their order.
    pub(super) states: Vec<CandidateState<V>>,
    /// Candidates at which the window is full.
    pub(super) size: usize,
    /// Of a resolved window, the next candidate to emit; `None` while the window is filled.
    next: Option<usize>,
}

/// A candidate of a window; its bytes start at the end of the previous one.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowCandidate {
    pub(super) sequence: SequenceNumber,
    pub(super) repeated: bool,
    pub(super) flags: CandidateFlags,
    pub(super) newer_runs: Option<u32>,
    pub(super) has_record: bool,
    pub(super) validated: bool,
    checked: bool,
    key_end: usize,
    value_end: usize,
    included_end: usize,
    end: usize,
}

/// The needs of a candidate.
#[derive(Debug, Clone, Copy)]
pub(super) struct CandidateFlags {
    /// Its record is needed.
    pub(super) needs_record: bool,
    /// Its order value is the one under which it is emitted.
    pub(super) has_order_value: bool,
    /// It may have several order values: its record determines the one under which it is emitted.
    pub(super) is_multi_valued: bool,
}

/// The state of a candidate of a resolved window.
pub(super) enum CandidateState<V> {
    /// Replaced or deleted.
    Obsolete,
    /// Current, with its record if records are fetched.
    Current(Option<V>),
    /// Current; the index returned its record.
    CurrentWithRecord,
    /// Still to be fetched, alone.
    Pending,
}

impl<V> CandidateWindow<V> {
    pub(super) fn new() -> Self {
        Self { candidates: Vec::new(), bytes: Vec::new(), states: Vec::new(), size: FIRST_WINDOW, next: None }
    }

    pub(super) fn push(&mut self, candidate: &Candidate<'_>, flags: CandidateFlags) {
        if self.candidates.capacity() == 0 {
            self.candidates.reserve(INITIAL_CAPACITY);
            self.bytes.reserve(INITIAL_BYTES);
        }
        self.bytes.extend_from_slice(candidate.primary_key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(candidate.order_value);
        let value_end = self.bytes.len();
        self.bytes.extend_from_slice(candidate.included);
        let included_end = self.bytes.len();
        // The window copies records; longer ones are fetched again.
        let is_short = |record: &&[u8]| record.len() <= MAX_COPIED_RECORD_BYTES;
        let record = candidate.origin.record.filter(|_| flags.needs_record).filter(is_short);
        self.bytes.extend_from_slice(record.unwrap_or_default());
        self.candidates.push(WindowCandidate {
            sequence: candidate.sequence,
            repeated: candidate.repeated,
            flags,
            newer_runs: candidate.origin.newer_runs,
            has_record: record.is_some(),
            validated: candidate.origin.validated,
            checked: candidate.origin.checked,
            key_end,
            value_end,
            included_end,
            end: self.bytes.len(),
        });
    }

    /// Bytes of the candidates, without their fetched records.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.candidates.capacity() * size_of::<WindowCandidate>()
            + self.states.capacity() * size_of::<CandidateState<V>>()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.candidates.is_empty()
    }

    /// The offset of the bytes of the candidate at `position`.
    #[inline]
    fn start(&self, position: usize) -> usize {
        let before = position.checked_sub(1).and_then(|before| self.candidates.get(before));
        before.map_or(0, |before| before.end)
    }

    /// The primary key of the candidate at `position`. Sorts compare keys, so it reads nothing else.
    #[inline]
    pub(super) fn key(&self, position: usize) -> &[u8] {
        let end = self.candidates.get(position).map_or(0, |candidate| candidate.key_end);
        self.bytes.get(self.start(position)..end).unwrap_or_default()
    }

    /// The write of the candidate at `position`.
    #[inline]
    pub(super) fn write(&self, position: usize) -> KnownWrite<'_> {
        let sequence = self.candidates.get(position).map_or(0, |candidate| candidate.sequence);
        KnownWrite { key: self.key(position), sequence }
    }

    /// The candidate at `position`, which must exist.
    #[inline]
    pub(super) fn candidate(&self, position: usize) -> Candidate<'_> {
        let start = self.start(position);
        let bytes = |start: usize, end: usize| self.bytes.get(start..end).unwrap_or_default();
        match self.candidates.get(position) {
            Some(entry) => Candidate {
                primary_key: bytes(start, entry.key_end),
                sequence: entry.sequence,
                order_value: bytes(entry.key_end, entry.value_end),
                repeated: entry.repeated,
                included: bytes(entry.value_end, entry.included_end),
                origin: CandidateOrigin {
                    validated: entry.validated,
                    newer_runs: entry.newer_runs,
                    record: entry.has_record.then(|| bytes(entry.included_end, entry.end)),
                    checked: entry.checked,
                },
            },
            None => Candidate {
                primary_key: &[],
                sequence: 0,
                order_value: &[],
                repeated: false,
                included: &[],
                origin: CandidateOrigin::default(),
            },
        }
    }

    /// The positions in lookup order: sorted by key if the window is large.
    pub(super) fn lookup_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.candidates.len()).collect();
        if order.len() > FIRST_WINDOW {
            order.sort_unstable_by(|&left, &right| self.key(left).cmp(self.key(right)));
        }
        order
    }

    /// Sets the state of the validated candidate at `position`, which needs no fetch.
    pub(super) fn set_validated(&mut self, position: usize, is_current: bool) {
        let has_record = self.candidates.get(position).is_some_and(|candidate| candidate.has_record);
        let state = match (is_current, has_record) {
            (false, _) => CandidateState::Obsolete,
            (true, true) => CandidateState::CurrentWithRecord,
            (true, false) => CandidateState::Current(None),
        };
        self.set_state(position, state);
    }

    pub(super) fn set_state(&mut self, position: usize, state: CandidateState<V>) {
        if let Some(slot) = self.states.get_mut(position) {
            *slot = state;
        }
    }

    /// Starts the emission of the window, which is resolved.
    pub(super) fn start_emission(&mut self) {
        self.next = Some(0);
    }

    /// Whether candidates of the resolved window may remain to be emitted.
    #[inline]
    pub(super) fn is_emitting(&self) -> bool {
        self.next.is_some()
    }

    /// The position and the state of the next candidate of a resolved window.
    #[inline]
    pub(super) fn take_next(&mut self) -> Option<(usize, CandidateState<V>)> {
        let position = self.next?;
        let state = std::mem::replace(self.states.get_mut(position)?, CandidateState::Obsolete);
        self.next = Some(position + 1);
        Some((position, state))
    }

    /// Empties the window. If it was full the next one is twice as large, up to a bound.
    pub(super) fn restart(&mut self) {
        if self.candidates.len() >= self.size {
            self.size = (2 * self.size).min(MAX_WINDOW);
        }
        self.candidates.clear();
        self.bytes.clear();
        self.states.clear();
        self.next = None;
    }
}
