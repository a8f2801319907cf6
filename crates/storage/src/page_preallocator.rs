//! The background thread that preallocates memory.
//!
//! ```text
//! memory                user                               condition
//! large pages           LargePages::new, of one page       the pool is short, see PagePool::is_short
//! the next extent       a log without syncs                a request while the log fills its current extent
//! ```
//!
//! Extents have priority unless the pool is empty: the next allocation of a page would wait at once, while a log that requests
//! an extent still has space in its current one.

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::large_pages::{LARGE_PAGE_BYTES, POOL, PageMapping, Preallocate, WORK_AVAILABLE};

/// Requests a call of [`preallocate`](Preallocate::preallocate) by a preallocator. Requests of one requester merge; the
/// request of a dropped requester is void. False without a preallocator; never waits for one.
pub(crate) fn request_preallocation(requester: Weak<dyn Preallocate>) -> bool {
    let mut pool = POOL.lock();
    if pool.preallocators == 0 {
        return false;
    }
    if !pool.requests.iter().any(|other| other.ptr_eq(&requester)) {
        // Removing dropped requesters bounds the queue by the number of live ones.
        pool.requests.retain(|other| other.strong_count() > 0);
        pool.requests.push_back(requester);
    }
    drop(pool);
    WORK_AVAILABLE.notify_one();
    true
}

/// Preallocates large pages and extents of logs; runs in a thread of its own.
///
/// A writer that gets a new page waits while the system clears 2 MiB. Pages of the pool avoid this, but the pool is empty while a
/// flush takes longer than the next memtable takes to fill. Preallocated pages cover this time: one for each four pages in use,
/// at most eight (16 MiB) in the process for any number of preallocators. They stay in the pool until they are used.
///
/// A mapped log of [`DiskVfs`](crate::DiskVfs) without syncs has its next extent preallocated, too: 4 MiB of the file,
/// reserved and prefaulted. One extent per log.
///
/// ```
/// use std::sync::Arc;
/// use bolide_storage::{LargePagePreallocator, Runtime, SystemRuntime};
///
/// let preallocator = Arc::new(LargePagePreallocator::default());
/// let task = preallocator.clone();
/// let thread = SystemRuntime::new().spawn("memory", Box::new(move || task.run()))?;
/// preallocator.stop();
/// thread.join()?;
/// # Ok::<(), bolide_base::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct LargePagePreallocator {
    /// Modified under the lock of the pool.
    is_stopping: AtomicBool,
}

impl LargePagePreallocator {
    /// Preallocates pages while the pool is short, and serves requests, until [`stop`](Self::stop). Sleeps without work.
    pub fn run(&self) {
        self.run_with(|| PageMapping::prefaulted(LARGE_PAGE_BYTES));
    }

    /// As [`run`](Self::run), with pages from `allocate`.
    pub(crate) fn run_with(&self, mut allocate: impl FnMut() -> Option<PageMapping>) {
        let mut pool = POOL.lock();
        pool.preallocators += 1;
        // After a failure no page is allocated until the next signal.
        let mut has_failed = false;
        while !self.is_stopping.load(Ordering::Relaxed) {
            let is_short = !has_failed && pool.is_short();
            if !(is_short && pool.free.is_empty())
                && let Some(requester) = pool.requests.pop_front()
            {
                drop(pool);
                if let Some(requester) = requester.upgrade() {
                    requester.preallocate();
                }
                pool = POOL.lock();
                continue;
            }
            if !is_short {
                has_failed = false;
                WORK_AVAILABLE.wait(&mut pool);
                continue;
            }
            pool.allocating += 1;
            drop(pool);
            // Without the lock, so that allocations from the pool do not wait.
            let page = allocate();
            pool = POOL.lock();
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
        let pool = POOL.lock();
        self.is_stopping.store(true, Ordering::Relaxed);
        drop(pool);
        WORK_AVAILABLE.notify_all();
    }
}

#[cfg(test)]
#[path = "page_preallocator_tests.rs"]
mod tests;
