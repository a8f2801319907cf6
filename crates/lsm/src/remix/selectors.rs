//! Run selectors: the run of each entry of the sorted view.
//!
//! ```text
//! selector   bits 0..6   number of the run, 0 to 62; 63 is a placeholder: no entry
//!            bit  6      the entry is a tombstone
//!            bit  7      the entry is an older version of the same key as the entry before
//! ```
//!
//! A segment has 16, 32 or 64 selectors, with placeholders only at its end. A search counts how often a run occurs
//! before a position: a count of bits in a mask with one bit per selector. With SSE2, the mask is computed from
//! sixteen selectors at a time (REMIX §3.2).

// The comparison of sixteen bytes at once is an intrinsic.
#![allow(unsafe_code)]

/// The bits of a selector that hold the run.
pub(crate) const RUN_BITS: u8 = 0x3f;
/// The bit for tombstones.
pub(crate) const TOMBSTONE: u8 = 0x40;
/// The bit for old versions.
pub(crate) const OLD: u8 = 0x80;
/// The selector for no entry.
pub(crate) const PLACEHOLDER: u8 = 0x3f;
/// The maximum number of runs of a view.
pub const MAX_RUNS: usize = 63;

/// The mask of bits below `index`.
#[inline]
pub(crate) fn below(index: usize) -> u64 {
    if index >= 64 { u64::MAX } else { (1 << index) - 1 }
}

/// The number of the `rank`-th (from 0) bit set in `mask`; 64 if there is none.
#[inline]
pub(crate) fn nth_bit(mut mask: u64, rank: u32) -> usize {
    for _ in 0..rank {
        mask &= mask.wrapping_sub(1);
    }
    mask.trailing_zeros() as usize
}

/// A bit for each of at most 64 selectors: set where the run is `run` (or 63 for placeholders).
#[inline]
pub(crate) fn mask_of_run(selectors: &[u8], run: u8) -> u64 {
    mask_where(selectors, RUN_BITS, run)
}

/// A bit for each of at most 64 selectors: set for an old version.
#[inline]
pub(crate) fn mask_of_old(selectors: &[u8]) -> u64 {
    mask_where(selectors, OLD, OLD)
}

/// A bit for each of at most 64 bytes: set where `byte & and == wanted`.
#[inline]
pub(crate) fn mask_where(bytes: &[u8], and: u8, wanted: u8) -> u64 {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
    return mask_where_sse2(bytes, and, wanted);
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2", not(miri))))]
    return mask_where_portable(bytes, and, wanted);
}

/// [`mask_where`] byte by byte.
#[cfg_attr(all(target_arch = "x86_64", target_feature = "sse2", not(test)), allow(dead_code))]
fn mask_where_portable(bytes: &[u8], and: u8, wanted: u8) -> u64 {
    let bits = bytes.iter().take(64).enumerate();
    bits.fold(0, |mask, (index, byte)| mask | u64::from(byte & and == wanted) << index)
}

/// [`mask_where`] sixteen bytes at a time. SSE2 is part of every x86-64 processor, so the choice is made at compile
/// time and the code is inlined into the search.
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[cfg_attr(miri, allow(dead_code))]
#[inline]
fn mask_where_sse2(bytes: &[u8], and: u8, wanted: u8) -> u64 {
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
    };
    let (chunks, rest) = bytes.as_chunks::<16>();
    let mut mask = 0;
    // SAFETY: SSE2 is available, by the attribute above.
    let (and_all, wanted_all) = unsafe { (_mm_set1_epi8(and as i8), _mm_set1_epi8(wanted as i8)) };
    for (index, chunk) in chunks.iter().take(4).enumerate() {
        // SAFETY: SSE2 is available; the load reads 16 bytes at any address, and the chunk has 16.
        let equal = unsafe {
            let loaded = _mm_loadu_si128(chunk.as_ptr().cast::<__m128i>());
            _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_and_si128(loaded, and_all), wanted_all))
        };
        mask |= u64::from(equal as u16) << (16 * index);
    }
    if !rest.is_empty() && chunks.len() < 4 {
        mask |= mask_where_portable(rest, and, wanted) << (16 * chunks.len());
    }
    mask
}

/// A bit for each of at most 64 bytes: set where `byte < bound`.
#[inline]
pub(crate) fn mask_less(bytes: &[u8], bound: u8) -> u64 {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
    return mask_less_sse2(bytes, bound);
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2", not(miri))))]
    return mask_less_portable(bytes, bound);
}

/// [`mask_less`] byte by byte.
#[cfg_attr(all(target_arch = "x86_64", target_feature = "sse2", not(test)), allow(dead_code))]
fn mask_less_portable(bytes: &[u8], bound: u8) -> u64 {
    let bits = bytes.iter().take(64).enumerate();
    bits.fold(0, |mask, (index, &byte)| mask | u64::from(byte < bound) << index)
}

/// [`mask_less`] sixteen bytes at a time.
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[cfg_attr(miri, allow(dead_code))]
#[inline]
fn mask_less_sse2(bytes: &[u8], bound: u8) -> u64 {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8, _mm_setzero_si128,
        _mm_subs_epu8,
    };
    let (chunks, rest) = bytes.as_chunks::<16>();
    let mut mask = 0;
    // SAFETY: SSE2 is available, by the attribute above.
    let (bounds, zero) = unsafe { (_mm_set1_epi8(bound as i8), _mm_setzero_si128()) };
    for (index, chunk) in chunks.iter().take(4).enumerate() {
        // SAFETY: SSE2 is available; the load reads 16 bytes at any address, and the chunk has 16.
        let not_less = unsafe {
            let loaded = _mm_loadu_si128(chunk.as_ptr().cast::<__m128i>());
            _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_subs_epu8(bounds, loaded), zero))
        };
        mask |= u64::from(!(not_less as u16)) << (16 * index);
    }
    if !rest.is_empty() && chunks.len() < 4 {
        mask |= mask_less_portable(rest, bound) << (16 * chunks.len());
    }
    mask
}

#[cfg(test)]
mod tests {
    use bolide_storage::SimRng;

    use super::*;

    #[test]
    fn sse2_masks_equal_portable_masks() {
        for seed in 0..2_000 {
            let mut rng = SimRng::new(seed);
            let len = rng.below(70) as usize;
            let runs = 1 + rng.below(64);
            let bytes: Vec<u8> =
                (0..len).map(|_| rng.below(runs) as u8 | (rng.below(4) as u8) << 6).collect();
            for (and, wanted) in [(RUN_BITS, rng.below(64) as u8), (OLD, OLD), (0xff, rng.below(256) as u8)] {
                let slow = mask_where_portable(&bytes, and, wanted);
                assert_eq!(mask_where(&bytes, and, wanted), slow, "seed {seed}");
                #[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
                assert_eq!(mask_where_sse2(&bytes, and, wanted), slow, "seed {seed}");
                let less = mask_less_portable(&bytes, wanted);
                assert_eq!(mask_less(&bytes, wanted), less, "seed {seed}");
                #[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
                assert_eq!(mask_less_sse2(&bytes, wanted), less, "seed {seed}");
                assert_eq!(
                    less.count_ones() as usize,
                    bytes.iter().take(64).filter(|&&byte| byte < wanted).count()
                );
                let plain = bytes.iter().take(64).filter(|&byte| byte & and == wanted).count();
                assert_eq!(slow.count_ones() as usize, plain, "seed {seed}");
                for (rank, place) in (0..64).filter(|place| slow >> place & 1 == 1).enumerate() {
                    assert_eq!(nth_bit(slow, rank as u32), place, "seed {seed}");
                    assert_eq!((slow & below(place)).count_ones() as usize, rank, "seed {seed}");
                }
            }
        }
        assert_eq!((nth_bit(0, 0), nth_bit(0b101, 2), below(64)), (64, 64, u64::MAX));
    }
}
