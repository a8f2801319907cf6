//! The pool of free large pages, and the work of its preallocators.
//!
//! ```text
//! event                  source or destination
//! one page allocated     the pool, then the system
//! one page dropped       the pool, up to its limit; the system for pages that are released on drop
//! page preallocated      the pool: one for each four pages in use, at most eight
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::page_mapping::{LARGE_PAGE_BYTES, PageMapping};

/// Maximum free pages in a pool: 128 MiB. The budget of the pool may allow fewer.
pub(crate) const MAX_POOLED: usize = (128 << 20) / LARGE_PAGE_BYTES;
/// One page is preallocated for at most this many pages in use; this bounds the unused memory.
pub(crate) const USED_PER_PREALLOCATED: usize = 4;
/// Maximum number of preallocated pages. A writer at full speed fills a page in a few milliseconds; eight pages cover the
/// time until the preallocator gets a processor.
pub(crate) const MAX_PREALLOCATED: usize = 8;

/// Single large pages that are free, and requests for the preallocation of other memory.
///
/// A pool is shared by the structures of one database, or of several databases that share a cache. Its pages are returned to
/// the system when the last structure with a page of it is dropped.
///
/// ```
/// use bolide_memory::{LargePages, PagePool};
/// let pool = PagePool::new();
/// drop(LargePages::new(&pool, 1));
/// assert_eq!(pool.free_pages(), 1);
/// ```
pub struct PagePool {
    state: Mutex<PagePoolState>,
    /// Signalled when a preallocator has work, or has to stop.
    pub(crate) work_available: Condvar,
}

/// Free single pages, and the work of preallocators.
pub(crate) struct PagePoolState {
    /// Free, prefaulted pages; the most recently used page is last.
    pub(crate) free: Vec<PageMapping>,
    /// The maximum number of free pages.
    pub(crate) max_free: usize,
    /// Pages in use.
    pub(crate) used: usize,
    /// Pages that preallocators are allocating.
    pub(crate) allocating: usize,
    /// Running preallocators.
    pub(crate) preallocators: usize,
    /// Pending requests for other memory, one per requester. Empty without a preallocator.
    pub(crate) requests: VecDeque<Weak<dyn Preallocate>>,
}

/// A structure with memory of its own that a preallocator can prepare.
pub trait Preallocate: Send + Sync {
    /// Allocates the memory that is still needed. A preallocator calls it without any lock.
    fn preallocate(&self);
}

impl PagePoolState {
    /// True if more pages should be preallocated.
    pub(crate) fn is_short(&self) -> bool {
        let wanted = (self.used / USED_PER_PREALLOCATED).min(MAX_PREALLOCATED).min(self.max_free);
        self.free.len() + self.allocating < wanted
    }

    /// Adds a free page; returns it if the pool is full.
    pub(crate) fn add(&mut self, page: PageMapping) -> Option<PageMapping> {
        if self.free.len() >= self.max_free {
            return Some(page);
        }
        self.free.push(page);
        None
    }
}

impl PagePool {
    /// An empty pool, which retains up to 128 MiB of free pages.
    pub fn new() -> Arc<Self> {
        Self::with_limit(MAX_POOLED)
    }

    /// An empty pool, which retains up to `max_free` free pages, at most as many as [`new`](Self::new).
    pub(crate) fn with_limit(max_free: usize) -> Arc<Self> {
        let state = PagePoolState {
            free: Vec::new(),
            max_free: max_free.min(MAX_POOLED),
            used: 0,
            allocating: 0,
            preallocators: 0,
            requests: VecDeque::new(),
        };
        Arc::new(Self { state: Mutex::new(state), work_available: Condvar::new() })
    }

    /// Returns free pages to the system, at least `bytes` bytes of them if there are as many. Returns their bytes.
    pub(crate) fn release_free(&self, bytes: u64) -> u64 {
        let mut pool = self.lock();
        let wanted = usize::try_from(bytes.div_ceil(LARGE_PAGE_BYTES as u64)).unwrap_or(usize::MAX);
        let rest = pool.free.len().saturating_sub(wanted);
        let released = pool.free.split_off(rest);
        drop(pool);
        // Unmapped outside of the lock.
        (released.len() * LARGE_PAGE_BYTES) as u64
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, PagePoolState> {
        self.state.lock()
    }

    /// Free pages in the pool.
    pub fn free_pages(&self) -> usize {
        self.lock().free.len()
    }

    /// Requests a call of [`preallocate`](Preallocate::preallocate) by a preallocator. Requests of one requester merge; the
    /// request of a dropped requester is void. False without a preallocator; never waits for one.
    pub fn request_preallocation(&self, requester: Weak<dyn Preallocate>) -> bool {
        let mut pool = self.lock();
        if pool.preallocators == 0 {
            return false;
        }
        if !pool.requests.iter().any(|other| other.ptr_eq(&requester)) {
            // Removing dropped requesters bounds the queue by the number of live ones.
            pool.requests.retain(|other| other.strong_count() > 0);
            pool.requests.push_back(requester);
        }
        drop(pool);
        self.work_available.notify_one();
        true
    }
}

impl fmt::Debug for PagePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pool = self.lock();
        f.debug_struct("PagePool")
            .field("free", &pool.free.len())
            .field("used", &pool.used)
            .finish_non_exhaustive()
    }
}
