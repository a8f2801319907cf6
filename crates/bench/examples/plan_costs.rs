//! Measures the costs that the planner has as constants (`crates/index/src/lookup/plan.rs`).
//!
//! ```sh
//! cargo run --release -p bolide-bench --example plan_costs
//! ```
//!
//! Records of 300 bytes, all in the block cache; nanoseconds of CPU time, the median of a few runs.

use bolide::storage::{Runtime, SystemRuntime};
use bolide::{Collection, CollectionOptions, Components, Db, Options, Query, Result};

const RECORDS: u64 = 200_000;
/// Records with one value of the attribute `wide`.
const RECORDS_PER_VALUE: u64 = RECORDS / 10;
const RUNS: usize = 7;
const SEEKS: u64 = 500;

fn main() -> Result<()> {
    let options = Options::default().cache_bytes(256 << 20);
    let components = Components::in_memory();
    let db = Db::open_with("db", options, components)?;
    let mut collection = CollectionOptions::json();
    for spec in ["v=wide", "s=wide:composite:maintenance=synchronous", "id:composite:maintenance=synchronous"]
    {
        collection = collection.index(spec.parse()?);
    }
    let records = db.create_collection("records", collection)?;
    for number in 0..RECORDS {
        // Neighbours in the index are distant in the table.
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let pad = "x".repeat(230);
        let record =
            format!(r#"{{"id":{number},"wide":{},"other":{},"pad":"{pad}"}}"#, number % 10, number % 7);
        records.put(&key.to_be_bytes(), record.as_bytes())?;
    }
    db.compact()?;

    let scan = each(RECORDS, || count(&records, &Query::new().eq("other", 3).count()))?;
    let wide = |index: &str| Query::new().eq("wide", 4).using_index(index);
    let candidate = each(RECORDS_PER_VALUE, || count(&records, &wide("s").count()))?;
    let validated = each(RECORDS_PER_VALUE, || count(&records, &wide("v").count()))?;
    let fetched = each(RECORDS_PER_VALUE, || count(&records, &wide("v")))?;
    let sorted =
        each(RECORDS_PER_VALUE, || count(&records, &wide("s").keys_only().order(bolide::Order::Oldest)))?;
    let seek = each(SEEKS, || {
        (0..SEEKS).try_fold(0, |sum, number| {
            Ok(sum + count(&records, &Query::new().eq("id", number * 397).keys_only().limit(1))?)
        })
    })?;
    println!("seek, with all that a query costs besides   {seek:7.0} ns");
    println!("candidate                                   {candidate:7.0} ns");
    println!("sort                                        {:7.0} ns", sorted - candidate);
    println!("fetch                                       {:7.0} ns", fetched - candidate);
    println!("validate                                    {:7.0} ns", validated - candidate);
    println!("scan                                        {scan:7.0} ns");
    Ok(())
}

fn count(records: &Collection, query: &Query) -> Result<u64> {
    Ok(records.find(query)?.explain().answers)
}

/// CPU time of `work` divided by `units`: the median of a few runs after one to warm up.
fn each(units: u64, mut work: impl FnMut() -> Result<u64>) -> Result<f64> {
    let runtime = SystemRuntime::new();
    let mut times = Vec::new();
    for _ in 0..=RUNS {
        let start = runtime.thread_cpu_micros();
        std::hint::black_box(work()?);
        times.push((runtime.thread_cpu_micros() - start) as f64 * 1000.0 / units as f64);
    }
    times.remove(0);
    times.sort_by(f64::total_cmp);
    Ok(times[RUNS / 2])
}
