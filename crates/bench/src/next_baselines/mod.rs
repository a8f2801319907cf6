//! The baselines of NEXT (§6.1), all of them exact.
//!
//! ```text
//! eager        a B-tree or an R-tree in memory; each put reads the old record
//! in sstables  index blocks in each sstable without a global index: a query reads every sstable (He and Chen)
//! composite    keys of value and primary key in an LSM tree, validated by an update memo in memory; rectangles
//!              and points by their cells in a grid
//! ```
//!
//! The lookup driver of the database reads each of them, so that all validate candidates and fetch records in the same way.
//! *In sstables* is an index of the database; the others [substitute](substitution) one.

mod cells;
mod eager;
mod memo;
mod substitution;
mod table;
#[cfg(test)]
mod tests;

pub use cells::{CELL, cell_of, with_cell};
pub use substitution::{CellRanges, Substitution, with_substitutions};
pub use table::{Attribute, Contender, ContenderKind, Selection, Table, TableSettings};
