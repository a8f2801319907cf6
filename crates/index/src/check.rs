//! The comparison of an index with its table.

use bolide_base::TreeId;

use crate::extractor::AttributeExtractor;

/// Maximum number of problems that a report describes; all are counted.
const MAX_EXAMPLES: usize = 10;

/// The table of the comparison.
#[derive(Debug, Clone, Copy)]
pub struct CheckedTable<'t> {
    /// The tree of the records.
    pub tree: TreeId,
    /// Extracts the attributes of the records.
    pub extractor: &'t dyn AttributeExtractor,
}

/// The result of the comparison of an index with its table, in both directions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexCheck {
    /// Records of the table.
    pub records: u64,
    /// Entries of the index.
    pub entries: u64,
    /// Entries of records that were replaced or deleted since, as the maintenance of the index allows.
    pub stale: u64,
    /// Values of records without an entry.
    pub missing: u64,
    /// Entries with a value that their record does not have, or that the write of their record should have deleted.
    pub wrong: u64,
    /// Entries that occur more than once.
    pub duplicate: u64,
    /// Entries that do not decode.
    pub malformed: u64,
    /// Descriptions of the first problems.
    pub examples: Vec<String>,
}

impl IndexCheck {
    /// Whether the index returns the same answers as a scan of its table.
    pub fn is_sound(&self) -> bool {
        self.missing == 0 && self.wrong == 0 && self.duplicate == 0 && self.malformed == 0
    }

    /// Adds a description of a problem, up to the maximum number.
    pub fn describe(&mut self, problem: impl FnOnce() -> String) {
        if self.examples.len() < MAX_EXAMPLES {
            self.examples.push(problem());
        }
    }
}
