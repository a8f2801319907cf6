//! Bounded coding of integers and byte strings.
//!
//! Fixed integers are little-endian. A varint holds seven bits a byte, lowest first, with the top bit
//! set on all bytes but the last. A byte string is its length as a varint, then its bytes.
//!
//! Reading never panics and never allocates: a [`Decoder`] returns slices of its input, and `None` if the input ends too
//! early or a varint is malformed.

/// Longest varint of 64 bits, in bytes.
pub const MAX_VARINT_BYTES: usize = 10;

/// Appends `value` as a varint (1 to 10 bytes).
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The number of bytes that [`put_varint`] writes for `value`.
#[inline]
pub fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends `value` as two little-endian bytes.
#[inline]
pub fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends `value` as four little-endian bytes.
#[inline]
pub fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends `value` as eight little-endian bytes.
#[inline]
pub fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends the length of `bytes` as a varint, then `bytes`.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads coded fields from the front of a slice.
///
/// ```
/// use bolide_base::coding::{Decoder, put_bytes, put_varint};
/// let mut out = Vec::new();
/// put_varint(&mut out, 300);
/// put_bytes(&mut out, b"key");
/// let mut decoder = Decoder::new(&out);
/// assert_eq!(decoder.varint(), Some(300));
/// assert_eq!(decoder.bytes(), Some(&b"key"[..]));
/// assert!(decoder.is_empty());
/// assert_eq!(decoder.u8(), None);
/// ```
#[derive(Debug, Clone)]
pub struct Decoder<'a> {
    rest: &'a [u8],
    start_len: usize,
}

impl<'a> Decoder<'a> {
    /// A decoder at the start of `input`.
    #[inline]
    pub fn new(input: &'a [u8]) -> Self {
        Self { rest: input, start_len: input.len() }
    }

    /// The number of bytes read so far.
    #[inline]
    pub fn position(&self) -> usize {
        self.start_len - self.rest.len()
    }

    /// The unread bytes.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Whether all bytes were read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(head)
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// Two little-endian bytes.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        let (head, rest) = self.rest.split_first_chunk::<2>()?;
        self.rest = rest;
        Some(u16::from_le_bytes(*head))
    }

    /// Four little-endian bytes.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        let (head, rest) = self.rest.split_first_chunk::<4>()?;
        self.rest = rest;
        Some(u32::from_le_bytes(*head))
    }

    /// Eight little-endian bytes.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        let (head, rest) = self.rest.split_first_chunk::<8>()?;
        self.rest = rest;
        Some(u64::from_le_bytes(*head))
    }

    /// A varint of at most 64 bits; `None` also for a longer encoding.
    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        if let Some((&first, rest)) = self.rest.split_first()
            && first < 0x80
        {
            self.rest = rest;
            return Some(u64::from(first));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for (position, &byte) in self.rest.iter().enumerate().take(MAX_VARINT_BYTES) {
            let bits = u64::from(byte & 0x7f);
            if position == MAX_VARINT_BYTES - 1 && bits > 1 {
                return None;
            }
            value |= bits << (7 * position);
            if byte < 0x80 {
                self.rest = &self.rest[position + 1..];
                return Some(value);
            }
        }
        None
    }

    /// A varint that fits `usize` and is at most `limit`.
    #[inline]
    pub fn length(&mut self, limit: usize) -> Option<usize> {
        usize::try_from(self.varint()?).ok().filter(|&length| length <= limit)
    }

    /// A byte string: a length as a varint, then that many bytes.
    #[inline]
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.varint()?).ok()?;
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_at_every_width() {
        for shift in 0..64 {
            for value in [1_u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value), "{value}");
                let mut decoder = Decoder::new(&out);
                assert_eq!(decoder.varint(), Some(value));
                assert!(decoder.is_empty());
                for cut in 0..out.len() {
                    assert_eq!(Decoder::new(&out[..cut]).varint(), None);
                }
            }
        }
    }

    #[test]
    fn overlong_varints_are_rejected() {
        assert_eq!(Decoder::new(&[0xff; 11]).varint(), None);
        let mut too_big = [0x80; 10];
        too_big[9] = 2;
        assert_eq!(Decoder::new(&too_big).varint(), None);
    }

    #[test]
    fn a_length_past_the_end_is_rejected() {
        let mut out = Vec::new();
        put_varint(&mut out, u64::MAX);
        out.extend_from_slice(b"abc");
        assert_eq!(Decoder::new(&out).bytes(), None);
    }
}
