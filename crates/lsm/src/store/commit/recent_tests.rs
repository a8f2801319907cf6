use bolide_storage::{MemVfs, SystemRuntime};
use bolide_table::BlockCache;

use super::*;
use crate::batch::StoreBatch;
use crate::options::{StoreOptions, SyncMode, TreeOptions};
use crate::store::commit::queue::CommitRequest;
use crate::store::commit::{CommitStage, CommitState};
use crate::store::{Store, StoreComponents};

fn open(recent_commit_bytes: usize) -> (Store, TreeId) {
    let mut options = StoreOptions::new("/db");
    options.background_threads = 1;
    options.recent_commit_bytes = recent_commit_bytes;
    let components = StoreComponents {
        vfs: Arc::new(MemVfs::new()),
        runtime: Arc::new(SystemRuntime::default()),
        cache: BlockCache::new(1 << 20),
    };
    let store = Store::open(options, components).unwrap();
    let tree = store.create_tree(TreeOptions::default(), b"").unwrap();
    (store, tree)
}

/// The writes in `(after, through]` as text.
fn writes(store: &Store, after: SequenceNumber, through: SequenceNumber) -> Vec<String> {
    let commits = store.recent_commits().between(after, through).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let show = |write: RecentWrite<'_>| match write {
        RecentWrite::Key { key, .. } => text(key),
        RecentWrite::Range { start, end, .. } => format!("{}..{}", text(start), text(end)),
        RecentWrite::Tree { .. } => "dropped".to_owned(),
    };
    commits.iter().flat_map(|commit| commit.writes().map(show).collect::<Vec<_>>()).collect()
}

#[test]
fn all_paths_of_writes_are_recorded_while_a_transaction_is_open() {
    let (store, tree) = open(1 << 20);
    store.put(tree, b"before", b"", SyncMode::None).unwrap();
    assert_eq!(store.recent_commits().memory_bytes(), 0);
    let transaction = store.transaction_view();
    let from = transaction.view().sequence();
    store.put(tree, b"alone", b"", SyncMode::None).unwrap();
    store.put(tree, b"synced", b"", SyncMode::Always).unwrap();
    let mut batch = StoreBatch::new();
    batch.put(tree, b"in a batch", b"").unwrap();
    batch.put_derived(tree, b"derived", b"", None).unwrap();
    batch.delete(tree, b"deleted").unwrap();
    batch.delete_range(tree, b"a", b"b").unwrap();
    let last = store.commit(batch, None, SyncMode::None).unwrap();
    assert_eq!(writes(&store, from, last), ["alone", "synced", "in a batch", "deleted", "a..b"]);
    assert_eq!(writes(&store, from + 1, last - 1), ["synced"], "a commit lies within a range as a whole");
    let other = store.create_tree(TreeOptions::default(), b"").unwrap();
    store.drop_tree(other).unwrap();
    assert_eq!(writes(&store, last, store.published_sequence()), ["dropped"]);
    assert_eq!(store.recent_commits().through(), store.published_sequence());
    drop(transaction);
    assert_eq!((store.recent_commits().memory_bytes(), store.recent_commits().open_transactions()), (0, 0));
    store.put(tree, b"after", b"", SyncMode::None).unwrap();
    assert_eq!(store.recent_commits().memory_bytes(), 0);
}

#[test]
fn commits_are_retained_for_the_oldest_transaction() {
    let (store, tree) = open(1 << 20);
    let put = |key: &[u8]| store.put(tree, key, b"", SyncMode::None).unwrap();
    let first = store.transaction_view();
    put(b"1");
    let second = store.transaction_view();
    let last = put(b"2");
    drop(first);
    assert_eq!(writes(&store, 0, last), ["2"]);
    let third = store.transaction_view();
    drop(second);
    assert!(writes(&store, 0, last).is_empty());
    drop(third);
}

#[test]
fn an_applied_commit_outlives_a_transaction_that_ends_before_it_is_published() {
    let (store, tree) = open(1 << 20);
    let first = store.transaction_view();
    let recent = store.recent_commits();
    let mut commit = RecentCommit { last: store.published_sequence() + 1, writes: Vec::new() };
    let operation = Operation::Entry { kind: bolide_base::EntryKind::Put, key: b"applied", value: b"" };
    commit.add(&PlacedOperation { tree, sequence: 1, derived: false, retained: false, operation });
    let last = commit.last;
    recent.push(commit);
    drop(first);
    let second = store.transaction_view();
    assert_eq!(writes(&store, second.view().sequence(), last), ["applied"]);
}

#[test]
fn a_transaction_older_than_the_record_is_refused() {
    let (store, tree) = open(1 << 10);
    let transaction = store.transaction_view();
    let from = transaction.view().sequence();
    for number in 0..5_u64 {
        store.put(tree, &number.to_be_bytes(), b"", SyncMode::None).unwrap();
    }
    let recent = store.recent_commits();
    assert_eq!(recent.between(from, u64::MAX).unwrap().len(), 5);
    for number in 0..50_u64 {
        store.put(tree, &number.to_be_bytes(), b"", SyncMode::None).unwrap();
    }
    assert!(recent.memory_bytes() <= 1 << 10);
    assert_eq!(recent.memory.bytes(), recent.memory_bytes() as u64);
    let error = recent.between(from, u64::MAX).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().contains("too old"), "{error}");
    let newer = store.transaction_view();
    assert!(recent.between(newer.view().sequence(), u64::MAX).unwrap().is_empty());
    // One commit over the limit: every open transaction is refused.
    store.put(tree, &[7; 2_000], b"", SyncMode::None).unwrap();
    assert_eq!(recent.memory_bytes(), 0);
    assert!(recent.between(newer.view().sequence(), u64::MAX).is_err());
}

/// Checks that the recent commits after `from` are those of `expected`, and notes that it was called.
struct Expects {
    from: SequenceNumber,
    expected: usize,
}

impl CommitStage for Expects {
    fn check(&mut self, state: &CommitState<'_>, _: &StoreBatch) -> Result<()> {
        let commits = state.recent.between(self.from, state.view.sequence())?;
        if commits.len() == self.expected {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Conflict, format!("{} commits", commits.len())))
    }

    fn stage(&mut self, _: &ReadView, _: &mut StoreBatch) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_check_sees_the_earlier_batches_of_its_group() {
    let (store, tree) = open(1 << 20);
    let transaction = store.transaction_view();
    let from = transaction.view().sequence();
    let request = |key: Option<&[u8]>, stage: Option<Expects>| {
        let mut batch = StoreBatch::new();
        if let Some(key) = key {
            batch.put(tree, key, b"").unwrap();
        }
        let stage = stage.map(|stage| Box::new(stage) as Box<dyn CommitStage>);
        CommitRequest { batch, stage, sync: SyncMode::None }
    };
    let expects = |expected| Some(Expects { from, expected });
    let requests = vec![
        request(Some(b"a"), None),
        request(Some(b"b"), expects(1)),
        request(Some(b"refused"), expects(0)),
        request(None, expects(2)),
        request(Some(b"c"), expects(2)),
    ];
    let results = store.inner.pipeline().commit_group(requests);
    let results: Vec<_> = results.into_iter().map(|result| result.map_err(|error| error.kind())).collect();
    assert_eq!(results, [Ok(1), Ok(2), Err(ErrorKind::Conflict), Ok(2), Ok(3)]);
    assert_eq!(writes(&store, from, 3), ["a", "b", "c"]);
    assert_eq!(store.published_sequence(), 3);
    // A batch without writes is only checked.
    let stage = Box::new(Expects { from, expected: 3 });
    assert_eq!(store.commit(StoreBatch::new(), Some(stage), SyncMode::None).unwrap(), 3);
}

#[test]
fn a_transaction_that_begins_between_append_and_publication_has_the_commit_in_the_record() {
    let (store, tree) = open(1 << 20);
    // A stage of the same group runs after the first append and before the publication.
    struct Begins {
        store: Arc<StoreInner>,
        begun: Arc<Mutex<Option<TransactionView>>>,
    }
    impl CommitStage for Begins {
        fn stage(&mut self, _: &ReadView, _: &mut StoreBatch) -> Result<()> {
            *self.begun.lock() = Some(TransactionView::open(self.store.clone()));
            Ok(())
        }
    }
    let begun = Arc::new(Mutex::new(None));
    let batch = |key: &[u8]| {
        let mut batch = StoreBatch::new();
        batch.put(tree, key, b"").unwrap();
        batch
    };
    let stage = Box::new(Begins { store: store.inner.clone(), begun: begun.clone() });
    let requests = vec![
        CommitRequest { batch: batch(b"a"), stage: None, sync: SyncMode::None },
        CommitRequest { batch: batch(b"b"), stage: Some(stage), sync: SyncMode::None },
    ];
    store.inner.pipeline().commit_group(requests);
    let transaction = begun.lock().take().unwrap();
    assert_eq!(transaction.view().sequence(), 0);
    assert_eq!(writes(&store, 0, 2), ["a", "b"]);
}
