//! The collection of an index, as the index sees it.

use std::sync::Arc;

use bolide_base::{Result, TreeId};
use bolide_index::{AttributeExtractor, JsonExtractor, SstableIndex, TableCollectors};
use bolide_lsm::{CollectorFactory, Store};

use crate::catalog::RecordKind;

/// The collection of an index, for the index.
#[derive(Clone, Default)]
pub(crate) struct Owner {
    /// The tree of the records.
    pub(crate) table: TreeId,
    /// The extractor of the attributes; `None` for records of bytes without an extractor of the program.
    pub(crate) extractor: Option<Arc<dyn AttributeExtractor>>,
}

impl Owner {
    /// The owner of the indexes of a collection in `table` whose records are `records`; `extractor` is the
    /// program's own, for records of bytes.
    pub(crate) fn new(
        table: TreeId,
        records: RecordKind,
        extractor: Option<Arc<dyn AttributeExtractor>>,
    ) -> Self {
        let extractor = match records {
            RecordKind::Json => Some(Arc::new(JsonExtractor) as Arc<dyn AttributeExtractor>),
            RecordKind::Bytes => extractor,
        };
        Self { table, extractor }
    }
}

/// Adds the meta blocks of `indexes`, and of no others, to the sstables of `owner` that are written from now on.
///
/// # Errors
/// `NotFound` if the collection's tree does not exist.
pub(crate) fn install_collectors(
    store: &Store,
    owner: Owner,
    indexes: Vec<Arc<dyn SstableIndex>>,
) -> Result<()> {
    let factory = match owner.extractor {
        Some(extractor) if !indexes.is_empty() => {
            Some(Arc::new(TableCollectors::new(extractor, indexes)) as Arc<dyn CollectorFactory>)
        }
        _ => None,
    };
    store.set_meta_collectors(owner.table, factory)
}
