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
    CompactionFilter, CompactionPlan, FilteredOutput, MergingRetention, OutputSplit, Retention,
};
use crate::cursor::{ComponentCursor, InternalCursor, MergingCursor};
use crate::drop_listener::DropCollector;
use crate::store::StoreInner;
use crate::store::jobs::table_output::{FinishedOutput, TableOutput};
use crate::store::tree::Tree;
use crate::version::{TableMeta, Version, VersionEdit, boundaries_between};

/// Number of entries between two checks whether the work was abandoned.
const CHECK_INTERVAL: u64 = 1024;

impl StoreInner {
    /// Executes `plan`.
    pub(in crate::store) fn compact_tree(&self, tree: &Arc<Tree>, plan: &CompactionPlan) -> Result<()> {
        self.health.check()?;
        let mut edit = VersionEdit::new();
        for input in &plan.inputs {
            edit.remove_table(tree.id, input.file_number);
        }
        if plan.is_trivial_move {
            let metas = self.input_metas(tree, plan)?;
            self.install_placed(tree, edit, &|version, edit| {
                place_outputs(version, plan, &metas, edit);
            })?;
            self.counters.trivial_moves.fetch_add(1, Ordering::Relaxed);
            return self.refresh_views(tree);
        }
        let merged = self.merge_inputs(tree, plan)?;
        let bytes_written = merged.tables.iter().map(|table| table.file_bytes).sum();
        let written: Vec<u64> = merged.tables.iter().map(|table| table.number).collect();
        edit.note_written(tree.id, bytes_written);
        self.install_outputs(&written, || {
            self.install_placed(tree, edit, &|version, edit| {
                place_outputs(version, plan, &merged.tables, edit);
            })
        })?;
        if let Some(drops) = merged.drops {
            drops.installed();
        }
        tree.written_bytes.fetch_add(bytes_written, Ordering::Relaxed);
        self.counters.compacted(merged.bytes_read, bytes_written, merged.dropped);
        self.refresh_views(tree)
    }

    fn input_metas(&self, tree: &Arc<Tree>, plan: &CompactionPlan) -> Result<Vec<TableMeta>> {
        let state = tree.state();
        let table = |number| {
            let found = state.version.table(number);
            found.ok_or_else(|| Error::internal(format!("input {number} of a compaction is missing")))
        };
        plan.input_files().map(|number| Ok(table(number)?.meta().clone())).collect()
    }

    fn merge_inputs(&self, tree: &Arc<Tree>, plan: &CompactionPlan) -> Result<MergeOutput> {
        // In this order, no range tombstone at or below the first number in use is missing.
        let in_use = self.snapshots.in_use();
        let state = tree.state();
        let (sources, bytes_read) = state.input_sources(&plan.input_files().collect())?;
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
            OutputSplit::AtBoundaries => {
                state.version.boundaries(plan.output_level).iter().cloned().collect()
            }
            OutputSplit::At(boundaries) => boundaries.clone(),
        };
        let output = TableOutput::new(self, tree, plan.target_file_bytes, retention.filtered_through());
        cursor.seek_to_first()?;
        let merge = MergeParameters { end: None, retention, filter, oldest };
        let (FinishedOutput { tables, drops }, dropped) =
            self.merge(tree, cursor, merge, output.split_at(split_keys))?;
        Ok(MergeOutput { tables, drops, bytes_read, dropped })
    }

    /// Merges the entries from the position of `cursor` up to the end into `output`. Also returns the number of dropped
    /// entries.
    pub(in crate::store) fn merge(
        &self,
        tree: &Arc<Tree>,
        mut cursor: MergingCursor<ComponentCursor>,
        merge: MergeParameters<'_>,
        output: TableOutput<'_>,
    ) -> Result<(FinishedOutput, u64)> {
        let MergeParameters { end, mut retention, filter, oldest } = merge;
        let mut output = FilteredOutput::new(output, filter, oldest);
        let mut entries = 0_u64;
        while cursor.valid() && end.is_none_or(|end| cursor.key() < end) {
            if entries.is_multiple_of(CHECK_INTERVAL) && self.is_abandoned(tree) {
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
