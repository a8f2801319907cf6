//! Queries to an index of kind `next`, to run under an instruction counter:
//!
//! ```text
//! cargo run --release -p bolide-bench --example next_costs -- KIND WHAT ROUNDS [RECORDS [timed]]
//! ```
//!
//! KIND is the kind of the index. WHAT is one of `fill`, `newest` (ten records of one value), `range` (all 250 records of ten
//! values) and `wide` (all 2,500 of a hundred). `timed` prints the minimum CPU time of the thread for a round. All blocks are
//! cached before. The queries run in a separate function, so that they can be counted alone:
//!
//! ```text
//! valgrind --tool=callgrind --collect-atstart=no '--toggle-collect=*next_costs*run_query*' \
//!     target/release/examples/next_costs next range 100
//! ```

use std::ops::ControlFlow;

use bolide::storage::{Runtime, SystemRuntime};
use bolide::{Collection, CollectionOptions, Components, Db, FindOptions, Options, Query};

/// The default number of records, and the number of records for each value.
const RECORDS: u64 = 100_000;
const RECORDS_PER_VALUE: u64 = 25;
/// A prime, so that steps of this size reach all values.
const VALUE_STEP: u64 = 15_485_863;

/// Runs one query per round, whose answers are borrowed without a copy. Returns the bytes of all answers.
#[inline(never)]
fn run_query(
    records: &Collection,
    what: &str,
    values: u64,
    rounds: std::ops::Range<u64>,
) -> bolide::Result<usize> {
    let options = FindOptions::default();
    let mut bytes = 0;
    for round in rounds {
        let value = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (values - 100);
        let query = match what {
            "newest" => Query::new().eq("a", value).limit(10),
            "wide" => Query::new().range("a", value..value + 100),
            _ => Query::new().range("a", value..value + 10),
        };
        records.visit(&query.using_index("a"), &options, |answer| {
            bytes += answer.record.map_or(0, <[u8]>::len);
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(bytes)
}

/// Queries all values once in random order, so that the queries determine the order of the blocks in the cache.
#[inline(never)]
fn warm_up(records: &Collection, values: u64) -> bolide::Result<usize> {
    let mut bytes = 0;
    for round in 0..values {
        let value = round * VALUE_STEP % values;
        let query = Query::new().eq("a", value).using_index("a");
        records.visit(&query, &FindOptions::default(), |answer| {
            bytes += answer.record.map_or(0, <[u8]>::len);
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(bytes)
}

fn main() -> bolide::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |number: usize| arguments.get(number).map_or("", String::as_str);
    let (kind, what, rounds) = (argument(0), argument(1), argument(2).parse().unwrap_or(0));
    let count = argument(3).parse().unwrap_or(RECORDS).max(100 * RECORDS_PER_VALUE + 1);
    let values = count / RECORDS_PER_VALUE;
    let options = Options::default().cache_bytes(1 << 30).background_threads(0);
    let db = Db::open_with("db", options, Components::in_memory())?;
    let mut records = CollectionOptions::json();
    if kind != "none" {
        records = records.index(format!("a:{kind}").parse()?);
    }
    let records = db.create_collection("records", records)?;
    for number in 0..count {
        let value = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % values;
        let record = format!(r#"{{"a":{value},"pad":"{number:0>100}"}}"#);
        records.put(&(number.wrapping_mul(0x2545_f491_4f6c_dd1d)).to_be_bytes(), record.as_bytes())?;
    }
    if what == "fill" {
        return Ok(());
    }
    db.compact()?;
    let all = warm_up(&records, values)?;
    if argument(4) == "timed" {
        let runtime = SystemRuntime::new();
        let mut min = u64::MAX;
        for round in 0..rounds {
            let start = runtime.thread_cpu_micros();
            run_query(&records, what, values, 20 * round..20 * (round + 1))?;
            min = min.min(runtime.thread_cpu_micros() - start);
        }
        println!("{:.1} µs a query at min", min as f64 / 20.0);
        return Ok(());
    }
    println!("{all} bytes in all, {} bytes answered", run_query(&records, what, values, 0..rounds)?);
    Ok(())
}
