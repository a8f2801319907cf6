//! `layout`: a new layout of a collection's sorted runs.

use super::database;
use crate::arguments::ChangeLayout;
use crate::failure::Failure;

/// Changes the layout of one collection and its indexes, and waits for the rewrites.
pub(super) fn run(arguments: &ChangeLayout) -> Result<(), Failure> {
    let db = database::open_to_write(&arguments.db)?;
    database::collection(&db, &arguments.collection)?.set_layout(arguments.layout)?;
    db.wait_until_settled()?;
    database::close(db)
}
