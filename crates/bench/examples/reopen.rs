//! Measures the time to open a database with an index of kind `ps-tree`, after a close and after the end of the process.
//!
//! ```sh
//! cargo run --release -p bolide-bench --example reopen -- DIR [RECORDS [FURTHER [SPEC]]]
//! ```
//!
//! `DIR` must not exist. `RECORDS` records (5,000,000), 50 for each value, are written, and the database is closed. Then a
//! process writes `FURTHER` records (200,000) and ends without a close. Each opening ends with a query to the index. Files are
//! in the page cache.

use std::process::Command;

use bolide::storage::{Runtime, SystemRuntime};
use bolide::{CollectionOptions, Db, Error, Options, Query, Result, SyncMode, WriteBatch};

const RECORDS: u64 = 5_000_000;
const UNCLOSED_RECORDS: u64 = 200_000;
const RECORDS_PER_VALUE: u64 = 50;
const BATCH: u64 = 500;
const ROUNDS: usize = 3;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |position: usize, default: u64| {
        arguments.get(position).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let Some(dir) = arguments.first() else {
        return Err(Error::invalid_input("usage: reopen DIR [RECORDS [FURTHER [SPEC]]]"));
    };
    let (records, further) = (number(1, RECORDS), number(2, UNCLOSED_RECORDS));
    let spec = arguments.get(3).map_or("group:ps-tree", String::as_str);
    if arguments.get(4).is_some_and(|word| word == "and-die") {
        let db = open(dir)?;
        write(&db, records, records + further)?;
        db.sync()?;
        // Exits without a close, as a killed process.
        std::process::exit(0);
    }
    let db = open(dir)?;
    db.create_collection("records", CollectionOptions::json().index(spec.parse()?))?;
    write(&db, 0, records)?;
    let (started, before) = (SystemRuntime::new(), cpu_seconds());
    db.close()?;
    let cpu = cpu_seconds() - before;
    println!("close after writing {records} records: {:.3} s, {cpu:.3} s of CPU", seconds(&started));
    for _ in 0..ROUNDS {
        measure(dir, "clean close", false)?;
    }
    let program = std::env::current_exe().map_err(|error| Error::invalid_input(error.to_string()))?;
    let (first, last) = (records.to_string(), further.to_string());
    let ended = Command::new(program).args([dir, &first, &last, spec, "and-die"]).status();
    if !ended.is_ok_and(|status| status.success()) {
        return Err(Error::invalid_input("the process that ends without a close failed"));
    }
    measure(dir, &format!("end of the process, {further} records later"), true)
}

fn open(dir: &str) -> Result<Db> {
    Db::open(dir, Options::default().sync(SyncMode::None))
}

fn seconds(since: &SystemRuntime) -> f64 {
    since.now_micros() as f64 / 1e6
}

/// CPU time of the process so far, in seconds.
fn cpu_seconds() -> f64 {
    SystemRuntime::new().process_cpu_micros() as f64 / 1e6
}

fn measure(dir: &str, what: &str, shows_log: bool) -> Result<()> {
    let (started, before) = (SystemRuntime::new(), cpu_seconds());
    let db = open(dir)?;
    let (opened, cpu) = (seconds(&started), cpu_seconds() - before);
    let query = Query::new().eq("group", 7).limit(10).keys_only().using_index("group");
    let found = db.collection("records")?.find(&query)?.count();
    let answered = seconds(&started);
    let stats = db.stats();
    let index = &stats.collections[0].indexes[0].tree;
    println!(
        "open after {what}: {opened:.3} s, {cpu:.3} s of CPU, first {found} answers at {answered:.3} s; index of {} entries, {} MB on disk{}",
        index.entries,
        index.disk_bytes >> 20,
        if shows_log { format!(", {} log segments", stats.old_log_segments + 1) } else { String::new() },
    );
    db.close()
}

fn write(db: &Db, from: u64, to: u64) -> Result<()> {
    let records = db.collection("records")?;
    let values = (to / RECORDS_PER_VALUE).max(1);
    let mut next = from;
    while next < to {
        let mut batch = WriteBatch::new();
        for number in next..to.min(next + BATCH) {
            let group = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let record = format!(r#"{{"group":{},"number":{number}}}"#, group % values);
            batch.put(&records, format!("{number:012}").as_bytes(), record.as_bytes())?;
        }
        db.write(batch)?;
        next += BATCH;
    }
    Ok(())
}
