//! Threads that help lookups to fetch records.
//!
//! ```text
//! lookup ── invites ──> bounded queue of invitations ──> threads, each takes the next one
//! ```
//!
//! An invitation is a hint: the lookup does the work itself, and each thread that accepts does a part of it. So a full
//! queue, busy threads, and threads that cannot be started cost time and nothing else.
//!
//! The first invitations start the threads through the [`Runtime`]; they stay. Dropping the pool ends and joins
//! them.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bolide_storage::{JoinHandle, Runtime};
use parking_lot::{Condvar, Mutex};

/// Maximum threads of a pool.
pub const MAX_FETCH_THREADS: usize = 64;
/// Maximum queued invitations for each thread: more would be accepted too late to help.
const INVITATIONS_PER_THREAD: usize = 2;

/// Work that several threads can do together.
pub(crate) trait Help: Send + Sync {
    /// Does tasks until none is left.
    fn help(&self);
}

/// Threads that fetch records for lookups, shared by all lookups of a database.
pub struct FetchPool {
    runtime: Arc<dyn Runtime>,
    shared: Arc<PoolShared>,
    threads: Mutex<Vec<Box<dyn JoinHandle>>>,
}

#[derive(Default)]
struct PoolShared {
    state: Mutex<PoolState>,
    arrived: Condvar,
    counters: PoolCounters,
}

#[derive(Default)]
struct PoolState {
    invitations: VecDeque<Arc<dyn Help>>,
    /// Threads that wait for an invitation.
    idle: usize,
    stopping: bool,
}

#[derive(Default)]
struct PoolCounters {
    rows: AtomicU64,
    rows_by_helpers: AtomicU64,
}

/// Statistics of a [`FetchPool`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FetchPoolStats {
    /// Threads that were started.
    pub threads: usize,
    /// Records that were fetched from a shared queue, by the threads of the pool or by their callers.
    pub rows: u64,
    /// Those among them that threads of the pool fetched.
    pub rows_by_helpers: u64,
}

impl FetchPool {
    /// A pool whose threads come from `runtime`. Starts none.
    pub fn new(runtime: Arc<dyn Runtime>) -> Self {
        Self { runtime, shared: Arc::default(), threads: Mutex::default() }
    }

    /// The default number of threads that fetch together: four, as in the paper (Perseid §5.2.5), but no more than the
    /// machine runs at once. One on a machine with one processor, and under a simulated runtime.
    pub fn default_threads(runtime: &dyn Runtime) -> usize {
        runtime.parallelism().clamp(1, 4)
    }

    /// The statistics so far.
    pub fn stats(&self) -> FetchPoolStats {
        FetchPoolStats {
            threads: self.threads.lock().len(),
            rows: self.shared.counters.rows.load(Ordering::Relaxed),
            rows_by_helpers: self.shared.counters.rows_by_helpers.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn note(&self, rows: u64, rows_by_helpers: u64) {
        self.shared.counters.rows.fetch_add(rows, Ordering::Relaxed);
        self.shared.counters.rows_by_helpers.fetch_add(rows_by_helpers, Ordering::Relaxed);
    }

    /// Invites up to `helpers` threads to `work`. Returns at once.
    pub(crate) fn invite(&self, work: &Arc<dyn Help>, helpers: usize) {
        let helpers = helpers.min(MAX_FETCH_THREADS);
        let wanting = {
            let mut state = self.shared.state.lock();
            let room = (INVITATIONS_PER_THREAD * helpers).saturating_sub(state.invitations.len());
            for _ in 0..helpers.min(room) {
                state.invitations.push_back(Arc::clone(work));
            }
            state.invitations.len().saturating_sub(state.idle)
        };
        for _ in 0..helpers {
            self.shared.arrived.notify_one();
        }
        if wanting > 0 {
            self.start(wanting, helpers);
        }
    }

    /// Starts up to `wanting` threads, up to `max_threads` in all. It goes on without a thread that cannot be started.
    fn start(&self, wanting: usize, max_threads: usize) {
        let mut threads = self.threads.lock();
        for _ in 0..wanting.min(max_threads.saturating_sub(threads.len())) {
            let shared = Arc::clone(&self.shared);
            let name = format!("bolide-fetch-{}", threads.len());
            let Ok(thread) = self.runtime.spawn(&name, Box::new(move || shared.run())) else { return };
            threads.push(thread);
        }
    }
}

impl PoolShared {
    fn run(&self) {
        let mut state = self.state.lock();
        while !state.stopping {
            let Some(work) = state.invitations.pop_front() else {
                state.idle += 1;
                self.arrived.wait(&mut state);
                state.idle -= 1;
                continue;
            };
            drop(state);
            // The owner of the work reports a panic in it; this thread stays alive.
            let _ = catch_unwind(AssertUnwindSafe(|| work.help()));
            drop(work);
            state = self.state.lock();
        }
    }
}

impl Drop for FetchPool {
    fn drop(&mut self) {
        let left = {
            let mut state = self.shared.state.lock();
            state.stopping = true;
            std::mem::take(&mut state.invitations)
        };
        drop(left);
        self.shared.arrived.notify_all();
        for thread in self.threads.get_mut().drain(..) {
            // Its panics were caught.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for FetchPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FetchPool").field(&self.stats()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use bolide_base::{Error, Result};
    use bolide_storage::SystemRuntime;

    use super::*;

    /// Work in so many pieces, of which some panic.
    struct Pieces {
        next: AtomicUsize,
        done: AtomicUsize,
        count: usize,
        panics: bool,
    }

    impl Pieces {
        fn new(count: usize, panics: bool) -> Arc<Self> {
            Arc::new(Self { next: AtomicUsize::new(0), done: AtomicUsize::new(0), count, panics })
        }
    }

    impl Help for Pieces {
        fn help(&self) {
            while self.next.fetch_add(1, Ordering::Relaxed) < self.count {
                self.done.fetch_add(1, Ordering::Relaxed);
                assert!(!self.panics, "a piece panics");
            }
        }
    }

    /// Invites until all pieces are done: a full queue drops invitations.
    fn complete(pool: &FetchPool, pieces: &Arc<Pieces>, helpers: usize) {
        let work: Arc<dyn Help> = pieces.clone();
        while pieces.done.load(Ordering::Relaxed) < pieces.count {
            pool.invite(&work, helpers);
            std::thread::yield_now();
        }
    }

    #[test]
    fn threads_are_started_on_demand_and_joined_at_the_end() {
        let pool = FetchPool::new(Arc::new(SystemRuntime::new()));
        assert_eq!(pool.stats().threads, 0);
        for round in 0..200 {
            complete(&pool, &Pieces::new(50, false), 1 + round % 3);
        }
        assert!((1..=3).contains(&pool.stats().threads), "{pool:?}");
    }

    #[test]
    fn a_panic_ends_no_thread() {
        let pool = FetchPool::new(Arc::new(SystemRuntime::new()));
        // Each invitation does one piece, and each piece panics.
        complete(&pool, &Pieces::new(20, true), 1);
        complete(&pool, &Pieces::new(5, false), 1);
        assert_eq!(pool.stats().threads, 1);
    }

    /// A machine that starts no threads.
    #[derive(Debug)]
    struct NoThreads;

    impl Runtime for NoThreads {
        fn now_micros(&self) -> u64 {
            0
        }

        fn random_u64(&self) -> u64 {
            0
        }

        fn sleep(&self, _: std::time::Duration) {}

        fn spawn(&self, _: &str, _: Box<dyn FnOnce() + Send>) -> Result<Box<dyn JoinHandle>> {
            Err(Error::internal("no threads"))
        }

        fn thread_cpu_micros(&self) -> u64 {
            0
        }

        fn process_cpu_micros(&self) -> u64 {
            0
        }
    }

    #[test]
    fn the_queue_is_bounded_without_threads() {
        let pool = FetchPool::new(Arc::new(NoThreads));
        let work: Arc<dyn Help> = Pieces::new(1, false);
        for _ in 0..100 {
            pool.invite(&work, 3);
        }
        assert_eq!(Arc::strong_count(&work), 1 + 3 * INVITATIONS_PER_THREAD);
        assert_eq!(FetchPool::default_threads(&NoThreads), 1);
        drop(pool);
        assert_eq!(Arc::strong_count(&work), 1);
    }
}
