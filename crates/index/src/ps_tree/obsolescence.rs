//! What the tree asks before it removes an entry.

use bolide_base::SequenceNumber;

use crate::validation::Verdict;

/// Knows which entries are obsolete, and is told which are gone: the version table of the index, mostly
/// (Perseid §4.3).
pub trait Obsolescence: Send + Sync {
    /// [`Obsolete`](Verdict::Obsolete) if the write of `primary_key` at `sequence` was replaced or deleted by a write
    /// at or below `oldest_in_use`: then no reader there is, and none to come, takes the entry for current, and
    /// it may be removed. Any other answer keeps it.
    ///
    /// Called under locks of the tree, for every entry of a page that is rewritten: it has to be quick, and must not
    /// call the tree.
    fn verdict(&self, primary_key: &[u8], sequence: SequenceNumber, oldest_in_use: SequenceNumber)
    -> Verdict;

    /// A [`verdict`](Self::verdict) on an entry of `primary_key` will be asked for soon: memory may be asked for ahead, so that
    /// the verdicts on the entries of a page wait for it together. Does nothing where it is not made.
    fn expect(&self, primary_key: &[u8]) {
        let _ = primary_key;
    }

    /// False while no entry can be obsolete: [`verdict`](Self::verdict) is then not asked. Asked once a rewrite.
    fn expects_obsolete(&self) -> bool {
        true
    }

    /// An entry is gone. `flagged` says that it had been flagged as obsolete before; whoever flagged it has been told
    /// so. Called once for each removed entry, after its removal is durable where the region has that; a crash
    /// in between leaves it uncalled.
    fn removed(&self, primary_key: &[u8], sequence: SequenceNumber, flagged: bool);
}

/// Removes nothing but what was flagged.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeepAll;

impl Obsolescence for KeepAll {
    fn verdict(&self, _: &[u8], _: SequenceNumber, _: SequenceNumber) -> Verdict {
        Verdict::Unknown
    }

    fn expects_obsolete(&self) -> bool {
        false
    }

    fn removed(&self, _: &[u8], _: SequenceNumber, _: bool) {}
}
