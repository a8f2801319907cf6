//! Arrays with random accesses and a fixed length, in large pages above a size threshold.
//!
//! Examples are directories, the slots of a cache and the segments of a sorted view: each read accesses one cache line of each
//! array. With 4-KiB pages each of these accesses also misses the TLB.
//!
//! ```text
//! size                   memory
//! below 16 KiB           the allocator
//! up to 2 MiB            a piece of the slabs of the process (see Slabs)
//! above                  large pages of its own, the tail in small pages
//! allocation failed      the allocator
//! ```

// Memory of several sources, as a slice of any type.
#![allow(unsafe_code)]

use std::fmt;
use std::mem::{align_of, size_of};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use parking_lot::Mutex;

use crate::large_pages::{LARGE_PAGE_BYTES, LargePages};
use crate::slabs::{SlabPiece, Slabs};

/// Arrays below this size come from the allocator: they span few pages.
const SMALLEST_BYTES: usize = 16 << 10;
/// The largest array in a slab. Larger ones fill pages of their own.
const LARGEST_PIECE_BYTES: usize = LARGE_PAGE_BYTES;
/// The alignment of every piece and page.
const ALIGNMENT: usize = 256;

/// The slabs of all arrays of the process. Half full is enough: behind a piece of more than half a slab only smaller ones fit.
static SLABS: Mutex<Slabs> = Mutex::new(Slabs::new(4));

/// A fixed number of values of `T`, like a `Box<[T]>`.
///
/// ```
/// use bolide_storage::LargeArray;
///
/// let squares = LargeArray::from((0..100_000_u64).map(|number| number * number).collect::<Vec<_>>());
/// assert_eq!((squares.len(), squares[300]), (100_000, 90_000));
/// ```
pub struct LargeArray<T> {
    /// The first of `len` values; dangling for an empty array of the allocator.
    values: NonNull<T>,
    len: usize,
    source: MemorySource,
}

/// The source of an array's memory.
enum MemorySource {
    /// A boxed slice.
    Allocator,
    /// A piece of [`SLABS`].
    Slab(SlabPiece),
    /// Pages of its own, freed when dropped.
    Pages(LargePages),
}

// SAFETY: it owns its values, as a `Box<[T]>` does.
unsafe impl<T: Send> Send for LargeArray<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for LargeArray<T> {}

impl<T> LargeArray<T> {
    /// An array of `len` values; `value` returns the value of each index.
    pub fn from_fn(len: usize, value: impl FnMut(usize) -> T) -> Self {
        let Some((source, memory)) = memory_for::<T>(len) else {
            return Self::boxed((0..len).map(value).collect());
        };
        let values = memory.cast::<T>();
        // If `value` panics, the values so far leak, which is safe.
        (0..len).map(value).enumerate().for_each(|(number, value)| {
            // SAFETY: the memory has space for `len` values, is aligned, and has no other reference.
            unsafe { values.add(number).write(value) };
        });
        Self { values, len, source }
    }

    fn boxed(values: Box<[T]>) -> Self {
        let len = values.len();
        Self { values: NonNull::from(Box::leak(values)).cast(), len, source: MemorySource::Allocator }
    }

    /// The memory of the array in bytes, rounded up to whole pages or granules.
    pub fn memory_bytes(&self) -> usize {
        let bytes = size_of::<T>() * self.len;
        match &self.source {
            MemorySource::Allocator => bytes,
            MemorySource::Slab(_) => Slabs::piece_bytes(bytes),
            MemorySource::Pages(pages) => pages.len(),
        }
    }
}

/// Allocates aligned memory for `len` values, with undefined content; `None` if it has to come from the allocator.
fn memory_for<T>(len: usize) -> Option<(MemorySource, NonNull<u8>)> {
    let bytes = size_of::<T>().checked_mul(len)?;
    if bytes < SMALLEST_BYTES || align_of::<T>() > ALIGNMENT {
        return None;
    }
    if bytes > LARGEST_PIECE_BYTES {
        let pages = LargePages::with_small_tail(bytes)?;
        let base = pages.base();
        return Some((MemorySource::Pages(pages), base));
    }
    let piece = SLABS.lock().allocate(bytes)?;
    Some((MemorySource::Slab(piece), piece.memory))
}

impl<T> From<Vec<T>> for LargeArray<T> {
    /// Moves the values into new memory unless the array stays with the allocator.
    fn from(mut values: Vec<T>) -> Self {
        let len = values.len();
        let Some((source, memory)) = memory_for::<T>(len) else {
            return Self::boxed(values.into());
        };
        let memory = memory.cast::<T>();
        // SAFETY: the vector has `len` values; the memory has space for them, is aligned, and has no other reference. The values
        // are moved: the vector has none afterwards.
        unsafe {
            memory.copy_from_nonoverlapping(NonNull::from(values.as_mut_slice()).cast(), len);
            values.set_len(0);
        }
        Self { values: memory, len, source }
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
        // SAFETY: `len` values are there for the lifetime of the array; only exclusive borrows of it modify them.
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
        match self.source {
            // SAFETY: this is the leaked boxed slice, and no reference to it is left.
            MemorySource::Allocator => drop(unsafe { Box::from_raw(values.as_ptr()) }),
            MemorySource::Slab(piece) => {
                // SAFETY: the values are initialized, and no reference to them is left.
                unsafe { values.drop_in_place() };
                // SAFETY: the piece was allocated from these slabs for this many bytes and is not in use.
                let empty = unsafe { SLABS.lock().free(piece, size_of::<T>() * self.len) };
                // Unmapped outside of the lock.
                drop(empty);
            }
            // SAFETY: the values are initialized, and no reference to them is left. The pages are dropped after them.
            MemorySource::Pages(_) => unsafe { values.drop_in_place() },
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
    use crate::large_pages::POOL_TEST_LOCK;

    /// Serializes a test that allocates pages, and frees the retained slab at its end.
    struct SerialTest(#[expect(dead_code, reason = "held for its drop")] MutexGuard<'static, ()>);

    fn serial() -> SerialTest {
        SerialTest(POOL_TEST_LOCK.lock())
    }

    impl Drop for SerialTest {
        fn drop(&mut self) {
            SLABS.lock().release_empty();
        }
    }

    /// Sizes at which the source of the memory changes, in bytes.
    const BOUNDARIES: [usize; 5] =
        [SMALLEST_BYTES, LARGE_PAGE_BYTES / 2, LARGEST_PIECE_BYTES, 2 * LARGE_PAGE_BYTES, 5 << 20];

    #[test]
    fn an_array_equals_its_source_slice() {
        let _serial = serial();
        // Fewer sizes under an interpreter.
        for around in BOUNDARIES.into_iter().take(if cfg!(miri) { 1 } else { BOUNDARIES.len() }) {
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
    fn the_size_determines_the_source_of_the_memory() {
        let _serial = serial();
        let array = |bytes: usize| LargeArray::from_fn(bytes, |_| 0_u8);
        assert!(matches!(array(SMALLEST_BYTES - 1).source, MemorySource::Allocator));
        for bytes in [SMALLEST_BYTES, LARGE_PAGE_BYTES / 2 + 1, LARGE_PAGE_BYTES] {
            assert!(matches!(array(bytes).source, MemorySource::Slab(_)), "{bytes} bytes");
        }
        assert!(matches!(array(LARGE_PAGE_BYTES + 1).source, MemorySource::Pages(_)));
    }

    #[test]
    fn values_are_aligned() {
        let _serial = serial();
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
        let _serial = serial();
        for len in [10, 3_000, 100_000, 300_000].into_iter().take(if cfg!(miri) { 2 } else { 4 }) {
            let counted = Arc::new(());
            let built = LargeArray::from_fn(len, |_| Arc::clone(&counted));
            let moved: LargeArray<_> = vec![Arc::clone(&counted); len].into();
            assert_eq!(Arc::strong_count(&counted), 2 * len + 1);
            drop((built, moved));
            assert_eq!(Arc::strong_count(&counted), 1, "{len} values");
        }
    }

    #[test]
    fn arrays_of_concurrent_threads_do_not_overlap() {
        let _serial = serial();
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
                        let bound = if rng.one_in(5) { 200_000 } else { 9_000 };
                        let len = 2_000 + rng.below(bound) as usize;
                        live.push((number, vec![seed << 32 | number; len].into()));
                    }
                });
            }
        });
    }
}
