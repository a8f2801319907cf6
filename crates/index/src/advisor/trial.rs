//! From figures of trial indexes on samples to those of the whole collection.
//!
//! ```text
//! index with a tree      bytes = fixed + per value * distinct values + per entry * entries
//!                        fixed: the trial with one record; the other two: trials with all values and with the most frequent ones
//! index in the sstables  bytes = a straight line in the number of records, through trials with a quarter and all of the groups
//! ```
//!
//! A model without the part per value would be wrong as soon as the sample has another number of records per value than the
//! collection, as it has where some values are frequent.
//!
//! Times of lookups grow only where the counted work of the index grows with the sample, as that of an index without a tree does.

use super::profile::AttributeProfile;

/// The figures of a trial index.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct TrialFigures {
    /// Records.
    pub records: u64,
    /// Values of the attribute: entries.
    pub values: u64,
    /// Distinct values.
    pub distinct: u64,
    /// Bytes on disk of the index.
    pub disk_bytes: u64,
    /// Bytes in memory of the index.
    pub memory_bytes: u64,
    /// CPU time of the index for a write, in nanoseconds, flush and compaction included.
    pub write_nanos: f64,
    /// The mean of lookups.
    pub lookup: LookupFigures,
}

/// The mean of the lookups of a trial.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct LookupFigures {
    /// CPU time in nanoseconds.
    pub nanos: f64,
    /// Answers.
    pub answers: f64,
    /// Blocks of sstables that were read from files or found in the cache.
    pub blocks: f64,
    /// Blocks that the index examined or skipped, and entries that it read.
    pub work: f64,
}

/// Growth of the work between two trials from which times grow too.
const GROWING_WORK: f64 = 1.2;

/// What the collection has more of than a sample.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct WholeFigures {
    /// Records.
    pub records: f64,
    /// Values of the attribute.
    pub values: f64,
    /// Distinct values.
    pub distinct: f64,
    /// Answers of a lookup.
    pub answers: f64,
    /// The share of the records that a lookup passes until it has its answers, at random order of values.
    pub passed: f64,
}

/// The trials of an index with a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct TreeTrials {
    /// With one record.
    pub one: TrialFigures,
    /// With the most frequent values of the sample, which have half of its records.
    pub frequent: TrialFigures,
    /// With the sample.
    pub whole: TrialFigures,
}

/// The trials of an index in the sstables of the records.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct GroupTrials {
    /// With a quarter of the groups.
    pub part: TrialFigures,
    /// With the sample.
    pub whole: TrialFigures,
}

/// A part of a model: bytes as a linear function of distinct values and entries.
#[derive(Debug, Clone, Copy, PartialEq)]
struct SizeModel {
    fixed: f64,
    per_value: f64,
    per_entry: f64,
}

impl SizeModel {
    /// The model of the bytes that `bytes` returns.
    fn of(trials: &TreeTrials, bytes: impl Fn(&TrialFigures) -> u64) -> Self {
        let fixed = bytes(&trials.one) as f64;
        let [whole, frequent] = [&trials.whole, &trials.frequent].map(|trial| {
            (trial.distinct as f64, trial.values as f64, (bytes(trial) as f64 - fixed).max(0.0))
        });
        let determinant = whole.0 * frequent.1 - frequent.0 * whole.1;
        let per_value = (whole.2 * frequent.1 - frequent.2 * whole.1) / determinant;
        let per_entry = (whole.0 * frequent.2 - frequent.0 * whole.2) / determinant;
        // Values of equal frequency leave the two parts undetermined; steps of the sizes of pages can make one negative.
        let is_determined = determinant.abs() > 0.1 * whole.0 * frequent.1;
        if is_determined && per_value >= 0.0 && per_entry >= 0.0 {
            return Self { fixed, per_value, per_entry };
        }
        Self { fixed, per_value: 0.0, per_entry: whole.2 / whole.1.max(1.0) }
    }

    fn bytes(&self, of: &WholeFigures) -> f64 {
        self.fixed + self.per_value * of.distinct + self.per_entry * of.values
    }
}

/// Figures of an index of the whole collection.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct ScaledFigures {
    /// Bytes on disk.
    pub disk_bytes: f64,
    /// Bytes in memory.
    pub memory_bytes: f64,
    /// CPU time for a write, in nanoseconds.
    pub write_nanos: f64,
    /// CPU time of a lookup, in nanoseconds.
    pub lookup_nanos: f64,
    /// Blocks of a lookup.
    pub lookup_blocks: f64,
}

impl ScaledFigures {
    /// These times with the sizes of `other`.
    #[must_use]
    pub fn with_sizes_of(self, other: &Self) -> Self {
        Self { disk_bytes: other.disk_bytes, memory_bytes: other.memory_bytes, ..self }
    }
}

impl WholeFigures {
    /// The figures of a collection with lookups of `answers` answers, which pass the share `passed` of the records.
    pub fn new(profile: &AttributeProfile, answers: f64, passed: f64) -> Self {
        let (records, values) = (profile.records as f64, profile.values as f64);
        Self { records, values, distinct: profile.distinct_values, answers, passed }
    }
}

impl TreeTrials {
    /// The trials with one record, with the most frequent values, and with the sample.
    pub fn new(one: TrialFigures, frequent: TrialFigures, whole: TrialFigures) -> Self {
        Self { one, frequent, whole }
    }

    /// The figures for the whole collection.
    pub fn scaled(&self, to: &WholeFigures) -> ScaledFigures {
        let lookup = &self.whole.lookup;
        // Records without the attribute are not in the sample, nor are all values of an array.
        let of_sample = self.whole.values as f64 / self.whole.records.max(1) as f64;
        let entries = if of_sample > 0.0 { to.values / to.records.max(1.0) / of_sample } else { 1.0 };
        // Frequent values have fewer records in the sample.
        let longer = (to.answers / lookup.answers.max(1.0)).max(1.0);
        ScaledFigures {
            disk_bytes: SizeModel::of(self, |trial| trial.disk_bytes).bytes(to),
            memory_bytes: SizeModel::of(self, |trial| trial.memory_bytes).bytes(to),
            write_nanos: self.whole.write_nanos * entries,
            lookup_nanos: lookup.nanos * longer,
            lookup_blocks: lookup.blocks * longer,
        }
    }
}

impl GroupTrials {
    /// The trials with a quarter of the groups, and with all.
    pub fn new(part: TrialFigures, whole: TrialFigures) -> Self {
        Self { part, whole }
    }

    /// The figures for the whole collection.
    pub fn scaled(&self, to: &WholeFigures) -> ScaledFigures {
        let (part, whole) = (&self.part, &self.whole);
        let extent = whole.records.saturating_sub(part.records).max(1) as f64;
        let line = |part: f64, whole: f64, records: f64| {
            (whole + (whole - part) / extent * (records - self.whole.records as f64)).max(0.0)
        };
        // A lookup stops when it has its answers.
        let passed = (to.records * to.passed).max(whole.records as f64);
        let grows = whole.lookup.work > GROWING_WORK * part.lookup.work;
        let lookup = |part: f64, whole: f64| if grows { line(part.min(whole), whole, passed) } else { whole };
        let longer = if grows { 1.0 } else { (to.answers / whole.lookup.answers.max(1.0)).max(1.0) };
        ScaledFigures {
            disk_bytes: line(part.disk_bytes as f64, whole.disk_bytes as f64, to.records),
            memory_bytes: line(part.memory_bytes as f64, whole.memory_bytes as f64, to.records),
            write_nanos: whole.write_nanos,
            lookup_nanos: lookup(part.lookup.nanos, whole.lookup.nanos) * longer,
            lookup_blocks: lookup(part.lookup.blocks, whole.lookup.blocks) * longer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(distinct: u64, values: u64, disk_bytes: u64) -> TrialFigures {
        TrialFigures { records: values, values, distinct, disk_bytes, ..Default::default() }
    }

    fn of(distinct: f64, values: f64) -> WholeFigures {
        WholeFigures { records: values, values, distinct, answers: 10.0, passed: 1.0 }
    }

    /// 1,000 bytes, 300 for each value, 20 for each entry.
    fn bytes(distinct: u64, values: u64) -> u64 {
        1_000 + 300 * distinct + 20 * values
    }

    #[test]
    fn values_and_entries_have_their_own_parts() {
        // Twenty values with 100 records each, and 500 with one.
        let trials = TreeTrials {
            one: trial(0, 0, 1_000),
            frequent: trial(20, 2_000, bytes(20, 2_000)),
            whole: trial(520, 2_500, bytes(520, 2_500)),
        };
        // Without a difference between the trials the part per value is undetermined.
        let flawed = TreeTrials { frequent: trials.whole, ..trials };
        for (distinct, values) in
            [(100, 2_500), (40_000, 1_000_000), (1_000, 1_000_000), (500_000, 1_000_000)]
        {
            let error = |trials: &TreeTrials| {
                trials.scaled(&of(distinct as f64, values as f64)).disk_bytes / bytes(distinct, values) as f64
                    - 1.0
            };
            assert!(error(&trials).abs() < 0.001, "{distinct} {values}: {}", error(&trials));
            assert!(error(&flawed).abs() > 0.25, "{distinct} {values}: {}", error(&flawed));
        }
    }

    #[test]
    fn values_of_equal_frequency_have_one_part() {
        let trials = TreeTrials {
            one: trial(1, 1, 1_000),
            frequent: trial(500, 500, 1_000 + 500 * 50),
            whole: trial(1_000, 1_000, 1_000 + 1_000 * 50),
        };
        let predicted = trials.scaled(&of(100_000.0, 100_000.0)).disk_bytes;
        assert!((predicted - 5_001_000.0).abs() < 1.0, "{predicted}");
    }

    #[test]
    fn lookups_grow_with_the_records_only_where_their_work_grows() {
        let lookup = |nanos, work| LookupFigures { nanos, answers: 10.0, blocks: 5.0, work };
        let mut trials = GroupTrials { part: trial(10, 1_000, 100), whole: trial(40, 4_000, 400) };
        (trials.part.lookup, trials.whole.lookup) = (lookup(1_000.0, 100.0), lookup(4_000.0, 400.0));
        let to = of(1_000.0, 100_000.0);
        assert_eq!(trials.scaled(&to).lookup_nanos, 100_000.0);
        assert_eq!(trials.scaled(&WholeFigures { passed: 0.5, ..to }).lookup_nanos, 50_000.0);
        assert_eq!(trials.scaled(&WholeFigures { passed: 0.001, ..to }).lookup_nanos, 4_000.0);
        assert_eq!(trials.scaled(&to).disk_bytes, 10_000.0);
        trials.whole.lookup.work = 110.0;
        assert_eq!(trials.scaled(&to).lookup_nanos, 4_000.0);
    }
}
