//! Neutral hook: somebody else keeps the writes of a tree.
//!
//! A tree with a keeper takes part in batches, the log and recovery like every other, but its writes go to
//! the keeper and not to memtables and sstables. What the keeper holds durably it says with each
//! [cut](ExternalCheckpoint): a state at one sequence number, in files that the manifest then names as the tree's. The
//! log is kept until then.
//!
//! ```text
//! commit     log append -> memtables of other trees, ExternalTree::apply -> publish
//! flush      ExternalTree::cut (no apply runs) -> ExternalCheckpoint::write (writers go on) -> log synced -> manifest names
//!            files and root -> ExternalCheckpoint::installed
//! close      a last cut, so that the next opening finds nothing of the tree in the log
//! open       manifest -> log replayed into memtables, as for every tree -> the layer above makes the keeper
//!            from the root -> Store::set_external_tree hands it what was replayed
//! ```
//!
//! # Invariants
//! * One thread at a time applies, in the order of the log; no cut is taken meanwhile.
//! * A root at sequence number S becomes durable only after the log was synced through S.
//! * When it is set, a keeper is handed everything above its root, and may be handed again what the root has: it passes
//!   over what is at or below the sequence number of its root.
//! * Files that a root lists never change, and go once no root in force lists them. A keeper that is durable at once has
//!   its file elsewhere, and lists none.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_base::{FileIdentity, Result, SequenceNumber, Trailer};
use bolide_storage::Vfs;

/// One write to a kept tree.
#[derive(Debug, Clone, Copy)]
pub struct ExternalWrite<'w> {
    /// The key.
    pub key: &'w [u8],
    /// The sequence number of the write, and whether it puts or deletes.
    pub trailer: Trailer,
    /// The value; empty for a delete.
    pub value: &'w [u8],
}

/// What a keeper holds durably, as the manifest names it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExternalRoot {
    /// The files that it is in, ascending.
    pub files: Vec<u64>,
    /// Where in them it is found, for the keeper to understand. At most 64 KiB.
    pub root: Vec<u8>,
}

/// What a keeper takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExternalTreeStats {
    /// Bytes in memory.
    pub memory_bytes: usize,
    /// Bytes of its files.
    pub disk_bytes: u64,
    /// Entries, obsolete ones included.
    pub entries: u64,
}

/// Keeps the writes of one tree.
pub trait ExternalTree: Send + Sync + fmt::Debug {
    /// Makes sure that writes of so many bytes, keys and values together, find room. Called before they are logged;
    /// afterwards nothing may fail for want of room.
    ///
    /// # Errors
    /// `NoSpace` or `LimitExceeded`: the batch is refused, and nothing of it is written.
    fn reserve(&self, writes: usize, bytes: usize) -> Result<()>;

    /// Takes one write. They come in the order of the log, those of one sequence number by key. `oldest_in_use`
    /// answers from which sequence number on there may be readers.
    ///
    /// # Errors
    /// An error is a bug or damage, and poisons the store.
    fn apply(&self, write: ExternalWrite<'_>, oldest_in_use: &dyn Fn() -> SequenceNumber) -> Result<()>;

    /// True if what it took is durable when [`apply`](Self::apply) returns, without a cut. Then the log is synced before it is
    /// handed a write, so that a power cut never leaves it a write that the log has lost.
    fn is_durable_at_once(&self) -> bool {
        false
    }

    /// For a keeper whose files change after a root names them: a cut of the same state, with files of its own, for a
    /// [checkpoint](crate::Store::checkpoint). `None` where the files of the root can be linked. Writers wait.
    ///
    /// # Errors
    /// `NoSpace` for want of memory.
    fn copy(&self, _sequence: SequenceNumber) -> Result<Option<Box<dyn ExternalCheckpoint + '_>>> {
        Ok(None)
    }

    /// Fixes the state as it is, with everything up to `sequence` and nothing behind it. Quick: writers wait.
    ///
    /// # Errors
    /// `NoSpace` for want of memory; the state then stays as it is.
    fn cut(&self, sequence: SequenceNumber) -> Result<Box<dyn ExternalCheckpoint + '_>>;

    /// Whether a cut is worth its while, with `logged` bytes of log held back for it.
    fn is_cut_due(&self, logged: u64) -> bool;

    /// Whether a cut is worth its while when the store is closed: the next opening reads what it writes instead of
    /// doing the log again.
    fn is_last_cut_due(&self) -> bool;

    /// Called before a cut, beside writers: the moment to collect garbage. `oldest_in_use` is as for
    /// [`apply`](Self::apply).
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    fn tidy(&self, oldest_in_use: &dyn Fn() -> SequenceNumber) -> Result<()>;

    /// The newest write that was applied, if there is so much garbage that it should be collected when writes pause: then
    /// [`tidy_in_pause`](Self::tidy_in_pause) is called. Quick: asked again and again.
    fn untidy_through(&self, _oldest_in_use: &dyn Fn() -> SequenceNumber) -> Option<SequenceNumber> {
        None
    }

    /// Collects garbage beside readers, and writers if there are any, as long as `goes_on` says so, which is asked again and
    /// again. What it ended is called for again.
    ///
    /// # Errors
    /// As [`apply`](Self::apply); `NoSpace` or `LimitExceeded`: garbage stays then.
    fn tidy_in_pause(
        &self,
        _oldest_in_use: &dyn Fn() -> SequenceNumber,
        _goes_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        Ok(())
    }

    /// No entry of a write at or below this number is about a record that a range tombstone at or below it covers, now and after
    /// a crash: such tombstones need not be kept for this tree.
    fn clear_through(&self) -> SequenceNumber;

    /// Reads its files whole and checks them; returns how many there are, and their bytes. No cut is installed
    /// meanwhile.
    ///
    /// # Errors
    /// `Corruption` with file and offset; `Io`.
    fn verify(&self) -> Result<(u64, u64)> {
        Ok((0, 0))
    }

    /// What it takes.
    fn stats(&self) -> ExternalTreeStats;
}

/// A state of a keeper on its way to disk. Dropped before it is [installed](Self::installed), it has changed nothing:
/// the next cut writes what it would have written.
pub trait ExternalCheckpoint: Send {
    /// Writes and syncs what changed since the root in force. Writers go on meanwhile.
    ///
    /// # Errors
    /// `Io` or `NoSpace`. Files that it made are removed by the store.
    fn write(&mut self, files: &ExternalFiles<'_>) -> Result<ExternalRoot>;

    /// Bytes that were written to files for it, and in place since the cut before it.
    fn written_bytes(&self) -> u64;

    /// The manifest names the root now: what only older roots need may go.
    fn installed(self: Box<Self>);
}

/// Hands out the files of a cut.
pub struct ExternalFiles<'s> {
    pub(crate) vfs: &'s Arc<dyn Vfs>,
    pub(crate) dir: &'s Path,
    pub(crate) name: &'s dyn Fn() -> (FileIdentity, PathBuf),
}

impl ExternalFiles<'_> {
    /// The file system.
    pub fn vfs(&self) -> &Arc<dyn Vfs> {
        self.vfs
    }

    /// The directory that they go to: that of the store, or of a checkpoint.
    pub fn dir(&self) -> &Path {
        self.dir
    }

    /// A name that was never used, for a file to be created, and its tag. The store removes the file again if the cut is
    /// not installed.
    pub fn new_file(&self) -> (FileIdentity, PathBuf) {
        (self.name)()
    }
}

impl fmt::Debug for ExternalFiles<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeeperFiles").finish_non_exhaustive()
    }
}
