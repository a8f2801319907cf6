//! Indexes inside sstables in relation to their collection: its records, and the sstables that contain their meta
//! blocks.

use std::sync::Arc;

use bolide_base::{Result, TreeId};
use bolide_index::{
    AttributeExtractor, EmbeddedFigures, EmbeddedIndex, JsonExtractor, NextFigures, NextIndex, SstableIndex,
    TableCollectors,
};
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

/// The space of an index of kind `next` in the sstables of the collection in `table`, and in memory.
pub(crate) fn next_figures(store: &Store, table: TreeId, index: &NextIndex) -> NextFigures {
    let mut sum = NextFigures::default();
    // A tree that was just dropped adds nothing.
    let _ = store.visit_tables(table, |meta, attachments| sum += index.figures(meta, attachments));
    let _ = store.visit_version(table, |attachments| index.add_global_figures(attachments, &mut sum));
    sum
}

/// The space of an embedded index in the sstables of the collection in `table`.
pub(crate) fn figures(store: &Store, table: TreeId, index: &EmbeddedIndex) -> EmbeddedFigures {
    let mut sum = EmbeddedFigures::default();
    // A tree that was just dropped adds nothing.
    let _ = store.visit_tables(table, |meta, attachments| sum += index.figures(meta, attachments));
    sum
}
