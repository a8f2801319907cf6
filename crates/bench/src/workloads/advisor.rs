//! The advisor against reality: predictions from samples beside indexes of every kind over whole collections.
//!
//! For each distribution of values a collection without an index is loaded, and the advisor predicts each kind for each workload.
//! Then each kind is built over all records, and its memory, disk and CPU times are measured in the same way. The advice is right if
//! the measured cost of the advised kind is within [`RIGHT`] of the lowest one.

use std::ops::ControlFlow;
use std::path::Path;

use bolide::advisor::Workload;
use bolide::advisor::prediction::{KindPrediction, Surroundings};
use bolide::advisor::trial::ScaledFigures;
use bolide::{Collection, CollectionOptions, Db, FindOptions, IndexKind, Options, Query, SyncMode};
use comfy_table::{Table, presets};

use crate::data::random::{Random, mix};
use crate::data::zipf::Zipf;
use crate::error::Result;
use crate::measure::thread_cpu_nanos;

/// The factor over the lowest measured cost up to which the advised kind counts as right.
const RIGHT: f64 = 1.25;
/// The maximum error of a predicted size.
const MAX_SIZE_ERROR: f64 = 0.25;
/// Sizes up to this are fixed parts of files, and are not compared.
const NEGLIGIBLE_BYTES: f64 = 65_536.0;
/// Lookups of a row, and the answers after which it ends.
const LOOKUPS: u64 = 1_000;
const MAX_ANSWERS: u64 = 200_000;

/// The values of the attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Distribution {
    Unique,
    TwentyFive,
    Zipf,
    Time,
    Few,
    Arrays,
}

/// A named workload on a distribution.
struct AdvisedWorkload {
    name: &'static str,
    distribution: Distribution,
    writes: f64,
    lookups: f64,
    limit: Option<usize>,
    keys_only: bool,
}

const fn row(
    name: &'static str,
    distribution: Distribution,
    (writes, lookups): (f64, f64),
    limit: Option<usize>,
    keys_only: bool,
) -> AdvisedWorkload {
    AdvisedWorkload { name, distribution, writes, lookups, limit, keys_only }
}

const READS: (f64, f64) = (0.05, 0.9);
const HALF: (f64, f64) = (0.5, 0.5);
const WRITES: (f64, f64) = (0.98, 0.02);
const NEWEST: Option<usize> = Some(10);

const WORKLOADS: [AdvisedWorkload; 14] = [
    row("unique, reads", Distribution::Unique, READS, NEWEST, false),
    row("unique, writes", Distribution::Unique, WRITES, NEWEST, false),
    row("25 a value, newest 10", Distribution::TwentyFive, READS, NEWEST, false),
    row("25 a value, all", Distribution::TwentyFive, HALF, None, false),
    row("25 a value, keys", Distribution::TwentyFive, HALF, NEWEST, true),
    row("25 a value, writes", Distribution::TwentyFive, WRITES, NEWEST, false),
    row("zipf, newest 10", Distribution::Zipf, READS, NEWEST, false),
    row("zipf, writes", Distribution::Zipf, WRITES, NEWEST, false),
    row("time, newest 10", Distribution::Time, HALF, NEWEST, false),
    row("time, writes", Distribution::Time, WRITES, NEWEST, false),
    row("20 values, newest 10", Distribution::Few, HALF, NEWEST, false),
    row("20 values, keys", Distribution::Few, READS, NEWEST, true),
    row("arrays, newest 10", Distribution::Arrays, HALF, NEWEST, false),
    row("arrays, all keys", Distribution::Arrays, READS, None, true),
];

impl Distribution {
    const ALL: [Self; 6] = [Self::Unique, Self::TwentyFive, Self::Zipf, Self::Time, Self::Few, Self::Arrays];

    /// The values of each of `records` records.
    fn values(self, records: u64, seed: u64) -> Vec<Vec<u64>> {
        let mut random = Random::new(seed);
        let frequent = Zipf::new((records / 25).max(1));
        let some = (records / 25).max(1);
        let mut of = |number: u64| match self {
            Self::Unique => vec![mix(number ^ seed) >> 1],
            Self::TwentyFive => vec![random.below(some)],
            Self::Zipf => vec![mix(frequent.rank(&mut random)) >> 1],
            Self::Time => vec![number / 5],
            Self::Few => vec![random.below(20)],
            Self::Arrays => (0..3).map(|_| random.below(some)).collect(),
        };
        (0..records).map(&mut of).collect()
    }
}

/// A collection with all records.
struct Loaded {
    db: Db,
    collection: Collection,
    write_nanos: f64,
}

fn load(path: &Path, kind: Option<IndexKind>, values: &[Vec<u64>]) -> Result<Loaded> {
    let options = Options::default()
        .memory_bytes(4 << 30)
        .cache_bytes(1 << 30)
        .background_threads(0)
        .fetch_threads(1)
        .sync(SyncMode::None);
    let db = Db::open(path, options)?;
    let mut collection = CollectionOptions::json();
    if let Some(kind) = kind {
        collection = collection.index(format!("v[*]:{}", kind.name()).parse()?);
    }
    let collection = db.create_collection("records", collection)?;
    let start = thread_cpu_nanos();
    for (number, values) in values.iter().enumerate() {
        let filler = mix(number as u64);
        let record = format!(r#"{{"id":{number},"v":{values:?},"text":"{filler:0>100}"}}"#);
        collection.put(&(number as u64).to_be_bytes(), record.as_bytes())?;
    }
    db.flush()?;
    collection.compact()?;
    db.wait_until_settled()?;
    let write_nanos = (thread_cpu_nanos() - start) as f64 / values.len().max(1) as f64;
    Ok(Loaded { db, collection, write_nanos })
}

/// The mean CPU time of the lookups of `workload`, in nanoseconds.
fn lookup_nanos(collection: &Collection, workload: &AdvisedWorkload, values: &[Vec<u64>]) -> Result<f64> {
    let mut mean = 0.0;
    // The first pass fills the cache.
    for _ in 0..2 {
        let mut random = Random::new(17);
        let (mut lookups, mut answers) = (0_u64, 0_u64);
        let start = thread_cpu_nanos();
        while lookups < LOOKUPS && answers < MAX_ANSWERS {
            let of = values.get(random.below(values.len() as u64) as usize).and_then(|values| values.first());
            let value = i64::try_from(of.copied().unwrap_or(0))?;
            let mut query = Query::new().eq("v[*]", value).using_index("v[*]");
            if let Some(limit) = workload.limit {
                query = query.limit(limit);
            }
            if workload.keys_only {
                query = query.keys_only();
            }
            let found =
                collection.visit(&query, &FindOptions::default(), |_| Ok(ControlFlow::Continue(())))?;
            if found.count() == 0 {
                return Err("a lookup of an existing value found nothing".into());
            }
            answers += found.count();
            lookups += 1;
        }
        mean = (thread_cpu_nanos() - start) as f64 / lookups.max(1) as f64;
    }
    Ok(mean)
}

fn workload_of(row: &AdvisedWorkload) -> Workload {
    let mut workload = Workload::default();
    workload.writes = row.writes;
    workload.lookups = row.lookups;
    workload.limit = row.limit;
    workload.keys_only = row.keys_only;
    workload
}

/// Errors of all predictions of one figure, as shares of the measured ones.
#[derive(Debug, Default)]
struct Errors(Vec<f64>);

impl Errors {
    fn add(&mut self, predicted: f64, measured: f64) -> f64 {
        let error = predicted / measured.max(1.0) - 1.0;
        self.0.push(error.abs());
        error
    }

    /// The median and the largest error as text.
    fn summary(&mut self) -> String {
        self.0.sort_by(f64::total_cmp);
        let median = self.0.get(self.0.len() / 2).copied().unwrap_or(0.0);
        let largest = self.0.last().copied().unwrap_or(0.0);
        let within = self.0.iter().filter(|error| **error <= MAX_SIZE_ERROR).count();
        format!(
            "median {:.0} %, largest {:.0} %, {within} of {} within {:.0} %",
            median * 100.0,
            largest * 100.0,
            self.0.len(),
            MAX_SIZE_ERROR * 100.0
        )
    }
}

/// Everything that was compared.
#[derive(Debug, Default)]
struct Comparison {
    memory: Errors,
    disk: Errors,
    write: Errors,
    lookup: Errors,
    right: usize,
    workloads: usize,
}

/// Measures all workloads with `records` records and prints predicted beside measured figures.
///
/// # Errors
/// Those of the store.
pub fn run(records: u64, seed: u64, directory: Option<&Path>) -> Result<()> {
    let mut comparison = Comparison::default();
    let (mut sizes, mut choices) = (Table::new(), Table::new());
    sizes.load_style(presets::ASCII_MARKDOWN);
    choices.load_style(presets::ASCII_MARKDOWN);
    sizes.set_header([
        "values",
        "kind",
        "memory KiB",
        "predicted",
        "disk KiB",
        "predicted",
        "write µs",
        "predicted",
    ]);
    choices.set_header([
        "workload",
        "advised",
        "its µs",
        "predicted",
        "best",
        "its µs",
        "right",
        "tree of LevelDB++",
    ]);
    for distribution in Distribution::ALL {
        let values = distribution.values(records, seed);
        compare(distribution, &values, directory, &mut comparison, (&mut sizes, &mut choices))?;
    }
    println!("Sizes and writes, {records} records\n\n{sizes}\n");
    println!("Advice, CPU time for an operation\n\n{choices}\n");
    println!("errors of memory: {}", comparison.memory.summary());
    println!("errors of disk: {}", comparison.disk.summary());
    println!("errors of writes: {}", comparison.write.summary());
    println!("errors of lookups: {}", comparison.lookup.summary());
    println!("right first choice: {} of {} workloads", comparison.right, comparison.workloads);
    Ok(())
}

fn temporary(directory: Option<&Path>) -> Result<tempfile::TempDir> {
    Ok(match directory {
        Some(directory) => tempfile::tempdir_in(directory)?,
        None => tempfile::tempdir()?,
    })
}

fn compare(
    distribution: Distribution,
    values: &[Vec<u64>],
    directory: Option<&Path>,
    comparison: &mut Comparison,
    (sizes, choices): (&mut Table, &mut Table),
) -> Result<()> {
    let rows: Vec<&AdvisedWorkload> =
        WORKLOADS.iter().filter(|row| row.distribution == distribution).collect();
    let place = temporary(directory)?;
    let alone = load(&place.path().join("db"), None, values)?;
    let mut advice = Vec::new();
    for row in &rows {
        eprintln!("advice: {}", row.name);
        advice.push(alone.collection.advise(&"v[*]".parse()?, &workload_of(row))?);
    }
    // For each workload the measured figures of each kind.
    let mut measured: Vec<Vec<KindPrediction>> = vec![Vec::new(); rows.len()];
    let surroundings = Surroundings::new(f64::INFINITY, f64::INFINITY, 0.0);
    for kind in IndexKind::BUILT_IN {
        eprintln!("{distribution:?}: {}", kind.name());
        let place = temporary(directory)?;
        let loaded = load(&place.path().join("db"), Some(kind), values)?;
        let mut figures = ScaledFigures::default();
        figures.write_nanos = (loaded.write_nanos - alone.write_nanos).max(0.0);
        for (row, measured) in rows.iter().zip(&mut measured) {
            figures.lookup_nanos = lookup_nanos(&loaded.collection, row, values)?;
            measured.push(KindPrediction::new(kind, &figures, &workload_of(row), &surroundings));
        }
        let stats = loaded.db.stats();
        let index = stats.collections.iter().flat_map(|found| &found.indexes).next().ok_or("no index")?;
        let (memory, disk) = (index.memory_bytes() as f64, index.disk_bytes() as f64);
        let first = advice.first().and_then(|advice| of_kind(&advice.measurements.predictions, kind));
        let predicted = first.ok_or("no prediction")?;
        sizes.add_row([
            format!("{distribution:?}"),
            kind.name().to_owned(),
            kib(memory),
            size_with_error(predicted.memory_bytes, memory, &mut comparison.memory),
            kib(disk),
            size_with_error(predicted.disk_bytes, disk, &mut comparison.disk),
            micros(figures.write_nanos),
            micros(predicted.write_nanos),
        ]);
        comparison.write.add(predicted.write_nanos, figures.write_nanos);
    }
    for ((row, advice), measured) in rows.iter().zip(&advice).zip(&measured) {
        for found in measured {
            let predicted = of_kind(&advice.measurements.predictions, found.kind).ok_or("no prediction")?;
            comparison.lookup.add(predicted.lookup_nanos, found.lookup_nanos);
        }
        let best = measured.iter().min_by(|one, other| one.cost_nanos.total_cmp(&other.cost_nanos));
        let (best, advised) = best.zip(of_kind(measured, advice.kind)).ok_or("no kind")?;
        let predicted = of_kind(&advice.measurements.predictions, advice.kind).ok_or("no prediction")?;
        let is_right = advised.cost_nanos <= RIGHT * best.cost_nanos;
        comparison.workloads += 1;
        comparison.right += usize::from(is_right);
        choices.add_row([
            row.name.to_owned(),
            advice.kind.name().to_owned(),
            micros(advised.cost_nanos),
            micros(predicted.cost_nanos),
            best.kind.name().to_owned(),
            micros(best.cost_nanos),
            if is_right { "yes" } else { "no" }.to_owned(),
            advice.paper.name().to_owned(),
        ]);
    }
    Ok(())
}

fn of_kind(predictions: &[KindPrediction], kind: IndexKind) -> Option<&KindPrediction> {
    predictions.iter().find(|prediction| prediction.kind == kind)
}

fn kib(bytes: f64) -> String {
    format!("{:.0}", bytes / 1024.0)
}

fn micros(nanos: f64) -> String {
    format!("{:.2}", nanos / 1000.0)
}

/// A predicted size with its error, which counts unless both sizes are negligible.
fn size_with_error(predicted: f64, measured: f64, errors: &mut Errors) -> String {
    if predicted.max(measured) <= NEGLIGIBLE_BYTES {
        return kib(predicted);
    }
    let error = errors.add(predicted, measured);
    format!("{} ({:+.0} %)", kib(predicted), error * 100.0)
}
