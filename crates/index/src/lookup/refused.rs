//! Indexes that cannot be read for lack of memory: a query uses other plans meanwhile, at the end a scan.

use bolide_base::{Error, Result};

use crate::secondary_index::SecondaryIndex;
use crate::source::ReadSource;

/// An index that cannot be read now.
pub(super) struct RefusedIndex {
    pub(super) name: String,
    pub(super) why: Error,
}

/// Opens `indexes`. Returns the first one that cannot be read.
pub(super) fn first_refused<'i, S: ReadSource + 'i>(
    indexes: impl Iterator<Item = &'i dyn SecondaryIndex<S>>,
) -> Result<Option<RefusedIndex>> {
    for index in indexes {
        if let Some(why) = index.refusal()? {
            return Ok(Some(RefusedIndex { name: index.spec().name().to_owned(), why }));
        }
    }
    Ok(None)
}
