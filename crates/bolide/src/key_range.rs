//! Ranges of keys, in every form of Rust ranges.

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// A range of keys: `a..b`, `a..=b`, `a..`, `..b`, `..=b`, `..` of anything that is bytes, or a pair of
/// [`Bound`]s.
///
/// (With the standard library's `RangeBounds`, type inference would fail for ranges of references.)
///
/// ```
/// use std::ops::Bound;
/// use bolide::{Components, Db, Options};
/// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
/// let notes = db.create_collection("notes", Default::default())?;
/// let (start, end) = (b"a".to_vec(), b"c".to_vec());
/// assert_eq!(notes.range(&start..&end)?.count(), 0);
/// assert_eq!(notes.range("a"..="c")?.count(), 0);
/// assert_eq!(notes.range(..)?.count(), 0);
/// assert_eq!(notes.range((Bound::Excluded(b"a"), Bound::Unbounded))?.count(), 0);
/// # Ok::<(), bolide::Error>(())
/// ```
pub trait KeyRange {
    /// The first and the last bound, with owned keys.
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>);
}

fn owned<K: AsRef<[u8]>>(key: K) -> Vec<u8> {
    key.as_ref().to_vec()
}

impl<K: AsRef<[u8]>> KeyRange for Range<K> {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Included(owned(self.start)), Bound::Excluded(owned(self.end)))
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeInclusive<K> {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let (start, end) = self.into_inner();
        (Bound::Included(owned(start)), Bound::Included(owned(end)))
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeFrom<K> {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Included(owned(self.start)), Bound::Unbounded)
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeTo<K> {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Unbounded, Bound::Excluded(owned(self.end)))
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeToInclusive<K> {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Unbounded, Bound::Included(owned(self.end)))
    }
}

impl KeyRange for RangeFull {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

impl<K: AsRef<[u8]>> KeyRange for (Bound<K>, Bound<K>) {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (self.0.map(owned), self.1.map(owned))
    }
}
