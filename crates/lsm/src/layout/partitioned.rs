//! The partitioned layout: full memtables are flushed into one level of partitions (REMIX §4.2), as a
//! [plan](super::flush_plan) decides.
//!
//! # Work for compactions
//! Level 0 contains the flushes that could not be written to partitions; it is moved down as a whole. A partition with too
//! many runs, for example after a change of layout, is merged and split.

use std::collections::BTreeSet;

use super::flush_plan::TABLES_PER_PARTITION;
use super::policy::{
    CompactionPlan, CompactionPolicy, OutputSplit, PlanInput, RunShape, TableShape, VersionShape, all_inputs,
};
use super::{FlushTarget, LayoutStrategy, ViewRule};
use crate::version::LAST_LEVEL;

/// The layout `partitioned`.
pub(super) struct PartitionedLayout;

impl LayoutStrategy for PartitionedLayout {
    fn name(&self) -> &'static str {
        "partitioned"
    }

    fn summary(&self) -> &'static str {
        "One level of partitions: the fewest writes if they are near each other"
    }

    fn code(&self) -> u8 {
        3
    }

    fn flush_target(&self) -> FlushTarget {
        FlushTarget::Partitions
    }

    fn partition_tables(&self) -> Option<usize> {
        Some(TABLES_PER_PARTITION)
    }

    fn view_rule(&self) -> ViewRule {
        // Sstables above the partitions soon move into them.
        ViewRule::From(1)
    }

    fn policy(&self, target_file_bytes: u64, max_runs: usize) -> Box<dyn CompactionPolicy> {
        Box::new(Partitioned::new(target_file_bytes, max_runs))
    }
}

/// The compaction policy of the partitioned layout, for the work that flushes leave.
#[derive(Debug, Clone, Copy)]
pub struct Partitioned {
    target_file_bytes: u64,
    max_runs: usize,
}

impl Partitioned {
    /// The policy that starts a new output at `target_file_bytes`, and merges partitions with more than `max_runs` runs.
    pub fn new(target_file_bytes: u64, max_runs: usize) -> Self {
        Self { target_file_bytes, max_runs }
    }

    /// Moves all sstables above the partitions into them.
    fn pick_above(&self, shape: &VersionShape<'_>, busy: &BTreeSet<u64>) -> Option<CompactionPlan> {
        let mut inputs = all_inputs(shape);
        inputs.retain(|input| input.level < LAST_LEVEL);
        append(shape, inputs, LAST_LEVEL, self.target_file_bytes, busy)
    }
}

impl CompactionPolicy for Partitioned {
    fn pick(&self, shape: &VersionShape<'_>, busy: &BTreeSet<u64>) -> Option<CompactionPlan> {
        if (0..LAST_LEVEL).any(|level| !shape.runs(level).is_empty()) {
            return self.pick_above(shape, busy);
        }
        merge_tallest(shape, self.max_runs.max(1) + 1, self.target_file_bytes, busy)
    }

    fn full(&self, shape: &VersionShape<'_>) -> Option<CompactionPlan> {
        full_partitions(shape, self.target_file_bytes)
    }
}

/// A plan that adds `inputs`, all newer than `output_level`, on top of its partitions; `None` without inputs, or if one of
/// them or an sstable of those partitions is busy.
pub(super) fn append(
    shape: &VersionShape<'_>,
    inputs: Vec<PlanInput>,
    output_level: usize,
    target_file_bytes: u64,
    busy: &BTreeSet<u64>,
) -> Option<CompactionPlan> {
    let numbers: BTreeSet<u64> = inputs.iter().map(|input| input.file_number).collect();
    let tables: Vec<TableShape<'_>> =
        shape.tables().filter(|table| numbers.contains(&table.number)).collect();
    let (first, last) = (
        tables.iter().map(|table| table.smallest_key).min()?,
        tables.iter().map(|table| table.largest_key).max()?,
    );
    let claims: Vec<u64> = shape
        .partitions(output_level)
        .iter()
        .filter(|partition| partition.touches(first, last))
        .flat_map(|partition| partition.tables.iter().map(|(_, table)| table.number))
        .collect();
    if numbers.iter().chain(&claims).any(|number| busy.contains(number)) {
        return None;
    }
    let overlaps_nothing = shape.overlapping(output_level, &tables).is_empty();
    let mut sorted = tables.clone();
    sorted.sort_by_key(|table| table.smallest_key);
    let crosses = |table: &TableShape<'_>| {
        let mut boundaries = shape.boundaries(output_level).iter();
        boundaries.any(|boundary| table.smallest_key < *boundary && *boundary <= table.largest_key)
    };
    let is_trivial_move =
        sorted.windows(2).all(|pair| !pair[0].overlaps(&pair[1])) && !sorted.iter().any(crosses);
    Some(CompactionPlan {
        score: 1.0,
        inputs,
        output_level,
        output_run: 0,
        is_trivial_move,
        bottom: overlaps_nothing && shape.is_bottom(output_level, &tables),
        target_file_bytes,
        output_split: OutputSplit::AtBoundaries,
        claims,
    })
}

/// The plan to merge the partition of the last level with the most runs in place, if it has at least `runs`.
pub(super) fn merge_tallest(
    shape: &VersionShape<'_>,
    runs: usize,
    target_file_bytes: u64,
    busy: &BTreeSet<u64>,
) -> Option<CompactionPlan> {
    let partitions = shape.partitions(LAST_LEVEL);
    let is_free = |table: &(u64, TableShape<'_>)| !busy.contains(&table.1.number);
    let due = partitions.iter().filter(|partition| partition.runs() >= runs);
    let tallest =
        due.filter(|partition| partition.tables.iter().all(is_free)).max_by_key(|one| one.runs())?;
    let input = |(run, table): &(u64, TableShape<'_>)| PlanInput {
        level: LAST_LEVEL,
        run: *run,
        file_number: table.number,
    };
    Some(CompactionPlan {
        score: tallest.runs() as f64 / runs as f64,
        inputs: tallest.tables.iter().map(input).collect(),
        output_level: LAST_LEVEL,
        output_run: 0,
        is_trivial_move: false,
        bottom: true,
        target_file_bytes,
        output_split: OutputSplit::IntoPartitions(TABLES_PER_PARTITION),
        claims: Vec::new(),
    })
}

/// The compaction of everything into partitions of one run.
pub(super) fn full_partitions(shape: &VersionShape<'_>, target_file_bytes: u64) -> Option<CompactionPlan> {
    let inputs = all_inputs(shape);
    (!inputs.is_empty()).then_some(CompactionPlan {
        score: 1.0,
        inputs,
        output_level: LAST_LEVEL,
        output_run: 0,
        is_trivial_move: false,
        bottom: true,
        target_file_bytes,
        output_split: OutputSplit::IntoPartitions(TABLES_PER_PARTITION),
        claims: Vec::new(),
    })
}

/// True if the levels below the first are those of a layout without partitions: one run each, number 0.
pub(super) fn is_plain(levels: &[Vec<RunShape<'_>>]) -> bool {
    levels.iter().skip(1).all(|runs| runs.iter().all(|run| run.id == 0))
}

#[cfg(test)]
#[path = "partitioned_tests.rs"]
mod tests;
