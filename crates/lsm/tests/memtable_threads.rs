//! Many threads on one memtable: reads at a published sequence number are exact.
#![cfg(not(bolide_shuttle))]
#![allow(clippy::disallowed_methods, reason = "a test of threads starts some")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use bolide_base::{EntryKind, SequenceNumber, Trailer};
use bolide_lsm::memtable::{Memtable, Visibility};
use bolide_table::InternalCursor;

/// Small under Miri, which is about a hundred times slower.
const OPERATIONS: u64 = if cfg!(miri) { 200 } else { 60_000 };
const WRITERS: u64 = if cfg!(miri) { 2 } else { 4 };
const READERS: u64 = if cfg!(miri) { 1 } else { 2 };

fn mix(number: u64) -> u64 {
    let word = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// A history in which operation i has sequence number i + 1, and the expected results of reads.
struct History {
    keys: Vec<Vec<u8>>,
    /// The sequence numbers of each key, ascending.
    versions: BTreeMap<Vec<u8>, Vec<SequenceNumber>>,
    /// The number of completed operations of each writer. Writer w executes the operations w, w + WRITERS, ...
    done: Vec<AtomicU64>,
    finished: AtomicBool,
}

impl History {
    fn new(key: impl Fn(u64) -> Vec<u8>) -> Self {
        let keys: Vec<_> = (0..OPERATIONS).map(key).collect();
        let mut versions: BTreeMap<Vec<u8>, Vec<u64>> = BTreeMap::new();
        for (key, sequence) in keys.iter().zip(1..) {
            versions.entry(key.clone()).or_default().push(sequence);
        }
        let done = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
        Self { keys, versions, done, finished: AtomicBool::new(false) }
    }

    /// All operations up to this sequence number are inserted.
    fn published(&self) -> SequenceNumber {
        self.done.iter().map(|done| done.load(Ordering::Acquire)).min().unwrap_or(0) * WRITERS
    }

    fn newest(&self, key: &[u8], max_sequence: SequenceNumber) -> Option<SequenceNumber> {
        let versions = self.versions.get(key)?;
        versions
            .partition_point(|&sequence| sequence <= max_sequence)
            .checked_sub(1)
            .map(|last| versions[last])
    }

    fn write(&self, writer: u64, memtable: &Memtable) {
        for index in (writer..OPERATIONS).step_by(WRITERS as usize) {
            let trailer = Trailer::new(index + 1, EntryKind::Put);
            memtable.insert(&self.keys[index as usize], trailer, &mix(index + 1).to_le_bytes());
            self.done[writer as usize].fetch_add(1, Ordering::Release);
        }
    }

    fn check_get(&self, memtable: &Memtable, key: &[u8], max_sequence: SequenceNumber) {
        let found =
            memtable.get(key, max_sequence).map(|(trailer, value)| (trailer.sequence(), value.to_vec()));
        let expected =
            self.newest(key, max_sequence).map(|sequence| (sequence, mix(sequence).to_le_bytes().to_vec()));
        assert_eq!(found, expected, "{key:?} at {max_sequence}");
        // The same with the following keys and an absent one.
        let following = self.versions.range(key.to_vec()..).take(40).map(|(key, _)| key.as_slice());
        let keys: Vec<&[u8]> = following.chain([&b"\xffabsent"[..]]).collect();
        let mut found = vec![None; keys.len()];
        memtable.get_many(&keys, max_sequence, &mut found);
        for (key, found) in keys.into_iter().zip(found) {
            assert_eq!(
                found.map(|(trailer, _)| trailer.sequence()),
                self.newest(key, max_sequence),
                "{key:?}"
            );
        }
    }

    /// Scans up to `limit` keys from `start` on in one direction, and expects every visible key.
    fn check_scan(
        &self,
        memtable: &Arc<Memtable>,
        start: &[u8],
        max_sequence: u64,
        forward: bool,
        limit: usize,
    ) {
        let visible = |(key, _): &(&Vec<u8>, _)| self.newest(key, max_sequence).is_some();
        let expected: Vec<_> = if forward {
            self.versions.range(start.to_vec()..).filter(visible).take(limit).collect()
        } else {
            self.versions.range(..start.to_vec()).rev().filter(visible).take(limit).collect()
        };
        let mut cursor = memtable.cursor(Visibility::At(max_sequence));
        if forward { cursor.seek(start, max_sequence) } else { cursor.seek_before(start) }.unwrap();
        for (key, _) in &expected {
            assert_eq!(
                (cursor.valid(), cursor.key()),
                (true, key.as_slice()),
                "at {max_sequence}, {forward}"
            );
            assert_eq!(Some(cursor.trailer().sequence()), self.newest(key, max_sequence));
            assert_eq!(cursor.value(), mix(cursor.trailer().sequence()).to_le_bytes());
            if forward { cursor.next() } else { cursor.prev() }.unwrap();
        }
        assert!(expected.len() == limit || !cursor.valid());
    }

    fn read(&self, reader: u64, memtable: &Arc<Memtable>) {
        let mut step = reader << 32;
        loop {
            let last = self.finished.load(Ordering::Acquire);
            let published = self.published();
            for _ in 0..8 {
                step += 1;
                let key = &self.keys[(mix(step) % OPERATIONS) as usize];
                self.check_get(memtable, key, published);
                self.check_get(memtable, key, mix(step) % (published + 1));
                self.check_scan(memtable, key, published, step.is_multiple_of(2), 100);
            }
            if last {
                assert_eq!(published / WRITERS, OPERATIONS / WRITERS);
                self.check_scan(memtable, &[], published, true, usize::MAX);
                self.check_scan(memtable, &[0xff; 40], published, false, usize::MAX);
                return;
            }
        }
    }
}

/// Readers and writers of a memtable that serves point reads by the tree until it is large, and of one with a hash index
/// from the first point read on.
fn run(key: impl Fn(u64) -> Vec<u8>) {
    run_on(Memtable::new(), &key);
    run_on(Memtable::with_budget(0), &key);
}

fn run_on(memtable: Memtable, key: impl Fn(u64) -> Vec<u8>) {
    let history = &History::new(key);
    let memtable = &Arc::new(memtable);
    thread::scope(|scope| {
        for reader in 0..READERS {
            scope.spawn(move || history.read(reader, memtable));
        }
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || history.write(writer, memtable))).collect();
        for writer in writers {
            writer.join().unwrap();
        }
        history.finished.store(true, Ordering::Release);
    });
    assert_eq!(memtable.entries() as u64, OPERATIONS);
    assert_eq!(memtable.largest_sequence(), Some(OPERATIONS));
}

#[test]
fn random_keys() {
    run(|index| mix(index).to_be_bytes().to_vec());
}

#[test]
fn ascending_keys() {
    run(|index| format!("user{index:012}").into_bytes());
}

#[test]
fn descending_keys() {
    run(|index| format!("user{:012}", OPERATIONS - index).into_bytes());
}

#[test]
fn a_few_hot_keys() {
    run(|index| vec![(mix(index) % 5) as u8]);
}

#[test]
fn some_keys_overwritten_often() {
    run(|index| format!("a long common beginning {:05}", mix(index) % (OPERATIONS / 20)).into_bytes());
}
