//! Asks the processor for memory ahead of its use.
//!
//! A search is a chain of loads, each waiting for the one before. Several searches at once need not
//! wait for each other, if what they will load is asked for first.

// The only way to ask is an intrinsic that takes a raw address.
#![allow(unsafe_code)]

/// Bytes of a cache line.
pub(crate) const LINE_BYTES: usize = 64;
/// Most lines that are asked for at once.
const MAX_LINES: usize = 8;

/// Asks for the first `len` bytes from where `first` lies; no more than eight cache lines.
#[inline]
pub fn prefetch<T: ?Sized>(first: &T, len: usize) {
    prefetch_from((&raw const *first).cast(), len);
}

#[inline]
fn prefetch_from(address: *const u8, len: usize) {
    // What starts within a line ends in one more than its length says.
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

/// Asks for the cache line at an address, whatever is there.
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

/// As [`prefetch`], for what has one to three lines' length as a rule: without a loop then.
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
