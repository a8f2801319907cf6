//! Concurrent threads: a lookup returns exactly what was inserted before it began, in order.

#![expect(clippy::disallowed_methods, reason = "tests may start threads")]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bolide_base::SequenceNumber;

use super::oracle::{Random, Versions};
use super::sync::Mutex;
use super::tests::{new_tree, rows};
use super::{Obsolescence, PsBounds, PsFlag, PsTree, PsTreeOptions, SkeyKind};
use crate::query::Order;
use crate::validation::Verdict;

const WRITERS: u64 = 3;
const READERS: u64 = 2;

/// The entries of each key that a writer inserted.
type Written = HashMap<Vec<u8>, Vec<(SequenceNumber, Vec<u8>)>>;

/// The parameters of one run.
#[derive(Debug, Clone, Copy)]
struct Load {
    skey: SkeyKind,
    page_bytes: usize,
    /// Secondary keys of a writer.
    keys: u64,
    /// Inserts of a writer.
    writes: u64,
    /// All writers insert entries of the same keys.
    same_keys: bool,
}

/// Secondary key, primary key and sequence number of an entry.
type Inserted = (Vec<u8>, Vec<u8>, SequenceNumber);

/// The state shared by the threads of a test.
struct SharedTestTree {
    load: Load,
    tree: PsTree,
    versions: Versions,
    /// Next sequence number.
    next: AtomicU64,
    /// All sequence numbers up to this one are in the tree, per writer.
    done: [AtomicU64; WRITERS as usize],
    /// The last insert of each writer.
    last: [Mutex<Option<Inserted>>; WRITERS as usize],
    flagged: AtomicU64,
    stop: AtomicBool,
}

/// Keys of one writer, interleaved with those of the others or the same.
fn skey(load: Load, writer: u64, number: u64) -> Vec<u8> {
    let writer = if load.same_keys { 0 } else { writer };
    let mut key = (number * WRITERS + writer).to_be_bytes().to_vec();
    if number.is_multiple_of(5) {
        key.extend_from_slice(b"and a longer rest of the key");
    }
    key
}

fn write(shared: &SharedTestTree, writer: u64) -> Written {
    let keys = shared.load.keys;
    let mut random = Random(writer);
    let mut written: Written = HashMap::new();
    for _ in 0..shared.load.writes {
        let spread = if random.chance(50) { 3.min(keys) } else { keys };
        let key = skey(shared.load, writer, random.below(spread));
        let pkey = (random.below(500) * WRITERS + writer).to_be_bytes();
        let sequence = shared.next.fetch_add(1, Ordering::SeqCst);
        shared.versions.write(&pkey, sequence);
        let region_writer = shared.tree.region().writer();
        shared.tree.insert(&region_writer, &key, &pkey, sequence, b"", &shared.versions, sequence).unwrap();
        drop(region_writer);
        shared.done[writer as usize].store(sequence, Ordering::SeqCst);
        *shared.last[writer as usize].lock() = Some((key.clone(), pkey.to_vec(), sequence));
        written.entry(key).or_default().push((sequence, pkey.to_vec()));
    }
    written
}

/// The last insert of a writer is found, unless it was replaced.
fn check_last_insert(shared: &SharedTestTree, writer: u64) {
    let last = shared.last[writer as usize].lock().clone();
    let Some((key, pkey, sequence)) = last else { return };
    let mut cursor = shared.tree.cursor(PsBounds::One(&key), Order::Newest, u64::MAX).unwrap();
    while let Some(entry) = cursor.next_entry().unwrap() {
        if entry.sequence == sequence {
            assert_eq!(entry.primary_key, pkey);
            return;
        }
    }
    assert_eq!(shared.versions.verdict(&pkey, sequence, u64::MAX), Verdict::Obsolete, "an entry is missed");
}

fn read(shared: &SharedTestTree, reader: u64) {
    let (load, keys) = (shared.load, shared.load.keys);
    let mut random = Random(1_000 + reader);
    while !shared.stop.load(Ordering::SeqCst) {
        let writer = random.below(WRITERS);
        check_last_insert(shared, writer);
        let key = skey(load, writer, random.below(keys));
        let done = shared.done[writer as usize].load(Ordering::SeqCst);
        let mut cursor = shared.tree.cursor(PsBounds::One(&key), Order::Newest, u64::MAX).unwrap();
        let mut last = u64::MAX;
        let mut to_flag = Vec::new();
        while let Some(entry) = cursor.next_entry().unwrap() {
            assert!(entry.sequence < last, "newest first");
            last = entry.sequence;
            let owner = u64::from_be_bytes(entry.primary_key.try_into().unwrap()) % WRITERS;
            assert!(load.same_keys || owner == writer, "an entry of another writer");
            if shared.versions.verdict(entry.primary_key, entry.sequence, done) == Verdict::Obsolete {
                to_flag.push(entry.place);
            }
        }
        for place in to_flag {
            if random.chance(20) && cursor.flag_obsolete(place).unwrap() == PsFlag::Flagged {
                shared.flagged.fetch_add(1, Ordering::SeqCst);
            }
        }
        drop(cursor);
        let (low, end) = (skey(load, 0, random.below(keys)), skey(load, 0, random.below(keys) + 20));
        let order =
            [Order::Newest, Order::Oldest, Order::Value, Order::ValueDescending][random.below(4) as usize];
        let range = PsBounds::Range { low: &low, end: Some(&end) };
        let rows = rows(shared.tree.cursor(range, order, u64::MAX).unwrap());
        let in_order =
            |left: &(Vec<u8>, Vec<u8>, u64, Vec<u8>), right: &(Vec<u8>, Vec<u8>, u64, Vec<u8>)| match order {
                Order::Newest => left.2 > right.2,
                Order::Oldest => left.2 < right.2,
                Order::Value | Order::Nearest | Order::Attributes => {
                    left.0 < right.0 || left.0 == right.0 && left.2 > right.2
                }
                Order::ValueDescending => left.0 > right.0 || left.0 == right.0 && left.2 > right.2,
            };
        assert!(rows.windows(2).all(|pair| in_order(&pair[0], &pair[1])), "{order:?}");
    }
}

fn run(load: Load) {
    let shared = Arc::new(SharedTestTree {
        load,
        tree: new_tree(PsTreeOptions::new().skey(load.skey).page_bytes(load.page_bytes)),
        versions: Versions::default(),
        next: AtomicU64::new(1),
        done: [const { AtomicU64::new(0) }; WRITERS as usize],
        last: [const { Mutex::new(None) }; WRITERS as usize],
        flagged: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    });
    let written: Vec<Written> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn({
                    let shared = &shared;
                    move || write(shared, writer)
                })
            })
            .collect();
        for reader in 0..READERS {
            let shared = &shared;
            scope.spawn(move || read(shared, reader));
        }
        let shared = &shared;
        let sweeper = scope.spawn(move || {
            let mut position = Vec::new();
            let mut rounds = 0_u64;
            while !shared.stop.load(Ordering::SeqCst) {
                let oldest = shared.done.iter().map(|done| done.load(Ordering::SeqCst)).min().unwrap();
                let region_writer = shared.tree.region().writer();
                shared.tree.sweep(&region_writer, &mut position, 24, &shared.versions, oldest).unwrap();
                rounds += 1;
                if rounds.is_multiple_of(50) {
                    assert!(shared.tree.compact_keys_if(&region_writer, |_| true).unwrap());
                }
                drop(region_writer);
                if rounds.is_multiple_of(97) {
                    assert_eq!(shared.tree.check().unwrap().problems, Vec::<String>::new());
                }
                std::thread::yield_now();
            }
        });
        let written = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        shared.stop.store(true, Ordering::SeqCst);
        sweeper.join().unwrap();
        written
    });
    let check = shared.tree.check().unwrap();
    assert_eq!(check.problems, Vec::<String>::new());
    assert_eq!(check.unfinished, 0);
    let removed = shared.versions.removed.lock();
    let mut hidden = 0;
    let mut visible = 0;
    let mut all = Written::new();
    for (key, entries) in written.into_iter().flatten() {
        all.entry(key).or_default().extend(entries);
    }
    for (key, entries) in all {
        let rows = rows(shared.tree.cursor(PsBounds::One(&key), Order::Oldest, u64::MAX).unwrap());
        let there: HashMap<u64, &Vec<u8>> = rows.iter().map(|row| (row.2, &row.1)).collect();
        visible += rows.len() as u64;
        for (sequence, pkey) in &entries {
            match there.get(sequence) {
                Some(found) => assert_eq!(*found, pkey),
                None if removed.contains(&(pkey.clone(), *sequence)) => {}
                // Flagged and not removed yet: it was replaced.
                None => {
                    hidden += 1;
                    let verdict = shared.versions.verdict(pkey, *sequence, u64::MAX);
                    assert_eq!(verdict, Verdict::Obsolete, "an entry is lost");
                }
            }
        }
    }
    let stats = shared.tree.stats().unwrap();
    assert_eq!(stats.flagged, hidden);
    assert_eq!(stats.entries, visible + hidden);
    assert_eq!(*shared.versions.removed_flagged.lock() + hidden, shared.flagged.load(Ordering::SeqCst));
    assert_eq!(shared.tree.counts(), (stats.skey.keys, stats.entries));
    assert_eq!(shared.tree.region().stats().refused_frees, 0);
}

/// A few large trees, with keys per writer and with shared keys; then many small ones, which are empty at the start.
fn threads_see_completed_inserts(skey: SkeyKind) {
    let load = Load { skey, page_bytes: 512, keys: 2_000, writes: 12_000, same_keys: false };
    run(load);
    run(Load { same_keys: true, ..load });
    run(Load { page_bytes: 2048, keys: 40, ..load });
    run(Load { page_bytes: 4096, keys: 40, same_keys: true, ..load });
    let rounds = std::env::var("PS_TREE_THREAD_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    for round in 0..rounds.unwrap_or(40) {
        let same_keys = round % 2 == 1;
        run(Load { writes: 40 + 10 * (round % 30), keys: 30 + 20 * (round % 7), same_keys, ..load });
    }
}

#[test]
fn threads_see_completed_inserts_with_a_btree() {
    threads_see_completed_inserts(SkeyKind::BTree);
}

#[test]
fn threads_see_completed_inserts_with_a_trie() {
    threads_see_completed_inserts(SkeyKind::Trie);
}
