//! The workload of the LevelDB++ table: JSON records with an index of each kind.
//!
//! Records of 160 bytes, 25 for each secondary key on average, are inserted, and a quarter as many are updated. Queries by
//! secondary key and by ranges of them return whole records, newest first. A model computes the expected answers.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use bolide::{Collection, CollectionOptions, Compression, Db, Options, Query, SyncMode};
use serde::{Deserialize, Serialize};

use super::meter::Meter;
use crate::data::random::Random;
use crate::engine::{CACHE_BYTES, Layout, MEMTABLE_BYTES};
use crate::error::Result;
use crate::measure;
use crate::report::RowFigures;

const RECORD_BYTES: usize = 160;
const KEY_BYTES: usize = 8;
const RECORDS_PER_SECONDARY: u64 = 25;
const LOOKUPS: usize = 4_000;
const RANGES: usize = 1_000;

/// The subjects: no index, each kind, and variants of maintenance and validation.
pub const SUBJECTS: &[(&str, &str)] = &[
    ("none", ""),
    ("composite", "composite"),
    ("lazy", "lazy"),
    ("eager", "eager"),
    ("embedded", "embedded"),
    ("composite-synchronous", "composite:maintenance=synchronous"),
    ("lazy-synchronous", "lazy:maintenance=synchronous"),
    ("eager-synchronous", "eager:maintenance=synchronous"),
    ("composite-get-lite", "composite:validation=get-lite"),
    ("composite-key-index", "composite:validation=key-index"),
];

/// The workload of one child process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KindsPlan {
    /// Name of the subject.
    pub engine: String,
    /// Records to insert.
    pub records: u64,
    /// Updates after that.
    pub updates: u64,
    /// Bolide's layout.
    #[serde(with = "crate::engine::layout_name")]
    pub layout: Layout,
    /// Seed of all random choices.
    pub seed: u64,
}

/// The secondary key and the last write of every record.
struct Model {
    secondaries: u64,
    state: Vec<(u32, u32)>,
    writes: u32,
    random: Random,
}

impl Model {
    /// Writes record `number` with a random secondary key.
    fn put(&mut self, records: &Collection, number: u64, json: &mut Vec<u8>) -> Result<()> {
        let secondary = self.random.below(self.secondaries);
        self.writes += 1;
        json.clear();
        write!(json, r#"{{"id":{number},"version":{},"secondary":{secondary},"filler":""#, self.writes)?;
        json.resize(RECORD_BYTES - 2, b'x');
        json.extend_from_slice(br#""}"#);
        let state = (secondary as u32, self.writes);
        match self.state.get_mut(number as usize) {
            Some(old) => *old = state,
            None => self.state.push(state),
        }
        Ok(records.put(&number.to_be_bytes(), json)?)
    }

    /// For each secondary key its records, newest first, as (write, number).
    fn by_secondary(&self) -> BTreeMap<u64, Vec<(u32, u32)>> {
        let mut all: BTreeMap<u64, Vec<(u32, u32)>> = BTreeMap::new();
        for (number, (secondary, write)) in self.state.iter().enumerate() {
            all.entry(u64::from(*secondary)).or_default().push((*write, number as u32));
        }
        all.values_mut().for_each(|list| list.sort_unstable_by(|left, right| right.cmp(left)));
        all
    }
}

/// A row of queries: the number of neighbouring secondary keys, and the limit.
struct QueryRow {
    row: &'static str,
    width: u64,
    limit: usize,
    queries: usize,
}

const QUERY_ROWS: [QueryRow; 5] = [
    // The first query includes work that the writes deferred.
    QueryRow { row: "first-lookup", width: 1, limit: 10, queries: 1 },
    QueryRow { row: "newest10-records", width: 1, limit: 10, queries: LOOKUPS },
    QueryRow { row: "all25-records", width: 1, limit: usize::MAX, queries: LOOKUPS },
    QueryRow { row: "range10-newest10", width: 10, limit: 10, queries: RANGES },
    QueryRow { row: "range100-newest10", width: 100, limit: 10, queries: RANGES },
];

/// Runs `plan` on a store in the empty directory `path`.
pub fn run(plan: &KindsPlan, path: &Path) -> Result<Vec<RowFigures>> {
    let options =
        Options::default().cache_bytes(CACHE_BYTES).memtable_bytes(MEMTABLE_BYTES).sync(SyncMode::None);
    let db = Db::open(path, options)?;
    let layout = plan.layout;
    let mut collection = CollectionOptions::json().layout(layout).compression(Compression::None);
    let subject = SUBJECTS.iter().find(|(name, _)| *name == plan.engine);
    let (_, spec) = subject.ok_or_else(|| format!("there is no kind `{}`", plan.engine))?;
    if !spec.is_empty() {
        collection = collection.index(format!("secondary:{spec}").parse()?);
    }
    let records = db.create_collection("records", collection)?;
    let mut model = Model {
        secondaries: (plan.records / RECORDS_PER_SECONDARY).max(1),
        state: Vec::with_capacity(plan.records as usize),
        writes: 0,
        random: Random::new(plan.seed),
    };
    let mapped = || db.stats().writes.log_bytes;
    let mut figures = Vec::new();
    let inserts: Vec<u64> = (0..plan.records).collect();
    figures.push(write_row(&records, "insert", &inserts, &mut model, path, &mapped)?);
    let updates: Vec<u64> = (0..plan.updates).map(|_| model.random.below(plan.records)).collect();
    figures.push(write_row(&records, "update", &updates, &mut model, path, &mapped)?);
    let by_secondary = model.by_secondary();
    // Without an index each query would scan the table.
    let query_rows = if spec.is_empty() { &[][..] } else { &QUERY_ROWS[..] };
    for row_spec in query_rows {
        figures.push(measure_row(&records, row_spec, &mut model, &by_secondary, path, &mapped)?);
    }
    Ok(figures)
}

fn write_row(
    records: &Collection,
    row: &str,
    numbers: &[u64],
    model: &mut Model,
    path: &Path,
    mapped: &dyn Fn() -> u64,
) -> Result<RowFigures> {
    let mut json = Vec::with_capacity(RECORD_BYTES);
    let meter = Meter::start(path, mapped);
    for number in numbers {
        model.put(records, *number, &mut json)?;
    }
    let reading = meter.stop();
    let settled = measure::settle(Duration::from_secs(120));
    meter.figures(row, &reading, numbers.len(), settled, numbers.len() * (KEY_BYTES + RECORD_BYTES))
}

fn measure_row(
    records: &Collection,
    row_spec: &QueryRow,
    model: &mut Model,
    by_secondary: &BTreeMap<u64, Vec<(u32, u32)>>,
    path: &Path,
    mapped: &dyn Fn() -> u64,
) -> Result<RowFigures> {
    let firsts: Vec<u64> = (0..row_spec.queries).map(|_| model.random.below(model.secondaries)).collect();
    let queries: Vec<Query> = firsts
        .iter()
        .map(|first| {
            let query = match row_spec.width {
                1 => Query::new().eq("secondary", *first),
                width => Query::new().range("secondary", *first..=*first + width - 1),
            };
            if row_spec.limit == usize::MAX { query } else { query.limit(row_spec.limit) }
        })
        .collect();
    let mut answers = Vec::with_capacity(queries.len());
    let meter = Meter::start(path, mapped);
    for query in &queries {
        answers.push(records.find(query)?.into_vec());
    }
    let reading = meter.stop();
    for (first, answers) in firsts.iter().zip(answers) {
        let lists = by_secondary.range(*first..*first + row_spec.width);
        let mut expected: Vec<(u32, u32)> = lists.flat_map(|(_, list)| list.iter().copied()).collect();
        expected.sort_unstable_by(|left, right| right.cmp(left));
        expected.truncate(row_spec.limit);
        let keys = answers.iter().map(|answer| answer.key.as_slice());
        let right = keys.eq(expected.iter().map(|(_, number)| u64::from(*number).to_be_bytes()))
            && answers
                .iter()
                .all(|answer| answer.record.as_ref().is_some_and(|json| json.len() == RECORD_BYTES));
        if !right {
            return Err(format!("{}: a wrong answer for secondary key {first}", row_spec.row).into());
        }
    }
    meter.figures(row_spec.row, &reading, firsts.len(), Duration::ZERO, 0)
}
