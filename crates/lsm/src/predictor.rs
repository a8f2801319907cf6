//! What readers are taken for by what those before them did.
//!
//! Who knows what comes next can ask the processor for it while something else is waited for. A question does not say what it
//! comes to, but those of one kind are alike: what the last ones came to, the next one is taken to come to. It is a guess, and
//! only hints to the processor depend on it.
//!
//! * **Scans.** A scan meets one run after the other in its first steps, and waits for each of them. Where steps followed the
//!   last seeks of a view, a seek asks for all of them at once. Seeks to go back from tell nothing.
//! * **Gets.** A key that is in no memtable is waited for twice, there and in the sstables. Where the last keys that a thread asked for were
//!   such, both are asked for at once.

use std::sync::atomic::{AtomicU8, Ordering};

/// How often it was so, less how often it was not, between 0 and [`SURE`].
#[derive(Debug)]
pub(crate) struct Predictor(AtomicU8);

/// Where counting stops: so many of one kind are forgotten by as many of the other.
const SURE: u8 = 3;

impl Predictor {
    /// Of whom nothing is known.
    pub(crate) const fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    /// True if it will probably be so again.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        self.0.load(Ordering::Relaxed) > SURE / 2
    }

    /// Notes whether it was so. Writes nothing where that is what is known, so that readers who are
    /// alike do not disturb each other; a note that another thread's overtakes is lost.
    #[inline]
    pub(crate) fn note(&self, was_so: bool) {
        let now = self.0.load(Ordering::Relaxed);
        let then = if was_so { (now + 1).min(SURE) } else { now.saturating_sub(1) };
        if then != now {
            self.0.store(then, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Predictor;

    #[test]
    fn what_the_last_readers_did_is_the_habit() {
        let predictor = Predictor::new();
        assert!(!predictor.holds(), "nothing is known yet");
        for _ in 0..10 {
            predictor.note(true);
        }
        assert!(predictor.holds());
        predictor.note(false);
        assert!(predictor.holds(), "one of the other kind does not change it");
        predictor.note(false);
        assert!(!predictor.holds());
        for _ in 0..10 {
            predictor.note(false);
        }
        predictor.note(true);
        assert!(!predictor.holds(), "nor back");
        predictor.note(true);
        assert!(predictor.holds());
    }
}
