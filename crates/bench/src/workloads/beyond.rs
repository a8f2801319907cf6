//! An index larger than its memory: a `ps-tree` whose entries take a multiple of its bound, beside one that fits and `composite`.
//!
//! Records of 160 bytes are loaded whose values are chosen by Zipf's law, 25 for each value on average. Then the newest ten keys of
//! values that are chosen alike are read. A model computes the expected answers. All subjects have the same memory: the bound of the
//! index that spills, and a block cache of the same size; `composite` has a block cache of both.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use bolide::{CollectionOptions, Compression, Db, MemoryUse, Options, PsTreeFigures, Query, SyncMode};
use comfy_table::{Table, presets};

use crate::data::random::Random;
use crate::data::zipf::Zipf;
use crate::error::Result;
use crate::measure::{process_cpu_nanos, settle};

const RECORD_BYTES: usize = 160;
const RECORDS_PER_SECONDARY: u64 = 25;
/// Bytes of an entry of such an index in memory, approximately.
const ENTRY_BYTES: u64 = 40;
/// The smallest bound: below, the fixed parts of an index matter.
const MIN_BOUND_BYTES: u64 = 1 << 20;
const LOOKUPS: u64 = 20_000;
const LIMIT: usize = 10;
/// Records between two readings of the memory of the index.
const SAMPLE: u64 = 50_000;

/// The settings of a run.
#[derive(Debug, Clone, Copy)]
pub struct BeyondPlan {
    /// Records to load.
    pub records: u64,
    /// The size of the index as a multiple of its bound.
    pub factor: u64,
    /// Seed of all random choices.
    pub seed: u64,
}

impl BeyondPlan {
    fn bound_bytes(self) -> u64 {
        (self.records * ENTRY_BYTES / self.factor.max(1)).max(MIN_BOUND_BYTES)
    }
}

struct Subject {
    name: &'static str,
    spec: String,
    cache_bytes: u64,
}

/// The figures of one subject.
#[derive(Debug, Default)]
struct Figures {
    put_wall_micros: f64,
    put_process_micros: f64,
    settle_seconds: f64,
    /// The memory of the region of the index: at most, and at the end.
    peak_bytes: u64,
    bytes: u64,
    disk_bytes: u64,
    /// Wall time, and blocks that were not in the cache, of each lookup; sorted.
    lookup_micros: Vec<f64>,
    lookup_reads: Vec<u64>,
}

/// Measures all subjects in directories below `parent`, or in the system's directory for temporary files, and prints a table.
///
/// # Errors
/// Those of the databases; a wrong answer.
pub fn run(plan: BeyondPlan, parent: Option<&Path>) -> Result<()> {
    let bound = plan.bound_bytes();
    let subjects = [
        Subject { name: "in memory", spec: format!("ps-tree:memory={}", u64::MAX / 2), cache_bytes: bound },
        Subject { name: "beyond memory", spec: format!("ps-tree:memory={bound}"), cache_bytes: bound },
        Subject { name: "composite", spec: "composite".into(), cache_bytes: 2 * bound },
    ];
    println!("{} records, a bound of {bound} bytes", plan.records);
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header([
        "index",
        "put wall µs",
        "put process µs",
        "settle s",
        "peak MB",
        "MB",
        "disk MB",
        "newest 10 median µs",
        "p99 µs",
        "reads median",
        "p99",
    ]);
    for subject in &subjects {
        let mut builder = tempfile::Builder::new();
        builder.prefix("bolide-bench-beyond-");
        let directory = match parent {
            Some(parent) => builder.tempdir_in(parent)?,
            None => builder.tempdir()?,
        };
        let figures = measure(plan, subject, directory.path())?;
        let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
        table.add_row([
            subject.name.to_owned(),
            format!("{:.2}", figures.put_wall_micros),
            format!("{:.2}", figures.put_process_micros),
            format!("{:.1}", figures.settle_seconds),
            megabytes(figures.peak_bytes),
            megabytes(figures.bytes),
            megabytes(figures.disk_bytes),
            format!("{:.1}", quantile(&figures.lookup_micros, 50)),
            format!("{:.1}", quantile(&figures.lookup_micros, 99)),
            quantile(&figures.lookup_reads, 50).to_string(),
            quantile(&figures.lookup_reads, 99).to_string(),
        ]);
    }
    println!("{table}");
    Ok(())
}

/// The element below which `percent` percent of `sorted` are.
fn quantile<T: Copy + Default>(sorted: &[T], percent: usize) -> T {
    sorted.get(sorted.len() * percent / 100).copied().unwrap_or_default()
}

fn region_bytes(db: &Db) -> u64 {
    let users = db.stats().memory.users;
    let regions = users.iter().find(|user| user.memory_use == MemoryUse::IndexRegions && user.name.is_none());
    regions.map_or(0, |user| user.size.used)
}

fn measure(plan: BeyondPlan, subject: &Subject, path: &Path) -> Result<Figures> {
    // No limit but that of the index itself.
    let options = Options::default()
        .memory_bytes(usize::MAX / 2)
        .cache_bytes(subject.cache_bytes as usize)
        .sync(SyncMode::None);
    let db = Db::open(path, options)?;
    let index = format!("secondary:{}", subject.spec).parse()?;
    let collection = CollectionOptions::json().compression(Compression::None).index(index);
    let records = db.create_collection("records", collection)?;
    let secondaries = (plan.records / RECORDS_PER_SECONDARY).max(1);
    let (zipf, mut random) = (Zipf::scrambled(), Random::new(plan.seed));
    // Numbers of the newest records of each value, the newest last.
    let mut newest: Vec<Vec<u64>> = vec![Vec::new(); secondaries as usize];
    let mut figures = Figures::default();
    let mut json = Vec::with_capacity(RECORD_BYTES);
    let (started, cpu) = (Instant::now(), process_cpu_nanos());
    for number in 0..plan.records {
        let secondary = zipf.scattered(&mut random, secondaries);
        json.clear();
        write!(json, r#"{{"id":{number},"secondary":{secondary},"filler":""#)?;
        json.resize(RECORD_BYTES - 2, b'x');
        json.extend_from_slice(br#""}"#);
        records.put(&number.to_be_bytes(), &json)?;
        let of_value = &mut newest[secondary as usize];
        of_value.push(number);
        if of_value.len() > 2 * LIMIT {
            of_value.drain(..LIMIT);
        }
        if number % SAMPLE == 0 {
            figures.peak_bytes = figures.peak_bytes.max(region_bytes(&db));
        }
    }
    let operations = plan.records.max(1) as f64;
    figures.put_wall_micros = started.elapsed().as_secs_f64() * 1e6 / operations;
    figures.settle_seconds = settle(std::time::Duration::from_secs(120)).as_secs_f64();
    figures.put_process_micros = (process_cpu_nanos() - cpu) as f64 / 1e3 / operations;
    figures.peak_bytes = figures.peak_bytes.max(region_bytes(&db));
    let stats = db.stats();
    if let Some(index) = stats.collections.first().and_then(|collection| collection.indexes.first()) {
        figures.bytes = index.figures_of::<PsTreeFigures>().map_or(0, |figures| figures.allocated_bytes);
        figures.disk_bytes = index.disk_bytes();
    }
    for _ in 0..LOOKUPS {
        let secondary = zipf.scattered(&mut random, secondaries);
        let query = Query::new().eq("secondary", secondary).limit(LIMIT).keys_only();
        let (misses, started) = (db.stats().cache.misses, Instant::now());
        let found = records.find(&query)?.into_vec();
        figures.lookup_micros.push(started.elapsed().as_secs_f64() * 1e6);
        figures.lookup_reads.push(db.stats().cache.misses - misses);
        let expected = newest[secondary as usize].iter().rev().take(LIMIT);
        let expected = expected.map(|number| number.to_be_bytes());
        if !found.iter().map(|row| row.key.as_slice()).eq(expected) {
            return Err(format!("{}: a wrong answer for value {secondary}", subject.name).into());
        }
    }
    figures.lookup_micros.sort_by(f64::total_cmp);
    figures.lookup_reads.sort_unstable();
    drop(records);
    db.close()?;
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_run_has_the_right_answers() {
        run(BeyondPlan { records: 3_000, factor: 10, seed: 1 }, None).unwrap();
    }

    #[test]
    fn quantiles_are_elements() {
        assert_eq!((quantile(&[1, 2, 3, 4], 50), quantile(&[1, 2, 3, 4], 99)), (3, 4));
        assert_eq!(quantile::<u64>(&[], 50), 0);
    }
}
