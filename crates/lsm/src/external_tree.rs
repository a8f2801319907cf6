//! Hook: another data structure, the external tree, stores the writes of a tree.
//!
//! A tree with an external tree takes part in batches, the log and recovery like every other, but its writes go to the
//! external tree and not to memtables and sstables. A [checkpoint](ExternalCheckpoint) makes its state at one sequence number
//! durable, in files that the manifest then names. The log is retained until then.
//!
//! ```text
//! commit     log append -> memtables of other trees, ExternalTree::apply -> publish
//! flush      ExternalTree::checkpoint (no apply runs) -> ExternalCheckpoint::write (concurrent with writers) -> log synced
//!            -> manifest names files and root -> ExternalCheckpoint::installed
//! close      a last checkpoint, so that the log has no writes of the tree at the next opening
//! open       manifest -> log replayed into memtables, as for every tree -> the layer above creates the external tree
//!            from the root -> Store::set_external_tree passes it the replayed writes
//! ```
//!
//! # Invariants
//! * One thread at a time applies, in the order of the log; no checkpoint begins meanwhile.
//! * A root at sequence number S becomes durable only after the log was synced through S.
//! * When an external tree is set, it receives all writes above its root, and possibly some at or below: it ignores those at
//!   or below the sequence number of its root.
//! * Files of a root never change, and are deleted once no root in force names them. An external tree with immediate
//!   durability has its file elsewhere, and names none.
//!
//! # Spills
//! A [`SpillingTree`] moves its oldest entries to sstables of its tree, up to a sequence number, the *cut*:
//!
//! ```text
//! 1. SpillingTree::choose_cut     the new cut
//!    SpillingTree::write_spill    entries through the new cut -> sstables
//! 2. log synced, one manifest edit adds the sstables; readers of the tree see them
//! 3. SpillingTree::finish_spill   the cut is raised in memory; the entries are removed from memory
//! 4. a later checkpoint           the root contains the cut
//! ```
//!
//! An external tree answers for entries above its cut, the sstables for those at or below. Before step 4 is durable, a power cut
//! restores the old cut: root and log contain the entries, and sstables wholly above the old cut are transferred and removed,
//! like those from before the external tree was set. Entries of an sstable that straddles the cut may exist twice, with equal
//! keys and numbers.
//!
//! When an external tree is set, its tree may have more writes than fit into its memory: an index was built, or its opening was
//! refused for a while. Then its first cut is above the sequence number of its root: the older writes stay in their sstables, and
//! only the newer ones are transferred.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_base::{FileIdentity, Result, SequenceNumber, Trailer};
use bolide_storage::Vfs;

/// One write to an external tree.
#[derive(Debug, Clone, Copy)]
pub struct ExternalWrite<'w> {
    /// The key.
    pub key: &'w [u8],
    /// The sequence number of the write, and its kind: put or delete.
    pub trailer: Trailer,
    /// The value; empty for a delete.
    pub value: &'w [u8],
}

/// The durable state of an external tree, as named in the manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExternalRoot {
    /// The numbers of its files, ascending.
    pub files: Vec<u64>,
    /// The position of the state in the files, in the encoding of the external tree. At most 64 KiB.
    pub root: Vec<u8>,
}

/// The memory and disk space of an external tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExternalTreeStats {
    /// Bytes in memory.
    pub memory_bytes: usize,
    /// Bytes of the files.
    pub disk_bytes: u64,
    /// Entries, obsolete ones included.
    pub entries: u64,
}

/// A data structure that stores the writes of one tree.
pub trait ExternalTree: Send + Sync + fmt::Debug {
    /// Reserves space for `writes` writes of `bytes` bytes, keys and values together. Called before they are logged;
    /// afterwards no write may fail for lack of space. Returns true once each time that the memory of a [`SpillingTree`] is found to
    /// make a spill due, and again after further growth: background work is then scheduled anew.
    ///
    /// # Errors
    /// `NoSpace` or `LimitExceeded`: the batch is rejected, and nothing of it is written.
    fn reserve(&self, writes: usize, bytes: usize) -> Result<bool>;

    /// Starts to load the memory that the write of `key` will read, into the processor's caches. Called after
    /// [`reserve`](Self::reserve) and before the write is logged, so that the memory arrives meanwhile. Changes nothing.
    fn prefetch(&self, _key: &[u8]) {}

    /// Applies one write. Writes arrive in the order of the log, those of one sequence number by key. `oldest_in_use` returns
    /// the smallest sequence number at which readers may read.
    ///
    /// # Errors
    /// An error is a bug or damage, and poisons the store.
    fn apply(&self, write: ExternalWrite<'_>, oldest_in_use: &dyn Fn() -> SequenceNumber) -> Result<()>;

    /// It contains all writes at or below this number, and ignores them: that of its root. It is not passed them when it is set.
    fn contains_through(&self) -> SequenceNumber {
        0
    }

    /// Its spills; `None` if all its entries stay.
    fn spilling(&self) -> Option<&dyn SpillingTree> {
        None
    }

    /// True if a write is durable when [`apply`](Self::apply) returns, without a checkpoint. Then the log is synced before a
    /// write is applied, so that a power cut never leaves a write that the log has lost.
    fn is_durable_at_once(&self) -> bool {
        false
    }

    /// A checkpoint of the same state with files of its own, for a [checkpoint](crate::Store::checkpoint) of the store, if
    /// files change after a root names them. `None` if the files of the root can be linked. Writers wait.
    ///
    /// # Errors
    /// `NoSpace` if memory is exhausted.
    fn copy(&self, _sequence: SequenceNumber) -> Result<Option<Box<dyn ExternalCheckpoint + '_>>> {
        Ok(None)
    }

    /// Begins a checkpoint of the state with exactly the writes up to `sequence`. Fast: writers wait.
    ///
    /// # Errors
    /// `NoSpace` if memory is exhausted; the state is then unchanged.
    fn checkpoint(&self, sequence: SequenceNumber) -> Result<Box<dyn ExternalCheckpoint + '_>>;

    /// Whether a checkpoint is worth its cost, with `logged` bytes of log that are retained for it.
    fn is_checkpoint_due(&self, logged: u64) -> bool;

    /// Whether a checkpoint is worth its cost when the store is closed: the next opening reads its files instead of replaying
    /// the log.
    fn is_closing_checkpoint_due(&self) -> bool;

    /// Called before a checkpoint, concurrently with writers, to collect garbage. `oldest_in_use` is as for
    /// [`apply`](Self::apply).
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    fn collect_garbage(&self, oldest_in_use: &dyn Fn() -> SequenceNumber) -> Result<()>;

    /// The newest applied write, if there is enough garbage to collect it when writes pause: then
    /// [`collect_garbage_when_idle`](Self::collect_garbage_when_idle) is called. Fast: called repeatedly.
    fn garbage_through(&self, _oldest_in_use: &dyn Fn() -> SequenceNumber) -> Option<SequenceNumber> {
        None
    }

    /// Collects garbage concurrently with readers and writers, as long as `may_continue` returns true, which is called
    /// repeatedly. The store calls again after an interruption.
    ///
    /// # Errors
    /// As [`apply`](Self::apply); `NoSpace` or `LimitExceeded`: the garbage remains.
    fn collect_garbage_when_idle(
        &self,
        _oldest_in_use: &dyn Fn() -> SequenceNumber,
        _may_continue: &dyn Fn() -> bool,
    ) -> Result<()> {
        Ok(())
    }

    /// No entry of a write at or below this number belongs to a record that a range tombstone at or below it covers, now and
    /// after a crash: the tree does not need such tombstones.
    fn clear_through(&self) -> SequenceNumber;

    /// Reads and checks its files; returns their number and their bytes. No checkpoint is installed meanwhile.
    ///
    /// # Errors
    /// `Corruption` with file and offset; `Io`.
    fn verify(&self) -> Result<(u64, u64)> {
        Ok((0, 0))
    }

    /// The memory and disk space in use. May wait for a file operation.
    fn stats(&self) -> ExternalTreeStats;

    /// Bytes of memory that count against no holder of its own, for the report of the store to the memory budget. Never waits,
    /// and must not call the budget.
    fn uncounted_bytes(&self) -> usize {
        0
    }

    /// The number of entries. Never waits for a file operation: the scheduler reads it while it holds its lock.
    fn entries(&self) -> u64 {
        self.stats().entries
    }
}

/// The memory of an external tree that spills.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpillMemory {
    /// Bytes in use, when they were measured last.
    pub used_bytes: u64,
    /// The bound: writers wait for a spill that is due when it is reached.
    pub limit_bytes: u64,
}

/// An external tree that moves its oldest entries to sstables of its tree; see the [module](self). One spill or checkpoint runs at
/// a time, concurrently with writers and readers.
pub trait SpillingTree {
    /// The cut: the sstables have all entries at or below it that a reader may need. Never decreases.
    fn spilled_through(&self) -> SequenceNumber;

    /// Its memory. Fast: called repeatedly.
    fn memory(&self) -> SpillMemory;

    /// Whether memory is short, and a spill would free some. Fast: called repeatedly.
    fn is_spill_due(&self) -> bool;

    /// The bytes of memory that `writes` new writes with keys and values of `bytes` bytes take, approximately.
    fn expected_bytes(&self, writes: u64, bytes: u64) -> u64;

    /// A cut at or below `published`, the last published sequence number, that frees enough memory. The present one if nothing can be
    /// moved.
    ///
    /// # Errors
    /// `Corruption`.
    fn choose_cut(&self, published: SequenceNumber) -> Result<SequenceNumber>;

    /// Passes the entries above the present cut and at or below `cut` to `out`, in the order of their keys, without those that are
    /// obsolete for all present and future readers, of which `oldest_in_use` is the oldest sequence number.
    ///
    /// # Errors
    /// `Corruption`; those of `out`. Nothing has changed then.
    fn write_spill(
        &self,
        cut: SequenceNumber,
        oldest_in_use: SequenceNumber,
        out: &mut dyn FnMut(ExternalWrite<'_>) -> Result<()>,
    ) -> Result<()>;

    /// The sstables are installed: raises the cut to `cut`, and removes the entries at or below it.
    ///
    /// # Errors
    /// `Corruption`; `NoSpace` if memory is exhausted: entries that remain take space and are not read.
    fn finish_spill(&self, cut: SequenceNumber) -> Result<()>;
}

/// A state of an external tree that is being written to disk. Dropped before it is [installed](Self::installed), it has no
/// effect: the next checkpoint writes the same data.
pub trait ExternalCheckpoint: Send {
    /// Writes and syncs the changes since the root in force, concurrently with writers.
    ///
    /// # Errors
    /// `Io` or `NoSpace`. The store removes the files that it created.
    fn write(&mut self, files: &ExternalFiles<'_>) -> Result<ExternalRoot>;

    /// The bytes written to files for it, and in place since the previous checkpoint.
    fn written_bytes(&self) -> u64;

    /// The manifest names the root now: data that only older roots need may be released.
    fn installed(self: Box<Self>);
}

/// Allocates the files of a checkpoint.
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

    /// The directory of the files: that of the store, or of a checkpoint.
    pub fn dir(&self) -> &Path {
        self.dir
    }

    /// A name that was never used, for a file to be created, and its tag. The store removes the file if the checkpoint is not
    /// installed.
    pub fn new_file(&self) -> (FileIdentity, PathBuf) {
        (self.name)()
    }
}

impl fmt::Debug for ExternalFiles<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalFiles").finish_non_exhaustive()
    }
}
