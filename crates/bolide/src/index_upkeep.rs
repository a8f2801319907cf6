//! The filters and merge operators of an index's own tree in flushes and compactions.

use std::sync::Arc;

use bolide_base::{Result, SequenceNumber, TreeId};
use bolide_index::standalone::composite::{EntryLayout, StaleEntryFilter};
use bolide_index::standalone::eager::StalePieces;
use bolide_index::standalone::lazy::LazyMerge;
use bolide_index::standalone::posting_list::PostingCounts;
use bolide_index::{IndexKind, Maintenance};
use bolide_lsm::Store;
use bolide_lsm::compaction::{CompactionFilter, FilteredEntry};
use bolide_lsm::store::TreeReader;

use crate::index_set::Index;
use crate::posting_filter::{DroppedPostings, TableWrites};
use crate::stale_deletions::repairs;

/// Installs the filters with which compactions drop entries that no reader needs, the merge of the posting lists of a
/// lazy index, and the count of postings for estimates.
///
/// With `maintenance=validation` the filter only saves space: a stale entry costs space and a validation, never a wrong
/// answer. So the filter may leave some, and range tombstones need not wait for it: validation reads the records
/// themselves. With `repair=primary-compaction` the filter drops nothing: compactions of the records report stale
/// entries. With `maintenance=synchronous` only the range tombstones of the records identify the entries of deleted
/// ranges: the filter drops every one of them, and the tombstones are retained until it did.
///
/// # Errors
/// `NotFound` if one of the trees does not exist.
pub(crate) fn install_upkeep(store: &Store, table: TreeId, index: &Index) -> Result<()> {
    if index.is_key_index || index.is_in_sstables() {
        // The first reads tombstones and deleted ranges of the records, the second has no entries.
        return Ok(());
    }
    if index.ps_tree.is_some() {
        // Its external tree collects garbage itself; tombstones of deleted ranges wait for that.
        return store.add_dependent(table, index.tree);
    }
    let (spec, reader) = (index.spec(), store.tree_reader(table)?);
    let is_synchronous = spec.maintenance() == Maintenance::Synchronous;
    if matches!(spec.kind(), IndexKind::Lazy | IndexKind::Eager) {
        store.set_meta_collectors(index.tree, Some(Arc::new(PostingCounts::of(spec))))?;
    }
    match spec.kind() {
        IndexKind::Lazy => {
            let operator = LazyMerge::new(spec, DroppedPostings::of(spec, reader));
            store.set_merge_operator(index.tree, Arc::new(operator))?;
        }
        _ if repairs(spec) => {}
        IndexKind::Eager => {
            let pieces = StalePieces::new(spec, DroppedPostings::of(spec, reader));
            store.set_compaction_filter(index.tree, Arc::new(Pieces(pieces)))?;
        }
        _ if is_synchronous => {
            let filter = EntriesOfDeletedRanges { layout: EntryLayout::of(spec), table: reader };
            store.set_compaction_filter(index.tree, Arc::new(filter))?;
        }
        _ => {
            let filter = StaleEntryFilter::new(EntryLayout::of(spec), TableWrites { table: reader });
            store.set_compaction_filter(index.tree, Arc::new(StaleCompositeFilter(filter)))?;
        }
    }
    if is_synchronous { store.add_dependent(table, index.tree) } else { Ok(()) }
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

/// The filter of a composite index with `maintenance=validation`.
#[derive(Debug)]
struct StaleCompositeFilter(StaleEntryFilter<TableWrites>);

impl CompactionFilter for StaleCompositeFilter {
    fn drops(
        &self,
        key: &[u8],
        sequence: SequenceNumber,
        value: &[u8],
        oldest_in_use: SequenceNumber,
    ) -> Result<bool> {
        self.0.is_stale(FilteredEntry { key, sequence, value }, oldest_in_use)
    }

    fn drops_many(
        &self,
        entries: &[FilteredEntry<'_>],
        oldest_in_use: SequenceNumber,
        out: &mut Vec<bool>,
    ) -> Result<()> {
        self.0.are_stale(entries, oldest_in_use, out)
    }
}

/// The filter of a composite index with `maintenance=synchronous`.
#[derive(Debug)]
struct EntriesOfDeletedRanges {
    layout: EntryLayout,
    table: TreeReader,
}

impl CompactionFilter for EntriesOfDeletedRanges {
    fn drops(
        &self,
        key: &[u8],
        sequence: SequenceNumber,
        _value: &[u8],
        oldest_in_use: SequenceNumber,
    ) -> Result<bool> {
        // A malformed entry stays, so that the check reports it.
        let Some(entry) = self.layout.parse(key, sequence) else { return Ok(false) };
        Ok(self.table.newest_range_tombstone_at(entry.primary_key, oldest_in_use) > entry.sequence)
    }
}
