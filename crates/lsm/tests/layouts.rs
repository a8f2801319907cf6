//! Layouts of partitions: random histories against a map, power cuts, changes of layout, and write amplification.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bolide_base::TreeId;
use bolide_lsm::store::{StoreStats, WriteCounters};
use bolide_lsm::{
    Bounds, Layout, ReadView, Store, StoreBatch, StoreComponents, StoreOptions, SyncMode, TreeOptions,
};
use bolide_storage::{CrashMode, RecordImages, Runtime, SimRng, SimRuntime, SimVfs, SystemRuntime, Vfs};
use bolide_table::{BlockCache, Compression};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const MEMTABLE_BYTES: usize = 24 << 10;
const KEYS: u64 = 4_000;

fn new_disk(seed: u64) -> SimVfs {
    SimVfs::new(seed)
}

fn open(vfs: &SimVfs, threads: usize, memtable_bytes: usize) -> bolide_base::Result<Store> {
    open_with(vfs, threads, memtable_bytes, 2)
}

/// The same with `together` full memtables in each flush into partitions.
fn open_with(
    vfs: &SimVfs,
    threads: usize,
    memtable_bytes: usize,
    together: usize,
) -> bolide_base::Result<Store> {
    open_changed(vfs, threads, memtable_bytes, |options| options.partition_memtables = together)
}

fn open_changed(
    vfs: &SimVfs,
    threads: usize,
    memtable_bytes: usize,
    change: impl FnOnce(&mut StoreOptions),
) -> bolide_base::Result<Store> {
    let mut options = StoreOptions::new(Path::new("db"));
    options.memtable_bytes = memtable_bytes;
    options.background_threads = threads;
    change(&mut options);
    let vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let cache = BlockCache::new(1 << 20);
    Store::open(
        options,
        match threads {
            0 => StoreComponents { vfs, runtime: Arc::new(SimRuntime::new(1)), cache },
            _ => StoreComponents { vfs, runtime: Arc::new(SystemRuntime::default()), cache },
        },
    )
}

fn tree_options(layout: Layout, target_file_bytes: u64) -> TreeOptions {
    let mut options = TreeOptions::default();
    options.layout = layout;
    options.target_file_bytes = target_file_bytes;
    options.block_bytes = 512;
    options.compression = Compression::None;
    options
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

fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

/// Most writes are to a moving part of the keys, so that the other partitions get few.
struct Writes {
    rng: SimRng,
    hot: u64,
}

impl Writes {
    fn new(seed: u64) -> Self {
        Self { rng: SimRng::new(seed), hot: 0 }
    }

    fn key(&mut self) -> u64 {
        if self.rng.one_in(300) {
            self.hot = self.rng.below(KEYS);
        }
        match self.rng.below(12) {
            0 => self.rng.below(KEYS),
            _ => (self.hot + self.rng.below(KEYS / 10)) % KEYS,
        }
    }

    fn write(&mut self, tree: TreeId, model: &mut Model, batch: &mut StoreBatch) {
        let number = self.key();
        let key = key(number);
        match self.rng.below(200) {
            0..=149 => {
                let value = vec![self.rng.below(256) as u8; self.rng.below(120) as usize];
                batch.put(tree, &key, &value).unwrap();
                model.insert(key, value);
            }
            150..=198 => {
                batch.delete(tree, &key).unwrap();
                model.remove(&key);
            }
            _ => {
                let end = self::key(number + self.rng.below(40));
                if key < end {
                    batch.delete_range(tree, &key, &end).unwrap();
                    model.retain(|other, _| !(key <= *other && *other < end));
                }
            }
        }
    }
}

/// Retained bytes are within their limit, and so is the log if no work waits for threads.
fn check_bounds(stats: &StoreStats, threads: usize) {
    let retained: u64 = stats.trees.iter().map(|tree| tree.retained_bytes).sum();
    assert!(retained <= (MEMTABLE_BYTES * 15 / 100) as u64 + 4_096, "{retained} bytes are retained");
    assert!(threads > 0 || stats.old_log_segments <= 8, "{} segments", stats.old_log_segments);
}

fn random_history(seed: u64, threads: usize, layouts: &[Layout]) -> WriteCounters {
    let vfs = new_disk(seed);
    let mut writes = Writes::new(seed);
    let mut store = open(&vfs, threads, MEMTABLE_BYTES).unwrap();
    let trees = [0, 1].map(|_| store.create_tree(tree_options(layouts[0], 4 << 10), b"").unwrap());
    let mut models = [Model::new(), Model::new()];
    let mut views: Vec<(ReadView, [Model; 2])> = Vec::new();
    let mut sum = WriteCounters::default();
    let note = |store: &Store, sum: &mut WriteCounters| {
        let counters = store.stats().writes;
        sum.aborts += counters.aborts;
        sum.minor_compactions += counters.minor_compactions;
        sum.major_compactions += counters.major_compactions;
        sum.splits += counters.splits;
        sum.trivial_moves += counters.trivial_moves;
        sum.compactions += counters.compactions;
    };
    for round in 0..4_000 {
        let context = || format!("seed {seed}, {threads} threads, {layouts:?}, round {round}");
        let mut batch = StoreBatch::new();
        for _ in 0..1 + writes.rng.below(3) {
            let which = usize::from(writes.rng.one_in(4));
            writes.write(trees[which], &mut models[which], &mut batch);
        }
        if !batch.is_empty() {
            store.commit(batch, None, SyncMode::Batch).unwrap();
        }
        match writes.rng.below(1_500) {
            0 => store.flush().unwrap(),
            1 => store.compact(trees[0]).unwrap(),
            2 => {
                views.clear();
                note(&store, &mut sum);
                store.close().unwrap();
                store = open(&vfs, threads, MEMTABLE_BYTES).unwrap();
            }
            3 => {
                // The process is killed: its locks are released, the disk has the written data.
                views.clear();
                note(&store, &mut sum);
                let copy = vfs.clone_disk();
                let again = open(&copy, 0, MEMTABLE_BYTES).unwrap();
                for (tree, model) in trees.iter().zip(&models) {
                    assert_eq!(&entries(&again.read_view(), *tree, false), model, "{}", context());
                }
            }
            4 | 5 => views.push((store.read_view(), models.clone())),
            6 => views.clear(),
            7 => {
                let layout = layouts[writes.rng.below(layouts.len() as u64) as usize];
                store.set_layout(trees[writes.rng.below(2) as usize], layout).unwrap();
            }
            _ => {}
        }
        if round % 1_000 == 999 {
            views.push((store.read_view(), models.clone()));
            for (view, models) in &views {
                for (tree, model) in trees.iter().zip(models) {
                    for backwards in [false, true] {
                        assert_eq!(&entries(view, *tree, backwards), model, "{}", context());
                    }
                    for _ in 0..200 {
                        let key = key(writes.rng.below(KEYS));
                        let found = view.get(*tree, &key).unwrap().map(|(_, value)| value.to_vec());
                        assert_eq!(found.as_ref(), model.get(&key), "{}", context());
                    }
                }
            }
            check_bounds(&store.stats(), threads);
        }
    }
    note(&store, &mut sum);
    let mut damaged = Vec::new();
    store.verify(|_, error| damaged.push(error));
    assert!(damaged.is_empty(), "{damaged:?}");
    for tree in trees {
        store.compact(tree).unwrap();
    }
    let stats = store.stats();
    assert!(stats.trees.iter().all(|tree| tree.retained_bytes == 0 && tree.levels.len() <= 1));
    for (tree, model) in trees.iter().zip(&models) {
        assert_eq!(&entries(&store.read_view(), *tree, false), model, "seed {seed}");
    }
    sum
}

fn number_from_env(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// The seeds of histories and their numbers of threads: `BOLIDE_LIVES` of them from `BOLIDE_SEED` on, with `BOLIDE_THREADS`.
/// A history without threads depends on its seed alone.
fn histories() -> Vec<(u64, usize)> {
    let first = number_from_env("BOLIDE_SEED").unwrap_or(0);
    let seeds = first..first + number_from_env("BOLIDE_LIVES").unwrap_or(2);
    let threads = number_from_env("BOLIDE_THREADS").map_or(vec![0, 3], |threads| vec![threads as usize]);
    threads.iter().flat_map(|&threads| seeds.clone().map(move |seed| (seed, threads))).collect()
}

#[test]
fn random_histories_in_partitions_agree_with_a_map() {
    for (seed, threads) in histories() {
        let sum = random_history(seed, threads, &[Layout::Partitioned]);
        println!("seed {seed}, {threads} threads: {sum:?}");
        let all = [sum.aborts, sum.minor_compactions, sum.major_compactions];
        // With threads, there are usually four to eight splits.
        assert!(
            all.iter().all(|&count| count > 3) && sum.splits > 0,
            "seed {seed}, {threads} threads: {sum:?}"
        );
    }
}

#[test]
fn random_histories_in_fragments_agree_with_a_map() {
    for (seed, threads) in histories() {
        let sum = random_history(seed, threads, &[Layout::Fragmented]);
        println!("seed {seed}, {threads} threads: {sum:?}");
        assert!(sum.compactions > 20, "seed {seed}, {threads} threads: {sum:?}");
    }
}

#[test]
fn the_layout_of_a_tree_changes_while_it_is_written() {
    for threads in [0, 3] {
        for seed in 10..12 {
            random_history(seed, threads, &Layout::ALL);
        }
    }
}

/// The length of all REMIX files.
fn view_bytes_on(disk: &SimVfs) -> u64 {
    let names = disk.list(Path::new("db")).unwrap().into_iter().filter(|name| name.ends_with(".remix"));
    names.map(|name| disk.open(&Path::new("db").join(name)).unwrap().len().unwrap()).sum()
}

/// Each write is synced before it is acknowledged, so after a power cut during step n the state is that before or after step n.
fn power_cuts(seed: u64, layouts: &[Layout], steps: u64) {
    let vfs = new_disk(seed);
    let mut writes = Writes::new(seed);
    let store = open(&vfs, 0, 8 << 10).unwrap();
    let tree = store.create_tree(tree_options(layouts[0], 2 << 10), b"").unwrap();
    // Written occasionally, so that it retains the log over several flushes of the other tree.
    let quiet = store.create_tree(tree_options(Layout::Leveled, 2 << 10), b"").unwrap();
    let mut model = Model::new();
    vfs.record_images(RecordImages::SyncPoints);
    let (mut checked, mut with_views) = (0, 0);
    for step in 0..steps {
        let before = model.clone();
        let mut batch = StoreBatch::new();
        for _ in 0..1 + writes.rng.below(4) {
            writes.write(tree, &mut model, &mut batch);
        }
        if step % 50 == 0 {
            batch.put(quiet, b"key", b"value").unwrap();
        }
        if !batch.is_empty() {
            store.commit(batch, None, SyncMode::Always).unwrap();
        }
        if writes.rng.one_in(150) {
            store.set_layout(tree, layouts[writes.rng.below(layouts.len() as u64) as usize]).unwrap();
        }
        let images = vfs.take_images();
        // A commit has one sync; a flush has more.
        if images.len() == 1 && step % 100 > 0 {
            continue;
        }
        for image in images {
            if !writes.rng.one_in(3) {
                continue;
            }
            let mode = CrashMode::EACH[writes.rng.below(3) as usize];
            let disk = image.vfs.crash(mode);
            // A second power cut during the recovery.
            let second = disk.clone_disk();
            second.power_off_after_syncs(writes.rng.below(6));
            drop(open(&second, 0, 8 << 10));
            for disk in [disk, second.crash(mode)] {
                let store = open(&disk, 0, 8 << 10).unwrap();
                let found = entries(&store.read_view(), tree, false);
                assert!(found == before || found == model, "seed {seed}, step {step}, {mode:?}");
                checked += 1;
                if checked % 4 == 0 {
                    let mut problems = Vec::new();
                    store.verify(|_, error| problems.push(error));
                    assert!(problems.is_empty(), "seed {seed}, step {step}, {mode:?}: {problems:?}");
                    // The sorted views on disk are exactly those that the manifest names.
                    let views: u64 = store.stats().trees.iter().map(|tree| tree.sorted_view_file_bytes).sum();
                    assert_eq!(view_bytes_on(&disk), views, "seed {seed}, step {step}, {mode:?}");
                    with_views += u64::from(views > 0);
                }
            }
        }
    }
    let writes = store.stats().writes;
    if layouts == [Layout::Partitioned] {
        assert!(writes.aborts > 0 && writes.splits > 0 && writes.major_compactions > 0, "{writes:?}");
    }
    assert!(checked > 100 && (layouts.len() > 1 || with_views > 3), "{checked}, {with_views}");
}

#[test]
fn no_power_cut_loses_a_synced_write_of_a_tree_in_partitions() {
    power_cuts(0, &[Layout::Partitioned], 600);
}

#[test]
fn no_power_cut_loses_a_synced_write_while_the_layout_changes() {
    power_cuts(5, &Layout::ALL, 350);
}

/// Entries that a flush retained are in the log again. Once a later flush has written them, that part of the log is not replayed,
/// however long another tree retains it: otherwise an old version of a key could be above a newer one in an sstable.
#[test]
fn retained_entries_are_not_replayed_over_later_flushed_writes() {
    let vfs = new_disk(3);
    // So large that the few writes of the quiet tree are not worth a flush.
    let store = open_changed(&vfs, 0, 12 * MEMTABLE_BYTES, |options| {
        options.partition_memtables = 1;
        options.memory_compaction = false;
    });
    let store = store.unwrap();
    let tree = store.create_tree(tree_options(Layout::Partitioned, 4 << 10), b"").unwrap();
    let quiet = store.create_tree(tree_options(Layout::Leveled, 4 << 10), b"").unwrap();
    let put = |tree: TreeId, number: u64, value: &[u8]| {
        let mut batch = StoreBatch::new();
        batch.put(tree, &key(number), value).unwrap();
        store.commit(batch, None, SyncMode::None).unwrap();
    };
    for number in 0..KEYS {
        put(tree, number, &[b'v'; 60]);
    }
    store.flush().unwrap();
    let stats = || store.stats().trees.iter().find(|stats| stats.tree == tree).cloned().unwrap();
    assert!(stats().levels[0].partitions > 4, "{:?}", stats());
    // It retains the log from here on.
    put(quiet, 0, b"quiet");
    put(tree, 10, b"old");
    let mut hot = KEYS / 2;
    while stats().retained_bytes == 0 {
        put(tree, hot, &[b'w'; 60]);
        hot += 1;
    }
    put(tree, 10, b"new");
    let flushes = store.stats().writes.flushes;
    for number in (11..200).cycle() {
        if store.stats().writes.flushes > flushes {
            break;
        }
        put(tree, number, &[b'x'; 60]);
    }
    let tree_view = store.read_view().tree(tree).unwrap();
    let in_memory = tree_view
        .memtable_components()
        .any(|one| one.memtable().newest(&key(10), tree_view.sequence()).is_some());
    assert!(!in_memory, "its partition has enough new entries by now to be flushed");
    assert!(store.stats().old_log_segments >= 2, "{:?}", store.stats());
    let again = open(&vfs.clone_disk(), 0, 12 * MEMTABLE_BYTES).unwrap();
    let found = again.read_view().get(tree, &key(10)).unwrap().map(|(_, value)| value.to_vec());
    assert_eq!(found.as_deref(), Some(&b"new"[..]));
}

/// Bytes of sstables written per byte of keys and values.
fn amplification(layout: Layout, keys: impl Iterator<Item = u64>) -> (f64, StoreStats) {
    let vfs = new_disk(0);
    let store = open(&vfs, 0, 1 << 20).unwrap();
    let tree = store.create_tree(tree_options(layout, 1 << 20), b"").unwrap();
    let mut rng = SimRng::new(1);
    let (mut batch, mut bytes) = (StoreBatch::new(), 0);
    for number in keys {
        let value: Vec<u8> = (0..120).map(|_| rng.below(256) as u8).collect();
        let key = format!("{number:016x}");
        bytes += (key.len() + value.len()) as u64;
        batch.put(tree, key.as_bytes(), &value).unwrap();
        if batch.len() == 50 {
            store.commit(std::mem::take(&mut batch), None, SyncMode::None).unwrap();
        }
    }
    store.flush().unwrap();
    store.wait_until_settled().unwrap();
    let stats = store.stats();
    (stats.trees[0].written_bytes as f64 / bytes as f64, stats)
}

/// The proportions of 5 M records of 136 bytes, memtables and sstables of 64 MiB.
const RECORDS: u64 = 80_000;

#[test]
fn loads_in_key_order_are_written_once() {
    for layout in [Layout::Partitioned, Layout::Fragmented] {
        let (written, stats) = amplification(layout, 0..RECORDS);
        assert!(written < 1.15, "{layout:?}: {written}, {stats:?}");
        assert!(stats.trees[0].levels.iter().map(|level| level.runs).sum::<usize>() <= 4, "{stats:?}");
    }
}

#[test]
fn loads_nearly_in_key_order_are_written_less_than_twice() {
    let mut rng = SimRng::new(2);
    let keys = (0..RECORDS).map(|number| (number * 64).saturating_sub(rng.below(64 * 2_000)));
    let (written, stats) = amplification(Layout::Partitioned, keys);
    assert!(written < 1.8, "{written}, {stats:?}");
}

#[test]
fn loads_in_any_order_are_written_once_while_runs_are_few() {
    let mut rng = SimRng::new(3);
    let (written, stats) = amplification(Layout::Partitioned, (0..RECORDS).map(|_| rng.below(1 << 60)));
    assert!(written <= 1.15, "{written}, {stats:?}");
    assert!(stats.trees[0].levels.iter().map(|level| level.runs).sum::<usize>() <= 10, "{stats:?}");
}

#[test]
fn full_memtables_are_flushed_into_partitions_in_pairs_unless_they_retain_the_log() {
    let store = open(&new_disk(4), 0, MEMTABLE_BYTES).unwrap();
    let tree = store.create_tree(tree_options(Layout::Partitioned, 4 << 10), b"").unwrap();
    let other = store.create_tree(tree_options(Layout::Leveled, 4 << 10), b"").unwrap();
    let mut number = 0;
    // Writes to a tree until its log continues in another segment.
    let mut fill = |tree: TreeId| {
        let before = store.stats().log_segment_bytes;
        let mut last = before;
        loop {
            let mut batch = StoreBatch::new();
            batch.put(tree, &key(number % KEYS), &[b'v'; 100]).unwrap();
            number += 7;
            store.commit(batch, None, SyncMode::None).unwrap();
            let now = store.stats().log_segment_bytes;
            if now < last {
                return;
            }
            last = now;
        }
    };
    let waiting = || store.stats().trees.iter().find(|stats| stats.tree == tree).unwrap().immutable_memtables;
    let flushes = || store.stats().writes.flushes;
    fill(tree);
    assert_eq!((waiting(), flushes()), (1, 0), "it waits for another one");
    fill(tree);
    assert_eq!((waiting(), flushes()), (0, 1), "two are flushed together");
    fill(tree);
    assert_eq!((waiting(), flushes()), (1, 1));
    store.flush().unwrap();
    assert_eq!(waiting(), 0, "a requested flush waits for nothing");
    fill(tree);
    assert_eq!(waiting(), 1);
    // It gets no more writes: other trees fill the log.
    for _ in 0..6 {
        fill(other);
    }
    assert_eq!(waiting(), 0, "it retained the log");
    assert!(store.stats().old_log_segments <= 5, "{:?}", store.stats());
}

/// Waits until `is_so`, for other threads.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let clock = SystemRuntime::default();
    for _ in 0..3_000 {
        if is_so() {
            return;
        }
        clock.sleep(std::time::Duration::from_millis(10));
    }
    panic!("{what}: not within 30 seconds");
}

#[test]
fn views_are_rebuilt_after_reads_or_when_writers_pause() {
    // Time advances only explicitly: no pause is long.
    let clock = Arc::new(SimRuntime::new(1));
    let mut options = StoreOptions::new(Path::new("db"));
    options.memtable_bytes = MEMTABLE_BYTES;
    let vfs: Arc<dyn Vfs> = Arc::new(new_disk(5));
    let components = StoreComponents { vfs, runtime: clock.clone(), cache: BlockCache::new(1 << 20) };
    let store = Store::open(options, components).unwrap();
    let tree = store.create_tree(tree_options(Layout::Partitioned, 64 << 10), b"").unwrap();
    let flushes = || store.stats().writes.flushes;
    let mut number = 0;
    let mut flush_some = |more: u64| {
        let wanted = flushes() + more;
        while flushes() < wanted {
            let mut batch = StoreBatch::new();
            batch.put(tree, &key(number % KEYS), &[b'v'; 100]).unwrap();
            number += 7;
            store.commit(batch, None, SyncMode::None).unwrap();
        }
    };
    let view_bytes = || store.stats().writes.view_bytes;
    flush_some(4);
    assert_eq!(view_bytes(), 0, "without a read, while writers continue");
    clock.advance(std::time::Duration::from_secs(1));
    // It was checked, at most, before the clock moved.
    wait_until("a pause", || {
        clock.advance(std::time::Duration::from_secs(1));
        view_bytes() > 0
    });
    store.wait_until_settled().unwrap();
    let before = view_bytes();
    flush_some(1);
    assert_eq!(view_bytes(), before, "without a read since");
    let view = store.read_view();
    let mut cursor = view.cursor(tree, Bounds::all()).unwrap();
    cursor.seek_to_first().unwrap();
    assert!(cursor.valid());
    wait_until("a reader", || view_bytes() > before);
    // Waiting for all work includes waiting for views.
    store.wait_until_settled().unwrap();
    let before = view_bytes();
    flush_some(1);
    store.wait_until_settled().unwrap();
    assert!(view_bytes() > before);
}
