//! The background thread that preallocates memory.
//!
//! ```text
//! memory                user                               condition
//! large pages           LargePages::new, of one page       the pool is short, see PagePoolState::is_short
//! the next extent       a log without syncs                a request while the log fills its current extent
//! ```
//!
//! Extents have priority unless the pool is empty: the next allocation of a page would wait at once, while a log that requests
//! an extent still has space in its current one.

use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bolide_base::technique::Technique;

use crate::page_mapping::{LARGE_PAGE_BYTES, PageMapping};
use crate::page_pool::PagePool;

/// Preallocates large pages of a pool, and extents of logs; runs in a thread of its own.
///
/// A writer that gets a new page waits while the system clears 2 MiB. Pages of the pool avoid this, but the pool is empty while a
/// flush takes longer than the next memtable takes to fill. Preallocated pages cover this time: one for each four pages in use,
/// at most eight (16 MiB) in the pool for any number of preallocators. They stay in the pool until they are used.
///
/// Structures with memory of their own [request](PagePool::request_preallocation) its preallocation, for example a mapped log that of its
/// next extent.
///
/// ```
/// use std::sync::Arc;
/// use bolide_memory::{LargePagePreallocator, PagePool};
///
/// let preallocator = Arc::new(LargePagePreallocator::new(PagePool::new()));
/// let task = preallocator.clone();
/// let thread = std::thread::spawn(move || task.run());
/// preallocator.stop();
/// thread.join().unwrap();
/// ```
#[derive(Debug)]
pub struct LargePagePreallocator {
    pool: Arc<PagePool>,
    /// Modified under the lock of the pool.
    is_stopping: AtomicBool,
}

impl LargePagePreallocator {
    /// A preallocator of `pool`.
    pub fn new(pool: Arc<PagePool>) -> Self {
        Self { pool, is_stopping: AtomicBool::new(false) }
    }

    /// Preallocates pages while the pool is short, and serves requests, until [`stop`](Self::stop). Sleeps without work.
    pub fn run(&self) {
        self.run_with(|| PageMapping::prefaulted(LARGE_PAGE_BYTES));
    }

    /// As [`run`](Self::run), with pages from `allocate`.
    pub(crate) fn run_with(&self, mut allocate: impl FnMut() -> Option<PageMapping>) {
        let mut pool = self.pool.lock();
        pool.preallocators += 1;
        // After a failure no page is allocated until the next signal.
        let mut has_failed = false;
        while !self.is_stopping.load(Ordering::Relaxed) {
            let is_short = !has_failed && pool.is_short() && Technique::PagesAhead.is_on();
            if !(is_short && pool.free.is_empty())
                && let Some(requester) = pool.requests.pop_front()
            {
                drop(pool);
                if let Some(requester) = requester.upgrade() {
                    requester.preallocate();
                }
                pool = self.pool.lock();
                continue;
            }
            if !is_short {
                has_failed = false;
                self.pool.work_available.wait(&mut pool);
                continue;
            }
            pool.allocating += 1;
            drop(pool);
            // Without the lock, so that allocations from the pool do not wait.
            let page = allocate();
            pool = self.pool.lock();
            pool.allocating -= 1;
            has_failed = page.is_none();
            if let Some(page) = page {
                drop(pool.add(page));
            }
        }
        pool.preallocators -= 1;
        if pool.preallocators == 0 {
            pool.requests.clear();
        }
    }

    /// Makes [`run`](Self::run) return after its current page or extent.
    pub fn stop(&self) {
        // Under the lock: a preallocator that is about to sleep cannot miss the signal.
        let pool = self.pool.lock();
        self.is_stopping.store(true, Ordering::Relaxed);
        drop(pool);
        self.pool.work_available.notify_all();
    }
}

/// A preallocator without a thread, for tests: it accepts requests, and serves them at a call.
pub struct ManualPreallocator {
    pool: Arc<PagePool>,
}

impl ManualPreallocator {
    /// A preallocator of `pool`, which has no other.
    pub fn new(pool: Arc<PagePool>) -> Self {
        pool.lock().preallocators += 1;
        Self { pool }
    }

    /// The number of pending requests.
    pub fn requests(&self) -> usize {
        self.pool.lock().requests.len()
    }

    /// Serves the requests; returns the number of live requesters.
    pub fn serve(&self) -> usize {
        let requests = mem::take(&mut self.pool.lock().requests);
        requests.iter().filter_map(Weak::upgrade).map(|requester| requester.preallocate()).count()
    }
}

impl Drop for ManualPreallocator {
    fn drop(&mut self) {
        let mut pool = self.pool.lock();
        pool.preallocators -= 1;
        pool.requests.clear();
    }
}

impl fmt::Debug for ManualPreallocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualPreallocator").field("pool", &self.pool).finish()
    }
}

#[cfg(test)]
#[path = "page_preallocator_tests.rs"]
mod tests;
