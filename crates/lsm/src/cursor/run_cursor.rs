//! A cursor over the sstables of a sorted run.

use std::fmt;
use std::sync::Arc;

use bolide_base::{Result, SequenceNumber, Trailer};
use bolide_table::{EntryHead, InternalCursor, TableCursor};

use crate::version::SortedRun;

/// Sstables in key order without common keys.
pub trait RunTables {
    /// The cursor over one sstable.
    type Cursor: InternalCursor;

    /// The number of sstables.
    fn tables(&self) -> usize;

    /// The first sstable whose largest key is at or after `key`; [`tables`](Self::tables) if there is none.
    fn position(&self, key: &[u8]) -> usize;

    /// A cursor over sstable `index`. `fill_cache`: blocks read through it are cached.
    ///
    /// # Errors
    /// Those of opening the sstable.
    fn open(&self, index: usize, fill_cache: bool) -> Result<Option<Self::Cursor>>;
}

impl RunTables for Arc<SortedRun> {
    type Cursor = TableCursor;

    fn tables(&self) -> usize {
        SortedRun::tables(self).len()
    }

    fn position(&self, key: &[u8]) -> usize {
        SortedRun::position(self, key)
    }

    fn open(&self, index: usize, fill_cache: bool) -> Result<Option<TableCursor>> {
        let Some(table) = SortedRun::tables(self).get(index) else { return Ok(None) };
        Ok(Some(table.reader()?.cursor(fill_cache)))
    }
}

/// A cursor over the sstables of a run, one after the other. It opens an sstable when it reaches it, and holds one at a time.
pub struct RunCursor<R: RunTables = Arc<SortedRun>> {
    run: R,
    fill_cache: bool,
    index: usize,
    cursor: Option<R::Cursor>,
}

impl<R: RunTables> RunCursor<R> {
    /// A cursor over `run`. `fill_cache`: blocks that it reads are cached.
    pub fn new(run: R, fill_cache: bool) -> Self {
        Self { run, fill_cache, index: 0, cursor: None }
    }

    /// Enters sstable `index`; returns its cursor at any position.
    fn enter(&mut self, index: usize) -> Result<Option<&mut R::Cursor>> {
        if self.index != index || self.cursor.is_none() {
            // First dropped, then opened: only one sstable is held.
            self.cursor = None;
            self.index = index;
            self.cursor = self.run.open(index, self.fill_cache)?;
        }
        Ok(self.cursor.as_mut())
    }

    /// Moves on to the first entry of the next sstable that has one, if this one has ended.
    fn cross_forward(&mut self) -> Result<()> {
        while self.cursor.as_ref().is_some_and(|cursor| !cursor.valid()) {
            let Some(next) = self.enter(self.index + 1)? else { break };
            next.seek_to_first()?;
        }
        Ok(())
    }

    /// Moves back to the last entry of the previous sstable that has one, if this one has ended.
    fn cross_backward(&mut self) -> Result<()> {
        while self.cursor.as_ref().is_some_and(|cursor| !cursor.valid()) {
            let Some(index) = self.index.checked_sub(1) else {
                self.cursor = None;
                break;
            };
            if let Some(previous) = self.enter(index)? {
                previous.seek_to_last()?;
            }
        }
        Ok(())
    }
}

impl<R: RunTables> InternalCursor for RunCursor<R> {
    #[inline]
    fn valid(&self) -> bool {
        self.cursor.as_ref().is_some_and(InternalCursor::valid)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.cursor.as_ref().map_or(&[], InternalCursor::key)
    }

    #[inline]
    fn trailer(&self) -> Trailer {
        self.cursor.as_ref().map_or(Trailer::from_bits(0), InternalCursor::trailer)
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.cursor.as_ref().map_or(&[], InternalCursor::value)
    }

    fn seek_to_first(&mut self) -> Result<()> {
        if let Some(first) = self.enter(0)? {
            first.seek_to_first()?;
        }
        self.cross_forward()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        if let Some(index) = self.run.tables().checked_sub(1)
            && let Some(last) = self.enter(index)?
        {
            last.seek_to_last()?;
        }
        self.cross_backward()
    }

    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        if let Some(table) = self.enter(self.run.position(key))? {
            table.seek(key, sequence)?;
        }
        self.cross_forward()
    }

    fn prepare_seek(&mut self, key: &[u8], sequence: SequenceNumber) {
        // An error of opening the sstable occurs again, and is returned, at the seek.
        if let Ok(Some(table)) = self.enter(self.run.position(key)) {
            table.prepare_seek(key, sequence);
        }
    }

    #[inline]
    fn prepare_next_stage(&mut self) -> bool {
        self.cursor.as_mut().is_some_and(InternalCursor::prepare_next_stage)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        // The sstable at `position`, or the previous one, is the last that can have smaller keys.
        let position = self.run.position(key);
        if position == self.run.tables() {
            return self.seek_to_last();
        }
        if let Some(table) = self.enter(position)? {
            table.seek_before(key)?;
        }
        self.cross_backward()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if let Some(cursor) = self.cursor.as_mut() {
            if !cursor.valid() {
                return Ok(());
            }
            cursor.next()?;
            if !cursor.valid() {
                return self.cross_forward();
            }
        }
        Ok(())
    }

    #[inline]
    fn next_entry(&mut self) -> Result<Option<EntryHead>> {
        let Some(cursor) = self.cursor.as_mut().filter(|cursor| cursor.valid()) else { return Ok(None) };
        if let Some(entry) = cursor.next_entry()? {
            return Ok(Some(entry));
        }
        self.cross_forward()?;
        Ok(EntryHead::of(self))
    }

    #[inline]
    fn try_next_distinct(&mut self) -> Option<EntryHead> {
        self.cursor.as_mut()?.try_next_distinct()
    }

    /// True if the cursors over all sstables do so: no two sstables have a key in common.
    #[inline]
    fn yields_keys_once(&self) -> bool {
        self.cursor.as_ref().is_some_and(InternalCursor::yields_keys_once)
    }

    fn prev(&mut self) -> Result<()> {
        if let Some(cursor) = self.cursor.as_mut() {
            if !cursor.valid() {
                return Ok(());
            }
            cursor.prev()?;
            if !cursor.valid() {
                return self.cross_backward();
            }
        }
        Ok(())
    }
}

impl<R: RunTables> fmt::Debug for RunCursor<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunCursor")
            .field("tables", &self.run.tables())
            .field("index", &self.index)
            .field("key", &self.key())
            .finish_non_exhaustive()
    }
}
