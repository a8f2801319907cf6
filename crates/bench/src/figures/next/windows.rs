//! The queries: ranges of numbers and windows in space around random records (§6.2.1), and how that is timed.

use bolide::FindOptions;

use super::dataset::Data;
use crate::data::random::Random;
use crate::error::Result;
use crate::measure::thread_cpu_nanos;
use crate::next_baselines::{Contender, QueryFigures, Table};

/// How many records a query is to have, on average.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Some.
    Small,
    /// Three in a thousand.
    Medium,
    /// Three in a hundred.
    Large,
}

impl Size {
    /// All, by size.
    pub const ALL: [Self; 3] = [Self::Small, Self::Medium, Self::Large];
    /// Their names.
    pub const NAMES: [&'static str; 3] = ["small", "medium", "large"];

    /// Answers among so many records.
    pub fn answers(self, records: usize) -> f64 {
        let records = records as f64;
        match self {
            Self::Small => (records * 0.00015).max(4.0),
            Self::Medium => records * 0.003,
            Self::Large => records * 0.03,
        }
    }

    /// How many queries of this size run where `queries` small ones are.
    pub fn queries(self, queries: u64) -> usize {
        let part = match self {
            Self::Small => 1,
            Self::Medium => 3,
            Self::Large => 10,
        };
        (queries / part).max(8) as usize
    }
}

/// Queries of one width, and what they are like.
#[derive(Debug, Clone)]
pub struct Windows {
    /// The queries.
    pub queried: Vec<QueryFigures>,
    /// How wide ranges, or windows in each direction, are.
    pub width: f64,
    /// Answers of one, on average.
    pub answers: f64,
}

/// Records around which the width is found.
const PROBES: usize = 60;

/// Queries around random records, of the width at which they have `answers` on average.
pub fn around_records(data: &Data, is_spatial: bool, answers: f64, queries: usize, seed: u64) -> Windows {
    let mut random = Random::new(seed ^ 21);
    let rows = &data.rows;
    let mut centres = |count: usize| -> Vec<usize> {
        (0..count).map(|_| random.below(rows.len() as u64) as usize).collect()
    };
    let (probes, queried) = (centres(PROBES), centres(queries));
    let counter = Counter::new(data, is_spatial);
    let mean = |centres: &[usize], width: f64| {
        let found: usize = centres.iter().map(|at| counter.count(query(data, *at, is_spatial, width))).sum();
        found as f64 / centres.len().max(1) as f64
    };
    let (mut low, mut high) = (-9.0f64, 9.0f64);
    for _ in 0..24 {
        let middle = (low + high) / 2.0;
        if mean(&probes, 10f64.powf(middle)) < answers { low = middle } else { high = middle }
    }
    let width = 10f64.powf(high);
    let answers = mean(&queried, width);
    let queried = queried.into_iter().map(|at| query(data, at, is_spatial, width)).collect();
    Windows { queried, width, answers }
}

fn query(data: &Data, at: usize, is_spatial: bool, width: f64) -> QueryFigures {
    let row = &data.rows[at];
    let half = width / 2.0;
    if is_spatial {
        let [a, b, c, d] = row.rect;
        let (x, y) = ((a + c) / 2.0, (b + d) / 2.0);
        return QueryFigures::Window([x - half, y - half, x + half, y + half]);
    }
    QueryFigures::Between(row.value - half, row.value + half)
}

/// Counts answers without a database.
pub struct Counter<'d> {
    data: &'d Data,
    /// Numbers in order, if these are queried.
    values: Vec<f64>,
}

impl<'d> Counter<'d> {
    /// Over all records.
    pub fn new(data: &'d Data, is_spatial: bool) -> Self {
        let mut values: Vec<f64> = Vec::new();
        if !is_spatial {
            values.extend(data.rows.iter().map(|row| row.value));
            values.sort_unstable_by(f64::total_cmp);
        }
        Self { data, values }
    }

    /// The answers of a query.
    pub fn count(&self, queried: QueryFigures) -> usize {
        let between = |low: f64, high: f64| {
            let first = self.values.partition_point(|value| *value < low);
            self.values.partition_point(|value| *value <= high) - first
        };
        match queried {
            QueryFigures::Equal(value) => between(value, value),
            QueryFigures::Between(low, high) => between(low, high),
            QueryFigures::Window([a, b, c, d]) => {
                let meets = |one: &[f64; 4]| one[0] <= c && a <= one[2] && one[1] <= d && b <= one[3];
                self.data.rows.iter().filter(|row| meets(&row.rect)).count()
            }
        }
    }
}

/// The number of runs of each query.
const PASSES: usize = 3;

/// The target of queries: a contender, and number of the attribute.
pub type Answerer<'t> = (&'t Table, Contender, usize);

/// CPU microseconds of the calling thread for each query to each answerer: of each, the least of [`PASSES`].
/// All take turns, so that what slows the machine for a while slows all of them.
///
/// # Errors
/// Where answerers have different numbers of answers.
pub fn times(answerers: &[Answerer<'_>], queried: &[QueryFigures]) -> Result<Vec<Vec<f64>>> {
    let mut least = vec![vec![f64::MAX; queried.len()]; answerers.len()];
    let mut answers: Vec<Option<usize>> = vec![None; queried.len()];
    for _ in 0..PASSES {
        for ((table, contender, attribute), least) in answerers.iter().zip(&mut least) {
            for ((queried, least), answers) in queried.iter().zip(least).zip(&mut answers) {
                let before = thread_cpu_nanos();
                let found = count(table, *contender, *attribute, *queried)?;
                *least = least.min((thread_cpu_nanos() - before) as f64 / 1000.0);
                if *answers.get_or_insert(found) != found {
                    let (name, others) = (contender.name, answers.unwrap_or_default());
                    return Err(format!("{name} has {found} answers to {queried:?}, others {others}").into());
                }
            }
        }
    }
    Ok(least)
}

/// Runs one query for records, newest first. Returns how many there are.
///
/// # Errors
/// Those of the database, and answers without a record.
pub fn count(table: &Table, contender: Contender, attribute: usize, queried: QueryFigures) -> Result<usize> {
    let (mut found, mut empty) = (0, 0);
    let options = FindOptions::default().fetch_threads(1);
    table.run_query(contender, attribute, queried, &options, |_, record| {
        found += 1;
        empty += usize::from(record.is_empty());
    })?;
    if empty > 0 { Err(format!("{} brings no records", contender.name).into()) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::super::dataset::{Row, Source, key_of};
    use super::*;

    #[test]
    fn widths_are_found_for_the_wanted_answers() {
        let mut random = Random::new(5);
        let rows = (0..5_000).map(|number| {
            let (x, y) = (random.unit(), random.unit());
            Row { key: key_of(number), json: Vec::new(), value: random.unit() * 1e6, rect: [x, y, x, y] }
        });
        let data = Data::of(Source::Vehicles, rows.collect());
        for is_spatial in [false, true] {
            for wanted in [5.0, 50.0, 500.0] {
                let windows = around_records(&data, is_spatial, wanted, 40, 6);
                let off = windows.answers / wanted;
                assert!((0.7..1.4).contains(&off), "{wanted} wanted, {} found", windows.answers);
                let counter = Counter::new(&data, is_spatial);
                let sum: usize = windows.queried.iter().map(|queried| counter.count(*queried)).sum();
                assert!((sum as f64 / 40.0 - windows.answers).abs() < 1e-9);
            }
        }
        assert_eq!(Size::Large.queries(300), 30);
        assert_eq!(Size::Small.answers(100_000).round(), 15.0);
    }
}
