//! Ranges read beside a writer that splits nodes and pages and makes layers: every key that was there before the
//! cursor was made comes, in its order, whichever way the cursor goes.

#![expect(clippy::disallowed_methods, reason = "tests may start threads")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::oracle::Random;
use super::tests::{new_tree, rows};
use super::{RetainAll, PsBounds, PsTree, PsTreeOptions, SkeyKind};
use crate::query::Order;

const KEYS: u64 = 8_000;
const READERS: u64 = 2;

/// Key number `number`, in order: each five share their first eight bytes, so that a trie makes layers of them.
fn key(number: u64) -> Vec<u8> {
    let mut key = (number / 5).to_be_bytes().to_vec();
    if !number.is_multiple_of(5) {
        key.extend_from_slice(b"a longer rest, ");
        key.push(b'a' + (number % 5) as u8);
    }
    key
}

/// In which order keys come: each is a permutation of `0..KEYS`.
#[derive(Debug, Clone, Copy)]
enum Arrival {
    Ascending,
    Descending,
    /// Blocks of 64 one after the other, each mixed.
    Blocks,
}

impl Arrival {
    /// The number of the key that comes as number `turn`; the other way round it is the same.
    fn swap(self, turn: u64) -> u64 {
        match self {
            Self::Ascending => turn,
            Self::Descending => KEYS - 1 - turn,
            Self::Blocks => turn / 64 * 64 + (turn % 64).reverse_bits() / (1 << 58),
        }
    }
}

struct Shared {
    tree: PsTree,
    arrival: Arrival,
    /// So many keys are there.
    done: AtomicU64,
    stop: AtomicBool,
}

fn read(shared: &Shared, reader: u64) -> u64 {
    let mut random = Random(reader);
    let mut scans = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        let done = shared.done.load(Ordering::Acquire);
        if done == 0 {
            continue;
        }
        // Where keys come now is where nodes are split.
        let near = shared.arrival.swap(done - 1 - random.below(done.min(24)));
        let (low, end) = (near.saturating_sub(random.below(12)), near + 1 + random.below(12));
        let order = [Order::Value, Order::ValueDescending, Order::Newest][random.below(3) as usize];
        let mut expected: Vec<u64> =
            (low..end.min(KEYS)).filter(|&number| shared.arrival.swap(number) < done).collect();
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
            let there = found.binary_search(&key(number));
            there.map(|index| found.remove(index)).is_err()
        });
        assert!(expected.is_empty(), "{order:?}, {done} keys there, these were missed: {expected:?}");
        // The sequence number is the turn, and the snapshot leaves out what came later.
        assert!(found.is_empty(), "{order:?}: keys that nobody asked for: {found:?}");
        scans += 1;
    }
    scans
}

fn ranges_are_whole(skey: SkeyKind, arrival: Arrival) {
    let shared = Shared {
        tree: new_tree(PsTreeOptions::new().skey(skey).page_bytes(512)),
        arrival,
        done: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let shared = &shared;
        let readers: Vec<_> = (0..READERS).map(|reader| scope.spawn(move || read(shared, reader))).collect();
        for turn in 0..KEYS {
            let writer = shared.tree.region().writer();
            let key = key(arrival.swap(turn));
            shared.tree.insert(&writer, &key, b"primary", turn + 1, b"", &RetainAll, 0).unwrap();
            shared.done.store(turn + 1, Ordering::Release);
            if readers.iter().any(|reader| reader.is_finished()) {
                break;
            }
        }
        shared.stop.store(true, Ordering::Relaxed);
        let scans: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        assert!(scans > 0);
    });
    assert_eq!(shared.tree.check().unwrap().problems, Vec::<String>::new());
}

fn ranges_are_whole_beside_a_writer(skey: SkeyKind) {
    for _ in 0..3 {
        for arrival in [Arrival::Ascending, Arrival::Descending, Arrival::Blocks] {
            ranges_are_whole(skey, arrival);
        }
    }
}

#[test]
fn ranges_are_whole_beside_a_writer_with_a_btree() {
    ranges_are_whole_beside_a_writer(SkeyKind::BTree);
}

#[test]
fn ranges_are_whole_beside_a_writer_with_a_trie() {
    ranges_are_whole_beside_a_writer(SkeyKind::Trie);
}
