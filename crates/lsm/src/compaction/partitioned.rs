//! The partitioned layout: full memtables are flushed into one level of partitions (REMIX §4.2).
//!
//! # Actions of a flush on a partition
//! * **Abort**: the new entries stay in memory and in the log until the next flush, if the cost of writing them now is high
//!   in relation to their size.
//! * **Minor**: new sstables are added to the existing ones, up to T sorted runs and twice as many sstables. (Readers pay per
//!   run; the paper's T counts sstables, of which a flush adds one to each partition.)
//! * **Major**: new entries are merged with the newest runs, with as many as maximize the ratio of input to output sstables.
//! * **Split**: if that ratio is low, since the sstables are large, all overlapping sstables are merged, and the partition is
//!   divided into several of [`TABLES_PER_PARTITION`] sstables.
//!
//! # Cost
//! Bytes read and written: of new entries, of rewritten sstables, and of the sorted view of the partition, which is read and
//! written again for each added sstable (§3.4, §4.3). The view counts even if the partition has none: its size represents
//! the cost of another sstable for all readers.
//!
//! # Work for compactions
//! Level 0 contains the flushes that could not be written to partitions; it is moved down as a whole. A partition with too
//! many runs, for example after a change of layout, is merged and split.

use std::collections::BTreeSet;

use super::policy::{
    CompactionPlan, CompactionPolicy, OutputSplit, PlanInput, RunShape, TableShape, VersionShape, all_inputs,
};
use crate::version::LAST_LEVEL;

/// The number of sstables that a split writes to each new partition: M in REMIX §4.2.
pub const TABLES_PER_PARTITION: usize = 2;
/// The maximum number of sstables for each of the T sorted runs of a partition in a minor compaction.
const TABLES_PER_RUN: usize = 2;
/// The maximum percentage of the memory for memtables that aborts may retain.
pub const MAX_RETAINED_PERCENT: usize = 15;
/// Bytes of a sorted view per entry, with segments of 32 and ten runs (§3.4).
const VIEW_BYTES_PER_ENTRY: u64 = 3;
/// The minimum ratio of input to output sstables of a major compaction; below, the partition is split.
const MIN_RATIO: f64 = 1.5;
/// The minimum cost of an abort: bytes read and written per new byte.
const MIN_ABORT_COST: f64 = 4.0;

/// An sstable of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackedTable<'a> {
    /// The run: of overlapping sstables, the one with the larger run is newer.
    pub run: u64,
    /// Further facts.
    pub table: TableShape<'a>,
    /// The number of entries.
    pub entries: u64,
}

/// The new entries of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewEntries<'a> {
    /// Bytes of keys and values, encoded as in a log record.
    pub bytes: u64,
    /// The number of entries.
    pub entries: u64,
    /// The smallest key.
    pub smallest_key: &'a [u8],
    /// The largest key.
    pub largest_key: &'a [u8],
}

/// A partition and its new entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionLoad<'a> {
    /// The sstables, newest runs first.
    pub tables: Vec<StackedTable<'a>>,
    /// The new entries; `None` without any.
    pub new: Option<NewEntries<'a>>,
}

/// The action of a flush on a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Nothing: there are no new entries.
    None,
    /// The new entries stay in memory and in the log.
    Abort,
    /// The new entries are written to sstables of their own.
    Minor,
    /// The new entries are merged with these sstables: all of the newest runs.
    Major {
        /// The file numbers, newest first.
        inputs: Vec<u64>,
    },
    /// The new entries are merged with these sstables, and the partition is divided. No other sstable of the partition
    /// overlaps these, the new entries or another one.
    Split {
        /// The file numbers, newest first.
        inputs: Vec<u64>,
    },
}

/// Chooses the action for each of `loads`, in their order. A minor compaction leaves at most `max_runs` sorted runs, T in
/// REMIX §4.2, and twice as many sstables. Aborts retain at most `max_retained_bytes` of new entries.
pub fn plan(
    loads: &[PartitionLoad<'_>],
    target_file_bytes: u64,
    max_runs: usize,
    max_retained_bytes: u64,
) -> Vec<Action> {
    let mut actions = Vec::with_capacity(loads.len());
    let mut costly = Vec::new();
    for (position, load) in loads.iter().enumerate() {
        let Some(new) = load.new else {
            actions.push(Action::None);
            continue;
        };
        let action = load.act(&new, target_file_bytes.max(1), max_runs);
        let ratio = load.cost(&new, &action) as f64 / new.bytes.max(1) as f64;
        if ratio >= MIN_ABORT_COST {
            costly.push((ratio, position, new.bytes));
        }
        actions.push(action);
    }
    costly.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
    let mut remaining = max_retained_bytes;
    for (_, position, bytes) in costly {
        if bytes <= remaining
            && let Some(action) = actions.get_mut(position)
        {
            remaining -= bytes;
            *action = Action::Abort;
        }
    }
    actions
}

impl PartitionLoad<'_> {
    /// The action unless it is aborted.
    fn act(&self, new: &NewEntries<'_>, target_file_bytes: u64, max_runs: usize) -> Action {
        let outputs = |bytes: u64| bytes.div_ceil(target_file_bytes).max(1) as usize;
        let runs = self.tables.chunk_by(|one, other| one.run == other.run).count();
        if runs < max_runs && self.tables.len() + outputs(new.bytes) <= TABLES_PER_RUN * max_runs {
            return Action::Minor;
        }
        let (mut best, mut best_ratio) = (0, 0.0);
        let (mut count, mut bytes) = (0, new.bytes);
        for run in self.tables.chunk_by(|one, other| one.run == other.run) {
            count += run.len();
            bytes += run.iter().map(|table| table.table.bytes).sum::<u64>();
            let ratio = count as f64 / outputs(bytes) as f64;
            if ratio > best_ratio {
                (best, best_ratio) = (count, ratio);
            }
        }
        if best_ratio >= MIN_RATIO {
            let inputs = self.tables.iter().take(best).map(|table| table.table.number).collect();
            return Action::Major { inputs };
        }
        Action::Split { inputs: self.overlapping(new, target_file_bytes) }
    }

    /// The sstables that overlap another one or the new entries, and those that are too small to remain as they are.
    fn overlapping(&self, new: &NewEntries<'_>, target_file_bytes: u64) -> Vec<u64> {
        let overlaps_new = |table: &TableShape<'_>| {
            table.smallest_key <= new.largest_key && new.smallest_key <= table.largest_key
        };
        let is_input = |one: &&StackedTable<'_>| {
            let mut others = self.tables.iter().filter(|other| other.table.number != one.table.number);
            one.table.bytes < target_file_bytes / 2
                || overlaps_new(&one.table)
                || others.any(|other| other.table.overlaps(&one.table))
        };
        self.tables.iter().filter(is_input).map(|table| table.table.number).collect()
    }

    /// Bytes read and written by `action`.
    fn cost(&self, new: &NewEntries<'_>, action: &Action) -> u64 {
        let inputs: &[u64] = match action {
            Action::None | Action::Abort => return 0,
            Action::Minor => &[],
            Action::Major { inputs } | Action::Split { inputs } => inputs,
        };
        let rewritten = self.tables.iter().filter(|table| inputs.contains(&table.table.number));
        let rewritten: u64 = rewritten.map(|table| table.table.bytes).sum();
        let entries: u64 = self.tables.iter().map(|table| table.entries).sum();
        let view = VIEW_BYTES_PER_ENTRY * (2 * entries + new.entries);
        new.bytes + 2 * rewritten + view
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
