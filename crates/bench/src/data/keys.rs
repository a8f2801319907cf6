//! Keys and values: each is a function of a record number, without stored state.
//!
//! ```text
//! key    16 bytes   mix(number) as 16 hexadecimal digits: random order, distinct
//! value 120 bytes   number u64 | version u64 | filler | seal u64      (little-endian)
//! ```
//!
//! `seal` is a hash of number and version: `read_value` rejects a value of another key and a truncated one.

use super::random::mix;

/// Length of every key in bytes.
pub const KEY_BYTES: usize = 16;

/// Length of every value in bytes.
pub const VALUE_BYTES: usize = 120;

/// Numbers from here on are never loaded. Their keys are scattered between those of loaded records.
pub const FIRST_ABSENT: u64 = 1 << 40;

/// The key of record `number`.
#[inline]
pub fn key(number: u64) -> [u8; KEY_BYTES] {
    hexadecimal(mix(number))
}

/// `number` as 16 lower-case digits.
#[inline]
pub fn hexadecimal(number: u64) -> [u8; KEY_BYTES] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut key = [0; KEY_BYTES];
    for (pair, byte) in key.chunks_exact_mut(2).zip(number.to_be_bytes()) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    key
}

/// A reusable buffer of one value.
#[derive(Debug)]
pub struct ValueBuffer {
    bytes: [u8; VALUE_BYTES],
}

impl ValueBuffer {
    /// A buffer with its filler in place.
    pub fn new() -> Self {
        let mut bytes = [0; VALUE_BYTES];
        for (position, byte) in bytes.iter_mut().enumerate() {
            *byte = mix(position as u64) as u8;
        }
        Self { bytes }
    }

    /// The value of `number` at `version`.
    #[inline]
    pub fn fill(&mut self, number: u64, version: u64) -> &[u8] {
        self.bytes[..8].copy_from_slice(&number.to_le_bytes());
        self.bytes[8..16].copy_from_slice(&version.to_le_bytes());
        self.bytes[VALUE_BYTES - 8..].copy_from_slice(&seal(number, version).to_le_bytes());
        &self.bytes
    }
}

/// The contents of a value: its record number and version; `None` if it is incomplete.
#[inline]
pub fn read_value(value: &[u8]) -> Option<(u64, u64)> {
    if value.len() != VALUE_BYTES {
        return None;
    }
    let word = |at: usize| Some(u64::from_le_bytes(value.get(at..at + 8)?.try_into().ok()?));
    let (number, version) = (word(0)?, word(8)?);
    (word(VALUE_BYTES - 8)? == seal(number, version)).then_some((number, version))
}

#[inline]
fn seal(number: u64, version: u64) -> u64 {
    number.rotate_left(32) ^ version.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bd1_e995_5bd1_e995
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_values_are_rejected() {
        let mut buffer = ValueBuffer::new();
        let mut value = buffer.fill(42, 7).to_vec();
        assert_eq!(read_value(&value), Some((42, 7)));
        assert_eq!(read_value(&value[..119]), None);
        value[0] ^= 1;
        assert_eq!(read_value(&value), None);
    }

    #[test]
    fn keys_are_hexadecimal_and_distinct() {
        let keys: std::collections::BTreeSet<_> = (0..10_000).map(key).collect();
        assert_eq!(keys.len(), 10_000);
        assert_eq!(&hexadecimal(0x0123_4567_89ab_cdef), b"0123456789abcdef");
    }
}
