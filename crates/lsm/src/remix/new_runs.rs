//! The entries of the new runs of a rebuild, read in batches.
//!
//! The search for a merge point waits for four or five dependent memory accesses, and neighbouring keys have distant
//! merge points. So the searches of a batch of keys run stage by stage together; see [`super::staged_seek`].

use std::collections::BTreeSet;
use std::sync::Arc;

use bolide_base::{MAX_SEQUENCE, Result, Trailer};
use bolide_table::{InternalCursor, TableCursor, TableReader};

use super::run::ViewRun;
use super::search::Leaf;
use super::staged_seek;
use super::tables_of;
use super::view::SortedView;
use crate::cursor::{MergingCursor, RunCursor, RunTables};

/// The number of entries of a batch.
const BATCH_ENTRIES: usize = 16;

/// The sstables of a run that are not in the old view.
struct NewRunTables(Vec<Arc<TableReader>>);

impl RunTables for NewRunTables {
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

/// The sstables of `runs` that are not in `old`, by the number of their run.
fn new_run_tables(old: &SortedView, runs: &[Arc<ViewRun>]) -> Vec<(usize, NewRunTables)> {
    let known: BTreeSet<u64> = old.runs().iter().flat_map(tables_of).map(|table| table.file_number).collect();
    let tables = runs.iter().enumerate().map(|(number, run)| {
        let tables = run.readers().filter(|table| !known.contains(&table.identity().file_number));
        (number, NewRunTables(tables.cloned().collect()))
    });
    tables.filter(|(_, tables)| tables.tables() > 0).collect()
}

/// An entry of a new run.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewRunEntry<'a> {
    pub(super) key: &'a [u8],
    pub(super) trailer: Trailer,
    /// The number of its run in the new view.
    pub(super) run: usize,
    /// The leaf for its key in the old view, if that has forks.
    pub(super) leaf: Option<Leaf>,
}

/// An entry of the current batch.
#[derive(Debug)]
struct BatchEntry {
    /// The end of its key in `keys`.
    end: usize,
    trailer: Trailer,
    run: usize,
    leaf: Option<Leaf>,
}

/// Iterates over the entries of the new runs in tree order.
pub(super) struct NewRunEntries<'a> {
    old: &'a SortedView,
    cursor: MergingCursor<RunCursor<NewRunTables>>,
    /// The numbers of the runs in the new view.
    numbers: Vec<usize>,
    batch: Vec<BatchEntry>,
    /// The concatenated keys of the batch.
    keys: Vec<u8>,
    /// The index of the next entry in the batch.
    next: usize,
    /// The start of its key in `keys`.
    start: usize,
    /// The segment of the old view for the last entry of the previous batch.
    segment: Option<usize>,
}

impl<'a> NewRunEntries<'a> {
    /// Starts at the first entry of the sstables that are in `runs` and not in `old`.
    pub(super) fn new(old: &'a SortedView, runs: &[Arc<ViewRun>]) -> Result<Self> {
        let tables = new_run_tables(old, runs);
        let numbers = tables.iter().map(|(number, _)| *number).collect();
        // If the old sstables are cached, readers will soon read the new ones too.
        let fill_cache = old.is_cached();
        let cursors = tables.into_iter().map(|(_, tables)| RunCursor::new(tables, fill_cache)).collect();
        let mut cursor = MergingCursor::new(cursors);
        cursor.seek_to_first()?;
        let (batch, keys) = (Vec::new(), Vec::new());
        let mut entries = Self { old, cursor, numbers, batch, keys, next: 0, start: 0, segment: None };
        entries.read_batch()?;
        Ok(entries)
    }

    /// The next entry.
    #[inline]
    pub(super) fn next(&self) -> Option<NewRunEntry<'_>> {
        let &BatchEntry { end, trailer, run, leaf, .. } = self.batch.get(self.next)?;
        Some(NewRunEntry { key: self.keys.get(self.start..end)?, trailer, run, leaf })
    }

    /// Moves past the next entry.
    pub(super) fn advance(&mut self) -> Result<()> {
        self.start = self.batch.get(self.next).map_or(0, |batch| batch.end);
        self.next += 1;
        if self.next >= self.batch.len() { self.read_batch() } else { Ok(()) }
    }

    fn read_batch(&mut self) -> Result<()> {
        self.batch.clear();
        self.keys.clear();
        (self.next, self.start) = (0, 0);
        while self.batch.len() < BATCH_ENTRIES
            && let Some(source) = self.cursor.current_source()
        {
            self.keys.extend_from_slice(self.cursor.key());
            let run = self.numbers.get(source).copied().ok_or_else(super::contradiction)?;
            let trailer = self.cursor.trailer();
            self.batch.push(BatchEntry { end: self.keys.len(), trailer, run, leaf: None });
            self.cursor.next()?;
        }
        if self.old.remix().has_forks() {
            self.prefetch_leaves();
        }
        Ok(())
    }

    /// Finds and prefetches the leaves of all entries of the batch, stage by stage.
    fn prefetch_leaves(&mut self) {
        let keys = self.batch.iter().scan(0, |start, batch| {
            let key = self.keys.get(std::mem::replace(start, batch.end)..batch.end);
            Some(key.unwrap_or_default())
        });
        let (mut segments, mut positions) = ([None; BATCH_ENTRIES], [None; BATCH_ENTRIES]);
        for (key, segment) in keys.clone().zip(&mut segments) {
            self.segment = staged_seek::prefetch_segment(self.old, self.segment, key, MAX_SEQUENCE);
            *segment = self.segment;
        }
        for ((key, segment), position) in keys.zip(segments).zip(&mut positions) {
            *position = segment.and_then(|segment| staged_seek::prefetch_block(self.old, segment, key));
        }
        for (batch, position) in self.batch.iter_mut().zip(positions) {
            batch.leaf = position.and_then(|position| staged_seek::prefetch_listed(self.old, position));
        }
        for leaf in self.batch.iter().filter_map(|batch| batch.leaf) {
            staged_seek::prefetch_entry(self.old, leaf);
        }
    }
}
