//! The writes of one append to the log: a single put, or sealed batches.

use bolide_base::{EntryKind, Result};

use super::log::LogState;
use crate::batch::{BatchReader, Operation, PlacedOperation, StoreBatch};
use crate::record_log::SingleOperation;
use crate::store::reserve::only_delete;

/// The writes of one append, with their sequence numbers.
pub(super) trait PendingWrites {
    /// Bytes of their encoded batches.
    fn batch_bytes(&self) -> u64;

    /// True if they only delete.
    fn only_delete(&self) -> bool;

    /// Appends their records to the log with one write.
    ///
    /// # Errors
    /// `NoSpace` with nothing appended; `Io` with an unknown end of the log.
    fn append_to(&self, log: &mut LogState) -> Result<()>;

    /// Calls `apply` for each write in order, up to the first error.
    ///
    /// # Errors
    /// Those of `apply`.
    fn for_each(&self, apply: impl FnMut(&PlacedOperation<'_>) -> Result<()>) -> Result<()>;
}

/// Sealed batches, in the order of their sequence numbers.
pub(super) struct SealedBatches<I>(pub(super) I);

impl<'b, I: Iterator<Item = &'b StoreBatch> + Clone> PendingWrites for SealedBatches<I> {
    fn batch_bytes(&self) -> u64 {
        self.0.clone().map(|batch| batch.len_bytes() as u64).sum()
    }

    fn only_delete(&self) -> bool {
        only_delete(self.0.clone())
    }

    fn append_to(&self, log: &mut LogState) -> Result<()> {
        log.append(self.0.clone().map(StoreBatch::sealed_bytes))
    }

    #[inline]
    fn for_each(&self, mut apply: impl FnMut(&PlacedOperation<'_>) -> Result<()>) -> Result<()> {
        for batch in self.0.clone() {
            for placed in BatchReader::new(batch.sealed_bytes())? {
                apply(&placed?)?;
            }
        }
        Ok(())
    }
}

/// A put that is not encoded as a batch: the log receives its parts.
pub(super) struct SinglePut<'a> {
    pub(super) tree: bolide_base::TreeId,
    pub(super) operation: SingleOperation<'a>,
}

impl PendingWrites for SinglePut<'_> {
    #[inline]
    fn batch_bytes(&self) -> u64 {
        self.operation.payload_bytes() as u64
    }

    #[inline]
    fn only_delete(&self) -> bool {
        false
    }

    #[inline]
    fn append_to(&self, log: &mut LogState) -> Result<()> {
        log.append_single(&self.operation)
    }

    #[inline]
    fn for_each(&self, mut apply: impl FnMut(&PlacedOperation<'_>) -> Result<()>) -> Result<()> {
        let SingleOperation { number: sequence, key, value, .. } = self.operation;
        let operation = Operation::Entry { kind: EntryKind::Put, key, value };
        let (derived, retained) = (false, false);
        apply(&PlacedOperation { tree: self.tree, sequence, derived, retained, operation })
    }
}
