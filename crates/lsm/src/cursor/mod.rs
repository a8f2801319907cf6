//! Cursors over whole trees.
//!
//! ```text
//! VisibleCursor      what a reader sees at one sequence number: a value for each key
//!   MergingCursor    all versions of all sources, in tree order
//!     Source         a memtable, an sstable, or a sorted run of sstables
//! ```
//!
//! | file | concept |
//! |---|---|
//! | `bounds` | the keys that a cursor is limited to |
//! | `run_cursor` | the sstables of a sorted run, one after the other |
//! | `source` | one of the components of a tree |
//! | `merging_cursor` | several sources as one |
//! | `prepared_key` | the place that a seek was prepared for |
//! | `versions_cursor` | all operands of the keys of a tree whose operands are merged |
//! | `visible_cursor` | old versions, tombstones and deleted ranges left out |

mod bounds;
mod merging_cursor;
mod prepared_key;
mod run_cursor;
mod source;
#[cfg(test)]
mod tests;
mod versions_cursor;
mod visible_cursor;

pub use bolide_table::InternalCursor;
pub use bounds::Bounds;
pub(crate) use bounds::successor;
pub use merging_cursor::MergingCursor;
pub(crate) use prepared_key::PreparedKey;
pub use run_cursor::{Run, RunCursor};
pub use source::Source;
pub use versions_cursor::VersionsCursor;
pub use visible_cursor::VisibleCursor;
