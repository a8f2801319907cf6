//! The arena of a memtable: allocates in order, never moves memory, frees it as a whole.
//!
//! ```text
//! current --> chunk --> chunk (full) --> chunk (full)      a new chunk has a quarter of the size of all before it,
//!             [used.......|free      ]                     at least `first_chunk_bytes`; then `largest_chunk_bytes`
//! large   --> chunk --> chunk                              one large value each
//! ```
//!
//! An allocation is one atomic addition. When a chunk is full, threads race to prepend a new one; the losers free
//! theirs and use the winner's. A chunk of [`LARGE_PAGE_BYTES`] is one large page.
//!
//! [`ArenaRef`] is a reference to a value in an arena, [`Link`] an atomic one. Every link is in the same memtable as
//! its target, and a memtable frees its arenas only as a whole. Therefore every value that a link has ever pointed to
//! stays readable as long as the link itself. The safety of the whole module depends on this rule.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use bolide_memory::{LARGE_PAGE_BYTES, LargePages, PagePool};

use super::sync::{AtomicPtr, AtomicUsize, Ordering, fence};

/// The alignment of chunks, so that nodes can fill whole cache lines.
const CHUNK_ALIGNMENT: usize = 64;

/// Memory that is allocated in order and freed as a whole.
pub(super) struct Arena {
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
    pub(super) fn new(
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
    pub(super) fn pages(&self) -> &Arc<PagePool> {
        &self.pages
    }

    /// The bytes of all chunks, used or not.
    pub(super) fn reserved_bytes(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Moves `value` into the arena. It is never dropped, so it should own nothing.
    pub(super) fn insert<T: Sync>(&self, value: T) -> ArenaRef<'_, T> {
        assert!(align_of::<T>() <= self.unit);
        let target = self.allocate(size_of::<T>()).cast::<T>();
        // SAFETY: the memory is fresh, large enough, and aligned to `unit` by `allocate`.
        unsafe { target.write(value) };
        ArenaRef { target, arena: PhantomData }
    }

    /// Allocates `bytes` bytes, aligned to the unit. The content is uninitialized.
    pub(super) fn allocate(&self, bytes: usize) -> NonNull<u8> {
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

    fn take(&self, bytes: usize) -> Option<NonNull<u8>> {
        let limit = self.capacity.checked_sub(bytes)?;
        let start = self.used.fetch_add(bytes, Ordering::Relaxed);
        // SAFETY: start + bytes <= capacity, so the address is inside the chunk.
        (start <= limit).then(|| unsafe { self.base.add(start) })
    }
}

/// A reference to a `T` in an arena that lives at least as long as `'a`. Unlike a plain reference, it may also access
/// the bytes allocated after the `T`.
pub(super) struct ArenaRef<'a, T> {
    target: NonNull<T>,
    arena: PhantomData<&'a T>,
}

impl<T> Clone for ArenaRef<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ArenaRef<'_, T> {}

impl<T> PartialEq for ArenaRef<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.target == other.target
    }
}

// SAFETY: an `ArenaRef` is a shared reference to a `T`.
unsafe impl<T: Sync> Send for ArenaRef<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for ArenaRef<'_, T> {}

impl<'a, T> ArenaRef<'a, T> {
    /// A reference to `target`.
    ///
    /// # Safety
    /// `target` points to an initialized `T` in an arena that outlives `'a`.
    pub(super) unsafe fn new(target: NonNull<T>) -> Self {
        Self { target, arena: PhantomData }
    }

    #[inline]
    pub(super) fn get(self) -> &'a T {
        // SAFETY: the contract of `new` and the rule in the module documentation.
        unsafe { self.target.as_ref() }
    }

    /// The address, to access the bytes after the `T`.
    #[inline]
    pub(super) fn address(self) -> NonNull<u8> {
        self.target.cast()
    }
}

/// An atomic optional reference to a `T` in an arena of the same memtable. Loads acquire and stores release, so the
/// target of a loaded link is initialized for the reader.
pub(super) struct Link<T>(AtomicPtr<T>);

impl<T> Link<T> {
    pub(super) fn new(target: Option<ArenaRef<'_, T>>) -> Self {
        Self(AtomicPtr::new(Self::raw(target)))
    }

    #[inline]
    fn raw(target: Option<ArenaRef<'_, T>>) -> *mut T {
        target.map_or(ptr::null_mut(), |reference| reference.target.as_ptr())
    }

    #[inline]
    fn reference<'a>(raw: *mut T) -> Option<ArenaRef<'a, T>> {
        NonNull::new(raw).map(|target| ArenaRef { target, arena: PhantomData })
    }

    #[inline]
    pub(super) fn load(&self) -> Option<ArenaRef<'_, T>> {
        Self::reference(self.0.load(Ordering::Acquire))
    }

    #[inline]
    pub(super) fn store(&self, target: Option<ArenaRef<'_, T>>) {
        self.0.store(Self::raw(target), Ordering::Release);
    }

    /// Stores `new` if the link still is `current`. Returns whether it was.
    #[inline]
    pub(super) fn replace(&self, current: Option<ArenaRef<'_, T>>, new: ArenaRef<'_, T>) -> bool {
        let new = new.target.as_ptr();
        self.0.compare_exchange(Self::raw(current), new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}
