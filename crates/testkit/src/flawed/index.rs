//! An index with a planted bug.

use std::fmt;
use std::sync::Arc;

use bolide::{Error, IndexCheck, IndexSpec, Order, Result, SequenceNumber};
use bolide_base::TreeId;
use bolide_index::{
    Access, CandidateCursor, CheckedTable, CompiledQuery, IndexWrites, IndexedRecord, ReadSource, Retraction,
    SecondaryIndex, StagedBatch, StagedChange, TreeSource, Validator, Verdict,
};
use bolide_lsm::{ReadView, TreeView};

use super::Flaw;
use super::candidates::FlawedCursor;

/// An index behind a layer with a planted bug.
pub(super) struct FlawedIndex {
    inner: Arc<dyn SecondaryIndex<ReadView>>,
    /// The tree of the records.
    table: TreeId,
    flaw: Flaw,
}

impl FlawedIndex {
    pub(super) fn new(inner: Arc<dyn SecondaryIndex<ReadView>>, table: TreeId, flaw: Flaw) -> Self {
        Self { inner, table, flaw }
    }
}

impl fmt::Debug for FlawedIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} with {:?}", self.inner, self.flaw)
    }
}

impl SecondaryIndex<ReadView> for FlawedIndex {
    fn spec(&self) -> &IndexSpec {
        self.inner.spec()
    }

    fn trees(&self) -> &[TreeId] {
        self.inner.trees()
    }

    fn derive_delete(&self, primary_key: &[u8], key: &mut Vec<u8>, out: &mut dyn IndexWrites) -> Result<()> {
        self.inner.derive_delete(primary_key, key, out)
    }

    fn needs_deletes(&self) -> bool {
        self.inner.needs_deletes()
    }

    fn derive(&self, record: &IndexedRecord<'_>, key: &mut Vec<u8>, out: &mut dyn IndexWrites) -> Result<()> {
        match self.flaw {
            // Only a build has the sequence number of a write before its commit.
            Flaw::ForgetsBackFill if record.sequence.is_some() => Ok(()),
            Flaw::ForgetsLastEntry => {
                let mut all_but_last = AllButLast { out, pending: None, count: 0 };
                self.inner.derive(record, key, &mut all_but_last)?;
                all_but_last.finish()
            }
            _ => self.inner.derive(record, key, out),
        }
    }

    fn needs_stage(&self) -> bool {
        self.inner.needs_stage()
    }

    fn needs_old_records(&self) -> bool {
        self.inner.needs_old_records()
    }

    fn stage(
        &self,
        batch: &StagedBatch<'_>,
        view: &ReadView,
        key: &mut Vec<u8>,
        out: &mut dyn IndexWrites,
    ) -> Result<()> {
        let changes: Vec<StagedChange<'_>> = match self.flaw {
            Flaw::IgnoresDeletes => batch.changes.iter().filter(|one| one.new.is_some()).copied().collect(),
            Flaw::IgnoresReplaced => batch
                .changes
                .iter()
                .map(|change| StagedChange { old: change.old.filter(|_| change.new.is_none()), ..*change })
                .collect(),
            // A build has the sequence numbers of earlier writes.
            Flaw::ForgetsBackFill => batch
                .changes
                .iter()
                .filter(|change| change.new.is_none_or(|new| new.sequence == Some(change.sequence)))
                .copied()
                .collect(),
            Flaw::ForgetsBatchMates => batch.changes.last().copied().into_iter().collect(),
            _ => batch.changes.to_vec(),
        };
        let batch = StagedBatch { changes: &changes, ..*batch };
        if self.flaw != Flaw::ForgetsLastEntry {
            return self.inner.stage(&batch, view, key, out);
        }
        let mut all_but_last = AllButLast { out, pending: None, count: 0 };
        self.inner.stage(&batch, view, key, &mut all_but_last)?;
        all_but_last.finish()
    }

    fn name_entries(
        &self,
        record: &IndexedRecord<'_>,
        key: &mut Vec<u8>,
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.inner.name_entries(record, key, visit)
    }

    fn retract(&self, batch: &Retraction<'_>, view: &ReadView, out: &mut dyn IndexWrites) -> Result<()> {
        self.inner.retract(batch, view, out)
    }

    fn refusal(&self) -> Result<Option<Error>> {
        self.inner.refusal()
    }

    fn access(&self, query: &CompiledQuery<'_>) -> Option<Access> {
        self.inner.access(query)
    }

    fn candidates<'v>(
        &'v self,
        access: &'v Access,
        order: Order,
        view: &'v ReadView,
    ) -> Result<Box<dyn CandidateCursor + 'v>> {
        let inner = self.inner.candidates(access, order, view)?;
        let table = ReadSource::tree(view, self.table)?;
        Ok(Box::new(FlawedCursor::new(inner, self.flaw, order, table)))
    }

    fn estimate(&self, access: &Access, view: &ReadView) -> Result<Option<u64>> {
        self.inner.estimate(access, view)
    }

    fn validator(&self) -> &dyn Validator<TreeView> {
        match self.flaw {
            Flaw::TrustsAll => &ConstantValidator(Verdict::Current),
            Flaw::TrustsNone => &ConstantValidator(Verdict::Obsolete),
            _ => self.inner.validator(),
        }
    }

    fn origins(
        &self,
        key: &[u8],
        sequence: SequenceNumber,
        value: &[u8],
        visit: &mut dyn FnMut(SequenceNumber, &[u8]) -> Result<()>,
    ) -> Result<bool> {
        self.inner.origins(key, sequence, value, visit)
    }

    /// Reports no problem, so that only the answers can differ.
    fn check(&self, _: &ReadView, _: &CheckedTable<'_>, _: &mut IndexCheck) -> Result<()> {
        Ok(())
    }
}

/// Returns the same verdict for every candidate.
#[derive(Debug)]
struct ConstantValidator(Verdict);

impl<T: TreeSource> Validator<T> for ConstantValidator {
    fn name(&self) -> &'static str {
        "always"
    }

    fn verdict(&self, _: &T, _: &[u8], _: SequenceNumber) -> Result<Verdict> {
        Ok(self.0)
    }
}

/// A pending write of an entry.
struct PendingWrite {
    tree: TreeId,
    key: Vec<u8>,
    value: Vec<u8>,
    sequence_at: Option<usize>,
    is_merge: bool,
}

/// Forwards all writes except the last of several entries.
struct AllButLast<'o> {
    out: &'o mut dyn IndexWrites,
    pending: Option<PendingWrite>,
    count: usize,
}

impl AllButLast<'_> {
    fn queue(&mut self, write: PendingWrite) -> Result<()> {
        self.count += 1;
        let previous = self.pending.replace(write);
        self.emit(previous)
    }

    fn emit(&mut self, write: Option<PendingWrite>) -> Result<()> {
        match write {
            None => Ok(()),
            Some(write) if write.is_merge => self.out.merge(write.tree, &write.key, &write.value),
            Some(write) => self.out.put(write.tree, &write.key, &write.value, write.sequence_at),
        }
    }

    fn finish(mut self) -> Result<()> {
        let last = self.pending.take().filter(|_| self.count == 1);
        self.emit(last)
    }
}

impl IndexWrites for AllButLast<'_> {
    fn set_sequence(&mut self, sequence: SequenceNumber) {
        self.out.set_sequence(sequence);
    }

    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8], sequence_at: Option<usize>) -> Result<()> {
        let (key, value) = (key.to_vec(), value.to_vec());
        self.queue(PendingWrite { tree, key, value, sequence_at, is_merge: false })
    }

    fn merge(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        let (key, value) = (key.to_vec(), value.to_vec());
        self.queue(PendingWrite { tree, key, value, sequence_at: None, is_merge: true })
    }

    fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<()> {
        self.out.delete(tree, key)
    }
}
