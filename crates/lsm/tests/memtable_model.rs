//! The memtable under the model checker `shuttle`, which may switch threads at every atomic operation. Nodes have four
//! slots there, so that a dozen keys split nodes on three levels.
//!
//! ```text
//! RUSTFLAGS="--cfg bolide_shuttle" cargo test --release -p bolide-lsm --test memtable_model
//! ```
//!
//! `BOLIDE_MODEL_RUNS` is the number of schedules of each test. A failure prints its schedule for a replay.
#![cfg(bolide_shuttle)]

use std::collections::BTreeMap;
use std::sync::Arc;

use bolide_base::{EntryKind, Trailer};
use bolide_lsm::memtable::{Memtable, Visibility};
use bolide_table::InternalCursor;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

fn check(model: impl Fn() + Send + Sync + Clone + 'static) {
    let runs = std::env::var("BOLIDE_MODEL_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(3_000);
    shuttle::check_random(model.clone(), runs);
    shuttle::check_pct(model, runs, 4);
}

fn insert(memtable: &Memtable, key: &[u8], sequence: u64) {
    memtable.insert(key, Trailer::new(sequence, EntryKind::Put), &sequence.to_le_bytes());
}

/// The entries of a cursor in forward order.
fn contents(memtable: &Arc<Memtable>, visibility: Visibility) -> Vec<(Vec<u8>, u64)> {
    let mut cursor = memtable.cursor(visibility);
    let mut forward = Vec::new();
    cursor.seek_to_first().unwrap();
    while cursor.valid() {
        assert_eq!(cursor.value(), cursor.trailer().sequence().to_le_bytes());
        forward.push((cursor.key().to_vec(), cursor.trailer().sequence()));
        cursor.next().unwrap();
    }
    forward
}

fn contents_backward(memtable: &Arc<Memtable>, visibility: Visibility) -> Vec<(Vec<u8>, u64)> {
    let mut cursor = memtable.cursor(visibility);
    let mut backward = Vec::new();
    cursor.seek_to_last().unwrap();
    while cursor.valid() {
        backward.push((cursor.key().to_vec(), cursor.trailer().sequence()));
        cursor.prev().unwrap();
    }
    backward.reverse();
    backward
}

/// Two writers of disjoint keys and a reader: the reader finds all published entries, in order.
fn writers_and_reader(key: fn(u64) -> Vec<u8>) {
    writers_and_reader_on(Memtable::new(), key);
}

/// The same, with a hash index from the first point read on.
fn writers_and_reader_by_hash(key: fn(u64) -> Vec<u8>) {
    writers_and_reader_on(Memtable::with_budget(0), key);
}

fn writers_and_reader_on(memtable: Memtable, key: fn(u64) -> Vec<u8>) {
    const EACH: u64 = 10;
    let memtable = Arc::new(memtable);
    let done: Arc<[AtomicU64; 2]> = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let writers: Vec<_> = (0..2)
        .map(|writer| {
            let (memtable, done) = (memtable.clone(), done.clone());
            thread::spawn(move || {
                for index in 0..EACH {
                    let sequence = 2 * index + writer + 1;
                    insert(&memtable, &key(sequence), sequence);
                    done[writer as usize].store(index + 1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let expected = |published: u64| {
        let newest: BTreeMap<_, _> = (1..=published).map(|sequence| (key(sequence), sequence)).collect();
        newest.into_iter().collect::<Vec<_>>()
    };
    for _ in 0..3 {
        let published = 2 * done.iter().map(|done| done.load(Ordering::SeqCst)).min().unwrap();
        assert_eq!(contents(&memtable, Visibility::At(published)), expected(published));
        assert_eq!(contents_backward(&memtable, Visibility::At(published)), expected(published));
        for (key, sequence) in expected(published) {
            assert_eq!(memtable.newest(&key, published).unwrap().sequence(), sequence);
        }
        for sequence in published + 1..=2 * EACH {
            let newest = expected(published).into_iter().find(|found| found.0 == key(sequence));
            let found = memtable.newest(&key(sequence), published).map(|trailer| trailer.sequence());
            assert_eq!(found, newest.map(|(_, sequence)| sequence));
        }
    }
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!(contents(&memtable, Visibility::At(2 * EACH)), expected(2 * EACH));
    assert_eq!(memtable.entries() as u64, 2 * EACH);
}

#[test]
fn scattered_keys() {
    check(|| writers_and_reader(|sequence| vec![(sequence * 7 % 20) as u8]));
}

#[test]
fn ascending_keys_with_a_common_beginning() {
    check(|| writers_and_reader(|sequence| format!("common beginning {sequence:02}").into_bytes()));
}

#[test]
fn descending_keys() {
    check(|| writers_and_reader(|sequence| vec![b'k', 100 - sequence as u8]));
}

#[test]
fn scattered_keys_by_hash() {
    check(|| writers_and_reader_by_hash(|sequence| vec![(sequence * 7 % 20) as u8]));
}

#[test]
fn hot_keys_by_hash() {
    check(|| writers_and_reader_by_hash(|sequence| vec![(sequence % 3) as u8]));
}

#[test]
fn hot_keys() {
    check(|| writers_and_reader(|sequence| vec![(sequence % 3) as u8]));
}

#[test]
fn the_same_new_key_by_three_threads() {
    check(|| {
        let memtable = Arc::new(Memtable::new());
        let writers: Vec<_> = (1..=3)
            .map(|writer| {
                let memtable = memtable.clone();
                thread::spawn(move || {
                    for (index, key) in [b"a", b"b", b"c"].iter().enumerate() {
                        insert(&memtable, *key, 3 * index as u64 + writer);
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        let keys = [b"a", b"b", b"c"].iter().zip([3, 6, 9]);
        let expected: Vec<_> =
            keys.flat_map(|(key, newest)| (0..3).map(move |older| (key.to_vec(), newest - older))).collect();
        assert_eq!(contents(&memtable, Visibility::All), expected);
        assert_eq!(contents_backward(&memtable, Visibility::All), expected);
        assert_eq!(memtable.entries(), 9);
    });
}
