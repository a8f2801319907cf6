//! Bolide.

use std::path::Path;

use crate::engine::{Engine, IndexEngine, Layout};
use crate::error::Result;

/// What happens to the index entry of a record that is overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maintenance {
    /// Nothing is read; lookups check candidates against the table.
    Validation,
    /// The old record is read inside the commit and its entry removed.
    Synchronous,
}

/// Opens the plain store.
pub fn open_store(_: &Path, _: Layout) -> Result<Box<dyn Engine>> {
    Err("not yet".into())
}

/// Opens a collection with a composite index on the secondary key.
pub fn open_index(_: &Path, _: Layout, _: Maintenance) -> Result<Box<dyn IndexEngine>> {
    Err("not yet".into())
}
