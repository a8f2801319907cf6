//! The PS-Tree under the model checker `shuttle`: every step of every thread at an atomic or a lock may be followed
//! by a step of another.
//!
//! ```text
//! RUSTFLAGS="--cfg bolide_shuttle" cargo test --release -p bolide-index --test ps_tree_model
//! ```
//!
//! `BOLIDE_MODEL_RUNS` says how many schedules each test tries. A failure prints a schedule to replay.
#![cfg(bolide_shuttle)]

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bolide_base::SequenceNumber;
use bolide_index::ps_tree::{KeepAll, Obsolescence, PsBounds, PsFlag, PsTree, PsTreeOptions, SkeyKind};
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
    tree.insert(&writer, key, &sequence.to_be_bytes(), sequence, b"", &KeepAll, 0).unwrap();
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

/// Two writers fill and split one page while a reader looks at one of the keys.
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
            assert!(found.len() >= last, "an entry went away");
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

/// Everything below a number is obsolete; counts what is removed.
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
                tree.sweep(&writer, &mut Vec::new(), 1, &*below, 100).unwrap();
            })
        };
        let mut cursor = tree.cursor(PsBounds::One(b"key"), Order::Newest, u64::MAX).unwrap();
        let mut places = Vec::new();
        while let Some(entry) = cursor.next_entry().unwrap() {
            if entry.sequence < 6 {
                places.push(entry.place);
            }
        }
        let won =
            places.into_iter().filter(|&place| cursor.flag_obsolete(place).unwrap() == PsFlag::Won).count();
        drop(cursor);
        sweeper.join().unwrap();
        let stats = tree.stats().unwrap();
        assert_eq!(won as u64, below.flagged.load(Ordering::SeqCst) + stats.flagged);
        assert_eq!(stats.entries + below.removed.load(Ordering::SeqCst), 10);
        let left: HashSet<_> = sequences(&tree, b"key").into_iter().collect();
        assert!((6..=10).all(|sequence| left.contains(&sequence)));
    });
}

/// A reclaim walks while keys are added: nothing in use is freed.
#[test]
fn a_reclaim_beside_writers_frees_nothing_in_use() {
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
