//! What readers of a view do behind a seek.
//!
//! A scan meets one run after the other in its first steps, and waits for each of them. One who knows that it is a scan
//! can ask for all of them at once while the seek waits for its own entry. A seek does not say what follows it, but
//! readers of one view are alike: what the last ones did, the next one is taken to do. Seeks to go back from tell nothing.

use std::sync::atomic::{AtomicU8, Ordering};

/// The last seeks of a view that steps forward followed, less those that none followed, between 0 and [`SURE`].
#[derive(Debug, Default)]
pub(super) struct Habit(AtomicU8);

/// Where counting stops: so many seeks without steps are forgotten by as many scans.
const SURE: u8 = 3;

impl Habit {
    /// True if a seek is probably the start of a scan.
    #[inline]
    pub(super) fn is_to_scan(&self) -> bool {
        self.0.load(Ordering::Relaxed) > SURE / 2
    }

    /// Notes whether steps forward followed a seek. Writes nothing where that is what is known, so that readers who are
    /// alike do not disturb each other; a note that another thread's overtakes is lost.
    #[inline]
    pub(super) fn note(&self, stepped: bool) {
        let now = self.0.load(Ordering::Relaxed);
        let then = if stepped { (now + 1).min(SURE) } else { now.saturating_sub(1) };
        if then != now {
            self.0.store(then, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Habit;

    #[test]
    fn what_the_last_readers_did_is_the_habit() {
        let habit = Habit::default();
        assert!(!habit.is_to_scan(), "nothing is known yet");
        for _ in 0..10 {
            habit.note(true);
        }
        assert!(habit.is_to_scan());
        habit.note(false);
        assert!(habit.is_to_scan(), "one seek alone does not change it");
        habit.note(false);
        assert!(!habit.is_to_scan());
        for _ in 0..10 {
            habit.note(false);
        }
        habit.note(true);
        assert!(!habit.is_to_scan(), "nor does one scan");
        habit.note(true);
        assert!(habit.is_to_scan());
    }
}
