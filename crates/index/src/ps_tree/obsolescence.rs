//! The interface between the tree and the source of obsolescence.

use bolide_base::SequenceNumber;

use crate::validation::Verdict;

/// Decides which entries are obsolete, and is notified of removals: usually the version table of the index
/// (Perseid §4.3).
pub trait Obsolescence: Send + Sync {
    /// [`Obsolete`](Verdict::Obsolete) if the write of `primary_key` at `sequence` was replaced or deleted by a write
    /// at or below `oldest_in_use`: no present or future reader takes the entry for current, and it may be removed.
    /// With any other verdict the entry stays.
    ///
    /// Called under locks of the tree, for every entry of a page that is rewritten. It must be fast and must not call the
    /// tree.
    fn verdict(&self, primary_key: &[u8], sequence: SequenceNumber, oldest_in_use: SequenceNumber)
    -> Verdict;

    /// Prefetches memory for a [`verdict`](Self::verdict) on an entry of `primary_key`, so that the verdicts on the entries
    /// of a page wait for memory once. The default does nothing.
    fn prefetch(&self, primary_key: &[u8]) {
        let _ = primary_key;
    }

    /// False if no entry is obsolete: [`verdict`](Self::verdict) is then not called. Called once per rewrite.
    fn may_have_obsolete(&self) -> bool {
        true
    }

    /// An entry was removed. `flagged`: it had been flagged as obsolete, and the flag was counted before. Called once per
    /// removed entry, after the removal is durable in a durable region. A crash in between skips the call.
    fn removed(&self, primary_key: &[u8], sequence: SequenceNumber, flagged: bool);
}

/// Removes only flagged entries.
#[derive(Debug, Clone, Copy, Default)]
pub struct RetainAll;

impl Obsolescence for RetainAll {
    fn verdict(&self, _: &[u8], _: SequenceNumber, _: SequenceNumber) -> Verdict {
        Verdict::Unknown
    }

    fn may_have_obsolete(&self) -> bool {
        false
    }

    fn removed(&self, _: &[u8], _: SequenceNumber, _: bool) {}
}
