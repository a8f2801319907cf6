//! A full disk: the reserve lets deletes, flushes and compactions work.

use std::path::Path;
use std::sync::Arc;

use bolide_base::{ErrorKind, Result, TreeId};
use bolide_lsm::{Bounds, Store, StoreBatch, StoreComponents, StoreOptions, SyncMode, TreeOptions};
use bolide_storage::{CrashMode, Fault, FaultPlan, SimRng, SimRuntime, SimVfs, Vfs};
use bolide_table::{BlockCache, Compression};

const RESERVE: &str = "/db/RESERVE";

fn open(vfs: &SimVfs, reserve_bytes: u64) -> Result<Store> {
    let components = StoreComponents {
        vfs: Arc::new(vfs.clone()),
        runtime: Arc::new(SimRuntime::new(1)),
        cache: BlockCache::new(1 << 20),
    };
    let mut options = StoreOptions::new("/db");
    options.memtable_bytes = 256 << 10;
    options.background_threads = 0;
    options.reserve_bytes = reserve_bytes;
    Store::open(options, components)
}

fn create_tree(store: &Store) -> TreeId {
    let mut options = TreeOptions::default();
    options.compression = Compression::None;
    store.create_tree(options, b"").unwrap()
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn put(store: &Store, tree: TreeId, number: u64, rng: &mut SimRng) -> Result<()> {
    let value: Vec<u8> = (0..300).map(|_| rng.below(256) as u8).collect();
    let mut batch = StoreBatch::new();
    batch.put(tree, &key(number), &value)?;
    store.commit(batch, None, SyncMode::Always).map(drop)
}

fn delete(store: &Store, tree: TreeId, numbers: std::ops::Range<u64>) -> Result<()> {
    for number in numbers {
        let mut batch = StoreBatch::new();
        batch.delete(tree, &key(number))?;
        store.commit(batch, None, SyncMode::Always)?;
    }
    Ok(())
}

fn count(store: &Store, tree: TreeId) -> u64 {
    let view = store.read_view();
    let mut cursor = view.cursor(tree, Bounds::all()).unwrap();
    cursor.seek_to_first().unwrap();
    let mut count = 0;
    while cursor.valid() {
        count += 1;
        cursor.next().unwrap();
    }
    count
}

/// Puts until the disk is full; returns the number of acknowledged records.
fn fill(store: &Store, tree: TreeId, rng: &mut SimRng) -> u64 {
    let mut number = 0;
    loop {
        match put(store, tree, number, rng) {
            Ok(()) => number += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                return number;
            }
        }
    }
}

#[test]
fn deletes_and_compactions_work_on_a_full_disk() {
    for seed in 0..12 {
        let vfs = SimVfs::new(seed);
        let mut rng = SimRng::new(seed);
        let store = open(&vfs, 1 << 20).unwrap();
        let tree = create_tree(&store);
        vfs.set_capacity(Some((6 << 20) + rng.below(1 << 20)));
        let written = fill(&store, tree, &mut rng);
        assert!(written > 4_000, "seed {seed}: {written}");
        // The next ones are rejected as well, even if space was released meanwhile.
        for _ in 0..10 {
            assert_eq!(put(&store, tree, written, &mut rng).unwrap_err().kind(), ErrorKind::NoSpace);
        }
        let left = 200;
        delete(&store, tree, left..written).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        store.compact(tree).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(vfs.exists(Path::new(RESERVE)).unwrap(), "seed {seed}: the reserve is not created again");
        put(&store, tree, written, &mut rng).unwrap();
        assert_eq!(count(&store, tree), left + 1);
        let vfs = vfs.crash(CrashMode::None);
        let store = open(&vfs, 1 << 20).unwrap();
        assert_eq!(count(&store, tree), left + 1, "seed {seed}");
    }
}

#[test]
fn with_64_kib_free_a_store_opens_and_executes_deletes_and_compactions() {
    for seed in 0..12 {
        let vfs = SimVfs::new(seed);
        let mut rng = SimRng::new(seed);
        let store = open(&vfs, 1 << 20).unwrap();
        let tree = create_tree(&store);
        vfs.set_capacity(Some((3 << 20) + rng.below(1 << 20)));
        let written = fill(&store, tree, &mut rng);
        let vfs = vfs.crash(CrashMode::None);
        let free = 64 << 10;
        let reserve = Path::new(RESERVE);
        if vfs.exists(reserve).unwrap() {
            vfs.remove(reserve).unwrap();
        }
        vfs.set_capacity(Some(vfs.used_bytes() + free));
        let store = open(&vfs, 1 << 20).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(count(&store, tree), written, "seed {seed}");
        assert_eq!(put(&store, tree, written, &mut rng).unwrap_err().kind(), ErrorKind::NoSpace);
        // The log has no space for a record of each delete.
        delete(&store, tree, 0..500).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let mut rest = StoreBatch::new();
        rest.delete_range(tree, &key(500), &key(written - 10)).unwrap();
        store.commit(rest, None, SyncMode::Always).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        store.compact(tree).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        put(&store, tree, written, &mut rng).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(count(&store, tree), 11, "seed {seed}");
        assert!(vfs.exists(reserve).unwrap());
    }
}

/// Segments without a record take no space, however often a store is opened while its log cannot be flushed.
#[test]
fn openings_on_a_full_disk_leave_no_segments_behind() {
    let vfs = SimVfs::new(5);
    let mut rng = SimRng::new(5);
    let store = open(&vfs, 0).unwrap();
    let tree = create_tree(&store);
    let written = 400;
    (0..written).for_each(|number| put(&store, tree, number, &mut rng).unwrap());
    let mut vfs = vfs.crash(CrashMode::None);
    drop(store);
    vfs.set_capacity(Some(vfs.used_bytes() + (32 << 10)));
    let segments = |vfs: &SimVfs| {
        vfs.files().iter().filter(|path| path.extension().is_some_and(|extension| extension == "wal")).count()
    };
    for opening in 0..30 {
        let store = open(&vfs, 0).unwrap_or_else(|error| panic!("opening {opening}: {error}"));
        assert_eq!(count(&store, tree), written, "opening {opening}");
        assert!(segments(&vfs) <= 3, "opening {opening}: {:?}", vfs.files());
        if opening % 2 == 0 {
            store.close().unwrap();
        } else {
            let killed = vfs.clone_disk();
            drop(store);
            vfs = killed;
        }
    }
}

#[test]
fn no_reserve_is_created_for_a_size_of_0() {
    let vfs = SimVfs::new(1);
    let store = open(&vfs, 0).unwrap();
    let tree = create_tree(&store);
    put(&store, tree, 1, &mut SimRng::new(1)).unwrap();
    assert!(!vfs.exists(Path::new(RESERVE)).unwrap());
    drop(store);
    let store = open(&vfs, 1 << 20).unwrap();
    assert!(vfs.exists(Path::new(RESERVE)).unwrap());
    drop(store);
}

#[test]
fn the_reserve_is_for_deletes_on_a_full_disk() {
    let delete_one = |store: &Store, tree| delete(store, tree, 1..2);
    let put_one = |store: &Store, tree| put(store, tree, 2, &mut SimRng::new(1));
    let once = |fault| Some(FaultPlan { fault, at: 1, sticky: false });
    for (fault, deletes, expected) in [
        (Fault::NoSpace, false, Some(ErrorKind::NoSpace)),
        (Fault::NoSpace, true, None),
        // A part was written: a retry would leave a damaged record in the log.
        (Fault::ShortAppend, true, Some(ErrorKind::Io)),
    ] {
        let vfs = SimVfs::new(1);
        let store = open(&vfs, 1 << 20).unwrap();
        let tree = create_tree(&store);
        put(&store, tree, 1, &mut SimRng::new(1)).unwrap();
        vfs.set_fault(once(fault));
        let result = if deletes { delete_one(&store, tree) } else { put_one(&store, tree) };
        assert_eq!(vfs.counters().faults, 1, "{fault:?}");
        assert_eq!(result.err().map(|error| error.kind()), expected, "{fault:?}, deletes: {deletes}");
        if expected.is_some() {
            assert!(vfs.exists(Path::new(RESERVE)).unwrap(), "{fault:?}, deletes: {deletes}");
        }
    }
}
