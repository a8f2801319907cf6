//! The range of keys of a cursor.

use std::ops::{Bound, RangeBounds};

/// A range of keys: from `lower` (inclusive) to `upper` (exclusive).
///
/// ```
/// use bolide_lsm::cursor::Bounds;
/// let bounds = Bounds::of("b".."d");
/// assert!(bounds.contains(b"b") && bounds.contains(b"cc") && !bounds.contains(b"d"));
/// assert!(Bounds::of("b"..="d").contains(b"d"));
/// assert!(Bounds::prefix(b"a\xff").contains(b"a\xff\xff"));
/// assert!(!Bounds::prefix(b"a\xff").contains(b"b"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bounds {
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
}

impl Bounds {
    /// Every key.
    pub fn all() -> Self {
        Self::default()
    }

    /// The keys of a range, with any kinds of bounds.
    pub fn of<K: AsRef<[u8]>>(range: impl RangeBounds<K>) -> Self {
        let lower = match range.start_bound() {
            Bound::Included(key) => Some(key.as_ref().to_vec()),
            Bound::Excluded(key) => Some(successor(key.as_ref())),
            Bound::Unbounded => None,
        };
        let upper = match range.end_bound() {
            Bound::Included(key) => Some(successor(key.as_ref())),
            Bound::Excluded(key) => Some(key.as_ref().to_vec()),
            Bound::Unbounded => None,
        };
        Self { lower, upper }
    }

    /// The keys that start with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Self {
        let mut upper = prefix.to_vec();
        // The next prefix of this length: trailing 0xff bytes have none and are removed.
        while upper.pop_if(|byte| *byte == u8::MAX).is_some() {}
        let upper = match upper.last_mut() {
            Some(last) => {
                *last += 1;
                Some(upper)
            }
            None => None,
        };
        Self { lower: Some(prefix.to_vec()), upper }
    }

    /// The first key of the range, if it is bounded.
    pub fn lower(&self) -> Option<&[u8]> {
        self.lower.as_deref()
    }

    /// The first key behind the range, if it is bounded.
    pub fn upper(&self) -> Option<&[u8]> {
        self.upper.as_deref()
    }

    /// True if `key` is in the range.
    #[inline]
    pub fn contains(&self, key: &[u8]) -> bool {
        !self.is_before(key) && !self.is_behind(key)
    }

    /// True if `key` is less than every key of the range.
    #[inline]
    pub(crate) fn is_before(&self, key: &[u8]) -> bool {
        self.lower.as_ref().is_some_and(|lower| key < lower)
    }

    /// True if `key` is greater than every key of the range.
    #[inline]
    pub(crate) fn is_behind(&self, key: &[u8]) -> bool {
        self.upper.as_ref().is_some_and(|upper| key >= upper)
    }
}

/// The smallest key greater than `key`.
pub(crate) fn successor(key: &[u8]) -> Vec<u8> {
    let mut successor = Vec::with_capacity(key.len() + 1);
    successor.extend_from_slice(key);
    successor.push(0);
    successor
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_where_the_next_one_starts() {
        assert_eq!(Bounds::prefix(b"ab").upper(), Some(&b"ac"[..]));
        assert_eq!(Bounds::prefix(b"a\xff\xff").upper(), Some(&b"b"[..]));
        assert_eq!(Bounds::prefix(b"\xff").upper(), None);
        assert_eq!(Bounds::prefix(b""), Bounds { lower: Some(Vec::new()), upper: None });
    }

    #[test]
    fn every_kind_of_bound_is_supported() {
        let bounds = Bounds::of::<&[u8]>((Bound::Excluded(&b"a"[..]), Bound::Unbounded));
        assert!(!bounds.contains(b"a") && bounds.contains(b"a\0"));
        assert!(Bounds::of::<&[u8]>(..).contains(b""));
        assert!(!Bounds::of("b".."b").contains(b"b"));
    }
}
