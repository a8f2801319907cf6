//! A cursor over the versions of a sorted view that are visible at one sequence number.
//!
//! It follows the rules of [`VisibleCursor`](crate::cursor::VisibleCursor), which merges, and uses selector bits
//! instead of key comparisons. The visible version of a key is the first one at or below the reader's sequence
//! number, unless it is a tombstone or covered by a range tombstone. The cursor skips the other versions by their
//! old-version bits. It skips a key by the tombstone bit of its newest version only if no entry of the view is newer
//! than the reader: only then is this version certain to be visible.

use std::fmt;
use std::sync::Arc;

use bolide_base::{EntryKind, Error, ErrorKind, Result, SequenceNumber, Trailer};
use bolide_table::{InternalCursor, ValueRef};

use super::cursor::{SortedViewCursor, skipped_bits};
use super::view::SortedView;
use crate::cursor::Bounds;
use crate::range_tombstones::RangeTombstones;

/// A cursor over the keys of a [`SortedView`] that are visible at one sequence number, within bounds.
///
/// It starts invalid. After an error it is invalid too, and the next positioning call tries again.
pub struct VisibleViewCursor {
    inner: SortedViewCursor,
    sequence: SequenceNumber,
    ranges: Arc<RangeTombstones>,
    bounds: Bounds,
    /// Whether no entry of the view is newer than the reader.
    sees_all: bool,
    valid: bool,
}

impl SortedView {
    /// A cursor over the entries visible at `sequence` and not covered by `ranges`, not positioned yet.
    pub fn visible(
        self: &Arc<Self>,
        sequence: SequenceNumber,
        ranges: Arc<RangeTombstones>,
        bounds: Bounds,
    ) -> VisibleViewCursor {
        VisibleViewCursor {
            inner: self.cursor(true),
            sequence,
            ranges,
            bounds,
            sees_all: self.largest_sequence() <= sequence,
            valid: false,
        }
    }
}

impl VisibleViewCursor {
    /// Whether the cursor is on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// The key of the current entry; empty if there is none.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if self.valid { self.inner.key() } else { &[] }
    }

    /// The value of the current entry; empty if there is none.
    #[inline]
    pub fn value(&self) -> &[u8] {
        if self.valid { self.inner.value() } else { &[] }
    }

    /// The value of the current entry, pinned: it outlives the cursor's next step without a copy.
    pub fn value_ref(&self) -> ValueRef {
        if self.valid { self.inner.value_ref() } else { ValueRef::from(Vec::new()) }
    }

    /// The sequence number of the current entry; 0 if there is none.
    #[inline]
    pub fn sequence(&self) -> SequenceNumber {
        if self.valid { self.inner.trailer().sequence() } else { 0 }
    }

    /// Moves to the first entry within the bounds.
    ///
    /// # Errors
    /// `Corruption` and `Io` from reading sstables.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.valid = false;
        match self.bounds.lower() {
            Some(lower) => self.inner.seek(lower, self.sequence)?,
            None => self.inner.seek_to_first()?,
        }
        self.settle_forward()
    }

    /// Moves to the last entry within the bounds.
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.valid = false;
        match self.bounds.upper() {
            Some(upper) => self.inner.seek_before(upper)?,
            None => self.inner.seek_to_last()?,
        }
        self.settle_backward()
    }

    /// Moves to the first entry within the bounds whose key is at least `key`.
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        if self.bounds.is_before(key) {
            return self.seek_to_first();
        }
        self.valid = false;
        if self.bounds.is_behind(key) {
            return Ok(());
        }
        self.inner.seek(key, self.sequence)?;
        self.settle_forward()
    }

    /// Moves to the last entry within the bounds whose key is at most `key`.
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        if self.bounds.is_behind(key) {
            return self.seek_to_last();
        }
        self.valid = false;
        if self.bounds.is_before(key) {
            return Ok(());
        }
        self.inner.seek_before(&crate::cursor::successor(key))?;
        self.settle_backward()
    }

    /// Moves to the next entry. After the last one the cursor is invalid. An invalid cursor stays invalid.
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "a cursor lends its entries; an iterator cannot")]
    pub fn next(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.valid, false) {
            return Ok(());
        }
        let skipped = skipped_bits(self.sees_all);
        if !self.inner.step_in_block(skipped) {
            self.inner.step(skipped);
            self.inner.load_entry()?;
        } else if self.ranges.is_empty() {
            let trailer = self.inner.trailer();
            if trailer.sequence() <= self.sequence && !trailer.is_delete() {
                self.valid = !self.bounds.is_behind(self.inner.key());
                return Ok(());
            }
        }
        self.settle_forward()
    }

    /// Moves to the previous entry. Before the first one the cursor is invalid. An invalid cursor stays invalid.
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    pub fn prev(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.valid, false) {
            return Ok(());
        }
        self.retreat_key()?;
        self.settle_backward()
    }

    /// Moves forward to the first visible entry, from the inner cursor's version on. All newer versions of its key are
    /// too new.
    #[inline]
    fn settle_forward(&mut self) -> Result<()> {
        while self.inner.valid() && !self.bounds.is_behind(self.inner.key()) {
            let trailer = self.inner.trailer();
            if trailer.sequence() > self.sequence {
                // The next entry is an older version, or the newest version of the next key: both may be visible.
                self.inner.next()?;
                continue;
            }
            if self.is_visible(trailer)? {
                self.valid = true;
                return Ok(());
            }
            if !self.inner.step_in_block(skipped_bits(self.sees_all)) {
                self.inner.step(skipped_bits(self.sees_all));
                self.inner.load_entry()?;
            }
        }
        Ok(())
    }

    /// Moves back to the last visible key, from the inner cursor's version on, which is the last version of its key.
    fn settle_backward(&mut self) -> Result<()> {
        while self.inner.valid() && !self.bounds.is_before(self.inner.key()) {
            while self.inner.is_old() {
                self.inner.retreat();
            }
            self.inner.load_entry()?;
            while self.inner.trailer().sequence() > self.sequence && self.inner.next_is_old() {
                self.inner.next()?;
            }
            let trailer = self.inner.trailer();
            if self.inner.valid() && trailer.sequence() <= self.sequence && self.is_visible(trailer)? {
                self.valid = true;
                return Ok(());
            }
            self.retreat_key()?;
        }
        Ok(())
    }

    /// Moves the inner cursor before all versions of its key.
    fn retreat_key(&mut self) -> Result<()> {
        while self.inner.is_old() {
            self.inner.retreat();
        }
        self.inner.retreat();
        self.inner.load_entry()
    }

    /// Whether the current key is visible, given the trailer of its newest version that the reader sees.
    #[inline]
    fn is_visible(&self, trailer: Trailer) -> Result<bool> {
        match trailer.kind() {
            Some(EntryKind::Delete) => Ok(false),
            Some(EntryKind::Put | EntryKind::Merge) => Ok(self.ranges.is_empty()
                || self.ranges.newest_covering(self.inner.key(), self.sequence) <= trailer.sequence()),
            None => Err(unknown_kind(trailer)),
        }
    }
}

#[cold]
fn unknown_kind(trailer: Trailer) -> Error {
    let message = format!("an entry has the unknown kind {}", trailer.bits() & 0xff);
    Error::new(ErrorKind::Corruption, message)
}

impl fmt::Debug for VisibleViewCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VisibleViewCursor")
            .field("sequence", &self.sequence)
            .field("bounds", &self.bounds)
            .field("key", &self.key())
            .finish_non_exhaustive()
    }
}
