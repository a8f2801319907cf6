//! The hooks of the layer above: collectors, listeners, attachments, components, the journal of a memtable.
#![cfg(not(bolide_shuttle))]
#![allow(clippy::disallowed_methods, reason = "a test of threads starts some")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use bolide_base::{EntryKind, Result, SequenceNumber, Trailer, TreeId};
use bolide_lsm::memtable::{Memtable, Visibility};
use bolide_lsm::store::Component;
use bolide_lsm::{
    CollectorFactory, DropCollector, DropListener, Store, StoreBatch, StoreComponents, StoreOptions,
    SyncMode, TreeOptions, TreeView,
};
use bolide_storage::{MemVfs, SystemRuntime};
use bolide_table::{BlockCache, BlockHandle, InternalCursor, MetaCollector};
use parking_lot::Mutex;

fn open(vfs: &Arc<MemVfs>) -> Store {
    let mut options = StoreOptions::new("/db");
    options.memtable_bytes = 64 << 20;
    options.background_threads = 0;
    let components = StoreComponents {
        vfs: vfs.clone(),
        runtime: Arc::new(SystemRuntime::default()),
        cache: BlockCache::new(8 << 20),
    };
    Store::open(options, components).unwrap()
}

fn put(store: &Store, tree: TreeId, key: &str, value: &str) -> SequenceNumber {
    let mut batch = StoreBatch::new();
    batch.put(tree, key.as_bytes(), value.as_bytes()).unwrap();
    store.commit(batch, None, SyncMode::None).unwrap()
}

/// Counts the entries of each block.
#[derive(Debug)]
struct Counting;

#[derive(Default)]
struct BlockCounts {
    counts: Vec<u8>,
}

impl CollectorFactory for Counting {
    fn collectors(&self) -> Vec<Box<dyn MetaCollector>> {
        vec![Box::new(BlockCounts::default())]
    }
}

impl MetaCollector for BlockCounts {
    fn add(&mut self, _key: &[u8], _trailer: Trailer, _value: &[u8], block: u64) {
        self.counts.resize(block as usize + 1, 0);
        self.counts[block as usize] += 1;
    }

    fn finish_block(&mut self, _handle: BlockHandle) {}

    fn finish(&mut self) -> Result<Vec<(String, Vec<u8>)>> {
        Ok(vec![("counts".to_owned(), self.counts.clone())])
    }

    fn attachment(&mut self) -> Vec<u8> {
        vec![self.counts.len() as u8]
    }
}

/// The key and the sequence number of every put in the components, the newest component first.
fn puts_of(view: &TreeView) -> Vec<Vec<(String, SequenceNumber)>> {
    let mut all = Vec::new();
    for component in view.components() {
        let mut of_one = Vec::new();
        match component {
            Component::Memtable(memtable) => {
                let mut cursor = memtable.memtable().cursor(Visibility::At(view.sequence()));
                cursor.seek_to_first().unwrap();
                while cursor.valid() {
                    let key = String::from_utf8_lossy(cursor.key()).into_owned();
                    of_one.push((key, cursor.trailer().sequence()));
                    cursor.next().unwrap();
                }
            }
            Component::Table(table) => {
                let mut reader = table.blocks(view.sequence()).unwrap();
                for block in 0..table.data_blocks().unwrap() {
                    reader.enter(block).unwrap();
                    while reader.valid() {
                        let key = String::from_utf8_lossy(reader.key()).into_owned();
                        of_one.push((key, reader.sequence()));
                        reader.advance().unwrap();
                    }
                }
                reader.enter(u64::MAX).unwrap();
                assert!(!reader.valid());
            }
        }
        all.push(of_one);
    }
    all
}

#[test]
fn collectors_reach_every_sstable_and_their_attachments_reach_the_manifest() {
    let vfs = Arc::new(MemVfs::new());
    let store = open(&vfs);
    let mut options = TreeOptions::default();
    options.block_bytes = 256;
    let tree = store.create_tree(options, b"").unwrap();
    put(&store, tree, "a", "before");
    store.flush().unwrap();
    store.set_meta_collectors(tree, Some(Arc::new(Counting))).unwrap();
    for number in 0..100 {
        put(&store, tree, &format!("key{number:03}"), "some value or other");
    }
    store.flush().unwrap();
    let check = |store: &Store, expected: &[bool]| {
        let view = store.read_view().tree(tree).unwrap();
        let mut found = Vec::new();
        for component in view.components() {
            let Component::Table(table) = component else { panic!("no memtable has entries") };
            let counts = table.meta_block("counts").unwrap();
            found.push(counts.is_some());
            let attachment = counts.as_ref().map_or_else(Vec::new, |counts| vec![counts.len() as u8]);
            assert_eq!(table.meta().attachment, attachment);
            if let Some(counts) = counts {
                assert_eq!(counts.iter().map(|&count| u64::from(count)).sum::<u64>(), table.meta().entries);
                assert_eq!(counts.len() as u64, table.data_blocks().unwrap());
            }
        }
        assert_eq!(found, expected);
    };
    check(&store, &[true, false]);
    drop(store);
    let store = open(&vfs);
    check(&store, &[true, false]);
    store.compact(tree).unwrap();
    // The collectors were not installed again, so the new sstable has no blocks of them.
    check(&store, &[false]);
    store.set_meta_collectors(tree, Some(Arc::new(Counting))).unwrap();
    put(&store, tree, "b", "after");
    store.flush().unwrap();
    store.compact(tree).unwrap();
    check(&store, &[true]);
}

#[test]
fn components_contain_the_visible_entries_newest_first() {
    let store = open(&Arc::new(MemVfs::new()));
    let mut options = TreeOptions::default();
    options.block_bytes = 256;
    let tree = store.create_tree(options, b"").unwrap();
    let first = put(&store, tree, "k", "1");
    let early = store.read_view().tree(tree).unwrap();
    let second = put(&store, tree, "k", "2");
    let other = put(&store, tree, "x", "1");
    store.flush().unwrap();
    let third = put(&store, tree, "k", "3");
    let late = store.read_view().tree(tree).unwrap();
    put(&store, tree, "z", "later");
    assert_eq!(puts_of(&early), [[("k".to_owned(), first)]]);
    let in_table = vec![("k".to_owned(), second), ("x".to_owned(), other)];
    assert_eq!(puts_of(&late), [vec![("k".to_owned(), third)], in_table]);
}

#[test]
fn a_journal_and_a_scan_miss_nothing_with_concurrent_writers() {
    const WRITERS: u64 = 3;
    const EACH: u64 = if cfg!(miri) { 60 } else { 4_000 };
    for round in 0..if cfg!(miri) { 1 } else { 8 } {
        let memtable = Arc::new(Memtable::new());
        let done = Arc::new(AtomicU64::new(0));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (memtable, done) = (memtable.clone(), done.clone());
                thread::spawn(move || {
                    for number in 0..EACH {
                        let sequence = 1 + number * WRITERS + writer;
                        // Every third key is overwritten repeatedly.
                        let key = if number % 3 == 0 { 7 } else { sequence };
                        let trailer = Trailer::new(sequence, EntryKind::Put);
                        memtable.insert(&key.to_be_bytes(), trailer, &sequence.to_be_bytes());
                    }
                    done.fetch_add(1, Ordering::Release);
                })
            })
            .collect();
        while memtable.entries() < round * 200 {
            thread::yield_now();
        }
        let mut seen = BTreeSet::new();
        memtable.start_journal();
        let mut cursor = memtable.cursor(Visibility::All);
        cursor.seek_to_first().unwrap();
        while cursor.valid() {
            assert_eq!(cursor.value(), cursor.trailer().sequence().to_be_bytes());
            seen.insert(cursor.trailer().sequence());
            cursor.next().unwrap();
        }
        loop {
            let is_last = done.load(Ordering::Acquire) == WRITERS;
            memtable.take_journal(|_, trailer, value| {
                assert_eq!(value, trailer.sequence().to_be_bytes());
                seen.insert(trailer.sequence());
            });
            if is_last {
                break;
            }
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(seen.len() as u64, WRITERS * EACH, "round {round}");
        memtable.take_journal(|_, _, _| panic!("the journal is empty"));
    }
}

type Versions = Vec<(String, EntryKind, SequenceNumber)>;

/// Records the versions that installed work dropped.
#[derive(Debug, Clone, Default)]
struct DroppedVersions(Arc<Mutex<Versions>>);

struct DroppedBuffer {
    dropped: DroppedVersions,
    seen: Versions,
}

impl DropListener for DroppedVersions {
    fn begin(&self) -> Box<dyn DropCollector> {
        Box::new(DroppedBuffer { dropped: self.clone(), seen: Vec::new() })
    }
}

impl DropCollector for DroppedBuffer {
    fn dropped(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) {
        let kind = trailer.kind().unwrap();
        assert_eq!(value.is_empty(), kind == EntryKind::Delete);
        self.seen.push((String::from_utf8_lossy(key).into_owned(), kind, trailer.sequence()));
    }

    fn installed(self: Box<Self>) {
        self.dropped.0.lock().extend(self.seen);
    }
}

#[test]
fn a_listener_receives_the_versions_that_no_view_sees() {
    let store = open(&Arc::new(MemVfs::new()));
    let tree = store.create_tree(TreeOptions::default(), b"").unwrap();
    let dropped = DroppedVersions::default();
    store.set_drop_listener(tree, Some(Arc::new(dropped.clone()))).unwrap();
    let take = || std::mem::take(&mut *dropped.0.lock());
    let version = |key: &str, kind, sequence| (key.to_owned(), kind, sequence);

    let first = put(&store, tree, "a", "1");
    put(&store, tree, "a", "2");
    let other = put(&store, tree, "b", "1");
    store.flush().unwrap();
    assert_eq!(take(), [version("a", EntryKind::Put, first)]);

    let seen = put(&store, tree, "c", "1");
    let view = store.read_view();
    put(&store, tree, "c", "2");
    let mut batch = StoreBatch::new();
    batch.delete(tree, b"b").unwrap();
    batch.delete_range(tree, b"a", b"aa").unwrap();
    let range = store.commit(batch, None, SyncMode::None).unwrap();
    store.flush().unwrap();
    store.compact(tree).unwrap();
    assert_eq!(take(), [], "the view sees all of it");
    drop(view);
    put(&store, tree, "d", "1");
    store.compact(tree).unwrap();
    let expected = [
        version("a", EntryKind::Put, first + 1),
        version("b", EntryKind::Delete, range - 1),
        version("b", EntryKind::Put, other),
        version("c", EntryKind::Put, seen),
    ];
    assert_eq!(take(), expected);

    store.set_drop_listener(tree, None).unwrap();
    put(&store, tree, "d", "2");
    store.compact(tree).unwrap();
    assert_eq!(take(), []);
}
