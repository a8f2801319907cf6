//! What indexes have in common that have no tree of their own, but lie in the sstables of the records: those of kind
//! `embedded` and `next`.
//!
//! ```text
//! write      nothing but a check that the record can be indexed
//! flush      collectors -> meta blocks in the sstable, a summary in the manifest's entry of it
//! question   memtables through an index of each, made when it is first asked; sstables through their meta blocks;
//!            sstables without these are read whole
//! ```
//!
//! # What makes them exact
//! * A match is proposed under the sequence number of its own write. Newer versions, deletes, range tombstones
//!   and snapshots are the business of the lookup driver, which validates every candidate at the view, by what is newer than
//!   the place where it was read.
//! * An sstable that was written without the index is read whole. So an index is complete at once when it is
//!   made, at every snapshot, and compactions make it fast.

pub(crate) mod check;
pub(crate) mod collector;
pub(crate) mod matches;
pub(crate) mod memtable_index;
#[cfg(test)]
mod memtable_index_tests;
pub(crate) mod memtable_read;
#[cfg(test)]
mod panic_tests;
pub(crate) mod secondary_keys;
pub(crate) mod summary;
pub(crate) mod zone;

use std::fmt;
use std::sync::Arc;

use bolide_base::limits::{MAX_INDEXED_ELEMENTS, MAX_SECONDARY_KEY_BYTES};
use bolide_base::{Error, Result, TreeId};

use crate::attribute::Value;
use crate::attribute_plan::{AttributePlan, ValueSlot};
use crate::extractor::AttributeExtractor;
use crate::path::AttributePath;
use crate::secondary_index::IndexedRecord;
use crate::spec::IndexSpec;
use secondary_keys::SecondaryKeys;

pub use collector::{SstableIndex, TableCollectors};

/// An index that lies in the sstables of its records.
pub(crate) struct SstableIndexBase {
    /// Names the meta blocks: the number of the tree that stands for the index in the catalogue.
    pub(crate) id: TreeId,
    /// The tree of the records.
    pub(crate) table: TreeId,
    pub(crate) spec: IndexSpec,
    pub(crate) extractor: Option<Arc<dyn AttributeExtractor>>,
    pub(crate) plan: AttributePlan,
    pub(crate) slots: Vec<ValueSlot>,
}

/// The places of `paths` in `plan`, which has them all.
pub(crate) fn slots_in(plan: &AttributePlan, paths: &[AttributePath]) -> Vec<ValueSlot> {
    paths.iter().filter_map(|path| plan.slot(path)).collect()
}

impl SstableIndexBase {
    /// The index that `spec` declares over the records in the tree `table`. `id` names its blocks; it must
    /// never have been that of another index. Without an extractor it collects nothing and answers nothing.
    pub(crate) fn new(
        spec: IndexSpec,
        id: TreeId,
        table: TreeId,
        extractor: Option<Arc<dyn AttributeExtractor>>,
    ) -> Self {
        let plan = AttributePlan::new(spec.attributes().iter().cloned());
        let slots = slots_in(&plan, spec.attributes());
        Self { id, table, spec, extractor, plan, slots }
    }

    /// What looks into the records.
    ///
    /// # Errors
    /// `InvalidInput` where there is none.
    pub(crate) fn extractor(&self) -> Result<&dyn AttributeExtractor> {
        self.extractor.as_deref().ok_or_else(|| {
            Error::invalid_input("the records of this collection have no attributes: it needs an extractor")
        })
    }

    /// Refuses what the other kinds of index refuse, so that a record does not depend on the kind of the indexes it
    /// meets.
    ///
    /// # Errors
    /// `LimitExceeded` for too many values, and for one that is too long.
    pub(crate) fn check_record(&self, record: &IndexedRecord<'_>) -> Result<()> {
        let keys = SecondaryKeys { values: record.values, slots: record.slots };
        let count = keys.count();
        if count > MAX_INDEXED_ELEMENTS {
            return Err(Error::limit_exceeded(
                format_args!("the number of values of a record in index {}", self.spec.name()),
                count as u64,
                MAX_INDEXED_ELEMENTS as u64,
            ));
        }
        if count > 0 && keys.longest() > MAX_SECONDARY_KEY_BYTES {
            return Err(Error::limit_exceeded(
                format_args!("the encoded value for index {} in bytes", self.spec.name()),
                keys.longest() as u64,
                MAX_SECONDARY_KEY_BYTES as u64,
            ));
        }
        Ok(())
    }
}

impl fmt::Debug for SstableIndexBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SstableIndexBase")
            .field("spec", &self.spec.to_string())
            .field("id", &self.id)
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

/// The first value of a key or a bound of one where it is whole, else its bytes.
pub(crate) fn shown_bound(bound: &[u8]) -> String {
    match Value::decode(bound) {
        Some((value, _)) => value.to_json().to_string(),
        None => format!("\"{}\"", bound.escape_ascii()),
    }
}
