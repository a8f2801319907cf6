//! A level of a tree through the sorted views of its partitions (REMIX §4).
//!
//! ```text
//! boundaries          g                 p
//! partition   |   0   |        1        |      2       |
//! loose       |       |  000031         |  000032      |    runs outside of the view, newest first
//! view        | 12 17 |  14 18 20       |              |    the merge order of these runs
//! ```
//!
//! Each partition has a view over its sorted runs. A flush adds runs to some partitions. Until their views are
//! rebuilt, these runs are loose: readers merge them with the view, so that a level is readable at any time. Rebuilds
//! may be deferred indefinitely (§4.3, at its end). A view is valid as long as all of its sstables are in the
//! partition and loose runs are newer than the sstables of the view that they overlap.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bolide_base::{Result, SequenceNumber, Trailer};
use bolide_table::ValueRef;

use super::selectors::MAX_RUNS;
use super::view::SortedView;
use crate::key_heads::KeyHeads;
use crate::version::{Partition, SortedRun, StoredView, TableHandle, Version};

/// A level with more than one sorted run, by partition.
pub struct ViewedLevel {
    level: usize,
    /// The indices of the level's runs in the version.
    runs: Range<usize>,
    /// The start keys of all partitions except the first.
    starts: Box<[Vec<u8>]>,
    heads: KeyHeads,
    partitions: Box<[Arc<ViewedPartition>]>,
    /// Whether some partition serves point reads through its view.
    serves_reads: bool,
}

/// A partition of a level: its view and the runs outside of it.
pub struct ViewedPartition {
    /// All runs, newest first.
    runs: Box<[Arc<SortedRun>]>,
    /// The runs outside of the view, newest first; each is newer than the sstables of the view that it overlaps.
    loose: Box<[Arc<SortedRun>]>,
    view: Option<Arc<StoredView>>,
    /// Without a view: another view with some of the runs, from which the next view is rebuilt.
    base: Option<Arc<StoredView>>,
    serves_reads: bool,
}

impl ViewedLevel {
    /// `level` of `version` with the views of `known` that are valid for it. Reuses the unchanged partitions of `before`.
    /// `None` if the level has fewer than two runs. Linear in the sstables and boundaries of the level.
    pub fn of(
        version: &Version,
        level: usize,
        known: &[Arc<StoredView>],
        before: Option<&Self>,
    ) -> Option<Arc<Self>> {
        let first = version.runs().partition_point(|run| run.level() < level);
        let count = version.level(level).len();
        if count < 2 {
            return None;
        }
        let owners = owners(known);
        let partitions: Box<[_]> = version
            .partitions(level)
            .iter()
            .map(|partition| {
                let runs = runs_of(version, level, partition);
                let same = before.and_then(|before| before.same_partition(partition.start(), &runs));
                same.unwrap_or_else(|| Arc::new(ViewedPartition::of(runs, &owners)))
            })
            .collect();
        let starts: Box<[Vec<u8>]> = version.boundaries(level).iter().cloned().collect();
        Some(Arc::new(Self {
            level,
            runs: first..first + count,
            heads: KeyHeads::new(starts.iter().map(Vec::as_slice)),
            starts,
            serves_reads: partitions.iter().any(|partition| partition.serves_reads),
            partitions,
        }))
    }

    /// The partition that starts at `start`, if it has exactly these runs and is not behind.
    fn same_partition(&self, start: Option<&[u8]>, runs: &[Arc<SortedRun>]) -> Option<Arc<ViewedPartition>> {
        let partition = self.partitions.get(start.map_or(0, |start| self.position(start)))?;
        let same = |(one, other): (&Arc<SortedRun>, &Arc<SortedRun>)| one.has_tables_of(other);
        let is_same = partition.runs.len() == runs.len()
            && !partition.is_behind()
            && partition.runs.iter().zip(runs).all(same);
        is_same.then(|| Arc::clone(partition))
    }

    /// The number of the level.
    pub fn level(&self) -> usize {
        self.level
    }

    /// The indices of the level's runs in the version.
    #[inline]
    pub fn runs(&self) -> Range<usize> {
        self.runs.clone()
    }

    /// The partitions in key order.
    pub fn partitions(&self) -> &[Arc<ViewedPartition>] {
        &self.partitions
    }

    /// The index of the partition of `key`.
    #[inline]
    pub fn position(&self, key: &[u8]) -> usize {
        self.heads
            .count_before(key, |index| self.starts.get(index).is_some_and(|start| start.as_slice() <= key))
    }

    /// Whether some partition serves point reads through its view.
    #[inline]
    pub fn serves_reads(&self) -> bool {
        self.serves_reads
    }

    /// The partition of `key`, if it serves point reads through its view.
    #[inline]
    pub fn serving(&self, key: &[u8]) -> Option<&Arc<ViewedPartition>> {
        self.partitions.get(self.position(key)).filter(|partition| partition.serves_reads)
    }
}

impl ViewedPartition {
    fn of(runs: Box<[Arc<SortedRun>]>, owners: &BTreeMap<u64, Vec<&Arc<StoredView>>>) -> Self {
        let best = if (2..=MAX_RUNS).contains(&runs.len()) { best_view(&runs, owners) } else { None };
        let valid = best.and_then(|view| Some((view, loose_beside(&runs, view)?)));
        let (view, loose) = match valid {
            Some((view, loose)) => (Some(Arc::clone(view)), loose),
            None => (None, runs.clone()),
        };
        let base = if view.is_none() { best.cloned() } else { None };
        let serves_reads = view.as_ref().is_some_and(|view| view.meta().serves_reads);
        Self { runs, loose, view, base, serves_reads }
    }

    /// All runs, newest first.
    pub fn runs(&self) -> &[Arc<SortedRun>] {
        &self.runs
    }

    /// The runs outside of the view, newest first.
    pub fn loose(&self) -> &[Arc<SortedRun>] {
        &self.loose
    }

    /// The view, if there is one. The first call may read its file. `None` if that fails: callers then read the runs
    /// one by one.
    #[inline]
    pub fn view(&self) -> Option<&Arc<SortedView>> {
        self.view.as_ref()?.view(&self.runs)
    }

    /// The stored view, if there is one.
    pub fn stored_view(&self) -> Option<&Arc<StoredView>> {
        self.view.as_ref()
    }

    /// The best view to rebuild the next one from.
    pub fn base(&self) -> Option<&Arc<StoredView>> {
        self.view.as_ref().or(self.base.as_ref())
    }

    /// Whether readers merge runs that a view could order.
    pub fn is_behind(&self) -> bool {
        let has_view = self.view.as_ref().is_some_and(|view| !view.has_failed());
        let is_short = !has_view && self.view.is_some() && self.runs.len() > 1;
        let merges = self.loose.len() + usize::from(has_view) > 1;
        (merges || is_short) && self.runs.len() <= MAX_RUNS
    }

    /// The number of entries of the loose runs, and of the view.
    pub fn entries(&self) -> (u64, u64) {
        let tables = self.loose.iter().flat_map(|run| run.tables());
        let loose = tables.map(|table| table.meta().entries).sum();
        (loose, self.view.as_ref().map_or(0, |view| view.entries()))
    }

    /// Prefetches what [`get`](Self::get) reads first of the view. No effect on results.
    #[inline]
    pub fn prefetch(&self, key: &[u8]) {
        if let Some(view) = self.stored_view().and_then(|view| view.loaded()) {
            view.prefetch(key);
        }
    }

    /// The newest version of `key` with a sequence number of at most `sequence`, with its value. Returns tombstones too.
    ///
    /// # Errors
    /// `Corruption` and `Io` from reading sstables.
    #[inline]
    pub fn get(&self, key: &[u8], sequence: SequenceNumber) -> Result<Option<(Trailer, ValueRef)>> {
        let view = self.view();
        for run in if view.is_some() { &self.loose } else { &self.runs } {
            if let Some(table) = run.find(key)
                && let Some(found) = table.reader()?.get(key, sequence)?
            {
                return Ok(Some(found));
            }
        }
        view.map_or(Ok(None), |view| view.get(key, sequence))
    }
}

/// The runs of `partition`, newest first, each with its sstables in the partition.
fn runs_of(version: &Version, level: usize, partition: &Partition<'_>) -> Box<[Arc<SortedRun>]> {
    let chunks = partition.tables().chunk_by(|one, other| one.0 == other.0);
    let run_of = |tables: &[(u64, &Arc<TableHandle>)]| {
        let &(id, _) = tables.first()?;
        // A run that is in one partition as a whole is shared with the version.
        let whole = version.run(level, id).filter(|run| run.tables().len() == tables.len()).cloned();
        whole.or_else(|| {
            let tables = tables.iter().map(|(_, table)| Arc::clone(table)).collect();
            SortedRun::new(level, id, tables).ok().map(Arc::new)
        })
    };
    chunks.filter_map(run_of).collect()
}

/// The views of `known` by the sstables that they contain.
fn owners(known: &[Arc<StoredView>]) -> BTreeMap<u64, Vec<&Arc<StoredView>>> {
    let mut owners: BTreeMap<u64, Vec<&Arc<StoredView>>> = BTreeMap::new();
    for view in known.iter().filter(|view| !view.has_failed()) {
        for &table in &view.meta().tables {
            owners.entry(table).or_default().push(view);
        }
    }
    owners
}

/// The view that contains the most entries of `runs`; on a tie, the one with the fewest other entries.
fn best_view<'v>(
    runs: &[Arc<SortedRun>],
    owners: &BTreeMap<u64, Vec<&'v Arc<StoredView>>>,
) -> Option<&'v Arc<StoredView>> {
    let mut shared: Vec<(u64, &'v Arc<StoredView>)> = Vec::new();
    for table in runs.iter().flat_map(|run| run.tables()) {
        for &view in owners.get(&table.meta().number).into_iter().flatten() {
            match shared.iter_mut().find(|(_, other)| Arc::ptr_eq(other, view)) {
                Some((entries, _)) => *entries += table.meta().entries,
                None => shared.push((table.meta().entries, view)),
            }
        }
    }
    let order = |&(entries, view): &(u64, &'v Arc<StoredView>)| {
        (entries, std::cmp::Reverse(view.entries().saturating_sub(entries)))
    };
    shared.into_iter().max_by_key(order).map(|(_, view)| view)
}

/// The runs and parts of runs of `runs` outside of `view`; `None` if the view is not valid with them.
fn loose_beside(runs: &[Arc<SortedRun>], view: &StoredView) -> Option<Box<[Arc<SortedRun>]>> {
    let numbers = &view.meta().tables;
    let is_known = |table: &Arc<TableHandle>| numbers.contains(&table.meta().number);
    let (mut loose, mut known) = (Vec::new(), Vec::new());
    for run in runs {
        let (inside, outside): (Vec<_>, Vec<_>) = run.tables().iter().cloned().partition(is_known);
        known.extend(inside.into_iter().map(|table| (run.id(), table)));
        if outside.len() == run.tables().len() {
            loose.push(Arc::clone(run));
        } else if !outside.is_empty() {
            loose.push(Arc::new(SortedRun::new(run.level(), run.id(), outside).ok()?));
        }
    }
    let is_newer = |run: &Arc<SortedRun>| {
        let overlaps =
            |table: &Arc<TableHandle>| run.tables().iter().any(|loose| loose.meta().overlaps(table.meta()));
        known.iter().all(|(id, table)| *id < run.id() || !overlaps(table))
    };
    let is_valid = known.len() == numbers.len() && loose.iter().all(is_newer);
    is_valid.then(|| loose.into())
}

impl fmt::Debug for ViewedLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewedLevel")
            .field("level", &self.level)
            .field("partitions", &self.partitions)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ViewedPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewedPartition")
            .field("loose", &self.loose)
            .field("view", &self.view)
            .finish_non_exhaustive()
    }
}
