//! Range scans concurrent with a writer that splits nodes and pages and adds trie layers: every key that was inserted before
//! the cursor was created is returned, in order, in both directions.

#![expect(clippy::disallowed_methods, reason = "tests may start threads")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::oracle::Random;
use super::tests::{new_tree, rows};
use super::{PsBounds, PsTree, PsTreeOptions, RetainAll, SkeyKind};
use crate::query::Order;

const KEYS: u64 = 8_000;
const READERS: u64 = 2;

/// Key number `number`, in order. Every five keys share their first eight bytes, so that a trie adds layers for them.
fn key(number: u64) -> Vec<u8> {
    let mut key = (number / 5).to_be_bytes().to_vec();
    if !number.is_multiple_of(5) {
        key.extend_from_slice(b"a longer rest, ");
        key.push(b'a' + (number % 5) as u8);
    }
    key
}

/// The order in which keys are inserted: a permutation of `0..KEYS`.
#[derive(Debug, Clone, Copy)]
enum InsertOrder {
    Ascending,
    Descending,
    /// Blocks of 64 in ascending order, each permuted.
    Blocks,
}

impl InsertOrder {
    /// The number of the key inserted as number `turn`; the permutation is its own inverse.
    fn swap(self, turn: u64) -> u64 {
        match self {
            Self::Ascending => turn,
            Self::Descending => KEYS - 1 - turn,
            Self::Blocks => turn / 64 * 64 + (turn % 64).reverse_bits() / (1 << 58),
        }
    }
}

struct SharedScanTree {
    tree: PsTree,
    insert_order: InsertOrder,
    /// Number of inserted keys.
    done: AtomicU64,
    /// Completed scans.
    scans: AtomicU64,
    stop: AtomicBool,
}

fn read(shared: &SharedScanTree, reader: u64) -> u64 {
    let mut random = Random(reader);
    let mut scans = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        let done = shared.done.load(Ordering::Acquire);
        if done == 0 {
            continue;
        }
        // Nodes are split near the last inserted keys.
        let near = shared.insert_order.swap(done - 1 - random.below(done.min(24)));
        let (low, end) = (near.saturating_sub(random.below(12)), near + 1 + random.below(12));
        let order = [Order::Value, Order::ValueDescending, Order::Newest][random.below(3) as usize];
        let mut expected: Vec<u64> =
            (low..end.min(KEYS)).filter(|&number| shared.insert_order.swap(number) < done).collect();
        let (low, end) = (key(low), key(end));
        let range = PsBounds::Range { low: &low, end: Some(&end) };
        let mut found = rows(shared.tree.cursor(range, order, done).unwrap());
        if order == Order::ValueDescending {
            found.reverse();
        }
        if order == Order::Newest {
            found.sort();
        }
        let mut found: Vec<Vec<u8>> = found.into_iter().map(|row| row.0).collect();
        assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "{order:?}: {found:?}");
        expected.retain(|&number| {
            let present = found.binary_search(&key(number));
            present.map(|index| found.remove(index)).is_err()
        });
        assert!(expected.is_empty(), "{order:?}, {done} keys inserted, missing: {expected:?}");
        // The sequence number is the turn, and the snapshot excludes later inserts.
        assert!(found.is_empty(), "{order:?}: unexpected keys: {found:?}");
        scans += 1;
        shared.scans.fetch_add(1, Ordering::Relaxed);
    }
    scans
}

fn scans_are_complete(skey: SkeyKind, insert_order: InsertOrder) {
    let shared = SharedScanTree {
        tree: new_tree(PsTreeOptions::new().skey(skey).page_bytes(512)),
        insert_order,
        done: AtomicU64::new(0),
        scans: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let shared = &shared;
        let readers: Vec<_> = (0..READERS).map(|reader| scope.spawn(move || read(shared, reader))).collect();
        for turn in 0..KEYS {
            let writer = shared.tree.region().writer();
            let key = key(insert_order.swap(turn));
            shared.tree.insert(&writer, &key, b"primary", turn + 1, b"", &RetainAll, 0).unwrap();
            shared.done.store(turn + 1, Ordering::Release);
            // Without scans the inserts may end before the readers run at all.
            let is_ended = || readers.iter().any(|reader| reader.is_finished());
            while turn % 64 == 63 && shared.scans.load(Ordering::Relaxed) <= turn / 64 && !is_ended() {
                std::thread::yield_now();
            }
            if is_ended() {
                break;
            }
        }
        shared.stop.store(true, Ordering::Relaxed);
        let scans: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        assert!(scans > 0);
    });
    assert_eq!(shared.tree.check().unwrap().problems, Vec::<String>::new());
}

fn scans_are_complete_under_concurrent_inserts(skey: SkeyKind) {
    for _ in 0..3 {
        for insert_order in [InsertOrder::Ascending, InsertOrder::Descending, InsertOrder::Blocks] {
            scans_are_complete(skey, insert_order);
        }
    }
}

#[test]
fn scans_are_complete_under_concurrent_inserts_with_a_btree() {
    scans_are_complete_under_concurrent_inserts(SkeyKind::BTree);
}

#[test]
fn scans_are_complete_under_concurrent_inserts_with_a_trie() {
    scans_are_complete_under_concurrent_inserts(SkeyKind::Trie);
}
