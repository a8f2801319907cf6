//! Prefetches of memory into the processor's cache.
//!
//! A search is a chain of dependent loads. Several independent searches overlap their cache misses if each prefetches the
//! memory of its next step. A prefetch has no result and cannot fault, so any address is valid. Other processors than x86-64 and
//! interpreters ignore it.

// The prefetch instruction is available only as an intrinsic on a raw address.
#![allow(unsafe_code)]

/// Bytes of a cache line.
pub const CACHE_LINE_BYTES: usize = 64;
/// Maximum number of lines of one [`prefetch`].
const MAX_LINES: usize = 8;

/// Prefetches the cache line of `address`.
#[inline(always)]
pub fn prefetch_line<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing and cannot fault, whatever its address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Prefetches the first `len` bytes of `first`, at most eight cache lines.
#[inline]
pub fn prefetch<T: ?Sized>(first: &T, len: usize) {
    prefetch_from((&raw const *first).cast(), len);
}

#[inline]
fn prefetch_from(address: *const u8, len: usize) {
    // A start within a line adds one line to the lines of the length.
    let lines = (address.addr() % CACHE_LINE_BYTES + len).div_ceil(CACHE_LINE_BYTES).clamp(1, MAX_LINES);
    prefetch_lines(address, lines);
}

/// Prefetches `lines` cache lines from that of `address` on.
#[inline]
pub fn prefetch_lines<T>(address: *const T, lines: usize) {
    for line in 0..lines {
        prefetch_line(address.cast::<u8>().wrapping_add(CACHE_LINE_BYTES * line));
    }
}

/// Prefetches the cache line of an address that was computed.
#[inline]
pub fn prefetch_address(address: u64) {
    prefetch_line::<u8>(std::ptr::without_provenance(address as usize));
}

#[inline(never)]
fn prefetch_long(address: *const u8, len: usize) {
    prefetch_from(address, len);
}

/// As [`prefetch`], for lengths of usually one to three lines: these take no loop.
#[inline(always)]
pub fn prefetch_short<T: ?Sized>(first: &T, len: usize) {
    let address = (&raw const *first).cast::<u8>();
    if len > 3 * CACHE_LINE_BYTES {
        return prefetch_long(address, len);
    }
    prefetch_line(address);
    prefetch_line(address.wrapping_add(CACHE_LINE_BYTES));
    if len > 2 * CACHE_LINE_BYTES {
        prefetch_line(address.wrapping_add(2 * CACHE_LINE_BYTES));
    }
    prefetch_line(address.wrapping_add(len));
}
