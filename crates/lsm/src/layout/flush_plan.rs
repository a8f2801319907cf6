//! The plan of a flush into partitions (REMIX §4.2).
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

use super::policy::TableShape;

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

#[cfg(test)]
#[path = "flush_plan_tests.rs"]
mod tests;
