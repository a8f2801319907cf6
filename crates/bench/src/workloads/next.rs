//! The workload for index blocks inside sstables: records of 128 bytes, 25 for each secondary key on average.
//!
//! Records are inserted, updated and compacted. Queries read the newest few and all records of a secondary key, and ranges
//! of 250 and 2,500 records. Every answer includes its record, borrowed without a copy. A model, maintained outside the
//! measured time, computes the expected answers, newest first, and each answer is compared. If the global index takes more
//! than a hundredth of the size of the table in memory, the workload fails.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bolide::{
    Collection, CollectionOptions, Components, Compression, Db, FindOptions, Options, Query, SyncMode,
};
use serde::{Deserialize, Serialize};

use super::meter::Meter;
use crate::data::indexed_record::seal;
use crate::data::keys::{self, KEY_BYTES};
use crate::data::random::Random;
use crate::engine::{CACHE_BYTES, MEMTABLE_BYTES};
use crate::engines::SecondaryKey;
use crate::error::Result;
use crate::measure;
use crate::report::RowFigures;

pub(super) const RECORD_BYTES: usize = 128;
const RECORDS_PER_SECONDARY: u64 = 25;
/// The maximum memory of the global index, directories included, as a share of the size of the table.
const MAX_INDEX_SHARE: f64 = 0.01;

/// The subjects; the first is the base of the comparison.
pub const SUBJECTS: &[(&str, &str)] =
    &[("next", "next"), ("none", ""), ("composite", "composite"), ("ps-tree", "ps-tree")];

/// The workload of one child process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NextPlan {
    /// Name of the subject.
    pub engine: String,
    /// Records to insert.
    pub records: u64,
    /// Updates after that.
    pub updates: u64,
    /// Tiered layout instead of leveled.
    pub tiered: bool,
    /// Seed of all random choices.
    pub seed: u64,
    /// The directory of the data set of positions; `None` for the shared data directory.
    pub data: Option<PathBuf>,
}

/// A row of queries: the number of neighbouring secondary keys, and the limit.
struct QueryRow {
    row: &'static str,
    width: u64,
    limit: usize,
    queries: usize,
}

const QUERY_ROWS: [QueryRow; 5] = [
    // Fills the block cache; not reported.
    QueryRow { row: WARM_UP, width: 1, limit: usize::MAX, queries: 4_000 },
    QueryRow { row: "newest10-records", width: 1, limit: 10, queries: 4_000 },
    QueryRow { row: "all25-records", width: 1, limit: usize::MAX, queries: 4_000 },
    QueryRow { row: "range250-records", width: 10, limit: usize::MAX, queries: 1_000 },
    QueryRow { row: "range2500-records", width: 100, limit: usize::MAX, queries: 200 },
];
const WARM_UP: &str = "warm-up";

/// The secondary key and the last write of every record.
struct Model {
    secondaries: u64,
    /// For each record its secondary key and the number of its last write.
    state: Vec<(u32, u32)>,
    writes: u32,
    random: Random,
    record: [u8; RECORD_BYTES],
}

impl Model {
    fn new(plan: &NextPlan) -> Self {
        Self {
            secondaries: (plan.records / RECORDS_PER_SECONDARY).max(1),
            state: Vec::with_capacity(plan.records as usize),
            writes: 0,
            random: Random::new(plan.seed),
            record: [b'x'; RECORD_BYTES],
        }
    }

    /// Writes record `number` with a random secondary key.
    fn put(&mut self, records: &Collection, number: u64) -> Result<()> {
        let secondary = self.random.below(self.secondaries);
        self.writes += 1;
        let words = [secondary, u64::from(self.writes), number, seal(number, self.writes)];
        for (place, word) in self.record.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        let state = (secondary as u32, self.writes);
        match self.state.get_mut(number as usize) {
            Some(old) => *old = state,
            None => self.state.push(state),
        }
        Ok(records.put(&keys::key(number), &self.record)?)
    }

    /// For each secondary key its records, newest first, as (write, number).
    fn by_secondary(&self) -> Vec<Vec<(u32, u32)>> {
        let mut all = vec![Vec::new(); self.secondaries as usize];
        for (number, (secondary, write)) in (0..).zip(&self.state) {
            all[*secondary as usize].push((*write, number));
        }
        all.iter_mut().for_each(|list: &mut Vec<(u32, u32)>| list.sort_unstable_by(|a, b| b.cmp(a)));
        all
    }
}

/// A checksum of all answers to a query, in their order.
pub(super) fn checksum_of_answers(records: &Collection, query: &Query, options: &FindOptions) -> Result<u64> {
    let mut checksum = 0;
    records.visit(query, options, |answer| {
        checksum = fold(checksum, word_of(answer.key) ^ seal_of(answer.record.unwrap_or_default()));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(checksum)
}

/// The checksum of the newest `limit` of these records, given as (write, number).
pub(super) fn checksum_expected(mut expected: Vec<(u32, u32)>, limit: usize) -> u64 {
    expected.sort_unstable_by(|left, right| right.cmp(left));
    expected.iter().take(limit).fold(0, |checksum, &(write, number)| {
        let number = u64::from(number);
        fold(checksum, word_of(&keys::key(number)) ^ seal(number, write))
    })
}

/// The seal of a record; 0 where it has another length.
#[inline]
fn seal_of(record: &[u8]) -> u64 {
    let bytes = (record.len() == RECORD_BYTES).then(|| record.get(24..32)).flatten();
    bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes)
}

#[inline]
fn fold(checksum: u64, answer: u64) -> u64 {
    (checksum.rotate_left(5) ^ answer).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The first eight bytes of a key.
#[inline]
fn word_of(key: &[u8]) -> u64 {
    key.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Runs `plan` on a store in the empty directory `path`.
pub fn run(plan: &NextPlan, path: &Path) -> Result<Vec<RowFigures>> {
    let options =
        Options::default().cache_bytes(CACHE_BYTES).memtable_bytes(MEMTABLE_BYTES).sync(SyncMode::None);
    let components = Components::system().extractor("records", Arc::new(SecondaryKey));
    let db = Db::open_with(path, options, components)?;
    let layout = if plan.tiered { bolide::Layout::Tiered } else { bolide::Layout::Leveled };
    let mut collection = CollectionOptions::bytes().layout(layout).compression(Compression::None);
    let subject = SUBJECTS.iter().find(|(name, _)| *name == plan.engine);
    let (_, spec) = subject.ok_or_else(|| format!("there is no kind `{}`", plan.engine))?;
    if !spec.is_empty() {
        collection = collection.index(format!("secondary:{spec}").parse()?);
    }
    let records = db.create_collection("records", collection)?;
    let mut model = Model::new(plan);
    let mapped = || db.stats().writes.log_bytes;
    let inserts: Vec<u64> = (0..plan.records).collect();
    let mut figures = vec![write_row(&records, "insert", &inserts, &mut model, path, &mapped)?];
    let updates: Vec<u64> = (0..plan.updates).map(|_| model.random.below(plan.records)).collect();
    figures.push(write_row(&records, "update", &updates, &mut model, path, &mapped)?);
    db.compact()?;
    measure::settle(Duration::from_secs(120));
    let by_secondary = model.by_secondary();
    // Without an index each query would scan the table.
    let query_rows = if spec.is_empty() { &[][..] } else { &QUERY_ROWS[..] };
    for row_spec in query_rows {
        let row = measure_row(&records, row_spec, &mut model, &by_secondary, path, &mapped)?;
        if row_spec.row != WARM_UP {
            figures.push(row);
        }
    }
    if let (Some(share), Some(last)) = (index_share(&db)?, figures.last_mut()) {
        last.index_share = Some(share);
    }
    Ok(figures)
}

/// The memory of an index of kind `next` as a share of the size of its table; `None` if there is no such index.
pub(super) fn index_share(db: &Db) -> Result<Option<f64>> {
    let stats = db.stats();
    let mut indexes = stats.collections.iter().flat_map(|of| &of.indexes);
    let next = indexes.find_map(|index| index.figures_of::<bolide::NextFigures>());
    let Some(next) = next else { return Ok(None) };
    let share = next.resident_bytes() as f64 / next.table_bytes.max(1) as f64;
    if next.global_bytes == 0 || share > MAX_INDEX_SHARE {
        let (bytes, of) = (next.resident_bytes(), next.table_bytes);
        return Err(format!("the global index takes {bytes} bytes of memory over a table of {of}").into());
    }
    Ok(Some(share))
}

fn write_row(
    records: &Collection,
    row: &str,
    numbers: &[u64],
    model: &mut Model,
    path: &Path,
    mapped: &dyn Fn() -> u64,
) -> Result<RowFigures> {
    let meter = Meter::start(path, mapped);
    for number in numbers {
        model.put(records, *number)?;
    }
    let reading = meter.stop();
    let settled = measure::settle(Duration::from_secs(120));
    meter.figures(row, &reading, numbers.len(), settled, numbers.len() * (KEY_BYTES + RECORD_BYTES))
}

fn measure_row(
    records: &Collection,
    row_spec: &QueryRow,
    model: &mut Model,
    by_secondary: &[Vec<(u32, u32)>],
    path: &Path,
    mapped: &dyn Fn() -> u64,
) -> Result<RowFigures> {
    let starts = model.secondaries.saturating_sub(row_spec.width - 1).max(1);
    let firsts: Vec<u64> = (0..row_spec.queries).map(|_| model.random.below(starts)).collect();
    let options = FindOptions::default();
    let mut answers = Vec::with_capacity(firsts.len());
    let meter = Meter::start(path, mapped);
    for first in &firsts {
        let query = match row_spec.width {
            1 => Query::new().eq("secondary", *first),
            width => Query::new().range("secondary", *first..=*first + width - 1),
        };
        let query = if row_spec.limit == usize::MAX { query } else { query.limit(row_spec.limit) };
        answers.push(checksum_of_answers(records, &query, &options)?);
    }
    let reading = meter.stop();
    for (first, answer) in firsts.iter().zip(answers) {
        let lists = by_secondary.iter().skip(*first as usize).take(row_spec.width as usize);
        if checksum_expected(lists.flatten().copied().collect(), row_spec.limit) != answer {
            return Err(format!("{}: a wrong answer for secondary key {first}", row_spec.row).into());
        }
    }
    meter.figures(row_spec.row, &reading, firsts.len(), Duration::ZERO, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(engine: &str, tiered: bool) -> NextPlan {
        NextPlan { engine: engine.to_owned(), records: 6_000, updates: 1_500, tiered, seed: 1, data: None }
    }

    #[test]
    fn all_subjects_match_the_model() {
        for (engine, spec) in SUBJECTS {
            let folder = tempfile::tempdir().unwrap();
            let figures = run(&plan(engine, *engine == "next"), folder.path()).unwrap();
            let rows: Vec<&str> = figures.iter().map(|row| row.row.as_str()).collect();
            let queried = ["newest10-records", "all25-records", "range250-records", "range2500-records"];
            let queried = if spec.is_empty() { &[][..] } else { &queried };
            assert_eq!(rows, [&["insert", "update"], queried].concat());
            let share = figures.last().and_then(|row| row.index_share);
            assert_eq!(share.is_some(), *engine == "next", "{share:?}");
        }
    }

    #[test]
    fn a_wrong_answer_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let plan = plan("composite", false);
        let db = Db::open_with(
            folder.path(),
            Options::default(),
            Components::system().extractor("records", Arc::new(SecondaryKey)),
        )
        .unwrap();
        let records = CollectionOptions::bytes().index("secondary:composite".parse().unwrap());
        let records = db.create_collection("records", records).unwrap();
        let mut model = Model::new(&plan);
        (0..500).for_each(|number| model.put(&records, number).unwrap());
        let row_spec = QueryRow { row: "all", width: 240, limit: usize::MAX, queries: 1 };
        let by_secondary = model.by_secondary();
        let path = folder.path();
        measure_row(&records, &row_spec, &mut model, &by_secondary, path, &|| 0).unwrap();
        records.delete(&keys::key(7)).unwrap();
        assert!(measure_row(&records, &row_spec, &mut model, &by_secondary, path, &|| 0).is_err());
    }
}
