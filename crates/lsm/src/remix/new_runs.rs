//! The entries of the runs that a rebuild adds to an older view, some of them read ahead.
//!
//! The merge points of neighbouring keys lie in different places: each waits for memory four or five times, one after the other.
//! So a few keys are taken together, and go to their merge points step by step side by side; see [`super::staged_seek`].

use std::collections::BTreeSet;
use std::sync::Arc;

use bolide_base::{MAX_SEQUENCE, Result, Trailer};
use bolide_table::{InternalCursor, TableCursor, TableReader};

use super::staged_seek;
use super::run::ViewRun;
use super::search::Leaf;
use super::tables_of;
use super::view::SortedView;
use crate::cursor::{MergingCursor, Run, RunCursor};

/// Entries that are read ahead.
const TOGETHER: usize = 16;

/// The sstables of a run that the old view does not have.
struct FurtherTables(Vec<Arc<TableReader>>);

impl Run for FurtherTables {
    type Cursor = TableCursor;

    fn tables(&self) -> usize {
        self.0.len()
    }

    fn position(&self, key: &[u8]) -> usize {
        self.0.partition_point(|table| table.properties().largest_key.as_slice() < key)
    }

    fn open(&self, index: usize, fill_cache: bool) -> Result<Option<TableCursor>> {
        Ok(self.0.get(index).map(|table| table.cursor(fill_cache)))
    }
}

/// What `old` does not have, by the number of its run.
fn further_tables(old: &SortedView, runs: &[Arc<ViewRun>]) -> Vec<(usize, FurtherTables)> {
    let known: BTreeSet<u64> = old.runs().iter().flat_map(tables_of).map(|table| table.file_number).collect();
    let further = runs.iter().enumerate().map(|(number, run)| {
        let tables = run.readers().filter(|table| !known.contains(&table.identity().file_number));
        (number, FurtherTables(tables.cloned().collect()))
    });
    further.filter(|(_, tables)| tables.tables() > 0).collect()
}

/// An entry of a further run.
#[derive(Debug, Clone, Copy)]
pub(super) struct FurtherEntry<'a> {
    pub(super) key: &'a [u8],
    pub(super) trailer: Trailer,
    /// The new number of its run.
    pub(super) run: usize,
    /// Where the forks of the old view lead to.
    pub(super) leaf: Option<Leaf>,
}

/// An entry that was read ahead.
#[derive(Debug)]
struct Ahead {
    /// Where its key ends in `keys`.
    end: usize,
    trailer: Trailer,
    run: usize,
    leaf: Option<Leaf>,
}

/// Goes over the entries of the further runs.
pub(super) struct FurtherEntries<'a> {
    old: &'a SortedView,
    cursor: MergingCursor<RunCursor<FurtherTables>>,
    /// The new numbers of the runs.
    numbers: Vec<usize>,
    ahead: Vec<Ahead>,
    /// Their keys, one after the other.
    keys: Vec<u8>,
    /// Which of them is next, and where its key starts.
    next: usize,
    start: usize,
    /// The segment of the old view that the last of them belongs to.
    segment: Option<usize>,
}

impl<'a> FurtherEntries<'a> {
    /// At the first entry of what `runs` have and `old` does not.
    pub(super) fn new(old: &'a SortedView, runs: &[Arc<ViewRun>]) -> Result<Self> {
        let further = further_tables(old, runs);
        let numbers = further.iter().map(|(number, _)| *number).collect();
        // Where the others are, readers would soon have them read.
        let fill_cache = old.is_cached();
        let cursors = further.into_iter().map(|(_, tables)| RunCursor::new(tables, fill_cache)).collect();
        let mut cursor = MergingCursor::new(cursors);
        cursor.seek_to_first()?;
        let (ahead, keys) = (Vec::new(), Vec::new());
        let mut entries = Self { old, cursor, numbers, ahead, keys, next: 0, start: 0, segment: None };
        entries.read_ahead()?;
        Ok(entries)
    }

    /// The entry that is next.
    #[inline]
    pub(super) fn next(&self) -> Option<FurtherEntry<'_>> {
        let &Ahead { end, trailer, run, leaf, .. } = self.ahead.get(self.next)?;
        Some(FurtherEntry { key: self.keys.get(self.start..end)?, trailer, run, leaf })
    }

    /// Passes it.
    pub(super) fn pass(&mut self) -> Result<()> {
        self.start = self.ahead.get(self.next).map_or(0, |ahead| ahead.end);
        self.next += 1;
        if self.next >= self.ahead.len() { self.read_ahead() } else { Ok(()) }
    }

    fn read_ahead(&mut self) -> Result<()> {
        self.ahead.clear();
        self.keys.clear();
        (self.next, self.start) = (0, 0);
        while self.ahead.len() < TOGETHER
            && let Some(source) = self.cursor.current_source()
        {
            self.keys.extend_from_slice(self.cursor.key());
            let run = self.numbers.get(source).copied().ok_or_else(super::contradiction)?;
            let trailer = self.cursor.trailer();
            self.ahead.push(Ahead { end: self.keys.len(), trailer, run, leaf: None });
            self.cursor.next()?;
        }
        if self.old.remix().has_forks() {
            self.approach();
        }
        Ok(())
    }

    /// Brings all that were read ahead to where the forks lead, one step of each after the other.
    fn approach(&mut self) {
        let keys = self.ahead.iter().scan(0, |start, ahead| {
            let key = self.keys.get(std::mem::replace(start, ahead.end)..ahead.end);
            Some(key.unwrap_or_default())
        });
        let (mut segments, mut places) = ([None; TOGETHER], [None; TOGETHER]);
        for (key, segment) in keys.clone().zip(&mut segments) {
            self.segment = staged_seek::prefetch_segment(self.old, self.segment, key, MAX_SEQUENCE);
            *segment = self.segment;
        }
        for ((key, segment), place) in keys.zip(segments).zip(&mut places) {
            *place = segment.and_then(|segment| staged_seek::prefetch_block(self.old, segment, key));
        }
        for (ahead, place) in self.ahead.iter_mut().zip(places) {
            ahead.leaf = place.and_then(|place| staged_seek::ask_for_listed(self.old, place));
        }
        for leaf in self.ahead.iter().filter_map(|ahead| ahead.leaf) {
            staged_seek::ask_for_entry(self.old, leaf);
        }
    }
}
