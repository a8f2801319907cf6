//! Compaction: executes the plan of a policy.
//!
//! The inputs are merged in key order, versions that no view can see are dropped, and the rest becomes new sstables.
//! One manifest edit replaces the inputs by the outputs. After a failure before the edit, the outputs are removed and
//! the tree is unchanged.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber};

use crate::compaction::{
    CompactionFilter, CompactionPlan, FilteredOutput, MergingRetention, OutputSplit, Retention, VersionShape,
};
use crate::cursor::{ComponentCursor, InternalCursor, MergingCursor};
use crate::drop_listener::DropCollector;
use crate::store::jobs::environment::{MergeEnvironment, TableEnvironment};
use crate::store::jobs::install::{install_outputs, install_placed};
use crate::store::jobs::job::{BackgroundJob, PickedJob};
use crate::store::jobs::sorted_view::refresh_views;
use crate::store::jobs::table_output::{FinishedOutput, TableOutput, input_memory};
use crate::store::jobs::work::WorkState;
use crate::store::tree::Tree;
use crate::store::tree::directory::TreeDirectory;
use crate::version::{TableMeta, Version, VersionEdit, boundaries_between};

/// Number of entries between two checks whether the work was abandoned.
const CHECK_INTERVAL: u64 = 1024;

/// A compaction by a plan.
struct CompactJob<'s> {
    env: TableEnvironment<'s>,
    tree: Arc<Tree>,
    plan: CompactionPlan,
}

impl BackgroundJob for CompactJob<'_> {
    fn begin(&self, work: &mut WorkState) {
        work.begin_compaction(self.tree.id, &self.plan);
    }

    fn run(&self) -> Result<()> {
        compact_tree(&self.env, &self.tree, &self.plan)
    }

    fn end(&self, work: &mut WorkState) {
        work.end_compaction(self.tree.id, &self.plan);
    }

    fn merged_tree(&self) -> Option<&Tree> {
        Some(&self.tree)
    }
}

/// The most urgent compaction of all trees.
pub(in crate::store) fn pick_compaction<'s>(
    env: TableEnvironment<'s>,
    trees: &TreeDirectory,
    work: &mut WorkState,
) -> PickedJob<'s> {
    let none = BTreeSet::new();
    let trees = trees.load();
    let mut best: Option<CompactJob<'s>> = None;
    let is_free = |tree: &&Arc<Tree>| {
        !work.reserved.contains(&tree.id)
            && !work.flushing_partitions.contains(&tree.id)
            && tree.unreadable.get().is_none()
    };
    for tree in trees.values().filter(is_free) {
        // Most trees have not changed since the last call.
        let Some(replacements) = tree.uncompacted_state() else { continue };
        let state = tree.state_guard();
        if !tree.backend().merges_sstables(&state.version) {
            continue;
        }
        let shape = VersionShape::of(&state.version);
        let busy = work.busy_files.get(&tree.id).unwrap_or(&none);
        let policy = tree.compaction_policy(env.merge.options.partition_tables);
        match policy.pick(&shape, busy) {
            Some(plan) if best.as_ref().is_none_or(|best| plan.score > best.plan.score) => {
                best = Some(CompactJob { env, tree: tree.clone(), plan });
            }
            // A replacement since the number was read has changed it.
            None if busy.is_empty() => tree.note_compacted(replacements),
            _ => {}
        }
    }
    best.map(|job| Box::new(job) as Box<dyn BackgroundJob + 's>)
}

/// Executes `plan`.
pub(in crate::store) fn compact_tree(
    env: &TableEnvironment<'_>,
    tree: &Arc<Tree>,
    plan: &CompactionPlan,
) -> Result<()> {
    env.install.health.check()?;
    let mut edit = VersionEdit::new();
    for input in &plan.inputs {
        edit.remove_table(tree.id, input.file_number);
    }
    if plan.is_trivial_move {
        let metas = input_metas(tree, plan)?;
        install_placed(env.install, tree, edit, &|version, edit| {
            place_outputs(version, plan, &metas, edit);
        })?;
        env.counters.trivial_moves.fetch_add(1, Ordering::Relaxed);
        return refresh_views(env.views(), tree);
    }
    let merged = merge_inputs(env.merge, tree, plan)?;
    let bytes_written = merged.tables.iter().map(|table| table.file_bytes).sum();
    let written: Vec<u64> = merged.tables.iter().map(|table| table.number).collect();
    edit.note_written(tree.id, bytes_written);
    install_outputs(env.install, &written, || {
        install_placed(env.install, tree, edit, &|version, edit| {
            place_outputs(version, plan, &merged.tables, edit);
        })
    })?;
    if let Some(drops) = merged.drops {
        drops.installed();
    }
    tree.written_bytes.fetch_add(bytes_written, Ordering::Relaxed);
    env.counters.compacted(merged.bytes_read, bytes_written, merged.dropped);
    refresh_views(env.views(), tree)
}

fn input_metas(tree: &Arc<Tree>, plan: &CompactionPlan) -> Result<Vec<TableMeta>> {
    let state = tree.state();
    let table = |number| {
        let found = state.version.table(number);
        found.ok_or_else(|| Error::internal(format!("input {number} of a compaction is missing")))
    };
    plan.input_files().map(|number| Ok(table(number)?.meta().clone())).collect()
}

fn merge_inputs(env: MergeEnvironment<'_>, tree: &Arc<Tree>, plan: &CompactionPlan) -> Result<MergeOutput> {
    // In this order, no range tombstone at or below the first number in use is missing.
    let in_use = env.snapshots.in_use();
    let state = tree.state();
    let (sources, bytes_read) = state.input_sources(&plan.input_files().collect())?;
    let _memory = input_memory(env.files, sources.len(), bytes_read);
    let mut cursor: MergingCursor<ComponentCursor> = MergingCursor::new(sources);
    let ranges = state.merged_range_tombstones()?;
    let filter = tree.filter.read().clone();
    let operator = tree.merge_operator.read().clone();
    let oldest = in_use.first().copied().unwrap_or(0);
    let retention = Retention::new(in_use, ranges, plan.bottom);
    let retention = MergingRetention::new(retention, operator, false);
    let split_keys = match &plan.output_split {
        OutputSplit::Unpartitioned | OutputSplit::WithinPartition | OutputSplit::IntoPartitions(_) => {
            Vec::new()
        }
        OutputSplit::AtBoundaries => state.version.boundaries(plan.output_level).iter().cloned().collect(),
        OutputSplit::At(boundaries) => boundaries.clone(),
    };
    let output =
        TableOutput::new(env.files, env.options, tree, plan.target_file_bytes, retention.filtered_through());
    cursor.seek_to_first()?;
    let merge = MergeParameters { end: None, retention, filter, oldest };
    let (FinishedOutput { tables, drops }, dropped) =
        merge_entries(&|| env.stop.is_abandoned(tree), cursor, merge, output.split_at(split_keys))?;
    Ok(MergeOutput { tables, drops, bytes_read, dropped })
}

/// Merges the entries from the position of `cursor` up to the end into `output`, unless the work `is_abandoned`. Also
/// returns the number of dropped entries.
pub(in crate::store) fn merge_entries(
    is_abandoned: &dyn Fn() -> bool,
    mut cursor: MergingCursor<ComponentCursor>,
    merge: MergeParameters<'_>,
    output: TableOutput<'_>,
) -> Result<(FinishedOutput, u64)> {
    let MergeParameters { end, mut retention, filter, oldest } = merge;
    let mut output = FilteredOutput::new(output, filter, oldest);
    let mut entries = 0_u64;
    while cursor.valid() && end.is_none_or(|end| cursor.key() < end) {
        if entries.is_multiple_of(CHECK_INTERVAL) && is_abandoned() {
            return Err(Error::new(ErrorKind::Closed, "the compaction was abandoned"));
        }
        entries += 1;
        retention.add(cursor.key(), cursor.trailer(), cursor.value(), &mut output)?;
        cursor.next()?;
    }
    retention.finish(&mut output)?;
    let (output, filtered) = output.finish()?;
    let finished = output.finish()?;
    let written_entries: u64 = finished.tables.iter().map(|table| table.entries).sum();
    let expected = retention.retained(entries).saturating_sub(filtered);
    if written_entries != expected {
        return Err(Error::internal(format!(
            "a compaction read {entries} entries and wrote {written_entries} instead of {expected}"
        )));
    }
    Ok((finished, entries.saturating_sub(written_entries)))
}

/// The parameters of a merge.
pub(in crate::store) struct MergeParameters<'a> {
    /// The exclusive end.
    pub(in crate::store) end: Option<&'a [u8]>,
    pub(in crate::store) retention: MergingRetention,
    pub(in crate::store) filter: Option<Arc<dyn CompactionFilter>>,
    /// The oldest sequence number of a reader.
    pub(in crate::store) oldest: SequenceNumber,
}

/// Adds `outputs` of `plan` at their positions in `version`, and sets the boundaries of the level according to the
/// plan.
fn place_outputs(version: &Version, plan: &CompactionPlan, outputs: &[TableMeta], edit: &mut VersionEdit) {
    let (tree, level) = (version.tree(), plan.output_level);
    match &plan.output_split {
        OutputSplit::Unpartitioned => edit.remove_boundaries(tree, level, version.boundaries(level)),
        OutputSplit::AtBoundaries | OutputSplit::WithinPartition => {}
        OutputSplit::At(boundaries) => {
            edit.remove_boundaries(tree, level, version.boundaries(level));
            boundaries.iter().for_each(|key| edit.add_boundary(tree, level, key.clone()));
        }
        OutputSplit::IntoPartitions(tables) => {
            let inputs: BTreeSet<u64> = plan.input_files().collect();
            let mut all = version.level(level).iter().flat_map(|run| run.tables());
            if all.all(|table| inputs.contains(&table.meta().number)) {
                edit.remove_boundaries(tree, level, version.boundaries(level));
            }
            for key in boundaries_between(outputs.iter().collect(), *tables) {
                edit.add_boundary(tree, level, key);
            }
        }
    }
    let inputs: BTreeSet<u64> = plan.input_files().collect();
    for meta in outputs {
        let run = match plan.output_split {
            OutputSplit::Unpartitioned | OutputSplit::WithinPartition => plan.output_run,
            _ => version.height_over(level, meta, &inputs),
        };
        edit.add_tables(tree, level, run, vec![meta.clone()]);
    }
}

/// The outputs of a merge.
struct MergeOutput {
    tables: Vec<TableMeta>,
    drops: Option<Box<dyn DropCollector>>,
    bytes_read: u64,
    dropped: u64,
}
