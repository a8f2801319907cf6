//! Tests of sweeps.

use std::cell::Cell;

use bolide_base::{EntryKind, Trailer};
use bolide_memory::MemoryBudget;
use bolide_storage::{MemVfs, SystemRuntime};

use super::super::region_location::RegionMemory;
use super::*;
use crate::attribute::Value;

#[derive(Debug)]
struct NoRanges;

impl DeletedRanges for NoRanges {
    fn newest(&self, _primary_key: &[u8], _at: SequenceNumber) -> SequenceNumber {
        0
    }

    fn newest_of_all(&self) -> SequenceNumber {
        0
    }
}

fn empty() -> PsTreeBackend {
    let location = RegionLocation {
        vfs: Arc::new(MemVfs::new()),
        runtime: Arc::new(SystemRuntime::default()),
        dir: "db".into(),
        dax_dir: None,
        database_id: 1,
        tag: 3,
        seed: 1,
        read_only: false,
        deleted: Arc::new(NoRanges),
        memory: RegionMemory { budget: MemoryBudget::unlimited(), name: "c.index".into() },
        durable: Arc::default(),
    };
    PsTreeBackend::open(&"group:ps-tree".parse().unwrap(), 2, None, &location, &|_| Ok(())).unwrap()
}

/// Applies a write of each of `records` records, the first at `first`; returns the last sequence number.
fn write(backend: &PsTreeBackend, first: SequenceNumber, records: u64) -> SequenceNumber {
    for record in 0..records {
        let sequence = first + record;
        let mut key = Vec::new();
        Value::Uint(sequence % 500).encode(&mut key).unwrap();
        key.extend_from_slice(&(!sequence).to_be_bytes());
        key.extend_from_slice(format!("key{record:06}").as_bytes());
        backend.reserve(1, key.len()).unwrap();
        let write = ExternalWrite { key: &key, trailer: Trailer::new(sequence, EntryKind::Put), value: &[] };
        // An old reader prevents collection.
        backend.apply(write, &|| 1).unwrap();
    }
    first + records - 1
}

#[test]
fn an_interrupted_sweep_is_due_again() {
    let backend = empty();
    let last = write(&backend, 1, 20_000);
    assert_eq!(backend.garbage_through(&|| last), None, "nothing is obsolete");
    let last = write(&backend, last + 1, 10_000);
    assert_eq!(backend.garbage_through(&|| last), Some(last));
    let mut continuations = 0_usize;
    while backend.clear_through.load(Ordering::Acquire) < last {
        let left = Cell::new(continuations);
        let may_continue = || left.replace(left.get().saturating_sub(1)) > 0;
        backend.collect_garbage_when_idle(&|| last, &may_continue).unwrap();
        let (keys, entries) = (backend.versions.stats().keys, backend.tree.counts().1);
        let is_due = backend.garbage_through(&|| last).is_some();
        assert_eq!(
            is_due,
            keys * 100 > entries * 5,
            "{keys} keys in {entries} entries, {continuations} continuations"
        );
        continuations += 1;
    }
    assert!(continuations > 3, "swept without an interruption");
    // No root is installed: a crash restores what was swept, so range tombstones are needed.
    assert_eq!(ExternalTree::clear_through(&backend), 0);
    assert_eq!(backend.versions.stats().keys, 0);
    assert_eq!(backend.garbage_through(&|| last), None);
}

#[test]
fn entries_that_a_reader_needs_are_swept_after_it_ends() {
    let backend = empty();
    let before = write(&backend, 1, 1_000);
    let last = write(&backend, before + 1, 1_000);
    backend.collect_garbage_when_idle(&|| before, &|| true).unwrap();
    assert_eq!(backend.garbage_through(&|| before), None, "another sweep would collect nothing");
    assert_eq!((backend.versions.stats().keys, backend.tree.counts().1), (1_000, 2_000));
    assert_eq!(backend.garbage_through(&|| last), Some(last));
    backend.collect_garbage_when_idle(&|| last, &|| true).unwrap();
    assert_eq!((backend.versions.stats().keys, backend.tree.counts().1), (0, 1_000));
}
