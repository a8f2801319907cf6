//! The store from the outside: commits, views, flushes, compactions, reopening.

use std::collections::BTreeMap;
use std::sync::Arc;

use bolide_base::{ErrorKind, Result, TreeId};
use bolide_lsm::compaction::CompactionFilter;
use bolide_lsm::store::LiteVerdict;
use bolide_lsm::{Bounds, ReadView, Store, StoreBatch, StoreComponents, StoreOptions, SyncMode, TreeOptions};
use bolide_storage::{DiskVfs, Fault, FaultPlan, MemVfs, SimVfs, SystemRuntime, Vfs};
use bolide_table::BlockCache;

fn components(vfs: &Arc<MemVfs>) -> StoreComponents {
    StoreComponents {
        vfs: vfs.clone(),
        runtime: Arc::new(SystemRuntime::default()),
        cache: BlockCache::new(8 << 20),
    }
}

fn options(threads: usize) -> StoreOptions {
    let mut options = StoreOptions::new("/db");
    options.memtable_bytes = 256 << 10;
    options.background_threads = threads;
    options
}

fn open(vfs: &Arc<MemVfs>, threads: usize) -> Store {
    Store::open(options(threads), components(vfs)).unwrap()
}

fn small_trees() -> TreeOptions {
    let mut options = TreeOptions::default();
    options.target_file_bytes = 64 << 10;
    options
}

fn put(store: &Store, tree: TreeId, key: &str, value: &str) -> u64 {
    let mut batch = StoreBatch::new();
    batch.put(tree, key.as_bytes(), value.as_bytes()).unwrap();
    store.commit(batch, None, SyncMode::None).unwrap()
}

fn entries(view: &ReadView, tree: TreeId) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut cursor = view.cursor(tree, Bounds::all()).unwrap();
    cursor.seek_to_first().unwrap();
    let mut entries = BTreeMap::new();
    while cursor.valid() {
        entries.insert(cursor.key().to_vec(), cursor.value().to_vec());
        cursor.next().unwrap();
    }
    entries
}

/// A small generator; a run is reproducible by its seed.
struct Seed(u64);

impl Seed {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn random_write(seed: &mut Seed, tree: TreeId, model: &mut Model, batch: &mut StoreBatch) {
    let key = format!("key{:05}", seed.next(3_000)).into_bytes();
    match seed.next(100) {
        0..=69 => {
            let value = vec![seed.next(256) as u8; seed.next(300) as usize];
            batch.put(tree, &key, &value).unwrap();
            model.insert(key, value);
        }
        70..=97 => {
            batch.delete(tree, &key).unwrap();
            model.remove(&key);
        }
        _ => {
            let end = format!("key{:05}", seed.next(3_000)).into_bytes();
            let (start, end) = if key < end { (key, end) } else { (end, key) };
            if start < end {
                batch.delete_range(tree, &start, &end).unwrap();
                model.retain(|key, _| !(start <= *key && *key < end));
            }
        }
    }
}

#[test]
fn random_writes_flushes_and_reopenings_agree_with_a_map() {
    for threads in [0, 2] {
        for layout in bolide_lsm::Layout::ALL {
            random_history(threads, layout);
        }
    }
}

/// The result of a read in memory alone is that of a whole read, or unknown.
fn check_lite(view: &ReadView, tree: TreeId, seed: &mut Seed) -> [u64; 3] {
    let view = view.tree(tree).unwrap();
    let mut results = [0; 3];
    for _ in 0..200 {
        let key = format!("key{:05}", seed.next(3_000)).into_bytes();
        let newest = view.newest_sequence(&key).unwrap();
        for written in newest.into_iter().chain([1 + seed.next(view.sequence().max(1)), view.sequence() + 1])
        {
            let lite = view.get_lite(&key, written);
            results[lite as usize] += 1;
            match lite {
                LiteVerdict::Current => assert_eq!(newest, Some(written)),
                LiteVerdict::Obsolete => assert_ne!(newest, Some(written)),
                LiteVerdict::Unknown => {}
            }
        }
    }
    results
}

/// Batched reads return the results of single reads.
fn check_many(view: &ReadView, tree: TreeId, model: &Model, seed: &mut Seed) {
    let view = view.tree(tree).unwrap();
    for count in [0, 1, 3, 100] {
        let keys: Vec<_> = (0..count).map(|_| format!("key{:05}", seed.next(3_000)).into_bytes()).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let (mut found, mut newest) = (Vec::new(), Vec::new());
        view.get_many(&keys, &mut found).unwrap();
        view.newest_sequences(&keys, &mut newest).unwrap();
        assert_eq!((found.len(), newest.len()), (count, count));
        for ((key, found), newest) in keys.iter().zip(found).zip(newest) {
            assert_eq!(found.as_ref().map(|(sequence, _)| *sequence), newest);
            assert_eq!(newest, view.newest_sequence(key).unwrap());
            assert_eq!(found.map(|(_, value)| value.to_vec()).as_ref(), model.get(*key));
        }
    }
}

fn random_history(threads: usize, layout: bolide_lsm::Layout) {
    let vfs = Arc::new(MemVfs::new());
    let mut seed = Seed(7 + threads as u64);
    let mut store = open(&vfs, threads);
    let mut tree_options = small_trees();
    tree_options.layout = layout;
    let trees = [(); 2].map(|()| store.create_tree(tree_options.clone(), b"").unwrap());
    let mut models = [Model::new(), Model::new()];
    let mut views: Vec<(ReadView, [Model; 2])> = Vec::new();
    let mut lite = [0; 3];
    for round in 0..6_000 {
        let mut batch = StoreBatch::new();
        for _ in 0..1 + seed.next(3) {
            let which = seed.next(2) as usize;
            random_write(&mut seed, trees[which], &mut models[which], &mut batch);
        }
        store.commit(batch, None, SyncMode::Batch).unwrap();
        match seed.next(600) {
            0 => store.flush().unwrap(),
            1 => store.compact(trees[0]).unwrap(),
            2 => {
                views.clear();
                store.close().unwrap();
                store = open(&vfs, threads);
            }
            3 | 4 => views.push((store.read_view(), models.clone())),
            5 => views.clear(),
            _ => {}
        }
        if round % 500 == 0 {
            views.push((store.read_view(), models.clone()));
            for (view, models) in &views {
                for (tree, model) in trees.iter().zip(models) {
                    assert_eq!(&entries(view, *tree), model, "threads {threads}, {layout:?}, round {round}");
                    check_many(view, *tree, model, &mut seed);
                    let results = check_lite(view, *tree, &mut seed);
                    lite.iter_mut().zip(results).for_each(|(sum, count)| *sum += count);
                }
            }
        }
        let key = format!("key{:05}", seed.next(3_000)).into_bytes();
        let found = store.get_latest(trees[0], &key).unwrap().map(|(_, value)| value.to_vec());
        assert_eq!(found.as_ref(), models[0].get(&key), "threads {threads}, {layout:?}, round {round}");
    }
    assert!(lite.iter().all(|&count| count > 20), "{lite:?}");
    let mut damaged = Vec::new();
    store.verify(|_, error| damaged.push(error));
    assert!(damaged.is_empty(), "{damaged:?}");
}

#[test]
fn a_range_tombstone_is_removed_once_it_hides_nothing() {
    let vfs = Arc::new(MemVfs::new());
    let store = open(&vfs, 0);
    let table = store.create_tree(small_trees(), b"").unwrap();
    let index = store.create_tree(small_trees(), b"").unwrap();
    store.add_dependent(table, index).unwrap();
    store.set_compaction_filter(index, Arc::new(DropsEverything)).unwrap();
    put(&store, table, "b", "1");
    put(&store, index, "entry", "");
    store.flush().unwrap();
    let view = store.read_view();
    let mut batch = StoreBatch::new();
    batch.delete_range(table, b"a", b"c").unwrap();
    store.commit(batch, None, SyncMode::None).unwrap();
    let ranges = || store.stats().trees[0].range_tombstones;
    store.compact(table).unwrap();
    assert_eq!(ranges(), 1, "a view still sees the deleted entries");
    assert_eq!(entries(&view, table).len(), 1);
    drop(view);
    store.compact(table).unwrap();
    assert_eq!(ranges(), 1, "the index still has an entry about it");
    store.compact(index).unwrap();
    assert_eq!(ranges(), 0);
    assert!(entries(&store.read_view(), table).is_empty());
}

/// A filter of an index whose entries all belong to deleted records.
#[derive(Debug)]
struct DropsEverything;

impl CompactionFilter for DropsEverything {
    fn drops(&self, _: &[u8], _: u64, _: &[u8], _: u64) -> Result<bool> {
        Ok(true)
    }
}

#[test]
fn a_second_opener_is_rejected() -> Result<()> {
    let vfs = Arc::new(MemVfs::new());
    let store = open(&vfs, 0);
    let second = Store::open(options(0), components(&vfs)).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Locked);
    drop(store);
    open(&vfs, 0).close()
}

#[test]
fn a_read_only_store_reads_the_log_and_rejects_writes() {
    let vfs = Arc::new(MemVfs::new());
    let store = open(&vfs, 0);
    let tree = store.create_tree(small_trees(), b"mine").unwrap();
    put(&store, tree, "a", "1");
    store.close().unwrap();
    let mut read_only = options(0);
    read_only.read_only = true;
    let store = Store::open(read_only, components(&vfs)).unwrap();
    assert_eq!(&*store.trees()[0].descriptor, b"mine");
    assert_eq!(&*store.get_latest(tree, b"a").unwrap().unwrap().1, b"1");
    let mut batch = StoreBatch::new();
    batch.put(tree, b"b", b"").unwrap();
    assert_eq!(store.commit(batch, None, SyncMode::None).unwrap_err().kind(), ErrorKind::ReadOnly);
}

#[test]
fn a_checkpoint_opens_as_an_independent_database() {
    let vfs = Arc::new(MemVfs::new());
    let store = open(&vfs, 0);
    let tree = store.create_tree(small_trees(), b"").unwrap();
    put(&store, tree, "a", "1");
    store.flush().unwrap();
    put(&store, tree, "b", "2");
    store.checkpoint("/copy".as_ref()).unwrap();
    put(&store, tree, "c", "3");
    assert_eq!(store.checkpoint("/copy".as_ref()).unwrap_err().kind(), ErrorKind::Conflict);
    let mut copy_options = options(0);
    copy_options.dir = "/copy".into();
    let copy = Store::open(copy_options, components(&vfs)).unwrap();
    let keys: Vec<_> = entries(&copy.read_view(), tree).into_keys().collect();
    assert_eq!(keys, [b"a".to_vec(), b"b".to_vec()]);
}

#[test]
fn a_checkpoint_is_copied_if_links_are_impossible() {
    let vfs = Arc::new(MemVfs::new().without_links());
    let store = open(&vfs, 0);
    let tree = store.create_tree(small_trees(), b"").unwrap();
    for number in 0..2_000 {
        put(&store, tree, &format!("key {number:06}"), &"value ".repeat(40));
    }
    store.flush().unwrap();
    put(&store, tree, "z", "in the log");
    store.checkpoint("/copy".as_ref()).unwrap();
    let expected = entries(&store.read_view(), tree);
    drop(store);
    let mut copy_options = options(0);
    copy_options.dir = "/copy".into();
    let copy = Store::open(copy_options, components(&vfs)).unwrap();
    assert_eq!(entries(&copy.read_view(), tree), expected);
}

#[test]
fn a_checkpoint_rejects_an_existing_directory_and_removes_its_files_after_a_failure() {
    let vfs = SimVfs::new(1);
    let components = || StoreComponents { vfs: Arc::new(vfs.clone()), ..components(&Arc::default()) };
    let store = Store::open(options(0), components()).unwrap();
    let tree = store.create_tree(small_trees(), b"").unwrap();
    put(&store, tree, "a", "1");
    store.flush().unwrap();
    vfs.create_dir_all("/empty".as_ref()).unwrap();
    assert_eq!(store.checkpoint("/empty".as_ref()).unwrap_err().kind(), ErrorKind::Conflict);
    let mut fails = 0;
    for at in 1.. {
        vfs.set_fault(Some(FaultPlan { fault: Fault::NoSpace, at, sticky: false }));
        let made = store.checkpoint("/copy".as_ref());
        vfs.set_fault(None);
        if made.is_ok() {
            break;
        }
        fails += 1;
        assert!(!vfs.exists("/copy".as_ref()).unwrap(), "call {at} failed and left files");
    }
    assert!(fails > 3, "only {fails} calls failed");
    drop(store);
    let mut copy_options = options(0);
    copy_options.dir = "/copy".into();
    let copy = Store::open(copy_options, components()).unwrap();
    assert_eq!(entries(&copy.read_view(), tree).len(), 1);
}

#[test]
fn a_removed_or_replaced_directory_is_detected_at_the_next_sync() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let on_disk = || StoreComponents { vfs: Arc::new(DiskVfs::new()), ..components(&Arc::default()) };
    for replaced in [false, true] {
        let options = || {
            let mut options = options(2);
            options.dir = path.clone();
            options
        };
        let store = Store::open(options(), on_disk()).unwrap();
        let tree = store.create_tree(small_trees(), b"").unwrap();
        put(&store, tree, "a", "1");
        store.sync().unwrap();
        DiskVfs::new().rename(&path, &dir.path().join(format!("gone {replaced}"))).unwrap();
        let other = replaced.then(|| Store::open(options(), on_disk()).unwrap());
        let mut batch = StoreBatch::new();
        batch.put(tree, b"b", b"2").unwrap();
        let error = store.commit(batch.clone(), None, SyncMode::Always).unwrap_err();
        assert!(error.to_string().contains("removed, renamed or replaced"), "{error}");
        assert_eq!(store.commit(batch, None, SyncMode::None).unwrap_err().kind(), ErrorKind::Poisoned);
        drop((store, other));
    }
}

#[test]
fn a_dropped_tree_removes_its_files() {
    let vfs = Arc::new(MemVfs::new());
    let store = open(&vfs, 0);
    let tree = store.create_tree(small_trees(), b"").unwrap();
    let other = store.create_tree(small_trees(), b"").unwrap();
    put(&store, tree, "a", "1");
    put(&store, other, "a", "2");
    store.flush().unwrap();
    let tables = || {
        let names = bolide_storage::Vfs::list(&*vfs, "/db".as_ref()).unwrap();
        names.iter().filter(|name| name.ends_with(".sst")).count()
    };
    assert_eq!(tables(), 2);
    store.drop_tree(tree).unwrap();
    assert_eq!(tables(), 1);
    assert_eq!(store.get_latest(tree, b"a").unwrap_err().kind(), ErrorKind::NotFound);
    store.close().unwrap();
    let store = open(&vfs, 0);
    assert_eq!(store.trees().len(), 1);
    assert!(store.get_latest(other, b"a").unwrap().is_some());
}

#[test]
fn many_writers_commit_together() {
    let vfs = Arc::new(MemVfs::new());
    let store = Arc::new(open(&vfs, 2));
    let tree = store.create_tree(small_trees(), b"").unwrap();
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let store = store.clone();
            #[expect(clippy::disallowed_methods, reason = "the test is about threads of the caller")]
            std::thread::spawn(move || {
                for round in 0..2_000 {
                    let mut batch = StoreBatch::new();
                    // Both keys of a batch are visible, or neither is.
                    batch.put(tree, format!("{thread}-a").as_bytes(), format!("{round}").as_bytes()).unwrap();
                    batch.put(tree, format!("{thread}-b").as_bytes(), format!("{round}").as_bytes()).unwrap();
                    let sync = if round % 7 == 0 { SyncMode::Always } else { SyncMode::None };
                    store.commit(batch, None, sync).unwrap();
                    let view = store.read_view();
                    for other in 0..4 {
                        let read = |name: &str| {
                            let found = view.get(tree, format!("{other}-{name}").as_bytes()).unwrap();
                            found.map(|(_, value)| value.to_vec())
                        };
                        assert_eq!(read("a"), read("b"));
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(store.published_sequence(), 4 * 2_000 * 2);
}

#[test]
fn opens_without_writes_do_not_break_the_chain_of_segments() {
    let vfs = Arc::new(MemVfs::new());
    let store = open(&vfs, 0);
    let tree = store.create_tree(small_trees(), b"").unwrap();
    put(&store, tree, "a", "1");
    store.close().unwrap();
    for _ in 0..5 {
        let store = open(&vfs, 0);
        assert_eq!(&*store.get_latest(tree, b"a").unwrap().unwrap().1, b"1");
        store.close().unwrap();
    }
}

#[test]
fn estimates_are_within_two_blocks_per_run_and_exact_for_few_unflushed_entries() {
    let seed = 0xe57;
    let store = open(&Arc::new(MemVfs::default()), 0);
    let tree = store.create_tree(small_trees(), b"").unwrap();
    let key = |number: u64| format!("key{number:06}");
    let (mut random, mut keys) = (Seed(seed), std::collections::BTreeSet::new());
    for round in 0..4 {
        for _ in 0..5_000 {
            let number = random.next(1_000_000);
            // Every entry is the only version of its key, so that entries can be counted.
            if keys.insert(number) {
                put(&store, tree, &key(number), "a value of some length, so that blocks fill up");
            }
        }
        if round < 3 {
            store.flush().unwrap();
        }
    }
    let view = store.read_view().tree(tree).unwrap();
    let exact = |low: u64, end: u64| keys.range(low..end).count() as u64;
    // About 60 entries per block of 4 KiB; a memtable of 5,000 may be off by a factor of two.
    let (block, runs, unflushed) = (100, 3, 5_000);
    for _ in 0..500 {
        let low = random.next(1_000_000);
        let end = low + random.next(1_000_000 - low + 1);
        let estimate = view.estimate(key(low).as_bytes(), Some(key(end).as_bytes())).unwrap().entries;
        let actual = exact(low, end);
        let tolerance = 2 * block * runs + unflushed / 4 + 32;
        assert!(
            estimate.abs_diff(actual) <= tolerance,
            "seed {seed}: {low}..{end}: {estimate}, not {actual}"
        );
    }
    assert_eq!(view.estimate(b"", None).unwrap().entries, exact(0, u64::MAX));
    assert_eq!(view.estimate(b"z", None).unwrap().entries, 0);
    assert_eq!(view.estimate(b"key5", Some(b"key5")).unwrap().entries, 0);
    let few = store.create_tree(small_trees(), b"").unwrap();
    for number in 0..20 {
        put(&store, few, &key(number), "x");
    }
    let view = store.read_view().tree(few).unwrap();
    assert_eq!(view.estimate(key(5).as_bytes(), Some(key(9).as_bytes())).unwrap().entries, 4);
}

#[test]
fn the_written_bytes_of_a_tree_survive_reopenings() {
    let vfs = Arc::new(MemVfs::new());
    let mut written = 0;
    for round in 0..4 {
        let store = open(&vfs, 0);
        let tree = match store.stats().trees.first() {
            Some(stats) => stats.tree,
            None => store.create_tree(small_trees(), b"").unwrap(),
        };
        let figures = || store.stats().trees[0].clone();
        assert_eq!(figures().written_bytes, written, "round {round}");
        for number in 0..500 {
            put(&store, tree, &format!("key{number}"), &format!("value {round}"));
        }
        store.flush().unwrap();
        let flushed = figures();
        assert!(flushed.written_bytes > written);
        if round == 0 {
            assert_eq!(flushed.written_bytes, flushed.disk_bytes(), "nothing was compacted yet");
        }
        store.compact(tree).unwrap();
        written = figures().written_bytes;
        assert!(round == 0 || written > flushed.written_bytes, "compactions count");
        store.close().unwrap();
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test is about threads of the caller")]
fn a_tree_is_dropped_while_its_descriptor_is_set() {
    let store = open(&Arc::new(MemVfs::new()), 0);
    let other = store.create_tree(small_trees(), b"").unwrap();
    for round in 0..300 {
        let tree = store.create_tree(small_trees(), b"").unwrap();
        let begun = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let error = loop {
                    begun.store(true, std::sync::atomic::Ordering::Relaxed);
                    if let Err(error) = store.set_descriptor(tree, b"progress") {
                        break error;
                    }
                };
                assert_eq!(error.kind(), ErrorKind::NotFound, "round {round}: {error}");
            });
            while !begun.load(std::sync::atomic::Ordering::Relaxed) {
                std::thread::yield_now();
            }
            store.drop_tree(tree).unwrap();
        });
        put(&store, other, "key", "the store is still writable");
    }
}

/// One job flushes many small trees. A failure in between leaves the remaining ones due, and a power cut after it loses nothing.
#[test]
fn a_job_that_flushes_many_trees_may_fail_at_any_of_them() {
    const TREES: u64 = 100;
    for nth in [1, 2, 7, 20, 90, 200, 390] {
        let vfs = SimVfs::new(nth);
        let parts = |vfs: &SimVfs| StoreComponents {
            vfs: Arc::new(vfs.clone()),
            runtime: Arc::new(bolide_storage::SimRuntime::new(1)),
            cache: BlockCache::new(1 << 20),
        };
        let store = Store::open(options(0), parts(&vfs)).unwrap();
        let trees: Vec<TreeId> =
            (0..TREES).map(|_| store.create_tree(TreeOptions::default(), b"").unwrap()).collect();
        trees.iter().for_each(|&tree| _ = put(&store, tree, "key", &tree.to_string()));
        vfs.set_fault(Some(FaultPlan { fault: Fault::NoSpace, at: nth, sticky: false }));
        let _ = store.flush();
        vfs.set_fault(None);
        let check = |store: &Store| {
            let view = store.read_view();
            for &tree in &trees {
                let wanted = Model::from([(b"key".to_vec(), tree.to_string().into_bytes())]);
                assert_eq!(entries(&view, tree), wanted, "call {nth}, tree {tree}");
            }
        };
        check(&store);
        store.flush().unwrap();
        let stats = store.stats();
        assert!(stats.trees.iter().all(|tree| tree.memtable_entries == 0), "call {nth}");
        let disk = vfs.crash(bolide_storage::CrashMode::None);
        drop(store);
        check(&Store::open(options(0), parts(&disk)).unwrap());
    }
}
