//! Memory of a memtable: handed out in order, never moved, freed all at once.
//!
//! ```text
//! current --> chunk --> chunk (full) --> chunk (full)      a new chunk is a quarter of all before it, at least
//!             [used.......|free      ]                     `first_chunk_bytes`; or `largest_chunk_bytes` once there are as many
//! large   --> chunk --> chunk                              one value each, where it is too big to share
//! ```
//!
//! Taking memory is one atomic addition. When a chunk is full, threads race to put a new one in front;
//! the losers give theirs back and use the winner's. Chunks of a large page are one.
//!
//! [`Place`] is a reference to something in an arena, [`Link`] an atomic one. Every link lies in the same
//! memtable as what it points to, and a memtable frees its arenas only as a whole: therefore whatever a
//! link has ever pointed to may be read for as long as the link itself. That one rule carries the safety
//! of the whole module.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use bolide_storage::{LARGE_PAGE_BYTES, LargePages};

use super::sync::{AtomicPtr, AtomicUsize, Ordering, fence};

/// Every chunk starts at such an address, so that nodes can fill whole cache lines.
const CHUNK_ALIGNMENT: usize = 64;

/// Memory that is handed out in order and freed as a whole.
pub(super) struct Arena {
    current: AtomicPtr<Chunk>,
    large: AtomicPtr<Chunk>,
    reserved: AtomicUsize,
    unit: usize,
    first_chunk_bytes: usize,
    largest_chunk_bytes: usize,
}

// Two cache lines, so that threads which take memory from different arenas do not meet at one.
#[repr(align(128))]
struct Chunk {
    base: NonNull<u8>,
    capacity: usize,
    /// The memory, if it consists of large pages; else it came from the allocator.
    pages: Option<LargePages>,
    used: AtomicUsize,
    /// Capacity of this chunk and all before it in its list, as it was made.
    total: usize,
    previous: *mut Chunk,
}

impl Arena {
    /// An arena that rounds sizes up to `unit`, a power of two of at most 64, which is also the alignment
    /// of all it hands out. It holds no memory yet.
    pub(super) fn new(unit: usize, first_chunk_bytes: usize, largest_chunk_bytes: usize) -> Self {
        assert!(unit.is_power_of_two() && unit <= CHUNK_ALIGNMENT);
        Self {
            current: AtomicPtr::new(ptr::null_mut()),
            large: AtomicPtr::new(ptr::null_mut()),
            reserved: AtomicUsize::new(0),
            unit,
            first_chunk_bytes,
            largest_chunk_bytes: largest_chunk_bytes.max(first_chunk_bytes),
        }
    }

    /// Bytes of all chunks: what was taken from the allocator, used or not.
    pub(super) fn reserved_bytes(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Puts `value` into the arena. It is never dropped, so it should own nothing.
    pub(super) fn place<T: Sync>(&self, value: T) -> Place<'_, T> {
        assert!(align_of::<T>() <= self.unit);
        let target = self.allocate(size_of::<T>()).cast::<T>();
        // SAFETY: the memory is fresh, large enough, and aligned to `unit` by `allocate`.
        unsafe { target.write(value) };
        Place { target, arena: PhantomData }
    }

    /// Fresh memory of `bytes` bytes, at a multiple of the unit. Its content is undefined.
    pub(super) fn allocate(&self, bytes: usize) -> NonNull<u8> {
        let bytes = bytes.next_multiple_of(self.unit);
        if bytes > self.largest_chunk_bytes / 4 && bytes > self.first_chunk_bytes {
            return self.allocate_alone(bytes);
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

    /// Puts a chunk with room for `bytes` before `full`, unless another thread did so already.
    fn grow(&self, full: *mut Chunk, bytes: usize) {
        // SAFETY: chunks live as long as the arena.
        let shared = unsafe { full.as_ref() }.map_or(0, |chunk| chunk.total);
        let share = if shared >= self.largest_chunk_bytes { shared } else { shared / 4 };
        let share = share.next_multiple_of(CHUNK_ALIGNMENT);
        let capacity = share.clamp(self.first_chunk_bytes, self.largest_chunk_bytes).max(bytes);
        let chunk = Chunk::allocate(capacity, full);
        match self.current.compare_exchange(full, chunk, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                self.reserved.fetch_add(capacity, Ordering::Relaxed);
            }
            // SAFETY: nobody else has seen this chunk.
            Err(_) => unsafe { Chunk::free(chunk) },
        }
    }

    /// A chunk of its own for one large value.
    fn allocate_alone(&self, bytes: usize) -> NonNull<u8> {
        let chunk = Chunk::allocate(bytes, ptr::null_mut());
        self.reserved.fetch_add(bytes, Ordering::Relaxed);
        // SAFETY: the chunk lives as long as the arena; `previous` is set before others can see it.
        let base = unsafe { (*chunk).base };
        let mut head = self.large.load(Ordering::Relaxed);
        loop {
            // SAFETY: as above: not published yet.
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
                // SAFETY: nobody else has the arena any more, and every list holds each chunk once.
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

    fn allocate(capacity: usize, previous: *mut Chunk) -> *mut Chunk {
        let is_whole = capacity >= LARGE_PAGE_BYTES && capacity.is_multiple_of(LARGE_PAGE_BYTES);
        let pages = if is_whole { LargePages::new(capacity) } else { None };
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
    /// `chunk` came from [`Chunk::allocate`], and nobody uses it or its memory any more.
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

/// A reference to a `T` in an arena that lives at least as long as `'a`. It may also reach the bytes that
/// were allocated behind the `T`, which a plain reference may not.
pub(super) struct Place<'a, T> {
    target: NonNull<T>,
    arena: PhantomData<&'a T>,
}

impl<T> Clone for Place<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Place<'_, T> {}

impl<T> PartialEq for Place<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.target == other.target
    }
}

// SAFETY: a place is a shared reference to a `T`.
unsafe impl<T: Sync> Send for Place<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Place<'_, T> {}

impl<'a, T> Place<'a, T> {
    /// The place at `target`.
    ///
    /// # Safety
    /// `target` points to an initialized `T` in an arena that outlives `'a`.
    pub(super) unsafe fn new(target: NonNull<T>) -> Self {
        Self { target, arena: PhantomData }
    }

    #[inline]
    pub(super) fn get(self) -> &'a T {
        // SAFETY: the promise of `new` and the rule at the head of this file.
        unsafe { self.target.as_ref() }
    }

    /// The address, to reach the bytes behind the `T`.
    #[inline]
    pub(super) fn address(self) -> NonNull<u8> {
        self.target.cast()
    }
}

/// An atomic reference to a `T` in an arena of the same memtable, or to nothing. Loads acquire and stores
/// release, so what a loaded link points to is initialized for the reader.
pub(super) struct Link<T>(AtomicPtr<T>);

impl<T> Link<T> {
    pub(super) fn new(target: Option<Place<'_, T>>) -> Self {
        Self(AtomicPtr::new(Self::raw(target)))
    }

    #[inline]
    fn raw(target: Option<Place<'_, T>>) -> *mut T {
        target.map_or(ptr::null_mut(), |place| place.target.as_ptr())
    }

    #[inline]
    fn place<'a>(raw: *mut T) -> Option<Place<'a, T>> {
        NonNull::new(raw).map(|target| Place { target, arena: PhantomData })
    }

    #[inline]
    pub(super) fn load(&self) -> Option<Place<'_, T>> {
        Self::place(self.0.load(Ordering::Acquire))
    }

    #[inline]
    pub(super) fn store(&self, target: Option<Place<'_, T>>) {
        self.0.store(Self::raw(target), Ordering::Release);
    }

    /// Stores `new` where the link still is `current`; false where it is not.
    #[inline]
    pub(super) fn replace(&self, current: Option<Place<'_, T>>, new: Place<'_, T>) -> bool {
        let new = new.target.as_ptr();
        self.0.compare_exchange(Self::raw(current), new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}
