//! The method of the kind `eager`.

use std::fmt::Write;
use std::sync::Arc;

use bolide_base::{Result, SequenceNumber, Trailer, TreeId};
use bolide_lsm::Store;
use bolide_lsm::compaction::{CompactionFilter, FilteredEntry};

use super::{EagerIndex, StalePieces, piece_key};
use crate::hooks::{BackFillMode, IndexHooks};
use crate::method::{IndexMethod, IndexParts};
use crate::spec::{IndexSpec, KindProperties, RepairStrategy};
use crate::standalone::describe::{put_postings, put_values};
use crate::standalone::dropped_postings::DroppedPostings;
use crate::standalone::posting_list::PostingCounts;

/// The kind `eager`.
pub(crate) static EAGER: IndexMethod = IndexMethod {
    describe_entry: Some(describe_entry),
    ..IndexMethod::new(PROPERTIES, |new| {
        let mut index = EagerIndex::new(new.spec, new.tree);
        index.base.use_key_index(new.key_index);
        Ok(IndexParts::of(index))
    })
};

const PROPERTIES: KindProperties = KindProperties {
    covers_key: true,
    ..KindProperties::with_tree("eager", &["maintenance", "validation", "include", "repair", "split"])
};

fn describe_entry(spec: &IndexSpec, key: &[u8], trailer: Trailer, value: &[u8]) -> Option<String> {
    let mut text = String::new();
    let (list, from) = piece_key::split(key)?;
    put_values(&mut text, list)?;
    // Writing to a string cannot fail.
    let _ = write!(text, " from #{from}");
    put_postings(&mut text, spec, trailer, value)?;
    Some(text)
}

impl IndexHooks for EagerIndex {
    /// Installs the count of postings for estimates, and the filter with which compactions drop postings that no reader
    /// needs.
    fn install(&self, store: &Store, table: TreeId) -> Result<()> {
        let (spec, tree) = (&self.base.spec, self.base.tree());
        store.set_meta_collectors(tree, Some(Arc::new(PostingCounts::of(spec))))?;
        if spec.repair() != RepairStrategy::PrimaryCompaction {
            let pieces = StalePieces::new(spec, DroppedPostings::of(spec, store.tree_reader(table)?));
            store.set_compaction_filter(tree, Arc::new(Pieces(pieces)))?;
        }
        if self.base.is_synchronous() { store.add_dependent(table, tree) } else { Ok(()) }
    }

    fn back_fill(&self) -> BackFillMode {
        BackFillMode::CheckedAtOwnNumber
    }
}

/// The filter of an eager index.
#[derive(Debug)]
struct Pieces(StalePieces<DroppedPostings>);

impl CompactionFilter for Pieces {
    /// A piece is written repeatedly, so none may be dropped whole.
    fn drops(&self, _: &[u8], _: SequenceNumber, _: &[u8], _: SequenceNumber) -> Result<bool> {
        Ok(false)
    }

    fn shrinks(&self, entry: FilteredEntry<'_>, oldest_in_use: SequenceNumber) -> Result<Option<Vec<u8>>> {
        self.0.shrink(entry.key, entry.sequence, entry.value, oldest_in_use)
    }
}
