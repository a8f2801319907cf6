//! Reads of writes with known sequence numbers: compared with a list of all writes and with ordinary reads.
#![cfg(not(bolide_shuttle))]

use std::sync::Arc;

use bolide_base::{EntryKind, SequenceNumber, TreeId};
use bolide_lsm::store::KnownWrite;
use bolide_lsm::{
    Layout, Operation, Store, StoreBatch, StoreComponents, StoreOptions, SyncMode, TreeOptions, TreeView,
};
use bolide_storage::{MemVfs, SimRng, SystemRuntime};
use bolide_table::{BlockCache, ReadCounters};

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

fn tiny_tree(store: &Store, layout: Layout, bloom_bits: u32) -> TreeId {
    let mut options = TreeOptions::default();
    options.layout = layout;
    options.block_bytes = 128;
    options.target_file_bytes = 1 << 10;
    options.bloom_bits_per_key = bloom_bits;
    store.create_tree(options, b"").unwrap()
}

/// A write.
#[derive(Debug, Clone)]
enum Written {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Range(Vec<u8>, Vec<u8>),
}

impl Written {
    fn touches(&self, key: &[u8]) -> bool {
        match self {
            Self::Put(of, _) | Self::Delete(of) => of == key,
            Self::Range(start, end) => start.as_slice() <= key && key < end.as_slice(),
        }
    }
}

/// All writes of a tree, in order.
#[derive(Debug, Default)]
struct Journal {
    writes: Vec<(SequenceNumber, Written)>,
}

/// Commits `batch` and records its writes.
fn commit(store: &Store, batch: StoreBatch, log: &mut Journal) {
    let written: Vec<Written> = batch
        .operations()
        .map(|placed| match placed.operation {
            Operation::Entry { kind: EntryKind::Put, key, value } => {
                Written::Put(key.to_vec(), value.to_vec())
            }
            Operation::Entry { key, .. } => Written::Delete(key.to_vec()),
            Operation::RangeDelete { start, end } => Written::Range(start.to_vec(), end.to_vec()),
        })
        .collect();
    let last = store.commit(batch, None, SyncMode::None).unwrap();
    let first = last + 1 - written.len() as u64;
    log.writes.extend((first..).zip(written));
}

#[derive(Debug, Default)]
struct ReadResults {
    current: u64,
    obsolete: u64,
    /// The number of obsolete writes that are still stored.
    stored: u64,
}

/// Reads every write so far, and some that were never made.
fn read_all(view: &TreeView, log: &Journal, rng: &mut SimRng, results: &mut ReadResults) {
    let at = view.sequence();
    let mut queries: Vec<(Vec<u8>, SequenceNumber)> = Vec::new();
    for (sequence, written) in &log.writes {
        match written {
            Written::Put(key, _) | Written::Delete(key) => {
                queries.push((key.clone(), *sequence));
                if rng.one_in(8) {
                    // Another key's number, an unassigned number, an unwritten key.
                    queries.push((key.clone(), 1 + rng.below(at + 3)));
                    queries.push((b"key0001x".to_vec(), *sequence));
                }
            }
            Written::Range(start, _) => queries.push((start.clone(), *sequence)),
        }
    }
    if rng.one_in(2) {
        queries.sort();
    }
    let writes: Vec<KnownWrite<'_>> =
        queries.iter().map(|(key, sequence)| KnownWrite { key, sequence: *sequence }).collect();
    let keys: Vec<&[u8]> = queries.iter().map(|(key, _)| key.as_slice()).collect();
    let (mut ordinary, mut exact, mut current) = (Vec::new(), Vec::new(), Vec::new());
    view.get_many(&keys, &mut ordinary).unwrap();
    view.get_exact_many(&writes, &mut exact).unwrap();
    view.get_current_many(&writes, &mut current).unwrap();
    assert_eq!((exact.len(), current.len()), (writes.len(), writes.len()));
    for (((write, ordinary), exact), current) in writes.iter().zip(ordinary).zip(exact).zip(current) {
        let visible =
            log.writes.iter().filter(|(sequence, written)| *sequence <= at && written.touches(write.key));
        let newest = visible.clone().max_by_key(|(sequence, _)| *sequence);
        let newest = match newest {
            Some((sequence, Written::Put(_, value))) => Some((*sequence, value.clone())),
            _ => None,
        };
        // The model and an ordinary read agree, so both are right.
        assert_eq!(ordinary.map(|(sequence, value)| (sequence, value.into_vec())), newest);
        let expected = newest.filter(|(sequence, _)| *sequence == write.sequence).map(|(_, value)| value);
        let exact = exact.map(|value| value.into_vec());
        let context = || format!("{write:?} at {at}");
        assert_eq!(current.map(|value| value.into_vec()), expected, "{}", context());
        let single = view.get_exact(write.key, write.sequence).unwrap().map(|value| value.into_vec());
        assert_eq!(single, exact, "{}", context());
        if expected.is_some() {
            assert_eq!(exact, expected, "{}", context());
            results.current += 1;
            continue;
        }
        results.obsolete += 1;
        // It may still be stored; then it is exactly that write, and no range tombstone visible to the view hides it.
        let Some(exact) = exact else { continue };
        results.stored += 1;
        assert!(write.sequence <= at, "{}", context());
        let is_it = |(sequence, written): &(SequenceNumber, Written)| {
            *sequence == write.sequence
                && matches!(written, Written::Put(key, value) if key == write.key && *value == exact)
        };
        assert!(log.writes.iter().any(is_it), "{}", context());
        let deletes = |(sequence, written): &(SequenceNumber, Written)| {
            *sequence > write.sequence && matches!(written, Written::Range(..)) && written.touches(write.key)
        };
        assert!(!visible.clone().any(deletes), "{}", context());
    }
}

#[test]
fn reads_by_number_equal_whole_reads() {
    let seed = std::env::var("BOLIDE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1_u64);
    let mut results = ReadResults::default();
    let before = ReadCounters::of_this_thread();
    for seed in seed..seed + 30 {
        println!("run again with BOLIDE_SEED={seed}");
        let mut rng = SimRng::new(seed);
        let layout = if rng.one_in(2) { Layout::Leveled } else { Layout::Tiered };
        let store = open([1 << 10, 8 << 10][rng.below(2) as usize]);
        let tree = tiny_tree(&store, layout, [0, 10][rng.below(2) as usize]);
        let keys = [5, 150][rng.below(2) as usize];
        let mut log = Journal::default();
        let mut pinned = Vec::new();
        for _ in 0..250 {
            let key = |number: u64| format!("key{number:04}").into_bytes();
            let at = rng.below(keys);
            let mut batch = StoreBatch::new();
            match rng.below(24) {
                0 => batch.delete_range(tree, &key(at), &key(at + 1 + rng.below(keys / 4 + 1))).unwrap(),
                1 | 2 => batch.delete(tree, &key(at)).unwrap(),
                3 => {
                    batch.put(tree, &key(at), b"first").unwrap();
                    batch.delete(tree, &key(at)).unwrap();
                    batch.put(tree, &key(at), b"second").unwrap();
                }
                _ => batch.put(tree, &key(at), format!("{at:x>40}").as_bytes()).unwrap(),
            }
            commit(&store, batch, &mut log);
            match rng.below(60) {
                0 => store.flush().unwrap(),
                1 => store.compact(tree).unwrap(),
                2..=4 => pinned.push((store.read_view(), store.read_view().tree(tree).unwrap())),
                5 if !pinned.is_empty() => drop(pinned.swap_remove(rng.below(pinned.len() as u64) as usize)),
                _ => {}
            }
        }
        pinned.push((store.read_view(), store.read_view().tree(tree).unwrap()));
        for (view, then) in &pinned {
            // The earlier components, and the present ones at the earlier sequence number.
            for tree_view in [then.clone(), view.tree(tree).unwrap()] {
                read_all(&tree_view, &log, &mut rng, &mut results);
            }
        }
    }
    let cost = ReadCounters::of_this_thread() - before;
    assert!(results.current > 5_000 && results.obsolete > 5_000 && results.stored > 500, "{results:?}");
    assert!(cost.tables_skipped > 5_000 && cost.memtables_skipped > 5_000, "{cost:?}");
    assert!(cost.filters_skipped > 5_000, "{cost:?}");
}

/// The cost of reading `writes`, all of them current.
fn cost_of(view: &TreeView, writes: &[KnownWrite<'_>], exact: bool) -> ReadCounters {
    // The first read opens the files, and does not use the filter of a closed file.
    let keys: Vec<&[u8]> = writes.iter().map(|write| write.key).collect();
    view.get_many(&keys, &mut Vec::new()).unwrap();
    let mut found = Vec::new();
    let before = ReadCounters::of_this_thread();
    if exact {
        view.get_exact_many(writes, &mut found).unwrap();
    } else {
        view.get_current_many(writes, &mut found).unwrap();
    }
    let cost = ReadCounters::of_this_thread() - before;
    assert!(found.len() == writes.len() && found.iter().all(Option::is_some));
    cost
}

#[test]
fn strictly_divided_runs_need_one_component_and_no_filter() {
    for layout in [Layout::Tiered, Layout::Leveled] {
        let store = open(4 << 20);
        let tree = tiny_tree(&store, layout, 10);
        let key = |number: u64| format!("key{number:04}").into_bytes();
        // Three runs over the whole key range, and a memtable.
        let mut writes = Vec::new();
        for run in 0..4_u64 {
            for number in 0..50 {
                let mut batch = StoreBatch::new();
                batch.put(tree, &key(4 * number + run), b"value").unwrap();
                writes.push((key(4 * number + run), store.commit(batch, None, SyncMode::None).unwrap()));
            }
            if run < 3 {
                store.flush().unwrap();
            }
        }
        let known = |writes: &'static [(Vec<u8>, SequenceNumber)]| -> Vec<KnownWrite<'static>> {
            writes.iter().map(|(key, sequence)| KnownWrite { key, sequence: *sequence }).collect()
        };
        let writes: &'static [_] = writes.leak();
        let view = store.read_view().tree(tree).unwrap();
        let oldest = known(&writes[..50]);
        let cost = cost_of(&view, &oldest, true);
        assert_eq!((cost.bloom_checks, cost.filters_skipped), (0, 50), "{layout:?}");
        assert_eq!((cost.tables_skipped, cost.memtables_skipped), (100, 50), "{layout:?}");
        let newest = known(&writes[150..]);
        let cost = cost_of(&view, &newest, true);
        assert_eq!((cost.bloom_checks, cost.filters_skipped, cost.tables_skipped), (0, 0, 0), "{layout:?}");
        // If the writes may be obsolete, newer components have to be searched; older ones never.
        let middle = known(&writes[50..100]);
        let cost = cost_of(&view, &middle, false);
        assert_eq!(
            (cost.tables_skipped, cost.memtables_skipped, cost.filters_skipped),
            (50, 0, 0),
            "{layout:?}"
        );
        assert!((50..=100).contains(&cost.bloom_checks), "{layout:?}: {cost:?}");
        // A compaction merges them into one component again.
        store.compact(tree).unwrap();
        let view = store.read_view().tree(tree).unwrap();
        let cost = cost_of(&view, &oldest, true);
        assert_eq!((cost.bloom_checks, cost.filters_skipped), (0, 50), "{layout:?}");
    }
}
