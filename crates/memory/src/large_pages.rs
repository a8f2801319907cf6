//! Memory with random accesses, in large pages of 2 MiB where the system has them.
//!
//! A walk through a tree of 64 MiB misses the TLB on nearly every 4-KiB page; with large pages it rarely does. In exchange, the
//! first access to a large page makes the system find and clear 2 MiB. This takes a large part of a millisecond, and several
//! milliseconds on a virtual machine whose host has to find the memory too. Therefore:
//! * freed pages go to a [pool](PagePool), up to 128 MiB;
//! * a background thread preallocates pages: see [`LargePagePreallocator`](crate::LargePagePreallocator).

use std::ptr::NonNull;
use std::sync::Arc;

use crate::page_mapping::{LARGE_PAGE_BYTES, PageMapping, SMALL_PAGE_BYTES};
use crate::page_pool::PagePool;

/// Memory of large pages with undefined content. It does not move, and is freed when dropped.
///
/// It consists of ordinary pages where the system has no large pages.
#[derive(Debug)]
pub struct LargePages {
    /// `Some` until it is dropped.
    mapping: Option<PageMapping>,
    /// The pool of a single page, which counts it.
    pool: Option<Arc<PagePool>>,
    /// Freed to the system instead of the pool when dropped.
    is_released: bool,
}

impl LargePages {
    /// Allocates at least `bytes` bytes, rounded up to whole large pages; `None` if the system has no memory.
    ///
    /// A single page comes from `pool` if that has one, and returns to it. Otherwise the cost is some system calls, and a page
    /// fault at the first access to each page.
    ///
    /// ```
    /// use bolide_memory::{LARGE_PAGE_BYTES, LargePages, PagePool};
    /// let memory = LargePages::new(&PagePool::new(), 1).expect("two megabytes");
    /// assert_eq!(memory.len(), LARGE_PAGE_BYTES);
    /// assert_eq!(memory.base().addr().get() % LARGE_PAGE_BYTES, 0);
    /// ```
    pub fn new(pool: &Arc<PagePool>, bytes: usize) -> Option<Self> {
        let bytes = bytes.max(1).checked_next_multiple_of(LARGE_PAGE_BYTES)?;
        if bytes != LARGE_PAGE_BYTES {
            return PageMapping::new(bytes).map(Self::unpooled);
        }
        let pooled = pool.lock().free.pop();
        let mapping = match pooled {
            Some(pooled) => pooled,
            None => PageMapping::new(bytes)?,
        };
        let mut state = pool.lock();
        state.used += 1;
        let is_short = state.is_short();
        drop(state);
        if is_short {
            // One load if no preallocator waits.
            pool.work_available.notify_one();
        }
        Some(Self { mapping: Some(mapping), pool: Some(Arc::clone(pool)), is_released: false })
    }

    /// Allocates at least `bytes` bytes without a pool; a tail that does not fill a large page consists of small pages. For
    /// long-lived memory that would leave much of its last large page unused. `None` if the system has no memory.
    ///
    /// ```
    /// let memory = bolide_memory::LargePages::with_small_tail((2 << 20) + 1).expect("two megabytes");
    /// assert_eq!(memory.len(), (2 << 20) + 4096);
    /// ```
    pub fn with_small_tail(bytes: usize) -> Option<Self> {
        let bytes = bytes.max(1).checked_next_multiple_of(SMALL_PAGE_BYTES)?;
        PageMapping::new(bytes).map(Self::unpooled)
    }

    /// Allocates at least `bytes` bytes without a pool, zeroed and prefaulted: for background threads. About a millisecond per
    /// page.
    ///
    /// ```
    /// let memory = bolide_memory::LargePages::prefaulted(1).expect("two megabytes");
    /// assert_eq!(memory.len(), bolide_memory::LARGE_PAGE_BYTES);
    /// ```
    pub fn prefaulted(bytes: usize) -> Option<Self> {
        let bytes = bytes.max(1).checked_next_multiple_of(LARGE_PAGE_BYTES)?;
        PageMapping::prefaulted(bytes).map(Self::unpooled)
    }

    fn unpooled(mapping: PageMapping) -> Self {
        Self { mapping: Some(mapping), pool: None, is_released: false }
    }

    /// The same memory, freed to the system instead of the pool when dropped.
    #[must_use]
    pub fn released_on_drop(mut self) -> Self {
        self.is_released = true;
        self
    }

    /// The first byte, at a multiple of [`LARGE_PAGE_BYTES`].
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.mapping.as_ref().map_or(NonNull::dangling(), |mapping| mapping.base)
    }

    /// The size in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.mapping.as_ref().map_or(0, |mapping| mapping.bytes)
    }

    /// Always false: the memory has at least one page.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for LargePages {
    fn drop(&mut self) {
        let (Some(page), Some(pool)) = (self.mapping.take(), self.pool.take()) else { return };
        let mut state = pool.lock();
        state.used -= 1;
        let rest = if self.is_released { Some(page) } else { state.add(page) };
        drop(state);
        // Unmapped outside of the lock.
        drop(rest);
    }
}

#[cfg(test)]
#[allow(unsafe_code, reason = "access to the memory")]
#[path = "large_pages_tests.rs"]
mod tests;
