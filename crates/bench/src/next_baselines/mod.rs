//! What NEXT is compared with (§6.1), all of it exact.
//!
//! ```text
//! eager        a B-tree or an R-tree in memory, kept by reading the old record at each put
//! in sstables  index blocks in each sstable without a global index: every sstable is read (He and Chen)
//! composite    keys of value and primary key in an LSM tree, validated by an update memo in memory; rectangles
//!              and points by the cells of a grid that they lie in
//! ```
//!
//! The lookup driver of the database reads each of them, so that all find, validate and bring records in the same way.
//! Of *in sstables* the database has an index of its own; the others [stand in](stand_in) for one.

mod cells;
mod eager;
mod memo;
mod stand_in;
mod table;
#[cfg(test)]
mod tests;

pub use cells::{CELL, cell_of, with_cell};
pub use stand_in::{CellQueries, StandIn, standing_in};
pub use table::{Attribute, Contender, Kind, QueryFigures, Setting, Table};
