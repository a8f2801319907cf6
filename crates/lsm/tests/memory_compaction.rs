//! Compaction of full memtables in memory: every view is stable, nothing is lost, and memory, log and sstables stay within
//! their limits.
#![allow(clippy::disallowed_methods, reason = "tests start threads of their own")]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bolide_base::{SequenceNumber, Trailer, TreeId};
use bolide_lsm::cursor::Bounds;
use bolide_lsm::options::{Layout, SyncMode};
use bolide_lsm::store::WriteCounters;
use bolide_lsm::{
    DropCollector, DropListener, ReadView, Store, StoreBatch, StoreComponents, StoreOptions, TreeOptions,
};
use bolide_storage::{CrashMode, SimRng, SimRuntime, SimVfs, SystemRuntime, Vfs};
use bolide_table::BlockCache;
use parking_lot::{Condvar, Mutex};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const MEMTABLE_BYTES: usize = 24 << 10;
const KEYS: u64 = 400;

fn open(vfs: &SimVfs, threads: usize, change: impl FnOnce(&mut StoreOptions)) -> Store {
    let mut options = StoreOptions::new(Path::new("db"));
    options.memtable_bytes = MEMTABLE_BYTES;
    options.background_threads = threads;
    change(&mut options);
    let (vfs, cache): (Arc<dyn Vfs>, _) = (Arc::new(vfs.clone()), BlockCache::new(1 << 20));
    let components = match threads {
        0 => StoreComponents { vfs, runtime: Arc::new(SimRuntime::new(1)), cache },
        _ => StoreComponents { vfs, runtime: Arc::new(SystemRuntime::default()), cache },
    };
    Store::open(options, components).unwrap()
}

fn tree_options(layout: Layout) -> TreeOptions {
    let mut options = TreeOptions::default();
    options.layout = layout;
    options.target_file_bytes = 8 << 10;
    options.block_bytes = 512;
    options
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

fn put(store: &Store, tree: TreeId, number: u64, value: &[u8]) -> SequenceNumber {
    let mut batch = StoreBatch::new();
    batch.put(tree, &key(number), value).unwrap();
    store.commit(batch, None, SyncMode::None).unwrap()
}

fn entries(view: &ReadView, tree: TreeId, backwards: bool) -> Model {
    let mut cursor = view.cursor(tree, Bounds::all()).unwrap();
    let mut entries = Model::new();
    if backwards {
        cursor.seek_to_last().unwrap()
    } else {
        cursor.seek_to_first().unwrap()
    }
    while cursor.valid() {
        entries.insert(cursor.key().to_vec(), cursor.value().to_vec());
        if backwards { cursor.prev().unwrap() } else { cursor.next().unwrap() }
    }
    entries
}

fn check(view: &ReadView, tree: TreeId, model: &Model, rng: &mut SimRng, seed: u64) {
    assert_eq!(entries(view, tree, rng.one_in(2)), *model, "seed {seed}");
    for _ in 0..20 {
        let key = key(rng.below(KEYS));
        let found = view.get(tree, &key).unwrap().map(|(_, value)| value.to_vec());
        assert_eq!(found.as_ref(), model.get(&key), "seed {seed}");
    }
}

/// A few keys get most writes.
fn write(rng: &mut SimRng, tree: TreeId, model: &mut Model, batch: &mut StoreBatch) {
    let number = if rng.one_in(5) { rng.below(KEYS) } else { rng.below(12) };
    let key = key(number);
    match rng.below(100) {
        0..=84 => {
            let value = vec![rng.below(256) as u8; rng.below(120) as usize];
            batch.put(tree, &key, &value).unwrap();
            model.insert(key, value);
        }
        85..=98 => {
            batch.delete(tree, &key).unwrap();
            model.remove(&key);
        }
        _ => {
            let end = self::key(number + 1 + rng.below(30));
            batch.delete_range(tree, &key, &end).unwrap();
            model.retain(|other, _| !(key <= *other && *other < end));
        }
    }
}

/// Settings with failure modes of their own.
fn unusual(options: &mut StoreOptions, rng: &mut SimRng) {
    options.memtable_bytes = [8 << 10, MEMTABLE_BYTES, 40 << 10, 60 << 10][rng.below(4) as usize];
    options.max_immutable_memtables = if rng.one_in(8) { 1 } else { 2 + rng.below(3) as usize };
    options.partition_memtables = 1 + rng.below(3) as usize;
    options.row_cache_bytes = if rng.one_in(2) { 0 } else { 64 << 10 };
}

/// A store that is written, read at present and earlier numbers, and reopened, in its present state and after a power cut.
fn random_history(seed: u64, threads: usize, layout: Layout) -> WriteCounters {
    let (vfs, mut rng) = (SimVfs::new(seed), SimRng::new(seed));
    let mut store = open(&vfs, threads, |options| unusual(options, &mut rng));
    let trees = [0, 1].map(|_| store.create_tree(tree_options(layout), b"").unwrap());
    let mut models = [Model::new(), Model::new()];
    let mut views: Vec<(ReadView, [Model; 2])> = Vec::new();
    let mut sum = WriteCounters::default();
    for _ in 0..1_500 {
        let mut batch = StoreBatch::new();
        for _ in 0..1 + rng.below(6) {
            // The second tree gets few writes.
            let one = usize::from(rng.one_in(8));
            write(&mut rng, trees[one], &mut models[one], &mut batch);
        }
        store.commit(batch, None, SyncMode::Batch).unwrap();
        match rng.below(120) {
            0..=1 => views.push((store.read_view(), models.clone())),
            2..=3 if !views.is_empty() => _ = views.swap_remove(rng.below(views.len() as u64) as usize),
            4..=5 => views.push((store.read_view(), models.clone())),
            6..=8 => {
                for (view, models) in &views {
                    for (tree, model) in trees.iter().zip(models) {
                        check(view, *tree, model, &mut rng, seed);
                    }
                }
                views.truncate(4);
            }
            9 if rng.one_in(3) => {
                views.clear();
                let writes = store.stats().writes;
                sum.memory_compactions += writes.memory_compactions;
                sum.entries_dropped_in_memory += writes.entries_dropped_in_memory;
                sum.flushes += writes.flushes;
                store.close().unwrap();
                store = open(&vfs, threads, |options| unusual(options, &mut rng));
            }
            10 if rng.one_in(2) => {
                let layout = *rng.pick(&Layout::ALL).unwrap();
                store.set_layout(trees[rng.below(2) as usize], layout).unwrap();
            }
            11 if rng.one_in(4) => store.flush().unwrap(),
            _ => {}
        }
        for (tree, model) in trees.iter().zip(&models) {
            let number = rng.below(KEYS);
            let latest = store.get_latest(*tree, &key(number)).unwrap().map(|(_, value)| value.to_vec());
            assert_eq!(latest.as_ref(), model.get(&key(number)), "seed {seed}");
        }
    }
    store.wait_until_settled().unwrap();
    let writes = store.stats().writes;
    sum.memory_compactions += writes.memory_compactions;
    sum.entries_dropped_in_memory += writes.entries_dropped_in_memory;
    sum.flushes += writes.flushes;
    // All entries are in the log or in sstables, whatever is in memory.
    store.sync().unwrap();
    let crashed = vfs.clone_disk();
    let again = open(&crashed, 0, |_| {});
    for store in [&store, &again] {
        let view = store.read_view();
        for (tree, model) in trees.iter().zip(&models) {
            check(&view, *tree, model, &mut rng, seed);
        }
    }
    sum
}

/// `BOLIDE_LIVES` of them from `BOLIDE_SEED` on, and their number.
fn seeds(lives: u64) -> (Range<u64>, u64) {
    let number_from_env = |variable| std::env::var(variable).ok().and_then(|text| text.parse().ok());
    let first = number_from_env("BOLIDE_SEED").unwrap_or(0);
    let lives = number_from_env("BOLIDE_LIVES").unwrap_or(lives);
    (first..first + lives, lives)
}

#[test]
fn views_at_all_sequence_numbers_are_stable() {
    let (seeds, lives) = seeds(12);
    let mut sum = WriteCounters::default();
    for seed in seeds {
        let layout = Layout::ALL[seed as usize % Layout::ALL.len()];
        let writes = random_history(seed, if seed % 3 == 2 { 2 } else { 0 }, layout);
        sum.memory_compactions += writes.memory_compactions;
        sum.entries_dropped_in_memory += writes.entries_dropped_in_memory;
        sum.flushes += writes.flushes;
    }
    assert!(sum.memory_compactions > 5 * lives && sum.flushes > 2 * lives, "{sum:?}");
    assert!(sum.entries_dropped_in_memory > 500 * lives, "{sum:?}");
}

/// Overwrites the same few records; returns the bytes written to sstables and the maximum of memory and of log segments.
fn overwrite(layout: Layout, memory_compaction: bool) -> (WriteCounters, usize, usize) {
    let vfs = SimVfs::new(7);
    let store = open(&vfs, 0, |options| options.memory_compaction = memory_compaction);
    let tree = store.create_tree(tree_options(layout), b"").unwrap();
    let (mut memory, mut segments) = (0, 0);
    for number in 0..30_000 {
        put(&store, tree, number % 20, &[number as u8; 100]);
        let stats = store.stats();
        memory = memory.max(stats.trees.iter().map(|tree| tree.memtable_bytes).sum());
        segments = segments.max(stats.old_log_segments);
    }
    let found = entries(&store.read_view(), tree, false);
    let expected = |number: u64| (key(number), vec![(30_000 - 20 + number) as u8; 100]);
    assert_eq!(found, (0..20).map(expected).collect());
    (store.stats().writes, memory, segments)
}

#[test]
fn records_that_are_overwritten_often_are_rarely_flushed_and_retain_little_log() {
    for layout in Layout::ALL {
        let (with, memory, segments) = overwrite(layout, true);
        let (without, ..) = overwrite(layout, false);
        assert!(with.memory_compactions > 50 && without.memory_compactions == 0, "{layout:?}: {with:?}");
        assert!(3 * with.flushed_bytes < 2 * without.flushed_bytes, "{layout:?}: {with:?} {without:?}");
        assert!(with.flushes > 0, "the log must not grow without end");
        assert!(segments <= 7, "{layout:?}: {segments} segments of the log");
        assert!(memory <= 4 * MEMTABLE_BYTES, "{layout:?}: {memory} bytes of memtables");
    }
}

/// A reader at many sequence numbers retains versions that keys alone do not reveal.
#[test]
fn views_that_retain_versions_do_not_make_memory_grow() {
    for layout in Layout::ALL {
        let store = open(&SimVfs::new(8), 0, |_| {});
        let tree = store.create_tree(tree_options(layout), b"").unwrap();
        let (mut views, mut model) = (Vec::new(), Model::new());
        for number in 0..12_000_u64 {
            put(&store, tree, number % 60, &[number as u8; 100]);
            model.insert(key(number % 60), vec![number as u8; 100]);
            if number % 10 == 0 {
                views.push((store.read_view(), model.clone()));
            }
            let memory: usize = store.stats().trees.iter().map(|tree| tree.memtable_bytes).sum();
            assert!(memory <= 6 * MEMTABLE_BYTES, "{layout:?}: {memory} bytes of memtables");
        }
        let writes = store.stats().writes;
        assert!(writes.memory_compactions > 0 && writes.flushes > 5, "{layout:?}: {writes:?}");
        for (view, model) in views.iter().step_by(50) {
            assert_eq!(entries(view, tree, false), *model);
        }
    }
}

#[test]
fn records_that_are_written_once_are_flushed_as_usual() {
    for layout in Layout::ALL {
        let store = open(&SimVfs::new(9), 0, |_| {});
        let tree = store.create_tree(tree_options(layout), b"").unwrap();
        for number in 0..5_000 {
            put(&store, tree, number * 7_919 % 5_000, &[1; 100]);
        }
        let writes = store.stats().writes;
        assert!(writes.memory_compactions == 0 && writes.flushes > 5, "{layout:?}: {writes:?}");
    }
}

/// Stores the disk after a power cut at each report.
#[derive(Debug)]
struct CrashingListener(SimVfs, Arc<Mutex<Vec<ReportedDrop>>>);

/// The reported versions, and the disk.
type ReportedDrop = (Vec<(Vec<u8>, SequenceNumber)>, SimVfs);

struct DropReport(SimVfs, Arc<Mutex<Vec<ReportedDrop>>>, Vec<(Vec<u8>, SequenceNumber)>);

impl DropListener for CrashingListener {
    fn begin(&self) -> Box<dyn DropCollector> {
        Box::new(DropReport(self.0.clone(), self.1.clone(), Vec::new()))
    }
}

impl DropCollector for DropReport {
    fn dropped(&mut self, key: &[u8], trailer: Trailer, _value: &[u8]) {
        self.2.push((key.to_vec(), trailer.sequence()));
    }

    fn installed(self: Box<Self>) {
        self.1.lock().push((self.2, self.0.crash(CrashMode::None)));
    }
}

#[test]
fn a_listener_receives_every_dropped_version() {
    let vfs = SimVfs::new(10);
    let store = open(&vfs, 0, |_| {});
    let tree = store.create_tree(tree_options(Layout::Leveled), b"").unwrap();
    let reports: Arc<Mutex<Vec<ReportedDrop>>> = Arc::default();
    store.set_drop_listener(tree, Some(Arc::new(CrashingListener(vfs, reports.clone())))).unwrap();
    let mut newest = BTreeMap::new();
    let mut hidden = BTreeSet::new();
    for number in 0..3_000 {
        let sequence = put(&store, tree, number % 60, &[1; 100]);
        hidden.extend(newest.insert(number % 60, sequence));
    }
    let writes = store.stats().writes;
    assert!(writes.memory_compactions > 5, "{writes:?}");
    store.compact(tree).unwrap();
    let versions = reports.lock().drain(..).flat_map(|(versions, _)| versions).collect::<Vec<_>>();
    let reported: Vec<_> = versions.into_iter().map(|(_, sequence)| sequence).collect();
    assert_eq!(reported.len(), hidden.len(), "each once");
    assert!(reported.into_iter().collect::<BTreeSet<_>>() == hidden);
}

#[test]
fn a_reported_version_is_also_hidden_after_a_power_cut() {
    let vfs = SimVfs::new(14);
    let store = open(&vfs, 0, |_| {});
    let tree = store.create_tree(tree_options(Layout::Leveled), b"").unwrap();
    let reports: Arc<Mutex<Vec<ReportedDrop>>> = Arc::default();
    store.set_drop_listener(tree, Some(Arc::new(CrashingListener(vfs, reports.clone())))).unwrap();
    for number in 0..3_000 {
        let mut batch = StoreBatch::new();
        // Each deletes the last put, and is the last in the log when memtables are compacted.
        batch.delete_range(tree, &key(number % 20), &key(number % 20 + 1)).unwrap();
        batch.put(tree, &key((number + 1) % 20), &[1; 100]).unwrap();
        store.commit(batch, None, SyncMode::None).unwrap();
    }
    assert!(store.stats().writes.memory_compactions > 5, "{:?}", store.stats().writes);
    for (reported, disk) in reports.lock().drain(..) {
        let again = open(&disk, 0, |_| {});
        for (key, sequence) in reported {
            let found = again.get_latest(tree, &key).unwrap();
            assert!(found.is_none_or(|(newer, _)| newer > sequence), "{key:?} is back");
        }
    }
}

/// Blocks the dropping of versions until it is released.
#[derive(Debug, Default)]
struct DropGate {
    passes: Mutex<u64>,
    changed: Condvar,
}

impl DropGate {
    fn let_pass(&self, more: u64) {
        *self.passes.lock() = more;
        self.changed.notify_all();
    }
}

#[derive(Debug)]
struct BlockingListener(Arc<DropGate>);

impl DropListener for BlockingListener {
    fn begin(&self) -> Box<dyn DropCollector> {
        let mut passes = self.0.passes.lock();
        while *passes == 0 {
            self.0.changed.wait(&mut passes);
        }
        *passes -= 1;
        CrashingListener(SimVfs::new(0), Arc::default()).begin()
    }
}

/// If a memtable is full again before the previous ones are compacted, some always wait. The compacted ones are flushed all the
/// same before the log is long.
#[test]
fn the_log_stays_short_if_threads_never_catch_up() {
    for layout in Layout::ALL {
        let store = open(&SimVfs::new(11), 1, |_| {});
        let tree = store.create_tree(tree_options(layout), b"").unwrap();
        let gate = Arc::new(DropGate::default());
        store.set_drop_listener(tree, Some(Arc::new(BlockingListener(gate.clone())))).unwrap();
        let waiting = || store.stats().trees[0].immutable_memtables;
        let (mut number, mut segments) = (0, 0);
        for _ in 0..30 {
            while waiting() < 2 {
                put(&store, tree, number % 20, &[1; 100]);
                number += 1;
            }
            segments = segments.max(store.stats().old_log_segments);
            while waiting() >= 2 {
                gate.let_pass(1);
                gate.changed.wait_for(&mut gate.passes.lock(), Duration::from_millis(1));
            }
        }
        gate.let_pass(u64::MAX);
        let writes = store.stats().writes;
        assert!(writes.memory_compactions > 5, "{layout:?}: {writes:?}");
        assert!(segments <= 9, "{layout:?}: {segments} segments of the log");
    }
}

/// Requested work is done while memtables are compacted, and the end of the compaction undoes nothing.
#[test]
fn a_compaction_in_memory_blocks_no_other_work() {
    for layout in Layout::ALL {
        for action in 0..5 {
            let vfs = SimVfs::new(13);
            let store = open(&vfs, 1, |options| options.max_immutable_memtables = 8);
            let tree = store.create_tree(tree_options(layout), b"").unwrap();
            let gate = Arc::new(DropGate::default());
            store.set_drop_listener(tree, Some(Arc::new(BlockingListener(gate.clone())))).unwrap();
            let mut model = Model::new();
            for number in 0..600 {
                put(&store, tree, number % 20, &[number as u8; 100]);
                model.insert(key(number % 20), vec![number as u8; 100]);
            }
            let (view, before) = (store.read_view(), model.clone());
            let mut batch = StoreBatch::new();
            // In the writable memtable, and too new for the compaction in progress.
            batch.delete_range(tree, &key(3), &key(6)).unwrap();
            batch.put(tree, &key(4), b"new").unwrap();
            store.commit(batch, None, SyncMode::None).unwrap();
            model.retain(|other, _| !(key(3) <= *other && *other < key(6)));
            model.insert(key(4), b"new".to_vec());
            assert!(store.stats().writes.memory_compactions == 0, "it is blocked");
            let entries_left = |store: &Store| store.stats().trees[0].memtable_entries;
            std::thread::scope(|scope| {
                let requested = scope.spawn(|| match action {
                    0 => store.flush().unwrap(),
                    1 => store.compact(tree).unwrap(),
                    2 => store.wait_until_settled().unwrap(),
                    3 => store.set_layout(tree, Layout::Partitioned).unwrap(),
                    _ => store.drop_tree(tree).unwrap(),
                });
                let mut waits = true;
                while waits {
                    gate.changed.wait_for(&mut gate.passes.lock(), Duration::from_millis(2));
                    // Dropping a tree does not wait.
                    waits = action == 4 && !requested.is_finished();
                }
                gate.let_pass(u64::MAX);
                requested.join().unwrap();
            });
            if action == 4 {
                store.wait_until_settled().unwrap();
                assert!(store.stats().trees.is_empty() && store.stats().writes.memory_compactions == 0);
                continue;
            }
            assert!(action > 1 || entries_left(&store) == 0, "{layout:?}, action {action}");
            assert_eq!(entries(&view, tree, false), before, "{layout:?}, action {action}");
            let killed = vfs.clone_disk();
            assert_eq!(entries(&store.read_view(), tree, true), model, "{layout:?}, action {action}");
            drop(view);
            store.close().unwrap();
            for disk in [killed, vfs] {
                let again = open(&disk, 0, |_| {});
                assert_eq!(entries(&again.read_view(), tree, false), model, "{layout:?}, action {action}");
            }
        }
    }
}

/// Operands do not hide each other, and recovery may replay them before their operator is installed.
#[test]
fn operands_without_an_operator_are_all_retained() {
    let vfs = SimVfs::new(12);
    let larger = |options: &mut StoreOptions| options.memtable_bytes = 64 << 10;
    let mut store = open(&vfs, 0, larger);
    let tree = store.create_tree(tree_options(Layout::Leveled), b"").unwrap();
    let records = store.create_tree(tree_options(Layout::Leveled), b"").unwrap();
    let mut expected = BTreeMap::<Vec<u8>, Vec<SequenceNumber>>::new();
    for number in 0..6_000 {
        let mut batch = StoreBatch::new();
        let (key, is_deleted) = (key(number % 40), number / 40 % 10 == 3);
        match is_deleted {
            true => batch.delete(tree, &key).unwrap(),
            false => {
                batch.put(records, &key, b"").unwrap();
                batch.merge_derived(tree, &key, &[2; 60]).unwrap();
            }
        }
        let sequence = store.commit(batch, None, SyncMode::None).unwrap();
        let versions = expected.entry(key).or_default();
        match is_deleted {
            true => versions.clear(),
            false => versions.insert(0, sequence),
        }
        if number == 3_000 {
            assert!(store.stats().writes.memory_compactions > 0);
            store.close().unwrap();
            store = open(&vfs, 0, larger);
        }
    }
    assert!(store.stats().writes.memory_compactions > 0, "{:?}", store.stats().writes);
    let view = store.read_view();
    let mut cursor = view.tree(tree).unwrap().versions(Bounds::all()).unwrap();
    cursor.seek_to_first().unwrap();
    let mut found = BTreeMap::<Vec<u8>, Vec<SequenceNumber>>::new();
    while cursor.valid() {
        found.entry(cursor.key().to_vec()).or_default().push(cursor.sequence());
        cursor.next().unwrap();
    }
    for (key, versions) in &expected {
        assert_eq!(found.get(key), Some(versions));
    }
    assert_eq!(found.len(), expected.len());
}

/// Each write is synced before it is acknowledged: after a power cut at any time the state is that after the last write, or after
/// the one that was interrupted.
fn history_with_power_cuts(seed: u64, threads: usize, rng: &mut SimRng, sum: &mut WriteCounters) {
    let mut vfs = SimVfs::new(seed);
    let mut models = [Model::new(), Model::new()];
    let mut trees = None;
    for boot in 0..6 {
        let store = open(&vfs, threads, |options| unusual(options, rng));
        let [first, second] = *trees.get_or_insert_with(|| {
            [Layout::Leveled, Layout::Partitioned].map(|of| store.create_tree(tree_options(of), b"").unwrap())
        });
        let view = store.read_view();
        for (tree, model) in [first, second].iter().zip(&models) {
            assert_eq!(entries(&view, *tree, rng.one_in(2)), *model, "seed {seed}, boot {boot}");
        }
        drop(view);
        vfs.power_off_after_syncs(100 + rng.below(900));
        let mut passing: Option<TreeId> = None;
        let mut views: Vec<(ReadView, [Model; 2])> = Vec::new();
        loop {
            let before = models.clone();
            let mut batch = StoreBatch::new();
            for _ in 0..1 + rng.below(8) {
                let one = usize::from(rng.one_in(4));
                write(rng, [first, second][one], &mut models[one], &mut batch);
            }
            // One more is dropped while its memtables may be in use.
            match passing {
                Some(tree) if rng.one_in(40) => {
                    passing = None;
                    let _ = store.drop_tree(tree);
                }
                Some(tree) => batch.put(tree, &key(rng.below(4)), &[3; 300]).unwrap(),
                None => passing = store.create_tree(tree_options(Layout::Tiered), b"").ok(),
            }
            let committed = store.commit(batch, None, SyncMode::Always);
            let is_done = match rng.below(100) {
                0 => store.flush().is_ok(),
                1 => store.set_layout(second, *rng.pick(&Layout::ALL).unwrap()).is_ok(),
                2 => store.compact(first).is_ok(),
                3 => store.wait_until_settled().is_ok(),
                4..=5 => {
                    views.push((store.read_view(), models.clone()));
                    true
                }
                _ => true,
            };
            if committed.is_err() {
                // The failed write may be there or not.
                vfs.power_off();
                let disk = vfs.crash(*rng.pick(&CrashMode::EACH).unwrap());
                let again = open(&disk, 0, |_| {});
                let view = again.read_view();
                let found = [first, second].map(|tree| entries(&view, tree, false));
                assert!(found == before || found == models, "seed {seed}, boot {boot}");
                models = found;
                drop(view);
                again.close().unwrap();
                vfs = disk;
                break;
            }
            if is_done && rng.one_in(60) {
                // With threads the power may be cut any time.
                for (view, models) in views.iter().filter(|_| threads == 0 && !vfs.is_off()) {
                    for (tree, model) in [first, second].iter().zip(models) {
                        assert_eq!(entries(view, *tree, rng.one_in(2)), *model, "seed {seed}, boot {boot}");
                    }
                }
                views.truncate(3);
            }
        }
        sum.memory_compactions += store.stats().writes.memory_compactions;
        sum.flushes += store.stats().writes.flushes;
    }
}

#[test]
fn no_power_cut_loses_a_synced_write_or_brings_one_back() {
    let (seeds, lives) = seeds(12);
    let mut sum = WriteCounters::default();
    for seed in seeds {
        let mut rng = SimRng::new(seed + 100);
        history_with_power_cuts(seed, if seed % 2 == 0 { 0 } else { 2 }, &mut rng, &mut sum);
    }
    assert!(sum.memory_compactions > 50 * lives && sum.flushes > 50 * lives, "{sum:?}");
}
