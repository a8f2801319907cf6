//! Long uniform writes into the partitioned layout, whose flushes abort partitions with few entries and retain these entries
//! (REMIX §4.2): memory and the log must stay bounded, and no write may be lost.
//!
//! A writer replaces uniformly random records, so that every flush has a few entries for every partition. A second, rarely
//! written collection pins segments of the log. The sizes of memtables, log and sstables are measured during the run.
//! Records are read and compared with the written values, all of them after a close and an open.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use bolide::{Collection, CollectionOptions, Db, Layout, Options, SyncMode};
use bolide_storage::SimRng;

use crate::seeds::{Counts, Outcome};

/// Options of the soak.
#[derive(Debug, Clone, Copy)]
pub struct SoakOptions {
    /// Number of records of the busy collection.
    pub records: u64,
    /// The maximum number of puts per second; 0 for no limit.
    pub rate: u64,
    /// Seconds of writing.
    pub seconds: u64,
    /// Size of a memtable, in bytes.
    pub memtable_bytes: usize,
    /// The seed of the random records.
    pub seed: u64,
}

impl Default for SoakOptions {
    fn default() -> Self {
        Self { records: 400_000, rate: 10_000, seconds: 60, memtable_bytes: 4 << 20, seed: 0 }
    }
}

/// The number of sstables of the busy collection that one full memtable fills.
const SSTABLES_PER_MEMTABLE: usize = 4;

/// The maximum ratio of log bytes to the memtable budget: four segments pinned by a memtable with retained entries, the
/// active segment, the segments of immutable memtables, and the overhead of the log for small records.
const MAX_LOG_RATIO: u64 = 12;

/// Additional log bytes: each segment has up to 1 MiB of reserved disk space.
const RESERVED_LOG_BYTES: u64 = 8 << 20;

/// The maximum ratio of memtable bytes to their budget: the active memtable, the immutable ones, and their overhead.
const MAX_MEMTABLE_RATIO: u64 = 6;

/// The peak sizes in bytes of one quarter of the run.
#[derive(Debug, Clone, Copy, Default)]
struct Peaks {
    memtables: u64,
    log: u64,
    retained: u64,
    disk: u64,
    /// Anonymous memory of the process, without mapped files.
    process: u64,
    /// Memory accounted by the database.
    accounted: u64,
}

impl Peaks {
    fn raise(&mut self, other: Self) {
        self.memtables = self.memtables.max(other.memtables);
        self.log = self.log.max(other.log);
        self.retained = self.retained.max(other.retained);
        self.disk = self.disk.max(other.disk);
        self.process = self.process.max(other.process);
        self.accounted = self.accounted.max(other.accounted);
    }
}

/// Writes for the time of `options`, in a new directory in `directory`. Prints the peaks of each quarter.
///
/// # Errors
/// Fails with the exceeded bound, the wrong record, or the error of the database.
pub fn check(directory: &Path, options: SoakOptions) -> Outcome<Counts> {
    let path = directory.join(format!("soak-{}-{}", std::process::id(), options.seed));
    let outcome = run(&path, options).map_err(|error| format!("seed {}: {error}", options.seed));
    if outcome.is_ok() {
        let _ = std::fs::remove_dir_all(&path);
    }
    outcome
}

fn run(path: &Path, options: SoakOptions) -> Outcome<Counts> {
    let mut soak = Soak::start(path, options)?;
    println!(
        "| quarter | memtables | log | retained by aborts | sstables | process memory | accounted memory |"
    );
    println!("|---|---|---|---|---|---|---|");
    for quarter in 1..=4u64 {
        let peaks = soak.write_for(Duration::from_millis(options.seconds * 250))?;
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        let Peaks { memtables, log, retained, disk, process, accounted } = peaks;
        let columns = [memtables, log, retained, disk, process, accounted].map(mib);
        println!("| {quarter} | {} |", columns.join(" | "));
    }
    soak.finish()
}

/// A database under uniform writes, with its expected contents.
struct Soak {
    db: Db,
    busy: Collection,
    quiet: Collection,
    path: std::path::PathBuf,
    options: SoakOptions,
    rng: SimRng,
    /// The number of writes of each record.
    versions: Vec<u32>,
    puts: u64,
    counts: Counts,
}

impl Soak {
    fn start(path: &Path, options: SoakOptions) -> Outcome<Self> {
        let db = open(path, options)?;
        // Small sstables create many partitions, each with few entries of every flush, which causes aborts.
        let file_bytes = (options.memtable_bytes / SSTABLES_PER_MEMTABLE) as u64;
        let partitioned =
            CollectionOptions::bytes().layout(Layout::Partitioned).target_file_bytes(file_bytes);
        let busy = db.create_collection("busy", partitioned).map_err(error_text)?;
        let quiet = db.create_collection("quiet", CollectionOptions::bytes()).map_err(error_text)?;
        let versions = vec![0; options.records as usize];
        let rng = SimRng::new(options.seed);
        let path = path.to_owned();
        let mut soak =
            Self { db, busy, quiet, path, options, rng, versions, puts: 0, counts: Counts::default() };
        for record in 0..options.records {
            soak.put(record)?;
        }
        Ok(soak)
    }

    fn put(&mut self, record: u64) -> Outcome {
        let version = self.versions.get_mut(record as usize).ok_or("no such record")?;
        *version += 1;
        self.busy.put(&key(record), &value(record, *version)).map_err(error_text)?;
        self.puts += 1;
        if self.puts.is_multiple_of(100_000) {
            self.quiet.put(b"puts", &self.puts.to_be_bytes()).map_err(error_text)?;
        }
        Ok(())
    }

    /// Writes for `time` and returns the peak sizes.
    fn write_for(&mut self, time: Duration) -> Outcome<Peaks> {
        let started = Instant::now();
        let mut peaks = Peaks::default();
        let mut puts = 0;
        while started.elapsed() < time {
            for _ in 0..100 {
                let record = self.rng.below(self.options.records);
                self.put(record)?;
            }
            puts += 100;
            self.read_one()?;
            peaks.raise(self.measure()?);
            if self.options.rate > 0 {
                let due = Duration::from_secs_f64(puts as f64 / self.options.rate as f64);
                thread::sleep(due.saturating_sub(started.elapsed()));
            }
        }
        Ok(peaks)
    }

    /// Measures the current sizes.
    ///
    /// # Errors
    /// Fails with the exceeded bound.
    fn measure(&self) -> Outcome<Peaks> {
        let stats = self.db.stats();
        let budget = self.options.memtable_bytes as u64;
        let tables = || stats.collections.iter().map(|collection| &collection.table);
        let memtables = tables().map(|table| table.memtable_bytes as u64).sum();
        let resident: u64 = tables().map(|table| table.resident_bytes as u64).sum();
        let peaks = Peaks {
            memtables,
            log: log_bytes(&self.path),
            retained: tables().map(|table| table.retained_bytes).sum(),
            disk: stats.disk_bytes(),
            process: anonymous_bytes(),
            accounted: memtables + resident + stats.cache.used_bytes + stats.rows.used_bytes,
        };
        let bounds = [
            ("the log", peaks.log, budget * MAX_LOG_RATIO + RESERVED_LOG_BYTES),
            ("memtables", peaks.memtables, budget * MAX_MEMTABLE_RATIO),
            ("entries retained by aborts", peaks.retained, budget * 15 / 100),
        ];
        for (what, bytes, limit) in bounds {
            if bytes > limit {
                return Err(format!(
                    "after {} puts: {what}: {bytes} bytes exceed the limit of {limit}",
                    self.puts
                ));
            }
        }
        Ok(peaks)
    }

    fn read_one(&mut self) -> Outcome {
        let record = self.rng.below(self.options.records);
        self.read(record)
    }

    fn read(&self, record: u64) -> Outcome {
        let version = self.versions.get(record as usize).copied().unwrap_or(0);
        let found = self.busy.get(&key(record)).map_err(error_text)?;
        match found {
            Some(found) if found[..] == value(record, version)[..] => Ok(()),
            other => Err(format!(
                "after {} puts: record {record} is not its version {version}, but {other:?}",
                self.puts
            )),
        }
    }

    /// Closes and opens the database, and reads all records.
    fn finish(mut self) -> Outcome<Counts> {
        let writes = self.db.stats().writes;
        for (what, count) in [
            ("puts", self.puts),
            ("flushes", writes.flushes),
            ("aborted partitions", writes.aborts),
            ("minor compactions", writes.minor_compactions),
            ("major compactions", writes.major_compactions),
            ("splits", writes.splits),
            ("bytes written to sstables for 1,000 of records", (writes.write_amplification() * 1e3) as u64),
        ] {
            self.counts.add_many(what, count);
        }
        if writes.aborts == 0 && writes.flushes > 100 {
            return Err("no flush aborted a partition: the run proves nothing".into());
        }
        let reopened = self.reopened()?;
        for record in 0..reopened.options.records {
            reopened.read(record)?;
        }
        Ok(reopened.counts)
    }

    fn reopened(self) -> Outcome<Self> {
        let Self { db, busy, quiet, path, options, rng, versions, puts, counts } = self;
        drop((busy, quiet));
        db.close().map_err(error_text)?;
        let db = open(&path, options)?;
        let busy = db.collection("busy").map_err(error_text)?;
        let quiet = db.collection("quiet").map_err(error_text)?;
        Ok(Self { db, busy, quiet, path, options, rng, versions, puts, counts })
    }
}

fn open(path: &Path, options: SoakOptions) -> Outcome<Db> {
    let options =
        Options::default().sync(SyncMode::None).memtable_bytes(options.memtable_bytes).cache_bytes(16 << 20);
    Db::open(path, options).map_err(error_text)
}

fn error_text(error: bolide::Error) -> String {
    format!("{error:?}")
}

fn key(record: u64) -> [u8; 16] {
    let mut key = *b"record..........";
    key[8..].copy_from_slice(&record.to_be_bytes());
    key
}

/// The unique value of a version of a record: 120 bytes.
fn value(record: u64, version: u32) -> [u8; 120] {
    let mut rng = SimRng::new(record << 24 ^ u64::from(version));
    std::array::from_fn(|_| rng.below(256) as u8)
}

/// The size of the log on disk in bytes, including preallocated space.
fn log_bytes(path: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    let logs = entries.flatten().filter(|entry| entry.path().extension().is_some_and(|end| end == "wal"));
    logs.filter_map(|entry| entry.metadata().ok()).map(|file| file.len()).sum()
}

/// Resident anonymous memory of this process in bytes; 0 if the system does not report it.
pub(crate) fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
