//! The method of the kind `lazy`.

use std::sync::Arc;

use bolide_base::{Result, Trailer, TreeId};
use bolide_lsm::Store;

use super::{LazyIndex, LazyMerge};
use crate::hooks::{BackFillMode, IndexHooks};
use crate::method::{IndexMethod, IndexParts};
use crate::spec::{IndexSpec, KindProperties};
use crate::standalone::describe::{put_postings, put_values};
use crate::standalone::dropped_postings::DroppedPostings;
use crate::standalone::posting_list::PostingCounts;

/// The kind `lazy`.
pub(crate) static LAZY: IndexMethod = IndexMethod {
    describe_entry: Some(describe_entry),
    ..IndexMethod::new(PROPERTIES, |new| {
        let mut index = LazyIndex::new(new.spec, new.tree);
        index.base.use_key_index(new.key_index);
        Ok(IndexParts::of(index))
    })
};

const PROPERTIES: KindProperties = KindProperties {
    covers_key: true,
    ..KindProperties::with_tree("lazy", &["maintenance", "validation", "include", "repair"])
};

fn describe_entry(spec: &IndexSpec, key: &[u8], trailer: Trailer, value: &[u8]) -> Option<String> {
    let mut text = String::new();
    put_values(&mut text, key)?;
    put_postings(&mut text, spec, trailer, value)?;
    Some(text)
}

impl IndexHooks for LazyIndex {
    /// Installs the count of postings for estimates, and the merge of posting lists, which drops postings that no reader
    /// needs.
    fn install(&self, store: &Store, table: TreeId) -> Result<()> {
        let (spec, tree) = (&self.base.spec, self.base.tree());
        store.set_meta_collectors(tree, Some(Arc::new(PostingCounts::of(spec))))?;
        let operator = LazyMerge::new(spec, DroppedPostings::of(spec, store.tree_reader(table)?));
        store.set_merge_operator(tree, Arc::new(operator))?;
        if self.base.is_synchronous() { store.add_dependent(table, tree) } else { Ok(()) }
    }

    fn back_fill(&self) -> BackFillMode {
        let is_checked = self.base.is_synchronous();
        if is_checked { BackFillMode::CheckedAtOwnNumber } else { BackFillMode::Blind }
    }
}
