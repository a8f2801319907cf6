//! Writing single sstables again, each in its place, so that it gets what collectors add to new ones.
//!
//! Oldest data first: what lies deepest is the last that compactions come to by themselves, while younger sstables are soon
//! merged anyway (NEXT §5). One is a compaction with one input that stays in its level and run; others go on beside it.

use std::sync::Arc;

use bolide_base::{Result, TreeId};

use super::Store;
use super::scheduler::WorkState;
use super::tree::Tree;
use crate::compaction::{CompactionPlan, OutputSplit, PlanInput, TableShape, VersionShape};
use crate::version::TableMeta;

/// What writing an sstable again came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rewritten {
    /// It is done.
    One {
        /// Bytes of the old file.
        bytes: u64,
        /// Entries of the old file.
        entries: u64,
    },
    /// Compactions are at work on all that are left.
    Busy,
    /// None is left.
    Nothing,
}

impl Store {
    /// Writes one of the sstables of `tree` that `wanted` wants again, the one with the oldest data, and drops from it what no view
    /// needs. Costs a read and a write of it, and a manifest edit.
    ///
    /// # Errors
    /// `NotFound`, `NoSpace`, `Io`, `Corruption`, `Poisoned`, `ReadOnly`; `Closed` where the store is closing or the tree was
    /// dropped meanwhile. The sstable is then as before.
    pub fn rewrite_one(&self, tree: TreeId, wanted: impl Fn(&TableMeta) -> bool) -> Result<Rewritten> {
        let inner = &*self.inner;
        inner.check_writable()?;
        let tree = inner.tree(tree)?;
        let (plan, bytes, entries) = {
            let mut work = inner.work.lock();
            match pick(&mut work, &tree, &wanted) {
                Ok(picked) => picked,
                Err(outcome) => return Ok(outcome),
            }
        };
        let outcome = inner.compact_tree(&tree, &plan);
        inner.work.lock().end_compaction(tree.id, &plan);
        inner.remove_spent_tombstones();
        inner.remove_obsolete_files();
        inner.wake_workers();
        outcome.map(|()| Rewritten::One { bytes, entries })
    }
}

/// Plans to write again the wanted sstable with the oldest data, and keeps other compactions away from it.
fn pick(
    work: &mut WorkState,
    tree: &Arc<Tree>,
    wanted: &impl Fn(&TableMeta) -> bool,
) -> std::result::Result<(CompactionPlan, u64, u64), Rewritten> {
    let state = tree.state_guard();
    let shape = VersionShape::of(&state.version);
    let mut outcome = Rewritten::Nothing;
    for (level, runs) in state.version.levels().iter().enumerate().rev() {
        for run in runs.iter().rev() {
            for table in run.tables().iter().filter(|table| wanted(table.meta())) {
                let meta = table.meta();
                if !work.reserve_file(tree.id, meta.number) {
                    outcome = Rewritten::Busy;
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
                    // With what collectors add, too, it is to stay one file.
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
