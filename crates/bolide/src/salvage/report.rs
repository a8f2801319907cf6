//! The result of a repair: new collections and losses.

use std::fmt;

use bolide_lsm::salvage::Loss;

use crate::key::KeyFormat;

/// The result of [`repair`](crate::repair()).
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RepairReport {
    /// The collections of the new database, in the order of their trees.
    pub collections: Vec<RepairedCollection>,
    /// Everything that is or may be missing from the new database. Empty: it contains all data of the damaged one.
    pub losses: Vec<Loss>,
    /// Indexes that were built from the records. Their old files were not read, so their damage loses nothing.
    pub rebuilt: Vec<RebuiltIndex>,
    /// Damage without loss of data.
    pub notes: Vec<String>,
}

/// A collection of the new database.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairedCollection {
    /// Its name.
    pub name: String,
    /// The text format of its keys.
    pub keys: KeyFormat,
    /// Records written.
    pub records: u64,
    /// Of these, records that are not valid JSON objects in a collection of JSON: an older version stored them without
    /// validation. They are copied as they are.
    pub malformed: u64,
}

/// An index of the new database.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RebuiltIndex {
    /// The name of the collection.
    pub collection: String,
    /// The name of the index.
    pub index: String,
}

impl RepairReport {
    /// Whether nothing is lost, according to the files.
    ///
    /// ```
    /// assert!(bolide::RepairReport::default().is_complete());
    /// ```
    pub fn is_complete(&self) -> bool {
        self.losses.is_empty()
    }
}

impl fmt::Display for RepairReport {
    /// One fact a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for RepairedCollection { name, records, malformed, .. } in &self.collections {
            write!(f, "collection {name:?}: {records} records")?;
            match malformed {
                0 => writeln!(f)?,
                _ => writeln!(f, ", {malformed} of them malformed")?,
            }
        }
        for RebuiltIndex { collection, index } in &self.rebuilt {
            writeln!(f, "index {index:?} of {collection:?}: built from the records")?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        for loss in &self.losses {
            writeln!(f, "lost: {loss}")?;
        }
        if self.losses.is_empty() { writeln!(f, "nothing lost") } else { Ok(()) }
    }
}
