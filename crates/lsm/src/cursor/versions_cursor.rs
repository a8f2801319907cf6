//! All visible operands of the keys of a tree.
//!
//! The value of a key whose operands are merged (see [`crate::compaction::merge`]) is the sum of its operands. This cursor
//! returns them separately: keys ascending, the operands of each newest first, down to the first put or tombstone, which hides
//! older ones. Two operands of a key may have one sequence number. It moves forward only and reads lazily: a reader of the
//! newest operands of a key stops early.

use std::fmt;
use std::sync::Arc;

use bolide_base::{EntryKind, Result, SequenceNumber, Trailer};
use bolide_table::InternalCursor;

use super::bounds::Bounds;
use super::{ComponentCursor, MergingCursor};
use crate::range_tombstones::RangeTombstones;

/// The number of steps over invisible versions before the cursor seeks.
const STEPS: usize = 8;

/// A cursor over the operands of the keys of a tree that are visible at one sequence number, within bounds.
///
/// It starts on no entry. After an error it is on none either, and the next positioning call starts again.
pub struct VersionsCursor<S = ComponentCursor> {
    inner: MergingCursor<S>,
    sequence: SequenceNumber,
    ranges: Arc<RangeTombstones>,
    bounds: Bounds,
    valid: bool,
    /// The last key of the cursor.
    key: Vec<u8>,
    /// The last sequence number under that key.
    last: Option<SequenceNumber>,
    /// True if the rest of that key is hidden.
    hidden: bool,
}

impl<S: InternalCursor> VersionsCursor<S> {
    /// A cursor over the versions in `sources` that are visible at `sequence` under the range tombstones `ranges`.
    pub fn new(
        sources: Vec<S>,
        sequence: SequenceNumber,
        ranges: Arc<RangeTombstones>,
        bounds: Bounds,
    ) -> Self {
        Self {
            inner: MergingCursor::new(sources),
            sequence,
            ranges,
            bounds,
            valid: false,
            key: Vec::new(),
            last: None,
            hidden: false,
        }
    }

    /// True while the cursor is on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// The key of the current entry; empty without one.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if self.valid { self.inner.key() } else { &[] }
    }

    /// The operand of the current entry; empty without one.
    #[inline]
    pub fn value(&self) -> &[u8] {
        if self.valid { self.inner.value() } else { &[] }
    }

    /// The sequence number of the current entry; 0 without one.
    #[inline]
    pub fn sequence(&self) -> SequenceNumber {
        if self.valid { self.inner.trailer().sequence() } else { 0 }
    }

    /// Moves to the newest operand of the first key within the bounds.
    ///
    /// # Errors
    /// `Corruption` and `Io` from reading sstables, as for all calls that move the cursor.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.reset();
        match self.bounds.lower() {
            Some(lower) => self.inner.seek(lower, self.sequence)?,
            None => self.inner.seek_to_first()?,
        }
        self.advance_to_visible()
    }

    /// Moves to the newest operand of the first key within the bounds that is at least `key`.
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        if self.bounds.is_before(key) {
            return self.seek_to_first();
        }
        self.reset();
        self.inner.seek(key, self.sequence)?;
        self.advance_to_visible()
    }

    /// Moves to the next operand, of the same key or the next. An invalid cursor stays invalid.
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    #[expect(clippy::should_implement_trait, reason = "a cursor lends its entries; an iterator cannot")]
    pub fn next(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.valid, false) {
            return Ok(());
        }
        self.inner.next()?;
        self.advance_to_visible()
    }

    fn reset(&mut self) {
        self.valid = false;
        self.hidden = false;
        self.last = None;
        self.key.clear();
    }

    /// Moves forward from the position of the inner cursor to a visible entry.
    fn advance_to_visible(&mut self) -> Result<()> {
        let mut steps = 0;
        while self.inner.valid() && !self.bounds.is_behind(self.inner.key()) {
            let trailer = self.inner.trailer();
            if self.last.is_none() || self.inner.key() != self.key {
                self.key.clear();
                self.key.extend_from_slice(self.inner.key());
                self.hidden = false;
                self.last = None;
            }
            let too_new = trailer.sequence() > self.sequence;
            if !too_new && self.is_visible(trailer) {
                self.valid = true;
                return Ok(());
            }
            steps += 1;
            if steps <= STEPS {
                self.inner.next()?;
                continue;
            }
            steps = 0;
            let key = std::mem::take(&mut self.key);
            let sought = self.inner.seek_forward(&key, if too_new { self.sequence } else { 0 });
            self.key = key;
            sought?;
        }
        Ok(())
    }

    /// True if the version of the current key with this trailer is visible.
    fn is_visible(&mut self, trailer: Trailer) -> bool {
        self.last = Some(trailer.sequence());
        if self.hidden {
            return false;
        }
        self.hidden = trailer.kind() != Some(EntryKind::Merge)
            || (!self.ranges.is_empty()
                && self.ranges.newest_covering(&self.key, self.sequence) > trailer.sequence());
        !self.hidden
    }
}

impl<S: InternalCursor> fmt::Debug for VersionsCursor<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VersionsCursor")
            .field("sequence", &self.sequence)
            .field("bounds", &self.bounds)
            .field("key", &self.key())
            .finish_non_exhaustive()
    }
}
