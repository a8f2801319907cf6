//! References to values in the arenas of a memtable.
//!
//! [`ArenaRef`] is a reference to a value in an arena, [`Link`] an atomic one. Every link is in the same memtable as
//! its target, and a memtable frees its arenas only as a whole. Therefore every value that a link has ever pointed to
//! stays readable as long as the link itself. The safety of the whole module depends on this rule.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use bolide_memory::Arena;

use super::sync::{AtomicPtr, Ordering};

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

impl<'a, T: Sync> ArenaRef<'a, T> {
    /// Moves `value` into `arena`. It is never dropped, so it should own nothing.
    pub(super) fn of_value(arena: &'a Arena, value: T) -> Self {
        assert!(align_of::<T>() <= arena.unit());
        let target = arena.allocate(size_of::<T>()).cast::<T>();
        // SAFETY: the memory is fresh, large enough, and aligned to the unit of the arena.
        unsafe { target.write(value) };
        Self { target, arena: PhantomData }
    }
}

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
