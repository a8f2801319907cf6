//! Backends of trees: the structures that store their writes.
//!
//! | backend | writes go to | a flush is | compactions |
//! |---|---|---|---|
//! | LSM tree | memtables, then sstables | new sstables | by the policy of the layout |
//! | [external tree](ExternalTree) | the external tree | a checkpoint of it | by the external tree itself |
//!
//! Other files call the methods of [`Backend`] and do not distinguish them, except for the flush job, which runs the flush of
//! either. A tree begins as an LSM tree, and may get an external tree once; see [`external`] and [`deferred`].

pub(super) mod deferred;
pub(super) mod external;
mod hand_over;
mod refusal;

use std::sync::{Arc, OnceLock};

use bolide_base::{Error, Result, SequenceNumber, Trailer};

use crate::batch::{Operation, PlacedOperation};
use crate::external_tree::{
    ExternalCheckpoint, ExternalTree, ExternalTreeStats, ExternalWrite, SpillingTree,
};
use crate::layout::FlushTarget;
use crate::memtable::Memtable;
use crate::version::Version;

/// The backend of a tree, which is replaced at most once.
#[derive(Debug, Default)]
pub(super) struct BackendSlot {
    external: OnceLock<Arc<dyn ExternalTree>>,
}

impl BackendSlot {
    /// The current backend.
    #[inline]
    pub(super) fn get(&self) -> Backend<'_> {
        match self.external.get() {
            None => Backend::Lsm,
            Some(external) => Backend::External(external),
        }
    }

    /// Replaces the LSM tree by an external tree. Returns false if there is an external tree already.
    pub(super) fn set_external(&self, external: Arc<dyn ExternalTree>) -> bool {
        self.external.set(external).is_ok()
    }
}

/// The result of a reservation.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reservation {
    /// The log must be synced before the writes are applied.
    pub(super) syncs_first: bool,
    /// A spill has become due, or more urgent.
    pub(super) is_memory_short: bool,
}

/// The backend of a tree.
#[derive(Debug, Clone, Copy)]
pub(super) enum Backend<'t> {
    /// Memtables and sstables.
    Lsm,
    /// A structure of the layer above.
    External(&'t Arc<dyn ExternalTree>),
}

impl<'t> Backend<'t> {
    /// The external tree, if it is one.
    #[inline]
    pub(super) fn external(self) -> Option<&'t Arc<dyn ExternalTree>> {
        match self {
            Self::Lsm => None,
            Self::External(external) => Some(external),
        }
    }

    /// True if memtables and sstables store the writes: then flushes write sstables, and compactions merge them.
    #[inline]
    pub(super) fn is_lsm(self) -> bool {
        matches!(self, Self::Lsm)
    }

    /// Reserves space for `writes` writes of `bytes` bytes before they are logged.
    ///
    /// # Errors
    /// As [`ExternalTree::reserve`].
    pub(super) fn reserve(self, writes: usize, bytes: usize) -> Result<Reservation> {
        match self {
            // The memtable grows as needed, and is bounded by the log segments.
            Self::Lsm => Ok(Reservation::default()),
            Self::External(external) => {
                let is_memory_short = external.reserve(writes, bytes)?;
                Ok(Reservation { syncs_first: external.is_durable_at_once(), is_memory_short })
            }
        }
    }

    /// Applies a logged write; `memtable` is the writable memtable of the tree.
    ///
    /// # Errors
    /// As [`ExternalTree::apply`].
    #[inline]
    pub(super) fn apply(
        self,
        placed: &PlacedOperation<'_>,
        memtable: &Memtable,
        oldest_in_use: &dyn Fn() -> SequenceNumber,
    ) -> Result<()> {
        match self {
            Self::Lsm => {
                placed.operation.insert_into(memtable, placed.sequence);
                Ok(())
            }
            Self::External(external) => apply_external(&**external, placed, oldest_in_use),
        }
    }

    /// The target of flushes if that of the layout is `of_layout`. A flush to an external tree is a checkpoint, whatever the
    /// target is.
    pub(super) fn flush_target(self, of_layout: FlushTarget) -> FlushTarget {
        match self {
            Self::Lsm => of_layout,
            Self::External(_) => FlushTarget::FirstLevel,
        }
    }

    /// Whether a checkpoint is due at a new log segment, because of `retained` bytes of log, if the tree retains any, or because
    /// of the sstables in `version` that it would remove. `None` if the size and the age of the memtable decide.
    pub(super) fn is_checkpoint_due(self, retained: Option<u64>, version: &Version) -> Option<bool> {
        let external = self.external()?;
        let removes_tables = || contained_tables(&**external, version).next().is_some();
        Some(retained.is_some_and(|retained| removes_tables() || external.is_checkpoint_due(retained)))
    }

    /// A copy of the state at `sequence`, for a backend that changes its files in place.
    ///
    /// # Errors
    /// As [`ExternalTree::copy`].
    pub(super) fn copy(self, sequence: SequenceNumber) -> Result<Option<Box<dyn ExternalCheckpoint + 't>>> {
        match self {
            Self::Lsm => Ok(None),
            Self::External(external) => external.copy(sequence),
        }
    }

    /// The newest applied write, if there is garbage to be collected when writes are idle.
    pub(super) fn garbage_through(
        self,
        oldest_in_use: &dyn Fn() -> SequenceNumber,
    ) -> Option<SequenceNumber> {
        self.external()?.garbage_through(oldest_in_use)
    }

    /// As [`ExternalTree::clear_through`]; `None` if the sequence numbers of the components decide.
    pub(super) fn clear_through(self) -> Option<SequenceNumber> {
        self.external().map(|external| external.clear_through())
    }

    /// Whether compactions may merge the sstables in `version`: those of an LSM tree, and those that an external tree spilled.
    pub(super) fn merges_sstables(self, version: &Version) -> bool {
        self.external().is_none_or(|external| {
            external.spilling().is_some() && contained_tables(&**external, version).next().is_none()
        })
    }

    /// The spills of its external tree, if one is due.
    pub(super) fn due_spill(self, version: &Version) -> Option<&'t dyn SpillingTree> {
        // The sstables from before the external tree was set are removed first, by its first checkpoint.
        let spilling = self.external()?.spilling()?;
        (spilling.is_spill_due() && self.merges_sstables(version)).then_some(spilling)
    }

    /// Verifies the files besides sstables, and returns their number and their bytes.
    ///
    /// # Errors
    /// As [`ExternalTree::verify`].
    pub(super) fn verify(self) -> Result<(u64, u64)> {
        match self {
            Self::Lsm => Ok((0, 0)),
            Self::External(external) => external.verify(),
        }
    }

    /// Memory and disk space besides memtables and sstables.
    pub(super) fn stats(self) -> Option<ExternalTreeStats> {
        self.external().map(|external| external.stats())
    }
}

/// The sstables whose entries `external_tree` contains: from before it was set, or written by a spill whose cut a power cut
/// undid. Its next checkpoint removes them.
pub(super) fn contained_tables(
    external_tree: &dyn ExternalTree,
    version: &Version,
) -> impl Iterator<Item = u64> {
    let cut = external_tree.spilling().map_or(0, |spilling| spilling.spilled_through());
    let above = version.tables().map(|table| table.meta()).filter(move |meta| meta.smallest_sequence > cut);
    above.map(|meta| meta.number)
}

/// Applies a write to an external tree.
fn apply_external(
    external: &dyn ExternalTree,
    placed: &PlacedOperation<'_>,
    oldest_in_use: &dyn Fn() -> SequenceNumber,
) -> Result<()> {
    let Operation::Entry { kind, key, value } = placed.operation else {
        return Err(Error::internal(format!(
            "a range of tree {}, which has an external tree, is deleted",
            placed.tree
        )));
    };
    let trailer = Trailer::new(placed.sequence, kind);
    external.apply(ExternalWrite { key, trailer, value }, oldest_in_use)
}

impl Operation<'_> {
    /// Inserts the operation into a memtable.
    #[inline]
    pub(super) fn insert_into(&self, memtable: &Memtable, sequence: SequenceNumber) {
        match *self {
            Operation::Entry { kind, key, value } => {
                memtable.insert(key, Trailer::new(sequence, kind), value);
            }
            Operation::RangeDelete { start, end } => memtable.delete_range(start, end, sequence),
        }
    }
}
