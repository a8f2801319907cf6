//! The tiered layout: sorted runs of similar size are merged together.
//!
//! # Shape
//! All runs are in level 0, newest first. Merged runs are adjacent in age, and the result replaces the newest of them, so
//! newer runs stay newer.
//!
//! # Due
//! Adjacent runs of similar size form a tier: going from new to old, a run joins the tier if it is at most `SIMILAR` times as
//! large as the largest in it. A tier of [`WIDTH`] runs is merged into one, which is then about as large as the runs of the
//! next tier. So a byte is rewritten once per tier, and a tier has fewer than `WIDTH` runs. The layout is for collections with
//! more writes than scans, so `WIDTH` is rather large. If sizes never match and runs accumulate, the cheapest adjacent runs
//! are merged from [`MAX_RUNS`] on.

use std::collections::BTreeSet;
use std::ops::Range;

use super::policy::{
    CompactionPlan, CompactionPolicy, OutputSplit, PlanInput, RunShape, VersionShape, all_inputs,
};
use super::{LayoutStrategy, ViewRule};

/// The number of runs of one tier that are merged.
pub const WIDTH: usize = 8;
/// The maximum size of a run that joins a tier, in relation to the largest run of the tier.
const SIMILAR: u64 = 2;
/// The number of runs at which the cheapest adjacent ones are merged, whatever their sizes.
pub const MAX_RUNS: usize = 32;

/// The layout `tiered`.
pub(super) struct TieredLayout;

impl LayoutStrategy for TieredLayout {
    fn name(&self) -> &'static str {
        "tiered"
    }

    fn summary(&self) -> &'static str {
        "Several runs a level: half the writes"
    }

    fn code(&self) -> u8 {
        1
    }

    fn view_rule(&self) -> ViewRule {
        ViewRule::IfWantedFrom(0)
    }

    fn policy(&self, target_file_bytes: u64, _max_runs: usize) -> Box<dyn CompactionPolicy> {
        Box::new(Tiered::new(target_file_bytes))
    }
}

/// The policy of the tiered layout.
#[derive(Debug, Clone, Copy)]
pub struct Tiered {
    target_file_bytes: u64,
}

impl Tiered {
    /// The policy that starts a new output at `target_file_bytes`.
    pub fn new(target_file_bytes: u64) -> Self {
        Self { target_file_bytes }
    }

    /// The first tier, from new to old, that is wide enough to be merged.
    fn full_tier(runs: &[RunShape<'_>]) -> Option<Range<usize>> {
        let mut start = 0;
        let mut largest = 0;
        for (position, run) in runs.iter().enumerate() {
            let bytes = run.bytes();
            if position > start && bytes > largest * SIMILAR {
                if position - start >= WIDTH {
                    return Some(start..position);
                }
                start = position;
                largest = 0;
            }
            largest = largest.max(bytes);
        }
        (runs.len() - start >= WIDTH).then_some(start..runs.len())
    }

    /// The [`WIDTH`] adjacent runs with the smallest total size.
    fn cheapest_window(runs: &[RunShape<'_>]) -> Option<Range<usize>> {
        let cost = |window: &[RunShape<'_>]| window.iter().map(RunShape::bytes).sum::<u64>();
        let windows = runs.windows(WIDTH).enumerate();
        windows.min_by_key(|(_, window)| cost(window)).map(|(start, _)| start..start + WIDTH)
    }

    /// Merges `runs`, whose oldest is the oldest of the tree if `bottom`.
    fn plan(&self, runs: &[RunShape<'_>], bottom: bool, score: f64) -> Option<CompactionPlan> {
        let newest = runs.first()?;
        let input = |run: u64, file_number: u64| PlanInput { level: 0, run, file_number };
        let inputs = runs.iter().flat_map(|run| run.tables.iter().map(|table| input(run.id, table.number)));
        Some(CompactionPlan {
            score,
            inputs: inputs.collect(),
            output_level: 0,
            output_run: newest.id,
            is_trivial_move: false,
            bottom,
            target_file_bytes: self.target_file_bytes,
            output_split: OutputSplit::Unpartitioned,
            claims: Vec::new(),
        })
    }
}

impl CompactionPolicy for Tiered {
    fn pick(&self, shape: &VersionShape<'_>, busy: &BTreeSet<u64>) -> Option<CompactionPlan> {
        if shape.levels.iter().skip(1).any(|runs| !runs.is_empty()) {
            // Another layout left lower levels, which are older than all runs of the first.
            let is_free = !shape.tables().any(|table| busy.contains(&table.number));
            return self.full(shape).filter(|_| is_free);
        }
        let all = shape.runs(0);
        let is_busy = |run: &RunShape<'_>| run.tables.iter().any(|table| busy.contains(&table.number));
        // Only runs newer than those that are being merged: their order is certain.
        let free = all.iter().position(is_busy).unwrap_or(all.len());
        let runs = &all[..free];
        let due = Self::full_tier(runs)
            .or_else(|| if runs.len() >= MAX_RUNS { Self::cheapest_window(runs) } else { None })?;
        let score = due.len() as f64 / WIDTH as f64;
        let bottom = due.end == all.len();
        self.plan(runs.get(due)?, bottom, score)
    }

    fn full(&self, shape: &VersionShape<'_>) -> Option<CompactionPlan> {
        // Runs that are added meanwhile have the numbers of files that do not exist yet.
        let newest = shape.runs(0).first().map_or(0, |run| run.id);
        let inputs = all_inputs(shape);
        (!inputs.is_empty()).then_some(CompactionPlan {
            score: 1.0,
            inputs,
            output_level: 0,
            output_run: newest,
            is_trivial_move: false,
            bottom: true,
            target_file_bytes: self.target_file_bytes,
            output_split: OutputSplit::Unpartitioned,
            claims: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::sketch::{Sketch, simulate};
    use super::*;

    #[test]
    fn runs_of_similar_size_are_merged() {
        let sketch = Sketch::parse(
            "0: 11[a-z:64] 10[a-z:64] 9[a-z:64] 8[a-z:64] 7[a-z:64] 6[a-z:64] 5[a-z:64] 4[a-z:64] 3[a-z:64] \
             2[a-z:500] 1[a-z:5000]",
        );
        let plan = Tiered::new(64).pick(&sketch.shape(), &BTreeSet::new()).unwrap();
        assert_eq!((plan.inputs.len(), plan.output_run, plan.bottom), (9, 11, false));
        let sketch = Sketch::parse("0: 4[a-z:64] 3[a-z:64] 2[a-z:64] 1[a-z:5000]");
        assert_eq!(Tiered::new(64).pick(&sketch.shape(), &BTreeSet::new()), None);
    }

    #[test]
    fn runs_of_different_sizes_remain_until_there_are_too_many() {
        let runs = |count: u32| {
            let run = |age: u32| format!("{}[a-z:{}]", 100 - age, 3_u64.pow(age));
            Sketch::parse(&format!("0: {}", (0..count).map(run).collect::<Vec<_>>().join(" ")))
        };
        let policy = Tiered::new(64);
        let few = runs(MAX_RUNS as u32 - 1);
        assert_eq!(policy.pick(&few.shape(), &BTreeSet::new()), None);
        let many = runs(MAX_RUNS as u32);
        let plan = policy.pick(&many.shape(), &BTreeSet::new()).unwrap();
        assert_eq!((plan.inputs.len(), plan.output_run, plan.bottom), (WIDTH, 100, false));
    }

    #[test]
    fn runs_at_and_behind_a_busy_one_are_not_merged() {
        let sketch = Sketch::parse(
            "0: 9[a-z:1] 8[a-z:1] 7[a-z:1] 6[a-z:1] 5[a-z:1] 4[a-z:1] 3[a-z:1] 2[a-z:1] 1[a-z:1]",
        );
        let shape = sketch.shape();
        let oldest = BTreeSet::from([shape.levels[0][8].tables[0].number]);
        let plan = Tiered::new(64).pick(&shape, &oldest).unwrap();
        assert_eq!((plan.inputs.len(), plan.bottom), (8, false));
        let middle = BTreeSet::from([shape.levels[0][3].tables[0].number]);
        assert_eq!(Tiered::new(64).pick(&shape, &middle), None);
    }

    #[test]
    fn write_amplification_of_random_writes_stays_low() {
        const MIB: u64 = 1 << 20;
        let small = simulate(&Tiered::new(64 * MIB), 11, 64 * MIB);
        assert!(small.amplification <= 2.0 && small.max_runs <= 8, "{small:?}");
        let large = simulate(&Tiered::new(64 * MIB), 440, 64 * MIB);
        assert!(large.amplification <= 4.0 && large.max_runs <= 22, "{large:?}");
    }
}
