//! What a reader sees of a tree at one sequence number.
//!
//! For every key the newest version at or below the reader's sequence number counts, unless it is a
//! tombstone or a range tombstone at or below that number is newer. All else is passed over. Where more
//! than a few versions of one key are in the way, the cursor seeks over them instead of stepping.
//!
//! ```text
//! forward    inner:  a#9 a#5 b#7 b#3 c#4      At: the inner cursor stands on the entry that is seen
//!                        ^ reader at 6
//! backward   inner:  a#9 a#5 b#7 b#3 c#4      Copied: the entry that is seen (b#3) is in a buffer, and the
//!                        ^   <-- seen: b#3    inner cursor before all versions of its key: only there is
//!                                             it known which of them was the newest
//! ```

use std::fmt;
use std::sync::Arc;

use bolide_base::{EntryKind, Error, ErrorKind, Result, SequenceNumber, Trailer};
use bolide_table::InternalCursor;

use super::bounds::{Bounds, successor};
use super::{MergingCursor, Source};
use crate::range_tombstones::RangeTombstones;

/// How many versions of one key are stepped over before the cursor seeks. A step costs some 10 ns, a seek
/// some 100 to 1,000 for each source.
const STEPS: usize = 8;
/// Values longer than this are not copied on the way back; a seek finds them again.
const LARGE_VALUE_BYTES: usize = 16 << 10;

/// A cursor over the keys of a tree as they are seen at one sequence number, within bounds.
///
/// It starts on no entry. After an error it is on none either, and the next positioning call tries anew.
pub struct VisibleCursor<S = Source> {
    inner: MergingCursor<S>,
    sequence: SequenceNumber,
    ranges: Arc<RangeTombstones>,
    bounds: Bounds,
    /// Neither a range tombstone nor an upper bound can hide an entry.
    shows_all: bool,
    state: State,
    /// `Copied`: the key that is seen. Else scratch: the key whose other versions are passed over.
    key: Vec<u8>,
    /// `Copied`: the value that is seen.
    value: Vec<u8>,
    /// `Copied`: the trailer of what is seen.
    trailer: Trailer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// On no entry.
    Invalid,
    /// The inner cursor stands on the entry.
    At,
    /// The entry is in the buffers; the inner cursor stands on the last entry with a smaller key.
    Copied,
}

impl<S: InternalCursor> VisibleCursor<S> {
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
            shows_all: ranges.is_empty() && bounds.upper().is_none(),
            ranges,
            bounds,
            state: State::Invalid,
            key: Vec::new(),
            value: Vec::new(),
            trailer: Trailer::from_bits(0),
        }
    }

    /// True while the cursor stands on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.state != State::Invalid
    }

    /// The key of the current entry; empty where there is none.
    #[inline]
    pub fn key(&self) -> &[u8] {
        match self.state {
            State::Invalid => &[],
            State::At => self.inner.key(),
            State::Copied => &self.key,
        }
    }

    /// The value of the current entry; empty where there is none.
    #[inline]
    pub fn value(&self) -> &[u8] {
        match self.state {
            State::Invalid => &[],
            State::At => self.inner.value(),
            State::Copied => &self.value,
        }
    }

    /// The sequence number of the write that set the current entry; 0 where there is none.
    #[inline]
    pub fn sequence(&self) -> SequenceNumber {
        match self.state {
            State::Invalid => 0,
            State::At => self.inner.trailer().sequence(),
            State::Copied => self.trailer.sequence(),
        }
    }

    /// Moves to the first entry within the bounds.
    ///
    /// # Errors
    /// `Corruption` and `Io` from reading sstables, as all that moves the cursor.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.state = State::Invalid;
        match self.bounds.lower() {
            Some(lower) => self.inner.seek(lower, self.sequence)?,
            None => self.inner.seek_to_first()?,
        }
        self.settle_forward(false)
    }

    /// Moves to the last entry within the bounds.
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.state = State::Invalid;
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
        self.state = State::Invalid;
        if self.bounds.is_behind(key) {
            return Ok(());
        }
        self.inner.seek(key, self.sequence)?;
        self.settle_forward(false)
    }

    /// Moves to the last entry within the bounds whose key is at most `key`.
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        if self.bounds.is_behind(key) {
            return self.seek_to_last();
        }
        self.state = State::Invalid;
        if self.bounds.is_before(key) {
            return Ok(());
        }
        self.inner.seek_before(&successor(key))?;
        self.settle_backward()
    }

    /// Moves to the next entry; behind the last one the cursor is on none. On none it stays there.
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "a cursor lends its entries; an iterator cannot")]
    pub fn next(&mut self) -> Result<()> {
        if self.state == State::At
            && let Some(entry) = self.inner.next_in_hand()
        {
            if self.shows_all && self.is_plain(entry.trailer) {
                return Ok(());
            }
            self.state = State::Invalid;
            return self.settle_forward(false);
        }
        match std::mem::replace(&mut self.state, State::Invalid) {
            State::Invalid => Ok(()),
            State::At if self.inner.leaves_key() => {
                let entry = self.inner.next_entry()?;
                if self.shows_all && entry.is_some_and(|entry| self.is_plain(entry.trailer)) {
                    self.state = State::At;
                    return Ok(());
                }
                self.settle_forward(false)
            }
            State::At => {
                self.note_key();
                self.inner.next()?;
                self.settle_forward(true)
            }
            State::Copied => {
                self.inner.seek(&self.key, 0)?;
                self.settle_forward(true)
            }
        }
    }

    /// Moves to the entry before; before the first one the cursor is on none. On none it stays there.
    ///
    /// # Errors
    /// See [`seek_to_first`](Self::seek_to_first).
    pub fn prev(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.state, State::Invalid) {
            State::Invalid => return Ok(()),
            State::At => {
                self.note_key();
                self.leave_key_backward()?;
            }
            State::Copied => {}
        }
        self.settle_backward()
    }

    /// Goes on from where the inner cursor stands to an entry that is seen. `passing`: versions of the
    /// noted key are not.
    fn settle_forward(&mut self, mut passing: bool) -> Result<()> {
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
            } else if self.shows(key, trailer)? {
                self.state = State::At;
                return Ok(());
            } else {
                self.note_key();
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
                self.note_key();
                passing = false;
                self.inner.seek_forward(&self.key, self.sequence)?;
            } else {
                self.inner.seek_forward(&self.key, 0)?;
            }
        }
        Ok(())
    }

    /// Goes back from the last version of a key, where the inner cursor stands, to a key that is seen.
    fn settle_backward(&mut self) -> Result<()> {
        while self.inner.valid() && !self.bounds.is_before(self.inner.key()) {
            self.note_key();
            // The newest version of the key at or below the sequence number. They come oldest first.
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
                    if self.find_noted_key()? {
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
                && self.shows(&self.key, trailer)?
            {
                self.trailer = trailer;
                self.state = State::Copied;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Seeks the noted key, which has many versions or large ones. True where it is seen: the cursor is on
    /// it. Else the inner cursor stands before it.
    #[cold]
    fn find_noted_key(&mut self) -> Result<bool> {
        self.inner.seek(&self.key, self.sequence)?;
        if self.inner.valid()
            && self.inner.key() == self.key
            && self.shows(&self.key, self.inner.trailer())?
        {
            self.state = State::At;
            return Ok(true);
        }
        self.inner.seek_before(&self.key)?;
        Ok(false)
    }

    /// Moves the inner cursor, which stands on a version of the noted key, before all of them.
    fn leave_key_backward(&mut self) -> Result<()> {
        for _ in 0..STEPS {
            self.inner.prev()?;
            if !self.inner.valid() || self.inner.key() != self.key {
                return Ok(());
            }
        }
        self.inner.seek_before(&self.key)
    }

    /// True for a value that is seen where nothing but its trailer counts.
    #[inline]
    fn is_plain(&self, trailer: Trailer) -> bool {
        trailer.sequence() <= self.sequence
            && matches!(trailer.kind(), Some(EntryKind::Put | EntryKind::Merge))
    }

    #[inline]
    fn note_key(&mut self) {
        self.key.clear();
        self.key.extend_from_slice(self.inner.key());
    }

    /// True where `trailer`, of the newest version of `key` at the sequence number, lets it be seen.
    #[inline]
    fn shows(&self, key: &[u8], trailer: Trailer) -> Result<bool> {
        match trailer.kind() {
            Some(EntryKind::Delete) => Ok(false),
            // Of operands only the newest is seen; who wants them all has a versions cursor.
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
