//! Cursors over whole trees.
//!
//! ```text
//! VisibleCursor         the visible entries at one sequence number: a value per key
//!   MergingCursor       all versions of all sources, in tree order
//!     ComponentCursor   a memtable, an sstable, or a sorted run of sstables
//! ```
//!
//! | file | concept |
//! |---|---|
//! | `bounds` | the range of keys of a cursor |
//! | `run_cursor` | the sstables of a sorted run, one after the other |
//! | `component_cursor` | a cursor over one component of a tree |
//! | `budgeted_cursor` | a cursor over one component that fails after so many steps |
//! | `merging_cursor` | several sources as one |
//! | `prepared_key` | the target of a prepared seek |
//! | `versions_cursor` | all operands of the keys of a tree whose operands are merged |
//! | `visible_cursor` | the entries without hidden versions, tombstones and deleted ranges |

mod bounds;
mod budgeted_cursor;
mod component_cursor;
mod merging_cursor;
mod prepared_key;
mod run_cursor;
#[cfg(test)]
mod tests;
mod versions_cursor;
mod visible_cursor;

pub use bolide_table::InternalCursor;
pub use bounds::Bounds;
pub(crate) use bounds::successor;
pub use budgeted_cursor::{BudgetedCursor, StepBudget};
pub use component_cursor::ComponentCursor;
pub use merging_cursor::MergingCursor;
pub(crate) use prepared_key::PreparedKey;
pub use run_cursor::{RunCursor, RunTables};
pub use versions_cursor::VersionsCursor;
pub use visible_cursor::VisibleCursor;
