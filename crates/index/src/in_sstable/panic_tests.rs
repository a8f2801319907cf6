//! A panic of an extractor loses no entry of a memtable index.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bolide_base::{Result, TreeId};
use bolide_lsm::memtable::Memtable;
use bolide_lsm::store::Component;
use bolide_lsm::{Store, StoreComponents, StoreOptions, SyncMode, TreeOptions};
use bolide_storage::{MemVfs, SystemRuntime};
use bolide_table::BlockCache;

use super::SstableIndexBase;
use super::memtable_index::MemtableIndex;
use crate::attribute_plan::{AttributePlan, AttributeValues};
use crate::{AttributeExtractor, JsonExtractor};

/// Panics at one of its calls.
#[derive(Debug)]
struct PanicsAt(AtomicU64);

impl AttributeExtractor for PanicsAt {
    fn extract_into(&self, record: &[u8], plan: &AttributePlan, out: &mut AttributeValues) -> Result<()> {
        assert_ne!(self.0.fetch_sub(1, Ordering::Relaxed), 1, "the extractor panics");
        JsonExtractor.extract_into(record, plan, out)
    }
}

fn store() -> (Store, TreeId) {
    let components = StoreComponents {
        vfs: Arc::new(MemVfs::new()),
        runtime: Arc::new(SystemRuntime::default()),
        cache: BlockCache::new(1 << 20),
    };
    let mut options = StoreOptions::new("/db");
    options.background_threads = 0;
    let store = Store::open(options, components).unwrap();
    let tree = store.create_tree(TreeOptions::default(), b"").unwrap();
    (store, tree)
}

fn memtable_of(store: &Store, tree: TreeId) -> Arc<Memtable> {
    let view = store.read_view();
    let components = view.tree(tree).unwrap().components();
    let Some(Component::Memtable(component)) = components.first() else { panic!("a memtable") };
    component.memtable().clone()
}

/// Numbers of entries of `index`, and of records whose attributes could not be extracted.
fn read(
    memtable_index: &MemtableIndex,
    memtable: &Arc<Memtable>,
    index: &SstableIndexBase,
    extractor: &dyn AttributeExtractor,
) -> Result<(usize, usize)> {
    let mut entries = 0;
    memtable_index.visit(memtable, index, extractor, (&[], None, &[0xff; 9]), |_, _| {
        entries += 1;
        true
    })?;
    Ok((entries, memtable_index.opaque(memtable, index, extractor, u64::MAX >> 9)?.len()))
}

#[test]
fn the_next_reader_indexes_all_records_after_a_panic() {
    let put = |store: &Store, tree, numbers: std::ops::Range<u32>| {
        for number in numbers {
            let record = if number % 10 == 9 { "{not json".into() } else { format!("{{\"a\":{number}}}") };
            store.put(tree, &number.to_be_bytes(), record.as_bytes(), SyncMode::None).unwrap();
        }
    };
    // While the memtable is read first, and while the journal is applied.
    for (read_before, at) in [(false, 1), (false, 17), (false, 40), (true, 1), (true, 11), (true, 20)] {
        let (store, tree) = store();
        let index = |id, on: &str| {
            SstableIndexBase::new(on.parse().unwrap(), id, tree, Some(Arc::new(JsonExtractor)))
        };
        let (index, other) = (index(77, "a:embedded"), index(78, "b=a:embedded"));
        let memtable_index = MemtableIndex::default();
        put(&store, tree, 0..20);
        let memtable = memtable_of(&store, tree);
        if read_before {
            assert_eq!(read(&memtable_index, &memtable, &index, &JsonExtractor).unwrap(), (18, 2));
            assert_eq!(read(&memtable_index, &memtable, &other, &JsonExtractor).unwrap(), (18, 2));
        }
        put(&store, tree, 20..40);
        let panics = PanicsAt(AtomicU64::new(at));
        let panicked = catch_unwind(AssertUnwindSafe(|| read(&memtable_index, &memtable, &index, &panics)));
        assert!(panicked.is_err(), "no panic at {at}");
        put(&store, tree, 40..50);
        for index in [&other, &index, &other] {
            let found = read(&memtable_index, &memtable, index, &JsonExtractor).unwrap();
            assert_eq!(found, (45, 5), "read before: {read_before}, panic at {at}");
        }
    }
}

#[test]
fn two_consecutive_panics_lose_no_entry_for_a_reader_in_between() {
    let (store, tree) = store();
    let index = SstableIndexBase::new("a:embedded".parse().unwrap(), 77, tree, Some(Arc::new(JsonExtractor)));
    let memtable_index = MemtableIndex::default();
    store.put(tree, b"1", b"{not json", SyncMode::None).unwrap();
    let memtable = memtable_of(&store, tree);
    assert_eq!(read(&memtable_index, &memtable, &index, &JsonExtractor).unwrap(), (0, 1));
    store.put(tree, b"2", br#"{"a":1}"#, SyncMode::None).unwrap();
    for _ in 0..2 {
        let panics = PanicsAt(AtomicU64::new(1));
        assert!(
            catch_unwind(AssertUnwindSafe(|| read(&memtable_index, &memtable, &index, &panics))).is_err()
        );
    }
    // The second step of a reader that read the entries before the panics.
    assert_eq!(memtable_index.opaque(&memtable, &index, &JsonExtractor, 100).unwrap().len(), 1);
}
