//! The fragmented layout: levels of partitions, like the guards of PebblesDB.
//!
//! # Shape
//! Level 0 takes the flushes, each a run of its own. All of it is compacted into the base level together, split at the
//! boundaries of its partitions, as new runs on top of the existing ones: nothing of that level is rewritten. A partition with
//! [`MAX_RUNS`] runs is merged into the partitions of the level below in the same way. In the last level such a partition is
//! merged in place, and split if it is large. So a byte is written once per level, and occasionally again in the last.
//!
//! The levels in use are determined as in the leveled layout: the last, and above it as many as its size requires. An empty
//! level gets every n-th boundary of the last one.
//!
//! Runs of a partition are divided by age: all of level 0, or all of a partition, moves at once, so later runs are newer.

use std::collections::BTreeSet;

use super::flush_plan::TABLES_PER_PARTITION;
use super::leveled::{FANOUT, LevelTargets, RUN_TRIGGER};
use super::partitioned::{append, full_partitions, merge_tallest};
use super::policy::{CompactionPlan, CompactionPolicy, OutputSplit, PlanInput, VersionShape};
use super::{LayoutStrategy, ViewRule};
use crate::version::LAST_LEVEL;

/// The number of runs at which a partition is merged.
pub const MAX_RUNS: usize = 4;

/// The layout `fragmented`.
pub(super) struct FragmentedLayout;

impl LayoutStrategy for FragmentedLayout {
    fn name(&self) -> &'static str {
        "fragmented"
    }

    fn summary(&self) -> &'static str {
        "Partitions within levels, rarely rewritten"
    }

    fn code(&self) -> u8 {
        2
    }

    fn partition_tables(&self) -> Option<usize> {
        Some(TABLES_PER_PARTITION)
    }

    fn view_rule(&self) -> ViewRule {
        ViewRule::From(0)
    }

    fn policy(&self, target_file_bytes: u64, _max_runs: usize) -> Box<dyn CompactionPolicy> {
        Box::new(Fragmented::new(target_file_bytes))
    }
}

/// The policy of the fragmented layout.
#[derive(Debug, Clone, Copy)]
pub struct Fragmented {
    target_file_bytes: u64,
}

impl Fragmented {
    /// The policy that starts a new output at `target_file_bytes`.
    pub fn new(target_file_bytes: u64) -> Self {
        Self { target_file_bytes }
    }

    /// Moves the runs of level 0, whose score is `score`, to the highest level that is not empty, or to `base`.
    fn pick_first_level(
        &self,
        shape: &VersionShape<'_>,
        base: usize,
        score: f64,
        busy: &BTreeSet<u64>,
    ) -> Option<CompactionPlan> {
        let output_level = (1..base).find(|&level| !shape.runs(level).is_empty()).unwrap_or(base);
        let inputs = shape.runs(0).iter().flat_map(|run| {
            run.tables.iter().map(|table| PlanInput { level: 0, run: run.id, file_number: table.number })
        });
        let plan = append(shape, inputs.collect(), output_level, self.target_file_bytes, busy)?;
        let is_fresh = output_level < LAST_LEVEL && shape.runs(output_level).is_empty() && busy.is_empty();
        let output_split =
            if is_fresh { OutputSplit::At(boundaries_of(shape, output_level)) } else { plan.output_split };
        let is_trivial_move = plan.is_trivial_move && output_split == OutputSplit::AtBoundaries;
        Some(CompactionPlan { score, output_split, is_trivial_move, ..plan })
    }

    /// Moves the partition of `level` with the most runs down, if it has at least `runs`.
    fn pick_partition(
        &self,
        shape: &VersionShape<'_>,
        level: usize,
        runs: usize,
        busy: &BTreeSet<u64>,
    ) -> Option<CompactionPlan> {
        let mut partitions = shape.partitions(level);
        partitions.retain(|partition| partition.runs() >= runs);
        partitions.sort_by_key(|partition| std::cmp::Reverse(partition.runs()));
        partitions.iter().find_map(|partition| {
            let inputs = partition.tables.iter();
            let inputs = inputs.map(|(run, table)| PlanInput { level, run: *run, file_number: table.number });
            let plan = append(shape, inputs.collect(), level + 1, self.target_file_bytes, busy)?;
            Some(CompactionPlan { score: partition.runs() as f64 / runs as f64, ..plan })
        })
    }
}

/// Boundaries for the empty `level`: those of the last level, thinned out by the fanout for each level between.
fn boundaries_of(shape: &VersionShape<'_>, level: usize) -> Vec<Vec<u8>> {
    let step = (level..LAST_LEVEL).fold(1, |step, _| step * FANOUT as usize);
    shape.boundaries(LAST_LEVEL).iter().step_by(step).map(|key| key.to_vec()).collect()
}

impl CompactionPolicy for Fragmented {
    fn pick(&self, shape: &VersionShape<'_>, busy: &BTreeSet<u64>) -> Option<CompactionPlan> {
        let base = LevelTargets::of(shape).base;
        let runs = shape.runs(0).len();
        if runs >= RUN_TRIGGER {
            // While level 0 waits for busy files, no compaction below starts that it would have to wait for again.
            return self.pick_first_level(shape, base, runs as f64 / RUN_TRIGGER as f64, busy);
        }
        // A level above the base that is not empty since the tree shrank is emptied.
        (1..base)
            .find_map(|level| self.pick_partition(shape, level, 1, busy))
            .or_else(|| {
                (base..LAST_LEVEL).find_map(|level| self.pick_partition(shape, level, MAX_RUNS, busy))
            })
            .or_else(|| merge_tallest(shape, MAX_RUNS, self.target_file_bytes, busy))
    }

    fn full(&self, shape: &VersionShape<'_>) -> Option<CompactionPlan> {
        full_partitions(shape, self.target_file_bytes)
    }
}

#[cfg(test)]
#[path = "fragmented_tests.rs"]
mod tests;
