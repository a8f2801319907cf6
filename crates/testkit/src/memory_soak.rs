//! Writers, queries and compactions at once within a memory budget, on a real disk, in each layout.
//!
//! ```text
//! writers (2)      new records up to a number, then updates and deletes, each of its own keys
//! readers (2)      gets, the newest of a value by a ps-tree index, ranges by a composite index, sorts without an index
//! maintenance      flushes and compactions
//! observer         memory counted by the database, and anonymous memory of the process
//! ```
//!
//! The counted memory stays within the budget and a slack, and the process within [`hard_limit`]. Run in a control group with that
//! limit, the process is not killed. A write or a query that the budget refuses names the index or the use; a refused write has no
//! effect. At the end all records are those that the writers wrote last, after a close and an open too.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bolide::{
    Collection, CollectionOptions, Db, ErrorKind, FindOptions, Layout, Options, Order, Query, SortDirection,
    SyncMode,
};
use bolide_storage::SimRng;

use crate::seeds::{Counts, Outcome};
use crate::soak::anonymous_bytes;

/// Options of the soak.
#[derive(Debug, Clone, Copy)]
pub struct MemorySoakOptions {
    /// The memory budget, in bytes.
    pub budget_bytes: u64,
    /// Records of each writer.
    pub records: u64,
    /// Seconds in each layout.
    pub seconds: u64,
    /// The only layout; all of them without one.
    pub layout: Option<Layout>,
    /// The seed of the random records.
    pub seed: u64,
}

impl Default for MemorySoakOptions {
    fn default() -> Self {
        Self { budget_bytes: 64 << 20, records: 60_000, seconds: 10, layout: None, seed: 0 }
    }
}

/// The memory under which a process with this budget works: the budget and 64 MiB, and a tenth of both.
pub fn hard_limit(budget_bytes: u64) -> u64 {
    (budget_bytes + (64 << 20)) / 10 * 11
}

const WRITERS: u64 = 2;
const READERS: u64 = 2;
const GROUPS: u64 = 500;
/// Bytes of a record, roughly.
const RECORD_BYTES: usize = 300;
/// The counted memory may exceed the budget by this part (1/`SLACK_DIVISOR`) and by [`SLACK_BYTES`]: what cannot be refused is
/// reported after its allocation.
const SLACK_DIVISOR: u64 = 8;
const SLACK_BYTES: u64 = 8 << 20;
const COLLECTION: &str = "c";
const INDEX: &str = "group";

/// Runs the soak in fresh directories below `directory`.
///
/// # Errors
/// The broken rule.
pub fn check(directory: &Path, options: MemorySoakOptions) -> Outcome<Counts> {
    let mut counts = Counts::default();
    println!("| layout | counted, peak MiB | anonymous, peak MiB | puts | refused |");
    println!("|---|--:|--:|--:|--:|");
    for layout in Layout::ALL.into_iter().filter(|layout| options.layout.is_none_or(|only| only == *layout)) {
        let path = directory.join(format!("memory-soak-{}-{}", std::process::id(), layout.name()));
        let outcome = Soak::run(&path, layout, options);
        let _ = std::fs::remove_dir_all(&path);
        let soak = outcome.map_err(|what| format!("seed {}, {}: {what}", options.seed, layout.name()))?;
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mib = |bytes: &AtomicU64| of(bytes) >> 20;
        let (puts, refused) = (of(&soak.puts), of(&soak.refused));
        let (counted, anonymous) = (mib(&soak.peak_counted), mib(&soak.peak_anonymous));
        println!("| {} | {counted} | {anonymous} | {puts} | {refused} |", layout.name());
        for (what, count) in [("puts", &soak.puts), ("queries", &soak.queries), ("refused", &soak.refused)] {
            counts.add_many(what, of(count));
        }
    }
    Ok(counts)
}

fn text(error: bolide::Error) -> String {
    error.to_string()
}

/// The counters of the threads of one run.
struct Soak {
    options: MemorySoakOptions,
    stopping: AtomicBool,
    puts: AtomicU64,
    queries: AtomicU64,
    refused: AtomicU64,
    peak_counted: AtomicU64,
    peak_anonymous: AtomicU64,
    failure: Mutex<Option<String>>,
}

impl Soak {
    fn run(path: &Path, layout: Layout, options: MemorySoakOptions) -> Outcome<Self> {
        let db = open(path, options)?;
        let indexes = [INDEX, "number:composite"];
        let mut created = CollectionOptions::json().layout(layout);
        for index in indexes {
            created = created.index(index.parse().map_err(text)?);
        }
        db.create_collection(COLLECTION, created).map_err(text)?;
        let soak = Self {
            options,
            stopping: AtomicBool::new(false),
            puts: AtomicU64::new(0),
            queries: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            peak_counted: AtomicU64::new(0),
            peak_anonymous: AtomicU64::new(0),
            failure: Mutex::default(),
        };
        let written: Vec<Vec<u8>> = thread::scope(|scope| {
            let (soak, db) = (&soak, &db);
            let writers: Vec<_> =
                (0..WRITERS).map(|writer| scope.spawn(move || soak.writer(db, writer))).collect();
            for reader in 0..READERS {
                scope.spawn(move || soak.note(soak.reader(db, reader)));
            }
            scope.spawn(|| soak.note(soak.maintain(db)));
            soak.note(soak.observe(db));
            soak.stopping.store(true, Ordering::Release);
            writers.into_iter().map(|writer| writer.join().unwrap_or_default()).collect()
        });
        if let Some(failure) = soak.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(failure);
        }
        soak.check_all(&db, &written)?;
        db.close().map_err(text)?;
        let db = open(path, options)?;
        soak.check_all(&db, &written)?;
        let report = db.check(false).map_err(text)?;
        if !report.is_sound() {
            return Err(report.to_string());
        }
        Ok(soak)
    }

    /// Stores the first failure and stops all threads.
    fn note(&self, outcome: Outcome) {
        if let Err(what) = outcome {
            self.stopping.store(true, Ordering::Release);
            let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            failure.get_or_insert(what);
        }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Whether `error` is a refusal by the budget, which names what does not fit.
    fn is_refusal(&self, error: &bolide::Error) -> bool {
        let is_refusal = error.kind() == ErrorKind::NoSpace && error.needed_memory_bytes().is_some();
        self.refused.fetch_add(u64::from(is_refusal), Ordering::Relaxed);
        is_refusal
    }

    /// Writes until the end. Returns the version of each of its records, 0 for none.
    fn writer(&self, db: &Db, writer: u64) -> Vec<u8> {
        let mut versions = vec![0; self.options.records as usize];
        self.note(self.write(db, writer, &mut versions));
        versions
    }

    fn write(&self, db: &Db, writer: u64, versions: &mut [u8]) -> Outcome {
        let mut rng = SimRng::new(self.options.seed ^ (writer + 1));
        let collection = db.collection(COLLECTION).map_err(text)?;
        let mut next = 0;
        while !self.is_stopping() {
            let is_new = next < self.options.records && !rng.one_in(4);
            let number = if is_new { next } else { rng.below(self.options.records) };
            let Some(version) = versions.get_mut(number as usize) else { continue };
            let key = key(writer, number);
            let (written, after) = match !is_new && rng.one_in(5) {
                true => (collection.delete(&key), 0),
                false => {
                    let after = version.wrapping_add(1).max(1);
                    (collection.put(&key, record(writer, number, after).as_bytes()), after)
                }
            };
            match written {
                Ok(_) => *version = after,
                Err(error) if self.is_refusal(&error) => thread::sleep(Duration::from_millis(1)),
                Err(error) => return Err(format!("a write: {error}")),
            }
            next += u64::from(is_new);
            self.puts.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn reader(&self, db: &Db, reader: u64) -> Outcome {
        let mut rng = SimRng::new(self.options.seed ^ (reader + 101));
        let collection = db.collection(COLLECTION).map_err(text)?;
        while !self.is_stopping() {
            let group = rng.below(GROUPS);
            let of_group = Query::new().eq(INDEX, group as i64);
            let by_number = Query::new().range("number", (group as i64 * 100)..);
            let (query, expected) = match rng.below(8) {
                0..=3 => (of_group.limit(10), Some(group)),
                4 => (of_group, Some(group)),
                5 => (by_number.order(Order::Value).limit(500), None),
                6 => (by_number.keys_only(), None),
                _ => (
                    Query::new().range("number", 0..).sort_by("text", SortDirection::Ascending).limit(1_000),
                    None,
                ),
            };
            self.query(&collection, &query, expected)?;
            let number = rng.below(self.options.records);
            let found = collection.get(&key(rng.below(WRITERS), number)).map_err(text)?;
            if found.is_some_and(|found| found.len() < RECORD_BYTES) {
                return Err(format!("record {number} is truncated"));
            }
            self.queries.fetch_add(2, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Runs a query; all of its records must have the expected group.
    fn query(&self, collection: &Collection, query: &Query, expected: Option<u64>) -> Outcome {
        let mut wrong = None;
        let visited = collection.visit(query, &FindOptions::default(), |answer| {
            let wanted = expected.map(|group| format!("{{\"group\":{group},"));
            let record = answer.record.unwrap_or_default();
            if wanted.is_some_and(|wanted| !record.starts_with(wanted.as_bytes())) {
                wrong = Some(String::from_utf8_lossy(record).into_owned());
                return Ok(ControlFlow::Break(()));
            }
            Ok(ControlFlow::Continue(()))
        });
        match visited {
            Err(error) if self.is_refusal(&error) => Ok(()),
            Err(error) => Err(format!("{query:?}: {error}")),
            Ok(_) => wrong.map_or(Ok(()), |record| Err(format!("{query:?} has the answer {record}"))),
        }
    }

    fn maintain(&self, db: &Db) -> Outcome {
        let mut rounds = 0;
        while !self.is_stopping() {
            thread::sleep(Duration::from_millis(500));
            rounds += 1;
            let done = if rounds % 6 == 0 { db.compact() } else { db.flush() };
            match done {
                Err(error) if self.is_refusal(&error) => {}
                done => done.map_err(|error| format!("maintenance: {error}"))?,
            }
        }
        Ok(())
    }

    /// Watches the memory until the end.
    fn observe(&self, db: &Db) -> Outcome {
        let started = Instant::now();
        let budget = self.options.budget_bytes;
        while started.elapsed() < Duration::from_secs(self.options.seconds) && !self.is_stopping() {
            thread::sleep(Duration::from_millis(20));
            let memory = db.stats().memory;
            let (counted, anonymous) = (memory.reserved_bytes(), anonymous_bytes());
            self.peak_counted.fetch_max(counted, Ordering::Relaxed);
            self.peak_anonymous.fetch_max(anonymous, Ordering::Relaxed);
            if counted > budget + budget / SLACK_DIVISOR + SLACK_BYTES {
                return Err(format!(
                    "{counted} bytes are counted, the budget is {budget}: {:?}",
                    memory.users
                ));
            }
            if anonymous > hard_limit(budget) {
                let counted = format!("{counted} are counted: {:?}", memory.users);
                return Err(format!("the process has {anonymous} bytes, the budget is {budget}; {counted}"));
            }
        }
        Ok(())
    }

    /// Compares all records with those that were written last.
    fn check_all(&self, db: &Db, written: &[Vec<u8>]) -> Outcome {
        let collection = db.collection(COLLECTION).map_err(text)?;
        for (writer, versions) in (0..).zip(written) {
            for (number, version) in (0..).zip(versions) {
                let found = collection.get(&key(writer, number)).map_err(text)?;
                let wanted = (*version > 0).then(|| record(writer, number, *version));
                if found.as_deref() != wanted.as_ref().map(String::as_bytes) {
                    let found = found.map(|found| String::from_utf8_lossy(&found).into_owned());
                    return Err(format!("record {number} of writer {writer} is {found:?}, not {wanted:?}"));
                }
            }
        }
        Ok(())
    }
}

fn open(path: &Path, options: MemorySoakOptions) -> Outcome<Db> {
    let budget = usize::try_from(options.budget_bytes).map_err(|error| error.to_string())?;
    Db::open(path, Options::default().sync(SyncMode::None).memory_bytes(budget)).map_err(text)
}

fn key(writer: u64, number: u64) -> Vec<u8> {
    format!("{writer}-{number:010}").into_bytes()
}

fn record(writer: u64, number: u64, version: u8) -> String {
    let mut rng = SimRng::new((writer << 56) ^ (number << 8) ^ u64::from(version));
    let (group, sort) = (rng.below(GROUPS), rng.below(u64::MAX));
    let padding = "x".repeat(RECORD_BYTES);
    format!("{{\"group\":{group},\"number\":{number},\"text\":\"{sort:016x}{padding}\"}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_depend_on_their_version() {
        assert_ne!(record(0, 7, 1), record(0, 7, 2));
        assert_ne!(record(0, 7, 1), record(1, 7, 1));
        assert!(record(0, 0, 1).len() > RECORD_BYTES);
    }
}
