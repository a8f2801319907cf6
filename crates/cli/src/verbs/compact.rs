//! `compact`: merges all sorted runs.

use super::database;
use crate::arguments::Compact;
use crate::failure::Failure;

/// Compacts one collection with its indexes, or all.
pub(super) fn run(arguments: &Compact) -> Result<(), Failure> {
    let db = database::open_to_write(&arguments.db)?;
    match &arguments.collection {
        Some(name) => database::collection(&db, name)?.compact()?,
        None => db.compact()?,
    }
    database::close(db)
}
