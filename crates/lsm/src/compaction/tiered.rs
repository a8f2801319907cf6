//! The tiered layout: sorted runs of similar size are merged together, and nothing else.
//!
//! # Shape
//! All runs are in level 0, newest first. Merged runs are neighbours in age, and the result takes the place
//! of the newest of them, so newer runs stay newer.
//!
//! # Due
//! Once there are [`RUN_TRIGGER`] runs: starting with the newest, runs are taken as long as the next one
//! is not larger than all taken so far together. Small runs melt into one; large old ones are left alone
//! until enough data has gathered above them. If that takes too few, the cheapest neighbours are merged
//! to keep the number of runs bounded.

use std::collections::BTreeSet;

use super::policy::{CompactionPlan, CompactionPolicy, PlanInput, RunShape, VersionShape, all_inputs};

/// Runs from which on some are merged.
pub const RUN_TRIGGER: usize = 8;
/// Fewest runs that are worth a merge of similar sizes.
const LEAST_WIDTH: usize = 3;

/// The policy of the tiered layout.
#[derive(Debug, Clone, Copy)]
pub struct Tiered {
    target_file_bytes: u64,
}

impl Tiered {
    /// The policy that cuts outputs at `target_file_bytes`.
    pub fn new(target_file_bytes: u64) -> Self {
        Self { target_file_bytes }
    }

    /// How many of the newest runs are of similar size.
    fn similar_width(runs: &[RunShape<'_>]) -> usize {
        let mut sum = 0;
        for (position, run) in runs.iter().enumerate() {
            let bytes = run.bytes();
            if position > 0 && bytes > sum {
                return position;
            }
            sum += bytes;
        }
        runs.len()
    }

    /// The position of the [`LEAST_WIDTH`] neighbours that are smallest together.
    fn cheapest_window(runs: &[RunShape<'_>]) -> Option<usize> {
        let cost = |window: &[RunShape<'_>]| window.iter().map(RunShape::bytes).sum::<u64>();
        let windows = runs.windows(LEAST_WIDTH).enumerate();
        windows.min_by_key(|(_, window)| cost(window)).map(|(position, _)| position)
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
        })
    }
}

impl CompactionPolicy for Tiered {
    fn pick(&self, shape: &VersionShape<'_>, busy: &BTreeSet<u64>) -> Option<CompactionPlan> {
        let all = shape.runs(0);
        let is_busy = |run: &RunShape<'_>| run.tables.iter().any(|table| busy.contains(&table.number));
        // Only runs newer than those that are being merged: their order is not in doubt.
        let free = all.iter().position(is_busy).unwrap_or(all.len());
        let runs = &all[..free];
        if runs.len() < RUN_TRIGGER {
            return None;
        }
        let width = Self::similar_width(runs);
        let (from, to) = if width >= LEAST_WIDTH {
            (0, width)
        } else {
            let from = Self::cheapest_window(runs)?;
            (from, from + LEAST_WIDTH)
        };
        let score = runs.len() as f64 / RUN_TRIGGER as f64;
        self.plan(&runs[from..to], to == all.len(), score)
    }

    fn full(&self, shape: &VersionShape<'_>) -> Option<CompactionPlan> {
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
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::sketch::{Sketch, simulate};
    use super::*;

    #[test]
    fn runs_of_similar_size_melt_together() {
        let sketch = Sketch::parse(
            "0: 8[a-z:64] 7[a-z:64] 6[a-z:64] 5[a-z:64] 4[a-z:64] 3[a-z:64] 2[a-z:500] 1[a-z:5000]",
        );
        let plan = Tiered::new(64).pick(&sketch.shape(), &BTreeSet::new()).unwrap();
        assert_eq!((plan.inputs.len(), plan.output_run, plan.bottom), (6, 8, false));
    }

    #[test]
    fn the_number_of_runs_stays_bounded_when_sizes_grow_steeply() {
        let sketch = Sketch::parse(
            "0: 8[a-z:1] 7[a-z:10] 6[a-z:100] 5[a-z:1000] 4[a-z:2001] 3[a-z:5000] 2[a-z:10001] 1[a-z:50000]",
        );
        let plan = Tiered::new(64).pick(&sketch.shape(), &BTreeSet::new()).unwrap();
        assert_eq!((plan.inputs.len(), plan.output_run), (3, 8));
    }

    #[test]
    fn runs_at_and_behind_a_busy_one_are_left_alone() {
        let sketch = Sketch::parse(
            "0: 9[a-z:1] 8[a-z:1] 7[a-z:1] 6[a-z:1] 5[a-z:1] 4[a-z:1] 3[a-z:1] 2[a-z:1] 1[a-z:1]",
        );
        let shape = sketch.shape();
        let oldest = BTreeSet::from([shape.levels[0][8].tables[0].number]);
        let plan = Tiered::new(64).pick(&shape, &oldest).unwrap();
        assert_eq!((plan.inputs.len(), plan.bottom), (8, false));
        let middle = BTreeSet::from([shape.levels[0][4].tables[0].number]);
        assert_eq!(Tiered::new(64).pick(&shape, &middle), None);
    }

    #[test]
    fn write_amplification_of_random_writes_stays_low() {
        const MIB: u64 = 1 << 20;
        let small = simulate(&Tiered::new(64 * MIB), 11, 64 * MIB);
        assert!(small.amplification <= 2.5 && small.most_runs < RUN_TRIGGER, "{small:?}");
        let large = simulate(&Tiered::new(64 * MIB), 440, 64 * MIB);
        assert!(large.amplification <= 6.0, "{large:?}");
    }
}
