//! The method of the kind `composite`.

use std::sync::Arc;

use bolide_base::{Result, SequenceNumber, Trailer, TreeId};
use bolide_lsm::Store;
use bolide_lsm::compaction::{CompactionFilter, FilteredEntry};
use bolide_lsm::store::TreeReader;

use super::CompositeIndex;
use crate::hooks::{BackFillMode, IndexHooks};
use crate::method::{IndexMethod, IndexParts};
use crate::spec::{EntryOrder, IndexSpec, KindProperties, RepairStrategy};
use crate::standalone::describe::{put_values, put_write};
use crate::standalone::entry_key::EntryLayout;
use crate::standalone::stale_filter::{StaleEntryFilter, TableWrites};

/// The kind `composite`.
pub(crate) static COMPOSITE: IndexMethod = IndexMethod {
    describe_entry: Some(describe_entry),
    ..IndexMethod::new(PROPERTIES, |new| {
        let mut index = CompositeIndex::new(new.spec, new.tree);
        index.base.use_key_index(new.key_index);
        Ok(IndexParts::of(index))
    })
};

const PROPERTIES: KindProperties = KindProperties {
    covers_key: true,
    ..KindProperties::with_tree("composite", &["maintenance", "validation", "include", "repair", "order"])
};

fn describe_entry(spec: &IndexSpec, key: &[u8], trailer: Trailer, _value: &[u8]) -> Option<String> {
    let mut text = String::new();
    let entry = EntryLayout::of(spec).parse(key, trailer.sequence())?;
    put_values(&mut text, entry.secondary_key)?;
    put_write(&mut text, ":", entry.sequence, entry.primary_key);
    Some(text)
}

impl IndexHooks for CompositeIndex {
    /// Installs the filter with which compactions drop entries that no reader needs.
    ///
    /// With `maintenance=validation` the filter only saves space: a stale entry costs space and a validation, never a wrong
    /// answer. So the filter may leave some, and range tombstones need not wait for it: validation reads the records
    /// themselves. With `repair=primary-compaction` the filter drops nothing: compactions of the records report stale
    /// entries. With `maintenance=synchronous` only the range tombstones of the records identify the entries of deleted
    /// ranges: the filter drops every one of them, and the tombstones are retained until it did.
    fn install(&self, store: &Store, table: TreeId) -> Result<()> {
        let (spec, tree) = (&self.base.spec, self.base.tree());
        let reader = store.tree_reader(table)?;
        if self.base.is_synchronous() {
            let filter = EntriesOfDeletedRanges { layout: self.layout, table: reader };
            store.set_compaction_filter(tree, Arc::new(filter))?;
            return store.add_dependent(table, tree);
        }
        if spec.repair() == RepairStrategy::IndexCompaction {
            store.set_compaction_filter(tree, stale_entry_filter(spec, reader))?;
        }
        Ok(())
    }

    fn back_fill(&self) -> BackFillMode {
        let is_checked = self.base.is_synchronous() || self.base.spec.entry_order() == EntryOrder::PrimaryKey;
        if is_checked { BackFillMode::Checked } else { BackFillMode::Blind }
    }
}

/// The filter that drops the entries of an index like a composite one that no reader needs; `records` is the tree of the records.
pub(crate) fn stale_entry_filter(spec: &IndexSpec, records: TreeReader) -> Arc<dyn CompactionFilter> {
    let filter = StaleEntryFilter::new(EntryLayout::of(spec), TableWrites { table: records });
    Arc::new(StaleCompositeFilter(filter))
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
