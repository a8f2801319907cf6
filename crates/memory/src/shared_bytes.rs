//! Reference-counted bytes, in large pages for caches.
//!
//! Accesses to a cache of many megabytes are scattered. In pages of 4 KiB almost every access needs a page table lookup, which
//! costs as much as the first bytes that it reads. In pages of 2 MiB the page table stays cached. Therefore cached bytes lie in
//! *slabs* of 2 MiB, which are large pages if the system provides them. Nothing else depends on it.
//!
//! ```text
//! shared bytes   header 16 bytes, then the bytes; whole granules of a slab
//! ```
//!
//! A slab is allocated only if seven eighths of the existing slabs are in use, and freed when it is empty (see [`Slabs`]).
//! Bytes without room in a slab, and bytes that are not cached, come from the allocator. Bytes keep their memory after the cache
//! is dropped.

// Shared bytes with their reference count before them, in memory that this module subdivides.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::mem::{align_of, size_of};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use crate::page_mapping::LARGE_PAGE_BYTES;
use crate::page_pool::PagePool;
use crate::slabs::{SlabPiece, Slabs};

/// Sizes in slabs: smaller bytes waste a granule, larger ones leave holes.
const SIZES: std::ops::Range<usize> = 1 << 10..LARGE_PAGE_BYTES / 16;
/// Eighths of the slabs that are in use before another slab is allocated.
const FULL_EIGHTHS: usize = 7;
/// Smallest capacity of a cache that uses slabs, in bytes.
const SMALLEST_CACHE: u64 = 16 << 20;

/// Bytes from the [address](SharedBytes::address) of shared bytes to the first of them.
pub const SHARED_HEADER_BYTES: u64 = size_of::<Header>() as u64;

/// The header before the bytes.
#[repr(C, align(8))]
struct Header {
    /// The owner of the memory; `None` for the allocator.
    owner: Option<Arc<CacheMemory>>,
    references: AtomicU32,
    /// The number of the slab of that owner.
    slab: u32,
}

/// Maximum of the reference count. More references are a leak that would free the memory too early.
const MAX_REFERENCES: u32 = i32::MAX as u32;

/// Bytes with shared ownership, like an `Arc<[u8]>`. Immutable while they are shared.
pub struct SharedBytes {
    header: NonNull<Header>,
    len: usize,
}

// SAFETY: the bytes are only read while they are shared; the count is atomic, and `CacheMemory` is `Send` and `Sync`.
unsafe impl Send for SharedBytes {}
// SAFETY: as above.
unsafe impl Sync for SharedBytes {}

impl SharedBytes {
    /// `len` zero bytes from the allocator.
    pub fn zeroed(len: usize) -> Self {
        let layout = layout(len);
        // SAFETY: the layout is not of size zero, as it has a header.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
        let header = memory.cast::<Header>();
        // SAFETY: there is room for an aligned header, and no other reference to it exists.
        unsafe { header.write(Header { owner: None, references: AtomicU32::new(1), slab: 0 }) };
        Self { header, len }
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: the header lives as long as any reference to it, and only its atomic count changes.
        unsafe { self.header.as_ref() }
    }

    /// The address of the header, which the bytes follow.
    #[inline]
    pub fn address(&self) -> usize {
        self.header.addr().get()
    }

    /// The bytes for modification; `None` if they are shared.
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        if self.header().references.load(Ordering::Acquire) != 1 {
            return None;
        }
        // SAFETY: `len` bytes after the header are initialised, and this is the only reference, which is borrowed.
        Some(unsafe { std::slice::from_raw_parts_mut(self.header.add(1).cast::<u8>().as_ptr(), self.len) })
    }

    /// Memory of the bytes with the header.
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        match self.header().owner {
            Some(_) => Slabs::piece_bytes(allocation_bytes(self.len)),
            None => self.len,
        }
    }
}

/// The layout of a header and `len` bytes.
fn layout(len: usize) -> Layout {
    // Far below the limit of a layout.
    let bytes = len.saturating_add(size_of::<Header>());
    Layout::from_size_align(bytes, align_of::<Header>()).unwrap_or_else(|_| std::process::abort())
}

/// Size of a header and `len` bytes.
fn allocation_bytes(len: usize) -> usize {
    len + size_of::<Header>()
}

impl Deref for SharedBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes after the header are initialised and live as long as this. They are immutable, since a change
        // needs the only reference, which is borrowed.
        unsafe { std::slice::from_raw_parts(self.header.add(1).cast::<u8>().as_ptr(), self.len) }
    }
}

impl Clone for SharedBytes {
    #[inline]
    fn clone(&self) -> Self {
        // The caller has a reference, so no ordering is needed.
        if self.header().references.fetch_add(1, Ordering::Relaxed) > MAX_REFERENCES {
            std::process::abort();
        }
        Self { header: self.header, len: self.len }
    }
}

impl Drop for SharedBytes {
    #[inline]
    fn drop(&mut self) {
        // Accesses through other references happen before the memory is reused.
        if self.header().references.fetch_sub(1, Ordering::Release) == 1 {
            self.header().references.load(Ordering::Acquire);
            // SAFETY: that was the last reference.
            unsafe { self.free() };
        }
    }
}

impl SharedBytes {
    /// Frees the memory.
    ///
    /// # Safety
    /// There is no other reference, and this one is not used any more.
    #[cold]
    unsafe fn free(&mut self) {
        // SAFETY: by the contract of this function the header is read for the last time.
        let Header { owner, slab, .. } = unsafe { self.header.read() };
        match owner {
            Some(memory) => {
                let piece = SlabPiece { slab, memory: self.header.cast() };
                // SAFETY: the piece was taken from these slabs with this length; the contract of this function.
                let empty = unsafe { memory.slabs.lock().free(piece, allocation_bytes(self.len)) };
                // The slab is returned to the system outside of the lock.
                drop(empty);
            }
            // SAFETY: the memory came from the allocator with this layout.
            None => unsafe { dealloc(self.header.cast().as_ptr(), layout(self.len)) },
        }
    }
}

impl From<&[u8]> for SharedBytes {
    fn from(bytes: &[u8]) -> Self {
        let mut copy = Self::zeroed(bytes.len());
        if let Some(place) = copy.get_mut() {
            place.copy_from_slice(bytes);
        }
        copy
    }
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        bytes.as_slice().into()
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

/// The slabs of a cache.
pub struct CacheMemory {
    /// False if the cache is too small for slabs.
    has_slabs: bool,
    slabs: Mutex<Slabs>,
}

impl CacheMemory {
    /// The memory of a cache of `capacity_bytes`, in large pages that may come from `pages`. Allocates nothing yet.
    pub fn new(capacity_bytes: u64, pages: Arc<PagePool>) -> Arc<Self> {
        Arc::new(Self {
            has_slabs: capacity_bytes >= SMALLEST_CACHE,
            slabs: Mutex::new(Slabs::new(FULL_EIGHTHS, pages)),
        })
    }

    /// `len` zero bytes, in a slab if there is room.
    ///
    /// About one call in several hundred allocates a slab. Without a free large page the system then clears 2 MiB at once,
    /// which takes longer than a read of a file, but less time than clearing the same size in pages of 4 KiB.
    pub fn zeroed(self: &Arc<Self>, len: usize) -> SharedBytes {
        if !self.has_slabs || !SIZES.contains(&len) {
            return SharedBytes::zeroed(len);
        }
        let Some(SlabPiece { slab, memory }) = self.slabs.lock().allocate(allocation_bytes(len)) else {
            return SharedBytes::zeroed(len);
        };
        let header = memory.cast::<Header>();
        let owner = Some(Arc::clone(self));
        // SAFETY: the piece has room for a header and `len` bytes, is aligned to 256 bytes, and belongs to these bytes
        // alone until they return it.
        unsafe {
            header.write(Header { owner, references: AtomicU32::new(1), slab });
            header.add(1).cast::<u8>().write_bytes(0, len);
        }
        SharedBytes { header, len }
    }

    /// The slab of `bytes`, if they are in one of these and have no other reference.
    pub fn slab_of_unshared(self: &Arc<Self>, bytes: &SharedBytes) -> Option<u32> {
        let header = bytes.header();
        let is_unshared = header.references.load(Ordering::Relaxed) == 1;
        header.owner.as_ref().filter(|owner| is_unshared && Arc::ptr_eq(owner, self)).map(|_| header.slab)
    }

    /// The slabs with the fewest bytes whose removal returns `bytes` bytes to the system, as far as there are as many. Only
    /// slabs without bytes beside `removable` ones, by slab. Cost: visits the slabs.
    pub fn emptiest_slabs(&self, bytes: u64, removable: &HashMap<u32, usize>) -> HashSet<u32> {
        let wanted = usize::try_from(bytes).unwrap_or(usize::MAX).div_ceil(LARGE_PAGE_BYTES);
        let slabs = self.slabs.lock();
        let can_be_empty = |(number, used): &(u32, usize)| removable.get(number) == Some(used);
        let mut slabs: Vec<(u32, usize)> = slabs.used_bytes().filter(can_be_empty).collect();
        slabs.sort_unstable_by_key(|&(_, used)| used);
        slabs.into_iter().take(wanted).map(|(number, _)| number).collect()
    }

    /// Bytes of slabs that no shared bytes take: memory nevertheless.
    pub fn unused_bytes(&self) -> u64 {
        self.slabs.lock().free_bytes() as u64
    }

    /// Returns an empty slab that is retained to the system.
    pub fn release_empty_slab(&self) {
        let empty = self.slabs.lock().take_empty();
        drop(empty);
    }

    /// Size of all slabs, in bytes.
    pub fn slab_bytes(&self) -> usize {
        self.slabs.lock().bytes()
    }
}

#[cfg(test)]
#[path = "shared_bytes_tests.rs"]
mod tests;
