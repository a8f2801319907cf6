//! Byte strings and texts that are stored inline if they are short.
//!
//! Queries are created, executed and dropped, often once per answer that a program displays. Their parts, encoded values
//! and field names, are a few bytes long.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// Maximum length without an allocation.
const SHORT: usize = 22;

/// A byte string.
#[derive(Clone)]
pub(crate) struct ShortBytes(Bytes);

#[derive(Clone)]
enum Bytes {
    Short(u8, [u8; SHORT]),
    Long(Box<[u8]>),
}

impl From<&[u8]> for ShortBytes {
    #[inline]
    fn from(from: &[u8]) -> Self {
        let mut bytes = [0; SHORT];
        match bytes.get_mut(..from.len()) {
            Some(room) => {
                room.copy_from_slice(from);
                Self(Bytes::Short(from.len() as u8, bytes))
            }
            None => Self(Bytes::Long(from.into())),
        }
    }
}

impl ShortBytes {
    /// Its memory outside of the value itself, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        if self.len() > SHORT { self.len() } else { 0 }
    }
}

impl Deref for ShortBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Short(len, bytes) => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Bytes::Long(bytes) => bytes,
        }
    }
}

impl PartialEq for ShortBytes {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for ShortBytes {}

impl PartialOrd for ShortBytes {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ShortBytes {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for ShortBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for ShortBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

/// A text. Texts compare and hash like their bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ShortText(ShortBytes);

impl ShortText {
    /// The bytes; cheaper than the text, whose encoding is checked.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl<T: AsRef<str>> From<T> for ShortText {
    #[inline]
    fn from(text: T) -> Self {
        Self(text.as_ref().as_bytes().into())
    }
}

impl Deref for ShortText {
    type Target = str;

    fn deref(&self) -> &str {
        // The bytes were created from a text.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for ShortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// Maximum length of a key that is stored inline, in bytes.
pub(crate) const SHORT_KEY_BYTES: usize = 32;

/// A primary key: inline if it is short, else a range of a shared buffer.
#[derive(Debug, Clone, Copy)]
pub struct InlineKey {
    /// Offset of a long key in the buffer.
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    /// A short key, and arbitrary bytes after it.
    pub(crate) short: [u8; SHORT_KEY_BYTES],
}

impl InlineKey {
    /// The key `key`; a long one is appended to `long`, the buffer of long keys.
    #[inline]
    pub fn new(key: &[u8], long: &mut Vec<u8>) -> Self {
        let start = long.len();
        let mut short = [0; SHORT_KEY_BYTES];
        match short.get_mut(..key.len()) {
            Some(room) => room.copy_from_slice(key),
            None => long.extend_from_slice(key),
        }
        Self { start, bytes: key.len(), short }
    }

    /// The bytes of the key; `long` is the buffer of long keys.
    #[inline(always)]
    pub fn of<'k>(&'k self, long: &'k [u8]) -> &'k [u8] {
        match self.short.get(..self.bytes) {
            Some(short) => short,
            None => long.get(self.start..self.start + self.bytes).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_every_length_round_trip_and_compare_like_slices() {
        let all: Vec<Vec<u8>> =
            (0..60).map(|len| (0..len).map(|at| (at * 7 + len) as u8).collect()).collect();
        for one in &all {
            let short = ShortBytes::from(&one[..]);
            assert_eq!(&short[..], &one[..]);
            for other in &all {
                let (other, slices) = (ShortBytes::from(&other[..]), one.cmp(other));
                assert_eq!((short.cmp(&other), short == other), (slices, slices == Ordering::Equal));
            }
        }
        assert_eq!(size_of::<ShortBytes>(), 24);
    }

    #[test]
    fn texts_round_trip() {
        for text in ["", "a", "é ü", "a name of twenty-two b", "a name that is longer than that ü"] {
            let short = ShortText::from(text);
            assert_eq!((&*short, short.as_bytes()), (text, text.as_bytes()));
            assert_eq!(format!("{short:?}"), format!("{text:?}"));
        }
    }
}
