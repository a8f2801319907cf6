//! A predictor of access patterns: a 2-bit saturating counter.
//!
//! Recent queries predict the next one. A correct prediction lets the reader prefetch memory while it waits for other
//! memory. Only prefetches depend on predictions, never results.
//!
//! * **Scans.** The first steps of a scan reach one run after the other and wait for memory each time. If steps forward
//!   followed the last seeks of a view, a seek prefetches all runs at once. Backward seeks are not recorded.
//! * **Gets.** A get of a key that is in no memtable waits for the memtable and then for the sstables. If the last keys
//!   that a thread read were in no memtable, a get prefetches both at once.

use std::sync::atomic::{AtomicU8, Ordering};

/// A counter between 0 and [`MAX_COUNT`]: positive outcomes minus negative outcomes, saturating.
#[derive(Debug)]
pub(crate) struct Predictor(AtomicU8);

/// The maximum of the counter.
const MAX_COUNT: u8 = 3;

impl Predictor {
    /// A predictor without outcomes; predicts `false`.
    pub(crate) const fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    /// The predicted outcome.
    #[inline]
    pub(crate) fn predicts(&self) -> bool {
        self.0.load(Ordering::Relaxed) > MAX_COUNT / 2
    }

    /// Records an outcome. Does not write if the counter is saturated, so that reader threads with equal patterns do not
    /// contend for the cache line. Concurrent outcomes may be lost.
    #[inline]
    pub(crate) fn record(&self, outcome: bool) {
        let now = self.0.load(Ordering::Relaxed);
        let then = if outcome { (now + 1).min(MAX_COUNT) } else { now.saturating_sub(1) };
        if then != now {
            self.0.store(then, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Predictor;

    #[test]
    fn the_prediction_changes_after_two_opposite_outcomes() {
        let predictor = Predictor::new();
        assert!(!predictor.predicts(), "no outcome is recorded");
        for _ in 0..10 {
            predictor.record(true);
        }
        assert!(predictor.predicts());
        predictor.record(false);
        assert!(predictor.predicts(), "one opposite outcome does not change it");
        predictor.record(false);
        assert!(!predictor.predicts());
        for _ in 0..10 {
            predictor.record(false);
        }
        predictor.record(true);
        assert!(!predictor.predicts(), "one opposite outcome does not change it back");
        predictor.record(true);
        assert!(predictor.predicts());
    }
}
