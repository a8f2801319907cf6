//! The entries of a tree that are visible at one sequence number.
//!
//! Of every key the newest version at or below the reader's sequence number is visible, unless it is a tombstone or hidden by
//! a newer range tombstone at or below that number. All other entries are skipped. If a key has more than a few versions to
//! skip, the cursor seeks over them instead of stepping.
//!
//! ```text
//! forward    inner:  a#9 a#5 b#7 b#3 c#4      At: the inner cursor is on the visible entry
//!                        ^ reader at 6
//! backward   inner:  a#9 a#5 b#7 b#3 c#4      Copied: the visible entry (b#3) is in a buffer, and the inner
//!                        ^   <-- visible: b#3 cursor before all versions of its key: only there the newest
//!                                             of them is known
//! ```

use std::fmt;
use std::sync::Arc;

use bolide_base::{EntryKind, Error, ErrorKind, Result, SequenceNumber, Trailer};
use bolide_table::InternalCursor;

use super::bounds::{Bounds, successor};
use super::{ComponentCursor, MergingCursor};
use crate::range_tombstones::RangeTombstones;

/// The number of versions of one key that are stepped over before the cursor seeks. A step costs some 10 ns, a seek some
/// 100 to 1,000 per source.
const STEPS: usize = 8;
/// Longer values are not copied in backward direction; a seek finds them again.
const LARGE_VALUE_BYTES: usize = 16 << 10;

/// A cursor over the keys of a tree that are visible at one sequence number, within bounds.
///
/// It starts on no entry. After an error it is on none either, and the next positioning call starts again.
pub struct VisibleCursor<S = ComponentCursor> {
    inner: MergingCursor<S>,
    sequence: SequenceNumber,
    ranges: Arc<RangeTombstones>,
    bounds: Bounds,
    /// True if neither a range tombstone nor an upper bound can hide an entry.
    hides_nothing: bool,
    state: VisibleState,
    /// `Copied`: the visible key. Otherwise scratch: the key whose other versions are skipped.
    key: Vec<u8>,
    /// `Copied`: the visible value.
    value: Vec<u8>,
    /// `Copied`: the trailer of the visible version.
    trailer: Trailer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VisibleState {
    /// On no entry.
    Invalid,
    /// The inner cursor is on the entry.
    At,
    /// The entry is in the buffers; the inner cursor is on the last entry with a smaller key.
    Copied,
}

impl<S: InternalCursor> VisibleCursor<S> {
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
            hides_nothing: ranges.is_empty() && bounds.upper().is_none(),
            ranges,
            bounds,
            state: VisibleState::Invalid,
            key: Vec::new(),
            value: Vec::new(),
            trailer: Trailer::from_bits(0),
        }
    }

    /// True while the cursor is on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.state != VisibleState::Invalid
    }

    /// The key of the current entry; empty without one.
    #[inline]
    pub fn key(&self) -> &[u8] {
        match self.state {
            VisibleState::Invalid => &[],
            VisibleState::At => self.inner.key(),
            VisibleState::Copied => &self.key,
        }
    }

    /// The value of the current entry; empty without one.
    #[inline]
    pub fn value(&self) -> &[u8] {
        match self.state {
            VisibleState::Invalid => &[],
            VisibleState::At => self.inner.value(),
            VisibleState::Copied => &self.value,
        }
    }

    /// The sequence number of the write that set the current entry; 0 without one.
    #[inline]
    pub fn sequence(&self) -> SequenceNumber {
        match self.state {
            VisibleState::Invalid => 0,
            VisibleState::At => self.inner.trailer().sequence(),
            VisibleState::Copied => self.trailer.sequence(),
        }
    }

    /// Moves to the first entry within the bounds.
    ///
    /// # Errors
    /// `Corruption` and `Io` from reading sstables, as for all calls that move the cursor.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.state = VisibleState::Invalid;
        match self.bounds.lower() {
            Some(lower) => self.inner.seek(lower, self.sequence)?,
            None => self.inner.seek_to_first()?,
        }
        self.advance_to_visible(false)
    }

    /// Moves to the last entry within the bounds.
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.state = VisibleState::Invalid;
        match self.bounds.upper() {
            Some(upper) => self.inner.seek_before(upper)?,
            None => self.inner.seek_to_last()?,
        }
        self.retreat_to_visible()
    }

    /// Moves to the first entry within the bounds whose key is at least `key`.
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        if self.bounds.is_before(key) {
            return self.seek_to_first();
        }
        self.state = VisibleState::Invalid;
        if self.bounds.is_behind(key) {
            return Ok(());
        }
        self.inner.seek(key, self.sequence)?;
        self.advance_to_visible(false)
    }

    /// Moves to the last entry within the bounds whose key is at most `key`.
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        if self.bounds.is_behind(key) {
            return self.seek_to_last();
        }
        self.state = VisibleState::Invalid;
        if self.bounds.is_before(key) {
            return Ok(());
        }
        self.inner.seek_before(&successor(key))?;
        self.retreat_to_visible()
    }

    /// Moves to the next entry; behind the last one the cursor is on none and stays there.
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "a cursor lends its entries; an iterator cannot")]
    pub fn next(&mut self) -> Result<()> {
        if self.state == VisibleState::At
            && let Some(entry) = self.inner.try_next_distinct()
        {
            if self.hides_nothing && self.is_plain(entry.trailer) {
                return Ok(());
            }
            self.state = VisibleState::Invalid;
            return self.advance_to_visible(false);
        }
        match std::mem::replace(&mut self.state, VisibleState::Invalid) {
            VisibleState::Invalid => Ok(()),
            VisibleState::At if self.inner.leaves_key() => {
                let entry = self.inner.next_entry()?;
                if self.hides_nothing && entry.is_some_and(|entry| self.is_plain(entry.trailer)) {
                    self.state = VisibleState::At;
                    return Ok(());
                }
                self.advance_to_visible(false)
            }
            VisibleState::At => {
                self.store_key();
                self.inner.next()?;
                self.advance_to_visible(true)
            }
            VisibleState::Copied => {
                self.inner.seek(&self.key, 0)?;
                self.advance_to_visible(true)
            }
        }
    }

    /// Moves to the previous entry; before the first one the cursor is on none and stays there.
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    pub fn prev(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.state, VisibleState::Invalid) {
            VisibleState::Invalid => return Ok(()),
            VisibleState::At => {
                self.store_key();
                self.leave_key_backward()?;
            }
            VisibleState::Copied => {}
        }
        self.retreat_to_visible()
    }

    /// Moves forward from the position of the inner cursor to a visible entry. `passing`: versions of the stored key are not
    /// visible.
    fn advance_to_visible(&mut self, mut passing: bool) -> Result<()> {
        let mut steps = 0;
        while self.inner.valid() {
            let key = self.inner.key();
            let trailer = self.inner.trailer();
            let too_new = if passing && key == self.key {
                false
            } else if self.bounds.is_behind(key) {
                break;
            } else if trailer.sequence() > self.sequence {
                true
            } else if self.is_visible(key, trailer)? {
                self.state = VisibleState::At;
                return Ok(());
            } else {
                self.store_key();
                (passing, steps) = (true, 0);
                false
            };
            steps += 1;
            if steps <= STEPS {
                self.inner.next()?;
                continue;
            }
            steps = 0;
            if too_new {
                self.store_key();
                passing = false;
                self.inner.seek_forward(&self.key, self.sequence)?;
            } else {
                self.inner.seek_forward(&self.key, 0)?;
            }
        }
        Ok(())
    }

    /// Moves backward from the last version of a key, the position of the inner cursor, to a visible key.
    fn retreat_to_visible(&mut self) -> Result<()> {
        while self.inner.valid() && !self.bounds.is_before(self.inner.key()) {
            self.store_key();
            // The newest version of the key at or below the sequence number. They are read oldest first.
            let mut newest = None;
            let mut steps = 0;
            while self.inner.valid() && self.inner.key() == self.key {
                let trailer = self.inner.trailer();
                if trailer.sequence() > self.sequence {
                    self.leave_key_backward()?;
                    break;
                }
                steps += 1;
                if steps > STEPS || self.inner.value().len() > LARGE_VALUE_BYTES {
                    if self.seek_stored_key()? {
                        return Ok(());
                    }
                    newest = None;
                    break;
                }
                newest = Some(trailer);
                self.value.clear();
                self.value.extend_from_slice(self.inner.value());
                self.inner.prev()?;
            }
            if let Some(trailer) = newest
                && self.is_visible(&self.key, trailer)?
            {
                self.trailer = trailer;
                self.state = VisibleState::Copied;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Seeks the stored key, which has many versions or large ones. Returns true if it is visible: the cursor is on it.
    /// Otherwise the inner cursor is before it.
    #[cold]
    fn seek_stored_key(&mut self) -> Result<bool> {
        self.inner.seek(&self.key, self.sequence)?;
        if self.inner.valid()
            && self.inner.key() == self.key
            && self.is_visible(&self.key, self.inner.trailer())?
        {
            self.state = VisibleState::At;
            return Ok(true);
        }
        self.inner.seek_before(&self.key)?;
        Ok(false)
    }

    /// Moves the inner cursor from a version of the stored key before all of them.
    fn leave_key_backward(&mut self) -> Result<()> {
        for _ in 0..STEPS {
            self.inner.prev()?;
            if !self.inner.valid() || self.inner.key() != self.key {
                return Ok(());
            }
        }
        self.inner.seek_before(&self.key)
    }

    /// True for a value whose visibility depends on its trailer alone.
    #[inline]
    fn is_plain(&self, trailer: Trailer) -> bool {
        trailer.sequence() <= self.sequence
            && matches!(trailer.kind(), Some(EntryKind::Put | EntryKind::Merge))
    }

    #[inline]
    fn store_key(&mut self) {
        self.key.clear();
        self.key.extend_from_slice(self.inner.key());
    }

    /// True if `trailer`, of the newest version of `key` at the sequence number, makes it visible.
    #[inline]
    fn is_visible(&self, key: &[u8], trailer: Trailer) -> Result<bool> {
        match trailer.kind() {
            Some(EntryKind::Delete) => Ok(false),
            // Of merge operands only the newest is visible here; a versions cursor returns all.
            Some(EntryKind::Put | EntryKind::Merge) => Ok(self.ranges.is_empty()
                || self.ranges.newest_covering(key, self.sequence) <= trailer.sequence()),
            None => Err(unknown_kind(trailer)),
        }
    }
}

#[cold]
fn unknown_kind(trailer: Trailer) -> Error {
    let message = format!("an entry has the unknown kind {}", trailer.bits() & 0xff);
    Error::new(ErrorKind::Corruption, message)
}

impl<S: InternalCursor> fmt::Debug for VisibleCursor<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VisibleCursor")
            .field("sequence", &self.sequence)
            .field("bounds", &self.bounds)
            .field("state", &self.state)
            .field("key", &self.key())
            .finish_non_exhaustive()
    }
}
