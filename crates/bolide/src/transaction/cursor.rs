//! Iteration in key order inside a transaction: the records of its snapshot, merged with its own writes.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use bolide_base::{Result, SequenceNumber};

use super::Transaction;
use super::own_writes::{OwnRecord, OwnWrites};
use crate::iterator::{Cursor, Record};
use crate::schema::OpenCollection;

/// A position among the records of a collection inside a transaction; made by
/// [`Transaction::cursor`](crate::Transaction::cursor).
///
/// The records are those of the transaction at the time of that call. The keys between the positions that the cursor
/// takes count as read: a serializable transaction conflicts with commits that change one of them.
pub struct TransactionCursor<'t> {
    transaction: &'t Transaction,
    collection: Arc<OpenCollection>,
    own: Arc<OwnWrites>,
    /// The records of the snapshot within the bounds.
    snapshot: Cursor,
    bounds: CursorBounds,
    position: Position,
    /// Keys that were scanned since the last seek, from a first key to an exclusive end.
    scanned: Option<(Vec<u8>, Vec<u8>)>,
    /// The number under which the transaction counts all keys within the bounds as read, until the cursor is dropped.
    number: u64,
}

/// The first key within the bounds of a cursor, and the first key after them.
pub(super) type CursorBounds = Arc<(Vec<u8>, Vec<u8>)>;

/// The record of the position.
enum Position {
    None,
    /// A record of the snapshot, at which its cursor is.
    Snapshot,
    Own {
        key: Vec<u8>,
        record: Arc<[u8]>,
        sequence: SequenceNumber,
    },
}

impl Position {
    /// That of the own write, else that of the snapshot's cursor, if it is valid.
    fn of(own: Option<(&[u8], &OwnRecord)>, snapshot_is_valid: bool) -> Self {
        match own {
            Some((key, put)) => {
                Self::Own { key: key.to_vec(), record: put.record.clone(), sequence: put.sequence }
            }
            None if snapshot_is_valid => Self::Snapshot,
            None => Self::None,
        }
    }
}

impl<'t> TransactionCursor<'t> {
    pub(super) fn new(
        transaction: &'t Transaction,
        collection: Arc<OpenCollection>,
        own: Arc<OwnWrites>,
        snapshot: Cursor,
        bounds: CursorBounds,
        number: u64,
    ) -> Self {
        let (position, scanned) = (Position::None, None);
        Self { transaction, collection, own, snapshot, bounds, position, scanned, number }
    }

    /// Whether it is positioned at a record.
    pub fn valid(&self) -> bool {
        !matches!(self.position, Position::None)
    }

    /// The key of the record; empty if the cursor is not valid.
    pub fn key(&self) -> &[u8] {
        match &self.position {
            Position::None => &[],
            Position::Snapshot => self.snapshot.key(),
            Position::Own { key, .. } => key,
        }
    }

    /// The record; empty if the cursor is not valid.
    pub fn value(&self) -> &[u8] {
        match &self.position {
            Position::None => &[],
            Position::Snapshot => self.snapshot.value(),
            Position::Own { record, .. } => record,
        }
    }

    /// The sequence number of the write that put the record, provisional for one of the transaction; 0 if the cursor is
    /// not valid.
    pub fn sequence(&self) -> SequenceNumber {
        match &self.position {
            Position::None => 0,
            Position::Snapshot => self.snapshot.sequence(),
            Position::Own { sequence, .. } => *sequence,
        }
    }

    /// Moves to the first record within the bounds.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading an sstable, as for all moves of the cursor. `LimitExceeded` if the transaction has
    /// read and written too much, as for all moves but [`next`](Self::next) and [`prev`](Self::prev). The cursor is not valid
    /// after an error.
    pub fn seek_to_first(&mut self) -> Result<()> {
        let first = self.bounds.0.clone();
        self.seek(&first)
    }

    /// Moves to the last record within the bounds.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.leave_scanned()?;
        let end = self.bounds.1.clone();
        self.snapshot.seek_to_last()?;
        self.settle_backward(Bound::Excluded(&end))?;
        self.scanned = Some((self.reached_backward(), end));
        Ok(())
    }

    /// Moves to the first record within the bounds whose key is at or after `key`.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.leave_scanned()?;
        let from = key.max(&self.bounds.0).to_vec();
        self.snapshot.seek(&from)?;
        self.settle_forward(Bound::Included(&from))?;
        self.scanned = Some((from, self.reached_forward()));
        Ok(())
    }

    /// Moves to the last record within the bounds whose key is at or before `key`.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        if key >= &self.bounds.1[..] {
            return self.seek_to_last();
        }
        self.leave_scanned()?;
        self.snapshot.seek_for_prev(key)?;
        self.settle_backward(Bound::Included(key))?;
        self.scanned = Some((self.reached_backward(), behind(key)));
        Ok(())
    }

    /// Moves to the next record; does nothing if the cursor is not valid.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    #[allow(clippy::should_implement_trait)] // It lends the record of its position, which no `Iterator` can.
    pub fn next(&mut self) -> Result<()> {
        if !self.valid() {
            return Ok(());
        }
        let from = self.leave_position();
        // After a move backward, the cursor of the snapshot is before the position.
        if self.snapshot.valid() && self.snapshot.key() >= &from[..] {
            if self.snapshot.key() == &from[..] {
                self.snapshot.next()?;
            }
        } else {
            self.snapshot.seek(&behind(&from))?;
        }
        self.settle_forward(Bound::Excluded(&from))?;
        let reached = self.reached_forward();
        if let Some((_, end)) = &mut self.scanned
            && reached > *end
        {
            *end = reached;
        }
        Ok(())
    }

    /// Moves to the previous record; does nothing if the cursor is not valid.
    ///
    /// # Errors
    /// As [`seek_to_first`](Self::seek_to_first).
    pub fn prev(&mut self) -> Result<()> {
        if !self.valid() {
            return Ok(());
        }
        let from = self.leave_position();
        if self.snapshot.valid() && self.snapshot.key() <= &from[..] {
            if self.snapshot.key() == &from[..] {
                self.snapshot.prev()?;
            }
        } else {
            self.snapshot.seek_for_prev(&from)?;
            if self.snapshot.valid() && self.snapshot.key() == &from[..] {
                self.snapshot.prev()?;
            }
        }
        self.settle_backward(Bound::Excluded(&from))?;
        let reached = self.reached_backward();
        if let Some((start, _)) = &mut self.scanned
            && reached < *start
        {
            *start = reached;
        }
        Ok(())
    }

    /// Chooses the first record after `from`. The cursor of the snapshot is at its first record there.
    fn settle_forward(&mut self, from: Bound<&[u8]>) -> Result<()> {
        while self.snapshot.valid() && self.own.masks(self.snapshot.key()) {
            match self.own.deleted_around(self.snapshot.key()).map(|(_, end)| end.to_vec()) {
                Some(end) => self.snapshot.seek(&end)?,
                None => self.snapshot.next()?,
            }
        }
        let own = self.own.first_put((from, Bound::Excluded(&self.bounds.1)));
        let own = own.filter(|(key, _)| !self.snapshot.valid() || *key < self.snapshot.key());
        self.position = Position::of(own, self.snapshot.valid());
        Ok(())
    }

    /// Chooses the last record before `to`. The cursor of the snapshot is at its last record there.
    fn settle_backward(&mut self, to: Bound<&[u8]>) -> Result<()> {
        while self.snapshot.valid() && self.own.masks(self.snapshot.key()) {
            match self.own.deleted_around(self.snapshot.key()).map(|(start, _)| start.to_vec()) {
                Some(start) => {
                    self.snapshot.seek_for_prev(&start)?;
                    if self.snapshot.valid() && self.snapshot.key() == &start[..] {
                        self.snapshot.prev()?;
                    }
                }
                None => self.snapshot.prev()?,
            }
        }
        let own = self.own.last_put((Bound::Included(&self.bounds.0), to));
        let own = own.filter(|(key, _)| !self.snapshot.valid() || *key > self.snapshot.key());
        self.position = Position::of(own, self.snapshot.valid());
        Ok(())
    }

    /// The first key that a move forward has not read.
    fn reached_forward(&self) -> Vec<u8> {
        if self.valid() { behind(self.key()) } else { self.bounds.1.clone() }
    }

    /// The first key that a move backward has read.
    fn reached_backward(&self) -> Vec<u8> {
        if self.valid() { self.key().to_vec() } else { self.bounds.0.clone() }
    }

    /// The key of the position, which becomes invalid: it remains so if the move fails.
    fn leave_position(&mut self) -> Vec<u8> {
        let key = self.key().to_vec();
        self.position = Position::None;
        key
    }

    /// Makes the position invalid and passes the scanned keys to the transaction.
    fn leave_scanned(&mut self) -> Result<()> {
        self.position = Position::None;
        match self.scanned.take() {
            Some((start, end)) => self.transaction.note_scanned(&self.collection, &start, &end),
            None => Ok(()),
        }
    }
}

impl Drop for TransactionCursor<'_> {
    fn drop(&mut self) {
        // The next read of the transaction reports that it has read too much.
        let _ = self.leave_scanned();
        self.transaction.close_cursor(self.number);
    }
}

/// The first key after `key`.
fn behind(key: &[u8]) -> Vec<u8> {
    let mut behind = key.to_vec();
    behind.push(0);
    behind
}

impl fmt::Debug for TransactionCursor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionCursor")
            .field("valid", &self.valid())
            .field("key", &self.key())
            .finish_non_exhaustive()
    }
}

/// The records of a collection inside a transaction, as a double-ended iterator of `(key, record)`; made by
/// [`Transaction::iter`](crate::Transaction::iter). Only the keys up to which it was read count as read.
#[derive(Debug)]
pub struct TransactionIter<'t> {
    front: TransactionCursor<'t>,
    back: TransactionCursor<'t>,
    front_started: bool,
    back_started: bool,
    finished: bool,
}

impl<'t> TransactionIter<'t> {
    pub(super) fn new(front: TransactionCursor<'t>, back: TransactionCursor<'t>) -> Self {
        Self { front, back, front_started: false, back_started: false, finished: false }
    }

    fn advance_front(&mut self) -> Result<Option<Record>> {
        if std::mem::replace(&mut self.front_started, true) {
            self.front.next()?;
        } else {
            self.front.seek_to_first()?;
        }
        let met = self.back_started && self.front.key() >= self.back.key();
        Ok((self.front.valid() && !met).then(|| (self.front.key().to_vec(), self.front.value().to_vec())))
    }

    fn advance_back(&mut self) -> Result<Option<Record>> {
        if std::mem::replace(&mut self.back_started, true) {
            self.back.prev()?;
        } else {
            self.back.seek_to_last()?;
        }
        let met = self.front_started && self.back.key() <= self.front.key();
        Ok((self.back.valid() && !met).then(|| (self.back.key().to_vec(), self.back.value().to_vec())))
    }

    fn item(&mut self, advanced: Result<Option<Record>>) -> Option<Result<Record>> {
        let item = advanced.transpose();
        self.finished = !matches!(item, Some(Ok(_)));
        item
    }
}

impl Iterator for TransactionIter<'_> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        if self.finished {
            return None;
        }
        let advanced = self.advance_front();
        self.item(advanced)
    }
}

impl DoubleEndedIterator for TransactionIter<'_> {
    fn next_back(&mut self) -> Option<Result<Record>> {
        if self.finished {
            return None;
        }
        let advanced = self.advance_back();
        self.item(advanced)
    }
}

impl std::iter::FusedIterator for TransactionIter<'_> {}
