//! The record of recent commits under the model checker `shuttle`: writers, groups and transactions in the order of the
//! pipeline, with the record as it ships.
//!
//! ```text
//! RUSTFLAGS="--cfg bolide_shuttle" cargo test --release -p bolide-lsm --lib -- recent_model
//! ```
//!
//! `BOLIDE_MODEL_RUNS` is the number of schedules of each test. Each planted mistake is found within them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bolide_memory::{MemoryBudget, MemoryUse};
use shuttle::sync::atomic::AtomicU64;
use shuttle::thread;

use super::super::sync::Mutex;
use super::*;

/// A mistake of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModelFlaw {
    /// A writer reads the count of transactions before the publication alone.
    CountsBeforePublication,
    /// A group does not record an append before the next request of the group is checked.
    RecordsAtTheEnd,
    /// A transaction takes its snapshot before it raises the count.
    SnapshotBeforeCount,
    /// The end of a transaction removes commits that are not published.
    RemovesUnpublished,
}

struct Model {
    /// The lock of the log, with the last applied number.
    log: Mutex<SequenceNumber>,
    published: AtomicU64,
    recent: RecentCommits,
    flaw: Option<ModelFlaw>,
}

impl Model {
    fn new(flaw: Option<ModelFlaw>) -> Arc<Self> {
        let memory = MemoryBudget::unlimited().holder(MemoryUse::RecentCommits, None);
        let recent = RecentCommits::new(1 << 20, memory);
        Arc::new(Self { log: Mutex::new(0), published: AtomicU64::new(0), recent, flaw })
    }

    fn published(&self) -> SequenceNumber {
        self.published.load(Ordering::SeqCst)
    }

    fn record(&self, sequence: SequenceNumber) {
        self.recent.push(RecentCommit { last: sequence, writes: Vec::new() });
    }

    /// Commits one write alone.
    fn write(&self) {
        let mut log = self.log.lock();
        let was_needed = self.recent.is_needed();
        *log += 1;
        self.published.store(*log, Ordering::SeqCst);
        let is_needed = match self.flaw {
            Some(ModelFlaw::CountsBeforePublication) => was_needed,
            _ => self.recent.is_needed(),
        };
        if is_needed {
            self.record(*log);
        }
    }

    fn begin(&self) -> SequenceNumber {
        if self.flaw == Some(ModelFlaw::SnapshotBeforeCount) {
            let early = self.published();
            return self.recent.register(|| (early, early));
        }
        self.recent.register(|| {
            let snapshot = self.published();
            (snapshot, snapshot)
        })
    }

    fn end(&self, snapshot: SequenceNumber) {
        match self.flaw {
            Some(ModelFlaw::RemovesUnpublished) => self.recent.release(snapshot, || SequenceNumber::MAX),
            _ => self.recent.release(snapshot, || self.published()),
        }
    }

    /// A check in the pipeline: all commits after the snapshot are in the record.
    fn check(&self, snapshot: SequenceNumber, applied: SequenceNumber) {
        let commits = self.recent.between(snapshot, applied).expect("nothing was removed for lack of memory");
        let found: Vec<SequenceNumber> = commits.iter().map(|commit| commit.last()).collect();
        let want: Vec<SequenceNumber> = (snapshot + 1..=applied).collect();
        assert_eq!(found, want, "commits of the record after {snapshot}");
    }

    /// The validation ahead: what is recorded and published is complete.
    fn check_ahead(&self, snapshot: SequenceNumber) {
        // In the order of the validation.
        let published = self.published();
        let through = self.recent.through().min(published);
        if through > snapshot {
            self.check(snapshot, through);
        }
    }

    /// Commits a group: a write of another thread, then a transaction with this snapshot, or a second write that is staged.
    fn commit_group(&self, transaction: Option<SequenceNumber>) {
        let mut log = self.log.lock();
        *log += 1;
        let first = *log;
        let mut is_recorded = false;
        if self.flaw != Some(ModelFlaw::RecordsAtTheEnd) && self.recent.is_needed() {
            self.record(first);
            is_recorded = true;
        }
        if let Some(snapshot) = transaction {
            self.check(snapshot, *log);
        }
        *log += 1;
        self.published.store(*log, Ordering::SeqCst);
        if self.recent.is_needed() {
            if !is_recorded {
                self.record(first);
            }
            self.record(*log);
        }
    }

    fn transact(&self) {
        let snapshot = self.begin();
        self.check_ahead(snapshot);
        self.commit_group(Some(snapshot));
        self.end(snapshot);
    }

    /// A transaction that reads alone: it ends while another thread may commit.
    fn read(&self) {
        let snapshot = self.begin();
        self.check_ahead(snapshot);
        self.end(snapshot);
    }
}

fn threads(flaw: Option<ModelFlaw>) {
    let model = Model::new(flaw);
    let run = |body: fn(&Model)| {
        let model = model.clone();
        thread::spawn(move || body(&model))
    };
    let handles = [
        run(|model| {
            model.commit_group(None);
            model.write();
        }),
        run(|model| (0..2).for_each(|_| model.transact())),
        run(Model::transact),
        run(|model| (0..2).for_each(|_| model.read())),
    ];
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    assert_eq!(model.recent.open_transactions(), 0);
}

fn runs() -> usize {
    std::env::var("BOLIDE_MODEL_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(10_000)
}

#[test]
fn each_transaction_finds_all_commits_after_its_snapshot() {
    shuttle::check_random(|| threads(None), runs());
    shuttle::check_pct(|| threads(None), runs(), 4);
}

#[test]
fn each_planted_mistake_is_found() {
    for flaw in [
        ModelFlaw::CountsBeforePublication,
        ModelFlaw::RecordsAtTheEnd,
        ModelFlaw::SnapshotBeforeCount,
        ModelFlaw::RemovesUnpublished,
    ] {
        let find = || {
            shuttle::check_random(move || threads(Some(flaw)), runs());
            shuttle::check_pct(move || threads(Some(flaw)), runs(), 4);
        };
        assert!(catch_unwind(AssertUnwindSafe(find)).is_err(), "{flaw:?} is not found");
    }
}
