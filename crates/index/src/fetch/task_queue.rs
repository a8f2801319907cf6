//! Fetching from a shared queue: every thread takes the next few records until none are left.
//!
//! Records take very different times, from a memtable's search to several reads of a file; whoever was given a
//! fixed share could be done long before the others. So no thread is given one (Perseid §4.4.2). The caller is
//! one of the threads, and never waits while there is something to take: if nobody comes to help, it does
//! everything.
//!
//! ```text
//! caller: lists keys ─> invites ─> takes and fetches, as everybody ─> waits for what others took ─> sorts by place
//! ```
//!
//! Whoever works holds the input for reading; the caller takes the input away in the end, and so waits for exactly those
//! who still work. Afterwards a late helper finds nothing, and nothing of the view lives on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bolide_base::{Error, Result, SequenceNumber};
use bolide_lsm::store::KnownWrite;
use bolide_table::ReadCounters;
use parking_lot::{Mutex, RwLock};

use super::manner::{Manner, held_bytes};
use super::pool::{FetchPool, Help};
use crate::source::TreeSource;

/// Records that are taken at once, at most: they wait for memory together.
const LARGEST_TASK: usize = 32;
/// Tasks for each thread, at least, so that one which meets slow records leaves the others to the rest.
const TASKS_A_THREAD: usize = 4;

/// What is to be fetched, and from where.
struct Input<T> {
    table: T,
    manner: Manner,
    keys: Vec<u8>,
    /// Where each key ends in `keys`, and the number of its write.
    writes: Vec<(usize, SequenceNumber)>,
    rows_a_task: usize,
    /// Bytes of fetched records after which no more are taken.
    most_held: usize,
}

/// A list of records with what became of it so far.
struct Batch<T: TreeSource> {
    input: RwLock<Option<Input<T>>>,
    /// The next task.
    next: AtomicUsize,
    held: AtomicUsize,
    /// Set by the first error.
    failed: AtomicBool,
    outcome: Mutex<Outcome<T::Value>>,
}

/// What became of the tasks.
pub(crate) struct Outcome<V> {
    /// The first place of each finished task, with its records.
    pub(crate) done: Vec<(usize, Vec<Option<V>>)>,
    /// Bytes of these records, with what they pin.
    pub(crate) held: usize,
    /// Threads that fetched something, beside the caller.
    pub(crate) helpers: u64,
    /// Records that they looked for.
    pub(crate) rows_by_helpers: u64,
    /// What they read.
    reads: ReadCounters,
    error: Option<Error>,
}

impl<V> Outcome<V> {
    fn of_tasks(tasks: usize) -> Self {
        Self {
            done: Vec::with_capacity(tasks),
            held: 0,
            helpers: 0,
            rows_by_helpers: 0,
            reads: ReadCounters::default(),
            error: None,
        }
    }
}

impl<T: TreeSource> Input<T> {
    /// Task number `task`: its first place and its writes; `None` behind the last.
    fn task(&self, task: usize) -> Option<(usize, Vec<KnownWrite<'_>>)> {
        let first = task.checked_mul(self.rows_a_task)?;
        let writes = self.writes.get(first..)?;
        let mut start =
            first.checked_sub(1).and_then(|before| self.writes.get(before)).map_or(0, |(end, _)| *end);
        let known = writes.iter().take(self.rows_a_task).map(|&(end, sequence)| {
            let key = self.keys.get(start..end).unwrap_or_default();
            start = end;
            KnownWrite { key, sequence }
        });
        let known: Vec<_> = known.collect();
        (!known.is_empty()).then_some((first, known))
    }
}

impl<T: TreeSource> Batch<T> {
    /// Takes tasks until none are left. Returns how many records it looked for.
    fn work(&self, input: &Input<T>) -> u64 {
        let mut rows = 0;
        while !self.failed.load(Ordering::Relaxed) && self.held.load(Ordering::Relaxed) <= input.most_held {
            let Some((first, writes)) = input.task(self.next.fetch_add(1, Ordering::Relaxed)) else { break };
            let mut found = Vec::with_capacity(writes.len());
            match input.manner.fetch(&input.table, &writes, &mut found) {
                Ok(()) => {
                    rows += writes.len() as u64;
                    self.held.fetch_add(held_bytes(&found), Ordering::Relaxed);
                    self.outcome.lock().done.push((first, found));
                }
                Err(error) => self.fail(error),
            }
        }
        rows
    }

    /// As [`work`](Self::work); a panic is the error of the fetch, also one of the caller: the others stop then, and
    /// the input goes.
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

impl<T> Help for Batch<T>
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

/// Fetches `writes` in this thread and up to `threads - 1` others of `pool`, until `most_held` bytes of records wait. What
/// the others read is counted as read by this thread.
///
/// # Errors
/// The first one that any of the threads met; `Internal` where one panicked.
pub(crate) fn fetch<T>(
    pool: &FetchPool,
    threads: usize,
    table: &T,
    manner: Manner,
    writes: &[KnownWrite<'_>],
    most_held: usize,
) -> Result<Outcome<T::Value>>
where
    T: TreeSource + Clone + Send + Sync + 'static,
    T::Value: Send,
{
    let rows_a_task = (writes.len() / (TASKS_A_THREAD * threads.max(1))).clamp(1, LARGEST_TASK);
    let mut keys = Vec::with_capacity(writes.iter().map(|write| write.key.len()).sum());
    let mut listed = Vec::with_capacity(writes.len());
    for write in writes {
        keys.extend_from_slice(write.key);
        listed.push((keys.len(), write.sequence));
    }
    let tasks = writes.len().div_ceil(rows_a_task);
    let input = Input { table: table.clone(), manner, keys, writes: listed, rows_a_task, most_held };
    let batch = Arc::new(Batch {
        input: RwLock::new(Some(input)),
        next: AtomicUsize::new(0),
        held: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
        outcome: Mutex::new(Outcome::of_tasks(tasks)),
    });
    let helpers = threads.saturating_sub(1).min(tasks.saturating_sub(1));
    let work: Arc<dyn Help> = batch.clone();
    pool.invite(&work, helpers);
    drop(work);
    if let Some(input) = &*batch.input.read() {
        batch.work_or_fail(input);
    }
    // Waits for those who still work.
    drop(batch.input.write().take());
    let mut outcome = std::mem::replace(&mut *batch.outcome.lock(), Outcome::of_tasks(0));
    if let Some(error) = outcome.error {
        return Err(error);
    }
    ReadCounters::count(|counters| *counters += outcome.reads);
    outcome.held = batch.held.load(Ordering::Relaxed);
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

    /// What a [`Strange`] table does when it is asked.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Does {
        Answers,
        /// Answers, and late in every thread but the caller's, or in the caller's.
        Dawdles {
            caller: bool,
        },
        /// Fails for the key of this number.
        Fails(u64),
        /// Panics in every thread but the caller's.
        Panics,
        /// Panics in the caller's thread.
        CallerPanics,
    }

    /// The model's table with something strange about it.
    #[derive(Debug, Clone)]
    struct Strange {
        table: ModelTree,
        does: Does,
        caller: ThreadId,
    }

    impl Strange {
        fn act(&self, key: &[u8]) -> Result<()> {
            let is_caller = thread::current().id() == self.caller;
            match self.does {
                Does::Dawdles { caller } if caller == is_caller => {
                    (0..200).for_each(|_| thread::yield_now());
                    Ok(())
                }
                Does::Fails(number) if key == name(number) => {
                    Err(Error::corruption("a file", 7, "a broken block"))
                }
                Does::Panics if !is_caller => panic!("a helper panics"),
                Does::CallerPanics if is_caller => panic!("the caller panics"),
                _ => Ok(()),
            }
        }
    }

    impl TreeSource for Strange {
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
    fn table(does: Does) -> Strange {
        let view = ModelView::default().at(10_000);
        for number in 0..RECORDS {
            view.write(TABLE, &name(number), Some(format!("{number:x>100}").as_bytes()), 1 + number);
            if number % 3 == 0 {
                view.write(TABLE, &name(number), Some(b"newer"), 1_000 + number);
            }
        }
        Strange { table: view.tree(TABLE).unwrap(), does, caller: thread::current().id() }
    }

    fn fetch_all(
        pool: &FetchPool,
        threads: usize,
        table: &Strange,
        most_held: usize,
    ) -> Result<Outcome<Vec<u8>>> {
        let keys: Vec<Vec<u8>> = (0..RECORDS).map(name).collect();
        let writes: Vec<KnownWrite<'_>> =
            keys.iter().zip(1..).map(|(key, sequence)| KnownWrite { key, sequence }).collect();
        fetch(pool, threads, table, Manner::NotOlder, &writes, most_held)
    }

    fn pool() -> FetchPool {
        FetchPool::new(Arc::new(SystemRuntime::new()))
    }

    #[test]
    fn records_come_back_in_their_places_whoever_fetched_them() {
        let pool = pool();
        let mut rng = SimRng::new(1);
        let mut helped = 0;
        for _ in 0..300 {
            let threads = 1 + rng.below(5) as usize;
            let does = match rng.below(3) {
                0 => Does::Answers,
                1 => Does::Dawdles { caller: true },
                _ => Does::Dawdles { caller: false },
            };
            let outcome = fetch_all(&pool, threads, &table(does), usize::MAX).unwrap();
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
    fn an_error_of_any_thread_is_the_answer() {
        let pool = pool();
        for number in (0..RECORDS).step_by(7) {
            let Err(error) = fetch_all(&pool, 3, &table(Does::Fails(number)), usize::MAX) else {
                panic!("the error at {number} got lost");
            };
            assert_eq!(error.kind(), ErrorKind::Corruption);
        }
        assert!(fetch_all(&pool, 3, &table(Does::Answers), usize::MAX).is_ok());
    }

    #[test]
    fn a_panic_of_a_helper_is_an_error() {
        let pool = pool();
        let mut failed = 0;
        // The caller may be done before a helper comes.
        for _ in 0..10_000 {
            match fetch_all(&pool, 4, &table(Does::Panics), usize::MAX) {
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
        panic!("no helper came");
    }

    #[test]
    fn a_panic_of_the_caller_is_an_error_and_lets_go_of_the_view() {
        let pool = pool();
        let mut failed = 0;
        for _ in 0..200 {
            let strange = table(Does::CallerPanics);
            let before = strange.table.handles();
            // Helpers may be so fast that they leave nothing to the caller.
            match fetch_all(&pool, 3, &strange, usize::MAX) {
                Err(error) => {
                    assert!(error.message().ends_with("panicked: the caller panics"), "{error:?}");
                    failed += 1;
                }
                Ok(outcome) => assert!(outcome.helpers > 0),
            }
            assert_eq!(strange.table.handles(), before);
        }
        assert!(failed > 0);
    }

    #[test]
    fn no_more_are_taken_once_enough_wait() {
        let pool = pool();
        let outcome = fetch_all(&pool, 2, &table(Does::Answers), 20 << 10).unwrap();
        let rows: usize = outcome.done.iter().map(|(_, found)| found.len()).sum();
        assert!(outcome.held > 20 << 10 && rows < 150, "{rows} rows, {} bytes", outcome.held);
        let all = fetch_all(&pool, 2, &table(Does::Answers), usize::MAX).unwrap();
        assert_eq!(all.done.iter().map(|(_, found)| found.len() as u64).sum::<u64>(), RECORDS);
    }

    #[test]
    fn nothing_of_the_view_lives_on() {
        let pool = pool();
        for _ in 0..200 {
            let strange = table(Does::Dawdles { caller: false });
            let before = strange.table.handles();
            fetch_all(&pool, 4, &strange, usize::MAX).unwrap();
            assert_eq!(strange.table.handles(), before);
        }
    }
}
