//! The queries, ranges of numbers and windows of space around random records (§6.2.1), and their times.

use bolide::FindOptions;

use super::dataset::DataSet;
use crate::data::random::Random;
use crate::error::Result;
use crate::measure::thread_cpu_nanos;
use crate::next_baselines::{Contender, Selection, Table};

/// The mean number of answers of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuerySize {
    /// 1.5 in ten thousand records, four at least.
    Small,
    /// Three in a thousand records.
    Medium,
    /// Three in a hundred records.
    Large,
}

impl QuerySize {
    /// All sizes, ascending.
    pub const ALL: [Self; 3] = [Self::Small, Self::Medium, Self::Large];
    /// Their names.
    pub const NAMES: [&'static str; 3] = ["small", "medium", "large"];

    /// The wanted number of answers among so many records.
    pub fn answers(self, records: usize) -> f64 {
        let records = records as f64;
        match self {
            Self::Small => (records * 0.00015).max(4.0),
            Self::Medium => records * 0.003,
            Self::Large => records * 0.03,
        }
    }

    /// The number of queries of this size, with `queries` small ones; eight at least.
    pub fn queries(self, queries: u64) -> usize {
        let part = match self {
            Self::Small => 1,
            Self::Medium => 3,
            Self::Large => 10,
        };
        (queries / part).max(8) as usize
    }
}

/// Queries of one width.
#[derive(Debug, Clone)]
pub struct QuerySet {
    /// The queries.
    pub selections: Vec<Selection>,
    /// The width of ranges, or of windows in each direction.
    pub width: f64,
    /// The mean number of answers.
    pub answers: f64,
}

/// Records around which the search for the width counts answers.
const PROBES: usize = 60;

/// Queries around random records, of the width with a mean of `answers` answers.
pub fn around_records(data: &DataSet, is_spatial: bool, answers: f64, queries: usize, seed: u64) -> QuerySet {
    let mut random = Random::new(seed ^ 21);
    let rows = &data.rows;
    let mut centres = |count: usize| -> Vec<usize> {
        (0..count).map(|_| random.below(rows.len() as u64) as usize).collect()
    };
    let (probes, chosen) = (centres(PROBES), centres(queries));
    let counter = AnswerCounter::new(data, is_spatial);
    let mean = |centres: &[usize], width: f64| {
        let found: usize =
            centres.iter().map(|at| counter.count(selection_around(data, *at, is_spatial, width))).sum();
        found as f64 / centres.len().max(1) as f64
    };
    let (mut low, mut high) = (-9.0f64, 9.0f64);
    for _ in 0..24 {
        let middle = (low + high) / 2.0;
        if mean(&probes, 10f64.powf(middle)) < answers { low = middle } else { high = middle }
    }
    let width = 10f64.powf(high);
    let answers = mean(&chosen, width);
    let selections = chosen.into_iter().map(|at| selection_around(data, at, is_spatial, width)).collect();
    QuerySet { selections, width, answers }
}

fn selection_around(data: &DataSet, at: usize, is_spatial: bool, width: f64) -> Selection {
    let row = &data.rows[at];
    let half = width / 2.0;
    if is_spatial {
        let [a, b, c, d] = row.rect;
        let (x, y) = ((a + c) / 2.0, (b + d) / 2.0);
        return Selection::Window([x - half, y - half, x + half, y + half]);
    }
    Selection::Between(row.value - half, row.value + half)
}

/// Counts answers without a database.
pub struct AnswerCounter<'d> {
    data: &'d DataSet,
    /// The sorted numbers; empty for space.
    values: Vec<f64>,
}

impl<'d> AnswerCounter<'d> {
    /// A counter over all records.
    pub fn new(data: &'d DataSet, is_spatial: bool) -> Self {
        let mut values: Vec<f64> = Vec::new();
        if !is_spatial {
            values.extend(data.rows.iter().map(|row| row.value));
            values.sort_unstable_by(f64::total_cmp);
        }
        Self { data, values }
    }

    /// The number of answers of a query.
    pub fn count(&self, selection: Selection) -> usize {
        let between = |low: f64, high: f64| {
            let first = self.values.partition_point(|value| *value < low);
            self.values.partition_point(|value| *value <= high) - first
        };
        match selection {
            Selection::Equal(value) => between(value, value),
            Selection::Between(low, high) => between(low, high),
            Selection::Window([a, b, c, d]) => {
                let meets = |one: &[f64; 4]| one[0] <= c && a <= one[2] && one[1] <= d && b <= one[3];
                self.data.rows.iter().filter(|row| meets(&row.rect)).count()
            }
        }
    }
}

/// The number of runs of each query.
const PASSES: usize = 3;

/// The target of queries: a table, a contender and the position of an attribute.
pub type QueryTarget<'t> = (&'t Table, Contender, usize);

/// CPU microseconds of the calling thread for each query to each target: the minimum of [`PASSES`]. The targets run in turn, so
/// that a disturbance by other programs affects all of them.
///
/// # Errors
/// Targets with different numbers of answers.
pub fn times(targets: &[QueryTarget<'_>], selections: &[Selection]) -> Result<Vec<Vec<f64>>> {
    let mut minimum = vec![vec![f64::MAX; selections.len()]; targets.len()];
    let mut answers: Vec<Option<usize>> = vec![None; selections.len()];
    for _ in 0..PASSES {
        for ((table, contender, attribute), minimum) in targets.iter().zip(&mut minimum) {
            for ((selection, minimum), answers) in selections.iter().zip(minimum).zip(&mut answers) {
                let before = thread_cpu_nanos();
                let found = count(table, *contender, *attribute, *selection)?;
                *minimum = minimum.min((thread_cpu_nanos() - before) as f64 / 1000.0);
                if *answers.get_or_insert(found) != found {
                    let (name, expected) = (contender.name, answers.unwrap_or_default());
                    return Err(format!(
                        "{name} has {found} answers to {selection:?}, other targets {expected}"
                    )
                    .into());
                }
            }
        }
    }
    Ok(minimum)
}

/// Runs one query for records, newest first. Returns the number of answers.
///
/// # Errors
/// Those of the database, and an answer without a record.
pub fn count(table: &Table, contender: Contender, attribute: usize, selection: Selection) -> Result<usize> {
    let (mut found, mut empty) = (0, 0);
    let options = FindOptions::default().fetch_threads(1);
    table.run_query(contender, attribute, selection, &options, |_, record| {
        found += 1;
        empty += usize::from(record.is_empty());
    })?;
    if empty > 0 {
        Err(format!("{} returns answers without records", contender.name).into())
    } else {
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::dataset::{DataRecord, DataSource, key_of};
    use super::*;

    #[test]
    fn a_set_has_about_the_wanted_number_of_answers() {
        let mut random = Random::new(5);
        let rows = (0..5_000).map(|number| {
            let (x, y) = (random.unit(), random.unit());
            DataRecord {
                key: key_of(number),
                json: Vec::new(),
                value: random.unit() * 1e6,
                rect: [x, y, x, y],
            }
        });
        let data = DataSet::of(DataSource::Vehicles, rows.collect());
        for is_spatial in [false, true] {
            for wanted in [5.0, 50.0, 500.0] {
                let set = around_records(&data, is_spatial, wanted, 40, 6);
                let off = set.answers / wanted;
                assert!((0.7..1.4).contains(&off), "{wanted} wanted, {} found", set.answers);
                let counter = AnswerCounter::new(&data, is_spatial);
                let sum: usize = set.selections.iter().map(|selection| counter.count(*selection)).sum();
                assert!((sum as f64 / 40.0 - set.answers).abs() < 1e-9);
            }
        }
        assert_eq!(QuerySize::Large.queries(300), 30);
        assert_eq!(QuerySize::Small.answers(100_000).round(), 15.0);
    }
}
