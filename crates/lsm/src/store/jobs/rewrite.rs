//! Rewrites of single sstables in place, which add the output of new collectors.
//!
//! Oldest data first: compactions reach the deepest sstables last, while younger ones are merged soon anyway (NEXT §5).
//! A rewrite is a compaction with one input that stays in its level and run; other compactions run concurrently.

use std::sync::Arc;

use bolide_base::{Result, TreeId};

use crate::compaction::{CompactionPlan, OutputSplit, PlanInput, TableShape, VersionShape};
use crate::store::Store;
use crate::store::jobs::clean_up;
use crate::store::jobs::compact::compact_tree;
use crate::store::jobs::work::WorkState;
use crate::store::tree::Tree;
use crate::version::TableMeta;

/// The outcome of a rewrite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RewriteOutcome {
    /// One sstable was rewritten.
    One {
        /// Bytes of the old file.
        bytes: u64,
        /// Entries of the old file.
        entries: u64,
    },
    /// Compactions are running on all that are left.
    Busy,
    /// None is left.
    Nothing,
}

impl Store {
    /// Rewrites the sstable of `tree` with the oldest data for which `wanted` returns true, without the versions that
    /// no view needs. Cost: a read and a write of the sstable, and a manifest edit.
    ///
    /// # Errors
    /// `NotFound`, `NoSpace`, `Io`, `Corruption`, `Poisoned`, `ReadOnly`; `Closed` if the store is closing or the tree
    /// was dropped meanwhile. The sstable is then unchanged.
    pub fn rewrite_one(&self, tree: TreeId, wanted: impl Fn(&TableMeta) -> bool) -> Result<RewriteOutcome> {
        let inner = &*self.inner;
        inner.health.check()?;
        let tree = inner.trees.get(tree)?;
        let (plan, bytes, entries) = {
            let mut work = inner.work.lock();
            match plan_rewrite(&mut work, &tree, &wanted) {
                Ok(picked) => picked,
                Err(outcome) => return Ok(outcome),
            }
        };
        let outcome = compact_tree(&inner.table_environment(), &tree, &plan);
        inner.work.lock().end_compaction(tree.id, &plan);
        clean_up(inner);
        inner.backlog().changed();
        outcome.map(|()| RewriteOutcome::One { bytes, entries })
    }
}

/// Plans the rewrite of the wanted sstable with the oldest data, and reserves it.
fn plan_rewrite(
    work: &mut WorkState,
    tree: &Arc<Tree>,
    wanted: &impl Fn(&TableMeta) -> bool,
) -> std::result::Result<(CompactionPlan, u64, u64), RewriteOutcome> {
    let state = tree.state_guard();
    let shape = VersionShape::of(&state.version);
    let mut outcome = RewriteOutcome::Nothing;
    for (level, runs) in state.version.levels().iter().enumerate().rev() {
        for run in runs.iter().rev() {
            for table in run.tables().iter().filter(|table| wanted(table.meta())) {
                let meta = table.meta();
                if !work.reserve_file(tree.id, meta.number) {
                    outcome = RewriteOutcome::Busy;
                    continue;
                }
                let own = TableShape::of(meta);
                let older = shape.runs(level).iter().filter(|other| other.id < run.id());
                let is_oldest = older.flat_map(|run| &run.tables).all(|table| !table.overlaps(&own));
                let plan = CompactionPlan {
                    score: 0.0,
                    inputs: vec![PlanInput { level, run: run.id(), file_number: meta.number }],
                    output_level: level,
                    output_run: run.id(),
                    is_trivial_move: false,
                    bottom: is_oldest && shape.is_bottom(level, &[own]),
                    // One output file, even with the data of new collectors.
                    target_file_bytes: meta.file_bytes.saturating_mul(2),
                    output_split: OutputSplit::WithinPartition,
                    claims: Vec::new(),
                };
                return Ok((plan, meta.file_bytes, meta.entries));
            }
        }
    }
    Err(outcome)
}
