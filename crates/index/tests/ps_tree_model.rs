//! The PS-Tree and the version table under the model checker `shuttle`, which interleaves threads at every atomic operation
//! and lock.
//!
//! ```text
//! RUSTFLAGS="--cfg bolide_shuttle" cargo test --release -p bolide-index --test ps_tree_model
//! ```
//!
//! `BOLIDE_MODEL_RUNS` sets the number of schedules per test. A failure prints a schedule to replay.
#![cfg(bolide_shuttle)]

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bolide_base::SequenceNumber;
use bolide_index::ps_tree::{Obsolescence, PsBounds, PsFlag, PsTree, PsTreeOptions, RetainAll, SkeyKind};
use bolide_index::version_table::{VersionTable, VersionTableOptions};
use bolide_index::{Order, Verdict};
use bolide_storage::pmem::{Region, RegionOptions};
use shuttle::thread;

fn check(model: impl Fn() + Send + Sync + Clone + 'static) {
    let runs = std::env::var("BOLIDE_MODEL_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(300);
    shuttle::check_random(model.clone(), runs);
    shuttle::check_pct(model, runs, 4);
}

fn tree(skey: SkeyKind) -> Arc<PsTree> {
    let region = Region::in_memory(RegionOptions::new().limit_bytes(4 << 20)).unwrap();
    Arc::new(PsTree::create(Arc::new(region), PsTreeOptions::new().skey(skey).page_bytes(512)).unwrap())
}

fn insert(tree: &PsTree, key: &[u8], sequence: SequenceNumber) {
    let writer = tree.region().writer();
    tree.insert(&writer, key, &sequence.to_be_bytes(), sequence, b"", &RetainAll, 0).unwrap();
}

fn sequences(tree: &PsTree, key: &[u8]) -> Vec<SequenceNumber> {
    let mut cursor = tree.cursor(PsBounds::One(key), Order::Newest, u64::MAX).unwrap();
    let mut found = Vec::new();
    while let Some(entry) = cursor.next_entry().unwrap() {
        assert_eq!(entry.primary_key, entry.sequence.to_be_bytes());
        found.push(entry.sequence);
    }
    found
}

/// Two writers fill and split one page while a reader reads one of the keys.
fn writers_and_a_reader(skey: SkeyKind) {
    check(move || {
        let tree = tree(skey);
        (1..=14_u64).for_each(|sequence| insert(&tree, [b"a", b"b", b"c"][sequence as usize % 3], sequence));
        let before = sequences(&tree, b"b").len();
        let writers: Vec<_> = [(&b"b"[..], 100_u64), (&b"bb"[..], 200)]
            .into_iter()
            .map(|(key, first)| {
                let tree = Arc::clone(&tree);
                thread::spawn(move || (first..first + 6).for_each(|sequence| insert(&tree, key, sequence)))
            })
            .collect();
        let mut last = before;
        for _ in 0..3 {
            let found = sequences(&tree, b"b");
            assert!(found.windows(2).all(|pair| pair[0] > pair[1]));
            assert!(found.len() >= last, "an entry disappeared");
            last = found.len();
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(sequences(&tree, b"b").len(), before + 6);
        assert_eq!(sequences(&tree, b"bb"), [205, 204, 203, 202, 201, 200]);
        assert_eq!(tree.check().unwrap().problems, Vec::<String>::new());
    });
}

#[test]
fn writers_and_a_reader_with_a_btree() {
    writers_and_a_reader(SkeyKind::BTree);
}

#[test]
fn writers_and_a_reader_with_a_trie() {
    writers_and_a_reader(SkeyKind::Trie);
}

/// Entries below a sequence number are obsolete; counts removals.
struct Below {
    limit: SequenceNumber,
    removed: AtomicU64,
    flagged: AtomicU64,
}

impl Obsolescence for Below {
    fn verdict(&self, _: &[u8], sequence: SequenceNumber, _: SequenceNumber) -> Verdict {
        if sequence < self.limit { Verdict::Obsolete } else { Verdict::Current }
    }

    fn removed(&self, _: &[u8], _: SequenceNumber, flagged: bool) {
        self.removed.fetch_add(1, Ordering::SeqCst);
        self.flagged.fetch_add(u64::from(flagged), Ordering::SeqCst);
    }
}

/// A reader flags entries while their page is rewritten: no entry is counted as flagged twice, or lost.
#[test]
fn flags_and_rewrites_count_each_entry_once() {
    check(|| {
        let tree = tree(SkeyKind::BTree);
        (1..=10).for_each(|sequence| insert(&tree, b"key", sequence));
        let below = Arc::new(Below { limit: 6, removed: AtomicU64::new(0), flagged: AtomicU64::new(0) });
        let sweeper = {
            let (tree, below) = (Arc::clone(&tree), Arc::clone(&below));
            thread::spawn(move || {
                let writer = tree.region().writer();
                tree.sweep(&writer, &mut Vec::new(), 8, &*below, 100).unwrap();
            })
        };
        let mut cursor = tree.cursor(PsBounds::One(b"key"), Order::Newest, u64::MAX).unwrap();
        let mut places = Vec::new();
        while let Some(entry) = cursor.next_entry().unwrap() {
            if entry.sequence < 6 {
                places.push(entry.place);
            }
        }
        let flagged = places
            .into_iter()
            .filter(|&place| cursor.flag_obsolete(place).unwrap() == PsFlag::Flagged)
            .count();
        drop(cursor);
        sweeper.join().unwrap();
        let stats = tree.stats().unwrap();
        assert_eq!(flagged as u64, below.flagged.load(Ordering::SeqCst) + stats.flagged);
        assert_eq!(stats.entries + below.removed.load(Ordering::SeqCst), 10);
        let left: HashSet<_> = sequences(&tree, b"key").into_iter().collect();
        assert!((6..=10).all(|sequence| left.contains(&sequence)));
    });
}

/// A reader flags the only entry of a key while a second one is added, and a third one replaces both: each entry is counted
/// once.
#[test]
fn an_only_entry_is_flagged_while_its_key_gets_a_page() {
    check(|| {
        let tree = tree(SkeyKind::BTree);
        insert(&tree, b"key", 1);
        let below = Arc::new(Below { limit: 3, removed: AtomicU64::new(0), flagged: AtomicU64::new(0) });
        let writer = {
            let (tree, below) = (Arc::clone(&tree), Arc::clone(&below));
            thread::spawn(move || {
                insert(&tree, b"key", 2);
                insert(&tree, b"key", 3);
                let writer = tree.region().writer();
                tree.sweep(&writer, &mut Vec::new(), 8, &*below, 100).unwrap();
            })
        };
        let mut cursor = tree.cursor(PsBounds::One(b"key"), Order::Newest, u64::MAX).unwrap();
        let mut places = Vec::new();
        while let Some(entry) = cursor.next_entry().unwrap() {
            if entry.sequence < 3 {
                places.push(entry.place);
            }
        }
        let flags = places.into_iter().map(|place| cursor.flag_obsolete(place).unwrap());
        let flagged = flags.filter(|flag| *flag == PsFlag::Flagged).count();
        drop(cursor);
        writer.join().unwrap();
        let stats = tree.stats().unwrap();
        assert_eq!(flagged as u64, below.flagged.load(Ordering::SeqCst) + stats.flagged);
        assert_eq!(stats.entries + below.removed.load(Ordering::SeqCst), 3);
        assert_eq!(sequences(&tree, b"key"), [3]);
        assert_eq!(tree.check().unwrap().problems, Vec::<String>::new());
    });
}

/// A reclaim runs while keys are added: nothing in use is freed.
#[test]
fn a_reclaim_concurrent_with_writers_frees_nothing_in_use() {
    check(|| {
        let tree = tree(SkeyKind::BTree);
        (1..=8).for_each(|sequence| insert(&tree, &[sequence as u8], sequence));
        let writer = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || (20..26).for_each(|sequence| insert(&tree, &[sequence as u8], sequence)))
        };
        tree.reclaim().unwrap();
        writer.join().unwrap();
        (40..60).for_each(|sequence| insert(&tree, &[sequence as u8], sequence));
        assert_eq!(tree.check().unwrap().problems, Vec::<String>::new());
        for sequence in (1..=8).chain(20..26).chain(40..60) {
            assert_eq!(sequences(&tree, &[sequence as u8]), [sequence]);
        }
    });
}

/// Keys of a range, highest first.
fn keys_down(tree: &PsTree, low: &[u8], end: &[u8]) -> Vec<Vec<u8>> {
    let range = PsBounds::Range { low, end: Some(end) };
    let mut cursor = tree.cursor(range, Order::ValueDescending, u64::MAX).unwrap();
    let mut found = Vec::new();
    while let Some(entry) = cursor.next_entry().unwrap() {
        found.push(entry.secondary_key.to_vec());
    }
    found
}

/// A node is split during a descending scan: the scan returns every key that was present before.
fn a_range_scan_is_complete_during_a_node_split(skey: SkeyKind) {
    // The first of these fills the only node.
    let present = match skey {
        SkeyKind::BTree => 40_u8,
        _ => 13,
    };
    check(move || {
        let tree = tree(skey);
        (1..=present).for_each(|number| insert(&tree, &[2 * number], u64::from(number)));
        let writer = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || insert(&tree, &[2 * present - 3], 100))
        };
        let end = 2 * present - 1;
        let expected: Vec<u8> = (end - 9..end).rev().filter(|key| key % 2 == 0).collect();
        for _ in 0..2 {
            let mut found = keys_down(&tree, &[end - 9], &[end]);
            found.retain(|key| key[0] % 2 == 0);
            assert_eq!(found.concat(), expected);
        }
        writer.join().unwrap();
        assert_eq!(tree.check().unwrap().problems, Vec::<String>::new());
    });
}

#[test]
fn a_range_scan_is_complete_during_a_node_split_in_a_btree() {
    a_range_scan_is_complete_during_a_node_split(SkeyKind::BTree);
}

#[test]
fn a_range_scan_is_complete_during_a_node_split_in_a_trie() {
    a_range_scan_is_complete_during_a_node_split(SkeyKind::Trie);
}

/// Three writers start on an empty tree: the keys of each page are neighbours.
#[test]
fn concurrent_writers_start_an_empty_tree() {
    check(|| {
        let tree = tree(SkeyKind::BTree);
        let writers: Vec<_> = [&[(b"c", 1), (b"g", 2)][..], &[(b"e", 3)], &[(b"a", 4), (b"i", 5)]]
            .into_iter()
            .map(|entries| {
                let tree = Arc::clone(&tree);
                thread::spawn(move || {
                    entries.iter().for_each(|&(key, sequence)| insert(&tree, key, sequence))
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(tree.check().unwrap().problems, Vec::<String>::new());
        for (key, sequence) in [(b"c", 1), (b"g", 2), (b"e", 3), (b"a", 4), (b"i", 5)] {
            assert_eq!(sequences(&tree, key), [sequence]);
        }
    });
}

/// Runs two writers that insert `left` and `right`, each key with its number as sequence number, on a tree with `present`.
fn two_writers(present: impl Iterator<Item = u8>, left: &'static [u8], right: &'static [u8]) {
    let tree = tree(SkeyKind::BTree);
    let present: Vec<u8> = present.collect();
    present.iter().for_each(|&key| insert(&tree, &[key], u64::from(key)));
    let writers = [left, right].map(|keys| {
        let tree = Arc::clone(&tree);
        thread::spawn(move || keys.iter().for_each(|&key| insert(&tree, &[key], u64::from(key))))
    });
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    // A rewrite would miss keys that are not neighbours.
    assert_eq!(tree.check().unwrap().problems, Vec::<String>::new());
    for &key in present.iter().chain(left).chain(right) {
        assert_eq!(sequences(&tree, &[key]), [u64::from(key)], "{key}");
    }
}

/// After a writer has found the neighbour of a key, another key is inserted between and separated from the neighbour.
#[test]
fn a_key_is_inserted_between_a_new_key_and_its_neighbour() {
    check(|| two_writers((1..=19).map(|number| 10 * number), &[102], &[101, 5]));
}

/// The first keys of a split page point to a new page, which is filled while the other keys still point to the old one.
#[test]
fn a_new_page_is_filled_while_keys_move_to_it() {
    const AFTER_THE_FIRST: &[u8] = &[11, 12, 13, 14, 15, 16, 17, 18, 19, 21, 22, 23, 24];
    check(|| two_writers((1..=20).map(|number| 10 * number), &[205], AFTER_THE_FIRST));
}

/// Two writers add entries of one key; the first to allocate space may link last.
#[test]
fn writers_of_one_key_keep_its_entries_in_order() {
    check(|| {
        let tree = tree(SkeyKind::Trie);
        insert(&tree, b"key", 1);
        let writers: Vec<_> = [[2_u64, 4, 6], [3, 5, 7]]
            .into_iter()
            .map(|sequences| {
                let tree = Arc::clone(&tree);
                thread::spawn(move || sequences.iter().for_each(|&sequence| insert(&tree, b"key", sequence)))
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(sequences(&tree, b"key"), [7, 6, 5, 4, 3, 2, 1]);
        (8..30).for_each(|sequence| insert(&tree, b"key", sequence));
        assert_eq!(sequences(&tree, b"key"), (1..30).rev().collect::<Vec<_>>());
        assert_eq!(tree.check().unwrap().problems, Vec::<String>::new());
    });
}

/// A check and writers wait for each other.
#[test]
fn a_check_concurrent_with_writers_reports_no_problem() {
    check(|| {
        let tree = tree(SkeyKind::Trie);
        (1..=12_u8).for_each(|number| insert(&tree, &[10 * number], u64::from(number)));
        let writer = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || (61..70_u8).for_each(|key| insert(&tree, &[key], u64::from(key))))
        };
        assert_eq!(tree.check().unwrap().problems, Vec::<String>::new());
        writer.join().unwrap();
        assert_eq!(tree.check().unwrap().problems, Vec::<String>::new());
    });
}

fn version_table() -> (Arc<Region>, Arc<VersionTable>) {
    let region = Arc::new(Region::in_memory(RegionOptions::new().limit_bytes(4 << 20)).unwrap());
    let table = VersionTable::create(&region, VersionTableOptions::default()).unwrap();
    (region, Arc::new(table))
}

/// A writer splits buckets while a reader reads verdicts: an obsolete entry is never taken for current.
#[test]
fn verdicts_are_correct_while_a_version_table_grows() {
    check(|| {
        let (region, table) = version_table();
        let write = |key: u8, sequence: SequenceNumber| {
            table.note_entry(&region.writer(), &[key], sequence).unwrap();
        };
        (0..20).for_each(|key| write(key, 1 + u64::from(key)));
        (0..10).for_each(|key| write(key, 100 + u64::from(key)));
        let writer = {
            let (region, table) = (Arc::clone(&region), Arc::clone(&table));
            thread::spawn(move || {
                for key in 10..20_u8 {
                    table.note_entry(&region.writer(), &[key], 100 + u64::from(key)).unwrap();
                }
            })
        };
        for key in 0..10_u8 {
            let _pin = region.pin();
            assert_eq!(table.verdict(&[key], 1 + u64::from(key), 1_000).unwrap(), Verdict::Obsolete);
            assert_eq!(table.verdict(&[key], 100 + u64::from(key), 1_000).unwrap(), Verdict::Current);
        }
        writer.join().unwrap();
        for key in 0..20_u8 {
            let _pin = region.pin();
            assert_eq!(table.verdict(&[key], 1 + u64::from(key), 1_000).unwrap(), Verdict::Obsolete);
        }
        assert_eq!(table.stats().keys, 20);
    });
}

/// A writer replaces entries while readers flag obsolete ones: each key is in the table exactly as long as it has an
/// obsolete entry.
#[test]
fn a_version_table_counts_flags_concurrent_with_a_writer() {
    check(|| {
        let (region, table) = version_table();
        let write = |key: u8, sequence: SequenceNumber| {
            table.note_entry(&region.writer(), &[key], sequence).unwrap();
        };
        for round in 0..2_u64 {
            (0..4).for_each(|key| write(key, 1 + 10 * round + u64::from(key)));
        }
        let flaggers: Vec<_> = [[0_u8, 1], [2, 3]]
            .into_iter()
            .map(|keys| {
                let (region, table) = (Arc::clone(&region), Arc::clone(&table));
                thread::spawn(move || {
                    keys.iter().for_each(|&key| table.note_flagged(&region.writer(), &[key]).unwrap());
                })
            })
            .collect();
        // Each write makes another entry obsolete, of a key that is in the table or was removed meanwhile.
        (0..4).for_each(|key| write(key, 21 + u64::from(key)));
        flaggers.into_iter().for_each(|flagger| flagger.join().unwrap());
        assert_eq!(table.stats().keys, 4);
        for key in 0..4_u8 {
            let _pin = region.pin();
            assert_eq!(table.verdict(&[key], 11 + u64::from(key), 1_000).unwrap(), Verdict::Obsolete);
            drop(_pin);
            table.note_flagged(&region.writer(), &[key]).unwrap();
        }
        assert_eq!(table.stats().keys, 0);
    });
}
