//! The index workload: records with a secondary key, inserted, updated and queried, newest first.
//!
//! A secondary key has 25 records on average. Versions count the writes, so newest first means by descending version. A model,
//! built outside the measured time, computes the expected answer of every lookup, and each answer is compared.
//!
//! An equal number of unmeasured lookups first reads all records of their secondary keys, so that all records are in memory for
//! every engine. Otherwise the first row that reads records would include file accesses: which row that is depends on whether
//! lookups for keys read records.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::data::indexed_record::{RECORD_BYTES, RecordBuffer, seal, seal_of};
use crate::data::keys::{self, KEY_BYTES};
use crate::data::random::Random;
use crate::engine::{Access, Arrangement, Fetch, IndexEngine, IndexSession, Layout, StoreSettings};
use crate::engines;
use crate::error::Result;
use crate::measure::{self, ColdRun};
use crate::report::RowFigures;
use crate::workloads::meter::Meter;

/// Records of one secondary key, on average.
pub const RECORDS_PER_SECONDARY: u64 = 25;

/// A limit above the number of records of any secondary key.
const ALL: usize = 1_000;

/// Writes or lookups in one batch.
const BATCH: usize = 100;

/// The workload of one child process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IndexPlan {
    /// Engine name.
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
    /// The limit of the memory of the process after inserts and updates, in MiB, page cache included. The store is then opened
    /// again with caches of a quarter of that.
    pub cold_mib: Option<u64>,
}

/// The secondary key and the version of every record.
struct Model {
    secondaries: u64,
    /// For each record its secondary key and version.
    state: Vec<(u32, u32)>,
    random: Random,
    versions: u32,
    record: RecordBuffer,
}

impl Model {
    fn new(plan: &IndexPlan) -> Self {
        Self {
            secondaries: (plan.records / RECORDS_PER_SECONDARY).max(1),
            state: Vec::with_capacity(plan.records as usize),
            random: Random::new(plan.seed),
            versions: 0,
            record: RecordBuffer::new(),
        }
    }

    /// Writes the next version of record `number` with a random secondary key.
    fn put(&mut self, session: &mut dyn IndexSession, number: u64) -> Result<()> {
        let secondary = self.random.below(self.secondaries);
        self.versions += 1;
        let state = (secondary as u32, self.versions);
        match self.state.get_mut(number as usize) {
            Some(old) => *old = state,
            None => self.state.push(state),
        }
        session.put(&keys::key(number), self.record.fill(number, secondary, self.versions))
    }

    /// For each secondary key the numbers of its records, newest first.
    fn newest_first(&self) -> Vec<Vec<u32>> {
        let mut by_secondary = vec![Vec::new(); self.secondaries as usize];
        for (number, (secondary, _)) in self.state.iter().enumerate() {
            by_secondary[*secondary as usize].push(number as u32);
        }
        for numbers in &mut by_secondary {
            numbers.sort_by_key(|number| std::cmp::Reverse(self.state[*number as usize].1));
        }
        by_secondary
    }
}

/// A primary key as one number.
#[inline]
fn key_word(primary: &[u8]) -> u64 {
    let half = |at: usize| primary.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    half(0).map_or(0, u64::from_be_bytes) ^ half(8).map_or(0, u64::from_be_bytes)
}

#[inline]
fn fold(checksum: u64, answer: u64) -> u64 {
    (checksum.rotate_left(5) ^ answer).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Runs `plan` on a store in the empty directory `path`.
pub fn run(plan: &IndexPlan, path: &Path) -> Result<Vec<RowFigures>> {
    let cold = plan.cold_mib.map(ColdRun::prepare).transpose()?;
    let arrangement = Arrangement::of(plan.layout);
    let mut engine = engines::open_index(&plan.engine, path, &StoreSettings::of(arrangement))?;
    let mut model = Model::new(plan);
    let mut figures = Vec::new();

    let inserts: Vec<u64> = (0..plan.records).collect();
    figures.push(write_row(&*engine, "insert", &inserts, &mut model, path)?);
    let updates: Vec<u64> = (0..plan.updates).map(|_| model.random.below(plan.records)).collect();
    figures.push(write_row(&*engine, "update", &updates, &mut model, path)?);

    let newest_first = model.newest_first();
    if let Some(cold) = &cold {
        drop(engine);
        cold.begin(path)?;
        engine =
            engines::open_index(&plan.engine, path, &StoreSettings::of_cold_run(arrangement, plan.cold_mib))?;
    }
    for (row, limit, fetch) in [
        ("warm-up", ALL, Fetch::Records),
        ("newest10-keys", 10, Fetch::Keys),
        ("all25-keys", ALL, Fetch::Keys),
        ("newest10-records", 10, Fetch::Records),
        ("all25-records", ALL, Fetch::Records),
    ] {
        let lookup = LookupRow { row, limit, fetch };
        let row_figures = lookup_row(&*engine, &lookup, &mut model, &newest_first, path)?;
        if row != "warm-up" {
            figures.push(row_figures);
        }
    }
    Ok(figures)
}

fn write_row(
    engine: &dyn IndexEngine,
    row: &str,
    numbers: &[u64],
    model: &mut Model,
    path: &Path,
) -> Result<RowFigures> {
    let mut connection = engine.connect()?;
    let mapped = || engine.mapped_bytes();
    let meter = Meter::start(path, &mapped);
    for batch in numbers.chunks(BATCH) {
        connection.batch(Access::Write, &mut |session| {
            batch.iter().try_for_each(|number| model.put(session, *number))
        })?;
    }
    let reading = meter.stop();
    let settled = measure::settle(Duration::from_secs(120));
    let user_bytes = numbers.len() * (KEY_BYTES + RECORD_BYTES);
    meter.figures(row, &reading, numbers.len(), settled, user_bytes)
}

struct LookupRow {
    row: &'static str,
    limit: usize,
    fetch: Fetch,
}

fn lookup_row(
    engine: &dyn IndexEngine,
    lookup: &LookupRow,
    model: &mut Model,
    newest_first: &[Vec<u32>],
    path: &Path,
) -> Result<RowFigures> {
    let LookupRow { row, limit, fetch } = *lookup;
    let secondaries: Vec<u64> =
        (0..(model.state.len() / 50).max(1_000)).map(|_| model.random.below(model.secondaries)).collect();
    let mut answers = Vec::with_capacity(secondaries.len());
    let mut connection = engine.connect()?;
    let mapped = || engine.mapped_bytes();
    let meter = Meter::start(path, &mapped);
    for batch in secondaries.chunks(BATCH) {
        connection.batch(Access::Read, &mut |session| {
            for secondary in batch {
                let mut checksum = 0;
                session.newest(*secondary, limit, fetch, &mut |primary, record| {
                    checksum = fold(checksum, key_word(primary));
                    if let Some(record) = record {
                        checksum = fold(checksum, seal_of(record));
                    }
                })?;
                answers.push(checksum);
            }
            Ok(())
        })?;
    }
    let reading = meter.stop();
    for (secondary, answer) in secondaries.iter().zip(answers) {
        let mut expected = 0;
        for number in newest_first[*secondary as usize].iter().take(limit) {
            let number = u64::from(*number);
            let primary = keys::key(number);
            expected = fold(expected, key_word(&primary));
            if fetch == Fetch::Records {
                let version = model.state[number as usize].1;
                expected = fold(expected, seal(number, version));
            }
        }
        if expected != answer {
            return Err(format!("{row}: a wrong answer for secondary key {secondary}").into());
        }
    }
    meter.figures(row, &reading, secondaries.len(), Duration::ZERO, 0)
}
