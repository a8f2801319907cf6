//! Index entries of records that existed before the index.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bolide_base::{Error, Result, SequenceNumber, TreeId};
use bolide_index::hooks::BackFillMode;
use bolide_index::{
    AttributeExtractor, AttributePlan, AttributeValues, IndexedRecord, StagedBatch, StagedChange, ValueSlot,
    slots_of,
};
use bolide_lsm::{ReadView, StoreBatch};

use crate::index_set::{Index, IndexSet};
use crate::index_writes::StagedWrites;

/// Writes the entries of one index for existing records.
pub(crate) struct BackFill {
    index: Arc<Index>,
    extractor: Arc<dyn AttributeExtractor>,
    plan: AttributePlan,
    slots: Vec<ValueSlot>,
    values: AttributeValues,
    key: Vec<u8>,
    /// Counts the malformed records of the collection.
    malformed: Arc<AtomicU64>,
}

impl BackFill {
    /// For `index`, over the records of the collection of `set`.
    ///
    /// # Errors
    /// As [`IndexSet::extractor`].
    pub(crate) fn new(index: &Arc<Index>, set: &IndexSet) -> Result<Self> {
        set.extractor()?;
        let extractor = set.shared_extractor();
        let plan = AttributePlan::new(index.spec().paths().cloned());
        let slots = slots_of(index.spec(), &plan)?;
        let (values, key) = (AttributeValues::new(), Vec::new());
        let malformed = set.malformed().clone();
        Ok(Self { index: index.clone(), extractor, plan, slots, values, key, malformed })
    }

    /// Whether the index writes its entries at a sequence number of the commit; a back-fill has none of its own.
    pub(crate) fn takes_a_number(&self) -> bool {
        self.index.hooks.back_fill() == BackFillMode::CheckedAtOwnNumber
    }

    /// Adds the entries of a record that was written at `sequence`, as its write would. A malformed record is counted
    /// and has no attributes; a panic of the extractor fails the build.
    ///
    /// # Errors
    /// As [`IndexSet::derive`], naming the record.
    pub(crate) fn add(
        &mut self,
        key: &[u8],
        record: &[u8],
        sequence: SequenceNumber,
        batch: &mut StoreBatch,
    ) -> Result<()> {
        if !self.index.is_key_index {
            let is_read = self
                .extractor
                .extract_stored(record, &self.plan, &mut self.values)
                .map_err(|error| named(error, key))?;
            if !is_read {
                self.malformed.fetch_add(1, Ordering::Relaxed);
                self.index.progress.count_malformed();
            }
        }
        let record = IndexedRecord {
            primary_key: key,
            sequence: Some(sequence),
            values: &self.values,
            slots: &self.slots,
        };
        let mut out = StagedWrites { batch, sequence, key: Vec::new() };
        self.index.structure.derive(&record, &mut self.key, &mut out).map_err(|error| named(error, key))
    }

    /// Adds, inside a commit, entries for which the index reads first, for records that `view` contains.
    ///
    /// # Errors
    /// As [`IndexSet::stage`].
    pub(crate) fn stage(
        &mut self,
        table: TreeId,
        records: &[(&[u8], &[u8], SequenceNumber)],
        view: &ReadView,
        batch: &mut StoreBatch,
    ) -> Result<()> {
        if !self.index.structure.needs_stage() {
            return Ok(());
        }
        let extract = |&(key, record, _): &(&[u8], &[u8], SequenceNumber)| {
            let mut values = AttributeValues::new();
            // Malformed records were counted when they were added.
            let read = self.extractor.extract_stored(record, &self.plan, &mut values);
            read.map_err(|error| named(error, key))?;
            Ok(values)
        };
        let values: Vec<AttributeValues> = records.iter().map(extract).collect::<Result<_>>()?;
        let first = batch.first_sequence();
        let change = |(&(primary_key, _, sequence), values)| StagedChange {
            sequence: first,
            old: None,
            new: Some(IndexedRecord { primary_key, sequence: Some(sequence), values, slots: &self.slots }),
        };
        let changes: Vec<StagedChange<'_>> = records.iter().zip(&values).map(change).collect();
        let mut out = StagedWrites { batch, sequence: first, key: Vec::new() };
        let staged = StagedBatch { table, changes: &changes, deleted: &[] };
        self.index.structure.stage(&staged, view, &mut self.key, &mut out)
    }
}

/// `error` with the key of its record.
fn named(error: Error, key: &[u8]) -> Error {
    error.context(format_args!("the record under key {}", crate::key::KeyFormat::Bytes.show(key)))
}
