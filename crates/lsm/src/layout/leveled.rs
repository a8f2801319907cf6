//! The leveled layout: one sorted run per level, each level about ten times the one above it.
//!
//! # Shape
//! Level 0 takes the flushes, each a run of its own. The last level contains nearly everything. The levels between are used
//! only as far as required: going up from the last level, each may be a tenth of the one below, and the first that is small
//! enough is the **base level**, into which level 0 is compacted. So a small tree has level 0 and the last level only, and
//! most data has been rewritten once.
//!
//! # Due
//! * Level 0, once it has [`RUN_TRIGGER`] runs: all of them are compacted into the base level together.
//! * A level over its size: the file with the least overlap below, relative to its size, is compacted into the next.
//!
//! Files without overlap are moved and not rewritten.

use std::collections::BTreeSet;

use super::partitioned::is_plain;
use super::policy::{
    CompactionPlan, CompactionPolicy, OutputSplit, PlanInput, RunShape, TableShape, VersionShape, all_inputs,
};
use super::{LayoutStrategy, ViewRule};
use crate::version::LAST_LEVEL;

/// The number of runs at which level 0 is compacted.
pub const RUN_TRIGGER: usize = 4;
/// The ratio of the sizes of adjacent levels.
pub(super) const FANOUT: u64 = 10;
/// The maximum size of the base level in bytes. Up to this size it is the last level itself, and a byte is rewritten only
/// by compactions from level 0.
const BASE_BYTES: u64 = 1 << 30;
/// The id of the single run of every level but the first.
const LEVEL_RUN: u64 = 0;

/// The layout `leveled`.
pub(super) struct LeveledLayout;

impl LayoutStrategy for LeveledLayout {
    fn name(&self) -> &'static str {
        "leveled"
    }

    fn summary(&self) -> &'static str {
        "Each level one sorted run: the best reads"
    }

    fn code(&self) -> u8 {
        0
    }

    fn view_rule(&self) -> ViewRule {
        ViewRule::NoLevel
    }

    fn policy(&self, target_file_bytes: u64, _max_runs: usize) -> Box<dyn CompactionPolicy> {
        Box::new(Leveled::new(target_file_bytes))
    }
}

/// The policy of the leveled layout.
#[derive(Debug, Clone, Copy)]
pub struct Leveled {
    target_file_bytes: u64,
}

/// The level into which level 0 is compacted, and the maximum size of each level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LevelTargets {
    pub(super) base: usize,
    bytes: [u64; LAST_LEVEL + 1],
}

impl LevelTargets {
    pub(super) fn of(shape: &VersionShape<'_>) -> Self {
        let mut bytes = [u64::MAX; LAST_LEVEL + 1];
        let mut size = (1..=LAST_LEVEL).map(|level| shape.level_bytes(level)).max().unwrap_or(0);
        let mut base = LAST_LEVEL;
        while size > BASE_BYTES && base > 1 {
            size /= FANOUT;
            base -= 1;
            bytes[base] = size;
        }
        // A level above the base that is not empty since the tree shrank is emptied.
        for target in &mut bytes[1..base] {
            *target = 1;
        }
        Self { base, bytes }
    }
}

impl Leveled {
    /// The policy that starts a new output at `target_file_bytes`.
    pub fn new(target_file_bytes: u64) -> Self {
        Self { target_file_bytes }
    }

    fn pick_first_level(
        &self,
        shape: &VersionShape<'_>,
        base: usize,
        busy: &BTreeSet<u64>,
    ) -> Option<CompactionPlan> {
        let runs = shape.runs(0);
        let tables: Vec<_> = runs.iter().flat_map(|run| run.tables.iter().copied()).collect();
        let inputs = runs.iter().flat_map(|run| inputs_of(0, run)).collect();
        // Newer data must not overtake a level above the base that is being emptied.
        let output_level = (1..base).find(|&level| !shape.runs(level).is_empty()).unwrap_or(base);
        self.plan(shape, inputs, &tables, output_level, busy)
    }

    fn pick_level(
        &self,
        shape: &VersionShape<'_>,
        level: usize,
        busy: &BTreeSet<u64>,
    ) -> Option<CompactionPlan> {
        let mut tables: Vec<_> =
            shape.runs(level).iter().flat_map(|run| run.tables.iter().copied()).collect();
        let overlap = |table: &TableShape<'_>| -> u64 {
            shape.overlapping(level + 1, &[*table]).iter().map(|below| below.bytes).sum()
        };
        // Bytes below per thousand bytes of the file: the cost of moving it down.
        tables.sort_by_cached_key(|table| {
            (overlap(table).saturating_mul(1_000) / table.bytes.max(1), table.number)
        });
        tables.iter().find_map(|table| {
            let input = PlanInput { level, run: LEVEL_RUN, file_number: table.number };
            self.plan(shape, vec![input], &[*table], level + 1, busy)
        })
    }

    /// A plan with `inputs` and the sstables that they overlap in `output_level`; `None` if any of them is busy.
    fn plan(
        &self,
        shape: &VersionShape<'_>,
        mut inputs: Vec<PlanInput>,
        tables: &[TableShape<'_>],
        output_level: usize,
        busy: &BTreeSet<u64>,
    ) -> Option<CompactionPlan> {
        let below = shape.overlapping(output_level, tables);
        let is_trivial_move = below.is_empty() && are_disjoint(tables);
        inputs.extend(below.iter().map(|table| PlanInput {
            level: output_level,
            run: LEVEL_RUN,
            file_number: table.number,
        }));
        if inputs.is_empty() || inputs.iter().any(|input| busy.contains(&input.file_number)) {
            return None;
        }
        Some(CompactionPlan {
            score: 1.0,
            inputs,
            output_level,
            output_run: LEVEL_RUN,
            is_trivial_move,
            bottom: shape.is_bottom(output_level, tables),
            target_file_bytes: self.target_file_bytes,
            output_split: OutputSplit::Unpartitioned,
            claims: Vec::new(),
        })
    }
}

impl CompactionPolicy for Leveled {
    fn pick(&self, shape: &VersionShape<'_>, busy: &BTreeSet<u64>) -> Option<CompactionPlan> {
        if !is_plain(&shape.levels) {
            // A layout with partitions left levels with several runs.
            let is_free = !shape.tables().any(|table| busy.contains(&table.number));
            return self.full(shape).filter(|_| is_free);
        }
        let targets = LevelTargets::of(shape);
        let mut due: Vec<(f64, usize)> = Vec::new();
        if shape.runs(0).len() >= RUN_TRIGGER {
            due.push((shape.runs(0).len() as f64 / RUN_TRIGGER as f64, 0));
        }
        for level in 1..LAST_LEVEL {
            let score = shape.level_bytes(level) as f64 / targets.bytes[level] as f64;
            if score > 1.0 {
                due.push((score, level));
            }
        }
        due.sort_by(|left, right| right.0.total_cmp(&left.0));
        due.into_iter().find_map(|(score, level)| {
            let plan = match level {
                0 => self.pick_first_level(shape, targets.base, busy),
                _ => self.pick_level(shape, level, busy),
            };
            plan.map(|plan| CompactionPlan { score, ..plan })
        })
    }

    fn full(&self, shape: &VersionShape<'_>) -> Option<CompactionPlan> {
        let inputs = all_inputs(shape);
        (!inputs.is_empty()).then_some(CompactionPlan {
            score: 1.0,
            inputs,
            output_level: LAST_LEVEL,
            output_run: LEVEL_RUN,
            is_trivial_move: false,
            bottom: true,
            target_file_bytes: self.target_file_bytes,
            output_split: OutputSplit::Unpartitioned,
            claims: Vec::new(),
        })
    }
}

fn inputs_of<'a>(level: usize, run: &'a RunShape<'_>) -> impl Iterator<Item = PlanInput> + 'a {
    run.tables.iter().map(move |table| PlanInput { level, run: run.id, file_number: table.number })
}

fn are_disjoint(tables: &[TableShape<'_>]) -> bool {
    let mut sorted = tables.to_vec();
    sorted.sort_by_key(|table| table.smallest_key);
    sorted.windows(2).all(|pair| !pair[0].overlaps(&pair[1]))
}

#[cfg(test)]
mod tests {
    use super::super::policy::sketch::{Sketch, simulate};
    use super::*;

    #[test]
    fn a_tree_without_due_levels_is_not_compacted() {
        let sketch = Sketch::parse("0: 3[a-z:64] 2[a-z:64] 1[a-z:64]\n6: 0[a-m:400 n-z:400]");
        assert_eq!(Leveled::new(64).pick(&sketch.shape(), &BTreeSet::new()), None);
    }

    #[test]
    fn four_runs_are_compacted_into_the_last_level_of_a_small_tree() {
        let sketch = Sketch::parse("0: 4[a-z:64] 3[a-z:64] 2[a-z:64] 1[a-z:64]\n6: 0[a-m:400 n-z:400]");
        let plan = Leveled::new(64).pick(&sketch.shape(), &BTreeSet::new()).unwrap();
        assert_eq!((plan.inputs.len(), plan.output_level, plan.bottom), (6, 6, true));
        assert!(!plan.is_trivial_move);
    }

    #[test]
    fn runs_without_overlap_are_moved() {
        let sketch = Sketch::parse("0: 4[g-h:64] 3[e-f:64] 2[c-d:64] 1[a-b:64]\n6: 0[x-z:400]");
        let plan = Leveled::new(64).pick(&sketch.shape(), &BTreeSet::new()).unwrap();
        assert_eq!((plan.inputs.len(), plan.is_trivial_move), (4, true));
    }

    #[test]
    fn a_busy_input_blocks_the_plan() {
        let sketch = Sketch::parse("0: 4[a-z:64] 3[a-z:64] 2[a-z:64] 1[a-z:64]");
        let one = BTreeSet::from([sketch.shape().levels[0][2].tables[0].number]);
        assert_eq!(Leveled::new(64).pick(&sketch.shape(), &one), None);
    }

    #[test]
    fn newer_data_does_not_overtake_a_level_that_is_being_emptied() {
        let sketch = Sketch::parse("0: 4[a-z:64] 3[a-z:64] 2[a-z:64] 1[a-z:64]\n5: 0[a-k:10]\n6: 0[a-z:100]");
        let shape = sketch.shape();
        let policy = Leveled::new(64);
        let first_level =
            policy.pick_first_level(&shape, LevelTargets::of(&shape).base, &BTreeSet::new()).unwrap();
        assert_eq!((first_level.output_level, first_level.bottom), (5, false));
        let due = policy.pick(&shape, &BTreeSet::new()).unwrap();
        assert_eq!((due.inputs[0].level, due.output_level), (5, 6));
    }

    #[test]
    fn write_amplification_of_random_writes_stays_low() {
        const MIB: u64 = 1 << 20;
        // 680 MB in flushes of 64 MB, and forty times that.
        let small = simulate(&Leveled::new(64 * MIB), 11, 64 * MIB);
        assert!(small.amplification <= 4.0, "{small:?}");
        let large = simulate(&Leveled::new(64 * MIB), 440, 64 * MIB);
        assert!(large.amplification <= 20.0, "{large:?}");
        assert!(large.max_runs <= 8, "{large:?}");
    }
}
