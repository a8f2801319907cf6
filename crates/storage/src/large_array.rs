//! Arrays that are read all over and hardly ever changed in length, in large pages where that is worth it.
//!
//! Directories of what lies elsewhere, the slots of a cache, the segments of a sorted view: a read meets a line of each. In
//! pages of 4 KiB each of these lines has a page of its own to be looked up, too.
//!
//! ```text
//! shorter than 16 KiB     from the allocator
//! up to 2 MiB             a piece of a slab that the arrays of the whole process share (see Slabs)
//! longer                  large pages of its own, the end of it in small ones
//! no memory of that kind  from the allocator
//! ```

// Memory from elsewhere, as a slice of any type.
#![allow(unsafe_code)]

use std::fmt;
use std::mem::{align_of, size_of};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use parking_lot::Mutex;

use crate::large_pages::{LARGE_PAGE_BYTES, LargePages};
use crate::slabs::{SlabPiece, Slabs};

/// Shorter arrays touch few pages.
const SMALLEST_BYTES: usize = 16 << 10;
/// Longer arrays have pages of their own; shorter ones would not fill a large one.
const LARGEST_PIECE_BYTES: usize = LARGE_PAGE_BYTES;
/// Every piece and page starts at a multiple of this.
const ALIGNMENT: usize = 256;

/// The slabs of all arrays of the process. Half full will do: behind a piece of more than half a slab only shorter ones fit.
static SLABS: Mutex<Slabs> = Mutex::new(Slabs::new(4));

/// As many values of `T` as there were when it was made, like a `Box<[T]>`.
///
/// ```
/// use bolide_storage::LargeArray;
///
/// let squares = LargeArray::from((0..100_000_u64).map(|number| number * number).collect::<Vec<_>>());
/// assert_eq!((squares.len(), squares[300]), (100_000, 90_000));
/// ```
pub struct LargeArray<T> {
    /// The first of `len` values; dangling if the allocator has none to give back.
    values: NonNull<T>,
    len: usize,
    home: Home,
}

/// Where the memory comes from.
enum Home {
    /// A boxed slice.
    Allocator,
    /// A piece of [`SLABS`].
    Slab(SlabPiece),
    /// Pages of its own, given back when they are dropped.
    Pages(LargePages),
}

// SAFETY: it owns its values, as a `Box<[T]>` does.
unsafe impl<T: Send> Send for LargeArray<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for LargeArray<T> {}

impl<T> LargeArray<T> {
    /// `len` values, each what `make` answers for its number.
    pub fn from_fn(len: usize, make: impl FnMut(usize) -> T) -> Self {
        let Some((home, memory)) = memory_for::<T>(len) else {
            return Self::boxed((0..len).map(make).collect());
        };
        let values = memory.cast::<T>();
        // Where `make` panics what was made is lost, and harms nobody.
        (0..len).map(make).enumerate().for_each(|(number, value)| {
            // SAFETY: there is room for `len` values, aligned, that nobody else knows of.
            unsafe { values.add(number).write(value) };
        });
        Self { values, len, home }
    }

    fn boxed(values: Box<[T]>) -> Self {
        let len = values.len();
        Self { values: NonNull::from(Box::leak(values)).cast(), len, home: Home::Allocator }
    }

    /// The bytes of memory that it takes, large pages and granules filled up.
    pub fn memory_bytes(&self) -> usize {
        let bytes = size_of::<T>() * self.len;
        match &self.home {
            Home::Allocator => bytes,
            Home::Slab(_) => Slabs::piece_bytes(bytes),
            Home::Pages(pages) => pages.len(),
        }
    }
}

/// Memory for `len` values with any content, aligned; `None` if the allocator is the place for them.
fn memory_for<T>(len: usize) -> Option<(Home, NonNull<u8>)> {
    let bytes = size_of::<T>().checked_mul(len)?;
    if bytes < SMALLEST_BYTES || align_of::<T>() > ALIGNMENT {
        return None;
    }
    if bytes > LARGEST_PIECE_BYTES {
        let pages = LargePages::with_small_end(bytes)?;
        let base = pages.base();
        return Some((Home::Pages(pages), base));
    }
    let piece = SLABS.lock().take(bytes)?;
    Some((Home::Slab(piece), piece.memory))
}

impl<T> From<Vec<T>> for LargeArray<T> {
    /// Moves the values, unless they can stay where they are.
    fn from(mut values: Vec<T>) -> Self {
        let len = values.len();
        let Some((home, memory)) = memory_for::<T>(len) else {
            return Self::boxed(values.into());
        };
        let memory = memory.cast::<T>();
        // SAFETY: the vector has `len` values, the memory has room for them, aligned, and nobody else knows of it. They are
        // moved: the vector has none afterwards.
        unsafe {
            memory.copy_from_nonoverlapping(NonNull::from(values.as_mut_slice()).cast(), len);
            values.set_len(0);
        }
        Self { values: memory, len, home }
    }
}

impl<T> FromIterator<T> for LargeArray<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        values.into_iter().collect::<Vec<_>>().into()
    }
}

impl<T> Default for LargeArray<T> {
    fn default() -> Self {
        Self::boxed(Box::default())
    }
}

impl<T> Deref for LargeArray<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` values lie there as long as this lives, and change by exclusive borrows of it alone.
        unsafe { NonNull::slice_from_raw_parts(self.values, self.len).as_ref() }
    }
}

impl<T> DerefMut for LargeArray<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`; the borrow is exclusive.
        unsafe { NonNull::slice_from_raw_parts(self.values, self.len).as_mut() }
    }
}

impl<T> Drop for LargeArray<T> {
    fn drop(&mut self) {
        let values = NonNull::slice_from_raw_parts(self.values, self.len);
        match self.home {
            // SAFETY: that is the boxed slice that was leaked, and nobody uses it any more.
            Home::Allocator => drop(unsafe { Box::from_raw(values.as_ptr()) }),
            Home::Slab(piece) => {
                // SAFETY: the values are there, and nobody uses them any more.
                unsafe { values.drop_in_place() };
                // SAFETY: the piece was taken from these slabs for as many bytes, and nothing uses it now.
                let empty = unsafe { SLABS.lock().give_back(piece, size_of::<T>() * self.len) };
                // The system takes it back outside the lock.
                drop(empty);
            }
            // SAFETY: the values are there, and nobody uses them any more. The pages go after them.
            Home::Pages(_) => unsafe { values.drop_in_place() },
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for LargeArray<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Clone> Clone for LargeArray<T> {
    fn clone(&self) -> Self {
        self.to_vec().into()
    }
}

impl<T: PartialEq> PartialEq for LargeArray<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for LargeArray<T> {}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use parking_lot::MutexGuard;

    use super::*;
    use crate::SimRng;
    use crate::large_pages::ALONE;

    /// A test that takes pages and leaves none taken.
    struct Alone(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

    fn alone() -> Alone {
        Alone(ALONE.lock())
    }

    impl Drop for Alone {
        fn drop(&mut self) {
            SLABS.lock().give_up_empty();
        }
    }

    /// Lengths at which the memory comes from elsewhere, in bytes.
    const BORDERS: [usize; 5] =
        [SMALLEST_BYTES, LARGE_PAGE_BYTES / 2, LARGEST_PIECE_BYTES, 2 * LARGE_PAGE_BYTES, 5 << 20];

    #[test]
    fn arrays_are_the_slices_they_were_made_of() {
        let _alone = alone();
        // An interpreter takes its time.
        for around in BORDERS.into_iter().take(if cfg!(miri) { 1 } else { BORDERS.len() }) {
            for len in [around - 8, around, around + 8].map(|bytes| bytes / 8) {
                let value = |number: usize| (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let slice: Vec<u64> = (0..len).map(value).collect();
                let mut array = LargeArray::from_fn(len, value);
                assert_eq!(*array, *slice);
                assert_eq!(LargeArray::from(slice.clone()), array);
                assert_eq!(array.clone(), array);
                assert!(array.memory_bytes() >= 8 * len && array.memory_bytes() < 8 * len + 4096);
                array[len - 1] ^= 1;
                assert_eq!(array.iter().zip(&slice).filter(|(left, right)| left != right).count(), 1);
            }
        }
        assert!(
            LargeArray::<u64>::default().is_empty() && LargeArray::from(vec![(); 1 << 20]).len() == 1 << 20
        );
    }

    #[test]
    fn long_arrays_lie_in_large_pages() {
        let _alone = alone();
        let array = |bytes: usize| LargeArray::from_fn(bytes, |_| 0_u8);
        assert!(matches!(array(SMALLEST_BYTES - 1).home, Home::Allocator));
        for bytes in [SMALLEST_BYTES, LARGE_PAGE_BYTES / 2 + 1, LARGE_PAGE_BYTES] {
            assert!(matches!(array(bytes).home, Home::Slab(_)), "{bytes} bytes");
        }
        assert!(matches!(array(LARGE_PAGE_BYTES + 1).home, Home::Pages(_)));
    }

    #[test]
    fn alignment_is_that_of_the_type() {
        let _alone = alone();
        #[repr(align(64))]
        struct Line(u8);
        #[repr(align(4096))]
        struct Page(u8);
        for len in [1, 300, 3_000, 50_000] {
            let lines = LargeArray::from_fn(len, |number| Line(number as u8));
            assert!(lines.as_ptr().is_aligned());
            assert!(lines.iter().zip(0_u64..).all(|(line, number)| line.0 == number as u8));
        }
        for len in [1, 5, 600] {
            let pages = LargeArray::from_fn(len, |number| Page(number as u8));
            assert!(pages.as_ptr().is_aligned());
            assert!(pages.iter().zip(0_u64..).all(|(page, number)| page.0 == number as u8));
        }
    }

    #[test]
    fn values_are_dropped_once() {
        let _alone = alone();
        for len in [10, 3_000, 100_000, 300_000].into_iter().take(if cfg!(miri) { 2 } else { 4 }) {
            let counted = Arc::new(());
            let made = LargeArray::from_fn(len, |_| Arc::clone(&counted));
            let moved: LargeArray<_> = vec![Arc::clone(&counted); len].into();
            assert_eq!(Arc::strong_count(&counted), 2 * len + 1);
            drop((made, moved));
            assert_eq!(Arc::strong_count(&counted), 1, "{len} values");
        }
    }

    #[test]
    fn arrays_of_many_threads_do_not_meet() {
        let _alone = alone();
        let rounds = if cfg!(miri) { 6 } else { 400 };
        thread::scope(|scope| {
            for seed in 0..3 {
                scope.spawn(move || {
                    let mut rng = SimRng::new(seed);
                    let mut live: Vec<(u64, LargeArray<u64>)> = Vec::new();
                    for number in 0..rounds {
                        if live.len() > 40 || (!live.is_empty() && rng.one_in(3)) {
                            let (number, array) = live.swap_remove(rng.below(live.len() as u64) as usize);
                            assert!(array.iter().all(|&value| value == seed << 32 | number), "seed {seed}");
                        }
                        let most = if rng.one_in(5) { 200_000 } else { 9_000 };
                        let len = 2_000 + rng.below(most) as usize;
                        live.push((number, vec![seed << 32 | number; len].into()));
                    }
                });
            }
        });
    }
}
