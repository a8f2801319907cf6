//! Flush: full memtables become one sorted run of the first level.
//!
//! All full memtables of a tree are merged into one run, so a backlog makes fewer runs. Entries that no view can see
//! are dropped. The edit that adds the run also sets the log segment from which recovery must replay this tree.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bolide_base::{ErrorKind, Result};

use crate::compaction::{MergingRetention, Retention};
use crate::cursor::{InternalCursor, MergingCursor};
use crate::file_name::FileName;
use crate::layout::FlushTarget;
use crate::options::StoreOptions;
use crate::store::backend::Backend;
use crate::store::backend::external::write_external_flush;
use crate::store::jobs::environment::{FlushEnvironment, MergeEnvironment};
use crate::store::jobs::flush_install::{FlushOutput, WrittenFlush, install_flushes};
use crate::store::jobs::job::{BackgroundJob, PickedJob};
use crate::store::jobs::partition_flush::flush_into_partitions;
use crate::store::jobs::retained::note_flushed;
use crate::store::jobs::table_output::{FinishedOutput, TableOutput};
use crate::store::jobs::work::WorkState;
use crate::store::tree::Tree;
use crate::store::tree::logged_memtable::LoggedMemtable;
use crate::version::{LAST_LEVEL, VersionEdit};

/// The trees that one job flushes at most, and the bytes of the memtables or the entries of the external tree of each, if it flushes
/// several: what a job costs in any case, an edit of the manifest and the syncs, would be more than their flushes.
const MAX_TREES: usize = 64;
const MAX_SMALL_BYTES: usize = 256 << 10;
const MAX_SMALL_ENTRIES: u64 = 1_000;

/// A flush of the full memtables of a tree to a target; for an external tree, a checkpoint.
struct TreeFlush {
    tree: Arc<Tree>,
    target: FlushTarget,
}

/// Flushes of one tree, or of several with small memtables. Their files are written one after the other and installed together.
struct FlushJob<'s> {
    env: FlushEnvironment<'s>,
    flushes: Vec<TreeFlush>,
    /// The flush that runs, or the first that failed.
    running: AtomicUsize,
}

impl BackgroundJob for FlushJob<'_> {
    fn begin(&self, work: &mut WorkState) {
        for TreeFlush { tree, target } in &self.flushes {
            work.flushing.insert(tree.id);
            if *target == FlushTarget::Partitions {
                work.flushing_partitions.insert(tree.id);
            }
        }
    }

    /// A tree whose flush fails is due again; it does not keep the other trees from being flushed.
    fn run(&self) -> Result<()> {
        let health = self.env.tables.install.health;
        let (mut written, mut demanded, mut failed) = (Vec::new(), Vec::new(), None);
        for (number, flush) in self.flushes.iter().enumerate() {
            if failed.is_none() {
                self.running.store(number, Ordering::Relaxed);
            }
            // Before the state is read: the demand was made when the memtables were full, so the flush includes them.
            let flush_all = flush.tree.flush_all.swap(false, Ordering::AcqRel);
            match flush.write(&self.env, flush_all) {
                Ok(flushed) => {
                    written.extend(flushed);
                    demanded.extend(flush_all.then_some(&flush.tree));
                    continue;
                }
                Err(error) if health.check().is_err() => return Err(error),
                // The tree was dropped.
                Err(error) if error.kind() == ErrorKind::Closed => {}
                Err(error) => failed = failed.or(Some(error)),
            }
            flush.tree.flush_all.fetch_or(flush_all, Ordering::AcqRel);
        }
        let installed = match install_flushes(&self.env, written) {
            Err(error) if error.kind() == ErrorKind::Closed && health.check().is_ok() => Ok(()),
            Err(error) => {
                demanded.iter().for_each(|tree| tree.flush_all.store(true, Ordering::Release));
                Err(error)
            }
            Ok(()) => Ok(()),
        };
        failed.map_or(installed, Err)
    }

    fn end(&self, work: &mut WorkState) {
        for TreeFlush { tree, .. } in &self.flushes {
            work.flushing.remove(&tree.id);
            work.flushing_partitions.remove(&tree.id);
        }
    }

    fn merged_tree(&self) -> Option<&Tree> {
        self.flushes.get(self.running.load(Ordering::Relaxed)).map(|flush| &*flush.tree)
    }
}

impl TreeFlush {
    /// Whether the flush costs little: it may share a job with others.
    fn is_small(&self) -> bool {
        let entries = self.tree.backend().external().map_or(0, |external| external.entries());
        let state = self.tree.state_guard();
        let memtables = state.immutables.iter().map(|logged| logged.memtable.memory_bytes());
        self.target == FlushTarget::FirstLevel
            && entries <= MAX_SMALL_ENTRIES
            && memtables.sum::<usize>() <= MAX_SMALL_BYTES
    }

    /// Writes the files of the flush. A flush into partitions installs them too.
    fn write(&self, env: &FlushEnvironment<'_>, flush_all: bool) -> Result<Option<WrittenFlush<'_>>> {
        let tree = &self.tree;
        match (tree.backend(), self.target) {
            (Backend::External(external_tree), _) => {
                write_external_flush(env.checkpoints(), tree, external_tree)
            }
            (Backend::Lsm, FlushTarget::Partitions) => {
                flush_into_partitions(env, tree, flush_all).map(|()| None)
            }
            (Backend::Lsm, FlushTarget::FirstLevel) => write_first_level(env, tree),
        }
    }
}

/// A flush of the tree whose full memtables need the oldest log segment, among those whose flush need not wait for
/// a compaction. Not the tree with the most memtables: if writes to one tree are faster than its flushes, other
/// trees would starve and the log would grow without bound. If it is small, the following small ones are flushed by the same job.
pub(in crate::store) fn pick_flush<'s>(env: FlushEnvironment<'s>, work: &mut WorkState) -> PickedJob<'s> {
    let options = env.tables.merge.options;
    let trees = env.backlog.trees.load();
    let mut waiting: Vec<_> = trees
        .values()
        .filter(|tree| !work.flushing.contains(&tree.id) && !tree.attaches_at_flush())
        .map(|tree| (tree.flushes_due(options), tree))
        .filter(|(count, _)| *count > 0)
        .collect();
    waiting.sort_by_key(|(count, tree)| (tree.oldest_full_log(), std::cmp::Reverse(*count), tree.id));
    let mut due = waiting.into_iter().filter_map(|(count, tree)| {
        let target = flush_target(options, work, tree, count)?;
        Some(TreeFlush { tree: tree.clone(), target })
    });
    let mut flushes = vec![due.next()?];
    if flushes.iter().all(TreeFlush::is_small) {
        flushes.extend(due.take(MAX_TREES - 1).take_while(TreeFlush::is_small));
    }
    Some(Box::new(FlushJob { env, flushes, running: AtomicUsize::new(0) }))
}

/// The target of the next flush of `tree`. `None` while a flush into partitions should wait for a compaction that
/// empties the levels above the partitions.
fn flush_target(
    options: &StoreOptions,
    work: &WorkState,
    tree: &Arc<Tree>,
    waiting: usize,
) -> Option<FlushTarget> {
    let target = tree.flush_target();
    let is_excluded = work.reserved.contains(&tree.id) || tree.unreadable.get().is_some();
    if target == FlushTarget::FirstLevel || is_excluded {
        return Some(FlushTarget::FirstLevel);
    }
    let is_alone = !work.running_compactions.contains_key(&tree.id);
    let state = tree.state_guard();
    let is_clear = state.version.runs().first().is_none_or(|run| run.level() == LAST_LEVEL);
    match is_alone && is_clear {
        true => Some(target),
        // No other work of the tree runs, and level 0 has many runs: writers would wait for ever.
        false if waiting >= options.max_immutable_memtables.max(1) => Some(FlushTarget::FirstLevel),
        false => None,
    }
}

/// Writes the full memtables of `tree`, an LSM tree, to an sstable of level 0 and installs it.
pub(in crate::store) fn flush_to_first_level(env: &FlushEnvironment<'_>, tree: &Arc<Tree>) -> Result<()> {
    install_flushes(env, write_first_level(env, tree)?.into_iter().collect())
}

/// Writes the full memtables of `tree`, an LSM tree, to an sstable of level 0. `None` if it has no full memtable.
fn write_first_level<'t>(
    env: &FlushEnvironment<'_>,
    tree: &'t Arc<Tree>,
) -> Result<Option<WrittenFlush<'t>>> {
    let state = tree.state();
    // In this order: the memtables of a tree that became external since the job was picked are the external tree's, and an
    // sstable without their entries would advance the floor of the log.
    if let Backend::External(external_tree) = tree.backend() {
        return write_external_flush(env.checkpoints(), tree, external_tree);
    }
    let flushed = state.immutables.clone();
    if flushed.is_empty() {
        return Ok(None);
    }
    env.tables.install.health.check()?;
    let is_replay = !env.tables.install.log.lock().is_open();
    let FinishedOutput { tables, drops } = write_memtables(env.tables.merge, tree, &flushed, is_replay)?;
    let files = tables.iter().map(|table| FileName::Table(table.number)).collect();
    let mut edit = VersionEdit::new();
    let written_bytes = tables.iter().map(|table| table.file_bytes).sum();
    // The number of a run is that of its first file, so newer runs have larger numbers.
    if let Some(run) = tables.first().map(|table| table.number) {
        edit.add_tables(tree.id, 0, run, tables);
    }
    edit.note_written(tree.id, written_bytes);
    note_flushed(tree, &flushed, None, &mut edit);
    let output = FlushOutput::Tables(drops);
    Ok(Some(WrittenFlush { tree, flushed, edit, files, written_bytes, output }))
}

fn write_memtables(
    env: MergeEnvironment<'_>,
    tree: &Arc<Tree>,
    flushed: &[Arc<LoggedMemtable>],
    is_replay: bool,
) -> Result<FinishedOutput> {
    // In this order, no range tombstone at or below the first number in use is missing.
    let in_use = env.snapshots.in_use();
    let ranges = tree.state().merged_range_tombstones()?;
    let operator = tree.merge_operator.read().clone();
    let visibility = tree.flush_visibility(flushed, &in_use);
    let cursors = flushed.iter().map(|logged| logged.memtable.cursor(visibility)).collect();
    let mut cursor = MergingCursor::new(cursors);
    // Entries that the filter of the layer above drops are dropped by compactions only. During replay it is not
    // known yet whether the tree has a filter.
    let is_filtered = is_replay || tree.filter.read().is_some() || operator.is_some();
    let mut retention = MergingRetention::new(Retention::new(in_use, ranges, false), operator, true);
    let filtered_through = if is_filtered { 0 } else { retention.filtered_through() };
    let mut output = TableOutput::new(env.files, env.options, tree, u64::MAX, filtered_through);
    cursor.seek_to_first()?;
    while cursor.valid() {
        retention.add(cursor.key(), cursor.trailer(), cursor.value(), &mut output)?;
        cursor.next()?;
    }
    retention.finish(&mut output)?;
    output.finish()
}

#[cfg(test)]
#[path = "flush_tests.rs"]
mod tests;
