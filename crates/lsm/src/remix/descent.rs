//! The descent in the trie of a segment's forks, with SSE2.
//!
//! The root of a subtree is its smallest fork: the keys from it on have the bit of the fork set, the keys before it do
//! not. Sixteen forks fit an SSE2 register; SSE2 is part of every x86-64 processor. Each step compares all forks of a
//! subtree at once. Forks outside of the subtree are set to 255, which is not a valid fork.

// Comparisons and minima of sixteen bytes are intrinsics.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m128i, _mm_cmpeq_epi8, _mm_cmpgt_epi8, _mm_cvtsi128_si32, _mm_loadu_si128, _mm_min_epu8,
    _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8, _mm_setr_epi8, _mm_shuffle_epi32, _mm_shufflehi_epi16,
    _mm_shufflelo_epi16, _mm_slli_epi16, _mm_srli_epi16, _mm_xor_si128,
};

/// The value of an excluded or unknown fork.
const NONE: u8 = u8::MAX;

/// The entry, of at most `16 * N`, at which the descent ends. `is_set` returns whether the key has the bit of a fork
/// set.
#[inline]
pub(super) fn descend<const N: usize>(
    chunks: &[[u8; 16]; N],
    entries: usize,
    is_set: impl Fn(u8) -> bool,
) -> usize {
    // SAFETY: every x86-64 processor has SSE2; each load reads 16 bytes at any address, and a chunk has 16.
    unsafe {
        let all = |byte: u8| _mm_set1_epi8(byte as i8);
        let first = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let number: [__m128i; N] = std::array::from_fn(|chunk| _mm_or_si128(first, all(16 * chunk as u8)));
        let entries = all(entries.min(16 * N) as u8);
        let mut forks: [__m128i; N] = std::array::from_fn(|chunk| {
            let loaded = _mm_loadu_si128(chunks[chunk].as_ptr().cast::<__m128i>());
            // The fork of the first entry is against the previous segment: it is not part of this trie.
            let is_below = _mm_cmpgt_epi8(entries, number[chunk]);
            let is_first = _mm_cmpeq_epi8(number[chunk], all(0));
            _mm_or_si128(_mm_or_si128(loaded, _mm_xor_si128(is_below, all(u8::MAX))), is_first)
        });
        let mut leaf = 0;
        loop {
            let smallest =
                broadcast_min(forks.iter().skip(1).fold(forks[0], |one, &other| _mm_min_epu8(one, other)));
            let fork = _mm_cvtsi128_si32(smallest) as u8;
            if fork == NONE {
                return leaf;
            }
            let is_root: [__m128i; N] = std::array::from_fn(|chunk| _mm_cmpeq_epi8(forks[chunk], smallest));
            let roots =
                is_root.iter().rev().fold(0, |mask, &root| mask << 16 | _mm_movemask_epi8(root) as u64);
            let root = roots.trailing_zeros() as usize;
            let goes_right = is_set(fork);
            leaf = if goes_right { root } else { leaf };
            let (root, right) = (all(root as u8), all(if goes_right { u8::MAX } else { 0 }));
            for chunk in 0..N {
                let is_behind = _mm_cmpgt_epi8(number[chunk], root);
                let is_outside = _mm_or_si128(_mm_xor_si128(is_behind, right), is_root[chunk]);
                forks[chunk] = _mm_or_si128(forks[chunk], is_outside);
            }
        }
    }
}

/// The smallest of sixteen bytes, broadcast to all of them.
#[inline]
fn broadcast_min(bytes: __m128i) -> __m128i {
    // SAFETY: every x86-64 processor has SSE2.
    unsafe {
        let smallest = _mm_min_epu8(bytes, _mm_shuffle_epi32::<0b01_00_11_10>(bytes));
        let smallest = _mm_min_epu8(smallest, _mm_shuffle_epi32::<0b10_11_00_01>(smallest));
        let swapped = _mm_shufflehi_epi16::<0b10_11_00_01>(_mm_shufflelo_epi16::<0b10_11_00_01>(smallest));
        let smallest = _mm_min_epu8(smallest, swapped);
        _mm_min_epu8(smallest, _mm_or_si128(_mm_srli_epi16::<8>(smallest), _mm_slli_epi16::<8>(smallest)))
    }
}
