//! Compares the meta blocks and the memtable indexes of an embedded index with the records.
//!
//! A memtable index must have an entry of each value of the memtable's records, and no others.
//!
//! What a filter must not pass over is asked of it, value by value; then the block and its summary in the
//! manifest are made again from the records and must come out the same, so that nothing is in them that the
//! records do not have.

use std::collections::BTreeMap;
use std::sync::Arc;

use bolide_base::limits::MAX_INDEXED_ELEMENTS;
use bolide_base::{EntryKind, Result, SequenceNumber};
use bolide_lsm::ReadView;
use bolide_lsm::cursor::InternalCursor;
use bolide_lsm::memtable::Visibility;
use bolide_lsm::store::{Component, MemtableComponent, TableComponent};
use bolide_table::{BlockHandle, MetaCollector};

use super::collector::EmbeddedCollectors;
use super::cursor::{entry_sequence, load};
use super::memtable_index::{ATTACHMENT, MemtableIndex};
use super::meta_block::{self, Answer, MetaBlock, Wanted};
use super::secondary_keys::SecondaryKeys;
use super::{EmbeddedIndex, filter, summary};
use crate::attribute_plan::AttributeValues;
use crate::check::{CheckedTable, IndexCheck};
use crate::extractor::AttributeExtractor;

pub(super) fn check(
    index: &EmbeddedIndex,
    view: &ReadView,
    table: &CheckedTable<'_>,
    report: &mut IndexCheck,
) -> Result<()> {
    let tree = view.tree(table.tree)?;
    for component in tree.components() {
        match component {
            Component::Memtable(memtable) => {
                check_memtable(index, &memtable, table.extractor, view.sequence(), report)?;
            }
            Component::Table(sstable) if summary::find(&sstable.meta().attachment, index.id).is_some() => {
                check_table(index, &sstable, report)?;
            }
            // Read whole by every question, so there is nothing to be wrong.
            Component::Table(_) => {}
        }
    }
    Ok(())
}

/// Calls `visit` with each secondary key of `record`; false where it cannot be looked into.
fn for_each_key(
    index: &EmbeddedIndex,
    extractor: &dyn AttributeExtractor,
    record: &[u8],
    values: &mut AttributeValues,
    mut visit: impl FnMut(&[u8], &[u8]),
) -> bool {
    if extractor.extract(record, &index.plan, values).is_err() {
        return false;
    }
    let keys = SecondaryKeys { values, slots: &index.slots };
    let count = keys.count();
    let mut key = Vec::new();
    for ordinal in 0..count.min(MAX_INDEXED_ELEMENTS) {
        keys.write(ordinal, &mut key);
        visit(&key, keys.first_values().next().unwrap_or_default());
    }
    count <= MAX_INDEXED_ELEMENTS
}

fn check_table(index: &EmbeddedIndex, sstable: &TableComponent, report: &mut IndexCheck) -> Result<()> {
    let Some(extractor) = &index.extractor else { return Ok(()) };
    let stored = load(sstable, index)?;
    let bits = u32::from(stored.bits());
    let attributes = index.spec.attributes();
    let mut collector =
        EmbeddedCollectors::of(Arc::clone(extractor), &[(index.id, bits, attributes)]).collector();
    let mut values = AttributeValues::new();
    let mut entries = sstable.entries()?;
    entries.seek_to_first()?;
    let mut block = 0;
    while let Some(position) = entries.position() {
        if position.block != block {
            collector.finish_block(BlockHandle::default());
            block = position.block;
        }
        collector.add(entries.key(), entries.trailer(), entries.value(), block);
        if entries.trailer().kind() == Some(EntryKind::Put) {
            report.records += 1;
            let primary_key = entries.key();
            for_each_key(index, &**extractor, entries.value(), &mut values, |key, first| {
                report.entries += 1;
                if !admits(&stored, block, key, first) {
                    report.missing += 1;
                    report.describe(|| {
                        format!(
                            "index {}: block {block} of sstable {} would be passed over for a value of key \"{}\"",
                            index.spec.name(),
                            sstable.meta().number,
                            primary_key.escape_ascii()
                        )
                    });
                }
            });
        }
        entries.next()?;
    }
    collector.finish_block(BlockHandle::default());
    compare(index, sstable, &stored, &mut collector, report)
}

/// Whether a question for `key`, or for the first of its attributes, would read the block.
fn admits(stored: &MetaBlock, block: u64, key: &[u8], first: &[u8]) -> bool {
    let end = [key, &[0]].concat();
    [key, first].into_iter().all(|hashed| {
        let wanted = Wanted { low: key, end: &end, hash: Some(filter::hash(hashed)) };
        let is_maybe = |answer| matches!(answer, Answer::Maybe { .. });
        is_maybe(stored.ask_whole(&wanted, u64::MAX)) && is_maybe(stored.ask_block(block, &wanted, u64::MAX))
    })
}

/// Compares the meta block and the summary with what the records would make of them.
fn compare(
    index: &EmbeddedIndex,
    sstable: &TableComponent,
    stored: &MetaBlock,
    collector: &mut impl MetaCollector,
    report: &mut IndexCheck,
) -> Result<()> {
    let name = meta_block::name(index.id);
    let made = collector.finish()?;
    let made = made.iter().find(|(of, _)| *of == name).map(|(_, bytes)| bytes.as_slice());
    let section = collector.attachment();
    let same_summary =
        summary::find(&section, index.id) == summary::find(&sstable.meta().attachment, index.id);
    for (is_same, what) in
        [(made == Some(stored.payload()), "meta block"), (same_summary, "summary in the manifest")]
    {
        if !is_same {
            report.wrong += 1;
            report.describe(|| {
                let (name, number) = (index.spec.name(), sstable.meta().number);
                format!("index {name}: the {what} of sstable {number} is not that of its records")
            });
        }
    }
    Ok(())
}

fn check_memtable(
    index: &EmbeddedIndex,
    component: &MemtableComponent,
    extractor: &dyn AttributeExtractor,
    view: SequenceNumber,
    report: &mut IndexCheck,
) -> Result<()> {
    let own = component.attachments().get_or_make(ATTACHMENT, || Ok(MemtableIndex::default()))?;
    let memtable = component.memtable();
    // So that it has taken in everything that the view sees.
    own.visit(memtable, index, extractor, (&[], None, &[]), |_, _| false)?;
    let mut wanted: BTreeMap<Vec<u8>, bool> = BTreeMap::new();
    let mut values = AttributeValues::new();
    let mut cursor = memtable.cursor(Visibility::All);
    cursor.seek_to_first()?;
    while cursor.valid() {
        let sequence = cursor.trailer().sequence();
        if cursor.trailer().kind() == Some(EntryKind::Put) && sequence <= view {
            report.records += 1;
            let mut keys = Vec::new();
            let is_whole =
                for_each_key(index, extractor, cursor.value(), &mut values, |key, _| keys.push(key.to_vec()));
            // Others stand in the list of those that are always looked at.
            for mut key in keys.into_iter().filter(|_| is_whole) {
                key.extend_from_slice(&(!sequence).to_be_bytes());
                key.extend_from_slice(cursor.key());
                wanted.insert(key, false);
            }
        }
        cursor.next()?;
    }
    report.entries += wanted.len() as u64;
    let name = index.spec.name();
    own.visit_all(index, |key| {
        if let Some(found) = wanted.get_mut(key) {
            *found = true;
        } else if entry_sequence(index, key).is_none_or(|sequence| sequence <= view) {
            report.wrong += 1;
            report.describe(|| {
                let key = key.escape_ascii();
                format!("index {name} has an entry in a memtable that no record has: \"{key}\"")
            });
        }
    });
    for key in wanted.iter().filter(|(_, found)| !**found).map(|(key, _)| key) {
        report.missing += 1;
        report.describe(|| format!("index {name} lacks an entry in a memtable: \"{}\"", key.escape_ascii()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bolide_base::TreeId;
    use bolide_lsm::{Store, StoreBatch, StoreComponents, StoreOptions, SyncMode, TreeOptions};
    use bolide_storage::{MemVfs, SystemRuntime};
    use bolide_table::BlockCache;

    use super::*;
    use crate::JsonExtractor;
    use crate::secondary_index::SecondaryIndex;

    fn checked(index: &EmbeddedIndex, store: &Store, tree: TreeId) -> IndexCheck {
        let mut report = IndexCheck::default();
        let table = CheckedTable { tree, extractor: &JsonExtractor };
        index.check(&store.read_view(), &table, &mut report).unwrap();
        report
    }

    #[test]
    fn entries_of_a_memtable_that_are_too_many_or_too_few_are_found() {
        let components = StoreComponents {
            vfs: Arc::new(MemVfs::new()),
            runtime: Arc::new(SystemRuntime::default()),
            cache: BlockCache::new(1 << 20),
        };
        let mut options = StoreOptions::new("/db");
        options.background_threads = 0;
        let store = Store::open(options, components).unwrap();
        let tree = store.create_tree(TreeOptions::default(), b"").unwrap();
        let put = |key: &[u8], record: &[u8]| {
            let mut batch = StoreBatch::new();
            batch.put(tree, key, record).unwrap();
            store.commit(batch, None, SyncMode::None).unwrap();
        };
        let spec = "tags=tags[*]:embedded".parse().unwrap();
        let index = EmbeddedIndex::new(spec, 77, tree, Some(Arc::new(JsonExtractor)));
        put(b"1", br#"{"tags":["a","b"]}"#);
        put(b"1", br#"{"tags":["c"]}"#);
        put(b"2", b"{not json");
        let report = checked(&index, &store, tree);
        assert!(report.is_sound(), "{report:?}");
        assert_eq!((report.records, report.entries), (3, 3));

        // What was written since is taken in first.
        put(b"3", br#"{"tags":["a"]}"#);
        let report = checked(&index, &store, tree);
        assert!(report.is_sound() && report.entries == 4, "{report:?}");

        let view = store.read_view();
        let components = view.tree(tree).unwrap().components();
        let Some(Component::Memtable(memtable)) = components.first() else { panic!("a memtable") };
        let own = memtable.attachments().get::<MemtableIndex>(ATTACHMENT).unwrap();
        let mut keys = Vec::new();
        own.visit_all(&index, |key| keys.push(key.to_vec()));
        let mut extra = keys[0].clone();
        extra.push(b'x');
        own.plant(&index, &extra, true);
        own.plant(&index, &keys[1], false);
        own.plant(&index, b"no entry", true);
        let report = checked(&index, &store, tree);
        assert_eq!((report.wrong, report.missing), (2, 1), "{report:?}");
        assert_eq!(report.examples.len(), 3);
    }
}
