//! Flushes of the partitioned layout: full memtables go straight into partitions (REMIX §4.2).
//!
//! # Algorithm
//! 1. The new entries of each partition are counted, and a pure plan says what becomes of them: nothing, an abort, or a
//!    minor, major or split compaction; see [`partitioned`].
//! 2. Each partition that is written to is a task. The thread that flushes takes one after the other, and so does every idle one.
//! 3. Entries of aborted partitions are kept back; see `retained`.
//! 4. One edit installs all of it, with the floor of the log. When readers see it: `shown`.
//!
//! # Why it is in order
//! One flush of a tree runs at a time, and no compaction of the tree beside it, so partitions are what they were when it was
//! planned. All levels above the partitions are empty: what is flushed is newer than everything in sstables.
//! It takes all memtables but the writable one, those that were kept back before included.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::{Error, MAX_SEQUENCE, Result, SequenceNumber};
use parking_lot::{Condvar, Mutex};

use super::StoreInner;
use super::compact::Merge;
use super::logged_memtable::LoggedMemtable;
use super::deferred_publication::FlushedMemtables;
use super::table_output::{FinishedOutput, TableOutput};
use super::tree::{Tree, TreeState};
use crate::compaction::partitioned::{
    self, Action, MAX_RETAINED_PERCENT, NewEntries, PartitionLoad, StackedTable, TABLES_PER_PARTITION,
};
use crate::compaction::{CompactionFilter, MergeOperator, MergingRetention, Retention, TableShape};
use crate::cursor::{ComponentCursor, InternalCursor, MergingCursor};
use crate::file_name::FileName;
use crate::memtable::Visibility;
use crate::range_tombstones::RangeTombstones;
use crate::version::{LAST_LEVEL, Partition, TableMeta, Version, VersionEdit, boundaries_between};

/// What an entry takes in the log beside its key and value, at most.
const ENTRY_BYTES: u64 = 32;

/// A range of keys.
pub(super) type KeyRange = (Option<Vec<u8>>, Option<Vec<u8>>);

/// What one partition is to get.
#[derive(Debug, Default)]
struct Counted {
    bytes: u64,
    entries: u64,
    smallest: Vec<u8>,
    largest: Vec<u8>,
}

/// One partition that is written to.
#[derive(Debug)]
struct Task {
    range: KeyRange,
    inputs: BTreeSet<u64>,
    /// Where outputs end besides: where sstables begin that stay.
    cuts: Vec<Vec<u8>>,
    splits: bool,
    /// True if all sstables of the partition are inputs.
    bottom: bool,
}

/// What came of a task.
struct Written {
    finished: FinishedOutput,
    bytes_read: u64,
    dropped: u64,
}

/// The tasks of one flush, which several threads share.
pub(super) struct PartitionFlush {
    tree: Arc<Tree>,
    state: Arc<TreeState>,
    flushed: Vec<Arc<LoggedMemtable>>,
    in_use: Vec<SequenceNumber>,
    /// Which versions of the memtables are looked at.
    shown: Visibility,
    ranges: Arc<RangeTombstones>,
    filter: Option<Arc<dyn CompactionFilter>>,
    operator: Option<Arc<dyn MergeOperator>>,
    tasks: Vec<Task>,
    progress: Mutex<Progress>,
    done: Condvar,
}

#[derive(Default)]
struct Progress {
    next: usize,
    running: usize,
    failed: bool,
    written: Vec<(usize, Result<Written>)>,
}

/// Counts a task as ended, also where it panics.
struct Running<'r>(&'r PartitionFlush);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.progress.lock().running -= 1;
        self.0.done.notify_all();
    }
}

impl PartitionFlush {
    /// True while there is a task that nobody has taken.
    pub(super) fn has_tasks(&self) -> bool {
        let progress = self.progress.lock();
        !progress.failed && progress.next < self.tasks.len()
    }

    fn take(&self) -> Option<(usize, &Task)> {
        let mut progress = self.progress.lock();
        let position = progress.next;
        let task = self.tasks.get(position).filter(|_| !progress.failed)?;
        progress.next += 1;
        progress.running += 1;
        Some((position, task))
    }

    /// Does tasks until none is left.
    pub(super) fn work(&self, store: &StoreInner) {
        while let Some((position, task)) = self.take() {
            let running = Running(self);
            let written = store.write_partition(self, task);
            let mut progress = self.progress.lock();
            progress.failed |= written.is_err();
            progress.written.push((position, written));
            drop(progress);
            drop(running);
        }
    }

    /// Waits for tasks that others took. What was written, in the order of the tasks.
    fn finish(&self) -> Vec<Result<Written>> {
        let mut progress = self.progress.lock();
        while progress.running > 0 {
            self.done.wait(&mut progress);
        }
        let mut written = std::mem::take(&mut progress.written);
        written.sort_by_key(|(position, _)| *position);
        if written.len() < self.tasks.len() && !progress.failed {
            return vec![Err(Error::internal("a partition was not written"))];
        }
        written.into_iter().map(|(_, written)| written).collect()
    }
}

impl StoreInner {
    /// Writes the full memtables of `tree` into its partitions and installs that. Entries may be kept back, unless
    /// `flush_all`.
    pub(super) fn flush_into_partitions(&self, tree: &Arc<Tree>, flush_all: bool) -> Result<()> {
        let state = tree.state();
        let flushed = state.immutables.clone();
        if flushed.is_empty() {
            return Ok(());
        }
        self.check_writable()?;
        let in_use = self.snapshots.in_use();
        let shown = tree.shown(&flushed, &in_use);
        let partitions = state.version.partitions(LAST_LEVEL);
        let counted = count(&flushed, shown, &partitions)?;
        let has_operands = flushed.iter().any(|logged| logged.memtable.has_operands());
        let may_keep = if flush_all || has_operands { 0 } else { self.may_keep_back(tree) };
        let target = tree.options().target_file_bytes;
        let actions =
            partitioned::plan(&loads(&partitions, &counted), target, self.options.partition_tables, may_keep);
        let range = |partition: &Partition<'_>| {
            (partition.start().map(<[u8]>::to_vec), partition.end().map(<[u8]>::to_vec))
        };
        let planned = || partitions.iter().zip(&actions);
        let tasks: Vec<Task> =
            planned().filter_map(|(partition, action)| task(partition, action, range(partition))).collect();
        let kept_back: Vec<KeyRange> =
            planned().filter(|(_, action)| **action == Action::Abort).map(|(one, _)| range(one)).collect();
        drop(partitions);
        // In this order: no range tombstone at or below the first number in use is missing then.
        let ranges = tree.state().merged_range_tombstones()?;
        let round = self.share(PartitionFlush {
            tree: tree.clone(),
            state,
            flushed,
            in_use,
            shown,
            ranges,
            filter: tree.filter.read().clone(),
            operator: tree.merge_operator.read().clone(),
            tasks,
            progress: Mutex::default(),
            done: Condvar::new(),
        });
        let written = self.gather(round.finish())?;
        let mut numbers: Vec<u64> = Vec::new();
        for one in &written {
            numbers.extend(one.finished.tables.iter().map(|table| table.number));
        }
        let retained = self.install_partitions(&round, &written, &kept_back, &numbers)?;
        let flushed = FlushedMemtables { memtables: &round.flushed, retained: retained.as_ref() };
        let shown = self.publish_flush(tree, flushed);
        self.count_round(tree, &round, &actions, written);
        shown
    }

    /// Bytes that flushes of `tree` may keep back beside what is kept back of other trees.
    fn may_keep_back(&self, tree: &Arc<Tree>) -> u64 {
        let all = self.options.memtable_bytes / 100 * MAX_RETAINED_PERCENT;
        let trees = self.trees.load();
        let others = trees.values().filter(|other| other.id != tree.id);
        let kept: u64 = others.map(|other| other.state_guard().retained_bytes()).sum();
        (all as u64).saturating_sub(kept)
    }

    /// Does the tasks, with the help of idle threads.
    fn share(&self, round: PartitionFlush) -> Arc<PartitionFlush> {
        let round = Arc::new(round);
        let is_shared = round.tasks.len() > 1 && self.options.background_threads > 1;
        if is_shared {
            self.work.lock().partition_flushes.push(round.clone());
            self.work_signal.notify_all();
        }
        round.work(self);
        if is_shared {
            self.work.lock().partition_flushes.retain(|other| !Arc::ptr_eq(other, &round));
        }
        round
    }

    /// All that was written; if a task failed, its error, and what the others wrote is given up.
    fn gather(&self, results: Vec<Result<Written>>) -> Result<Vec<Written>> {
        let (mut written, mut failure) = (Vec::with_capacity(results.len()), None);
        for result in results {
            match result {
                Ok(one) => written.push(one),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        let Some(error) = failure else { return Ok(written) };
        for table in written.iter().flat_map(|one| &one.finished.tables) {
            self.table_files.obsolete.push(FileName::Table(table.number));
        }
        Err(error)
    }

    fn write_partition(&self, round: &PartitionFlush, task: &Task) -> Result<Written> {
        let tree = &round.tree;
        let (mut sources, bytes_read) = round.state.input_sources(&task.inputs)?;
        let cursor = |logged: &Arc<LoggedMemtable>| ComponentCursor::from(logged.memtable.cursor(round.shown));
        sources.splice(0..0, round.flushed.iter().map(cursor));
        let is_flush = task.inputs.is_empty();
        let retention = Retention::new(round.in_use.clone(), round.ranges.clone(), task.bottom);
        let retention = MergingRetention::new(retention, round.operator.clone(), is_flush);
        // What the layer above would drop is dropped only where sstables are rewritten.
        let filter = round.filter.clone().filter(|_| !is_flush);
        let is_filtered = !is_flush || (round.filter.is_none() && round.operator.is_none());
        let filtered_through = if is_filtered { retention.filtered_through() } else { 0 };
        let target = tree.options().target_file_bytes;
        let output = TableOutput::new(self, tree, target, filtered_through).cut_at(task.cuts.clone());
        let oldest = round.in_use.first().copied().unwrap_or(0);
        let mut cursor = MergingCursor::new(sources);
        match &task.range.0 {
            Some(start) => cursor.seek(start, MAX_SEQUENCE)?,
            None => cursor.seek_to_first()?,
        }
        let merge = Merge { end: task.range.1.as_deref(), retention, filter, oldest };
        let (finished, dropped) = self.merge(tree, cursor, merge, output)?;
        Ok(Written { finished, bytes_read, dropped })
    }

    /// Makes what was written durable, and what is kept back, which is answered as a memtable. Readers do not see it yet.
    fn install_partitions(
        &self,
        round: &PartitionFlush,
        written: &[Written],
        kept_back: &[KeyRange],
        numbers: &[u64],
    ) -> Result<Option<Arc<LoggedMemtable>>> {
        let tree = &round.tree;
        let give_up = || {
            for &number in numbers {
                self.table_files.obsolete.push(FileName::Table(number));
            }
        };
        let retained =
            self.retain(tree, &round.flushed, round.shown, kept_back).inspect_err(|_| give_up())?;
        let inputs: BTreeSet<u64> = round.tasks.iter().flat_map(|task| &task.inputs).copied().collect();
        let mut edit = VersionEdit::new();
        for &number in &inputs {
            edit.remove_table(tree.id, number);
        }
        self.note_flushed(tree, &round.flushed, retained.as_ref(), &mut edit);
        edit.note_written(tree.id, written.iter().map(Written::bytes).sum());
        let place = |version: &Version, edit: &mut VersionEdit| {
            for (task, written) in round.tasks.iter().zip(written) {
                for meta in &written.finished.tables {
                    let height = version.height_over(LAST_LEVEL, meta, &inputs);
                    edit.add_tables(tree.id, LAST_LEVEL, height, vec![meta.clone()]);
                }
                if task.splits {
                    for key in division(version, task, &written.finished.tables) {
                        edit.add_boundary(tree.id, LAST_LEVEL, key);
                    }
                }
            }
        };
        self.install_outputs(numbers, || {
            let mut versions = self.versions.lock();
            self.apply_placed(&mut versions, tree, edit, &place)?;
            tree.publication_pending.store(true, Ordering::Release);
            Ok(())
        })?;
        Ok(retained.map(|retained| retained.memtable))
    }

    fn count_round(&self, tree: &Arc<Tree>, round: &PartitionFlush, actions: &[Action], written: Vec<Written>) {
        let counters = &self.counters;
        let bytes: u64 = written.iter().map(Written::bytes).sum();
        tree.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        counters.flushes.fetch_add(1, Ordering::Relaxed);
        for (task, one) in round.tasks.iter().zip(written) {
            match task.inputs.is_empty() {
                true => counters.flushed_into(one.bytes()),
                false => counters.compacted(one.bytes_read, one.bytes(), one.dropped),
            }
            if let Some(drops) = one.finished.drops {
                drops.installed();
            }
        }
        for action in actions {
            let counter = match action {
                Action::None => continue,
                Action::Abort => &counters.aborts,
                Action::Minor => &counters.minor_compactions,
                Action::Major { .. } => &counters.major_compactions,
                Action::Split { .. } => &counters.splits,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Written {
    fn bytes(&self) -> u64 {
        self.finished.tables.iter().map(|table| table.file_bytes).sum()
    }
}

/// What each of `partitions` is to get of the versions that are `shown`. One memtable after the other: nothing needs to be merged for
/// it.
fn count(
    flushed: &[Arc<LoggedMemtable>],
    shown: Visibility,
    partitions: &[Partition<'_>],
) -> Result<Vec<Counted>> {
    let mut all: Vec<Counted> = partitions.iter().map(|_| Counted::default()).collect();
    for logged in flushed {
        let mut cursor = logged.memtable.cursor(shown);
        let mut back = logged.memtable.cursor(shown);
        cursor.seek_to_first()?;
        for (partition, counted) in partitions.iter().zip(&mut all) {
            let before = counted.entries;
            while cursor.valid() && partition.end().is_none_or(|end| cursor.key() < end) {
                if counted.entries == before && (before == 0 || cursor.key() < counted.smallest.as_slice()) {
                    counted.smallest = cursor.key().to_vec();
                }
                counted.entries += 1;
                counted.bytes += ENTRY_BYTES + (cursor.key().len() + cursor.value().len()) as u64;
                cursor.next()?;
            }
            if counted.entries > before {
                match partition.end() {
                    Some(end) => back.seek_before(end)?,
                    None => back.seek_to_last()?,
                }
                if back.key() > counted.largest.as_slice() {
                    counted.largest = back.key().to_vec();
                }
            }
        }
    }
    Ok(all)
}

fn loads<'a>(partitions: &'a [Partition<'_>], counted: &'a [Counted]) -> Vec<PartitionLoad<'a>> {
    let table = |(run, table): &(u64, &'a Arc<crate::version::TableHandle>)| {
        let meta = table.meta();
        StackedTable { run: *run, table: TableShape::of(meta), entries: meta.entries }
    };
    let load = |(partition, counted): (&'a Partition<'_>, &'a Counted)| PartitionLoad {
        tables: partition.tables().iter().map(table).collect(),
        new: (counted.entries > 0).then_some(NewEntries {
            bytes: counted.bytes,
            entries: counted.entries,
            smallest_key: &counted.smallest,
            largest_key: &counted.largest,
        }),
    };
    partitions.iter().zip(counted).map(load).collect()
}

/// What is to be done with `partition`; `None` if it is not written to.
fn task(partition: &Partition<'_>, action: &Action, range: KeyRange) -> Option<Task> {
    let (inputs, splits): (&[u64], _) = match action {
        Action::None | Action::Abort => return None,
        Action::Minor => (&[], false),
        Action::Major { inputs } => (inputs, false),
        Action::Split { inputs } => (inputs, true),
    };
    let inputs: BTreeSet<u64> = inputs.iter().copied().collect();
    let mut cuts = Vec::new();
    if splits {
        let metas = partition.tables().iter().map(|(_, table)| table.meta());
        let stays = metas.filter(|meta| !inputs.contains(&meta.number));
        cuts.extend(stays.map(|meta| meta.smallest_key.clone()));
        cuts.sort();
    }
    let bottom = !inputs.is_empty() && inputs.len() == partition.tables().len();
    Some(Task { range, inputs, cuts, splits, bottom })
}

/// The boundaries that divide the partition of `task` once it has `outputs`.
fn division(version: &Version, task: &Task, outputs: &[TableMeta]) -> Vec<Vec<u8>> {
    let start = task.range.0.as_deref().map_or(Bound::Unbounded, Bound::Included);
    let end = task.range.1.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    let runs = version.level(LAST_LEVEL).iter();
    let stay = runs.flat_map(|run| run.overlapping(start, end)).map(|table| table.meta());
    let stay = stay.filter(|meta| !task.inputs.contains(&meta.number));
    boundaries_between(stay.chain(outputs).collect(), TABLES_PER_PARTITION)
}
