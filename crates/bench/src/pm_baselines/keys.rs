//! The keys of the compared indexes: pseudo-random 64-bit numbers, as in Perseid §5.1, with a computable inverse.

use crate::data::random::mix;

/// Odd, so that multiplying by it is a bijection of the 64-bit numbers.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
#[cfg(test)]
const GATHER: u64 = inverse(SPREAD);

/// The multiplicative inverse of `odd` (Newton's iteration doubles the number of correct bits).
#[cfg(test)]
const fn inverse(odd: u64) -> u64 {
    let mut found = odd;
    let mut round = 0;
    while round < 5 {
        found = found.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(found)));
        round += 1;
    }
    found
}

/// The primary key of record `number`; neighbouring numbers have distant keys.
#[inline]
pub fn primary_key(number: u64) -> [u8; 8] {
    number.wrapping_mul(SPREAD).to_be_bytes()
}

/// The number of the record with this primary key; 0 for an invalid key.
#[cfg(test)]
pub fn primary_number(key: &[u8]) -> u64 {
    key.try_into().map_or(0, |bytes| u64::from_be_bytes(bytes).wrapping_mul(GATHER))
}

/// The value of secondary key `number`, below 2^32: in the order of the numbers, with gaps of random widths.
#[inline]
pub fn secondary_value(number: u64) -> u64 {
    number << 32 | mix(number) & 0xffff_ffff
}

/// The bytes of secondary key `number`.
#[inline]
pub fn secondary_key(number: u64) -> [u8; 8] {
    secondary_value(number).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primary_keys_are_invertible_and_secondary_keys_ordered() {
        for number in (0..100).chain([u64::MAX, 1 << 40]) {
            assert_eq!(primary_number(&primary_key(number)), number);
        }
        assert_eq!(primary_number(b"short"), 0);
        assert!((0..1000).all(|number| secondary_key(number) < secondary_key(number + 1)));
    }
}
