//! What indexes that lie in sstables have to do with their collection: its records, and the sstables that carry their
//! meta blocks.

use std::sync::Arc;

use bolide_base::{Result, TreeId};
use bolide_index::{
    AttributeExtractor, EmbeddedFigures, EmbeddedIndex, JsonExtractor, NextFigures, NextIndex, SstableIndex,
    TableCollectors,
};
use bolide_lsm::{CollectorFactory, Store};

use crate::catalog::RecordKind;

/// The collection of an index, as far as the index depends on it.
#[derive(Clone, Default)]
pub(crate) struct Owner {
    /// The tree of the records.
    pub(crate) table: TreeId,
    /// What finds the attributes of the records; `None` for records of bytes for which the program gave
    /// no extractor.
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

/// Lets the sstables of `owner` that are written from now on carry the meta blocks of `indexes`, and of no
/// others.
///
/// # Errors
/// `NotFound` where the collection's tree is not there.
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

/// What an index of kind `next` takes in the sstables of the collection in `table`, and in memory.
pub(crate) fn next_figures(store: &Store, table: TreeId, index: &NextIndex) -> NextFigures {
    let mut sum = NextFigures::default();
    // Where the tree was just dropped there is nothing to add.
    let _ = store.visit_tables(table, |meta, attachments| sum += index.figures(meta, attachments));
    let _ = store.visit_version(table, |attachments| index.add_global_figures(attachments, &mut sum));
    sum
}

/// What an embedded index takes in the sstables of the collection in `table`.
pub(crate) fn figures(store: &Store, table: TreeId, index: &EmbeddedIndex) -> EmbeddedFigures {
    let mut sum = EmbeddedFigures::default();
    // Where the tree was just dropped there is nothing to add.
    let _ = store.visit_tables(table, |meta, attachments| sum += index.figures(meta, attachments));
    sum
}
