//! The runs of the older view in a rebuild, with the entries that remain.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::run::ViewRun;
use super::selectors::{RUN_BITS, TOMBSTONE};
use super::{TableName, tables_of};

/// The mapping of the old runs to the new runs, by sstable.
pub(super) struct RetainedRuns {
    runs: Vec<RetainedRun>,
    /// The number of entries consumed.
    consumed: u64,
    /// Until this number of consumed entries, no sstable ends and no current sstable is dropped.
    steady_until: u64,
    /// The number of consumed entries when `steady_until` was computed.
    computed_at: u64,
    /// The numbers in the new view of the runs' current sstables, valid until `steady_until`.
    numbers: [u8; RUN_BITS as usize + 1],
}

/// The number of entries after which `steady_until` is recomputed.
const RECOMPUTE_INTERVAL: u64 = 64;

/// An old run.
struct RetainedRun {
    /// The sstables that are not consumed, the last one first: the number of entries, and the number of the run in the new
    /// view; `None` if the sstable is dropped.
    tables: Vec<(u64, Option<usize>)>,
    /// The remaining entries of the current sstable, which is the last of `tables`.
    left: u64,
}

impl RetainedRuns {
    /// The runs `old`, of which the sstables in `new` are retained and the others are dropped.
    pub(super) fn new(old: &[Arc<ViewRun>], new: &[Arc<ViewRun>]) -> Self {
        let new_runs = new.iter().enumerate().flat_map(|(number, run)| {
            tables_of(run).into_iter().map(move |table| (table.file_number, (table, number)))
        });
        let new_runs = new_runs.collect();
        Self {
            runs: old.iter().map(|run| RetainedRun::new(run, &new_runs)).collect(),
            consumed: 0,
            steady_until: 0,
            computed_at: 0,
            numbers: [0; RUN_BITS as usize + 1],
        }
    }

    /// Whether any sstable is retained.
    pub(super) fn retains_any(&self) -> bool {
        self.runs.iter().any(|run| run.tables.iter().any(|(_, number)| number.is_some()))
    }

    /// The run in the new view of the next entry of old run number `run`; `None` if the entry is dropped.
    #[inline]
    pub(super) fn number(&self, run: usize) -> Option<usize> {
        self.runs.get(run).and_then(|run| run.tables.last()).and_then(|(_, number)| *number)
    }

    /// Consumes the next entry of run number `run`.
    #[inline]
    pub(super) fn consume(&mut self, run: usize) {
        self.consumed += 1;
        if let Some(run) = self.runs.get_mut(run) {
            run.consume();
        }
    }

    /// Whether the next `len` entries, of any runs, can be consumed together.
    #[inline]
    pub(super) fn is_steady(&mut self, len: usize) -> bool {
        let until = self.consumed + len as u64;
        if until > self.steady_until
            && (self.consumed >= self.computed_at + RECOMPUTE_INTERVAL || self.consumed == 0)
        {
            self.compute_steady();
        }
        until <= self.steady_until
    }

    fn compute_steady(&mut self) {
        self.computed_at = self.consumed;
        let mut steady = u64::MAX;
        for (run, new) in self.runs.iter().zip(&mut self.numbers) {
            match run.tables.last() {
                Some((_, Some(number))) => {
                    *new = *number as u8;
                    steady = steady.min(run.left.saturating_sub(1));
                }
                Some((_, None)) => steady = 0,
                None => {}
            }
        }
        self.steady_until = self.consumed.saturating_add(steady);
    }

    /// Consumes the entries with these selectors; [`is_steady`](Self::is_steady) must have returned true for their number.
    /// Writes the new selectors, for newest versions, to `new`.
    #[inline]
    pub(super) fn consume_all(&mut self, selectors: &[u8], new: &mut [u8]) {
        self.consumed += selectors.len() as u64;
        for (selector, new) in selectors.iter().zip(new) {
            let number = usize::from(selector & RUN_BITS);
            if let Some(run) = self.runs.get_mut(number) {
                run.left = run.left.saturating_sub(1);
            }
            *new = self.numbers.get(number).copied().unwrap_or(0) | selector & TOMBSTONE;
        }
    }
}

impl RetainedRun {
    /// `new_runs` maps the sstables by file number to the new runs.
    fn new(run: &Arc<ViewRun>, new_runs: &BTreeMap<u64, (TableName, usize)>) -> Self {
        let number = |table: &TableName| {
            new_runs.get(&table.file_number).filter(|(new, _)| new == table).map(|(_, number)| *number)
        };
        let names = tables_of(run).into_iter().filter(|table| table.entries > 0);
        let mut tables: Vec<_> = names.map(|table| (table.entries, number(&table))).collect();
        tables.reverse();
        Self { left: tables.last().map_or(0, |(entries, _)| *entries), tables }
    }

    /// Consumes an entry.
    #[inline]
    fn consume(&mut self) {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.tables.pop();
            self.left = self.tables.last().map_or(0, |(entries, _)| *entries);
        }
    }
}
