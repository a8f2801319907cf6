//! The records of a table with the attributes of an index, for the check of that index.

use bolide_base::interruption::InterruptionSteps;
use bolide_base::{Result, SequenceNumber};

use crate::attribute_plan::{AttributePlan, AttributeValues, ValueSlot};
use crate::check::CheckedTable;
use crate::secondary_index::{IndexedRecord, slots_of};
use crate::source::{ForwardCursor, ReadSource, TreeSource};
use crate::spec::IndexSpec;

/// Extracts the attributes of an index from records.
pub struct CheckedRecords<'c> {
    table: &'c CheckedTable<'c>,
    plan: AttributePlan,
    slots: Vec<ValueSlot>,
    values: AttributeValues,
    steps: InterruptionSteps,
}

impl<'c> CheckedRecords<'c> {
    /// For the index that `spec` declares, over the records in `table`.
    ///
    /// # Errors
    /// As [`slots_of`].
    pub fn new(spec: &IndexSpec, table: &'c CheckedTable<'c>) -> Result<Self> {
        let plan = AttributePlan::new(spec.paths().cloned());
        let slots = slots_of(spec, &plan)?;
        let (values, steps) = (AttributeValues::new(), InterruptionSteps::default());
        Ok(Self { table, plan, slots, values, steps })
    }

    /// Calls `visit` with every record of `view`.
    ///
    /// # Errors
    /// Those of reading, and of `visit`.
    pub fn for_each<S: ReadSource>(
        &mut self,
        view: &S,
        mut visit: impl FnMut(&IndexedRecord<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut records = view.tree(self.table.tree)?.cursor(&[], None)?;
        records.seek_to_first()?;
        while records.valid() {
            visit(&self.indexed(records.key(), records.sequence(), records.value())?)?;
            records.next()?;
        }
        Ok(())
    }

    /// The attributes of `record`, which was written under `primary_key` at `sequence`. A malformed record has none.
    ///
    /// # Errors
    /// As [`extract_stored`](crate::AttributeExtractor::extract_stored).
    pub fn indexed<'r>(
        &'r mut self,
        primary_key: &'r [u8],
        sequence: SequenceNumber,
        record: &[u8],
    ) -> Result<IndexedRecord<'r>> {
        self.steps.step()?;
        self.table.extractor.extract_stored(record, &self.plan, &mut self.values)?;
        Ok(IndexedRecord { primary_key, sequence: Some(sequence), values: &self.values, slots: &self.slots })
    }
}

/// A primary key as printable text.
pub fn show(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}
