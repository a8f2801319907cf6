//! The input and the output of compaction policies. Policies are pure: no I/O, no clock, no state.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::version::{LEVELS, SortedRun, TableHandle, TableMeta, Version};

/// The facts about an sstable that a policy uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableShape<'a> {
    /// The file number.
    pub number: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// The smallest user key.
    pub smallest_key: &'a [u8],
    /// The largest user key.
    pub largest_key: &'a [u8],
}

impl<'a> TableShape<'a> {
    /// The sstable that `meta` describes.
    pub fn of(meta: &'a TableMeta) -> Self {
        Self {
            number: meta.number,
            bytes: meta.file_bytes,
            smallest_key: &meta.smallest_key,
            largest_key: &meta.largest_key,
        }
    }

    /// True if the key ranges of the two overlap.
    pub fn overlaps(&self, other: &TableShape<'_>) -> bool {
        self.smallest_key <= other.largest_key && other.smallest_key <= self.largest_key
    }
}

/// A sorted run: sstables in key order, without overlap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunShape<'a> {
    /// The position within the level: larger is newer.
    pub id: u64,
    /// The sstables in key order.
    pub tables: Vec<TableShape<'a>>,
}

impl RunShape<'_> {
    /// The size of all sstables in bytes.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.bytes).sum()
    }
}

/// The facts about a version that a policy uses: levels from the first on disk, their runs newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VersionShape<'a> {
    /// The levels; a deeper level holds older data.
    pub levels: Vec<Vec<RunShape<'a>>>,
    /// The boundaries of each level, ascending.
    pub boundaries: Vec<Vec<&'a [u8]>>,
}

/// The facts about a partition of a level that a policy uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionShape<'a> {
    /// The first key; `None` for the first partition.
    pub start: Option<&'a [u8]>,
    /// The first key behind the partition; `None` for the last one.
    pub end: Option<&'a [u8]>,
    /// The sstables with their runs, newest runs first.
    pub tables: Vec<(u64, TableShape<'a>)>,
}

impl PartitionShape<'_> {
    /// The number of sorted runs.
    pub fn runs(&self) -> usize {
        self.tables.chunk_by(|one, other| one.0 == other.0).count()
    }

    /// True if the partition contains a key from `first` to `last`.
    pub fn touches(&self, first: &[u8], last: &[u8]) -> bool {
        self.start.is_none_or(|start| start <= last) && self.end.is_none_or(|end| first < end)
    }
}

impl<'a> VersionShape<'a> {
    /// The shape of a version.
    pub fn of(version: &'a Version) -> Self {
        let table = |table: &'a Arc<TableHandle>| TableShape::of(table.meta());
        let run = |run: &'a Arc<SortedRun>| RunShape {
            id: run.id(),
            tables: run.tables().iter().map(table).collect(),
        };
        let boundaries = |level| version.boundaries(level).iter().map(Vec::as_slice).collect();
        Self {
            levels: version.levels().iter().map(|runs| runs.iter().map(run).collect()).collect(),
            boundaries: (0..LEVELS).map(boundaries).collect(),
        }
    }

    /// All sstables.
    pub fn tables(&self) -> impl Iterator<Item = TableShape<'a>> {
        self.levels.iter().flatten().flat_map(|run| run.tables.iter().copied())
    }

    /// The boundaries of `level`.
    pub fn boundaries(&self, level: usize) -> &[&'a [u8]] {
        self.boundaries.get(level).map_or(&[], Vec::as_slice)
    }

    /// The partitions of `level` in key order.
    pub fn partitions(&self, level: usize) -> Vec<PartitionShape<'a>> {
        let mut rests: Vec<_> = self.runs(level).iter().map(|run| (run.id, run.tables.as_slice())).collect();
        let mut partitions = Vec::new();
        let mut start = None;
        for end in self.boundaries(level).iter().map(|&end| Some(end)).chain([None]) {
            let mut tables = Vec::new();
            for (id, rest) in &mut rests {
                let is_here = |table: &&TableShape<'_>| end.is_none_or(|end| table.smallest_key < end);
                let (here, behind) = rest.split_at(rest.iter().take_while(is_here).count());
                tables.extend(here.iter().map(|table| (*id, *table)));
                *rest = behind;
            }
            partitions.push(PartitionShape { start, end, tables });
            start = end;
        }
        partitions
    }

    /// The runs of `level`, newest first.
    pub fn runs(&self, level: usize) -> &[RunShape<'a>] {
        self.levels.get(level).map_or(&[], Vec::as_slice)
    }

    /// The size of `level` in bytes.
    pub fn level_bytes(&self, level: usize) -> u64 {
        self.runs(level).iter().map(RunShape::bytes).sum()
    }

    /// The sstables of `level` that overlap any of `inputs`.
    pub fn overlapping(&self, level: usize, inputs: &[TableShape<'_>]) -> Vec<TableShape<'a>> {
        let tables = self.runs(level).iter().flat_map(|run| &run.tables);
        let (Some(smallest), Some(largest)) = (
            inputs.iter().map(|table| table.smallest_key).min(),
            inputs.iter().map(|table| table.largest_key).max(),
        ) else {
            return Vec::new();
        };
        let range = TableShape { number: 0, bytes: 0, smallest_key: smallest, largest_key: largest };
        tables.filter(|table| table.overlaps(&range)).copied().collect()
    }

    /// True if no level below `level` has an sstable in the key range of `inputs`.
    pub fn is_bottom(&self, level: usize, inputs: &[TableShape<'_>]) -> bool {
        (level + 1..self.levels.len()).all(|below| self.overlapping(below, inputs).is_empty())
    }
}

/// One input of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanInput {
    /// The level.
    pub level: usize,
    /// The sorted run.
    pub run: u64,
    /// The file.
    pub file_number: u64,
}

/// The positions at which outputs end besides at their size, and the new partitions of their level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputSplit {
    /// None: the level has no partitions any more, and the outputs join one run.
    Unpartitioned,
    /// None, as the inputs are one run of one partition: the outputs replace them.
    WithinPartition,
    /// The boundaries of the level. Each output joins the lowest run above all sstables that it overlaps.
    AtBoundaries,
    /// These boundaries, ascending, replace those of the level. It has no sstables.
    At(Vec<Vec<u8>>),
    /// None; each group of this many outputs becomes a partition. The inputs are all of one partition, or of the tree.
    IntoPartitions(usize),
}

/// The inputs and the output of a compaction.
#[derive(Debug, Clone, PartialEq)]
pub struct CompactionPlan {
    /// The urgency: 1 is due, 2 is twice over its target.
    pub score: f64,
    /// The sstables to read, newest data first.
    pub inputs: Vec<PlanInput>,
    /// The level of the outputs.
    pub output_level: usize,
    /// The run of that level that the outputs join.
    pub output_run: u64,
    /// True if the inputs overlap neither each other nor the output level: they are moved without being read.
    pub is_trivial_move: bool,
    /// True if no older version of any key of the inputs exists outside of them.
    pub bottom: bool,
    /// Size at which a new output starts, in bytes.
    pub target_file_bytes: u64,
    /// Further positions at which outputs end.
    pub output_split: OutputSplit,
    /// Sstables that are not inputs and must not move meanwhile.
    pub claims: Vec<u64>,
}

impl CompactionPlan {
    /// The file numbers that no other compaction may use.
    pub fn busy_files(&self) -> impl Iterator<Item = u64> {
        self.input_files().chain(self.claims.iter().copied())
    }

    /// The file numbers of the inputs.
    pub fn input_files(&self) -> impl Iterator<Item = u64> {
        self.inputs.iter().map(|input| input.file_number)
    }
}

/// Chooses the next compaction.
pub trait CompactionPolicy {
    /// The most urgent compaction that uses none of the `busy` files; `None` if nothing is due.
    fn pick(&self, shape: &VersionShape<'_>, busy: &BTreeSet<u64>) -> Option<CompactionPlan>;

    /// The compaction of everything into one run; `None` for an empty tree.
    fn full(&self, shape: &VersionShape<'_>) -> Option<CompactionPlan>;
}

/// All of `shape` as inputs.
pub(super) fn all_inputs(shape: &VersionShape<'_>) -> Vec<PlanInput> {
    let mut inputs = Vec::new();
    for (level, runs) in shape.levels.iter().enumerate() {
        for run in runs {
            let input = |table: &TableShape<'_>| PlanInput { level, run: run.id, file_number: table.number };
            inputs.extend(run.tables.iter().map(input));
        }
    }
    inputs
}

/// Shapes written as text, and a simulated tree under a policy, for tests.
#[cfg(test)]
pub(super) mod sketch {
    use super::*;

    /// A shape that owns its keys. `"0: 2[a-f:64] 1[a-z:64]\n6: 0[a-m:640 n-z:640]"` is level 0 with the runs 2 and 1 of one
    /// file each and level 6 with run 0 of two files; sizes in bytes.
    #[derive(Debug, Default)]
    pub(crate) struct Sketch {
        levels: Vec<Vec<(u64, Vec<Table>)>>,
    }

    #[derive(Debug, Clone)]
    struct Table {
        number: u64,
        bytes: u64,
        smallest: Vec<u8>,
        largest: Vec<u8>,
    }

    impl Sketch {
        pub(crate) fn parse(text: &str) -> Self {
            let mut sketch = Self { levels: vec![Vec::new(); 7] };
            let mut number = 0;
            for line in text.lines() {
                let (level, runs) = line.split_once(": ").unwrap();
                for run in runs.split(']').filter(|run| !run.trim().is_empty()) {
                    let (id, tables) = run.trim().split_once('[').unwrap();
                    let tables = tables.split(' ').map(|table| {
                        let (range, bytes) = table.split_once(':').unwrap();
                        let (smallest, largest) = range.split_once('-').unwrap();
                        number += 1;
                        Table {
                            number,
                            bytes: bytes.parse().unwrap(),
                            smallest: smallest.into(),
                            largest: largest.into(),
                        }
                    });
                    let tables = tables.collect();
                    sketch.levels[level.parse::<usize>().unwrap()].push((id.parse().unwrap(), tables));
                }
            }
            sketch
        }

        pub(crate) fn shape(&self) -> VersionShape<'_> {
            let mut levels = Vec::new();
            for runs in &self.levels {
                let mut shapes = Vec::new();
                for (id, tables) in runs {
                    shapes.push(RunShape { id: *id, tables: tables.iter().map(Table::shape).collect() });
                }
                levels.push(shapes);
            }
            VersionShape { levels, boundaries: Vec::new() }
        }

        /// Executes a plan whose keys are evenly distributed: nothing is dropped.
        fn apply(&mut self, plan: &CompactionPlan, next_number: &mut u64) -> u64 {
            let input_files: BTreeSet<u64> = plan.input_files().collect();
            let mut inputs = Vec::new();
            for (_, tables) in self.levels.iter_mut().flatten() {
                inputs.extend(tables.iter().filter(|table| input_files.contains(&table.number)).cloned());
                tables.retain(|table| !input_files.contains(&table.number));
            }
            for runs in &mut self.levels {
                runs.retain(|(_, tables)| !tables.is_empty());
            }
            let bytes: u64 = inputs.iter().map(|table| table.bytes).sum();
            let outputs =
                if plan.is_trivial_move { inputs } else { divide(&inputs, bytes, plan, next_number) };
            let runs = &mut self.levels[plan.output_level];
            match runs.iter_mut().find(|(id, _)| *id == plan.output_run) {
                Some((_, tables)) => tables.extend(outputs),
                None => runs.push((plan.output_run, outputs)),
            }
            runs.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
            for (_, tables) in runs.iter_mut() {
                tables.sort_by(|left, right| left.smallest.cmp(&right.smallest));
                assert!(tables.windows(2).all(|pair| pair[0].largest < pair[1].smallest));
            }
            if plan.is_trivial_move { 0 } else { bytes }
        }
    }

    impl Table {
        fn shape(&self) -> TableShape<'_> {
            TableShape {
                number: self.number,
                bytes: self.bytes,
                smallest_key: &self.smallest,
                largest_key: &self.largest,
            }
        }
    }

    /// Equal divisions of the key range of the inputs. Keys are eight big-endian bytes.
    fn divide(inputs: &[Table], bytes: u64, plan: &CompactionPlan, next_number: &mut u64) -> Vec<Table> {
        let number = |key: &[u8]| u64::from_be_bytes(key.try_into().unwrap());
        let smallest = inputs.iter().map(|table| number(&table.smallest)).min().unwrap();
        let largest = inputs.iter().map(|table| number(&table.largest)).max().unwrap();
        let count = bytes.div_ceil(plan.target_file_bytes).max(1);
        let step = (largest - smallest) / count;
        let mut tables = Vec::new();
        for position in 0..count {
            *next_number += 1;
            let from = smallest + position * step;
            let to = if position + 1 == count { largest } else { from + step - 1 };
            tables.push(Table {
                number: *next_number,
                bytes: bytes / count,
                smallest: from.to_be_bytes().into(),
                largest: to.to_be_bytes().into(),
            });
        }
        tables
    }

    /// The costs of a simulated tree.
    #[derive(Debug)]
    pub(crate) struct SimulatedCosts {
        /// Bytes written for each byte flushed, the flush included.
        pub(crate) amplification: f64,
        /// The largest number of sorted runs in a state without due compactions.
        pub(crate) max_runs: usize,
    }

    /// Flushes `flushes` times `bytes` of evenly distributed keys, with all due compactions after each.
    pub(crate) fn simulate(policy: &dyn CompactionPolicy, flushes: u64, bytes: u64) -> SimulatedCosts {
        let mut sketch = Sketch { levels: vec![Vec::new(); 7] };
        let (mut next_number, mut written, mut max_runs) = (0, 0, 0);
        for _ in 0..flushes {
            next_number += 1;
            let table = Table {
                number: next_number,
                bytes,
                smallest: 0_u64.to_be_bytes().into(),
                largest: (u64::MAX / 2).to_be_bytes().into(),
            };
            sketch.levels[0].insert(0, (next_number, vec![table]));
            written += bytes;
            while let Some(plan) = policy.pick(&sketch.shape(), &BTreeSet::new()) {
                written += sketch.apply(&plan, &mut next_number);
            }
            max_runs = max_runs.max(sketch.levels.iter().map(Vec::len).sum());
        }
        SimulatedCosts { amplification: written as f64 / (flushes * bytes) as f64, max_runs }
    }
}
