//! Index writes in the batch of the records that cause them.

use bolide_base::{Error, Result, SequenceNumber, TreeId};
use bolide_index::IndexWrites;
use bolide_lsm::StoreBatch;

/// Index writes that follow the put of their record in the same batch.
pub(crate) struct DerivedWrites<'b> {
    pub(crate) batch: &'b mut StoreBatch,
}

impl IndexWrites for DerivedWrites<'_> {
    fn set_sequence(&mut self, _sequence: SequenceNumber) {}

    #[inline]
    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8], sequence_at: Option<usize>) -> Result<()> {
        self.batch.put_derived(tree, key, value, sequence_at)
    }

    fn merge(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.merge_derived(tree, key, value)
    }

    fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<()> {
        self.batch.delete_derived(tree, key)
    }
}

/// Index writes that join a batch inside its commit, where all sequence numbers are known.
pub(crate) struct StagedWrites<'b> {
    pub(crate) batch: &'b mut StoreBatch,
    pub(crate) sequence: SequenceNumber,
    /// Scratch memory.
    pub(crate) key: Vec<u8>,
}

impl IndexWrites for StagedWrites<'_> {
    fn set_sequence(&mut self, sequence: SequenceNumber) {
        self.sequence = sequence;
    }

    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8], sequence_at: Option<usize>) -> Result<()> {
        let Some(at) = sequence_at else {
            return self.batch.put_at(tree, key, value, self.sequence);
        };
        self.key.clear();
        self.key.extend_from_slice(key);
        let place = self.key.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<8>);
        let place =
            place.ok_or_else(|| Error::internal("the offset of a sequence number is outside its key"))?;
        *place = (!self.sequence).to_be_bytes();
        self.batch.put_at(tree, &self.key, value, self.sequence)
    }

    fn merge(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.merge_at(tree, key, value, self.sequence)
    }

    fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<()> {
        self.batch.delete_at(tree, key, self.sequence)
    }
}
