//! A REMIX from an older one and further runs (REMIX §4.3).
//!
//! The runs that the older view has are one sorted sequence already. For each key of the further runs the merge
//! point in it is found as every seek finds its place: by the anchors, then in one segment, reading a key or a few.
//! The entries between two merge points are taken over from the old selectors unread. Where a segment of the new
//! REMIX starts with one of them, its key is an old anchor or is read: one key for each segment at most.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bolide_base::{MAX_SEQUENCE, Result, SequenceNumber};
use bolide_table::{InternalCursor, TableCursor, TableReader};

use super::forks::absolute;
use super::run::ViewRun;
use super::search::{LastBlocks, Place};
use super::segmenter::{Fork, Key, Segmenter};
use super::segments::tag_of;
use super::selectors::{OLD, RUN_BITS, TOMBSTONE};
use super::view::SortedView;
use super::{Remix, RemixOptions, TableName, contradiction, tables_of};
use crate::cursor::{MergingCursor, Run, RunCursor};

/// What a rebuild cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RebuildCost {
    /// Keys of the further runs: as many merge points were searched.
    pub merge_points: u64,
    /// Entries that were taken over without being read.
    pub taken_over: u64,
    /// Keys that were read to become anchors.
    pub anchors_read: u64,
}

impl Remix {
    /// The REMIX of `runs`, the newest first, with the help of `old`. Sstables that `old` orders may stand in other runs
    /// now, together with others; those that are not among `runs` are left out. The further sstables are read
    /// whole, past the cache; of the others some blocks, as told above.
    ///
    /// Costs about as much as [`build`](Self::build) once the further sstables have as many entries as the others. Where
    /// tags or forks are wanted that `old` does not have, everything is read.
    ///
    /// # Errors
    /// Those of [`build`](Self::build).
    pub fn rebuild(
        old: &SortedView,
        runs: &[Arc<ViewRun>],
        options: &RemixOptions,
    ) -> Result<(Self, RebuildCost)> {
        let places = runs.iter().enumerate().flat_map(|(number, run)| {
            tables_of(run).into_iter().map(move |table| (table.file_number, (table, number)))
        });
        let places = places.collect();
        let kept: Vec<KeptRun> = old.runs().iter().map(|run| KeptRun::new(run, &places)).collect();
        let lacks = options.tags && !old.remix().has_tags() || options.forks && !old.remix().has_forks();
        if lacks && kept.iter().any(KeptRun::is_any) {
            return Ok((Self::build(runs, options)?, RebuildCost::default()));
        }
        let shape = options.shape(runs)?;
        let further: Vec<(usize, FurtherTables)> = further_tables(old, runs);
        let numbers = further.iter().map(|(number, _)| *number).collect();
        let cursors = further.into_iter().map(|(_, tables)| RunCursor::new(tables, false)).collect();
        let mut rebuild = Rebuild {
            old,
            kept,
            tags: shape.tags,
            segmenter: Segmenter::new(runs, shape),
            blocks: LastBlocks::new(old.runs()),
            at: Place { segment: 0, index: 0 },
            further: MergingCursor::new(cursors),
            numbers,
            cost: RebuildCost::default(),
        };
        rebuild.run()?;
        let (remix, anchors_read) = rebuild.segmenter.finish()?;
        Ok((remix, RebuildCost { anchors_read, ..rebuild.cost }))
    }
}

/// A run of the old view, as the entries that were passed leave it.
struct KeptRun {
    /// For each sstable that is not passed, the last one first: its entries, and the new number of its run; `None` where it
    /// is left out.
    tables: Vec<(u64, Option<usize>)>,
    /// Entries of the current sstable, which is the last of `tables`, that are not passed.
    left: u64,
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

    /// True if some of it is in the new view.
    fn is_any(&self) -> bool {
        self.tables.iter().any(|(_, number)| number.is_some())
    }

    /// The new number of the run that the next entry is in.
    #[inline]
    fn number(&self) -> Option<usize> {
        self.tables.last().and_then(|(_, number)| *number)
    }

    /// Passes an entry.
    #[inline]
    fn step(&mut self) {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.tables.pop();
            self.left = self.tables.last().map_or(0, |(entries, _)| *entries);
        }
    }
}

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

struct Rebuild<'a> {
    old: &'a SortedView,
    /// Where the entries of each old run go.
    kept: Vec<KeptRun>,
    tags: bool,
    segmenter: Segmenter,
    /// Blocks of the old runs.
    blocks: LastBlocks<'a>,
    /// The first old entry that was not taken over yet; always the first version of a key.
    at: Place,
    further: MergingCursor<RunCursor<FurtherTables>>,
    /// The new numbers of the further runs.
    numbers: Vec<usize>,
    cost: RebuildCost,
}

impl Rebuild<'_> {
    fn run(&mut self) -> Result<()> {
        self.further.seek_to_first()?;
        let mut key = Vec::new();
        while self.further.valid() {
            key.clear();
            key.extend_from_slice(self.further.key());
            let (point, _) =
                self.old.remix().locate(self.old.runs(), &key, MAX_SEQUENCE, &mut self.blocks)?;
            self.take_over(point)?;
            self.cost.merge_points += 1;
            let tag = if self.tags { tag_of(&key) } else { 0 };
            self.segmenter.start_key(Key::Known(&key), tag, Fork::Compared)?;
            self.merge_versions(&key)?;
        }
        self.take_over(Place { segment: self.old.remix().segments(), index: 0 })
    }

    /// The entry at `at`: its old run and selector.
    fn selector(&self) -> Option<(usize, u8)> {
        let segment = self.old.remix().segments.get(self.at.segment);
        if self.at.index >= segment.entries() {
            return None;
        }
        let &selector = segment.selectors().get(self.at.index)?;
        Some((usize::from(selector & RUN_BITS), selector))
    }

    fn step(&mut self) {
        if let Some((run, _)) = self.selector()
            && let Some(kept) = self.kept.get_mut(run)
        {
            kept.step();
        }
        self.at.index += 1;
        if self.at.index >= self.old.remix().segments.get(self.at.segment).entries() {
            self.at = Place { segment: self.at.segment + 1, index: 0 };
        }
    }

    /// Takes over the entries up to `end`.
    fn take_over(&mut self, end: Place) -> Result<()> {
        // Of the current key, and of the one before in the old view: some version was taken over.
        let (mut started, mut follows) = (false, false);
        while self.at != end
            && let Some((run, selector)) = self.selector()
        {
            if selector & OLD == 0 {
                follows = std::mem::replace(&mut started, false);
            }
            if let Some(number) = self.kept.get(run).and_then(KeptRun::number) {
                if !started {
                    self.start_old_key(follows)?;
                    started = true;
                }
                self.segmenter.push(number, selector & TOMBSTONE != 0);
                self.cost.taken_over += 1;
            }
            self.step();
        }
        Ok(())
    }

    /// Starts the key that the old entry at `at` is a version of. `follows`: the key before it in the old view is the one
    /// before it in the new one.
    fn start_old_key(&mut self, follows: bool) -> Result<()> {
        let old = self.old.remix();
        let tags = old.segments.get(self.at.segment).tags();
        let tag = tags.get(self.at.index).copied().unwrap_or(0);
        let anchor = (self.at.index == 0).then(|| old.anchors.key(self.at.segment));
        let key = anchor.as_deref().map_or(Key::Unread, Key::Known);
        let forks = old.segments.get(self.at.segment).forks().filter(|_| follows);
        let fork = forks.and_then(|(forks, base)| absolute(forks, base, self.at.index));
        self.segmenter.start_key(key, tag, fork.map_or(Fork::Compared, Fork::Known))
    }

    /// Merges the versions of `key` in the further runs with those, if any, that start at `at`.
    fn merge_versions(&mut self, key: &[u8]) -> Result<()> {
        let mut first = true;
        while let Some((number, sequence, tombstone)) = self.old_version(key, first)? {
            first = false;
            while let Some((further, newer)) = self.further_version(key)
                && newer.cmp(&sequence).then(number.cmp(&further)) == Ordering::Greater
            {
                self.push_further(further)?;
            }
            self.segmenter.push(number, tombstone);
            self.step();
        }
        while let Some((further, _)) = self.further_version(key) {
            self.push_further(further)?;
        }
        Ok(())
    }

    /// The kept version of `key` at `at` or behind: its new run, its sequence number, whether it is a tombstone.
    /// `first`: nobody knows yet whether the entry at `at` is one of that key.
    fn old_version(&mut self, key: &[u8], first: bool) -> Result<Option<(usize, SequenceNumber, bool)>> {
        let mut unknown = first;
        while let Some((run, selector)) = self.selector() {
            if !unknown && selector & OLD == 0 {
                return Ok(None);
            }
            let kept = self.kept.get(run).and_then(KeptRun::number);
            if unknown || kept.is_some() {
                let source = self.old.runs().get(run).ok_or_else(contradiction)?;
                let segment = self.old.remix().segments.get(self.at.segment);
                let position = segment.position(source, run, self.at.index);
                let block = self.blocks.block(run, position.block)?;
                let entry = block.key(position.entry as usize);
                let (found, trailer) = entry.ok_or_else(|| source.damaged(position.block))?;
                if found != key {
                    return Ok(None);
                }
                if let Some(number) = kept {
                    return Ok(Some((number, trailer.sequence(), selector & TOMBSTONE != 0)));
                }
            }
            unknown = false;
            self.step();
        }
        Ok(None)
    }

    /// The next entry of the further runs if it is one of `key`: its run and its sequence number.
    fn further_version(&self, key: &[u8]) -> Option<(usize, SequenceNumber)> {
        let source = self.further.current_source()?;
        let number = *self.numbers.get(source)?;
        (self.further.key() == key).then(|| (number, self.further.trailer().sequence()))
    }

    fn push_further(&mut self, number: usize) -> Result<()> {
        self.segmenter.push(number, self.further.trailer().is_delete());
        self.further.next()
    }
}
