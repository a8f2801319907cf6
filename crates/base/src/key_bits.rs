//! Keys as strings of bits.

/// The number of the first bit, counted from the highest bit of the first byte, in which two keys differ if the shorter one
/// is padded with zeros; `None` if there is none. The value of this bit determines their order.
///
/// ```
/// use bolide_base::key_bits::first_difference;
/// assert_eq!(first_difference(b"a", b"c"), Some(6));
/// assert_eq!(first_difference(b"ab", b"abz"), Some(17));
/// assert_eq!(first_difference(b"ab", b"ab\0"), None);
/// ```
#[inline]
pub fn first_difference(left: &[u8], right: &[u8]) -> Option<u32> {
    let (left_chunks, left_rest) = left.as_chunks::<8>();
    let (right_chunks, right_rest) = right.as_chunks::<8>();
    let mut bit = 0;
    for (left, right) in left_chunks.iter().zip(right_chunks) {
        let difference = u64::from_be_bytes(*left) ^ u64::from_be_bytes(*right);
        if difference != 0 {
            return Some(bit + difference.leading_zeros());
        }
        bit += 64;
    }
    if left_chunks.len() == right_chunks.len() {
        let difference = padded(left_rest) ^ padded(right_rest);
        return (difference != 0).then(|| bit + difference.leading_zeros());
    }
    let at = (bit / 8) as usize;
    last_difference(left.get(at..).unwrap_or_default(), right.get(at..).unwrap_or_default(), bit)
}

/// The first difference if one key is longer by whole chunks.
fn last_difference(left: &[u8], right: &[u8], mut bit: u32) -> Option<u32> {
    let (short, long) = if left.len() < right.len() { (left, right) } else { (right, left) };
    let short = short.iter().copied().chain(std::iter::repeat(0));
    for (left, &right) in short.zip(long) {
        let difference = left ^ right;
        if difference != 0 {
            return Some(bit + difference.leading_zeros());
        }
        bit += 8;
    }
    None
}

/// Fewer than eight bytes as a big-endian number, padded with zeros.
#[inline]
fn padded(bytes: &[u8]) -> u64 {
    let number = bytes.iter().fold(0, |number: u64, &byte| number << 8 | u64::from(byte));
    number.checked_shl(64 - 8 * bytes.len() as u32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected result, bit by bit.
    fn plain(left: &[u8], right: &[u8]) -> Option<u32> {
        let bit = |key: &[u8], bit: usize| key.get(bit / 8).map_or(0, |byte| byte >> (7 - bit % 8) & 1);
        let bits = 8 * left.len().max(right.len());
        (0..bits).find(|&at| bit(left, at) != bit(right, at)).map(|at| at as u32)
    }

    #[test]
    fn differences_match_a_search_bit_by_bit() {
        let mut state = 7_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for round in 0..20_000 {
            let shared: Vec<u8> = (0..random(30)).map(|_| random(256) as u8).collect();
            let mut key = || {
                let mut key = shared.clone();
                key.extend((0..random(20)).map(|_| if random(3) == 0 { random(256) as u8 } else { 0 }));
                key
            };
            let (left, right) = (key(), key());
            let found = first_difference(&left, &right);
            assert_eq!(found, plain(&left, &right), "round {round}: {left:?} {right:?}");
            assert_eq!(found, first_difference(&right, &left));
            if let Some(bit) = found {
                let set = left.get(bit as usize / 8).is_some_and(|byte| byte >> (7 - bit % 8) & 1 == 1);
                assert_eq!(set, left > right, "round {round}");
            }
        }
    }
}
