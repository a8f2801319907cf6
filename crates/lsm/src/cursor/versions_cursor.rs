//! All that was written under the keys of a tree, as far as a reader sees it.
//!
//! A key whose operands are merged (see [`crate::compaction::merge`]) means the sum of its operands. This
//! cursor shows them one by one: keys ascending, under each the newest first, down to the first put or
//! tombstone, which hides what is older. Two operands of a key may have one sequence number. It goes forward only, and reads no further than it is asked to: who
//! wants the newest of a key stops early.

use std::fmt;
use std::sync::Arc;

use bolide_base::{EntryKind, Result, SequenceNumber, Trailer};
use bolide_table::InternalCursor;

use super::bounds::Bounds;
use super::{MergingCursor, Source};
use crate::range_tombstones::RangeTombstones;

/// Steps over versions that are not seen before the cursor seeks.
const STEPS: usize = 8;

/// A cursor over the operands of the keys of a tree, seen at one sequence number, within bounds.
///
/// It starts on no entry. After an error it is on none either, and the next positioning call tries anew.
pub struct VersionsCursor<S = Source> {
    inner: MergingCursor<S>,
    sequence: SequenceNumber,
    ranges: Arc<RangeTombstones>,
    bounds: Bounds,
    valid: bool,
    /// The key that the cursor was in last.
    key: Vec<u8>,
    /// The sequence number met last under that key.
    last: Option<SequenceNumber>,
    /// True where the rest of that key is hidden.
    hidden: bool,
}

impl<S: InternalCursor> VersionsCursor<S> {
    /// A cursor over the versions in `sources`, seen at `sequence` behind the range tombstones `ranges`.
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

    /// True while the cursor stands on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// The key of the current entry; empty where there is none.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if self.valid { self.inner.key() } else { &[] }
    }

    /// The operand of the current entry; empty where there is none.
    #[inline]
    pub fn value(&self) -> &[u8] {
        if self.valid { self.inner.value() } else { &[] }
    }

    /// The sequence number of the current entry; 0 where there is none.
    #[inline]
    pub fn sequence(&self) -> SequenceNumber {
        if self.valid { self.inner.trailer().sequence() } else { 0 }
    }

    /// Moves to the newest operand of the first key within the bounds.
    ///
    /// # Errors
    /// `Corruption` and `Io` from reading sstables, as all that moves the cursor.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.forget();
        match self.bounds.lower() {
            Some(lower) => self.inner.seek(lower, self.sequence)?,
            None => self.inner.seek_to_first()?,
        }
        self.settle()
    }

    /// Moves to the newest operand of the first key within the bounds that is at least `key`.
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        if self.bounds.is_before(key) {
            return self.seek_to_first();
        }
        self.forget();
        self.inner.seek(key, self.sequence)?;
        self.settle()
    }

    /// Moves to the next operand, of the same key or the next. On none it stays there.
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    #[expect(clippy::should_implement_trait, reason = "a cursor lends its entries; an iterator cannot")]
    pub fn next(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.valid, false) {
            return Ok(());
        }
        self.inner.next()?;
        self.settle()
    }

    fn forget(&mut self) {
        self.valid = false;
        self.hidden = false;
        self.last = None;
        self.key.clear();
    }

    /// Goes on from where the inner cursor stands to an entry that is shown.
    fn settle(&mut self) -> Result<()> {
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
            if !too_new && self.shows(trailer) {
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

    /// True where the version with this trailer, of the key that the cursor is in, is shown.
    fn shows(&mut self, trailer: Trailer) -> bool {
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
