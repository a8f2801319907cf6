//! Memory for structures that are read all over: in pages of 2 MiB where the system has them.
//!
//! A walk through a tree of 64 MiB misses the translation of nearly every page of 4 KiB that it comes to; with large pages
//! it hardly misses one. In exchange the first touch of such a page has the system find and clear 2 MiB, which takes a good part
//! of a millisecond, and some of them where the machine is a virtual one whose host has to find them as well. So
//! * pages that are given back are kept for the next who asks, up to 128 MiB in the process, and
//! * somebody who has time makes pages ahead of those who fill them: see [`LargePageMaker`](crate::LargePageMaker).
//!
//! ```text
//! asked for one page     kept ones, then the system       by new
//! one page dropped       kept, up to 128 MiB              but for those that are released
//! made ahead             kept                             one for each four that are in use, at most eight
//! ```

// Memory from the system, without a type.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Weak;

use parking_lot::{Condvar, Mutex};

/// The size of a large page, in bytes.
pub const LARGE_PAGE_BYTES: usize = 2 << 20;

/// The smallest page that a system may have, in bytes.
const SMALL_PAGE_BYTES: usize = 4096;

/// Most pages that are kept for the next who asks, in the whole process: 128 MiB.
const MAX_KEPT: usize = (128 << 20) / LARGE_PAGE_BYTES;
/// For so many pages in use one is made ahead at most, so that little memory waits for its use.
const USED_FOR_ONE: usize = 4;
/// Most pages that are made ahead. A writer at full speed fills one in some milliseconds: these are time enough for the
/// maker to get a processor.
const MAX_AHEAD: usize = 8;

/// Single pages, in the whole process.
pub(crate) static POOL: Mutex<Pool> =
    Mutex::new(Pool { kept: Vec::new(), used: 0, being_made: 0, makers: 0, asked: VecDeque::new() });
/// A maker is wanted, or to stop.
pub(crate) static MAKER_WANTED: Condvar = Condvar::new();

/// Single pages, and what makers are to make.
pub(crate) struct Pool {
    /// Not in use, and touched already, the one that was used last at the end.
    pub(crate) kept: Vec<Mapping>,
    /// How many are in use.
    used: usize,
    /// How many are being made.
    pub(crate) being_made: usize,
    /// How many makers there are.
    pub(crate) makers: usize,
    /// Who wants something else made, once each. Empty where there is no maker.
    pub(crate) asked: VecDeque<Weak<dyn MadeAhead>>,
}

/// Somebody who asks for pages other than those of the pool.
pub(crate) trait MadeAhead: Send + Sync {
    /// Makes what is still wanted. Called by a maker that holds no lock.
    fn make_ahead(&self);
}

impl Pool {
    /// True if more pages should be made ahead.
    pub(crate) fn is_short(&self) -> bool {
        self.kept.len() + self.being_made < (self.used / USED_FOR_ONE).min(MAX_AHEAD)
    }

    /// Keeps a page; answers it if there are enough.
    pub(crate) fn keep(&mut self, page: Mapping) -> Option<Mapping> {
        if self.kept.len() >= MAX_KEPT {
            return Some(page);
        }
        self.kept.push(page);
        None
    }
}

/// Memory of large pages with any content. It does not move, and is given back when dropped.
///
/// Where the system has no large pages, or none to spare, it consists of ordinary ones.
#[derive(Debug)]
pub struct LargePages {
    /// There until it is dropped.
    mapping: Option<Mapping>,
    /// Not kept for others once it is dropped.
    is_released: bool,
}

impl LargePages {
    /// Memory of at least `bytes` bytes, rounded up to whole large pages; `None` where the system has none. Some system
    /// calls, and a fault for each page when it is touched first, unless a single page is asked for and one is kept.
    ///
    /// ```
    /// let memory = bolide_storage::LargePages::new(1).expect("two megabytes");
    /// assert_eq!(memory.len(), bolide_storage::LARGE_PAGE_BYTES);
    /// assert_eq!(memory.base().addr().get() % bolide_storage::LARGE_PAGE_BYTES, 0);
    /// ```
    pub fn new(bytes: usize) -> Option<Self> {
        let bytes = bytes.max(1).checked_next_multiple_of(LARGE_PAGE_BYTES)?;
        let kept = if bytes == LARGE_PAGE_BYTES { POOL.lock().kept.pop() } else { None };
        let mapping = match kept {
            Some(kept) => kept,
            None => Mapping::new(bytes)?,
        };
        Some(Self::in_use(mapping))
    }

    /// Memory of at least `bytes` bytes, of which what does not fill a large page at the end is in ordinary ones: for
    /// who keeps it long and would leave much of that page unused. `None` where the system has none.
    ///
    /// ```
    /// let memory = bolide_storage::LargePages::with_small_end((2 << 20) + 1).expect("two megabytes");
    /// assert_eq!(memory.len(), (2 << 20) + 4096);
    /// ```
    pub fn with_small_end(bytes: usize) -> Option<Self> {
        let bytes = bytes.max(1).checked_next_multiple_of(SMALL_PAGE_BYTES)?;
        if bytes == LARGE_PAGE_BYTES {
            return Self::new(bytes);
        }
        Mapping::new(bytes).map(Self::in_use)
    }

    /// The same as [`new`](Self::new), of zeros that are all touched already: for who has time. About a millisecond a page.
    ///
    /// ```
    /// let memory = bolide_storage::LargePages::touched(1).expect("two megabytes");
    /// assert_eq!(memory.len(), bolide_storage::LARGE_PAGE_BYTES);
    /// ```
    pub fn touched(bytes: usize) -> Option<Self> {
        let bytes = bytes.max(1).checked_next_multiple_of(LARGE_PAGE_BYTES)?;
        Mapping::touched(bytes).map(Self::in_use)
    }

    /// Counts the memory, and tells a maker if few pages are left.
    fn in_use(mapping: Mapping) -> Self {
        if mapping.bytes == LARGE_PAGE_BYTES {
            let mut pool = POOL.lock();
            pool.used += 1;
            let is_short = pool.is_short();
            drop(pool);
            if is_short {
                // Where none waits this costs a load.
                MAKER_WANTED.notify_one();
            }
        }
        Self { mapping: Some(mapping), is_released: false }
    }

    /// The same memory, to be given back to the system once it is dropped instead of being kept for the next who asks.
    #[must_use]
    pub fn released_when_dropped(mut self) -> Self {
        self.is_released = true;
        self
    }

    /// The first byte, at a multiple of [`LARGE_PAGE_BYTES`].
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.mapping.as_ref().map_or(NonNull::dangling(), |mapping| mapping.base)
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.mapping.as_ref().map_or(0, |mapping| mapping.bytes)
    }

    /// False: it has a page at least.
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
        let rest = if self.is_released { Some(page) } else { pool.keep(page) };
        drop(pool);
        // The system takes it back outside the lock.
        drop(rest);
    }
}

/// Memory from the system: zeros at first, a multiple of [`SMALL_PAGE_BYTES`], aligned to [`LARGE_PAGE_BYTES`]. Given back when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its memory, and shows no more of it than where it lies.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(bytes: usize) -> Option<Self> {
        system::map(bytes).map(|base| Self { base, bytes })
    }

    /// The same, without any fault to come.
    pub(crate) fn touched(bytes: usize) -> Option<Self> {
        let mapping = Self::new(bytes)?;
        // SAFETY: just mapped; nobody else knows of it.
        unsafe { system::touch(mapping.base, bytes) };
        Some(mapping)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and who drops it has no use for it any more.
        unsafe { system::unmap(self.base, self.bytes) };
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    use std::ptr::{NonNull, null_mut};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::{LARGE_PAGE_BYTES, SMALL_PAGE_BYTES};

    /// Zeros, aligned to a large page, by large pages where the system has them.
    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        let map = |bytes| {
            // SAFETY: a mapping anywhere, over nothing that anybody has.
            unsafe {
                mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
            }
        };
        let mut base = map(bytes).ok()?.cast::<u8>();
        // Linux from 6.7 on aligns mappings of such lengths by itself. Others get some more, of which the ends are given back.
        if !base.addr().is_multiple_of(LARGE_PAGE_BYTES) {
            // SAFETY: mapped just now, and nobody knew of it.
            unsafe { munmap(base.cast(), bytes) }.ok()?;
            let longer = bytes.checked_add(LARGE_PAGE_BYTES)?;
            let start = map(longer).ok()?.cast::<u8>();
            let front = start.addr().next_multiple_of(LARGE_PAGE_BYTES) - start.addr();
            // SAFETY: `front` is less than a large page, so that `bytes` bytes follow, and the ends are whole small pages
            // that nobody knew of.
            unsafe {
                base = start.add(front);
                if front > 0 {
                    munmap(start.cast(), front).ok()?;
                }
                munmap(base.add(bytes).cast(), LARGE_PAGE_BYTES - front).ok()?;
            }
        }
        // SAFETY: the mapping is ours. Advice: without it everything is as right, and slower.
        let _ = unsafe { madvise(base.cast(), bytes, Advice::LinuxHugepage) };
        NonNull::new(base)
    }

    /// Has the system make the memory now.
    ///
    /// # Safety
    /// It came from [`map`] and nobody uses it yet.
    pub(super) unsafe fn touch(base: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            // Linux from 5.14 on.
            if madvise(base.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite).is_err() {
                (0..bytes).step_by(SMALL_PAGE_BYTES).for_each(|at| base.add(at).write_volatile(0));
            }
        }
    }

    /// Gives it back.
    ///
    /// # Safety
    /// It came from [`map`] with this length, and nothing points into it any more.
    pub(super) unsafe fn unmap(base: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise.
        let _ = unsafe { munmap(base.as_ptr().cast(), bytes) };
    }
}

/// From the allocator: for other systems, and for interpreters.
#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    use super::LARGE_PAGE_BYTES;

    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes, LARGE_PAGE_BYTES).ok()
    }

    /// Zeros, aligned to a large page.
    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: a length is a large page at least.
        NonNull::new(unsafe { alloc_zeroed(layout(bytes)?) })
    }

    /// Has the system make the memory now.
    ///
    /// # Safety
    /// It came from [`map`] and nobody uses it yet.
    pub(super) unsafe fn touch(base: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { base.write_bytes(0, bytes) };
    }

    /// Gives it back.
    ///
    /// # Safety
    /// It came from [`map`] with this length, and nothing points into it any more.
    pub(super) unsafe fn unmap(base: NonNull<u8>, bytes: usize) {
        if let Some(layout) = layout(bytes) {
            // SAFETY: the caller's promise; the layout is that of `map`.
            unsafe { dealloc(base.as_ptr(), layout) };
        }
    }
}

/// Of the tests that look at the pages of the whole process or take many, one at a time.
#[cfg(test)]
pub(crate) static ALONE: Mutex<()> = Mutex::new(());

#[cfg(test)]
#[path = "large_pages_tests.rs"]
pub(crate) mod tests;
