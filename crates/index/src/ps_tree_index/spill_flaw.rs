//! Planted bugs of spills, each of which a test must find. None is planted outside of the tests of this crate.

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpillFlaw {
    /// A moved entry lowers the count of its key in the version table, as a flagged one does.
    CountsMoved,
    /// Keys leave the version table that have entries above the cut.
    ForgetsKeys,
    /// Once pinned, a view of the sstables is not replaced.
    KeepsView,
    /// A spilled entry is current if its key is not in the version table.
    TrustsSpilled,
    /// The fast path ends where the entries in memory end.
    EndsInMemory,
    /// A cut divides the entries of one write of which more follow.
    SplitsWrites,
    /// The novelty filter forgets keys with entries above the cut.
    ForgetsKnown,
}

/// Whether `flaw` is planted.
#[cfg(not(test))]
#[inline(always)]
pub(super) const fn is_planted(_flaw: SpillFlaw) -> bool {
    false
}

#[cfg(test)]
pub(super) use planted::{is_planted, plant};

#[cfg(test)]
mod planted {
    use std::cell::Cell;

    use super::SpillFlaw;

    thread_local! {
        static PLANTED: Cell<Option<SpillFlaw>> = const { Cell::new(None) };
    }

    /// Whether this thread has planted `flaw`.
    pub(in super::super) fn is_planted(flaw: SpillFlaw) -> bool {
        PLANTED.get() == Some(flaw)
    }

    /// Plants `flaw` in this thread, or none.
    pub(in super::super) fn plant(flaw: Option<SpillFlaw>) {
        PLANTED.set(flaw);
    }

    impl SpillFlaw {
        pub(in super::super) const EACH: [Self; 7] = [
            Self::CountsMoved,
            Self::ForgetsKeys,
            Self::KeepsView,
            Self::TrustsSpilled,
            Self::EndsInMemory,
            Self::SplitsWrites,
            Self::ForgetsKnown,
        ];
    }
}
