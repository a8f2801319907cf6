//! Anonymous memory of the system, aligned to large pages.

// Memory from the system, without a type.
#![allow(unsafe_code)]

use std::ptr::NonNull;

/// The size of a large page, in bytes.
pub const LARGE_PAGE_BYTES: usize = 2 << 20;

/// The smallest page size of any supported system, in bytes.
pub(crate) const SMALL_PAGE_BYTES: usize = 4096;

/// An anonymous mapping: zeros at first, its size a multiple of [`SMALL_PAGE_BYTES`], aligned to [`LARGE_PAGE_BYTES`].
/// Unmapped when dropped.
#[derive(Debug)]
pub(crate) struct PageMapping {
    pub(crate) base: NonNull<u8>,
    pub(crate) bytes: usize,
}

// SAFETY: it owns its memory, and exposes only its address.
unsafe impl Send for PageMapping {}
// SAFETY: as above.
unsafe impl Sync for PageMapping {}

impl PageMapping {
    /// Maps `bytes` bytes; `None` if the system has no memory.
    pub(crate) fn new(bytes: usize) -> Option<Self> {
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

    use bolide_base::technique::Technique;
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
        let advice = match Technique::LargePages.is_on() {
            true => Advice::LinuxHugepage,
            false => Advice::LinuxNoHugepage,
        };
        // SAFETY: this function owns the mapping. The advice affects only the speed.
        let _ = unsafe { madvise(base.cast(), bytes, advice) };
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
