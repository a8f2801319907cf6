//! Comparing an index with its table.

use bolide_base::TreeId;

use crate::extractor::AttributeExtractor;

/// Most problems that a report describes one by one; all are counted.
const MAX_EXAMPLES: usize = 10;

/// The table that an index is compared with.
#[derive(Debug, Clone, Copy)]
pub struct CheckedTable<'t> {
    /// The tree of the records.
    pub tree: TreeId,
    /// Finds the attributes of the records.
    pub extractor: &'t dyn AttributeExtractor,
}

/// What comparing an index with its table, in both directions, found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexCheck {
    /// Records of the table.
    pub records: u64,
    /// Entries of the index.
    pub entries: u64,
    /// Entries whose record was replaced or deleted since, as the maintenance of the index allows.
    pub stale: u64,
    /// Values of records without an entry.
    pub missing: u64,
    /// Entries for a value that their record does not have, or whose record should have taken them along.
    pub wrong: u64,
    /// Entries that stand in the index more than once.
    pub duplicate: u64,
    /// Entries that cannot be read.
    pub malformed: u64,
    /// The first problems in words.
    pub examples: Vec<String>,
}

impl IndexCheck {
    /// True if the index answers as a scan of its table would.
    pub fn is_sound(&self) -> bool {
        self.missing == 0 && self.wrong == 0 && self.duplicate == 0 && self.malformed == 0
    }

    /// Describes a problem, unless there are enough descriptions already.
    pub(crate) fn describe(&mut self, problem: impl FnOnce() -> String) {
        if self.examples.len() < MAX_EXAMPLES {
            self.examples.push(problem());
        }
    }
}
