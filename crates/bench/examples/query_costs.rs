//! The cost of a query for the newest records of one secondary key, by layer, and the cost of a write.
//!
//! ```sh
//! cargo build --release -p bolide-bench --example query_costs
//! target/release/examples/query_costs ps-tree 1000000 250000 keys 10 200000
//! valgrind --tool=callgrind --collect-atstart=no '--toggle-collect=*query_costs*run_query*' \
//!     target/release/examples/query_costs ps-tree 50000 12500 keys 10 10000 untimed
//! ```
//!
//! Arguments: kind of the index with its options; records; updates; `keys`, `visit` (keys without copies), `prepared` (`visit`
//! with a prepared query), `records`, `visit-records`, `prepared-records`, or `writes`; limit; queries; optionally `untimed` or
//! `first`. `untimed` reads no clock, which fails under valgrind. `first` is untimed and skips the warm-up queries, so that
//! obsolete entries have no flags. Records have 300 bytes, 25 for each secondary key on average, as in `bolide-bench index`.
//! With `writes`, count the functions `insert_all` and `update_all`. Prints nanoseconds of CPU time.

use std::ops::ControlFlow;
use std::sync::Arc;

use bolide::storage::{Runtime, SystemRuntime};
use bolide::{
    AttributeExtractor, AttributePlan, AttributeValues, Collection, CollectionOptions, Components, Db, Error,
    ErrorKind, FindOptions, Options, Query, Result, SyncMode, Value,
};

const RECORDS_PER_SECONDARY: u64 = 25;
const RECORD_BYTES: usize = 300;

/// The first eight bytes of a record as an unsigned integer.
#[derive(Debug)]
struct SecondaryKey;

impl AttributeExtractor for SecondaryKey {
    fn extract_into(&self, record: &[u8], plan: &AttributePlan, out: &mut AttributeValues) -> Result<()> {
        if let (false, Some(bytes)) = (plan.paths().is_empty(), record.first_chunk::<8>()) {
            out.push(0, &Value::Uint(u64::from_be_bytes(*bytes)))?;
        }
        Ok(())
    }
}

/// Pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(mixed ^ mixed >> 31) * u128::from(end)) >> 64) as u64
    }
}

fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn put(records: &Collection, number: u64, secondary: u64) -> Result<()> {
    let mut record = [7; RECORD_BYTES];
    record[..8].copy_from_slice(&secondary.to_be_bytes());
    record[8..16].copy_from_slice(&number.to_be_bytes());
    records.put(&key(number), &record)
}

#[inline(never)]
fn insert_all(records: &Collection, count: u64, random: &mut Random) -> Result<()> {
    let secondaries = (count / RECORDS_PER_SECONDARY).max(1);
    (0..count).try_for_each(|number| put(records, number, random.below(secondaries)))
}

#[inline(never)]
fn update_all(records: &Collection, count: u64, updates: u64, random: &mut Random) -> Result<()> {
    let secondaries = (count / RECORDS_PER_SECONDARY).max(1);
    (0..updates).try_for_each(|_| put(records, random.below(count), random.below(secondaries)))
}

/// Queries the newest `limit` records of each of these secondary keys. Returns the number of answers.
#[inline(never)]
fn run_query(records: &Collection, how: &str, limit: usize, keys: &[u64]) -> Result<usize> {
    let mut answers = 0;
    let options = FindOptions::default();
    if how.starts_with("prepared") {
        let query = Query::new().eq("secondary", 0_u64).limit(limit);
        let query = if how.ends_with("records") { query } else { query.keys_only() };
        let mut prepared = records.prepare(query, options)?;
        for secondary in keys {
            answers += prepared.visit(&Value::Uint(*secondary), |answer| {
                std::hint::black_box(answer.key);
                Ok(ControlFlow::Continue(()))
            })? as usize;
        }
        return Ok(answers);
    }
    for secondary in keys {
        let query = Query::new().eq("secondary", *secondary).limit(limit);
        let query = if how.ends_with("records") { query } else { query.keys_only() };
        if how.starts_with("visit") {
            records.visit(&query, &options, |answer| {
                answers += usize::from(!answer.key.is_empty());
                Ok(ControlFlow::Continue(()))
            })?;
            continue;
        }
        for answer in records.find(&query)? {
            answers += usize::from(!answer.key.is_empty());
        }
    }
    Ok(answers)
}

/// Queries each secondary key once, so that keys, and records if requested, are in memory.
#[inline(never)]
fn warm_up(records: &Collection, how: &str, limit: usize, secondaries: u64) -> Result<()> {
    (0..secondaries).try_for_each(|secondary| {
        let query = Query::new().eq("secondary", secondary).limit(limit);
        let query = if how.ends_with("records") { query } else { query.keys_only() };
        records.find(&query).map(drop)
    })
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let text = |at: usize, default: &'static str| args.get(at).cloned().unwrap_or(default.to_owned());
    let number = |at: usize, default: u64| args.get(at).and_then(|arg| arg.parse().ok()).unwrap_or(default);
    let (kind, how) = (text(0, "ps-tree"), text(3, "keys"));
    let (count, updates) = (number(1, 200_000), number(2, 50_000));
    let (limit, queries) = (number(4, 10) as usize, number(5, 100_000));
    let dir = tempfile::tempdir().map_err(|error| Error::new(ErrorKind::Io, error.to_string()))?;
    let options = Options::default().cache_bytes(1 << 30).memtable_bytes(64 << 20).sync(SyncMode::None);
    let db = Db::open_with(
        dir.path(),
        options,
        Components::system().extractor("records", Arc::new(SecondaryKey)),
    )?;
    let index = format!("secondary:{kind}").parse()?;
    let records = db.create_collection("records", CollectionOptions::bytes().index(index))?;
    let runtime = SystemRuntime::new();
    let is_timed = text(6, "timed") == "timed";
    let now = || if is_timed { runtime.thread_cpu_micros() } else { 0 };
    let measure = |what: &str, each: u64, work: &mut dyn FnMut() -> Result<()>| -> Result<()> {
        let start = now();
        work()?;
        let nanos = (now() - start) as f64 * 1000.0 / each.max(1) as f64;
        println!("{what:8} {nanos:8.0} ns");
        Ok(())
    };
    let mut random = Random(count);
    measure("insert", count, &mut || insert_all(&records, count, &mut random))?;
    measure("update", updates, &mut || update_all(&records, count, updates, &mut random))?;
    if how != "writes" {
        let secondaries = (count / RECORDS_PER_SECONDARY).max(1);
        let keys: Vec<u64> = (0..queries).map(|_| random.below(secondaries)).collect();
        // After garbage collection, and with all flags of readers.
        if text(6, "timed") != "first" {
            db.wait_until_settled()?;
            warm_up(&records, &how, limit, secondaries)?;
        }
        let mut answers = 0;
        measure(&how, queries, &mut || run_query(&records, &how, limit, &keys).map(|found| answers = found))?;
        println!("{answers} answers");
    }
    drop((records, db));
    Ok(())
}
