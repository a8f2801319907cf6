//! Prefetches of memory into the processor's cache.
//!
//! A search is a chain of dependent loads. Several independent searches overlap their cache misses if each prefetches the
//! memory of its next step.

// The prefetch instruction is available only as an intrinsic on a raw address.
#![allow(unsafe_code)]

/// Bytes of a cache line.
pub(crate) const LINE_BYTES: usize = 64;
/// Maximum number of lines of one prefetch.
const MAX_LINES: usize = 8;

/// Prefetches the first `len` bytes of `first`, at most eight cache lines.
#[inline]
pub fn prefetch<T: ?Sized>(first: &T, len: usize) {
    prefetch_from((&raw const *first).cast(), len);
}

#[inline]
fn prefetch_from(address: *const u8, len: usize) {
    // A start within a line adds one line to the lines of the length.
    let lines = (address.addr() % LINE_BYTES + len).div_ceil(LINE_BYTES).clamp(1, MAX_LINES);
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

/// Prefetches the cache line of any address.
#[inline]
pub(crate) fn prefetch_line(address: u64) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing and cannot fault, whatever its address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address as usize));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

#[inline(never)]
fn prefetch_long(address: *const u8, len: usize) {
    prefetch_from(address, len);
}

/// As [`prefetch`], for lengths of usually one to three lines: these take no loop.
#[inline(always)]
pub(crate) fn prefetch_short<T: ?Sized>(first: &T, len: usize) {
    if len > 3 * LINE_BYTES {
        return prefetch_long((&raw const *first).cast(), len);
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing and cannot fault, whatever its address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address = (&raw const *first).cast::<i8>();
        _mm_prefetch::<_MM_HINT_T0>(address);
        _mm_prefetch::<_MM_HINT_T0>(address.wrapping_add(LINE_BYTES));
        if len > 2 * LINE_BYTES {
            _mm_prefetch::<_MM_HINT_T0>(address.wrapping_add(2 * LINE_BYTES));
        }
        _mm_prefetch::<_MM_HINT_T0>(address.wrapping_add(len));
    }
}
