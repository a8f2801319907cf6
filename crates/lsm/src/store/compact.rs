//! Compaction: the executor of what a policy planned.
//!
//! The inputs are merged in key order, versions that nobody can see are dropped, and what is left becomes
//! new sstables. One manifest edit replaces the inputs by the outputs. If anything fails before it, the
//! outputs are removed and the tree is as before.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::{Error, ErrorKind, Result};

use super::StoreInner;
use super::table_output::{Finished, TableOutput};
use super::tree::Tree;
use crate::compaction::{CompactionPlan, FilteredOutput, MergingRetention, Retention};
use crate::cursor::{InternalCursor, MergingCursor, Source};
use crate::drop_listener::DropCollector;
use crate::version::{TableMeta, VersionEdit};

/// How many entries are merged between two looks whether the work is still wanted.
const LOOK_EVERY: u64 = 1024;

impl StoreInner {
    /// Carries out `plan`.
    pub(super) fn compact_tree(&self, tree: &Arc<Tree>, plan: &CompactionPlan) -> Result<()> {
        self.check_writable()?;
        let mut edit = VersionEdit::new();
        for input in &plan.inputs {
            edit.remove_table(tree.id, input.file_number);
        }
        if plan.is_trivial_move {
            let metas = self.input_metas(tree, plan)?;
            edit.add_tables(tree.id, plan.output_level, plan.output_run, metas);
            self.install(tree, edit, &[])?;
            self.counters.trivial_moves.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let merged = self.merge_inputs(tree, plan)?;
        let bytes_written = merged.tables.iter().map(|table| table.file_bytes).sum();
        let written: Vec<u64> = merged.tables.iter().map(|table| table.number).collect();
        edit.add_tables(tree.id, plan.output_level, plan.output_run, merged.tables);
        edit.note_written(tree.id, bytes_written);
        self.install_outputs(tree, edit, &[], &written)?;
        if let Some(drops) = merged.drops {
            drops.installed();
        }
        tree.written_bytes.fetch_add(bytes_written, Ordering::Relaxed);
        self.counters.compacted(merged.bytes_read, bytes_written, merged.dropped);
        Ok(())
    }

    fn input_metas(&self, tree: &Arc<Tree>, plan: &CompactionPlan) -> Result<Vec<TableMeta>> {
        let state = tree.state();
        let table = |number| {
            let found = state.version.table(number);
            found.ok_or_else(|| Error::internal(format!("a compaction's input {number} is not there")))
        };
        plan.input_files().map(|number| Ok(table(number)?.meta().clone())).collect()
    }

    fn merge_inputs(&self, tree: &Arc<Tree>, plan: &CompactionPlan) -> Result<Merged> {
        // In this order: no range tombstone at or below the first number in use is missing then.
        let in_use = self.snapshots.in_use();
        let state = tree.state();
        let (sources, bytes_read) = state.input_sources(plan)?;
        let mut cursor: MergingCursor<Source> = MergingCursor::new(sources);
        let ranges = state.merged_range_tombstones()?;
        let filter = tree.filter.read().clone();
        let operator = tree.merge_operator.read().clone();
        let oldest = in_use.first().copied().unwrap_or(0);
        let retention = Retention::new(in_use, ranges, plan.bottom);
        let mut retention = MergingRetention::new(retention, operator, false);
        let output = TableOutput::new(self, tree, plan.target_file_bytes, retention.filtered_through());
        let mut output = FilteredOutput::new(output, filter, oldest);
        let mut entries = 0_u64;
        cursor.seek_to_first()?;
        while cursor.valid() {
            if entries.is_multiple_of(LOOK_EVERY) && self.is_abandoned(tree) {
                return Err(Error::new(ErrorKind::Closed, "the compaction is no longer wanted"));
            }
            entries += 1;
            retention.take(cursor.key(), cursor.trailer(), cursor.value(), &mut output)?;
            cursor.next()?;
        }
        retention.finish(&mut output)?;
        let (output, filtered) = output.finish()?;
        let Finished { tables, drops } = output.finish()?;
        let kept: u64 = tables.iter().map(|table| table.entries).sum();
        let expected = retention.kept(entries).saturating_sub(filtered);
        if kept != expected {
            return Err(Error::internal(format!(
                "a compaction read {entries} entries and wrote {kept} instead of {expected}"
            )));
        }
        let dropped = entries.saturating_sub(kept);
        Ok(Merged { tables, drops, bytes_read, dropped })
    }
}

/// What came of merging the inputs.
struct Merged {
    tables: Vec<TableMeta>,
    drops: Option<Box<dyn DropCollector>>,
    bytes_read: u64,
    dropped: u64,
}
