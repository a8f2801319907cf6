//! Flushes into partitions: full memtables are written straight into the partitions of the last level (REMIX §4.2).
//!
//! # Algorithm
//! 1. The new entries of each partition are counted, and a pure function plans its action: nothing, an abort, or a
//!    minor, major or split compaction; see [`flush_plan`].
//! 2. Each partition that is written to is a task. The flush thread and all idle threads take tasks.
//! 3. Entries of aborted partitions are retained; see `retained`.
//! 4. One edit installs all outputs and the floor of the log. `deferred_publication` publishes them.
//!
//! # Order
//! One flush of a tree runs at a time, and no compaction of the tree runs beside it, so partitions do not change after
//! planning. All levels above the partitions are empty: flushed entries are newer than all entries in sstables. A flush
//! takes all memtables but the writable one, including those of retained entries.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::{Error, MAX_SEQUENCE, Result, SequenceNumber};
use parking_lot::{Condvar, Mutex};

use crate::compaction::{CompactionFilter, MergeOperator, MergingRetention, Retention, TableShape};
use crate::cursor::{ComponentCursor, InternalCursor, MergingCursor};
use crate::file_name::FileName;
use crate::layout::flush_plan::{
    self, Action, MAX_RETAINED_PERCENT, NewEntries, PartitionLoad, StackedTable, TABLES_PER_PARTITION,
};
use crate::memtable::Visibility;
use crate::options::StoreOptions;
use crate::range_tombstones::RangeTombstones;
use crate::store::files::StoreFiles;
use crate::store::jobs::compact::MergeParameters;
use crate::store::jobs::compact::merge_entries;
use crate::store::jobs::deferred_publication::publish_flush;
use crate::store::jobs::environment::{FlushEnvironment, MergeEnvironment};
use crate::store::jobs::install::{apply_placed, install_outputs};
use crate::store::jobs::publication::FlushedMemtables;
use crate::store::jobs::retained::{PartitionRange, note_flushed, note_log_floor, retain};
use crate::store::jobs::shared_tasks::{SharedTasks, TaskEnvironment};
use crate::store::jobs::table_output::{FinishedOutput, TableOutput, input_memory};
use crate::store::stats::Counters;
use crate::store::tree::directory::TreeDirectory;
use crate::store::tree::logged_memtable::LoggedMemtable;
use crate::store::tree::{Tree, TreeState};
use crate::version::{LAST_LEVEL, Partition, TableMeta, Version, VersionEdit, boundaries_between};

/// Maximum bytes of an entry in the log, without key and value.
const ENTRY_BYTES: u64 = 32;

/// Totals of the new entries of one partition.
#[derive(Debug, Default)]
struct NewEntryTotals {
    bytes: u64,
    entries: u64,
    smallest: Vec<u8>,
    largest: Vec<u8>,
}

/// A partition that is written to.
#[derive(Debug)]
struct PartitionTask {
    range: PartitionRange,
    inputs: BTreeSet<u64>,
    /// The first keys of sstables that remain: outputs do not cross them.
    split_keys: Vec<Vec<u8>>,
    splits: bool,
    /// True if all sstables of the partition are inputs.
    bottom: bool,
}

/// The outputs of a task.
struct TaskOutput {
    finished: FinishedOutput,
    bytes_read: u64,
    dropped: u64,
}

/// A running flush: its tasks are shared by several threads.
struct PartitionFlush {
    tree: Arc<Tree>,
    state: Arc<TreeState>,
    flushed: Vec<Arc<LoggedMemtable>>,
    in_use: Vec<SequenceNumber>,
    /// The versions of the memtables that are read.
    visibility: Visibility,
    ranges: Arc<RangeTombstones>,
    filter: Option<Arc<dyn CompactionFilter>>,
    operator: Option<Arc<dyn MergeOperator>>,
    tasks: Vec<PartitionTask>,
    progress: Mutex<TaskProgress>,
    done: Condvar,
}

#[derive(Default)]
struct TaskProgress {
    next: usize,
    running: usize,
    failed: bool,
    written: Vec<(usize, Result<TaskOutput>)>,
}

/// Counts a task as ended when dropped, also during a panic.
struct RunningTask<'r>(&'r PartitionFlush);

impl Drop for RunningTask<'_> {
    fn drop(&mut self) {
        self.0.progress.lock().running -= 1;
        self.0.done.notify_all();
    }
}

impl SharedTasks for PartitionFlush {
    fn has_tasks(&self) -> bool {
        let progress = self.progress.lock();
        !progress.failed && progress.next < self.tasks.len()
    }

    fn run_tasks(&self, env: TaskEnvironment<'_>) {
        while let Some((position, task)) = self.next_task() {
            let running = RunningTask(self);
            let written = write_partition(env, self, task);
            let mut progress = self.progress.lock();
            progress.failed |= written.is_err();
            progress.written.push((position, written));
            drop(progress);
            drop(running);
        }
    }
}

impl fmt::Debug for PartitionFlush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionFlush").finish_non_exhaustive()
    }
}

impl PartitionFlush {
    fn next_task(&self) -> Option<(usize, &PartitionTask)> {
        let mut progress = self.progress.lock();
        let position = progress.next;
        let task = self.tasks.get(position).filter(|_| !progress.failed)?;
        progress.next += 1;
        progress.running += 1;
        Some((position, task))
    }

    /// Waits for tasks of other threads. Returns the outputs in the order of the tasks.
    fn finish(&self) -> Vec<Result<TaskOutput>> {
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

/// Writes the full memtables of `tree` into its partitions and installs the outputs. Entries may be retained,
/// unless `flush_all`.
pub(in crate::store) fn flush_into_partitions(
    env: &FlushEnvironment<'_>,
    tree: &Arc<Tree>,
    flush_all: bool,
) -> Result<()> {
    let state = tree.state();
    let flushed = state.immutables.clone();
    if flushed.is_empty() {
        return Ok(());
    }
    let (tables, merge) = (&env.tables, env.tables.merge);
    tables.install.health.check()?;
    let in_use = merge.snapshots.in_use();
    let visibility = tree.flush_visibility(&flushed, &in_use);
    let partitions = state.version.partitions(LAST_LEVEL);
    let counted = count_new_entries(&flushed, visibility, &partitions)?;
    let has_operands = flushed.iter().any(|logged| logged.memtable.has_operands());
    let max_retained = if flush_all || has_operands {
        0
    } else {
        max_retained_bytes(merge.options, env.backlog.trees, tree)
    };
    let target = tree.options().target_file_bytes;
    let actions = flush_plan::plan(
        &partition_loads(&partitions, &counted),
        target,
        merge.options.partition_tables,
        max_retained,
    );
    let range = |partition: &Partition<'_>| {
        (partition.start().map(<[u8]>::to_vec), partition.end().map(<[u8]>::to_vec))
    };
    let planned = || partitions.iter().zip(&actions);
    let tasks: Vec<PartitionTask> =
        planned().filter_map(|(partition, action)| plan_task(partition, action, range(partition))).collect();
    let retained_ranges: Vec<PartitionRange> =
        planned().filter(|(_, action)| **action == Action::Abort).map(|(one, _)| range(one)).collect();
    drop(partitions);
    // In this order, no range tombstone at or below the first number in use is missing.
    let ranges = tree.state().merged_range_tombstones()?;
    let flush = run_shared(
        merge,
        PartitionFlush {
            tree: tree.clone(),
            state,
            flushed,
            in_use,
            visibility,
            ranges,
            filter: tree.filter.read().clone(),
            operator: tree.merge_operator.read().clone(),
            tasks,
            progress: Mutex::default(),
            done: Condvar::new(),
        },
    );
    let written = collect_outputs(merge.files, flush.finish())?;
    let mut numbers: Vec<u64> = Vec::new();
    for one in &written {
        numbers.extend(one.finished.tables.iter().map(|table| table.number));
    }
    let retained = install_partitions(env, &flush, &written, &retained_ranges, &numbers)?;
    let flushed = FlushedMemtables { memtables: &flush.flushed, retained: retained.as_ref() };
    let published = publish_flush(env, tree, flushed);
    count_flush(tables.counters, tree, &flush, &actions, written);
    published
}

/// The bytes that flushes of `tree` may retain, given the retained bytes of other trees.
fn max_retained_bytes(options: &StoreOptions, trees: &TreeDirectory, tree: &Tree) -> u64 {
    let all = options.memtable_bytes / 100 * MAX_RETAINED_PERCENT;
    let trees = trees.load();
    let others = trees.values().filter(|other| other.id != tree.id);
    let retained: u64 = others.map(|other| other.state_guard().retained_bytes()).sum();
    (all as u64).saturating_sub(retained)
}

/// Runs the tasks, with the help of idle threads.
fn run_shared(env: MergeEnvironment<'_>, flush: PartitionFlush) -> Arc<PartitionFlush> {
    let flush = Arc::new(flush);
    let is_shared = flush.tasks.len() > 1 && env.options.background_threads > 1;
    if is_shared {
        env.stop.work.lock().shared_tasks.push(flush.clone());
        env.stop.work.notify();
    }
    let is_abandoned = |tree: &Tree| env.stop.is_abandoned(tree);
    flush.run_tasks(TaskEnvironment { files: env.files, options: env.options, is_abandoned: &is_abandoned });
    if is_shared {
        let own: Arc<dyn SharedTasks> = flush.clone();
        env.stop.work.lock().shared_tasks.retain(|other| !Arc::ptr_eq(other, &own));
    }
    flush
}

/// All outputs; if a task failed, its error, and the outputs of the other tasks are removed.
fn collect_outputs(files: &StoreFiles, results: Vec<Result<TaskOutput>>) -> Result<Vec<TaskOutput>> {
    let (mut written, mut failure) = (Vec::with_capacity(results.len()), None);
    for result in results {
        match result {
            Ok(one) => written.push(one),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    let Some(error) = failure else { return Ok(written) };
    for table in written.iter().flat_map(|one| &one.finished.tables) {
        files.discard(FileName::Table(table.number));
    }
    Err(error)
}

fn write_partition(
    env: TaskEnvironment<'_>,
    flush: &PartitionFlush,
    task: &PartitionTask,
) -> Result<TaskOutput> {
    let tree = &flush.tree;
    let (mut sources, bytes_read) = flush.state.input_sources(&task.inputs)?;
    let _memory = input_memory(env.files, sources.len(), bytes_read);
    let cursor =
        |logged: &Arc<LoggedMemtable>| ComponentCursor::from(logged.memtable.cursor(flush.visibility));
    sources.splice(0..0, flush.flushed.iter().map(cursor));
    let is_flush = task.inputs.is_empty();
    let retention = Retention::new(flush.in_use.clone(), flush.ranges.clone(), task.bottom);
    let retention = MergingRetention::new(retention, flush.operator.clone(), is_flush);
    // Entries that the filter of the layer above drops are dropped only where sstables are rewritten.
    let filter = flush.filter.clone().filter(|_| !is_flush);
    let is_filtered = !is_flush || (flush.filter.is_none() && flush.operator.is_none());
    let filtered_through = if is_filtered { retention.filtered_through() } else { 0 };
    let target = tree.options().target_file_bytes;
    let output = TableOutput::new(env.files, env.options, tree, target, filtered_through)
        .split_at(task.split_keys.clone());
    let oldest = flush.in_use.first().copied().unwrap_or(0);
    let mut cursor = MergingCursor::new(sources);
    match &task.range.0 {
        Some(start) => cursor.seek(start, MAX_SEQUENCE)?,
        None => cursor.seek_to_first()?,
    }
    let merge = MergeParameters { end: task.range.1.as_deref(), retention, filter, oldest };
    let (finished, dropped) = merge_entries(&|| (env.is_abandoned)(tree), cursor, merge, output)?;
    Ok(TaskOutput { finished, bytes_read, dropped })
}

/// Makes the outputs and the retained entries durable, and returns the memtable of the latter. Readers do not see
/// them yet.
fn install_partitions(
    env: &FlushEnvironment<'_>,
    flush: &PartitionFlush,
    written: &[TaskOutput],
    retained_ranges: &[PartitionRange],
    numbers: &[u64],
) -> Result<Option<Arc<LoggedMemtable>>> {
    let (tree, install) = (&flush.tree, env.tables.install);
    let discard_outputs = || {
        for &number in numbers {
            install.files.discard(FileName::Table(number));
        }
    };
    let retained = retain(&env.tables, tree, &flush.flushed, flush.visibility, retained_ranges)
        .inspect_err(|_| discard_outputs())?;
    let inputs: BTreeSet<u64> = flush.tasks.iter().flat_map(|task| &task.inputs).copied().collect();
    let mut edit = VersionEdit::new();
    for &number in &inputs {
        edit.remove_table(tree.id, number);
    }
    note_flushed(tree, &flush.flushed, retained.as_ref(), &mut edit);
    note_log_floor(install.log, env.backlog.trees, tree, &flush.flushed, retained.as_ref(), &mut edit);
    edit.note_written(tree.id, written.iter().map(TaskOutput::bytes).sum());
    let place = |version: &Version, edit: &mut VersionEdit| {
        for (task, written) in flush.tasks.iter().zip(written) {
            for meta in &written.finished.tables {
                let height = version.height_over(LAST_LEVEL, meta, &inputs);
                edit.add_tables(tree.id, LAST_LEVEL, height, vec![meta.clone()]);
            }
            if task.splits {
                for key in split_boundaries(version, task, &written.finished.tables) {
                    edit.add_boundary(tree.id, LAST_LEVEL, key);
                }
            }
        }
    };
    install_outputs(install, numbers, || {
        let mut versions = install.files.versions.lock();
        apply_placed(install, &mut versions, tree, edit, &place)?;
        tree.publication_pending.store(true, Ordering::Release);
        Ok(())
    })?;
    Ok(retained.map(|retained| retained.memtable))
}

fn count_flush(
    counters: &Counters,
    tree: &Arc<Tree>,
    flush: &PartitionFlush,
    actions: &[Action],
    written: Vec<TaskOutput>,
) {
    let bytes: u64 = written.iter().map(TaskOutput::bytes).sum();
    tree.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    counters.flushes.fetch_add(1, Ordering::Relaxed);
    for (task, one) in flush.tasks.iter().zip(written) {
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

impl TaskOutput {
    fn bytes(&self) -> u64 {
        self.finished.tables.iter().map(|table| table.file_bytes).sum()
    }
}

/// Counts the new entries of each of `partitions`, of the versions of `visibility`. Memtables are read one after the
/// other: no merge is needed.
fn count_new_entries(
    flushed: &[Arc<LoggedMemtable>],
    visibility: Visibility,
    partitions: &[Partition<'_>],
) -> Result<Vec<NewEntryTotals>> {
    let mut all: Vec<NewEntryTotals> = partitions.iter().map(|_| NewEntryTotals::default()).collect();
    for logged in flushed {
        let mut cursor = logged.memtable.cursor(visibility);
        let mut end_cursor = logged.memtable.cursor(visibility);
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
                    Some(end) => end_cursor.seek_before(end)?,
                    None => end_cursor.seek_to_last()?,
                }
                if end_cursor.key() > counted.largest.as_slice() {
                    counted.largest = end_cursor.key().to_vec();
                }
            }
        }
    }
    Ok(all)
}

fn partition_loads<'a>(
    partitions: &'a [Partition<'_>],
    counted: &'a [NewEntryTotals],
) -> Vec<PartitionLoad<'a>> {
    let table = |(run, table): &(u64, &'a Arc<crate::version::TableHandle>)| {
        let meta = table.meta();
        StackedTable { run: *run, table: TableShape::of(meta), entries: meta.entries }
    };
    let load = |(partition, counted): (&'a Partition<'_>, &'a NewEntryTotals)| PartitionLoad {
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

/// The task for `partition`; `None` if it is not written to.
fn plan_task(partition: &Partition<'_>, action: &Action, range: PartitionRange) -> Option<PartitionTask> {
    let (inputs, splits): (&[u64], _) = match action {
        Action::None | Action::Abort => return None,
        Action::Minor => (&[], false),
        Action::Major { inputs } => (inputs, false),
        Action::Split { inputs } => (inputs, true),
    };
    let inputs: BTreeSet<u64> = inputs.iter().copied().collect();
    let mut split_keys = Vec::new();
    if splits {
        let metas = partition.tables().iter().map(|(_, table)| table.meta());
        let remaining = metas.filter(|meta| !inputs.contains(&meta.number));
        split_keys.extend(remaining.map(|meta| meta.smallest_key.clone()));
        split_keys.sort();
    }
    let bottom = !inputs.is_empty() && inputs.len() == partition.tables().len();
    Some(PartitionTask { range, inputs, split_keys, splits, bottom })
}

/// The boundaries that split the partition of `task` once it has `outputs`.
fn split_boundaries(version: &Version, task: &PartitionTask, outputs: &[TableMeta]) -> Vec<Vec<u8>> {
    let start = task.range.0.as_deref().map_or(Bound::Unbounded, Bound::Included);
    let end = task.range.1.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    let runs = version.level(LAST_LEVEL).iter();
    let remaining = runs.flat_map(|run| run.overlapping(start, end)).map(|table| table.meta());
    let remaining = remaining.filter(|meta| !task.inputs.contains(&meta.number));
    boundaries_between(remaining.chain(outputs).collect(), TABLES_PER_PARTITION)
}
