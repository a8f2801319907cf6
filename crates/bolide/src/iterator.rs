//! Iteration over a collection in key order, in both directions.

use std::fmt;

use bolide_base::{Result, SequenceNumber, TreeId};
use bolide_lsm::cursor::ComponentCursor;
use bolide_lsm::{Bounds, ReadView, TreeView, VisibleCursor};

/// A position among the records of a collection at one sequence number.
///
/// A cursor lends keys and values instead of copying them: the cheapest way to read many records. It is invalid until
/// it was positioned, and outside both ends. It pins its snapshot and keeps the database open.
///
/// ```
/// use bolide::{Components, Db, IterOptions, Options};
/// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
/// let notes = db.create_collection("notes", Default::default())?;
/// for key in [b"a", b"c", b"e"] {
///     notes.put(key, b"{}")?;
/// }
/// let mut cursor = notes.cursor(&IterOptions::default())?;
/// cursor.seek(b"b")?;
/// assert_eq!((cursor.valid(), cursor.key()), (true, &b"c"[..]));
/// cursor.prev()?;
/// assert_eq!(cursor.key(), b"a");
/// cursor.prev()?;
/// assert!(!cursor.valid());
/// # Ok::<(), bolide::Error>(())
/// ```
pub struct Cursor {
    inner: VisibleCursor<ComponentCursor>,
    /// Pins the sequence number, and the data that the cursor reads in place.
    _pin: TreeView,
}

impl Cursor {
    pub(crate) fn new(view: &ReadView, tree: TreeId, bounds: Bounds) -> Result<Self> {
        let pin = view.tree(tree)?;
        Ok(Self { inner: pin.cursor(bounds)?, _pin: pin })
    }

    /// Whether it is positioned at a record.
    #[inline]
    pub fn valid(&self) -> bool {
        self.inner.valid()
    }

    /// The key of the record; empty if the cursor is not valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if self.inner.valid() { self.inner.key() } else { &[] }
    }

    /// The record; empty if the cursor is not valid.
    #[inline]
    pub fn value(&self) -> &[u8] {
        if self.inner.valid() { self.inner.value() } else { &[] }
    }

    /// The sequence number of the write that put the record; 0 if the cursor is not valid.
    #[inline]
    pub fn sequence(&self) -> SequenceNumber {
        if self.inner.valid() { self.inner.sequence() } else { 0 }
    }

    /// Moves to the first record within the bounds.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading an sstable, as for all moves of the cursor.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.inner.seek_to_first()
    }

    /// Moves to the last record within the bounds.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.inner.seek_to_last()
    }

    /// Moves to the first record within the bounds whose key is at or after `key`.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    #[inline]
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.inner.seek(key)
    }

    /// Moves to the last record within the bounds whose key is at or before `key`.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.inner.seek_for_prev(key)
    }

    /// Moves to the next record; does nothing if the cursor is not valid.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    #[inline]
    #[allow(clippy::should_implement_trait)] // It lends the record of its position, which no `Iterator` can.
    pub fn next(&mut self) -> Result<()> {
        if self.inner.valid() { self.inner.next() } else { Ok(()) }
    }

    /// Moves to the previous record; does nothing if the cursor is not valid.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        if self.inner.valid() { self.inner.prev() } else { Ok(()) }
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor")
            .field("valid", &self.valid())
            .field("key", &self.key())
            .finish_non_exhaustive()
    }
}

/// The records of a collection as a double-ended iterator of `(key, record)`.
///
/// Both ends read the same snapshot and meet without overlap. The iterator ends after an error.
///
/// ```
/// use bolide::{Components, Db, Options};
/// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
/// let notes = db.create_collection("notes", Default::default())?;
/// for key in [b"a", b"b", b"c"] {
///     notes.put(key, b"{}")?;
/// }
/// let mut records = notes.iter()?;
/// assert_eq!(records.next_back().unwrap()?.0, b"c");
/// assert_eq!(records.next().unwrap()?.0, b"a");
/// assert_eq!(records.next().unwrap()?.0, b"b");
/// assert!(records.next().is_none() && records.next_back().is_none());
/// # Ok::<(), bolide::Error>(())
/// ```
#[derive(Debug)]
pub struct Iter {
    view: ReadView,
    tree: TreeId,
    bounds: Bounds,
    /// At the record that `next` returned last; created by its first call.
    front: Option<Cursor>,
    /// At the record that `next_back` returned last.
    back: Option<Cursor>,
    finished: bool,
}

/// A key and its record.
pub type Record = (Vec<u8>, Vec<u8>);

impl Iter {
    pub(crate) fn new(view: ReadView, tree: TreeId, bounds: Bounds) -> Self {
        Self { view, tree, bounds, front: None, back: None, finished: false }
    }

    fn advance_front(&mut self) -> Result<Option<Record>> {
        let front = match &mut self.front {
            Some(cursor) => {
                cursor.next()?;
                cursor
            }
            slot => {
                let cursor = slot.insert(Cursor::new(&self.view, self.tree, self.bounds.clone())?);
                cursor.seek_to_first()?;
                cursor
            }
        };
        let met = self.back.as_ref().is_some_and(|back| front.key() >= back.key());
        Ok((front.valid() && !met).then(|| (front.key().to_vec(), front.value().to_vec())))
    }

    fn advance_back(&mut self) -> Result<Option<Record>> {
        let back = match &mut self.back {
            Some(cursor) => {
                cursor.prev()?;
                cursor
            }
            slot => {
                let cursor = slot.insert(Cursor::new(&self.view, self.tree, self.bounds.clone())?);
                cursor.seek_to_last()?;
                cursor
            }
        };
        let met = self.front.as_ref().is_some_and(|front| back.key() <= front.key());
        Ok((back.valid() && !met).then(|| (back.key().to_vec(), back.value().to_vec())))
    }

    fn finish_on_end(&mut self, advanced: Result<Option<Record>>) -> Option<Result<Record>> {
        let item = advanced.transpose();
        self.finished = !matches!(item, Some(Ok(_)));
        item
    }
}

impl Iterator for Iter {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.finished {
            return None;
        }
        let advanced = self.advance_front();
        self.finish_on_end(advanced)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.finished {
            return None;
        }
        let advanced = self.advance_back();
        self.finish_on_end(advanced)
    }
}

impl std::iter::FusedIterator for Iter {}
