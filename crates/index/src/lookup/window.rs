//! Candidates that wait to be settled together, in order.

use bolide_base::SequenceNumber;

/// Candidates of a window at first, where the limit does not say less.
const FIRST_WINDOW: usize = 64;
/// Candidates of a window at most.
const LARGEST_WINDOW: usize = 4096;

/// Candidates that are settled together.
pub(super) struct Window<V> {
    pub(super) candidates: Vec<Waiting>,
    /// Their primary keys.
    bytes: Vec<u8>,
    /// What became of them, in their order.
    pub(super) fates: Vec<Fate<V>>,
    /// Candidates to wait for.
    pub(super) size: usize,
}

/// A candidate of a window; its key ends at `key_end` and starts where that of the one before ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub(super) sequence: SequenceNumber,
    pub(super) repeated: bool,
    key_end: usize,
}

/// What is known about a candidate once its window is settled.
pub(super) enum Fate<V> {
    /// Replaced or deleted.
    Obsolete,
    /// Current, with its record if records are fetched.
    Current(Option<V>),
    /// To be fetched when its turn comes.
    Later,
}

impl<V> Window<V> {
    pub(super) fn new() -> Self {
        Self { candidates: Vec::new(), bytes: Vec::new(), fates: Vec::new(), size: FIRST_WINDOW }
    }

    pub(super) fn push(&mut self, primary_key: &[u8], sequence: SequenceNumber, repeated: bool) {
        self.bytes.extend_from_slice(primary_key);
        self.candidates.push(Waiting { sequence, repeated, key_end: self.bytes.len() });
    }

    pub(super) fn key(&self, position: usize) -> &[u8] {
        let start = position.checked_sub(1).and_then(|before| self.candidates.get(before));
        let start = start.map_or(0, |before| before.key_end);
        let end = self.candidates.get(position).map_or(start, |candidate| candidate.key_end);
        self.bytes.get(start..end).unwrap_or_default()
    }

    /// The positions in the order in which keys are looked up.
    pub(super) fn lookup_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.candidates.len()).collect();
        if order.len() > FIRST_WINDOW {
            order.sort_unstable_by(|&left, &right| self.key(left).cmp(self.key(right)));
        }
        order
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
