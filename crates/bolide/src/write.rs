//! The path of a write from a handle to the store.
//!
//! The batch already contains the entries of blind indexes; see [`crate::write_batch`]. This module ensures that they
//! are those of the current indexes of the collections (see [`crate::schema`]), and reads old records inside the commit
//! for indexes with `maintenance=synchronous`.
//!
//! # Synchronous indexes
//!
//! The commit handles every key of the batch once, for its last write: it reads the old record and deletes its entries.
//! A write that is superseded within its batch gets no entries at all, so there are none to delete. Entries of a
//! deleted range stay: its range tombstone covers them until compactions have dropped them (see
//! [`IndexHooks::install`](bolide_index::hooks::IndexHooks::install)).

use std::collections::HashSet;
use std::sync::Arc;

use bolide_base::{EntryKind, Result, SequenceNumber, TreeId};
use bolide_lsm::{CommitStage, CommitState, Operation, ReadView, StoreBatch, SyncMode};

use crate::check::of_record;
use crate::handle::Engine;
use crate::index_set::IndexSetChange;
use crate::schema::OpenCollection;
use crate::transaction::TransactionFlaw;
use crate::write_batch::{BatchChecks, BatchPart, OwnOperation, WriteBatch};

impl Engine {
    /// Commits a batch and returns the sequence number of its last write. An index whose damage fails the commit is
    /// isolated, and the batch is committed without it.
    pub(crate) fn write(&self, batch: WriteBatch, sync: Option<SyncMode>) -> Result<SequenceNumber> {
        // Only work inside the commit reads indexes.
        let again = batch.parts.iter().any(|part| part.indexes.needs_stage()).then(|| batch.clone());
        let committed = self.write_once(batch, sync);
        let (Err(error), Some(again)) = (&committed, again) else { return committed };
        let mut isolated = false;
        for part in &again.parts {
            isolated |= self.isolate_damaged(&part.collection, error);
        }
        if isolated { self.write(again, sync) } else { committed }
    }

    fn write_once(&self, mut batch: WriteBatch, sync: Option<SyncMode>) -> Result<SequenceNumber> {
        if !self.builds_in_background && self.repairs.is_due() {
            // If it fails, this write fails too, or can succeed without it.
            let _ = self.commit_repairs();
        }
        // Held until the commit is done: the indexes do not change.
        let _schema = self.schema.read();
        for part in &batch.parts {
            self.check_own(&part.collection)?;
            part.collection.check_live()?;
        }
        let is_current = |part: &BatchPart| Arc::ptr_eq(&part.indexes, &part.collection.indexes_guard());
        if !batch.parts.iter().all(is_current) {
            batch = batch.rederived(|_| true)?;
        }
        let needs_stage = batch.parts.iter().any(|part| part.indexes.needs_stage());
        if needs_stage && let Some(superseded) = superseded_puts(&batch) {
            batch = batch.rederived(|position| !superseded.contains(&position))?;
        }
        if self.trace.is_some() {
            for write in batch.own_operations() {
                write.collection().count(|traffic| match write {
                    OwnOperation::Put(..) => traffic.note_put(),
                    OwnOperation::Delete(..) => traffic.note_delete(),
                    OwnOperation::DeleteRange(..) => traffic.note_range_delete(),
                });
            }
        }
        let stage = if needs_stage || batch.is_checked() {
            let mut checks = batch.take_checks();
            if self.components.transaction_flaw == Some(TransactionFlaw::SkipsExpectations) {
                checks.skip_expectations();
            }
            let parts = std::mem::take(&mut batch.parts);
            Some(Box::new(BatchStage { checks, parts }) as Box<dyn CommitStage>)
        } else {
            None
        };
        self.store.commit(batch.store, stage, sync.unwrap_or(self.sync))
    }

    /// Commits one put whose batch contains nothing but its record; `None` if the batch may contain more, and the
    /// general path must be used.
    pub(crate) fn put_alone(
        &self,
        collection: &OpenCollection,
        key: &[u8],
        record: &[u8],
    ) -> Result<Option<SequenceNumber>> {
        let _schema = self.schema.read();
        collection.check_live()?;
        let takes_alone = collection.indexes_guard().takes_alone(record);
        if !takes_alone.map_err(|error| of_record(error, collection, key))? {
            return Ok(None);
        }
        collection.count(|traffic| traffic.note_put());
        self.store.put(collection.tree, key, record, self.sync).map(Some)
    }

    fn check_own(&self, collection: &OpenCollection) -> Result<()> {
        if collection.owner == self.id {
            return Ok(());
        }
        Err(bolide_base::Error::invalid_input(format!(
            "the batch writes to the collection {:?} of another database",
            collection.name
        )))
    }
}

/// The positions, among the writes of the batch, of puts that a later write of the same batch replaces or deletes;
/// `None` if there are none.
fn superseded_puts(batch: &WriteBatch) -> Option<HashSet<usize>> {
    let writes: Vec<_> = batch.store.operations().filter(|placed| !placed.derived).collect();
    if writes.len() < 2 {
        return None;
    }
    let mut later_keys: HashSet<(TreeId, &[u8])> = HashSet::with_capacity(writes.len());
    let mut later_ranges: Vec<(TreeId, &[u8], &[u8])> = Vec::new();
    let mut superseded = HashSet::new();
    for (position, placed) in writes.iter().enumerate().rev() {
        match placed.operation {
            Operation::RangeDelete { start, end } => later_ranges.push((placed.tree, start, end)),
            Operation::Entry { kind, key, .. } => {
                let is_new = later_keys.insert((placed.tree, key));
                let in_range = later_ranges
                    .iter()
                    .any(|&(tree, start, end)| tree == placed.tree && start <= key && key < end);
                if kind == EntryKind::Put && (!is_new || in_range) {
                    superseded.insert(position);
                }
            }
        }
    }
    (!superseded.is_empty()).then_some(superseded)
}

/// Runs the checks of a batch, and passes old records to the indexes that need them.
struct BatchStage {
    checks: BatchChecks,
    parts: Vec<BatchPart>,
}

/// The last write of a key in a batch.
struct LastWrite {
    key: Vec<u8>,
    /// The record; `None` for a delete.
    record: Option<Vec<u8>>,
    sequence: SequenceNumber,
}

impl CommitStage for BatchStage {
    fn check(&mut self, state: &CommitState<'_>, batch: &StoreBatch) -> Result<()> {
        if self.checks.is_empty() { Ok(()) } else { self.checks.run(state, batch, &self.parts) }
    }

    fn refused(&mut self, batch: StoreBatch) {
        self.checks.refused(batch, std::mem::take(&mut self.parts));
    }

    fn stage(&mut self, view: &ReadView, batch: &mut StoreBatch) -> Result<()> {
        for part in self.parts.iter().filter(|part| part.indexes.needs_stage()) {
            let table = view.tree(part.collection.tree)?;
            let writes = last_writes(part.collection.tree, batch);
            let old = |write: &LastWrite| {
                if part.indexes.needs_old_records() { table.get(&write.key) } else { Ok(None) }
            };
            let old: Vec<_> = writes.iter().map(old).collect::<Result<_>>()?;
            let changes: Vec<_> = writes
                .iter()
                .zip(&old)
                .map(|(write, old)| IndexSetChange {
                    key: &write.key,
                    old: old.as_ref().map(|(sequence, record)| (*sequence, &**record)),
                    new: write.record.as_deref(),
                    sequence: write.sequence,
                })
                .collect();
            part.indexes.stage(part.collection.tree, &changes, view, batch)?;
        }
        Ok(())
    }
}

/// The writes to `tree` that are the last of their keys, in their order. A put that a later range of the batch deletes
/// counts as a delete.
fn last_writes(tree: TreeId, batch: &StoreBatch) -> Vec<LastWrite> {
    let writes: Vec<_> = batch.operations().filter(|placed| placed.tree == tree && !placed.derived).collect();
    let mut seen: HashSet<&[u8]> = HashSet::with_capacity(writes.len());
    let mut later_ranges: Vec<(&[u8], &[u8])> = Vec::new();
    let mut last = Vec::with_capacity(writes.len());
    for placed in writes.iter().rev() {
        match placed.operation {
            Operation::RangeDelete { start, end } => later_ranges.push((start, end)),
            Operation::Entry { kind, key, value } if seen.insert(key) => {
                let stays = kind == EntryKind::Put
                    && !later_ranges.iter().any(|&(start, end)| start <= key && key < end);
                let record = stays.then(|| value.to_vec());
                last.push(LastWrite { key: key.to_vec(), record, sequence: placed.sequence });
            }
            Operation::Entry { .. } => {}
        }
    }
    last.reverse();
    last
}
