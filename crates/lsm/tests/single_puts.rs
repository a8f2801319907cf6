//! Single puts: the same effects as batches of one, with concurrent writers, and while the tree is dropped.
#![allow(clippy::disallowed_methods, reason = "tests start threads of their own")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bolide_base::limits::{MAX_TREE_KEY_BYTES, MAX_VALUE_BYTES};
use bolide_base::{ErrorKind, Result, TreeId};
use bolide_lsm::{Bounds, Store, StoreBatch, StoreComponents, StoreOptions, SyncMode, TreeOptions};
use bolide_storage::{Fault, FaultPlan, MemVfs, Runtime, SimRng, SimRuntime, SimVfs, SystemRuntime, Vfs};
use bolide_table::BlockCache;

fn open(vfs: Arc<dyn Vfs>, runtime: Arc<dyn Runtime>, threads: usize) -> Store {
    let mut options = StoreOptions::new("/db");
    options.memtable_bytes = 128 << 10;
    options.background_threads = threads;
    let components = StoreComponents { vfs, runtime, cache: BlockCache::new(1 << 20) };
    Store::open(options, components).unwrap()
}

fn files(vfs: &MemVfs) -> BTreeMap<String, Vec<u8>> {
    let mut names = vfs.list(Path::new("/db")).unwrap();
    names.retain(|name| name != "LOCK");
    let read = |name: String| {
        let file = vfs.open(&Path::new("/db").join(&name)).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(0, &mut bytes).unwrap();
        (name, bytes)
    };
    names.into_iter().map(read).collect()
}

fn entries(store: &Store, tree: TreeId) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut cursor = store.read_view().cursor(tree, Bounds::all()).unwrap();
    cursor.seek_to_first().unwrap();
    let mut entries = BTreeMap::new();
    while cursor.valid() {
        entries.insert(cursor.key().to_vec(), cursor.value().to_vec());
        cursor.next().unwrap();
    }
    entries
}

fn get(store: &Store, tree: TreeId, key: &[u8]) -> Option<Vec<u8>> {
    store.get_latest(tree, key).unwrap().map(|(_, value)| value.to_vec())
}

/// A store with single puts, or with batches of one, by `seed`: all files that it leaves, byte for byte.
fn files_after(seed: u64, in_batches: bool) -> BTreeMap<String, Vec<u8>> {
    let vfs = Arc::new(MemVfs::new());
    let store = open(vfs.clone(), Arc::new(SimRuntime::new(seed)), 0);
    let trees = [(); 3].map(|()| store.create_tree(TreeOptions::default(), b"").unwrap());
    let mut rng = SimRng::new(seed);
    for round in 0..3_000_u64 {
        let tree = trees[if rng.below(8) == 0 { rng.below(3) as usize } else { 0 }];
        let key_len = if rng.below(50) == 0 { rng.below(300) } else { 16 } as usize;
        let lengths = [0, 127, 128, 16_383, 16_384, 20_000];
        let value_len = match rng.below(100) {
            0 => lengths[rng.below(6) as usize],
            1..20 => rng.below(400),
            _ => 100,
        };
        let key: Vec<u8> = (0..key_len).map(|_| rng.below(4) as u8).collect();
        let value = vec![round as u8; value_len as usize];
        let sync = [SyncMode::None, SyncMode::Batch, SyncMode::Always][(rng.below(20) / 9) as usize];
        let sequence = if in_batches {
            let mut batch = StoreBatch::new();
            batch.put(tree, &key, &value).unwrap();
            store.commit(batch, None, sync).unwrap()
        } else {
            store.put(tree, &key, &value, sync).unwrap()
        };
        assert_eq!(sequence, store.published_sequence(), "seed {seed}, round {round}");
        assert_eq!(get(&store, tree, &key), Some(value), "seed {seed}, round {round}");
    }
    assert!(store.stats().writes.flushed_bytes > 0);
    let before = files(&vfs);
    drop(store);
    before
}

#[test]
fn a_put_writes_the_same_bytes_as_a_batch_of_one() {
    for seed in 0..4 {
        let (puts, batches) = (files_after(seed, false), files_after(seed, true));
        assert_eq!(puts.keys().collect::<Vec<_>>(), batches.keys().collect::<Vec<_>>(), "seed {seed}");
        for (name, bytes) in &puts {
            assert!(*bytes == batches[name], "seed {seed}: {name} differs");
        }
        assert!(
            puts.keys().any(|name| name.ends_with(".wal")) && puts.keys().any(|name| name.ends_with(".sst"))
        );
    }
}

#[test]
fn puts_concurrent_with_batches_flushes_and_dropped_trees_are_visible_once() {
    let (puts_each, writers) = (6_000_u64, 3);
    let vfs = Arc::new(MemVfs::new());
    let store = Arc::new(open(vfs.clone(), Arc::new(SystemRuntime::default()), 2));
    let tree = store.create_tree(TreeOptions::default(), b"").unwrap();
    let write = |writer: u64| {
        let store = store.clone();
        move || {
            let mut sequences = Vec::new();
            for round in 0..puts_each {
                let (key, value) = (format!("{writer}-{:04}", round % 2_000), round.to_string());
                let sync = if round % 500 == 7 { SyncMode::Always } else { SyncMode::None };
                let sequence = if round % 5 == writer {
                    let mut batch = StoreBatch::new();
                    batch.put(tree, key.as_bytes(), value.as_bytes()).unwrap();
                    batch.put(tree, format!("{writer}-last").as_bytes(), value.as_bytes()).unwrap();
                    store.commit(batch, None, sync).unwrap()
                } else {
                    store.put(tree, key.as_bytes(), value.as_bytes(), sync).unwrap()
                };
                sequences.push(sequence);
                assert!(store.published_sequence() >= sequence);
                assert_eq!(get(&store, tree, key.as_bytes()), Some(value.into_bytes()), "writer {writer}");
            }
            sequences
        }
    };
    let writers: Vec<_> = (0..writers).map(|writer| std::thread::spawn(write(writer))).collect();
    // Meanwhile the memtable is replaced repeatedly, and so are the trees.
    for round in 0..40_u64 {
        let other = store.create_tree(TreeOptions::default(), b"").unwrap();
        store.put(other, b"key", &round.to_le_bytes(), SyncMode::None).unwrap();
        assert_eq!(get(&store, other, b"key"), Some(round.to_le_bytes().to_vec()));
        if round % 4 == 0 {
            store.flush().unwrap();
        }
        store.put(other, b"key", b"again", SyncMode::None).unwrap();
        store.drop_tree(other).unwrap();
        let rejected = store.put(other, b"key", b"late", SyncMode::None).unwrap_err();
        assert_eq!(rejected.kind(), ErrorKind::NotFound);
    }
    let mut sequences: Vec<u64> = writers.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    sequences.sort_unstable();
    assert!(sequences.windows(2).all(|pair| pair[0] < pair[1]), "two writes have one number");
    let expected = entries(&store, tree);
    assert_eq!(expected.len(), 3 * 2_001);
    let last = store.published_sequence();
    Arc::into_inner(store).unwrap().close().unwrap();
    let store = open(vfs.clone(), Arc::new(SystemRuntime::default()), 0);
    assert!(entries(&store, tree) == expected, "after reopening");
    assert_eq!(store.published_sequence(), last);
}

#[test]
fn a_put_rejects_what_a_batch_rejects() {
    let vfs = Arc::new(MemVfs::new());
    let store = open(vfs.clone(), Arc::new(SystemRuntime::default()), 0);
    let tree = store.create_tree(TreeOptions::default(), b"").unwrap();
    let rejected = |key: &[u8], value: &[u8]| {
        let mut batch = StoreBatch::new();
        let in_batch = batch.put(tree, key, value).unwrap_err();
        let alone = store.put(tree, key, value, SyncMode::None).unwrap_err();
        assert_eq!(alone.kind(), ErrorKind::LimitExceeded);
        assert_eq!(alone.to_string(), in_batch.to_string());
    };
    rejected(&vec![0; MAX_TREE_KEY_BYTES + 1], b"value");
    rejected(b"key", &vec![0; MAX_VALUE_BYTES + 1]);
    assert_eq!(store.published_sequence(), 0);
    let unknown = store.put(tree + 1, b"key", b"value", SyncMode::None).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
    // None of these has poisoned the store.
    assert_eq!(store.put(tree, b"key", b"value", SyncMode::None).unwrap(), 1);
    store.close().unwrap();
}

/// Puts one entry, alone or in a batch.
fn put_one(store: &Store, tree: TreeId, key: &[u8], value: &[u8], in_batch: bool) -> Result<u64> {
    if !in_batch {
        return store.put(tree, key, value, SyncMode::None);
    }
    let mut batch = StoreBatch::new();
    batch.put(tree, key, value)?;
    store.commit(batch, None, SyncMode::None)
}

/// A log without space while a full memtable waits for its flush. Otherwise call number `third` of a put finds the disk full.
/// Returns the maximum number of consecutive rejected puts, and the number of flushes.
fn short_of_space(third: u64, in_batches: bool) -> (u64, u64) {
    let vfs = SimVfs::new(7);
    let store = open(Arc::new(vfs.clone()), Arc::new(SimRuntime::new(7)), 0);
    let tree = store.create_tree(TreeOptions::default(), b"").unwrap();
    let (mut rejected, mut max_observed) = (0, 0);
    for round in 0..6_000_u64 {
        let is_full = store.stats().trees[0].immutable_memtables > 0;
        let at = if is_full { 1 } else { third };
        vfs.set_fault(Some(FaultPlan { fault: Fault::NoSpace, at, sticky: false }));
        match put_one(&store, tree, &(round % 50).to_be_bytes(), &[1; 200], in_batches) {
            Ok(_) => rejected = 0,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace);
                rejected += 1;
            }
        }
        max_observed = max_observed.max(rejected);
        vfs.set_fault(None);
    }
    (max_observed, store.stats().writes.flushes)
}

#[test]
fn a_full_disk_is_freed_by_the_pending_flush() {
    let mut freed = 0;
    for third in 2..7 {
        let (puts, batches) = (short_of_space(third, false), short_of_space(third, true));
        assert_eq!(puts, batches, "consecutive rejections, and flushes, at call {third}");
        freed += u64::from(puts.0 == 1 && puts.1 > 0);
    }
    assert!(freed > 0, "if the append of a put behind a new segment fails, the flush frees space");
}

#[test]
fn writers_that_do_the_maintenance_do_not_outrun_it() {
    let store = Arc::new(open(Arc::new(MemVfs::new()), Arc::new(SystemRuntime::default()), 0));
    let tree = store.create_tree(TreeOptions::default(), b"").unwrap();
    let (max_observed, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (store, max_observed, is_over) = (&store, &max_observed, &is_over);
        let write = |writer: u64| {
            move || {
                for round in 0..20_000_u64 {
                    let key = (round.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ writer).to_be_bytes();
                    put_one(store, tree, &key, &[0; 100], round % 7 == writer).unwrap();
                }
            }
        };
        let writers: Vec<_> = (0..6).map(|writer| scope.spawn(write(writer))).collect();
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let stats = store.stats();
                let runs =
                    stats.trees[0].levels.iter().find(|level| level.level == 0).map_or(0, |one| one.runs);
                max_observed.fetch_max(runs, Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(max_observed.into_inner() <= 8, "runs that wait to be compacted");
}
