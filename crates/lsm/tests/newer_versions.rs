//! Whether a version in one component is current, determined from the newer components alone: compared with ordinary reads.
#![cfg(not(bolide_shuttle))]

use std::sync::Arc;

use bolide_base::{SequenceNumber, TreeId};
use bolide_lsm::store::{Component, FoundInRun};
use bolide_lsm::{Layout, Store, StoreBatch, StoreComponents, StoreOptions, SyncMode, TreeOptions, TreeView};
use bolide_storage::{MemVfs, SimRng, SystemRuntime};
use bolide_table::BlockCache;

fn open(memtable_bytes: usize) -> Store {
    let mut options = StoreOptions::new("/db");
    options.memtable_bytes = memtable_bytes;
    options.background_threads = 0;
    let components = StoreComponents {
        vfs: Arc::new(MemVfs::new()),
        runtime: Arc::new(SystemRuntime::default()),
        cache: BlockCache::new(1 << 20),
    };
    Store::open(options, components).unwrap()
}

fn tiny_tree(store: &Store, layout: Layout) -> TreeId {
    let mut options = TreeOptions::default();
    options.layout = layout;
    options.block_bytes = 128;
    options.target_file_bytes = 1 << 10;
    store.create_tree(options, b"").unwrap()
}

/// The verdicts on every put that a sorted run contains for the view.
fn judge_all(view: &TreeView) -> Verdicts {
    let mut judged = Verdicts::default();
    for component in view.components() {
        let Component::Table(table) = component else { continue };
        let mut reader = table.blocks(view.sequence()).unwrap();
        let mut all: Vec<(Vec<u8>, SequenceNumber, u32)> = Vec::new();
        for block in 0..table.data_blocks().unwrap() {
            reader.enter(block).unwrap();
            while reader.valid() {
                assert_eq!(&*reader.value_ref(), reader.value());
                all.push((reader.key().to_vec(), reader.sequence(), reader.newer_runs()));
                reader.advance().unwrap();
            }
        }
        let found: Vec<FoundInRun<'_>> = all
            .iter()
            .map(|(key, sequence, newer_runs)| FoundInRun {
                key,
                sequence: *sequence,
                newer_runs: *newer_runs,
            })
            .collect();
        let mut current = Vec::new();
        judged.read += view.are_current(&found, &mut current).unwrap();
        assert_eq!(current.len(), found.len());
        for (found, current) in found.iter().zip(current) {
            let expected = view.newest_sequence(found.key).unwrap() == Some(found.sequence);
            assert_eq!(current, expected, "{found:?} at {}", view.sequence());
            judged.current += u64::from(current);
            judged.obsolete += u64::from(!current);
        }
    }
    judged
}

#[derive(Debug, Default)]
struct Verdicts {
    current: u64,
    obsolete: u64,
    /// The number of sstables that were read.
    read: u64,
}

#[test]
fn verdicts_from_newer_components_equal_those_of_whole_reads() {
    let seed = std::env::var("BOLIDE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1_u64);
    let (mut current, mut obsolete) = (0, 0);
    for seed in seed..seed + 40 {
        println!("run again with BOLIDE_SEED={seed}");
        let mut rng = SimRng::new(seed);
        let layout = if rng.one_in(2) { Layout::Leveled } else { Layout::Tiered };
        let store = open(*[1 << 10, 8 << 10].get(rng.below(2) as usize).unwrap());
        let tree = tiny_tree(&store, layout);
        // Few keys: versions of one fill several blocks while views are pinned.
        let keys = [5, 200][rng.below(2) as usize];
        let mut pinned = Vec::new();
        for _ in 0..400 {
            let key = |number: u64| format!("key{number:04}").into_bytes();
            let at = rng.below(keys);
            let mut batch = StoreBatch::new();
            match rng.below(24) {
                0 => batch.delete_range(tree, &key(at), &key(at + 1 + rng.below(keys / 4 + 1))).unwrap(),
                1 | 2 => batch.delete(tree, &key(at)).unwrap(),
                3 => {
                    // Several versions in one commit.
                    batch.put(tree, &key(at), b"first").unwrap();
                    batch.delete(tree, &key(at)).unwrap();
                    batch.put(tree, &key(at), b"second").unwrap();
                }
                _ => batch.put(tree, &key(at), format!("{:x>40}", "").as_bytes()).unwrap(),
            }
            store.commit(batch, None, SyncMode::None).unwrap();
            match rng.below(60) {
                0 => store.flush().unwrap(),
                1 => store.compact(tree).unwrap(),
                2..=5 => pinned.push((store.read_view(), store.read_view().tree(tree).unwrap())),
                6 if !pinned.is_empty() => drop(pinned.swap_remove(rng.below(pinned.len() as u64) as usize)),
                _ => {}
            }
        }
        pinned.push((store.read_view(), store.read_view().tree(tree).unwrap()));
        for (view, then) in &pinned {
            // The earlier components, and the present ones at the earlier sequence number.
            for tree_view in [then.clone(), view.tree(tree).unwrap()] {
                let judged = judge_all(&tree_view);
                current += judged.current;
                obsolete += judged.obsolete;
            }
        }
    }
    assert!(current > 5_000 && obsolete > 5_000, "{current} current, {obsolete} obsolete");
}

#[test]
fn newer_components_are_excluded_by_sequence_key_and_filter_without_a_read() {
    let store = open(4 << 20);
    let tree = tiny_tree(&store, Layout::Tiered);
    let fill = |range: std::ops::Range<u64>| {
        let mut batch = StoreBatch::new();
        for number in range {
            batch.put(tree, format!("key{number:04}").as_bytes(), b"value").unwrap();
        }
        store.commit(batch, None, SyncMode::None).unwrap();
        store.flush().unwrap();
    };
    fill(0..100);
    fill(100..200);
    let judged = judge_all(&store.read_view().tree(tree).unwrap());
    assert_eq!((judged.current, judged.obsolete, judged.read), (200, 0, 0));
    // Between the keys of the newer one: only its filter decides, and a read if that is a false positive.
    let mut batch = StoreBatch::new();
    batch.put(tree, b"key0000x", b"value").unwrap();
    batch.put(tree, b"key0199x", b"value").unwrap();
    store.commit(batch, None, SyncMode::None).unwrap();
    store.flush().unwrap();
    let judged = judge_all(&store.read_view().tree(tree).unwrap());
    assert_eq!((judged.current, judged.obsolete), (202, 0));
    assert!(judged.read < 20, "{judged:?}");
    // Overwritten in a newer sstable: each is read once.
    fill(0..200);
    let judged = judge_all(&store.read_view().tree(tree).unwrap());
    assert_eq!((judged.current, judged.obsolete), (202, 200));
    assert!((200..230).contains(&judged.read), "{judged:?}");
}

#[test]
fn versions_of_one_key_in_many_blocks_are_judged_within_their_sstable() {
    let store = open(4 << 20);
    let tree = tiny_tree(&store, Layout::Leveled);
    let mut views = Vec::new();
    for number in 0..50 {
        let mut batch = StoreBatch::new();
        batch.put(tree, b"key", format!("{number:x>60}").as_bytes()).unwrap();
        store.commit(batch, None, SyncMode::None).unwrap();
        views.push(store.read_view());
    }
    store.flush().unwrap();
    for _ in 0..2 {
        for view in &views {
            let judged = judge_all(&view.tree(tree).unwrap());
            assert_eq!(judged.current, 1, "at {}", view.sequence());
        }
        store.compact(tree).unwrap();
    }
    let judged = judge_all(&views.last().unwrap().tree(tree).unwrap());
    assert!(judged.obsolete > 10, "blocks contain more than one version: {judged:?}");
}
