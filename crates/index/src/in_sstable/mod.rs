//! Common parts of indexes in the sstables of the records, without a tree of their own: the kinds `embedded` and `next`.
//!
//! ```text
//! write      only a check that the record can be indexed
//! flush      collectors -> meta blocks in the sstable, a summary in its entry of the manifest
//! query      memtables through an index of each, built by the first query; sstables through their meta blocks;
//!            sstables without meta blocks are read completely
//! ```
//!
//! # Correctness
//! * A match has the sequence number of its own write. The lookup driver handles newer versions, deletes, range tombstones
//!   and snapshots: it validates every candidate at the view, against the components newer than the place where it was read.
//! * An sstable that was written without the index is read completely. So a new index is complete immediately, at every
//!   snapshot, and compactions make it fast.

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
pub(crate) mod zone_bounds;

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

/// The common part of an index in the sstables of its records.
pub(crate) struct SstableIndexBase {
    /// The number of the tree that represents the index in the catalogue. It names the meta blocks.
    pub(crate) id: TreeId,
    /// The tree of the records.
    pub(crate) table: TreeId,
    pub(crate) spec: IndexSpec,
    pub(crate) extractor: Option<Arc<dyn AttributeExtractor>>,
    pub(crate) plan: AttributePlan,
    pub(crate) slots: Vec<ValueSlot>,
}

/// Checks the format of a meta block, its first byte, in the sstable `file`.
///
/// # Errors
/// `Unsupported` if it is none of `known`.
pub(crate) fn check_format(file: u64, name: &str, payload: &[u8], known: &[u8]) -> Result<()> {
    match payload.first() {
        Some(format) if !known.contains(format) => {
            let what = format!("meta block \"{name}\" has format {format}; this program reads {known:?}");
            Err(Error::unsupported(format_args!("sstable {file:06}.sst"), what))
        }
        _ => Ok(()),
    }
}

/// The slots of `paths` in `plan`, which contains all of them.
pub(crate) fn slots_in(plan: &AttributePlan, paths: &[AttributePath]) -> Vec<ValueSlot> {
    paths.iter().filter_map(|path| plan.slot(path)).collect()
}

impl SstableIndexBase {
    /// The index that `spec` declares over the records in the tree `table`. `id` names its blocks; it must never have been
    /// that of another index. Without an extractor it collects nothing and returns nothing.
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

    /// Returns the extractor.
    ///
    /// # Errors
    /// `InvalidInput` if there is none.
    pub(crate) fn extractor(&self) -> Result<&dyn AttributeExtractor> {
        self.extractor.as_deref().ok_or_else(|| {
            Error::invalid_input("the records of this collection have no attributes: it needs an extractor")
        })
    }

    /// Rejects what the other kinds of index reject: whether a record is accepted does not depend on the kind of its
    /// indexes.
    ///
    /// # Errors
    /// `LimitExceeded` for too many values, or a value that is too long.
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

/// The first value of a key or bound as JSON if it is complete, else its bytes.
pub(crate) fn bound_text(bound: &[u8]) -> String {
    match Value::decode(bound) {
        Some((value, _)) => value.to_json().to_string(),
        None => format!("\"{}\"", bound.escape_ascii()),
    }
}

#[cfg(test)]
mod tests {
    use bolide_base::ErrorKind;

    use super::*;

    #[test]
    fn another_format_of_a_meta_block_is_unsupported() {
        check_format(7, "next/3", &[3, 0], &[1, 3]).unwrap();
        let error = check_format(7, "next/3", &[2, 0], &[1, 3]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.message().contains("has format 2; this program reads [1, 3]"), "{error}");
    }
}
