//! Candidates that wait to be settled together, in order.

use bolide_base::SequenceNumber;
use bolide_lsm::store::KnownWrite;

use crate::candidate::{Candidate, CandidateOrigin};
use crate::in_sstable::matches::MAX_IN_HAND_BYTES;

/// Candidates of a window at first, where the limit does not say less.
const FIRST_WINDOW: usize = 64;
/// Room for so many candidates is taken at once.
const FIRST_ROOM: usize = 16;
/// The same in bytes.
const FIRST_ROOM_BYTES: usize = 512;
/// Candidates of a window at most.
const LARGEST_WINDOW: usize = 4096;

/// Candidates that are settled together.
pub(super) struct Window<V> {
    pub(super) candidates: Vec<Waiting>,
    /// Of each the primary key, the value for the order, what its entry includes, and its record if that came
    /// with it.
    bytes: Vec<u8>,
    /// What became of them, in their order.
    pub(super) fates: Vec<Fate<V>>,
    /// Candidates to wait for.
    pub(super) size: usize,
}

/// A candidate of a window; its bytes start where those of the one before end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub(super) sequence: SequenceNumber,
    pub(super) repeated: bool,
    pub(super) turn: Turn,
    pub(super) newer_runs: Option<u32>,
    pub(super) has_record: bool,
    pub(super) validated: bool,
    checked: bool,
    key_end: usize,
    value_end: usize,
    included_end: usize,
    end: usize,
}

/// What is to be done when the turn of a candidate comes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    /// Its record is needed.
    pub(super) needs_record: bool,
    /// The value that it came with is the one at which it stands.
    pub(super) knows_value: bool,
    /// Its record says at which value it stands.
    pub(super) several: bool,
}

/// What is known about a candidate once its window is settled.
pub(super) enum Fate<V> {
    /// Replaced or deleted.
    Obsolete,
    /// Current, with its record if records are fetched.
    Current(Option<V>),
    /// Current; its record came with it.
    InHand,
    /// To be fetched when its turn comes.
    Later,
}

impl<V> Window<V> {
    pub(super) fn new() -> Self {
        Self { candidates: Vec::new(), bytes: Vec::new(), fates: Vec::new(), size: FIRST_WINDOW }
    }

    pub(super) fn push(&mut self, candidate: &Candidate<'_>, turn: Turn) {
        if self.candidates.capacity() == 0 {
            self.candidates.reserve(FIRST_ROOM);
            self.bytes.reserve(FIRST_ROOM_BYTES);
        }
        self.bytes.extend_from_slice(candidate.primary_key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(candidate.order_value);
        let value_end = self.bytes.len();
        self.bytes.extend_from_slice(candidate.included);
        let included_end = self.bytes.len();
        // Longer ones are fetched again: what waits is copied.
        let is_short = |record: &&[u8]| record.len() <= MAX_IN_HAND_BYTES;
        let record = candidate.origin.record.filter(|_| turn.needs_record).filter(is_short);
        self.bytes.extend_from_slice(record.unwrap_or_default());
        self.candidates.push(Waiting {
            sequence: candidate.sequence,
            repeated: candidate.repeated,
            turn,
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

    /// True if a candidate waits.
    pub(super) fn waits(&self) -> bool {
        !self.candidates.is_empty()
    }

    pub(super) fn key(&self, position: usize) -> &[u8] {
        self.candidate(position).primary_key
    }

    /// The write that the candidate at `position` stems from.
    pub(super) fn write(&self, position: usize) -> KnownWrite<'_> {
        let candidate = self.candidate(position);
        KnownWrite { key: candidate.primary_key, sequence: candidate.sequence }
    }

    /// The candidate at `position`, which there is.
    pub(super) fn candidate(&self, position: usize) -> Candidate<'_> {
        let start = position.checked_sub(1).and_then(|before| self.candidates.get(before));
        let start = start.map_or(0, |before| before.end);
        let bytes = |start: usize, end: usize| self.bytes.get(start..end).unwrap_or_default();
        match self.candidates.get(position) {
            Some(waiting) => Candidate {
                primary_key: bytes(start, waiting.key_end),
                sequence: waiting.sequence,
                order_value: bytes(waiting.key_end, waiting.value_end),
                repeated: waiting.repeated,
                included: bytes(waiting.value_end, waiting.included_end),
                origin: CandidateOrigin {
                    validated: waiting.validated,
                    newer_runs: waiting.newer_runs,
                    record: waiting.has_record.then(|| bytes(waiting.included_end, waiting.end)),
                    checked: waiting.checked,
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

    /// The positions in the order in which keys are looked up.
    pub(super) fn lookup_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.candidates.len()).collect();
        if order.len() > FIRST_WINDOW {
            order.sort_unstable_by(|&left, &right| self.key(left).cmp(self.key(right)));
        }
        order
    }

    /// Settles the candidate at `position`, which came with all that is wanted.
    pub(super) fn settle_in_hand(&mut self, position: usize, is_current: bool) {
        let has_record = self.candidates.get(position).is_some_and(|waiting| waiting.has_record);
        let fate = match (is_current, has_record) {
            (false, _) => Fate::Obsolete,
            (true, true) => Fate::InHand,
            (true, false) => Fate::Current(None),
        };
        self.set_fate(position, fate);
    }

    pub(super) fn set_fate(&mut self, position: usize, fate: Fate<V>) {
        if let Some(place) = self.fates.get_mut(position) {
            *place = fate;
        }
    }

    /// Empties the window; the next one may be larger.
    pub(super) fn restart(&mut self) {
        if self.candidates.len() >= self.size {
            self.size = (2 * self.size).min(LARGEST_WINDOW);
        }
        self.candidates.clear();
        self.bytes.clear();
        self.fates.clear();
    }
}
