//! Pauses in the writes to a tree.

use bolide_base::SequenceNumber;

/// A pause counts once it has lasted so long.
const PAUSE_MICROS: u64 = 200_000;

/// A tree that is watched until nothing is written to it for a while.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct IdleDetector {
    /// The last sequence number that was written to it when the watch began.
    sequence: SequenceNumber,
    /// When that was; 0 before the first look.
    since_micros: u64,
}

impl IdleDetector {
    /// Whether writes to a tree, the newest of which is `newest`, pause at `now_micros`: for a while its numbers have not moved
    /// on by more than `few`.
    pub(super) fn has_lasted(&mut self, newest: SequenceNumber, few: u64, now_micros: u64) -> bool {
        if self.since_micros == 0 || newest.abs_diff(self.sequence) > few {
            *self = Self { sequence: newest, since_micros: now_micros.max(1) };
        }
        now_micros.saturating_sub(self.since_micros) >= PAUSE_MICROS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_has_to_last_and_begins_anew_with_writes() {
        let mut idle = IdleDetector::default();
        assert!(!idle.has_lasted(5, 0, 1_000));
        assert!(!idle.has_lasted(5, 0, PAUSE_MICROS));
        assert!(!idle.has_lasted(6, 0, 1_000 + PAUSE_MICROS));
        assert!(!idle.has_lasted(6, 0, 999 + 2 * PAUSE_MICROS));
        assert!(idle.has_lasted(6, 0, 1_000 + 2 * PAUSE_MICROS));
        assert!(!idle.has_lasted(7, 0, 2_000 + 2 * PAUSE_MICROS));
    }

    #[test]
    fn a_few_writes_are_a_pause_too() {
        let mut idle = IdleDetector::default();
        assert!(!idle.has_lasted(5, 10, 1_000));
        assert!(idle.has_lasted(15, 10, 1_000 + PAUSE_MICROS));
        assert!(!idle.has_lasted(16, 10, 2_000 + PAUSE_MICROS));
    }
}
