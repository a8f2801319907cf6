//! Long updates with every kind of index, on a real disk with background threads: answers stay correct, and memory and disk
//! space stay bounded.
//!
//! Each kind has two collections in alternating layouts, with an index on a string and one on a number. Records are put,
//! replaced and deleted at random, and every answer of the indexes is compared with the written records. At the end of each
//! quarter the database is closed, opened and checked deeply. The number of records is constant, so the memory and disk
//! space of the last quarter may exceed those of the second only slightly.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bolide::{Collection, CollectionOptions, Db, ErrorKind, Layout, Options, Query, SyncMode};
use bolide_storage::SimRng;

use crate::kinds;
use crate::seeds::{Counts, Outcome};
use crate::soak::anonymous_bytes;

/// Options of the soak.
#[derive(Debug, Clone, Copy)]
pub struct KindsSoakOptions {
    /// Number of records of each collection.
    pub records: u64,
    /// Seconds of writing.
    pub seconds: u64,
    /// The seed of the records and queries.
    pub seed: u64,
}

impl Default for KindsSoakOptions {
    fn default() -> Self {
        Self { records: 2_000, seconds: 60, seed: 0 }
    }
}

/// The number of distinct values of each attribute.
const VALUES: u64 = 100;
/// The number of writes between two queries of a collection.
const WRITES: u64 = 50;
/// The allowed growth from the second to the last quarter beyond one half, in bytes: caches and files in progress.
const SLACK_BYTES: u64 = 64 << 20;

/// The peak sizes in bytes of one quarter of the run.
#[derive(Debug, Clone, Copy, Default)]
struct QuarterPeaks {
    memory: u64,
    disk: u64,
}

/// Runs for the time of `options`, in a new directory in `directory`. Prints the peaks of each quarter.
///
/// # Errors
/// Fails with the wrong answer, the exceeded bound, or the error of the database.
pub fn check(directory: &Path, options: KindsSoakOptions) -> Outcome<Counts> {
    let path = directory.join(format!("kinds-soak-{}-{}", std::process::id(), options.seed));
    let outcome = run(&path, options).map_err(|error| format!("seed {}: {error}", options.seed));
    if outcome.is_ok() {
        let _ = std::fs::remove_dir_all(&path);
    }
    outcome
}

fn run(path: &Path, options: KindsSoakOptions) -> Outcome<Counts> {
    let mut soak = KindsSoak::start(path, options)?;
    let mut quarters = Vec::new();
    println!("| quarter | process memory | disk space |\n|---|---|---|");
    for quarter in 1..=4 {
        let peaks = soak.write_for(Duration::from_millis(options.seconds * 250))?;
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        println!("| {quarter} | {} | {} |", mib(peaks.memory), mib(peaks.disk));
        quarters.push(peaks);
        soak.reopen()?;
    }
    if let [_, second, _, last] = quarters[..] {
        for (what, then, now) in
            [("memory", second.memory, last.memory), ("disk space", second.disk, last.disk)]
        {
            if now > then + then / 2 + SLACK_BYTES {
                return Err(format!(
                    "{what} grew from {then} to {now} bytes between the second and the last quarter"
                ));
            }
        }
    }
    Ok(soak.counts)
}

/// A record: its value and the number of writes of its key.
type VersionedValue = Option<(u64, u64)>;

struct KindsSoak {
    db: Option<Db>,
    path: PathBuf,
    options: KindsSoakOptions,
    rng: SimRng,
    /// The names of the collections, with the expected records of each.
    tables: Vec<(String, Vec<VersionedValue>)>,
    counts: Counts,
}

impl KindsSoak {
    fn start(path: &Path, options: KindsSoakOptions) -> Outcome<Self> {
        let db = open(path)?;
        let (mut tables, mut skipped) = (Vec::new(), 0);
        for (number, kind) in kinds::available().iter().enumerate() {
            for copy in 0..2 {
                let name = format!("c{number}_{copy}");
                let layout = Layout::ALL[(number + 2 * copy) % Layout::ALL.len()];
                let spec = |name: &str| format!("{name}={name}:{kind}").parse();
                let collection = CollectionOptions::json()
                    .layout(layout)
                    .index(spec("s").map_err(error_text)?)
                    .index(spec("n").map_err(error_text)?);
                match db.create_collection(&name, collection) {
                    // The directory is not on persistent memory. Every other kind must be available.
                    Err(error) if error.kind() == ErrorKind::Unsupported && kind.contains("region=dax") => {
                        skipped += 1;
                    }
                    created => {
                        created.map_err(error_text)?;
                        tables.push((name, vec![None; options.records as usize]));
                    }
                }
            }
        }
        let mut counts = Counts::default();
        counts.add_many("collections", tables.len() as u64);
        counts.add_many("collections without persistent memory", skipped);
        let rng = SimRng::new(options.seed);
        Ok(Self { db: Some(db), path: path.to_owned(), options, rng, tables, counts })
    }

    fn db(&self) -> Outcome<&Db> {
        self.db.as_ref().ok_or_else(|| "the database is closed".to_owned())
    }

    /// Writes and queries for `time`, and returns the peak sizes.
    fn write_for(&mut self, time: Duration) -> Outcome<QuarterPeaks> {
        let started = Instant::now();
        let mut peaks = QuarterPeaks::default();
        while started.elapsed() < time {
            let at = self.rng.below(self.tables.len() as u64) as usize;
            let collection = self.db()?.collection(&self.tables[at].0).map_err(error_text)?;
            for _ in 0..WRITES {
                self.write(&collection, at)?;
            }
            self.query(&collection, at)?;
            peaks.memory = peaks.memory.max(anonymous_bytes());
            peaks.disk = peaks.disk.max(self.db()?.stats().disk_bytes());
        }
        Ok(peaks)
    }

    fn write(&mut self, collection: &Collection, at: usize) -> Outcome {
        let record = self.rng.below(self.options.records);
        let value = self.rng.below(VALUES);
        let deletes = self.rng.one_in(8);
        let Some(row) = self.tables[at].1.get_mut(record as usize) else { return Ok(()) };
        if deletes {
            *row = None;
            collection.delete(&key(record)).map_err(error_text)?;
            self.counts.add("deletes");
        } else {
            let version = row.map_or(0, |(_, version)| version) + 1;
            *row = Some((value, version));
            collection.put(&key(record), text(value, version).as_bytes()).map_err(error_text)?;
            self.counts.add("puts");
        }
        Ok(())
    }

    /// Compares the answers of both indexes for one value with the written records.
    fn query(&mut self, collection: &Collection, at: usize) -> Outcome {
        let value = self.rng.below(VALUES);
        let rows = &self.tables[at].1;
        let numbers = 0..self.options.records;
        let wanted: Vec<_> = numbers
            .filter_map(|number| {
                let (found, version) = (*rows.get(number as usize)?)?;
                (found == value).then(|| (key(number).to_vec(), text(value, version)))
            })
            .collect();
        let queries =
            [("s", Query::new().eq("s", format!("v{value}"))), ("n", Query::new().eq("n", value as i64))];
        for (index, query) in queries {
            self.counts.add("queries");
            let answers = collection.find(&query.using_index(index)).map_err(error_text)?;
            let text =
                |record: Option<Vec<u8>>| String::from_utf8_lossy(&record.unwrap_or_default()).into_owned();
            let mut found: Vec<_> =
                answers.into_iter().map(|answer| (answer.key, text(answer.record))).collect();
            found.sort_unstable();
            if found != wanted {
                let name = &self.tables[at].0;
                return Err(format!("{name}, index {index}, value {value}: {found:?} instead of {wanted:?}"));
            }
        }
        Ok(())
    }

    /// Closes, opens and deeply checks the database.
    fn reopen(&mut self) -> Outcome {
        if let Some(db) = self.db.take() {
            db.close().map_err(error_text)?;
        }
        let db = open(&self.path)?;
        let report = db.check(true).map_err(error_text)?;
        if !report.is_sound() {
            return Err(format!("check: {:?}", report.problems()));
        }
        for (name, rows) in &self.tables {
            let collection = db.collection(name).map_err(error_text)?;
            for (number, row) in (0..).zip(rows) {
                let found = collection.get(&key(number)).map_err(error_text)?;
                let wanted = row.map(|(value, version)| text(value, version));
                if found.as_deref() != wanted.as_ref().map(String::as_bytes) {
                    return Err(format!("{name}: record {number} is {found:?} instead of {wanted:?}"));
                }
            }
        }
        self.counts.add("openings");
        self.db = Some(db);
        Ok(())
    }
}

fn open(path: &Path) -> Outcome<Db> {
    let options = Options::default()
        .sync(SyncMode::None)
        .memtable_bytes(1 << 20)
        .cache_bytes(16 << 20)
        .background_threads(2);
    Db::open(path, options).map_err(error_text)
}

fn error_text(error: bolide::Error) -> String {
    format!("{error:?}")
}

fn key(record: u64) -> [u8; 8] {
    record.to_be_bytes()
}

fn text(value: u64, version: u64) -> String {
    format!(
        r#"{{"s":"v{value}","n":{value},"version":{version},"pad":"some bytes beside the indexed ones"}}"#
    )
}
