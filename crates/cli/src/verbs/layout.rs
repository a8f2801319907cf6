//! `layout`: a new layout of a collection's sorted runs.

use bolide::Layout;

use super::database;
use crate::arguments::{ChangeLayout, LayoutName};
use crate::failure::Failure;

/// Changes the layout of one collection and its indexes, and waits for the rewrites.
pub(super) fn run(arguments: &ChangeLayout) -> Result<(), Failure> {
    let db = database::open_to_write(&arguments.db)?;
    database::collection(&db, &arguments.collection)?.set_layout(layout_of(arguments.layout))?;
    db.wait_until_settled()?;
    database::close(db)
}

/// The layout with this name.
pub(super) fn layout_of(name: LayoutName) -> Layout {
    match name {
        LayoutName::Leveled => Layout::Leveled,
        LayoutName::Tiered => Layout::Tiered,
        LayoutName::Fragmented => Layout::Fragmented,
        LayoutName::Partitioned => Layout::Partitioned,
    }
}
