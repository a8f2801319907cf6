//! Group commit: sequence numbers, results and stages of several batches in one group, for any grouping.
#![allow(clippy::disallowed_methods, reason = "tests start threads of their own")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bolide_base::{Error, ErrorKind, MAX_SEQUENCE, Result, SequenceNumber, TreeId};
use bolide_lsm::external_tree::{ExternalCheckpoint, ExternalTreeStats, ExternalWrite};
use bolide_lsm::{
    CommitStage, ExternalTree, ReadView, Store, StoreBatch, StoreComponents, StoreOptions, SyncMode,
    TreeOptions,
};
use bolide_storage::{Fault, FaultPlan, SimRuntime, SimVfs, Vfs};
use bolide_table::BlockCache;

const PLAIN: TreeId = 1;
const EXTERNAL: TreeId = 2;

fn open(vfs: &SimVfs) -> Store {
    open_with(vfs, 64 << 10)
}

fn open_with(vfs: &SimVfs, memtable_bytes: usize) -> Store {
    let mut options = StoreOptions::new("/db");
    options.memtable_bytes = memtable_bytes;
    options.background_threads = 0;
    let components = StoreComponents {
        vfs: Arc::new(vfs.clone()),
        runtime: Arc::new(SimRuntime::new(1)),
        cache: BlockCache::new(1 << 20),
    };
    let store = Store::open(options, components).unwrap();
    if store.trees().is_empty() {
        assert_eq!(store.create_tree(TreeOptions::default(), b"plain").unwrap(), PLAIN);
    }
    store
}

/// A batch that puts `count` keys of batch number `batch`.
fn batch(tree: TreeId, batch: u64, count: u64, value: &[u8]) -> StoreBatch {
    let mut puts = StoreBatch::new();
    (0..count).for_each(|number| puts.put(tree, &key(batch, number), value).unwrap());
    puts
}

fn key(batch: u64, number: u64) -> Vec<u8> {
    format!("{batch:03}-{number:03}").into_bytes()
}

fn sequence_of(store: &Store, batch: u64, number: u64) -> Option<SequenceNumber> {
    store.get_latest(PLAIN, &key(batch, number)).unwrap().map(|(sequence, _)| sequence)
}

/// Remains the leader until it is released.
struct Blocks {
    entered: Sender<()>,
    release: Receiver<()>,
}

impl CommitStage for Blocks {
    fn stage(&mut self, _view: &ReadView, _batch: &mut StoreBatch) -> Result<()> {
        self.entered.send(()).unwrap();
        self.release.recv().unwrap();
        Ok(())
    }
}

/// A stage that calls a closure.
struct Stage<F>(F);

impl<F: FnMut(&ReadView, &mut StoreBatch) -> Result<()> + Send> CommitStage for Stage<F> {
    fn stage(&mut self, view: &ReadView, batch: &mut StoreBatch) -> Result<()> {
        (self.0)(view, batch)
    }
}

type Staged = (StoreBatch, Option<Box<dyn CommitStage>>);

/// Commits `batches` from a thread each while another writer leads, which puts the key 0 of batch 0. They wait for it together
/// and are committed as a group. The results are right as well if one is late and forms a group of its own.
fn commit_together(
    store: &Store,
    batches: Vec<Staged>,
    sync: SyncMode,
    before_release: impl FnOnce(),
) -> Vec<Result<SequenceNumber>> {
    let (entered, has_entered) = channel();
    let (release, is_released) = channel();
    std::thread::scope(|scope| {
        let stage = Box::new(Blocks { entered, release: is_released });
        let leader = scope.spawn(|| store.commit(batch(PLAIN, 0, 1, b""), Some(stage), sync));
        has_entered.recv().unwrap();
        let start = |(batch, stage): Staged| {
            let writer = scope.spawn(move || store.commit(batch, stage, sync));
            std::thread::sleep(Duration::from_millis(20));
            writer
        };
        let writers: Vec<_> = batches.into_iter().map(start).collect();
        std::thread::sleep(Duration::from_millis(80));
        before_release();
        release.send(()).unwrap();
        let results = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        assert_eq!(leader.join().unwrap().unwrap(), 1);
        results
    })
}

#[test]
fn batches_of_a_group_have_consecutive_sequence_numbers() {
    let vfs = SimVfs::new(1);
    let store = open(&vfs);
    let count = |number: u64| number % 3 + 1;
    let batches = (1..8).map(|number| (batch(PLAIN, number, count(number), b"value"), None)).collect();
    let results = commit_together(&store, batches, SyncMode::None, || {});
    let mut all = BTreeSet::from([sequence_of(&store, 0, 0).unwrap()]);
    let check = |store: &Store| {
        for (number, result) in (1..8).zip(&results) {
            let last = *result.as_ref().unwrap();
            for place in 0..count(number) {
                let expected = last + 1 + place - count(number);
                assert_eq!(
                    sequence_of(store, number, place),
                    Some(expected),
                    "batch {number}, position {place}"
                );
            }
        }
    };
    check(&store);
    for (number, result) in (1..8).zip(&results) {
        let last = *result.as_ref().unwrap();
        (last + 1 - count(number)..=last).for_each(|sequence| assert!(all.insert(sequence), "{sequence}"));
    }
    let total = 1 + (1..8).map(count).sum::<u64>();
    assert_eq!((all.first(), all.last(), all.len()), (Some(&1), Some(&total), total as usize));
    assert_eq!(store.published_sequence(), total);
    drop(store);
    check(&open(&vfs));
}

#[test]
fn a_stage_in_a_group_sees_the_batches_before_it() {
    let store = open(&SimVfs::new(1));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&seen);
    let stage = Stage(move |view: &ReadView, batch: &mut StoreBatch| {
        for number in 0..5 {
            let found = view.get(PLAIN, &key(number, 0))?;
            shared.lock().unwrap().push(found.map(|(sequence, _)| sequence));
        }
        batch.put_at(PLAIN, b"derived", b"", batch.first_sequence())
    });
    let mut batches: Vec<Staged> = (1..5).map(|number| (batch(PLAIN, number, 2, b""), None)).collect();
    batches[2].1 = Some(Box::new(stage));
    let results = commit_together(&store, batches, SyncMode::None, || {});
    let last = |number: u64| sequence_of(&store, number, 1);
    for (number, result) in (1..5).zip(&results) {
        assert_eq!(result.as_ref().ok().copied(), last(number), "{number}");
    }
    let first = sequence_of(&store, 3, 0).unwrap();
    // In any order of the threads.
    let before = (0..5).map(|number| sequence_of(&store, number, 0).filter(|&sequence| sequence < first));
    assert_eq!(*seen.lock().unwrap(), before.collect::<Vec<_>>());
    assert_eq!(store.get_latest(PLAIN, b"derived").unwrap().unwrap().0, first);
}

#[test]
fn a_stage_that_fails_fails_its_batch_alone() {
    let store = open(&SimVfs::new(1));
    let fails = Stage(|_: &ReadView, _: &mut StoreBatch| Err(Error::invalid_input("rejected by its stage")));
    let takes_numbers = Stage(|_: &ReadView, batch: &mut StoreBatch| batch.put(PLAIN, b"further", b""));
    let mut batches: Vec<Staged> = (1..6).map(|number| (batch(PLAIN, number, 2, b""), None)).collect();
    batches[1].1 = Some(Box::new(fails));
    batches[3].1 = Some(Box::new(takes_numbers));
    let results = commit_together(&store, batches, SyncMode::None, || {});
    let kinds: Vec<_> = results.iter().map(|result| result.as_ref().err().map(Error::kind)).collect();
    let (refused, internal) = (Some(ErrorKind::InvalidInput), Some(ErrorKind::Internal));
    assert_eq!(kinds, [None, refused, None, internal, None]);
    for (number, result) in (1..6).zip(&results) {
        assert_eq!(result.as_ref().ok().copied(), sequence_of(&store, number, 1), "{number}");
    }
    assert!(store.get_latest(PLAIN, b"further").unwrap().is_none());
    assert_eq!(store.published_sequence(), 7);
    // The sequence numbers of the failed batch are assigned to the next one.
    assert_eq!(store.commit(batch(PLAIN, 9, 1, b""), None, SyncMode::None).unwrap(), 8);
}

#[test]
fn without_threads_a_group_does_its_maintenance_itself() {
    let store = open(&SimVfs::new(1));
    // More than one group commits: the third leads one of its own, and fills the memtables again.
    let batches = (1..4).map(|number| (batch(PLAIN, number, 1, &vec![1; 700 << 10]), None)).collect();
    let results = commit_together(&store, batches, SyncMode::None, || {});
    assert!(results.iter().all(Result::is_ok));
    let writes = store.stats().writes;
    assert!(writes.flushes + writes.memory_compactions > 0, "{writes:?}");
}

/// The fewest log syncs for `batches` batches with a value of `value_bytes` bytes, committed while another writer led. Retries
/// while there are more than `expected`: a thread may be late.
fn fewest_syncs(batches: u64, value_bytes: usize, expected: u64) -> u64 {
    let mut fewest = u64::MAX;
    for _ in 0..20 {
        let vfs = SimVfs::new(1);
        let store = open_with(&vfs, 16 << 20);
        let value = vec![1; value_bytes];
        let batches = (1..=batches).map(|number| (batch(PLAIN, number, 1, &value), None)).collect();
        let before = vfs.counters().sync_points;
        let results = commit_together(&store, batches, SyncMode::Always, || {});
        assert!(results.iter().all(Result::is_ok));
        // One is that of the leader.
        fewest = fewest.min(vfs.counters().sync_points - before - 1);
        if fewest <= expected {
            break;
        }
    }
    fewest
}

#[test]
fn a_group_is_synced_once_and_has_about_a_mebibyte() {
    assert_eq!(fewest_syncs(4, 10, 1), 1);
    // The second fills the group; the third has one of its own.
    assert_eq!(fewest_syncs(3, 700 << 10, 2), 2);
    // A batch over the size is alone in its group.
    assert_eq!(fewest_syncs(2, 1_500 << 10, 1), 1);
}

/// An external tree with immediate durability that counts its writes.
#[derive(Debug, Default)]
struct Durable(AtomicUsize);

impl ExternalTree for Durable {
    fn reserve(&self, _writes: usize, _bytes: usize) -> Result<bool> {
        Ok(false)
    }

    fn apply(&self, _write: ExternalWrite<'_>, _oldest_in_use: &dyn Fn() -> SequenceNumber) -> Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn is_durable_at_once(&self) -> bool {
        true
    }

    fn checkpoint(&self, _sequence: SequenceNumber) -> Result<Box<dyn ExternalCheckpoint + '_>> {
        Err(Error::internal("this test has no checkpoint"))
    }

    fn is_checkpoint_due(&self, _logged: u64) -> bool {
        false
    }

    fn is_closing_checkpoint_due(&self) -> bool {
        false
    }

    fn collect_garbage(&self, _oldest_in_use: &dyn Fn() -> SequenceNumber) -> Result<()> {
        Ok(())
    }

    fn clear_through(&self) -> SequenceNumber {
        0
    }

    fn stats(&self) -> ExternalTreeStats {
        ExternalTreeStats::default()
    }
}

#[test]
fn an_immediately_durable_tree_gets_no_write_that_the_log_may_lose() {
    for together in [false, true] {
        let vfs = SimVfs::new(1);
        let store = open(&vfs);
        assert_eq!(store.create_tree(TreeOptions::default(), b"external").unwrap(), EXTERNAL);
        let durable = Arc::new(Durable::default());
        store.set_external_tree(EXTERNAL, durable.clone()).unwrap();
        let fault = || vfs.set_fault(Some(FaultPlan { fault: Fault::LostSync, at: 1, sticky: true }));
        let result = if together {
            let batches = vec![(batch(EXTERNAL, 1, 1, b""), None), (batch(PLAIN, 2, 1, b""), None)];
            commit_together(&store, batches, SyncMode::None, fault).swap_remove(0)
        } else {
            fault();
            store.commit(batch(EXTERNAL, 1, 1, b""), None, SyncMode::None)
        };
        assert!(result.is_err(), "together: {together}");
        assert_eq!(durable.0.load(Ordering::Relaxed), 0, "together: {together}");
    }
}

#[test]
fn log_bytes_are_those_of_the_log() {
    let vfs = SimVfs::new(1);
    let store = open(&vfs);
    let len = || {
        let names = vfs.list(Path::new("/db")).unwrap().into_iter().filter(|name| name.ends_with(".wal"));
        names.map(|name| vfs.open(&Path::new("/db").join(name)).unwrap().len().unwrap()).sum::<u64>()
    };
    store.commit(batch(PLAIN, 1, 1, b""), None, SyncMode::None).unwrap();
    let before = (len(), store.stats().writes.log_bytes);
    for number in 2..40 {
        store.commit(batch(PLAIN, number, 3, &[7; 100]), None, SyncMode::None).unwrap();
    }
    let written = len() - before.0;
    assert!(written > 38 * 3 * 100);
    assert_eq!(store.stats().writes.log_bytes - before.1, written);
}

#[test]
fn sequence_numbers_end_with_an_error() {
    let store = open(&SimVfs::new(1));
    assert_eq!(store.reserve_sequences(MAX_SEQUENCE).unwrap_err().kind(), ErrorKind::LimitExceeded);
    store.reserve_sequences(MAX_SEQUENCE - 3).unwrap();
    let last = store.commit(batch(PLAIN, 1, 2, b""), None, SyncMode::None).unwrap();
    assert_eq!((last, sequence_of(&store, 1, 0)), (MAX_SEQUENCE - 1, Some(MAX_SEQUENCE - 2)));
    let refused = store.commit(batch(PLAIN, 2, 2, b""), None, SyncMode::None).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::LimitExceeded);
    assert_eq!(store.published_sequence(), last);
}
