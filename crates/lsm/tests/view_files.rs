//! REMIX files of trees: written, named by the manifest, read on demand, rebuilt after damage, and removed.
#![cfg(not(bolide_shuttle))]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_base::TreeId;
use bolide_lsm::file_name::FileName;
use bolide_lsm::store::TreeStats;
use bolide_lsm::{
    Bounds, Layout, SortedViews, Store, StoreBatch, StoreComponents, StoreOptions, SyncMode, TreeOptions,
};
use bolide_storage::{SimRng, SimRuntime, SimVfs, Vfs};
use bolide_table::{BlockCache, Compression, ReadCounters};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> StoreOptions {
    let mut options = StoreOptions::new(Path::new("db"));
    options.memtable_bytes = 16 << 10;
    options.background_threads = 0;
    options.sorted_views = SortedViews::Always;
    options
}

fn open_with(vfs: &SimVfs, options: StoreOptions) -> Store {
    let (vfs, runtime) = (Arc::new(vfs.clone()), Arc::new(SimRuntime::new(1)));
    Store::open(options, StoreComponents { vfs, runtime, cache: BlockCache::new(1 << 20) }).unwrap()
}

fn open(vfs: &SimVfs) -> Store {
    open_with(vfs, options())
}

fn new_tree(store: &Store, layout: Layout) -> TreeId {
    let mut options = TreeOptions::default();
    options.layout = layout;
    options.target_file_bytes = 4 << 10;
    options.block_bytes = 512;
    options.compression = Compression::None;
    store.create_tree(options, b"").unwrap()
}

/// Random puts until some partitions have views.
fn fill(store: &Store, tree: TreeId, writes: u64, rng: &mut SimRng, model: &mut Model) {
    for _ in 0..writes {
        let key = format!("key{:05}", rng.below(2_000)).into_bytes();
        let value = vec![rng.below(256) as u8; rng.below(60) as usize];
        let mut batch = StoreBatch::new();
        batch.put(tree, &key, &value).unwrap();
        store.commit(batch, None, SyncMode::None).unwrap();
        model.insert(key, value);
    }
}

fn entries(store: &Store, tree: TreeId) -> Model {
    let view = store.read_view();
    let mut cursor = view.cursor(tree, Bounds::all()).unwrap();
    let mut entries = Model::new();
    cursor.seek_to_first().unwrap();
    while cursor.valid() {
        entries.insert(cursor.key().to_vec(), cursor.value().to_vec());
        cursor.next().unwrap();
    }
    entries
}

fn stats(store: &Store, tree: TreeId) -> TreeStats {
    store.stats().trees.into_iter().find(|stats| stats.tree == tree).unwrap()
}

fn files(vfs: &SimVfs) -> BTreeSet<PathBuf> {
    let dir = Path::new("db");
    let names = vfs.list(dir).unwrap().into_iter();
    names.filter(|name| name.ends_with(".remix")).map(|name| dir.join(name)).collect()
}

/// No problem.
const NONE: [String; 0] = [];

fn problems(store: &Store) -> Vec<String> {
    let mut problems = Vec::new();
    store.verify(|_, error| problems.push(error.to_string()));
    problems
}

/// A closed store of this layout with views on disk.
fn closed_store(layout: Layout, seed: u64) -> (SimVfs, TreeId, Model) {
    let (vfs, mut rng, mut model) = (SimVfs::new(seed), SimRng::new(seed), Model::new());
    let store = open(&vfs);
    let tree = new_tree(&store, layout);
    let mut round = 0;
    while round < 3 || stats(&store, tree).sorted_view_file_bytes == 0 {
        fill(&store, tree, 600, &mut rng, &mut model);
        store.flush().unwrap();
        round += 1;
    }
    store.close().unwrap();
    assert!(!files(&vfs).is_empty());
    (vfs, tree, model)
}

const LAYOUTS: [Layout; 3] = [Layout::Tiered, Layout::Fragmented, Layout::Partitioned];

#[test]
fn an_opened_store_reads_its_views_on_demand_and_builds_none() {
    for layout in LAYOUTS {
        let (vfs, tree, model) = closed_store(layout, 3);
        let store = open(&vfs);
        let before = stats(&store, tree);
        assert!(before.sorted_view_file_bytes > 0 && before.sorted_view_bytes == 0, "{layout:?}: {before:?}");
        assert_eq!(entries(&store, tree), model, "{layout:?}");
        assert!(stats(&store, tree).sorted_view_bytes > 0, "{layout:?}");
        let all = store.stats();
        assert_eq!((all.damaged_views, all.writes.view_bytes), (0, 0), "{layout:?}");
        assert_eq!(problems(&store), NONE);
        assert!(store.verify(|_, _| {}).views > 0);
    }
}

#[test]
fn damaged_and_missing_files_are_rebuilt_and_all_reads_are_correct() {
    let mut damages = 0;
    for (seed, layout) in (0..).zip(LAYOUTS) {
        let (disk, tree, model) = closed_store(layout, seed);
        let all = files(&disk);
        let mut rng = SimRng::new(seed);
        for path in &all {
            for damage in 0..5 {
                let vfs = disk.clone_disk();
                match damage {
                    0 => vfs.remove(path).unwrap(),
                    1 => vfs.damage(path, |bytes| bytes.truncate(bytes.len() / 2)).unwrap(),
                    // The file of another view.
                    2 => {
                        let Some(other) = all.iter().find(|other| *other != path) else { continue };
                        let file = vfs.open(other).unwrap();
                        let mut bytes = vec![0; file.len().unwrap() as usize];
                        file.read_exact_at(0, &mut bytes).unwrap();
                        vfs.damage(path, |old| *old = bytes).unwrap();
                    }
                    _ => {
                        let at = rng.below(1 << 20) as usize;
                        vfs.damage(path, |bytes| {
                            let at = at % bytes.len();
                            bytes[at] ^= 1 << (at % 8);
                        })
                        .unwrap();
                    }
                }
                let context = format!("seed {seed}, {layout:?}, {}, damage {damage}", path.display());
                let store = open(&vfs);
                assert_eq!(entries(&store, tree), model, "{context}");
                assert_eq!(store.stats().damaged_views, 1, "{context}");
                let name = path.file_name().unwrap().to_str().unwrap();
                let found = problems(&store);
                assert!(found.iter().any(|problem| problem.contains(name)), "{context}: {found:?}");
                store.wait_until_settled().unwrap();
                assert!(store.stats().writes.view_bytes > 0, "{context}");
                assert_eq!(problems(&store), NONE, "{context}");
                assert!(!files(&vfs).contains(path), "{context}");
                store.close().unwrap();
                let store = open(&vfs);
                assert_eq!(entries(&store, tree), model, "{context}");
                assert_eq!(store.stats().damaged_views, 0, "{context}");
                damages += 1;
            }
        }
    }
    assert!(damages > 20, "{damages}");
}

#[test]
fn a_verification_rebuilds_the_views_whose_files_are_damaged() {
    for (seed, layout) in (10..).zip(LAYOUTS) {
        let (disk, tree, model) = closed_store(layout, seed);
        let path = files(&disk).pop_first().unwrap();
        for (case, threads) in (0..4).flat_map(|case| [(case, 0), (case, 1)]) {
            let (is_read, removed) = (case & 1 > 0, case & 2 > 0);
            let context =
                format!("seed {seed}, {layout:?}, read {is_read}, removed {removed}, {threads} threads");
            let vfs = disk.clone_disk();
            let mut options = options();
            options.background_threads = threads;
            let store = open_with(&vfs, options);
            if is_read {
                assert_eq!(entries(&store, tree), model, "{context}");
            }
            match removed {
                true => vfs.remove(&path).unwrap(),
                false => vfs.damage(&path, |bytes| bytes[40] ^= 1).unwrap(),
            }
            let mut found = Vec::new();
            let checked = store.verify(|_, error| found.push(error.to_string()));
            assert_eq!((checked.damaged_views, found.len()), (1, 1), "{context}: {found:?}");
            assert!(found[0].contains(path.file_name().unwrap().to_str().unwrap()), "{context}: {found:?}");
            assert_eq!(store.stats().damaged_views, 1, "{context}");
            // A thread may have started already.
            let again = store.verify(|_, _| {}).damaged_views;
            assert!(again == 1 || threads > 0 && again == 0, "{context}: {again}");
            assert_eq!(store.stats().damaged_views, 1, "{context}: reported twice");
            assert_eq!(entries(&store, tree), model, "{context}");
            store.wait_until_settled().unwrap();
            assert_eq!(problems(&store), NONE, "{context}");
            assert!(store.stats().writes.view_bytes > 0, "{context}");
            assert_eq!(entries(&store, tree), model, "{context}");
            store.close().unwrap();
            assert!(!files(&vfs).contains(&path), "{context}");
        }
    }
}

#[test]
fn damage_of_an_sstable_is_not_reported_as_damage_of_its_view() {
    let (vfs, _, _) = closed_store(Layout::Partitioned, 9);
    let dir = Path::new("db");
    for name in vfs.list(dir).unwrap().iter().filter(|name| name.ends_with(".sst")) {
        vfs.damage(&dir.join(name), |bytes| bytes[30] ^= 1).unwrap();
    }
    let store = open(&vfs);
    let mut problems = 0;
    let checked = store.verify(|_, _| problems += 1);
    assert!(problems > 0);
    assert_eq!((checked.damaged_views, store.stats().damaged_views), (0, 0));
}

#[test]
fn read_only_stores_merge_if_a_file_is_damaged() {
    let (vfs, tree, model) = closed_store(Layout::Partitioned, 8);
    for path in files(&vfs) {
        vfs.remove(&path).unwrap();
    }
    let mut options = options();
    options.read_only = true;
    let store = open_with(&vfs, options);
    assert_eq!(entries(&store, tree), model);
    assert!(store.stats().damaged_views > 0);
    assert!(files(&vfs).is_empty());
}

#[test]
fn files_without_an_edit_are_removed_at_the_opening() {
    let (vfs, tree, model) = closed_store(Layout::Partitioned, 4);
    let named = files(&vfs);
    // The state after a crash between file and edit.
    let left = FileName::View(9_000).path(Path::new("db"));
    let file = vfs.create(&left).unwrap();
    file.append(b"BOLIDRMX and no more").unwrap();
    file.sync().unwrap();
    let store = open(&vfs);
    assert_eq!(files(&vfs), named);
    assert_eq!(entries(&store, tree), model);
}

#[test]
fn a_file_is_removed_with_its_last_reader() {
    for layout in LAYOUTS {
        let (vfs, tree, model) = closed_store(layout, 5);
        let store = open(&vfs);
        let old = files(&vfs);
        let pinned = store.read_view().tree(tree).unwrap();
        store.compact(tree).unwrap();
        assert!(old.is_subset(&files(&vfs)), "{layout:?}");
        // Read only now, from a file that the manifest does not name any more.
        let mut cursor = pinned.cursor(Bounds::all()).unwrap();
        let mut count = 0;
        cursor.seek_to_first().unwrap();
        while cursor.valid() {
            assert_eq!(model.get(cursor.key()).unwrap(), cursor.value());
            count += 1;
            cursor.next().unwrap();
        }
        assert_eq!((count, store.stats().damaged_views), (model.len(), 0), "{layout:?}");
        drop((cursor, pinned));
        store.compact(tree).unwrap();
        assert!(old.is_disjoint(&files(&vfs)), "{layout:?}");
        let left: u64 = files(&vfs).iter().map(|path| vfs.open(path).unwrap().len().unwrap()).sum();
        assert_eq!(left, stats(&store, tree).sorted_view_file_bytes, "{layout:?}");
    }
}

#[test]
fn copies_have_the_views_except_a_missing_one() {
    let (vfs, tree, model) = closed_store(Layout::Partitioned, 6);
    for missing in [false, true] {
        let store = open(&vfs);
        if missing {
            vfs.remove(files(&vfs).first().unwrap()).unwrap();
        }
        let dir = PathBuf::from(format!("copy{missing}"));
        store.checkpoint(&dir).unwrap();
        let mut options = options();
        options.dir = dir;
        let copy = open_with(&vfs, options);
        assert!(stats(&copy, tree).sorted_view_file_bytes > 0);
        assert_eq!(entries(&copy, tree), model);
        assert_eq!(copy.stats().damaged_views, 0);
        assert_eq!(problems(&copy), NONE);
    }
}

#[test]
fn rebuilds_are_deferred_until_there_are_enough_new_entries() {
    let written = |percent: u32| {
        let (vfs, mut rng, mut model) = (SimVfs::new(7), SimRng::new(7), Model::new());
        let mut options = options();
        options.view_delay_percent = percent;
        let store = open_with(&vfs, options);
        let tree = new_tree(&store, Layout::Partitioned);
        for _ in 0..40 {
            fill(&store, tree, 50, &mut rng, &mut model);
            store.flush().unwrap();
            assert_eq!(entries(&store, tree), model);
        }
        assert_eq!(problems(&store), NONE);
        store.stats().writes.view_bytes
    };
    let (at_once, late) = (written(0), written(40));
    assert!(late > 0 && late * 2 < at_once, "{at_once} and {late} bytes");
}

#[test]
fn partitions_have_at_most_the_configured_number_of_runs() {
    let tables = |max_tables: usize| {
        let (vfs, mut rng, mut model) = (SimVfs::new(9), SimRng::new(9), Model::new());
        let mut options = options();
        options.partition_tables = max_tables;
        let store = open_with(&vfs, options);
        let tree = new_tree(&store, Layout::Partitioned);
        let mut highest = 0;
        for _ in 0..40 {
            fill(&store, tree, 50, &mut rng, &mut model);
            store.flush().unwrap();
            let stats = stats(&store, tree);
            highest = highest.max(stats.levels.iter().map(|level| level.runs).max().unwrap_or(0));
        }
        highest
    };
    let (few, many) = (tables(3), tables(10));
    assert!(few <= 3 && many > 5 && many <= 10, "{few} and {many} runs");
}

/// With tags, absent keys usually read no block and present ones read one, without a Bloom filter.
#[test]
fn point_reads_use_views_with_tags_instead_of_filters() {
    let (vfs, mut rng, mut model) = (SimVfs::new(10), SimRng::new(10), Model::new());
    let store = open(&vfs);
    let mut tree_options = TreeOptions::default();
    tree_options.layout = Layout::Partitioned;
    tree_options.view_tags = true;
    tree_options.block_bytes = 512;
    tree_options.target_file_bytes = 64 << 10;
    let tree = store.create_tree(tree_options, b"").unwrap();
    for _ in 0..6 {
        fill(&store, tree, 300, &mut rng, &mut model);
        store.flush().unwrap();
    }
    let view = store.read_view();
    let blocks = || {
        let counters = ReadCounters::of_this_thread();
        counters.blocks_read + counters.blocks_cached
    };
    let before = blocks();
    for number in 0..2_000_u64 {
        let key = format!("key{number:05}").into_bytes();
        let found = view.get(tree, &key).unwrap().map(|(_, value)| value.to_vec());
        assert_eq!(found.as_ref(), model.get(&key));
    }
    let read = blocks() - before;
    let present = model.len() as u64;
    // One in 256 tags is equal by chance, and a segment has 32 of them.
    assert!(read >= present && read < present + 2_000 / 5, "{read} blocks for {present} present keys");
}
