//! Memory for blocks: bytes that are shared by counting, in large pages where they are to stay.
//!
//! A cache of many megabytes is read all over. In pages of 4 KiB as good as every block that is met is a page that the
//! processor has to look up in the page table, which costs as much as the block's first bytes do; in pages of
//! 2 MiB the table is small enough to be at hand. So blocks that go into a cache lie in *slabs* of 2 MiB, which
//! are large pages where the system has them; nothing else depends on it.
//!
//! ```text
//! block      header 16 bytes, then the bytes; whole granules of a slab
//! ```
//!
//! A slab is taken only while seven eighths of those there are in use, and given back once it is empty (see [`Slabs`]). Blocks for which there is no room, and those that are not cached, come from the allocator, one by one. A block keeps
//! its memory, whatever becomes of the cache.

// Shared bytes with their count in front of them, in memory that is divided here.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::mem::{align_of, size_of};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bolide_storage::{LARGE_PAGE_BYTES, SlabPiece, Slabs};
use parking_lot::Mutex;

/// Blocks of fewer bytes are not worth a granule, larger ones would leave holes.
const SIZES: std::ops::Range<usize> = 1 << 10..LARGE_PAGE_BYTES / 16;
/// So many eighths of the slabs are in use before there is one more.
const FULL_EIGHTHS: usize = 7;
/// Caches of less than this use no slabs.
const SMALLEST_CACHE: u64 = 16 << 20;

/// Bytes from where a block lies in memory to its own first byte.
pub(crate) const MEMORY_HEADER_BYTES: u64 = size_of::<Header>() as u64;

/// What stands in front of the bytes.
#[repr(C, align(8))]
struct Header {
    /// Where the memory comes from; `None` for the allocator.
    home: Option<Arc<BlockMemory>>,
    references: AtomicU32,
    /// The number of the slab there.
    slab: u32,
}

/// More references than this are a leak that would end in memory freed too early.
const MAX_REFERENCES: u32 = i32::MAX as u32;

/// Bytes that any number of owners share, like an `Arc<[u8]>`. They never change once they are shared.
pub(crate) struct SharedBytes {
    header: NonNull<Header>,
    len: usize,
}

// SAFETY: the bytes are only read while they are shared; the count is atomic, and `BlockMemory` is `Send` and `Sync`.
unsafe impl Send for SharedBytes {}
// SAFETY: as above.
unsafe impl Sync for SharedBytes {}

impl SharedBytes {
    /// `len` zeros, from the allocator.
    pub(crate) fn zeroed(len: usize) -> Self {
        let layout = layout(len);
        // SAFETY: the layout is not of size zero, as it has a header.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
        let header = memory.cast::<Header>();
        // SAFETY: there is room for a header, aligned, that nobody else knows of.
        unsafe { header.write(Header { home: None, references: AtomicU32::new(1), slab: 0 }) };
        Self { header, len }
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: the header lives as long as anything refers to it, and changes by its atomic alone.
        unsafe { self.header.as_ref() }
    }

    /// Where the header and then the bytes lie.
    #[inline]
    pub(crate) fn address(&self) -> usize {
        self.header.addr().get()
    }

    /// The bytes, to be changed; `None` if they are shared.
    pub(crate) fn get_mut(&mut self) -> Option<&mut [u8]> {
        if self.header().references.load(Ordering::Acquire) != 1 {
            return None;
        }
        // SAFETY: `len` bytes behind the header are initialised, and this is the only reference, which is borrowed.
        Some(unsafe { std::slice::from_raw_parts_mut(self.header.add(1).cast::<u8>().as_ptr(), self.len) })
    }

    /// The bytes of memory that they take.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> usize {
        match self.header().home {
            Some(_) => Slabs::piece_bytes(taken(self.len)),
            None => self.len,
        }
    }
}

/// A header and `len` bytes.
fn layout(len: usize) -> Layout {
    // Blocks are shorter than 2³² bytes.
    let bytes = len.saturating_add(size_of::<Header>());
    Layout::from_size_align(bytes, align_of::<Header>()).unwrap_or_else(|_| std::process::abort())
}

/// A header and `len` bytes, in bytes.
fn taken(len: usize) -> usize {
    len + size_of::<Header>()
}

impl Deref for SharedBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes behind the header are initialised and live as long as this; nobody changes them, as that
        // needs the only reference, borrowed.
        unsafe { std::slice::from_raw_parts(self.header.add(1).cast::<u8>().as_ptr(), self.len) }
    }
}

impl Clone for SharedBytes {
    #[inline]
    fn clone(&self) -> Self {
        // The one who clones has a reference, so that nothing is to be waited for.
        if self.header().references.fetch_add(1, Ordering::Relaxed) > MAX_REFERENCES {
            std::process::abort();
        }
        Self { header: self.header, len: self.len }
    }
}

impl Drop for SharedBytes {
    #[inline]
    fn drop(&mut self) {
        // What others did with the bytes comes before the memory is used for something else.
        if self.header().references.fetch_sub(1, Ordering::Release) == 1 {
            self.header().references.load(Ordering::Acquire);
            // SAFETY: that was the last reference.
            unsafe { self.free() };
        }
    }
}

impl SharedBytes {
    /// Gives the memory back.
    ///
    /// # Safety
    /// Nobody else has a reference, and this one is not used any more.
    #[cold]
    unsafe fn free(&mut self) {
        // SAFETY: the caller's promise: the header is read for the last time.
        let Header { home, slab, .. } = unsafe { self.header.read() };
        match home {
            Some(memory) => {
                let piece = SlabPiece { slab, memory: self.header.cast() };
                // SAFETY: it was taken from there with this length; the caller's promise.
                let empty = unsafe { memory.slabs.lock().give_back(piece, taken(self.len)) };
                // The system takes it back outside the lock.
                drop(empty);
            }
            // SAFETY: it came from the allocator, with this layout.
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
pub(crate) struct BlockMemory {
    /// False where the cache is too small for them.
    has_slabs: bool,
    slabs: Mutex<Slabs>,
}

impl BlockMemory {
    /// The memory of a cache of `capacity_bytes`. Takes none yet.
    pub(crate) fn new(capacity_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            has_slabs: capacity_bytes >= SMALLEST_CACHE,
            slabs: Mutex::new(Slabs::new(FULL_EIGHTHS)),
        })
    }

    /// `len` zeros, in a slab if there is room.
    ///
    /// Once in some hundred times a slab begins: where no page is at hand, the system then clears 2 MiB at once, which takes
    /// longer than the read of a block, and less long than clearing them in pages of 4 KiB.
    pub(crate) fn zeroed(self: &Arc<Self>, len: usize) -> SharedBytes {
        if !self.has_slabs || !SIZES.contains(&len) {
            return SharedBytes::zeroed(len);
        }
        let Some(SlabPiece { slab, memory }) = self.slabs.lock().take(taken(len)) else {
            return SharedBytes::zeroed(len);
        };
        let header = memory.cast::<Header>();
        let home = Some(Arc::clone(self));
        // SAFETY: the piece has room for a header and `len` bytes, starts at a multiple of 256 bytes, and belongs to
        // this block alone until that gives it back.
        unsafe {
            header.write(Header { home, references: AtomicU32::new(1), slab });
            header.add(1).cast::<u8>().write_bytes(0, len);
        }
        SharedBytes { header, len }
    }

    /// Bytes of all slabs.
    #[cfg(test)]
    fn slab_bytes(&self) -> usize {
        self.slabs.lock().bytes()
    }
}

#[cfg(test)]
#[path = "block_memory_tests.rs"]
mod tests;
