//! The delay of a spill after failures: it doubles with each of them, so that other work of the store goes on.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bolide_base::Result;

/// The delay after the first failure: longer than the pause of all work after a failure, so that other jobs run before.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// The number of times that the delay doubles.
const MAX_DOUBLINGS: u32 = 5;

/// The failures of the spills of a tree since the last complete one.
#[derive(Debug, Default)]
pub(in crate::store) struct SpillFailures {
    count: AtomicU32,
    retry_at_micros: AtomicU64,
}

impl SpillFailures {
    /// Whether the last spill failed.
    pub(in crate::store) fn are_there(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Whether the next spill has to wait.
    pub(in crate::store) fn delay_at(&self, now_micros: u64) -> bool {
        self.are_there() && now_micros < self.retry_at_micros.load(Ordering::Acquire)
    }

    /// Notes the outcome of a spill. One spill of a tree runs at a time.
    pub(in crate::store) fn note(&self, spilled: &Result<()>, now_micros: u64) {
        if spilled.is_ok() {
            return self.count.store(0, Ordering::Release);
        }
        let doublings = self.count.fetch_add(1, Ordering::AcqRel).min(MAX_DOUBLINGS);
        let delay = FIRST_DELAY.as_micros() as u64;
        self.retry_at_micros.store(now_micros.saturating_add(delay << doublings), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use bolide_base::Error;

    use super::*;

    #[test]
    fn the_delay_doubles_with_each_failure_up_to_a_limit() {
        let (failures, second) = (SpillFailures::default(), 1_000_000);
        assert!(!failures.delay_at(0));
        for delay in [1, 2, 4, 8, 16, 32, 32, 32] {
            failures.note(&Err(Error::internal("full")), 7);
            assert!(failures.are_there() && failures.delay_at(6 + delay * second));
            assert!(!failures.delay_at(7 + delay * second));
        }
        failures.note(&Ok(()), 7);
        assert!(!failures.are_there() && !failures.delay_at(7));
        failures.note(&Err(Error::internal("full")), 7);
        assert!(!failures.delay_at(7 + second), "the first delay again");
    }
}
