//! Tests of sweeps.

use std::cell::Cell;

use bolide_base::{EntryKind, Trailer};
use bolide_storage::{MemVfs, SystemRuntime};

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
    let home = RegionLocation {
        vfs: Arc::new(MemVfs::new()),
        runtime: Arc::new(SystemRuntime::default()),
        dir: "db".into(),
        dax_dir: None,
        database_id: 1,
        tag: 3,
        seed: 1,
        read_only: false,
        deleted: Arc::new(NoRanges),
    };
    PsTreeBackend::open(&"group:ps-tree".parse().unwrap(), 2, None, &home, &|_| Ok(())).unwrap()
}

/// Applies a write of each of `records` records, the first at `first`; returns the number of the last.
fn write(kept: &PsTreeBackend, first: SequenceNumber, records: u64) -> SequenceNumber {
    for record in 0..records {
        let sequence = first + record;
        let mut key = Vec::new();
        Value::Uint(sequence % 500).encode(&mut key).unwrap();
        key.extend_from_slice(&(!sequence).to_be_bytes());
        key.extend_from_slice(format!("key{record:06}").as_bytes());
        kept.reserve(1, key.len()).unwrap();
        let write = ExternalWrite { key: &key, trailer: Trailer::new(sequence, EntryKind::Put), value: &[] };
        // Somebody looks so far back that nothing is collected yet.
        kept.apply(write, &|| 1).unwrap();
    }
    first + records - 1
}

#[test]
fn a_sweep_that_is_cut_short_is_due_again_wherever_it_ended() {
    let kept = empty();
    let last = write(&kept, 1, 20_000);
    assert_eq!(kept.garbage_through(&|| last), None, "nothing is obsolete");
    let last = write(&kept, last + 1, 10_000);
    assert_eq!(kept.garbage_through(&|| last), Some(last));
    let mut asked = 0_usize;
    while kept.clear_through.load(Ordering::Acquire) < last {
        let left = Cell::new(asked);
        let goes_on = || left.replace(left.get().saturating_sub(1)) > 0;
        kept.collect_garbage_when_idle(&|| last, &goes_on).unwrap();
        let (keys, entries) = (kept.versions.stats().keys, kept.tree.counts().1);
        let is_due = kept.garbage_through(&|| last).is_some();
        assert_eq!(is_due, keys * 100 > entries * 5, "{keys} keys in {entries} entries, asked {asked} times");
        asked += 1;
    }
    assert!(asked > 3, "swept at one go");
    // No root is installed: a crash brings back what was swept, so range tombstones are needed.
    assert_eq!(ExternalTree::clear_through(&kept), 0);
    assert_eq!(kept.versions.stats().keys, 0);
    assert_eq!(kept.garbage_through(&|| last), None);
}

#[test]
fn what_a_reader_needs_is_swept_once_and_again_when_the_reader_is_gone() {
    let kept = empty();
    let before = write(&kept, 1, 1_000);
    let last = write(&kept, before + 1, 1_000);
    kept.collect_garbage_when_idle(&|| before, &|| true).unwrap();
    assert_eq!(kept.garbage_through(&|| before), None, "again it would find no more");
    assert_eq!((kept.versions.stats().keys, kept.tree.counts().1), (1_000, 2_000));
    assert_eq!(kept.garbage_through(&|| last), Some(last));
    kept.collect_garbage_when_idle(&|| last, &|| true).unwrap();
    assert_eq!((kept.versions.stats().keys, kept.tree.counts().1), (0, 1_000));
}
