//! Stores with sorted views over the runs of tiered trees, against stores that merge the runs.
#![cfg(not(bolide_shuttle))]

use std::sync::Arc;

use bolide_base::TreeId;
use bolide_lsm::store::KnownWrite;
use bolide_lsm::{
    Bounds, Layout, ReadView, Store, StoreBatch, StoreComponents, StoreOptions, SyncMode, TreeOptions,
};
use bolide_storage::{MemVfs, SimRng, SystemRuntime};
use bolide_table::{BlockCache, ValueRef};

fn open(sorted_views: bool, view_delay_percent: u32) -> Store {
    let mut options = StoreOptions::new("/db");
    options.memtable_bytes = 4 << 10;
    options.background_threads = 0;
    options.sorted_views = sorted_views.into();
    options.view_delay_percent = view_delay_percent;
    let components = StoreComponents {
        vfs: Arc::new(MemVfs::new()),
        runtime: Arc::new(SystemRuntime::default()),
        cache: BlockCache::new(64 << 10),
    };
    Store::open(options, components).unwrap()
}

fn tree_of(store: &Store, layout: Layout, bloom_bits_per_key: u32, view_tags: bool) -> TreeId {
    let mut options = TreeOptions::default();
    options.layout = layout;
    options.block_bytes = 256;
    options.target_file_bytes = 4 << 10;
    options.bloom_bits_per_key = bloom_bits_per_key;
    options.view_tags = view_tags;
    store.create_tree(options, b"").unwrap()
}

fn view_bytes(store: &Store, tree: TreeId) -> usize {
    let stats = store.stats();
    stats.trees.iter().find(|stats| stats.tree == tree).map_or(0, |stats| stats.sorted_view_bytes)
}

fn key(rng: &mut SimRng) -> Vec<u8> {
    format!("key{:04}", rng.below(500)).into_bytes()
}

/// The same cursor moves and point reads in both views.
fn compare(pairs: [(&ReadView, TreeId); 2], rng: &mut SimRng, seed: u64) {
    let bounds = match rng.below(3) {
        0 => Bounds::of(key(rng)..),
        1 => Bounds::of(key(rng)..key(rng)),
        _ => Bounds::all(),
    };
    let [mut left, mut right] = pairs.map(|(view, tree)| view.cursor(tree, bounds.clone()).unwrap());
    for step in 0..150 {
        let at = key(rng);
        let choice = rng.below(12);
        for cursor in [&mut left, &mut right] {
            match choice {
                0 => cursor.seek_to_first(),
                1 => cursor.seek_to_last(),
                2 | 3 => cursor.seek(&at),
                4 => cursor.seek_for_prev(&at),
                5..=8 => cursor.next(),
                _ => cursor.prev(),
            }
            .unwrap();
        }
        let seen = [&left, &right].map(|cursor| {
            cursor.valid().then(|| (cursor.key().to_vec(), cursor.sequence(), cursor.value().to_vec()))
        });
        assert_eq!(seen[0], seen[1], "seed {seed}, step {step}");
        let found = pairs.map(|(view, tree)| {
            view.get(tree, &at).unwrap().map(|(sequence, value)| (sequence, value.to_vec()))
        });
        assert_eq!(found[0], found[1], "seed {seed}, {}", at.escape_ascii());
        let newest = pairs.map(|(view, tree)| view.newest_sequence(tree, &at).unwrap());
        assert_eq!(newest[0], newest[1], "seed {seed}, {}", at.escape_ascii());
    }
    compare_many(pairs, rng, seed);
}

/// The same results of batched reads.
fn compare_many(pairs: [(&ReadView, TreeId); 2], rng: &mut SimRng, seed: u64) {
    let keys: Vec<Vec<u8>> = (0..50).map(|_| key(rng)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let trees = pairs.map(|(view, tree)| view.tree(tree).unwrap());
    let [left, right] = [0, 1].map(|store: usize| {
        let mut found = Vec::new();
        trees[store].get_many(&keys, &mut found).unwrap();
        let known: Vec<KnownWrite<'_>> = (keys.iter().zip(&found))
            .filter_map(|(&key, found)| Some(KnownWrite { key, sequence: found.as_ref()?.0 }))
            .chain(keys.iter().map(|&key| KnownWrite { key, sequence: 1 + key.len() as u64 * 40 }))
            .collect();
        let (mut sequences, mut exact, mut current) = (Vec::new(), Vec::new(), Vec::new());
        trees[store].newest_sequences(&keys, &mut sequences).unwrap();
        trees[store].get_exact_many(&known, &mut exact).unwrap();
        trees[store].get_current_many(&known, &mut current).unwrap();
        let values = |found: Vec<Option<ValueRef>>| -> Vec<_> {
            found.into_iter().map(|value| value.map(|value| value.to_vec())).collect()
        };
        let found: Vec<_> = found
            .into_iter()
            .map(|found| found.map(|(sequence, value)| (sequence, value.to_vec())))
            .collect();
        (found, sequences, values(exact), values(current))
    });
    assert_eq!(left.0, right.0, "seed {seed}");
    assert_eq!(left.1, right.1, "seed {seed}");
    // A version that is not the newest may be found or not; the newest ones are.
    let newest = left.0.iter().flatten().count();
    assert_eq!(left.2[..newest], right.2[..newest], "seed {seed}");
    assert_eq!(left.3, right.3, "seed {seed}");
}

/// One history in two stores, one of them with views. Returns the number of comparisons that used a view.
fn same_with_views_and_without(layouts: &[Layout], seed: u64) -> u32 {
    let mut with_view = 0;
    let mut rng = SimRng::new(seed);
    // Deferred, so that some runs are outside of views for a while.
    let delay = [0, 60][rng.below(2) as usize];
    let stores = [open(false, 0), open(true, delay)];
    let bloom_bits_per_key = [0, 10][rng.below(2) as usize];
    let tags = rng.one_in(2);
    let trees = [0, 1].map(|store| tree_of(&stores[store], layouts[0], bloom_bits_per_key, tags));
    let mut pinned: Vec<[ReadView; 2]> = Vec::new();
    for _ in 0..1_200 {
        let (at, end, choice) = (key(&mut rng), key(&mut rng), rng.below(60));
        let value = vec![b'v'; rng.below(60) as usize];
        for (store, tree) in stores.iter().zip(trees) {
            let mut batch = StoreBatch::new();
            match choice {
                0 if at < end => batch.delete_range(tree, &at, &end).unwrap(),
                1..=9 => batch.delete(tree, &at).unwrap(),
                _ => batch.put(tree, &at, &value).unwrap(),
            }
            store.commit(batch, None, SyncMode::None).unwrap();
        }
        match rng.below(80) {
            0 => stores.iter().for_each(|store| store.flush().unwrap()),
            1 if rng.one_in(3) => {
                stores.iter().zip(trees).for_each(|(store, tree)| store.compact(tree).unwrap());
            }
            2..=4 => pinned.push([0, 1].map(|store| stores[store].read_view())),
            5 if !pinned.is_empty() => drop(pinned.swap_remove(rng.below(pinned.len() as u64) as usize)),
            6 if layouts.len() > 1 && rng.one_in(2) => {
                let layout = layouts[rng.below(layouts.len() as u64) as usize];
                stores.iter().zip(trees).for_each(|(store, tree)| store.set_layout(tree, layout).unwrap());
            }
            _ => {}
        }
        if rng.one_in(40) {
            let views = [0, 1].map(|store| stores[store].read_view());
            compare([(&views[0], trees[0]), (&views[1], trees[1])], &mut rng, seed);
            with_view += u32::from(view_bytes(&stores[1], trees[1]) > 0);
            assert_eq!(view_bytes(&stores[0], trees[0]), 0);
        }
    }
    for [left, right] in &pinned {
        compare([(left, trees[0]), (right, trees[1])], &mut rng, seed);
    }
    with_view
}

#[test]
fn readers_get_the_same_results_with_views_and_without() {
    for layout in [Layout::Tiered, Layout::Fragmented, Layout::Partitioned] {
        let with_view: u32 = (0..12).map(|seed| same_with_views_and_without(&[layout], seed)).sum();
        assert!(with_view > 100, "{layout:?}: only {with_view} comparisons used a view");
    }
}

#[test]
fn readers_get_the_same_results_while_the_layout_changes() {
    let with_view: u32 = (20..32).map(|seed| same_with_views_and_without(&Layout::ALL, seed)).sum();
    assert!(with_view > 50, "only {with_view} comparisons used a view");
}

#[test]
fn trees_without_a_benefit_have_no_view() {
    let store = open(true, 0);
    let fill = |tree: TreeId, runs: usize| {
        for run in 0..runs {
            let mut batch = StoreBatch::new();
            for number in 0..20 {
                batch.put(tree, format!("key{}", 7 * number + run).as_bytes(), b"v").unwrap();
            }
            store.commit(batch, None, SyncMode::None).unwrap();
            store.flush().unwrap();
        }
    };
    let leveled = tree_of(&store, Layout::Leveled, 10, false);
    let tiered = tree_of(&store, Layout::Tiered, 10, false);
    fill(leveled, 3);
    fill(tiered, 1);
    assert_eq!((view_bytes(&store, leveled), view_bytes(&store, tiered)), (0, 0));
    fill(tiered, 2);
    assert!(view_bytes(&store, tiered) > 0);
    // One run remains: the view is dropped, and with it its references to the previous files.
    store.compact(tiered).unwrap();
    assert_eq!(view_bytes(&store, tiered), 0);
}
