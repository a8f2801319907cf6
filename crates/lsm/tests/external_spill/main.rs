//! Spills of external trees: after any event, the external tree and the sstables of its tree together have the content of an
//! ordinary tree with the same writes.
#![allow(clippy::disallowed_methods, reason = "tests start threads of their own")]

mod deferred;
mod spilling_map;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bolide_base::{Result, TreeId};
use bolide_lsm::external_tree::SpillingTree;
use bolide_lsm::{Bounds, Layout, Store, StoreBatch, StoreComponents, StoreOptions, SyncMode, TreeOptions};
use bolide_storage::{
    CrashMode, DiskImage, Fault, FaultPlan, RecordImages, Runtime, SimRng, SimRuntime, SimVfs, SystemRuntime,
    Vfs,
};
use bolide_table::BlockCache;

use spilling_map::{Flaw, SpillingMap};

const PLAIN: TreeId = 1;
const EXTERNAL: TreeId = 2;

fn components(vfs: &Arc<dyn Vfs>, threads: usize) -> StoreComponents {
    let runtime: Arc<dyn Runtime> =
        if threads == 0 { Arc::new(SimRuntime::new(1)) } else { Arc::new(SystemRuntime::default()) };
    StoreComponents { vfs: vfs.clone(), runtime, cache: BlockCache::new(1 << 20) }
}

fn options(dir: &str, threads: usize) -> StoreOptions {
    let mut options = StoreOptions::new(dir);
    options.memtable_bytes = 4 << 10;
    options.hand_over_bytes = 2 << 10;
    options.background_threads = threads;
    options.start_paused = true;
    options
}

/// A store with both trees, without the external tree.
fn with_trees(vfs: &Arc<dyn Vfs>, dir: &str, threads: usize, layout: Layout) -> Result<Store> {
    let store = Store::open(options(dir, threads), components(vfs, threads))?;
    while store.trees().len() < 2 {
        let mut options = TreeOptions::default();
        options.layout = layout;
        // So small that spilled runs of several spills are divided into files.
        options.target_file_bytes = 600;
        store.create_tree(options, b"")?;
    }
    Ok(store)
}

fn open(
    vfs: Arc<dyn Vfs>,
    dir: &str,
    threads: usize,
    layout: Layout,
    flaw: Flaw,
) -> Result<(Store, Arc<SpillingMap>)> {
    let store = with_trees(&vfs, dir, threads, layout)?;
    let root = store.external_root(EXTERNAL);
    let map = Arc::new(SpillingMap::open(&*vfs, root.as_deref(), dir, flaw)?);
    store.set_external_tree(EXTERNAL, map.clone())?;
    store.start();
    Ok((store, map))
}

/// Writes entries with new keys, in random order.
fn write(store: &Store, rng: &mut SimRng) -> Result<()> {
    let mut batch = StoreBatch::new();
    for _ in 0..=rng.below(4) {
        let key = rng.next_u64().to_be_bytes();
        let value = vec![b'a' + rng.below(26) as u8; rng.below(60) as usize];
        batch.put(PLAIN, &key, &value)?;
        batch.put(EXTERNAL, &key, &value)?;
    }
    let sync = *rng.pick(&[SyncMode::None, SyncMode::None, SyncMode::Always]).unwrap();
    store.commit(batch, None, sync).map(drop)
}

fn plain(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let view = store.read_view();
    let mut cursor = view.cursor(PLAIN, Bounds::all()).unwrap();
    let mut entries = BTreeMap::new();
    cursor.seek_to_first().unwrap();
    while cursor.valid() {
        entries.insert(cursor.key().to_vec(), cursor.value().to_vec());
        cursor.next().unwrap();
    }
    entries
}

fn same(map: &SpillingMap, store: &Store) -> std::result::Result<(), String> {
    let (external, plain) = (map.visible(store), plain(store));
    match external == plain {
        true => Ok(()),
        false => Err(format!(
            "{} entries instead of {}, cut {}",
            external.len(),
            plain.len(),
            map.spilled_through()
        )),
    }
}

fn reopened(vfs: &SimVfs, layout: Layout, flaw: Flaw) -> std::result::Result<(), String> {
    let (store, map) =
        open(Arc::new(vfs.clone()), "/db", 0, layout, flaw).map_err(|error| error.to_string())?;
    same(&map, &store)
}

/// A random history with power cuts at all sync points. Returns the number of spills, and that of compactions.
fn history(seed: u64, layout: Layout, flaw: Flaw) -> std::result::Result<(usize, u64), String> {
    let (mut rng, vfs) = (SimRng::new(seed), SimVfs::new(seed));
    vfs.record_images(RecordImages::SyncPoints);
    let (mut store, mut map) = open(Arc::new(vfs.clone()), "/db", 0, layout, flaw).unwrap();
    let (mut spills, mut compactions) = (0, 0);
    let mut reader = None;
    for step in 0..110 {
        match rng.below(20) {
            0 => store.flush().unwrap(),
            1 => store.compact(EXTERNAL).unwrap(),
            2 => store.wait_until_settled().unwrap(),
            3 => reader = Some((store.read_view(), plain(&store))).filter(|_| rng.one_in(2)),
            4 => {
                spills += map.spills.load(Ordering::Relaxed);
                compactions += store.stats().writes.compactions;
                drop((map, reader.take()));
                store.close().unwrap();
                (store, map) = open(Arc::new(vfs.clone()), "/db", 0, layout, flaw).unwrap();
            }
            _ => write(&store, &mut rng).unwrap(),
        }
        let context = |what| format!("seed {seed}, {layout:?}, step {step}: {what}");
        same(&map, &store).map_err(context)?;
        for DiskImage { vfs: image, before, call } in vfs.take_images() {
            let mode = *rng.pick(&CrashMode::EACH).unwrap();
            let disk = image.crash_with_seed(mode, rng.next_u64());
            let context = |what| {
                format!(
                    "seed {seed}, {layout:?}, step {step}, before {before} (call {call}), {mode:?}: {what}"
                )
            };
            reopened(&disk, layout, flaw).map_err(context)?;
            // The recovered state survives the next power cut.
            reopened(&disk.crash_with_seed(mode, rng.next_u64()), layout, flaw).map_err(context)?;
        }
    }
    spills += map.spills.load(Ordering::Relaxed);
    compactions += store.stats().writes.compactions;
    Ok((spills, compactions))
}

#[test]
fn a_tree_that_spills_survives_every_power_cut_like_an_ordinary_one() {
    for (seed, layout) in (0..).zip(Layout::ALL) {
        let (spills, compactions) = history(seed, layout, Flaw::None).unwrap_or_else(|what| panic!("{what}"));
        assert!(spills > 3, "seed {seed}: only {spills} spills");
        assert!(compactions > 0, "seed {seed}: no compaction");
    }
}

/// Spills on a disk that is full at each call in turn. Returns the number of failed spills.
fn failing_spills(flaw: Flaw) -> std::result::Result<usize, String> {
    let mut failed = 0;
    for nth in 1..70 {
        let (vfs, mut rng) = (SimVfs::new(nth), SimRng::new(nth));
        let (store, map) = open(Arc::new(vfs.clone()), "/db", 0, Layout::default(), flaw).unwrap();
        vfs.set_fault(Some(FaultPlan { fault: Fault::NoSpace, at: nth, sticky: false }));
        for _ in 0..40 {
            // A failed write has no effect.
            let _ = write(&store, &mut rng);
        }
        let _ = store.wait_until_settled();
        vfs.set_fault(None);
        store.wait_until_settled().unwrap();
        let (begun, done) = (map.begun.load(Ordering::Relaxed), map.spills.load(Ordering::Relaxed));
        assert!(done > 0, "call {nth}");
        failed += begun - done;
        same(&map, &store).map_err(|what| format!("call {nth}: {what}"))?;
        drop((store, map));
        reopened(&vfs, Layout::default(), flaw).map_err(|what| format!("call {nth}: {what}"))?;
    }
    Ok(failed)
}

#[test]
fn a_spill_that_fails_is_retried_and_loses_nothing() {
    let failed = failing_spills(Flaw::None).unwrap_or_else(|what| panic!("{what}"));
    assert!(failed > 2, "only {failed} spills failed");
}

#[test]
fn every_planted_bug_of_a_spill_is_found() {
    for flaw in [Flaw::CutNotInRoot, Flaw::CutTooHigh, Flaw::ContainsTooMuch] {
        let found = (0..12).any(|seed| history(seed, Layout::ALL[seed as usize % 4], flaw).is_err());
        assert!(found, "{flaw:?} is not found");
    }
    assert!(failing_spills(Flaw::RemovedTooEarly).is_err());
}

#[test]
fn writers_readers_and_spills_run_concurrently() {
    let vfs = SimVfs::new(6);
    let (store, map) = open(Arc::new(vfs.clone()), "/db", 2, Layout::default(), Flaw::None).unwrap();
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let store = &store;
            scope.spawn(move || {
                let mut rng = SimRng::new(100 + seed);
                for _ in 0..300 {
                    write(store, &mut rng).unwrap();
                }
            });
        }
    });
    store.wait_until_settled().unwrap();
    assert!(map.spills.load(Ordering::Relaxed) > 0);
    same(&map, &store).unwrap();
    drop(map);
    store.close().unwrap();
    reopened(&vfs, Layout::default(), Flaw::None).unwrap();
}

/// The copy has the sstables that belong to its root.
#[test]
fn a_checkpoint_of_the_store_has_the_spilled_entries() {
    let (vfs, mut rng) = (SimVfs::new(5), SimRng::new(5));
    let (store, map) = open(Arc::new(vfs.clone()), "/db", 0, Layout::default(), Flaw::None).unwrap();
    for number in 0..9 {
        for _ in 0..12 {
            write(&store, &mut rng).unwrap();
        }
        match number % 3 {
            0 => store.wait_until_settled().unwrap(),
            1 => store.flush().unwrap(),
            _ => {}
        }
        let copy = format!("/copy-{number}");
        store.checkpoint(Path::new(&copy)).unwrap();
        let (copied, of_copy) = open(Arc::new(vfs.clone()), &copy, 0, Layout::default(), Flaw::None).unwrap();
        same(&of_copy, &copied).unwrap_or_else(|what| panic!("{copy}: {what}"));
        assert_eq!(plain(&copied), plain(&store));
    }
    same(&map, &store).unwrap();
    assert!(map.spills.load(Ordering::Relaxed) > 2);
}

/// A dropped tree leaves no file.
#[test]
fn dropping_a_tree_that_spilled_removes_its_files() {
    let (vfs, mut rng) = (SimVfs::new(4), SimRng::new(4));
    let (store, map) = open(Arc::new(vfs.clone()), "/db", 0, Layout::default(), Flaw::None).unwrap();
    for _ in 0..60 {
        write(&store, &mut rng).unwrap();
    }
    store.wait_until_settled().unwrap();
    store.flush().unwrap();
    assert!(map.spills.load(Ordering::Relaxed) > 0);
    store.drop_tree(EXTERNAL).unwrap();
    store.drop_tree(PLAIN).unwrap();
    drop((store, map));
    let ends = |extension| {
        vfs.files().iter().filter(|path| path.extension().is_some_and(|end| end == extension)).count()
    };
    assert_eq!((ends("region"), ends("sst")), (0, 0));
}

/// Writers are slowed down before memory is exhausted, and wait at its bound.
#[test]
fn writers_wait_for_slow_spills() {
    let vfs = SimVfs::new(8);
    let (store, map) = open(Arc::new(vfs), "/db", 2, Layout::default(), Flaw::None).unwrap();
    map.is_slow.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let store = &store;
            scope.spawn(move || {
                let mut rng = SimRng::new(seed);
                (0..200).for_each(|_| write(store, &mut rng).unwrap());
            });
        }
    });
    let most = map.most.load(Ordering::Relaxed);
    // One group of commits is admitted before the price rises.
    assert!(most <= 2 * map.memory().limit_bytes as usize / 100 + 20, "{most} entries");
    store.wait_until_settled().unwrap();
    same(&map, &store).unwrap();
}

/// Other work goes on while spills fail, and writers do not wait for them.
#[test]
fn spills_that_fail_keep_no_compaction_waiting() {
    let vfs = SimVfs::new(9);
    let (store, map) = open(Arc::new(vfs), "/db", 1, Layout::default(), Flaw::None).unwrap();
    map.fails.store(true, Ordering::Relaxed);
    let (mut rng, started) = (SimRng::new(9), Instant::now());
    while store.stats().writes.compactions == 0 {
        assert!(started.elapsed() < Duration::from_secs(30), "no compaction");
        // A failure of background work is returned to a writer that waits for it.
        let _ = write(&store, &mut rng);
    }
    assert!(map.begun.load(Ordering::Relaxed) < 10, "no delay");
    map.fails.store(false, Ordering::Relaxed);
    let _ = store.wait_until_settled();
    store.wait_until_settled().unwrap();
    assert!(map.spills.load(Ordering::Relaxed) > 0);
    same(&map, &store).unwrap();
}
