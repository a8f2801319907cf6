//! Arrays with random accesses and a fixed length, in large pages above a size threshold.
//!
//! Examples are directories, the slots of a cache and the segments of a sorted view: each read accesses one cache line of each
//! array. With 4-KiB pages each of these accesses also misses the TLB.
//!
//! ```text
//! size                   memory
//! below 16 KiB           the allocator
//! up to 2 MiB            a piece of the slabs of a pool (see MemoryPool); without a pool, the allocator
//! above                  large pages of its own, the tail in small pages
//! allocation failed      the allocator
//! ```

// Memory of several sources, as a slice of any type.
#![allow(unsafe_code)]

use std::fmt;
use std::mem::{align_of, size_of};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::large_pages::LargePages;
use crate::memory_pool::MemoryPool;
use crate::page_mapping::LARGE_PAGE_BYTES;
use crate::slabs::{SlabPiece, Slabs};

/// Arrays below this size come from the allocator: they span few pages.
const SMALLEST_BYTES: usize = 16 << 10;
/// The largest array in a slab. Larger ones fill pages of their own.
const LARGEST_PIECE_BYTES: usize = LARGE_PAGE_BYTES;
/// The alignment of every piece and page.
const ALIGNMENT: usize = 256;

/// A fixed number of values of `T`, like a `Box<[T]>`.
///
/// ```
/// use bolide_memory::{LargeArray, MemoryPool};
///
/// let squares = LargeArray::from((0..100_000_u64).map(|number| number * number).collect::<Vec<_>>());
/// let squares = squares.moved_to(&MemoryPool::new());
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
    /// A piece of the slabs of a pool.
    Slab(SlabPiece, Arc<MemoryPool>),
    /// Pages of its own, freed when dropped.
    Pages(LargePages),
}

// SAFETY: it owns its values, as a `Box<[T]>` does.
unsafe impl<T: Send> Send for LargeArray<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for LargeArray<T> {}

impl<T> LargeArray<T> {
    /// An array of `len` values in the memory of `pool`; `value` returns the value of each index.
    ///
    /// ```
    /// use bolide_memory::{LargeArray, MemoryPool};
    /// let zeros = LargeArray::from_fn(&MemoryPool::new(), 100_000, |_| 0_u8);
    /// assert_eq!(zeros.memory_bytes(), 100_096);
    /// ```
    pub fn from_fn(pool: &Arc<MemoryPool>, len: usize, value: impl FnMut(usize) -> T) -> Self {
        let Some((source, memory)) = memory_for::<T>(len, Some(pool)) else {
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

    /// The same values in the memory of `pool`. Moves an array of the allocator that is large enough for a slab; others stay where
    /// they are.
    #[must_use]
    pub fn moved_to(mut self, pool: &Arc<MemoryPool>) -> Self {
        let MemorySource::Allocator = self.source else { return self };
        let len = std::mem::take(&mut self.len);
        let values = NonNull::slice_from_raw_parts(self.values, len);
        self.values = NonNull::dangling();
        // SAFETY: this is the leaked boxed slice; the array is empty and dangling from now on.
        let values = unsafe { Box::from_raw(values.as_ptr()) };
        Self::from_vec(values.into(), Some(pool))
    }

    /// Moves the values into new memory unless the array stays with the allocator.
    fn from_vec(mut values: Vec<T>, pool: Option<&Arc<MemoryPool>>) -> Self {
        let len = values.len();
        let Some((source, memory)) = memory_for::<T>(len, pool) else {
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

    fn boxed(values: Box<[T]>) -> Self {
        let len = values.len();
        Self { values: NonNull::from(Box::leak(values)).cast(), len, source: MemorySource::Allocator }
    }

    /// The memory of the array in bytes, rounded up to whole pages or granules.
    pub fn memory_bytes(&self) -> usize {
        let bytes = size_of::<T>() * self.len;
        match &self.source {
            MemorySource::Allocator => bytes,
            MemorySource::Slab(..) => Slabs::piece_bytes(bytes),
            MemorySource::Pages(pages) => pages.len(),
        }
    }
}

/// Allocates aligned memory for `len` values, with undefined content; `None` if it has to come from the allocator.
fn memory_for<T>(len: usize, pool: Option<&Arc<MemoryPool>>) -> Option<(MemorySource, NonNull<u8>)> {
    let bytes = size_of::<T>().checked_mul(len)?;
    if bytes < SMALLEST_BYTES || align_of::<T>() > ALIGNMENT {
        return None;
    }
    if bytes > LARGEST_PIECE_BYTES {
        let pages = LargePages::with_small_tail(bytes)?;
        let base = pages.base();
        return Some((MemorySource::Pages(pages), base));
    }
    let pool = pool?;
    let piece = pool.arrays().lock().allocate(bytes)?;
    Some((MemorySource::Slab(piece, Arc::clone(pool)), piece.memory))
}

impl<T> From<Vec<T>> for LargeArray<T> {
    /// In memory of its own if it is larger than a slab, else with the allocator.
    fn from(values: Vec<T>) -> Self {
        Self::from_vec(values, None)
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
        match &self.source {
            // SAFETY: this is the leaked boxed slice, and no reference to it is left.
            MemorySource::Allocator => drop(unsafe { Box::from_raw(values.as_ptr()) }),
            MemorySource::Slab(piece, pool) => {
                // SAFETY: the values are initialized, and no reference to them is left.
                unsafe { values.drop_in_place() };
                // SAFETY: the piece was allocated from these slabs for this many bytes and is not in use.
                let empty = unsafe { pool.arrays().lock().free(*piece, size_of::<T>() * self.len) };
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
        let pool = match &self.source {
            MemorySource::Slab(_, pool) => Some(pool),
            MemorySource::Allocator | MemorySource::Pages(_) => None,
        };
        Self::from_vec(self.to_vec(), pool)
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

    use super::*;
    use crate::test_random::TestRandom;

    /// Sizes at which the source of the memory changes, in bytes.
    const BOUNDARIES: [usize; 5] =
        [SMALLEST_BYTES, LARGE_PAGE_BYTES / 2, LARGEST_PIECE_BYTES, 2 * LARGE_PAGE_BYTES, 5 << 20];

    #[test]
    fn an_array_equals_its_source_slice() {
        let pool = MemoryPool::new();
        // Fewer sizes under an interpreter.
        for around in BOUNDARIES.into_iter().take(if cfg!(miri) { 1 } else { BOUNDARIES.len() }) {
            for len in [around - 8, around, around + 8].map(|bytes| bytes / 8) {
                let value = |number: usize| (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let slice: Vec<u64> = (0..len).map(value).collect();
                let mut array = LargeArray::from_fn(&pool, len, value);
                assert_eq!(*array, *slice);
                assert_eq!(LargeArray::from(slice.clone()), array);
                assert_eq!(LargeArray::from(slice.clone()).moved_to(&pool), array);
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
        let pool = MemoryPool::new();
        let array = |bytes: usize| LargeArray::from_fn(&pool, bytes, |_| 0_u8);
        assert!(matches!(array(SMALLEST_BYTES - 1).source, MemorySource::Allocator));
        for bytes in [SMALLEST_BYTES, LARGE_PAGE_BYTES / 2 + 1, LARGE_PAGE_BYTES] {
            assert!(matches!(array(bytes).source, MemorySource::Slab(..)), "{bytes} bytes");
            assert!(matches!(array(bytes).clone().source, MemorySource::Slab(..)), "{bytes} bytes");
            let unpooled = LargeArray::from(vec![0_u8; bytes]);
            assert!(matches!(unpooled.source, MemorySource::Allocator), "{bytes} bytes");
            assert!(matches!(unpooled.moved_to(&pool).source, MemorySource::Slab(..)), "{bytes} bytes");
        }
        assert!(matches!(array(LARGE_PAGE_BYTES + 1).source, MemorySource::Pages(_)));
    }

    #[test]
    fn values_are_aligned() {
        let pool = MemoryPool::new();
        #[repr(align(64))]
        struct Line(u8);
        #[repr(align(4096))]
        struct Page(u8);
        for len in [1, 300, 3_000, 50_000] {
            let lines = LargeArray::from_fn(&pool, len, |number| Line(number as u8));
            assert!(lines.as_ptr().is_aligned());
            assert!(lines.iter().zip(0_u64..).all(|(line, number)| line.0 == number as u8));
        }
        for len in [1, 5, 600] {
            let pages = LargeArray::from_fn(&pool, len, |number| Page(number as u8));
            assert!(pages.as_ptr().is_aligned());
            assert!(pages.iter().zip(0_u64..).all(|(page, number)| page.0 == number as u8));
        }
    }

    #[test]
    fn values_are_dropped_once() {
        let pool = MemoryPool::new();
        for len in [10, 3_000, 100_000, 300_000].into_iter().take(if cfg!(miri) { 2 } else { 4 }) {
            let counted = Arc::new(());
            let built = LargeArray::from_fn(&pool, len, |_| Arc::clone(&counted));
            let moved = LargeArray::from(vec![Arc::clone(&counted); len]).moved_to(&pool);
            assert_eq!(Arc::strong_count(&counted), 2 * len + 1);
            drop((built, moved));
            assert_eq!(Arc::strong_count(&counted), 1, "{len} values");
        }
    }

    #[test]
    fn arrays_of_concurrent_threads_do_not_overlap() {
        let rounds = if cfg!(miri) { 6 } else { 400 };
        let pool = &MemoryPool::new();
        thread::scope(|scope| {
            for seed in 0..3 {
                scope.spawn(move || {
                    let mut rng = TestRandom::new(seed);
                    let mut live: Vec<(u64, LargeArray<u64>)> = Vec::new();
                    for number in 0..rounds {
                        if live.len() > 40 || (!live.is_empty() && rng.one_in(3)) {
                            let (number, array) = live.swap_remove(rng.below(live.len() as u64) as usize);
                            assert!(array.iter().all(|&value| value == seed << 32 | number), "seed {seed}");
                        }
                        let bound = if rng.one_in(5) { 200_000 } else { 9_000 };
                        let len = 2_000 + rng.below(bound) as usize;
                        live.push((number, LargeArray::from(vec![seed << 32 | number; len]).moved_to(pool)));
                    }
                });
            }
        });
    }
}
