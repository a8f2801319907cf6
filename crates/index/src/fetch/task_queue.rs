//! Fetching from a shared queue: every thread takes the next few records until none are left.
//!
//! The time of a record varies from a memtable search to several file reads, so threads with fixed shares would finish at
//! very different times. So no thread has a fixed share (Perseid §4.4.2). The caller is one of the threads, and never waits
//! while there are tasks: without helpers it does all of them.
//!
//! ```text
//! caller: lists keys ─> invites ─> takes and fetches ─> waits for tasks of helpers ─> sorts by position
//! ```
//!
//! A working thread locks the input for reading. The caller removes the input at the end, and so waits for exactly the
//! working threads. A late helper finds no input, and the view is released.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bolide_base::{Error, Result, SequenceNumber};
use bolide_lsm::store::KnownWrite;
use bolide_table::ReadCounters;
use parking_lot::{Mutex, RwLock};

use super::fetch_mode::{FetchMode, pinned_bytes};
use super::pool::{FetchPool, Help};
use crate::source::TreeSource;

/// Maximum records of a task: their cache misses overlap.
const MAX_TASK_RECORDS: usize = 32;
/// Minimum tasks for each thread, so that the other threads take over the tasks of one with slow records.
const TASKS_PER_THREAD: usize = 4;

/// The records to fetch and their table.
struct Input<T> {
    table: T,
    mode: FetchMode,
    keys: Vec<u8>,
    /// For each key its end in `keys`, and the sequence number of its write.
    writes: Vec<(usize, SequenceNumber)>,
    rows_per_task: usize,
    /// Bytes of fetched records after which no more are taken.
    max_pinned_bytes: usize,
}

/// A list of records with its progress.
struct FetchBatch<T: TreeSource> {
    input: RwLock<Option<Input<T>>>,
    /// The next task.
    next: AtomicUsize,
    pinned_bytes: AtomicUsize,
    /// Set by the first error.
    failed: AtomicBool,
    outcome: Mutex<FetchOutcome<T::Value>>,
}

/// The results of the tasks.
pub(crate) struct FetchOutcome<V> {
    /// The first position of each finished task, with its records.
    pub(crate) done: Vec<(usize, Vec<Option<V>>)>,
    /// Bytes of these records, with what they pin.
    pub(crate) pinned_bytes: usize,
    /// Helper threads that fetched something.
    pub(crate) helpers: u64,
    /// Records that the helpers searched.
    pub(crate) rows_by_helpers: u64,
    /// Read counters of the helpers.
    reads: ReadCounters,
    error: Option<Error>,
}

impl<V> FetchOutcome<V> {
    fn of_tasks(tasks: usize) -> Self {
        Self {
            done: Vec::with_capacity(tasks),
            pinned_bytes: 0,
            helpers: 0,
            rows_by_helpers: 0,
            reads: ReadCounters::default(),
            error: None,
        }
    }
}

impl<T: TreeSource> Input<T> {
    /// Task number `task`: its first position and its writes; `None` past the last.
    fn task(&self, task: usize) -> Option<(usize, Vec<KnownWrite<'_>>)> {
        let first = task.checked_mul(self.rows_per_task)?;
        let writes = self.writes.get(first..)?;
        let mut start =
            first.checked_sub(1).and_then(|before| self.writes.get(before)).map_or(0, |(end, _)| *end);
        let known = writes.iter().take(self.rows_per_task).map(|&(end, sequence)| {
            let key = self.keys.get(start..end).unwrap_or_default();
            start = end;
            KnownWrite { key, sequence }
        });
        let known: Vec<_> = known.collect();
        (!known.is_empty()).then_some((first, known))
    }
}

impl<T: TreeSource> FetchBatch<T> {
    /// Does tasks until none are left. Returns the number of records that it searched.
    fn work(&self, input: &Input<T>) -> u64 {
        let mut rows = 0;
        let has_memory = || self.pinned_bytes.load(Ordering::Relaxed) <= input.max_pinned_bytes;
        while !self.failed.load(Ordering::Relaxed) && has_memory() {
            let Some((first, writes)) = input.task(self.next.fetch_add(1, Ordering::Relaxed)) else { break };
            let mut found = Vec::with_capacity(writes.len());
            match input.mode.fetch(&input.table, &writes, &mut found) {
                Ok(()) => {
                    rows += writes.len() as u64;
                    self.pinned_bytes.fetch_add(pinned_bytes(&found), Ordering::Relaxed);
                    self.outcome.lock().done.push((first, found));
                }
                Err(error) => self.fail(error),
            }
        }
        rows
    }

    /// As [`work`](Self::work), but a panic of any thread becomes the error of the fetch: the other threads stop, and the
    /// input is released.
    fn work_or_fail(&self, input: &Input<T>) -> u64 {
        catch_unwind(AssertUnwindSafe(|| self.work(input))).unwrap_or_else(|panic| {
            self.fail(Error::panicked("a thread that fetched records", &*panic));
            0
        })
    }

    fn fail(&self, error: Error) {
        self.failed.store(true, Ordering::Relaxed);
        self.outcome.lock().error.get_or_insert(error);
    }
}

impl<T> Help for FetchBatch<T>
where
    T: TreeSource + Send + Sync,
    T::Value: Send,
{
    fn help(&self) {
        let input = self.input.read();
        let Some(input) = &*input else { return };
        let before = ReadCounters::of_this_thread();
        let rows = self.work_or_fail(input);
        let mut outcome = self.outcome.lock();
        outcome.reads += ReadCounters::of_this_thread() - before;
        outcome.helpers += u64::from(rows > 0);
        outcome.rows_by_helpers += rows;
    }
}

/// Fetches `writes` in this thread and up to `threads - 1` threads of `pool`, until fetched records pin more than
/// `max_pinned_bytes`. The reads of all threads are added to the counters of this thread.
///
/// # Errors
/// The first error of any thread; `Internal` if one panics.
pub(crate) fn fetch<T>(
    pool: &FetchPool,
    threads: usize,
    table: &T,
    mode: FetchMode,
    writes: &[KnownWrite<'_>],
    max_pinned_bytes: usize,
) -> Result<FetchOutcome<T::Value>>
where
    T: TreeSource + Clone + Send + Sync + 'static,
    T::Value: Send,
{
    let rows_per_task = (writes.len() / (TASKS_PER_THREAD * threads.max(1))).clamp(1, MAX_TASK_RECORDS);
    let mut keys = Vec::with_capacity(writes.iter().map(|write| write.key.len()).sum());
    let mut listed = Vec::with_capacity(writes.len());
    for write in writes {
        keys.extend_from_slice(write.key);
        listed.push((keys.len(), write.sequence));
    }
    let tasks = writes.len().div_ceil(rows_per_task);
    let input = Input { table: table.clone(), mode, keys, writes: listed, rows_per_task, max_pinned_bytes };
    let batch = Arc::new(FetchBatch {
        input: RwLock::new(Some(input)),
        next: AtomicUsize::new(0),
        pinned_bytes: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
        outcome: Mutex::new(FetchOutcome::of_tasks(tasks)),
    });
    let helpers = threads.saturating_sub(1).min(tasks.saturating_sub(1));
    let work: Arc<dyn Help> = batch.clone();
    pool.invite(&work, helpers);
    drop(work);
    if let Some(input) = &*batch.input.read() {
        batch.work_or_fail(input);
    }
    // Waits for the working threads.
    drop(batch.input.write().take());
    let mut outcome = std::mem::replace(&mut *batch.outcome.lock(), FetchOutcome::of_tasks(0));
    if let Some(error) = outcome.error {
        return Err(error);
    }
    ReadCounters::count(|counters| *counters += outcome.reads);
    outcome.pinned_bytes = batch.pinned_bytes.load(Ordering::Relaxed);
    outcome.done.sort_unstable_by_key(|(first, _)| *first);
    let rows = outcome.done.iter().map(|(_, found)| found.len() as u64).sum();
    pool.note(rows, outcome.rows_by_helpers);
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use std::thread::{self, ThreadId};

    use bolide_base::ErrorKind;
    use bolide_lsm::store::LiteVerdict;
    use bolide_storage::{SimRng, SystemRuntime};

    use super::*;
    use crate::model::{ModelCursor, ModelTree, ModelView, TABLE};
    use crate::source::ReadSource;

    /// The behaviour of a [`FaultyTable`] table.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Behaviour {
        Returns,
        /// Returns late in the caller's thread, or in all others.
        Delays {
            caller: bool,
        },
        /// Fails for the key of this number.
        Fails(u64),
        /// Panics in every thread but the caller's.
        Panics,
        /// Panics in the caller's thread.
        CallerPanics,
    }

    /// The model's table with injected behaviour.
    #[derive(Debug, Clone)]
    struct FaultyTable {
        table: ModelTree,
        behaviour: Behaviour,
        caller: ThreadId,
    }

    impl FaultyTable {
        fn act(&self, key: &[u8]) -> Result<()> {
            let is_caller = thread::current().id() == self.caller;
            match self.behaviour {
                Behaviour::Delays { caller } if caller == is_caller => {
                    (0..200).for_each(|_| thread::yield_now());
                    Ok(())
                }
                Behaviour::Fails(number) if key == name(number) => {
                    Err(Error::corruption("a file", 7, "a broken block"))
                }
                Behaviour::Panics if !is_caller => panic!("a helper panics"),
                Behaviour::CallerPanics if is_caller => panic!("the caller panics"),
                _ => Ok(()),
            }
        }
    }

    impl TreeSource for FaultyTable {
        type Value = Vec<u8>;
        type Cursor = ModelCursor;
        type Versions = ModelCursor;

        fn get(&self, key: &[u8]) -> Result<Option<(SequenceNumber, Vec<u8>)>> {
            self.act(key)?;
            self.table.get(key)
        }

        fn newest_sequence(&self, key: &[u8]) -> Result<Option<SequenceNumber>> {
            self.table.newest_sequence(key)
        }

        fn get_lite(&self, key: &[u8], written: SequenceNumber) -> LiteVerdict {
            self.table.get_lite(key, written)
        }

        fn covered_by_range_tombstone(&self, key: &[u8], sequence: SequenceNumber) -> bool {
            self.table.covered_by_range_tombstone(key, sequence)
        }

        fn estimate(&self, low: &[u8], end: Option<&[u8]>) -> Result<u64> {
            self.table.estimate(low, end)
        }

        fn cursor(&self, low: &[u8], end: Option<&[u8]>) -> Result<ModelCursor> {
            self.table.cursor(low, end)
        }

        fn versions(&self, low: &[u8], end: Option<&[u8]>) -> Result<ModelCursor> {
            self.table.versions(low, end)
        }
    }

    fn name(number: u64) -> Vec<u8> {
        format!("key{number:05}").into_bytes()
    }

    const RECORDS: u64 = 300;

    /// A table in which every third record was written twice.
    fn table(behaviour: Behaviour) -> FaultyTable {
        let view = ModelView::default().at(10_000);
        for number in 0..RECORDS {
            view.write(TABLE, &name(number), Some(format!("{number:x>100}").as_bytes()), 1 + number);
            if number % 3 == 0 {
                view.write(TABLE, &name(number), Some(b"newer"), 1_000 + number);
            }
        }
        FaultyTable { table: view.tree(TABLE).unwrap(), behaviour, caller: thread::current().id() }
    }

    fn fetch_all(
        pool: &FetchPool,
        threads: usize,
        table: &FaultyTable,
        max_pinned_bytes: usize,
    ) -> Result<FetchOutcome<Vec<u8>>> {
        let keys: Vec<Vec<u8>> = (0..RECORDS).map(name).collect();
        let writes: Vec<KnownWrite<'_>> =
            keys.iter().zip(1..).map(|(key, sequence)| KnownWrite { key, sequence }).collect();
        fetch(pool, threads, table, FetchMode::NotOlder, &writes, max_pinned_bytes)
    }

    fn pool() -> FetchPool {
        FetchPool::new(Arc::new(SystemRuntime::new()))
    }

    #[test]
    fn records_return_in_their_positions_from_any_thread() {
        let pool = pool();
        let mut rng = SimRng::new(1);
        let mut helped = 0;
        for _ in 0..300 {
            let threads = 1 + rng.below(5) as usize;
            let behaviour = match rng.below(3) {
                0 => Behaviour::Returns,
                1 => Behaviour::Delays { caller: true },
                _ => Behaviour::Delays { caller: false },
            };
            let outcome = fetch_all(&pool, threads, &table(behaviour), usize::MAX).unwrap();
            assert!(outcome.helpers < threads as u64);
            helped += outcome.rows_by_helpers;
            let mut place = 0;
            for (first, found) in outcome.done {
                assert_eq!(first, place);
                for record in found {
                    let expected = (place % 3 != 0).then(|| format!("{place:x>100}").into_bytes());
                    assert_eq!(record, expected, "at {place}");
                    place += 1;
                }
            }
            assert_eq!(place as u64, RECORDS);
        }
        assert!(helped > 0 && pool.stats().rows_by_helpers == helped, "{pool:?}");
        assert_eq!(pool.stats().rows, 300 * RECORDS);
        assert!(pool.stats().threads <= 4, "{pool:?}");
    }

    #[test]
    fn an_error_of_any_thread_is_returned() {
        let pool = pool();
        for number in (0..RECORDS).step_by(7) {
            let Err(error) = fetch_all(&pool, 3, &table(Behaviour::Fails(number)), usize::MAX) else {
                panic!("no error at {number}");
            };
            assert_eq!(error.kind(), ErrorKind::Corruption);
        }
        assert!(fetch_all(&pool, 3, &table(Behaviour::Returns), usize::MAX).is_ok());
    }

    #[test]
    fn a_panic_of_a_helper_is_an_error() {
        let pool = pool();
        let mut failed = 0;
        // The caller may finish before a helper starts.
        for _ in 0..10_000 {
            match fetch_all(&pool, 4, &table(Behaviour::Panics), usize::MAX) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Internal);
                    failed += 1;
                }
                Ok(outcome) => assert_eq!(outcome.helpers, 0),
            }
            if failed == 3 {
                return;
            }
        }
        panic!("no helper started");
    }

    #[test]
    fn a_panic_of_the_caller_is_an_error_and_releases_the_view() {
        let pool = pool();
        let mut failed = 0;
        for _ in 0..200 {
            let faulty = table(Behaviour::CallerPanics);
            let before = faulty.table.handles();
            // Fast helpers may leave no task to the caller.
            match fetch_all(&pool, 3, &faulty, usize::MAX) {
                Err(error) => {
                    assert!(error.message().ends_with("panicked: the caller panics"), "{error:?}");
                    failed += 1;
                }
                Ok(outcome) => assert!(outcome.helpers > 0),
            }
            assert_eq!(faulty.table.handles(), before);
        }
        assert!(failed > 0);
    }

    #[test]
    fn no_tasks_are_started_beyond_the_memory_bound() {
        let pool = pool();
        let outcome = fetch_all(&pool, 2, &table(Behaviour::Returns), 20 << 10).unwrap();
        let rows: usize = outcome.done.iter().map(|(_, found)| found.len()).sum();
        assert!(outcome.pinned_bytes > 20 << 10 && rows < 150, "{rows} rows, {} bytes", outcome.pinned_bytes);
        let all = fetch_all(&pool, 2, &table(Behaviour::Returns), usize::MAX).unwrap();
        assert_eq!(all.done.iter().map(|(_, found)| found.len() as u64).sum::<u64>(), RECORDS);
    }

    #[test]
    fn a_fetch_releases_the_view() {
        let pool = pool();
        for _ in 0..200 {
            let faulty = table(Behaviour::Delays { caller: false });
            let before = faulty.table.handles();
            fetch_all(&pool, 4, &faulty, usize::MAX).unwrap();
            assert_eq!(faulty.table.handles(), before);
        }
    }
}
