//! Memory with random accesses, in large pages of 2 MiB where the system has them.
//!
//! A walk through a tree of 64 MiB misses the TLB on nearly every 4-KiB page; with large pages it rarely does. In exchange, the
//! first access to a large page makes the system find and clear 2 MiB. This takes a large part of a millisecond, and several
//! milliseconds on a virtual machine whose host has to find the memory too. Therefore:
//! * freed pages go to a pool of the process, up to 128 MiB;
//! * a background thread preallocates pages: see [`LargePagePreallocator`](crate::LargePagePreallocator).
//!
//! ```text
//! event                  source or destination
//! one page allocated     the pool, then the system
//! one page dropped       the pool, up to 128 MiB; the system for pages that are released on drop
//! page preallocated      the pool: one for each four pages in use, at most eight
//! ```

// Memory from the system, without a type.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Weak;

use parking_lot::{Condvar, Mutex};

/// The size of a large page, in bytes.
pub const LARGE_PAGE_BYTES: usize = 2 << 20;

/// The smallest page size of any supported system, in bytes.
const SMALL_PAGE_BYTES: usize = 4096;

/// Maximum pages in the pool of the process: 128 MiB.
const MAX_POOLED: usize = (128 << 20) / LARGE_PAGE_BYTES;
/// One page is preallocated for at most this many pages in use; this bounds the unused memory.
const USED_PER_PREALLOCATED: usize = 4;
/// Maximum number of preallocated pages. A writer at full speed fills a page in a few milliseconds; eight pages cover the
/// time until the preallocator gets a processor.
const MAX_PREALLOCATED: usize = 8;

/// The pool of single pages of the process.
pub(crate) static POOL: Mutex<PagePool> = Mutex::new(PagePool {
    free: Vec::new(),
    used: 0,
    allocating: 0,
    preallocators: 0,
    requests: VecDeque::new(),
});
/// Signalled when a preallocator has work, or has to stop.
pub(crate) static WORK_AVAILABLE: Condvar = Condvar::new();

/// Free single pages, and the work of preallocators.
pub(crate) struct PagePool {
    /// Free, prefaulted pages; the most recently used page is last.
    pub(crate) free: Vec<PageMapping>,
    /// Pages in use.
    used: usize,
    /// Pages that preallocators are allocating.
    pub(crate) allocating: usize,
    /// Running preallocators.
    pub(crate) preallocators: usize,
    /// Pending requests for other memory, one per requester. Empty without a preallocator.
    pub(crate) requests: VecDeque<Weak<dyn Preallocate>>,
}

/// A structure with memory of its own that a preallocator can prepare.
pub(crate) trait Preallocate: Send + Sync {
    /// Allocates the memory that is still needed. A preallocator calls it without any lock.
    fn preallocate(&self);
}

impl PagePool {
    /// True if more pages should be preallocated.
    pub(crate) fn is_short(&self) -> bool {
        self.free.len() + self.allocating < (self.used / USED_PER_PREALLOCATED).min(MAX_PREALLOCATED)
    }

    /// Adds a free page; returns it if the pool is full.
    pub(crate) fn add(&mut self, page: PageMapping) -> Option<PageMapping> {
        if self.free.len() >= MAX_POOLED {
            return Some(page);
        }
        self.free.push(page);
        None
    }
}

/// Memory of large pages with undefined content. It does not move, and is freed when dropped.
///
/// It consists of ordinary pages where the system has no large pages.
#[derive(Debug)]
pub struct LargePages {
    /// `Some` until it is dropped.
    mapping: Option<PageMapping>,
    /// Freed to the system instead of the pool when dropped.
    is_released: bool,
}

impl LargePages {
    /// Allocates at least `bytes` bytes, rounded up to whole large pages; `None` if the system has no memory.
    ///
    /// A single page comes from the pool if it has one. Otherwise the cost is some system calls, and a page fault at the first
    /// access to each page.
    ///
    /// ```
    /// let memory = bolide_storage::LargePages::new(1).expect("two megabytes");
    /// assert_eq!(memory.len(), bolide_storage::LARGE_PAGE_BYTES);
    /// assert_eq!(memory.base().addr().get() % bolide_storage::LARGE_PAGE_BYTES, 0);
    /// ```
    pub fn new(bytes: usize) -> Option<Self> {
        let bytes = bytes.max(1).checked_next_multiple_of(LARGE_PAGE_BYTES)?;
        let pooled = if bytes == LARGE_PAGE_BYTES { POOL.lock().free.pop() } else { None };
        let mapping = match pooled {
            Some(pooled) => pooled,
            None => PageMapping::new(bytes)?,
        };
        Some(Self::from_mapping(mapping))
    }

    /// Allocates at least `bytes` bytes; a tail that does not fill a large page consists of small pages. For long-lived
    /// memory that would leave much of its last large page unused. `None` if the system has no memory.
    ///
    /// ```
    /// let memory = bolide_storage::LargePages::with_small_tail((2 << 20) + 1).expect("two megabytes");
    /// assert_eq!(memory.len(), (2 << 20) + 4096);
    /// ```
    pub fn with_small_tail(bytes: usize) -> Option<Self> {
        let bytes = bytes.max(1).checked_next_multiple_of(SMALL_PAGE_BYTES)?;
        if bytes == LARGE_PAGE_BYTES {
            return Self::new(bytes);
        }
        PageMapping::new(bytes).map(Self::from_mapping)
    }

    /// As [`new`](Self::new), but zeroed and prefaulted: for background threads. About a millisecond per page.
    ///
    /// ```
    /// let memory = bolide_storage::LargePages::prefaulted(1).expect("two megabytes");
    /// assert_eq!(memory.len(), bolide_storage::LARGE_PAGE_BYTES);
    /// ```
    pub fn prefaulted(bytes: usize) -> Option<Self> {
        let bytes = bytes.max(1).checked_next_multiple_of(LARGE_PAGE_BYTES)?;
        PageMapping::prefaulted(bytes).map(Self::from_mapping)
    }

    /// Counts a single page as used, and wakes a preallocator if the pool is short of pages.
    fn from_mapping(mapping: PageMapping) -> Self {
        if mapping.bytes == LARGE_PAGE_BYTES {
            let mut pool = POOL.lock();
            pool.used += 1;
            let is_short = pool.is_short();
            drop(pool);
            if is_short {
                // One load if no preallocator waits.
                WORK_AVAILABLE.notify_one();
            }
        }
        Self { mapping: Some(mapping), is_released: false }
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
        let Some(page) = self.mapping.take().filter(|mapping| mapping.bytes == LARGE_PAGE_BYTES) else {
            return;
        };
        let mut pool = POOL.lock();
        pool.used -= 1;
        let rest = if self.is_released { Some(page) } else { pool.add(page) };
        drop(pool);
        // Unmapped outside of the lock.
        drop(rest);
    }
}

/// An anonymous mapping: zeros at first, its size a multiple of [`SMALL_PAGE_BYTES`], aligned to [`LARGE_PAGE_BYTES`].
/// Unmapped when dropped.
#[derive(Debug)]
pub(crate) struct PageMapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its memory, and exposes only its address.
unsafe impl Send for PageMapping {}
// SAFETY: as above.
unsafe impl Sync for PageMapping {}

impl PageMapping {
    fn new(bytes: usize) -> Option<Self> {
        system::map(bytes).map(|base| Self { base, bytes })
    }

    /// As [`new`](Self::new), but prefaulted: later accesses cause no page fault.
    pub(crate) fn prefaulted(bytes: usize) -> Option<Self> {
        let mapping = Self::new(bytes)?;
        // SAFETY: just mapped; no other reference to it exists.
        unsafe { system::prefault(mapping.base, bytes) };
        Some(mapping)
    }
}

impl Drop for PageMapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length; the owner drops it, so no reference to it is left.
        unsafe { system::unmap(self.base, self.bytes) };
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use std::ptr::{NonNull, null_mut};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::{LARGE_PAGE_BYTES, SMALL_PAGE_BYTES};

    /// Maps zeros, aligned to a large page, in large pages where the system has them.
    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        let map = |bytes| {
            // SAFETY: a new mapping at an address that the system chooses; it replaces no other mapping.
            unsafe {
                mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
            }
        };
        let mut base = map(bytes).ok()?.cast::<u8>();
        // Linux from 6.7 on aligns mappings of such lengths. Elsewhere a larger mapping is made and its ends are unmapped.
        if !base.addr().is_multiple_of(LARGE_PAGE_BYTES) {
            // SAFETY: mapped just now; no reference to it exists.
            unsafe { munmap(base.cast(), bytes) }.ok()?;
            let longer = bytes.checked_add(LARGE_PAGE_BYTES)?;
            let start = map(longer).ok()?.cast::<u8>();
            let front = start.addr().next_multiple_of(LARGE_PAGE_BYTES) - start.addr();
            // SAFETY: `front` is less than a large page, so that `bytes` bytes follow; the ends are whole small pages without
            // references.
            unsafe {
                base = start.add(front);
                if front > 0 {
                    munmap(start.cast(), front).ok()?;
                }
                munmap(base.add(bytes).cast(), LARGE_PAGE_BYTES - front).ok()?;
            }
        }
        // SAFETY: this function owns the mapping. The advice affects only the speed.
        let _ = unsafe { madvise(base.cast(), bytes, Advice::LinuxHugepage) };
        NonNull::new(base)
    }

    /// Makes the system allocate the pages now.
    ///
    /// # Safety
    /// The memory came from [`map`] and is not in use yet.
    pub(super) unsafe fn prefault(base: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's contract.
        unsafe {
            // Linux from 5.14 on.
            if madvise(base.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite).is_err() {
                (0..bytes).step_by(SMALL_PAGE_BYTES).for_each(|at| base.add(at).write_volatile(0));
            }
        }
    }

    /// Frees the memory.
    ///
    /// # Safety
    /// The memory came from [`map`] with this length, and no reference to it is left.
    pub(super) unsafe fn unmap(base: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's contract.
        let _ = unsafe { munmap(base.as_ptr().cast(), bytes) };
    }
}

/// The implementation by the allocator, for other systems and for interpreters.
#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    use super::LARGE_PAGE_BYTES;

    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes, LARGE_PAGE_BYTES).ok()
    }

    /// Allocates zeros, aligned to a large page.
    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: the length is at least one large page.
        NonNull::new(unsafe { alloc_zeroed(layout(bytes)?) })
    }

    /// Makes the system allocate the pages now.
    ///
    /// # Safety
    /// The memory came from [`map`] and is not in use yet.
    pub(super) unsafe fn prefault(base: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's contract.
        unsafe { base.write_bytes(0, bytes) };
    }

    /// Frees the memory.
    ///
    /// # Safety
    /// The memory came from [`map`] with this length, and no reference to it is left.
    pub(super) unsafe fn unmap(base: NonNull<u8>, bytes: usize) {
        if let Some(layout) = layout(bytes) {
            // SAFETY: the caller's contract; the layout is that of `map`.
            unsafe { dealloc(base.as_ptr(), layout) };
        }
    }
}

/// Serializes the tests that inspect the pool of the process or allocate many pages.
#[cfg(test)]
pub(crate) static POOL_TEST_LOCK: Mutex<()> = Mutex::new(());

#[cfg(test)]
#[path = "large_pages_tests.rs"]
pub(crate) mod tests;
