//! Removal of moved entries, against an oracle and with concurrent readers.
#![allow(clippy::disallowed_methods, reason = "tests start threads of their own")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bolide_base::SequenceNumber;

use super::oracle::{Random, Versions};
use super::tests::{new_tree, reopened, rows};
use super::{PsBounds, PsTree, PsTreeOptions, SkeyKind};
use crate::query::Order;

/// Entries by secondary key and sequence number.
type Entries = BTreeMap<(Vec<u8>, SequenceNumber), Vec<u8>>;

/// Removes all entries at or below `through`, `keys` keys at a time.
fn remove_through(tree: &PsTree, through: SequenceNumber, keys: usize) {
    let mut position = Vec::new();
    loop {
        if tree.remove_through(&tree.region().writer(), &mut position, keys, through).unwrap() {
            return;
        }
    }
}

/// Checks that the tree has all entries above `through`, and few at or below.
fn compare(tree: &PsTree, entries: &Entries, through: SequenceNumber, context: &str) {
    let check = tree.check().unwrap();
    assert_eq!(check.problems, Vec::<String>::new(), "{context}");
    let stats = tree.stats().unwrap();
    assert_eq!(tree.counts(), (stats.skey.keys, stats.entries), "{context}");
    assert_eq!(tree.region().stats().refused_frees, 0, "{context}");
    let all = PsBounds::Range { low: b"", end: None };
    let found = rows(tree.cursor(all, Order::Value, SequenceNumber::MAX).unwrap());
    let above = found.iter().filter(|row| row.2 > through).map(|row| ((row.0.clone(), row.2), row.1.clone()));
    let expected = entries.iter().filter(|((_, sequence), _)| *sequence > through);
    assert_eq!(
        above.collect::<Entries>(),
        expected.map(|(key, value)| (key.clone(), value.clone())).collect::<Entries>(),
        "{context}"
    );
    // A page with entries on both sides stays: one for each key.
    for key in found.chunk_by(|one, other| one.0 == other.0) {
        let left = key.iter().filter(|row| row.2 <= through).count();
        assert!(left == 0 || (left < 400 && left < key.len()), "{context}: {left} of {}", key.len());
    }
}

fn run(skey: SkeyKind, seed: u64) {
    let mut random = Random(seed);
    let page_bytes = [512, 1024, 2048, 4096][seed as usize % 4];
    let mut tree = new_tree(PsTreeOptions::new().skey(skey).page_bytes(page_bytes));
    let keys = [1, 3, 40, 1000][random.below(4) as usize];
    let (mut entries, versions) = (Entries::new(), Versions::default());
    let (mut sequence, mut through, mut position) = (0, 0, Vec::new());
    for round in 0..30 {
        let context = format!("seed {seed}, {skey:?}, {keys} keys, round {round}, through {through}");
        for _ in 0..random.below(400) {
            sequence += 1 + random.below(3);
            // Half of the keys are among the first few.
            let spread = if random.chance(50) { keys } else { keys.min(3) };
            let key = random.below(spread).to_be_bytes().to_vec();
            let mut pkey = sequence.to_be_bytes().to_vec();
            if random.chance(3) {
                // In the region's overflow extents.
                pkey.resize(2_000, b'P');
            }
            let writer = tree.region().writer();
            tree.insert(&writer, &key, &pkey, sequence, b"", &versions, 0).unwrap();
            entries.insert((key, sequence), pkey);
        }
        if random.chance(30) {
            let writer = tree.region().writer();
            tree.sweep(&writer, &mut position, random.below(200) as usize, &versions, 0).unwrap();
        }
        through += random.below(sequence - through + 1);
        if random.chance(10) {
            through = sequence;
        }
        remove_through(&tree, through, 1 + random.below(100) as usize);
        compare(&tree, &entries, through, &context);
        // Once: the first checkpoint of a restored region has its changed pages alone.
        if round == 14 {
            tree.note_counts(&tree.region().writer()).unwrap();
            tree = PsTree::open(Arc::new(reopened(tree.region()))).unwrap();
            compare(&tree, &entries, through, &context);
        }
    }
    // All may go.
    remove_through(&tree, sequence, 50);
    compare(&tree, &entries, sequence, &format!("seed {seed}, at the end"));
    assert_eq!(tree.counts(), (0, 0), "seed {seed}");
}

#[test]
fn moved_entries_are_removed_and_no_others() {
    (0..24).for_each(|seed| run(SkeyKind::BTree, seed));
}

#[test]
fn moved_entries_are_removed_from_a_trie_and_no_others() {
    (100..112).for_each(|seed| run(SkeyKind::Trie, seed));
}

/// Entries in one step: pages of 512 bytes, with entries of 16 bytes and more.
const MAX_STEP_ENTRIES: u64 = (super::truncate::PAGES_PER_STEP * 512 / 16) as u64;

/// A key with many entries is shortened in steps, between which writes and checkpoints proceed. Entries above the number are
/// there after each step, whether its head page has some of them or not.
#[test]
fn a_long_chain_is_removed_in_bounded_steps() {
    for newer in [0, 3, 5_000] {
        let (tree, versions) = (new_tree(PsTreeOptions::new().page_bytes(512)), Versions::default());
        let (mut entries, through) = (Entries::new(), 40_000_u64);
        for sequence in 1..=through + newer {
            let pkey = sequence.to_be_bytes();
            tree.insert(&tree.region().writer(), b"hot", &pkey, sequence, b"", &versions, 0).unwrap();
            entries.insert((b"hot".to_vec(), sequence), pkey.to_vec());
        }
        tree.insert(&tree.region().writer(), b"late", b"pkey", through + newer + 1, b"", &versions, 0)
            .unwrap();
        entries.insert((b"late".to_vec(), through + newer + 1), b"pkey".to_vec());
        let (mut position, mut steps) = (Vec::new(), 0);
        loop {
            let before = tree.counts().1;
            let is_complete =
                tree.remove_through(&tree.region().writer(), &mut position, 100, through).unwrap();
            let removed = before - tree.counts().1;
            assert!(removed <= MAX_STEP_ENTRIES, "{newer} newer, step {steps}: {removed} entries");
            let all = PsBounds::Range { low: b"", end: None };
            let found = rows(tree.cursor(all, Order::Value, SequenceNumber::MAX).unwrap());
            let above = found.iter().filter(|row| row.2 > through).count() as u64;
            assert_eq!(above, newer + 1, "{newer} newer, step {steps}");
            let check = tree.check().unwrap();
            assert_eq!((check.problems, check.entries), (Vec::new(), tree.counts().1));
            steps += 1;
            if is_complete {
                break;
            }
            tree.sweep(&tree.region().writer(), &mut Vec::new(), 1, &versions, 0).unwrap();
        }
        compare(&tree, &entries, through, &format!("{newer} newer"));
        assert!(steps > 10, "{steps}");
    }
}

/// The space of removed entries is used again: a tree of constant size does not grow.
#[test]
fn the_space_of_moved_entries_is_used_again() {
    for keys in [1, 50, 5_000] {
        let (tree, versions) = (new_tree(PsTreeOptions::new()), Versions::default());
        let mut largest = [0; 2];
        for sequence in 1..=60_000_u64 {
            let writer = tree.region().writer();
            let (skey, pkey) = ((sequence % keys).to_be_bytes(), sequence.to_be_bytes());
            tree.insert(&writer, &skey, &pkey, sequence, b"", &versions, 0).unwrap();
            drop(writer);
            if sequence % 2_000 == 0 {
                remove_through(&tree, sequence.saturating_sub(8_000), 500);
            }
            let half = usize::from(sequence > 30_000);
            largest[half] = largest[half].max(tree.region().stats().allocated_bytes);
        }
        assert!(largest[1] * 10 < largest[0] * 12, "{keys} keys: {largest:?}");
        assert!(tree.counts().1 <= 10_000 + 400 * keys.min(20), "{keys} keys: {:?}", tree.counts());
    }
}

/// A reader finds all entries above the number at the end of its read, newest first, whatever is removed meanwhile.
#[test]
fn readers_find_all_entries_that_stay() {
    const KEYS: u64 = 7;
    let tree = new_tree(PsTreeOptions::new().page_bytes(512));
    let (written, through, is_done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _end = scope.spawn(|| {
            let versions = Versions::default();
            for sequence in 1..=60_000_u64 {
                let writer = tree.region().writer();
                let (skey, pkey) = ((sequence % KEYS).to_be_bytes(), sequence.to_be_bytes());
                tree.insert(&writer, &skey, &pkey, sequence, b"", &versions, 0).unwrap();
                written.store(sequence, Ordering::Release);
            }
            is_done.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            while !is_done.load(Ordering::Acquire) {
                let next = written.load(Ordering::Acquire).saturating_sub(1_500);
                if next > through.load(Ordering::Acquire) {
                    through.store(next, Ordering::Release);
                    remove_through(&tree, next, 3);
                }
            }
        });
        for reader in 0..2_u64 {
            let (tree, written, through, is_done) = (&tree, &written, &through, &is_done);
            scope.spawn(move || {
                let mut random = Random(reader);
                while !is_done.load(Ordering::Acquire) {
                    let snapshot = written.load(Ordering::Acquire);
                    let key = random.below(KEYS);
                    let skey = key.to_be_bytes();
                    let found = rows(tree.cursor(PsBounds::One(&skey), Order::Newest, snapshot).unwrap());
                    let removed_through = through.load(Ordering::Acquire);
                    let found = found.iter().map(|row| row.2);
                    // Removed page by page, the newest first: what is left at or below the number has gaps.
                    let found: Vec<_> = found.take_while(|sequence| *sequence > removed_through).collect();
                    let expected = (1..=snapshot).rev().filter(|sequence| sequence % KEYS == key);
                    let expected: Vec<_> =
                        expected.take_while(|sequence| *sequence > removed_through).collect();
                    assert_eq!(found.len(), expected.len(), "key {key} above {removed_through}");
                    assert!(found == expected, "key {key} above {removed_through}: a gap");
                }
            });
        }
    });
    assert_eq!(tree.check().unwrap().problems, Vec::<String>::new());
}
