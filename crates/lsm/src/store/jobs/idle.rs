//! Idle detection for the writes to a tree.

use bolide_base::SequenceNumber;

/// Duration without writes after which a tree is idle, in microseconds.
const IDLE_MICROS: u64 = 200_000;

/// Detects when the writes to a tree become idle.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::store) struct IdleDetector {
    /// The newest sequence number of the tree at the start of the interval.
    sequence: SequenceNumber,
    /// The start of the interval; 0 before the first check.
    since_micros: u64,
}

impl IdleDetector {
    /// True if writes to a tree, the newest of which is `newest`, are idle at `now_micros`: its sequence number has
    /// grown by at most `max_writes` for a while.
    pub(in crate::store) fn is_idle(
        &mut self,
        newest: SequenceNumber,
        max_writes: u64,
        now_micros: u64,
    ) -> bool {
        if self.since_micros == 0 || newest.abs_diff(self.sequence) > max_writes {
            *self = Self { sequence: newest, since_micros: now_micros.max(1) };
        }
        now_micros.saturating_sub(self.since_micros) >= IDLE_MICROS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_must_last_and_restarts_with_writes() {
        let mut idle = IdleDetector::default();
        assert!(!idle.is_idle(5, 0, 1_000));
        assert!(!idle.is_idle(5, 0, IDLE_MICROS));
        assert!(!idle.is_idle(6, 0, 1_000 + IDLE_MICROS));
        assert!(!idle.is_idle(6, 0, 999 + 2 * IDLE_MICROS));
        assert!(idle.is_idle(6, 0, 1_000 + 2 * IDLE_MICROS));
        assert!(!idle.is_idle(7, 0, 2_000 + 2 * IDLE_MICROS));
    }

    #[test]
    fn a_few_writes_count_as_idle() {
        let mut idle = IdleDetector::default();
        assert!(!idle.is_idle(5, 10, 1_000));
        assert!(idle.is_idle(15, 10, 1_000 + IDLE_MICROS));
        assert!(!idle.is_idle(16, 10, 2_000 + IDLE_MICROS));
    }
}
