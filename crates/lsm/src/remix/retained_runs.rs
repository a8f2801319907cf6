//! The runs of an older view, as the entries that a rebuild has passed leave them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::run::ViewRun;
use super::selectors::{RUN_BITS, TOMBSTONE};
use super::{TableName, tables_of};

/// Where the entries of each old run go.
pub(super) struct KeptRuns {
    runs: Vec<KeptRun>,
    /// How many entries were passed.
    passed: u64,
    /// Before so many are passed no sstable ends, and none of the current ones is left out.
    steady_until: u64,
    /// How many were passed when that was looked at.
    looked_at: u64,
    /// The new numbers of the runs until then.
    numbers: [u8; RUN_BITS as usize + 1],
}

/// After so many entries it is looked again whether sstables end soon.
const LOOK_EVERY: u64 = 64;

/// One run.
struct KeptRun {
    /// For each sstable that is not passed, the last one first: its entries, and the new number of its run; `None` where it
    /// is left out.
    tables: Vec<(u64, Option<usize>)>,
    /// Entries of the current sstable, which is the last of `tables`, that are not passed.
    left: u64,
}

impl KeptRuns {
    /// `old`, of which `new` are the runs that there are from now on. What they do not have is left out.
    pub(super) fn new(old: &[Arc<ViewRun>], new: &[Arc<ViewRun>]) -> Self {
        let places = new.iter().enumerate().flat_map(|(number, run)| {
            tables_of(run).into_iter().map(move |table| (table.file_number, (table, number)))
        });
        let places = places.collect();
        Self {
            runs: old.iter().map(|run| KeptRun::new(run, &places)).collect(),
            passed: 0,
            steady_until: 0,
            looked_at: 0,
            numbers: [0; RUN_BITS as usize + 1],
        }
    }

    /// True if some of them are in the new view.
    pub(super) fn is_any(&self) -> bool {
        self.runs.iter().any(|run| run.tables.iter().any(|(_, number)| number.is_some()))
    }

    /// The new number of the run that the next entry of run number `run` is in; `None` if it is left out.
    #[inline]
    pub(super) fn number(&self, run: usize) -> Option<usize> {
        self.runs.get(run).and_then(|run| run.tables.last()).and_then(|(_, number)| *number)
    }

    /// Passes the next entry of run number `run`.
    #[inline]
    pub(super) fn pass(&mut self, run: usize) {
        self.passed += 1;
        if let Some(run) = self.runs.get_mut(run) {
            run.pass();
        }
    }

    /// Whether the next `len` entries, whatever runs they are in, can be passed together.
    #[inline]
    pub(super) fn is_steady(&mut self, len: usize) -> bool {
        let until = self.passed + len as u64;
        if until > self.steady_until && (self.passed >= self.looked_at + LOOK_EVERY || self.passed == 0) {
            self.look();
        }
        until <= self.steady_until
    }

    fn look(&mut self) {
        self.looked_at = self.passed;
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
        self.steady_until = self.passed.saturating_add(steady);
    }

    /// Passes the entries with these selectors, for which [`is_steady`](Self::is_steady) was answered with true. Puts the new selectors, of
    /// newest versions, into `new`.
    #[inline]
    pub(super) fn pass_all(&mut self, selectors: &[u8], new: &mut [u8]) {
        self.passed += selectors.len() as u64;
        for (selector, new) in selectors.iter().zip(new) {
            let number = usize::from(selector & RUN_BITS);
            if let Some(run) = self.runs.get_mut(number) {
                run.left = run.left.saturating_sub(1);
            }
            *new = self.numbers.get(number).copied().unwrap_or(0) | selector & TOMBSTONE;
        }
    }
}

impl KeptRun {
    /// `places` says which of the new runs has an sstable.
    fn new(run: &Arc<ViewRun>, places: &BTreeMap<u64, (TableName, usize)>) -> Self {
        let number = |table: &TableName| {
            places.get(&table.file_number).filter(|(new, _)| new == table).map(|(_, number)| *number)
        };
        let names = tables_of(run).into_iter().filter(|table| table.entries > 0);
        let mut tables: Vec<_> = names.map(|table| (table.entries, number(&table))).collect();
        tables.reverse();
        Self { left: tables.last().map_or(0, |(entries, _)| *entries), tables }
    }

    /// Passes an entry.
    #[inline]
    fn pass(&mut self) {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.tables.pop();
            self.left = self.tables.last().map_or(0, |(entries, _)| *entries);
        }
    }
}
