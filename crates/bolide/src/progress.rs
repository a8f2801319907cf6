//! Progress of an index build, shared by its builder, writers and queries.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber};
use parking_lot::{Condvar, Mutex};

use crate::catalog::{BuildPosition, Filled, IndexLife, IndexState};

/// The progress of an index build.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Complete for every view at or after this sequence number; `u64::MAX` while it is being built.
    complete_since: AtomicU64,
    /// Set when the index is dropped: a builder stops.
    cancelled: AtomicBool,
    /// Set once its descriptor durably has the state *damaged*: the tree is emptied before the index is used again, so
    /// writes need not maintain it.
    is_abandoned: AtomicBool,
    records: AtomicU64,
    bytes: AtomicU64,
    entries: AtomicU64,
    malformed: AtomicU64,
    /// The estimated number of records to read.
    expected_records: AtomicU64,
    /// Of an index of kind `next`: bytes of the collection's sstables that have its blocks, and of all.
    carried_bytes: AtomicU64,
    sstable_bytes: AtomicU64,
    /// The work before this open of the database.
    before: BuildPosition,
    attempt: Mutex<Attempt>,
    ended: Condvar,
}

/// One attempt to build an index, of which an open of the database makes at most one.
#[derive(Debug, Default)]
struct Attempt {
    /// The position of an earlier attempt.
    filled: Option<Filled>,
    started_micros: Option<u64>,
    ended_micros: Option<u64>,
    /// The cause of the failure.
    problem: Option<Error>,
    /// The problem is one of the records, or of the index's own files: another attempt would not help.
    given_up: bool,
    /// The problem is one of its files.
    isolated: bool,
    /// The damage because of which the index is built again.
    rebuilt_after: Option<Error>,
}

impl Progress {
    /// Of an index with this descriptor.
    pub(crate) fn of(life: &IndexLife) -> Self {
        let is_ready = life.state == IndexState::Ready;
        let attempt = Attempt {
            filled: life.filled.clone(),
            problem: match life.state {
                IndexState::Failed => Some(Error::new(ErrorKind::InvalidInput, life.problem.clone())),
                IndexState::Damaged => Some(Error::new(ErrorKind::Corruption, life.problem.clone())),
                IndexState::Building | IndexState::Ready => None,
            },
            given_up: matches!(life.state, IndexState::Failed | IndexState::Damaged),
            isolated: life.state == IndexState::Damaged,
            rebuilt_after: (life.state == IndexState::Building && !life.problem.is_empty())
                .then(|| Error::new(ErrorKind::Corruption, life.problem.clone())),
            ..Attempt::default()
        };
        Self {
            complete_since: AtomicU64::new(if is_ready { life.since } else { u64::MAX }),
            cancelled: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
            records: AtomicU64::new(life.done.records),
            bytes: AtomicU64::new(life.done.bytes),
            entries: AtomicU64::new(life.done.entries),
            malformed: AtomicU64::new(0),
            expected_records: AtomicU64::new(life.done.records),
            carried_bytes: AtomicU64::new(0),
            sstable_bytes: AtomicU64::new(0),
            before: life.done,
            attempt: Mutex::new(attempt),
            ended: Condvar::new(),
        }
    }

    /// Of an index that is about to be built.
    pub(crate) fn building() -> Self {
        Self::of(&IndexLife::begins(IndexState::Building))
    }

    /// Of an index that is complete for every view at or after `sequence`.
    pub(crate) fn complete_since(sequence: SequenceNumber) -> Self {
        Self::of(&IndexLife { since: sequence, ..IndexLife::begins(IndexState::Ready) })
    }

    pub(crate) fn state(&self) -> IndexState {
        match self.complete_since.load(Ordering::Acquire) {
            u64::MAX => {
                let attempt = self.attempt.lock();
                match (attempt.isolated, attempt.given_up) {
                    (true, _) => IndexState::Damaged,
                    (false, true) => IndexState::Failed,
                    (false, false) => IndexState::Building,
                }
            }
            _ => IndexState::Ready,
        }
    }

    /// Whether the index is complete for a view at `sequence`.
    #[inline]
    pub(crate) fn serves(&self, sequence: SequenceNumber) -> bool {
        self.complete_since.load(Ordering::Acquire) <= sequence
    }

    /// Lets queries use the index.
    pub(crate) fn publish(&self, since: SequenceNumber) {
        let mut attempt = self.attempt.lock();
        attempt.problem = None;
        attempt.rebuilt_after = None;
        drop(attempt);
        self.complete_since.store(since, Ordering::Release);
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// The position of an earlier attempt.
    pub(crate) fn filled(&self) -> Option<Filled> {
        self.attempt.lock().filled.clone()
    }

    /// Starts an attempt with the estimated number of records to read.
    pub(crate) fn begin(&self, now_micros: u64, expected_records: u64) {
        let mut attempt = self.attempt.lock();
        attempt.started_micros = Some(now_micros);
        attempt.ended_micros = None;
        self.expected_records.store(expected_records, Ordering::Relaxed);
    }

    /// Notes how many bytes of the collection's sstables have its blocks, and the bytes of all.
    pub(crate) fn carry(&self, carried_bytes: u64, sstable_bytes: u64) {
        self.carried_bytes.store(carried_bytes, Ordering::Relaxed);
        self.sstable_bytes.store(sstable_bytes, Ordering::Relaxed);
    }

    /// Counts committed work; returns the sum.
    pub(crate) fn count(&self, more: BuildPosition) -> BuildPosition {
        let add = |sum: &AtomicU64, more: u64| sum.fetch_add(more, Ordering::Relaxed) + more;
        BuildPosition {
            records: add(&self.records, more.records),
            bytes: add(&self.bytes, more.bytes),
            entries: add(&self.entries, more.entries),
        }
    }

    /// Counts a malformed record.
    pub(crate) fn count_malformed(&self) {
        self.malformed.fetch_add(1, Ordering::Relaxed);
    }

    /// Resets the counts.
    pub(crate) fn start_over(&self) {
        for sum in [&self.records, &self.bytes, &self.entries, &self.malformed] {
            sum.store(0, Ordering::Relaxed);
        }
        self.attempt.lock().filled = None;
    }

    /// The work in this open of the database and before.
    pub(crate) fn done(&self) -> BuildPosition {
        BuildPosition {
            records: self.records.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            entries: self.entries.load(Ordering::Relaxed),
        }
    }

    /// Ends the attempt, successfully or not.
    pub(crate) fn end(&self, now_micros: u64, outcome: &Result<()>) {
        let mut attempt = self.attempt.lock();
        attempt.ended_micros = Some(now_micros);
        attempt.problem = outcome.as_ref().err().cloned();
        attempt.given_up |= attempt.problem.as_ref().is_some_and(is_about_records);
        drop(attempt);
        self.ended.notify_all();
    }

    /// Starts over as an index that is being built.
    pub(crate) fn build_again(&self) {
        self.start_over();
        let mut attempt = self.attempt.lock();
        attempt.given_up = false;
        attempt.isolated = false;
        attempt.rebuilt_after = attempt.problem.take();
        self.complete_since.store(u64::MAX, Ordering::Release);
    }

    /// Stops its maintenance by writes. Its descriptor must durably have the state *damaged*.
    pub(crate) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Release);
    }

    /// Whether writes may skip it.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Acquire)
    }

    /// Excludes the index from all use while the database is open: its files are damaged or unavailable.
    pub(crate) fn isolate(&self, problem: Error) {
        let mut attempt = self.attempt.lock();
        attempt.problem = Some(problem);
        attempt.given_up = true;
        attempt.isolated = true;
        self.complete_since.store(u64::MAX, Ordering::Release);
    }

    /// Why it was isolated, if it was.
    pub(crate) fn damage(&self) -> Option<Error> {
        let attempt = self.attempt.lock();
        attempt.problem.clone().filter(|_| attempt.isolated)
    }

    /// The damage because of which it was isolated or is built again.
    pub(crate) fn damage_or_cause(&self) -> Option<Error> {
        let attempt = self.attempt.lock();
        let damage = attempt.problem.clone().filter(|_| attempt.isolated);
        damage.or_else(|| attempt.rebuilt_after.clone())
    }

    /// Notes why the build of its replacement index failed.
    pub(crate) fn note_problem(&self, problem: Error) {
        self.attempt.lock().problem = Some(problem);
    }

    /// Waits until the attempt has ended. Returns its result.
    pub(crate) fn wait(&self) -> Result<()> {
        let mut attempt = self.attempt.lock();
        while attempt.ended_micros.is_none() {
            self.ended.wait(&mut attempt);
        }
        attempt.problem.clone().map_or(Ok(()), Err)
    }

    /// Whether the attempt has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.attempt.lock().ended_micros.is_some()
    }

    pub(crate) fn problem(&self) -> Option<Error> {
        self.attempt.lock().problem.clone()
    }

    /// The public progress report.
    pub(crate) fn figures(&self, now_micros: u64) -> BuildProgress {
        let state = self.state();
        let (done, attempt) = (self.done(), self.attempt.lock());
        let elapsed = attempt
            .started_micros
            .map_or(0, |started| attempt.ended_micros.unwrap_or(now_micros).saturating_sub(started));
        let expected = self.expected_records.load(Ordering::Relaxed).max(done.records);
        BuildProgress {
            state,
            records: done.records,
            expected_records: if state == IndexState::Ready { done.records } else { expected },
            bytes: done.bytes,
            entries: done.entries,
            malformed: self.malformed.load(Ordering::Relaxed),
            elapsed: Duration::from_micros(elapsed),
            records_before: self.before.records,
            bytes_before: self.before.bytes,
            carried_bytes: self.carried_bytes.load(Ordering::Relaxed),
            sstable_bytes: self.sstable_bytes.load(Ordering::Relaxed),
            at_work: attempt.started_micros.is_some() && attempt.ended_micros.is_none(),
        }
    }
}

/// Whether a build failed because of the content of the records, so that another attempt does not help.
pub(crate) fn is_about_records(problem: &Error) -> bool {
    matches!(problem.kind(), ErrorKind::InvalidInput | ErrorKind::LimitExceeded)
}

/// The progress of an index build: returned by [`IndexBuild::progress`](crate::IndexBuild::progress) and
/// [`IndexInfo::progress`](crate::IndexInfo::progress).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuildProgress {
    /// Whether queries use it yet.
    pub state: IndexState,
    /// Records that were read and whose entries are in the index, including those of earlier opens of the database.
    /// Records written since the start of the build are not counted: their writes add their entries.
    pub records: u64,
    /// The estimated number of records to read: replaced versions count until a compaction drops them, so this may be
    /// too large.
    pub expected_records: u64,
    /// Bytes of the keys and records that were read.
    pub bytes: u64,
    /// Entries that were added for them.
    pub entries: u64,
    /// Malformed records among those that this open of the database read: they have no entries, and
    /// [`Db::check`](crate::Db::check) names them.
    pub malformed: u64,
    /// Time since the start of the build in this open of the database, or its duration.
    pub elapsed: Duration,
    /// Records among [`records`](Self::records) that an earlier open of the database read.
    pub records_before: u64,
    /// Bytes among [`bytes`](Self::bytes) that an earlier open of the database read.
    pub bytes_before: u64,
    /// Of an index of kind `next`: bytes of the collection's sstables that have its blocks. Queries use such an index
    /// at once, and read the other sstables completely until the build or compactions rewrite these. 0 for other kinds.
    pub carried_bytes: u64,
    /// Of an index of kind `next`: bytes of all sstables of the collection. 0 for other kinds.
    pub sstable_bytes: u64,
    /// Whether it is being filled in this open of the database, or sstables are being rewritten for it.
    pub at_work: bool,
}

impl BuildProgress {
    /// The completed share, from 0 to 1; 1 for an index that is ready. Of an index of kind `next`, which is ready at
    /// once, the share of bytes of sstables that have its blocks.
    pub fn share(&self) -> f64 {
        match (self.state, self.expected_records) {
            (IndexState::Ready, _) if self.sstable_bytes == 0 => 1.0,
            (IndexState::Ready, _) => self.carried_bytes as f64 / self.sstable_bytes as f64,
            (_, 0) => 0.0,
            (_, expected) => (self.records as f64 / expected as f64).min(1.0),
        }
    }

    /// Records read per second, in this open of the database; 0 before its start.
    pub fn records_per_second(&self) -> f64 {
        per_second(self.records.saturating_sub(self.records_before), self.elapsed)
    }

    /// Bytes of records read per second, in this open of the database; 0 before its start.
    pub fn bytes_per_second(&self) -> f64 {
        per_second(self.bytes.saturating_sub(self.bytes_before), self.elapsed)
    }
}

fn per_second(count: u64, elapsed: Duration) -> f64 {
    let seconds = elapsed.as_secs_f64();
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}
