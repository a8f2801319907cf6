//! Check of memtable indexes against the records, for all in-sstable indexes.

use std::collections::BTreeMap;

use bolide_base::limits::MAX_INDEXED_ELEMENTS;
use bolide_base::{EntryKind, Result, SequenceNumber};
use bolide_lsm::cursor::InternalCursor;
use bolide_lsm::memtable::Visibility;
use bolide_lsm::store::MemtableComponent;

use super::SstableIndexBase;
use super::memtable_index::{ATTACHMENT, MemtableIndex};
use super::memtable_read::entry_sequence;
use super::secondary_keys::SecondaryKeys;
use crate::attribute_plan::AttributeValues;
use crate::check::IndexCheck;
use crate::extractor::AttributeExtractor;

/// Calls `visit` with each secondary key of `record`; false if its attributes cannot be extracted.
pub(crate) fn for_each_key(
    index: &SstableIndexBase,
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

/// Compares the index of a memtable with it: there must be exactly one entry per value of the memtable's records.
pub(crate) fn check_memtable(
    index: &SstableIndexBase,
    component: &MemtableComponent,
    extractor: &dyn AttributeExtractor,
    view: SequenceNumber,
    report: &mut IndexCheck,
) -> Result<()> {
    let memtable_index = component.attachments().get_or_make(ATTACHMENT, || Ok(MemtableIndex::default()))?;
    let memtable = component.memtable();
    // Updates the index to everything that the view sees.
    memtable_index.visit(memtable, index, extractor, (&[], None, &[]), |_, _| false)?;
    let mut expected: BTreeMap<Vec<u8>, bool> = BTreeMap::new();
    let mut values = AttributeValues::new();
    let mut cursor = memtable.cursor(Visibility::All);
    cursor.seek_to_first()?;
    while cursor.valid() {
        let sequence = cursor.trailer().sequence();
        if cursor.trailer().kind() == Some(EntryKind::Put) && sequence <= view {
            report.records += 1;
            let mut keys = Vec::new();
            let is_complete =
                for_each_key(index, extractor, cursor.value(), &mut values, |key, _| keys.push(key.to_vec()));
            // Others are in the list that every query reads.
            for mut key in keys.into_iter().filter(|_| is_complete) {
                key.extend_from_slice(&(!sequence).to_be_bytes());
                key.extend_from_slice(cursor.key());
                expected.insert(key, false);
            }
        }
        cursor.next()?;
    }
    report.entries += expected.len() as u64;
    let name = index.spec.name();
    memtable_index.visit_all(index, |key| {
        if let Some(found) = expected.get_mut(key) {
            *found = true;
        } else if entry_sequence(index, key).is_none_or(|sequence| sequence <= view) {
            report.wrong += 1;
            report.describe(|| {
                let key = key.escape_ascii();
                format!("index {name} has an entry in a memtable that no record has: \"{key}\"")
            });
        }
    });
    for key in expected.iter().filter(|(_, found)| !**found).map(|(key, _)| key) {
        report.missing += 1;
        report.describe(|| format!("index {name} lacks an entry in a memtable: \"{}\"", key.escape_ascii()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bolide_base::TreeId;
    use bolide_lsm::store::Component;
    use bolide_lsm::{Store, StoreBatch, StoreComponents, StoreOptions, SyncMode, TreeOptions};
    use bolide_storage::{MemVfs, SystemRuntime};
    use bolide_table::BlockCache;

    use super::*;
    use crate::JsonExtractor;
    use crate::check::CheckedTable;
    use crate::embedded::EmbeddedIndex;
    use crate::in_sstable::SstableIndexBase;
    use crate::secondary_index::SecondaryIndex;
    use crate::spec::IndexSpec;

    fn checked(index: &EmbeddedIndex, store: &Store, tree: TreeId) -> IndexCheck {
        let mut report = IndexCheck::default();
        let table = CheckedTable { tree, extractor: &JsonExtractor };
        index.check(&store.read_view(), &table, &mut report).unwrap();
        report
    }

    #[test]
    fn extra_and_missing_entries_of_a_memtable_are_reported() {
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
        let spec: IndexSpec = "tags=tags[*]:embedded".parse().unwrap();
        let base = SstableIndexBase::new(spec.clone(), 77, tree, Some(Arc::new(JsonExtractor)));
        let index = EmbeddedIndex::new(spec, 77, tree, Some(Arc::new(JsonExtractor)));
        put(b"1", br#"{"tags":["a","b"]}"#);
        put(b"1", br#"{"tags":["c"]}"#);
        put(b"2", b"{not json");
        let report = checked(&index, &store, tree);
        assert!(report.is_sound(), "{report:?}");
        assert_eq!((report.records, report.entries), (3, 3));

        // The check updates the index first.
        put(b"3", br#"{"tags":["a"]}"#);
        let report = checked(&index, &store, tree);
        assert!(report.is_sound() && report.entries == 4, "{report:?}");

        let view = store.read_view();
        let components = view.tree(tree).unwrap().components();
        let Some(Component::Memtable(memtable)) = components.first() else { panic!("a memtable") };
        let memtable_index = memtable.attachments().get::<MemtableIndex>(ATTACHMENT).unwrap();
        let mut keys = Vec::new();
        memtable_index.visit_all(&base, |key| keys.push(key.to_vec()));
        let mut extra = keys[0].clone();
        extra.push(b'x');
        memtable_index.set_entry(&base, &extra, true);
        memtable_index.set_entry(&base, &keys[1], false);
        memtable_index.set_entry(&base, b"no entry", true);
        let report = checked(&index, &store, tree);
        assert_eq!((report.wrong, report.missing), (2, 1), "{report:?}");
        assert_eq!(report.examples.len(), 3);
    }
}
