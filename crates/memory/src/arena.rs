//! An arena: allocates in order, never moves memory, frees it as a whole.
//!
//! ```text
//! current --> chunk --> chunk (full) --> chunk (full)      a new chunk has a quarter of the size of all before it,
//!             [used.......|free      ]                     at least `first_chunk_bytes`; then `largest_chunk_bytes`
//! large   --> chunk --> chunk                              one large value each
//! ```
//!
//! An allocation is one atomic addition. When a chunk is full, threads race to prepend a new one; the losers free
//! theirs and use the winner's. A chunk of [`LARGE_PAGE_BYTES`] is one large page.

// Memory that is divided.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::large_pages::LargePages;
use crate::page_mapping::LARGE_PAGE_BYTES;
use crate::page_pool::PagePool;
use crate::sync::{AtomicPtr, AtomicUsize, Ordering, fence};

/// The alignment of chunks, so that nodes can fill whole cache lines.
const CHUNK_ALIGNMENT: usize = 64;

/// Memory that is allocated in order and freed as a whole. Any number of threads may allocate.
///
/// ```
/// use bolide_memory::{Arena, PagePool};
/// let arena = Arena::new(8, 4 << 10, 2 << 20, PagePool::new());
/// let (first, second) = (arena.allocate(3), arena.allocate(3));
/// assert_eq!(second.addr().get() - first.addr().get(), 8);
/// assert_eq!(arena.reserved_bytes(), 4 << 10);
/// ```
pub struct Arena {
    current: AtomicPtr<Chunk>,
    large: AtomicPtr<Chunk>,
    reserved: AtomicUsize,
    unit: usize,
    first_chunk_bytes: usize,
    largest_chunk_bytes: usize,
    pages: Arc<PagePool>,
}

// Two cache lines, so that threads that allocate from different arenas do not share one.
#[repr(align(128))]
struct Chunk {
    base: NonNull<u8>,
    capacity: usize,
    /// The memory, if it consists of large pages; otherwise it is from the allocator.
    pages: Option<LargePages>,
    used: AtomicUsize,
    /// The capacity of this chunk and all before it in its list, at its creation.
    total: usize,
    previous: *mut Chunk,
}

impl Arena {
    /// An arena that rounds sizes up to `unit`, a power of two of at most 64, which is also the alignment of its
    /// allocations. Its large pages are from `pages`. It has no memory yet.
    pub fn new(
        unit: usize,
        first_chunk_bytes: usize,
        largest_chunk_bytes: usize,
        pages: Arc<PagePool>,
    ) -> Self {
        assert!(unit.is_power_of_two() && unit <= CHUNK_ALIGNMENT);
        Self {
            current: AtomicPtr::new(ptr::null_mut()),
            large: AtomicPtr::new(ptr::null_mut()),
            reserved: AtomicUsize::new(0),
            unit,
            first_chunk_bytes,
            largest_chunk_bytes: largest_chunk_bytes.max(first_chunk_bytes),
            pages,
        }
    }

    /// The pool of its large pages.
    #[inline]
    pub fn pages(&self) -> &Arc<PagePool> {
        &self.pages
    }

    /// The bytes of all chunks, used or not.
    #[inline]
    pub fn reserved_bytes(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    /// The alignment of allocations.
    #[inline]
    pub fn unit(&self) -> usize {
        self.unit
    }

    /// Allocates `bytes` bytes, aligned to the unit. The content is undefined. The memory is valid as long as the arena.
    #[inline]
    pub fn allocate(&self, bytes: usize) -> NonNull<u8> {
        let bytes = bytes.next_multiple_of(self.unit);
        if bytes > self.largest_chunk_bytes / 4 && bytes > self.first_chunk_bytes {
            return self.allocate_chunk_for(bytes);
        }
        loop {
            let chunk = self.current.load(Ordering::Acquire);
            // SAFETY: chunks live as long as the arena.
            if let Some(chunk) = unsafe { chunk.as_ref() }
                && let Some(memory) = chunk.take(bytes)
            {
                return memory;
            }
            self.grow(chunk, bytes);
        }
    }

    /// Prepends a chunk with room for `bytes` to `full`, unless another thread has done so.
    fn grow(&self, full: *mut Chunk, bytes: usize) {
        // SAFETY: chunks live as long as the arena.
        let shared = unsafe { full.as_ref() }.map_or(0, |chunk| chunk.total);
        let share = if shared >= self.largest_chunk_bytes { shared } else { shared / 4 };
        let share = share.next_multiple_of(CHUNK_ALIGNMENT);
        let capacity = share.clamp(self.first_chunk_bytes, self.largest_chunk_bytes).max(bytes);
        let chunk = Chunk::allocate(capacity, full, &self.pages);
        match self.current.compare_exchange(full, chunk, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                self.reserved.fetch_add(capacity, Ordering::Relaxed);
            }
            // SAFETY: no other thread has seen this chunk.
            Err(_) => unsafe { Chunk::free(chunk) },
        }
    }

    /// Allocates a chunk for one large value.
    fn allocate_chunk_for(&self, bytes: usize) -> NonNull<u8> {
        let chunk = Chunk::allocate(bytes, ptr::null_mut(), &self.pages);
        self.reserved.fetch_add(bytes, Ordering::Relaxed);
        // SAFETY: the chunk lives as long as the arena; `previous` is set before other threads can see it.
        let base = unsafe { (*chunk).base };
        let mut head = self.large.load(Ordering::Relaxed);
        loop {
            // SAFETY: as above; the chunk is not published yet.
            unsafe { (*chunk).previous = head };
            match self.large.compare_exchange(head, chunk, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return base,
                Err(newer) => head = newer,
            }
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        fence(Ordering::Acquire);
        for list in [&self.current, &self.large] {
            let mut chunk = list.load(Ordering::Relaxed);
            while !chunk.is_null() {
                // SAFETY: no other reference to the arena exists any more, and each chunk is in one list once.
                let previous = unsafe { (*chunk).previous };
                // SAFETY: as above.
                unsafe { Chunk::free(chunk) };
                chunk = previous;
            }
        }
    }
}

impl Chunk {
    fn layout(capacity: usize) -> Layout {
        // A capacity is at most a few times the largest value, far from the limit of a layout.
        Layout::from_size_align(capacity.max(1), CHUNK_ALIGNMENT).unwrap_or(Layout::new::<Chunk>())
    }

    fn allocate(capacity: usize, previous: *mut Chunk, pool: &Arc<PagePool>) -> *mut Chunk {
        let is_large = capacity >= LARGE_PAGE_BYTES && capacity.is_multiple_of(LARGE_PAGE_BYTES);
        let pages = if is_large { LargePages::new(pool, capacity) } else { None };
        let base = match &pages {
            Some(pages) => pages.base(),
            None => Self::allocate_heap(capacity),
        };
        // SAFETY: chunks live as long as the arena.
        let total = capacity + unsafe { previous.as_ref() }.map_or(0, |chunk| chunk.total);
        Box::into_raw(Box::new(Self { base, capacity, pages, used: AtomicUsize::new(0), total, previous }))
    }

    fn allocate_heap(capacity: usize) -> NonNull<u8> {
        let layout = Self::layout(capacity);
        assert!(layout.size() >= capacity, "an allocation of {capacity} bytes is beyond all limits");
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc(layout) };
        match NonNull::new(base) {
            Some(base) => base,
            None => handle_alloc_error(layout),
        }
    }

    /// # Safety
    /// `chunk` is from [`Chunk::allocate`], and neither it nor its memory is used any more.
    unsafe fn free(chunk: *mut Chunk) {
        // SAFETY: by the caller's promise.
        let chunk = unsafe { Box::from_raw(chunk) };
        if chunk.pages.is_none() {
            // SAFETY: allocated with this layout.
            unsafe { dealloc(chunk.base.as_ptr(), Self::layout(chunk.capacity)) };
        }
    }

    #[inline]
    fn take(&self, bytes: usize) -> Option<NonNull<u8>> {
        let limit = self.capacity.checked_sub(bytes)?;
        let start = self.used.fetch_add(bytes, Ordering::Relaxed);
        // SAFETY: start + bytes <= capacity, so the address is inside the chunk.
        (start <= limit).then(|| unsafe { self.base.add(start) })
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("reserved_bytes", &self.reserved_bytes()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(bolide_shuttle)))]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn allocations_of_threads_are_aligned_and_do_not_overlap() {
        let rounds = if cfg!(miri) { 40 } else { 20_000 };
        for unit in [8, 64] {
            let arena = Arena::new(unit, 4 << 10, LARGE_PAGE_BYTES, PagePool::new());
            thread::scope(|scope| {
                let allocate = |thread: usize| {
                    let arena = &arena;
                    scope.spawn(move || {
                        let sizes = (0..rounds).map(|round: usize| 1 + (round * 37 + thread) % 300);
                        sizes
                            .map(|bytes| {
                                let memory = arena.allocate(bytes);
                                assert!(memory.addr().get().is_multiple_of(unit));
                                // SAFETY: just allocated with this length, and used by this thread only.
                                unsafe { memory.write_bytes(thread as u8, bytes) };
                                (memory.addr().get(), bytes)
                            })
                            .collect::<Vec<_>>()
                    })
                };
                let threads: Vec<_> = (0..3).map(allocate).collect();
                let mut pieces: Vec<_> =
                    threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
                pieces.sort_unstable();
                assert!(pieces.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
                assert!(pieces.iter().map(|piece| piece.1).sum::<usize>() <= arena.reserved_bytes());
            });
        }
    }

    #[test]
    fn chunks_of_a_large_page_come_from_the_pool_and_return_to_it() {
        let pool = PagePool::new();
        drop(LargePages::new(&pool, 1));
        let arena = Arena::new(8, LARGE_PAGE_BYTES, LARGE_PAGE_BYTES, pool.clone());
        arena.allocate(1_000);
        assert_eq!((arena.reserved_bytes(), pool.free_pages()), (LARGE_PAGE_BYTES, 0));
        // A large value has a chunk of its own.
        arena.allocate(LARGE_PAGE_BYTES + 8);
        assert_eq!(arena.reserved_bytes(), 2 * LARGE_PAGE_BYTES + 8);
        drop(arena);
        assert_eq!(pool.free_pages(), 1);
    }
}
