//! The stalls of a writer during checkpoints of an index of kind `ps-tree`.
//!
//! ```sh
//! cargo run --release -p bolide-bench --example checkpoint_pauses -- [RECORDS [WRITES]]
//! ```
//!
//! A writer puts `WRITES` records (200,000), a fifth of them new, one by one into a collection of `RECORDS` records (300,000).
//! Another thread flushes repeatedly, and every flush of the index is a checkpoint. Also measured without an index and without
//! flushes. The longest puts include stalls by checkpoints and disturbances by other programs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bolide::storage::{Runtime, SystemRuntime};
use bolide::{Collection, CollectionOptions, Db, Error, ErrorKind, Options, Result, SyncMode};

const RECORDS_PER_VALUE: u64 = 25;
const FLUSH_INTERVAL: Duration = Duration::from_millis(50);

fn put(records: &Collection, number: u64, turn: u64, values: u64) -> Result<()> {
    let group = (number ^ turn << 17).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let record = format!(r#"{{"group":{},"turn":{turn},"number":{number}}}"#, group % values);
    records.put(format!("{number:012}").as_bytes(), record.as_bytes())
}

fn measure(index: Option<&str>, flushing: bool, count: u64, writes: u64) -> Result<()> {
    let dir = tempfile::tempdir().map_err(|error| Error::new(ErrorKind::Io, error.to_string()))?;
    let db = Db::open(dir.path(), Options::default().sync(SyncMode::None))?;
    let mut options = CollectionOptions::json();
    if let Some(index) = index {
        options = options.index(index.parse()?);
    }
    let records = db.create_collection("records", options)?;
    let values = (count / RECORDS_PER_VALUE).max(1);
    (0..count).try_for_each(|number| put(&records, number, 0, values))?;
    db.flush()?;
    let runtime = Arc::new(SystemRuntime::new());
    let (stop, flushes) = (Arc::new(AtomicBool::new(!flushing)), Arc::new(AtomicU64::new(0)));
    let flusher = {
        let (db, stop, flushes, clock) = (db.clone(), stop.clone(), flushes.clone(), runtime.clone());
        let work = move || {
            while !stop.load(Ordering::Relaxed) && db.flush().is_ok() {
                flushes.fetch_add(1, Ordering::Relaxed);
                clock.sleep(FLUSH_INTERVAL);
            }
        };
        runtime.spawn("flusher", Box::new(work))?
    };
    let mut micros = Vec::with_capacity(writes as usize);
    for turn in 1..=writes {
        let number = turn.wrapping_mul(0x2545_f491_4f6c_dd1d) % (count + count / 4);
        let started = runtime.now_micros();
        put(&records, number, turn, values)?;
        micros.push(runtime.now_micros() - started);
    }
    stop.store(true, Ordering::Relaxed);
    flusher.join()?;
    micros.sort_unstable();
    let at = |share: f64| {
        micros.get((micros.len() as f64 * share) as usize).or(micros.last()).copied().unwrap_or(0)
    };
    let above = |limit: u64| micros.len() - micros.partition_point(|&took| took <= limit);
    println!(
        "| {} | {} | {} | {} | {} | {} | {} | {} |",
        index.unwrap_or("none"),
        flushes.load(Ordering::Relaxed),
        at(0.5),
        at(0.999),
        above(1_000),
        above(5_000),
        above(20_000),
        at(1.0),
    );
    drop(records);
    db.close()
}

fn main() -> Result<()> {
    let number = |at: usize, default: u64| {
        std::env::args().nth(at).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (count, writes) = (number(1, 300_000), number(2, 200_000));
    println!("| index | flushes | p50 µs | p99.9 µs | puts > 1 ms | > 5 ms | > 20 ms | longest µs |");
    println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    for index in [None, Some("group:composite"), Some("group:ps-tree")] {
        for flushing in [false, true] {
            measure(index, flushing, count, writes)?;
        }
    }
    Ok(())
}
