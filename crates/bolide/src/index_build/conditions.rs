//! Conditions under which the build of an index continues.

use bolide_base::{Error, ErrorKind, Result};

use crate::handle::Engine;
use crate::index_set::Index;
use crate::schema::OpenCollection;

/// Fails if the build of the index must end.
pub(super) fn check_wanted(engine: &Engine, collection: &OpenCollection, index: &Index) -> Result<()> {
    check_in_use(collection, index)?;
    if engine.is_closing() {
        let what = "the database is closing; its next open continues the build of the index";
        return Err(Error::new(ErrorKind::Closed, what));
    }
    Ok(())
}

/// Fails if the index was dropped or isolated.
pub(super) fn check_in_use(collection: &OpenCollection, index: &Index) -> Result<()> {
    collection.check_live()?;
    if let Some(damage) = index.progress.damage() {
        return Err(damage);
    }
    if index.progress.is_cancelled() {
        let what = format!("the index {:?} was dropped while it was being built", index.name);
        return Err(Error::new(ErrorKind::Conflict, what));
    }
    Ok(())
}
