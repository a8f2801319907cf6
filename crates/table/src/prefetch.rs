//! Asks the processor for memory ahead of its use.
//!
//! A search is a chain of loads, each waiting for the one before. Several searches at once need not
//! wait for each other, if what they will load is asked for first.

// The only way to ask is an intrinsic that takes a raw address.
#![allow(unsafe_code)]

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
/// Most lines that are asked for at once.
const MAX_LINES: usize = 8;

/// Asks for the first `len` bytes from where `first` lies; no more than eight cache lines.
#[inline]
pub fn prefetch<T: ?Sized>(first: &T, len: usize) {
    let address = (&raw const *first).cast::<u8>();
    let lines = len.div_ceil(LINE_BYTES).clamp(1, MAX_LINES);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in 0..lines {
        // SAFETY: a prefetch reads nothing and cannot fault, whatever its address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(address.cast::<i8>().wrapping_add(LINE_BYTES * line));
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (address, lines);
}
