//! Puts from several threads to one collection with an index: thousands a second by the clock, and CPU of the process.
//!
//! `cargo run --release -p bolide-bench --example writer_threads -- DIR [PUTS] [THREADS,…]`
//!
//! `DIR` must not exist. Each put replaces a record of 120 bytes and gives it another value: one in ten puts goes to one of a
//! hundred values. Medians of 3 rounds; all numbers of threads and all indexes in turn within a round.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use bolide::{CollectionOptions, Db, Error, Options, Result};

const INDEXES: [(&str, Option<&str>); 3] =
    [("none", None), ("ps-tree", Some("user:ps-tree")), ("composite", Some("user:composite"))];
const ROUNDS: usize = 3;
/// Records; puts choose among them.
const RECORDS: u64 = 100_000;

fn scrambled(number: u64) -> u64 {
    let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 3
}

fn record(draw: u64) -> String {
    let user = if draw.is_multiple_of(10) { draw / 10 % 100 } else { draw / 10 % (RECORDS / 25) };
    format!(r#"{{"user":{user},"text":"{:x<90}"}}"#, draw)
}

fn process_cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// Thousands of puts a second, and CPU microseconds for each.
fn measure(dir: &Path, index: Option<&str>, threads: u64, puts: u64) -> Result<(f64, f64)> {
    let db = Db::open(dir, Options::default())?;
    let mut options = CollectionOptions::json();
    if let Some(index) = index {
        options = options.index(index.parse()?);
    }
    let collection = db.create_collection("c", options)?;
    for number in 0..RECORDS {
        collection.put(&number.to_be_bytes(), record(scrambled(number)).as_bytes())?;
    }
    let (begun, cpu) = (Instant::now(), process_cpu());
    std::thread::scope(|scope| {
        let write = |thread: u64| {
            let collection = &collection;
            move || {
                for at in 0..puts / threads {
                    let draw = scrambled(at * threads + thread + RECORDS);
                    collection.put(&(draw % RECORDS).to_be_bytes(), record(draw).as_bytes())?;
                }
                Ok(())
            }
        };
        let writers: Vec<_> = (0..threads).map(|thread| scope.spawn(write(thread))).collect();
        let panicked = |_| Error::internal("a writer panicked");
        writers.into_iter().try_for_each(|writer| writer.join().map_err(panicked)?)
    })?;
    let (seconds, cpu) = (begun.elapsed().as_secs_f64(), process_cpu() - cpu);
    db.close()?;
    Ok((puts as f64 / seconds / 1e3, cpu * 1e6 / puts as f64))
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = || Error::invalid_input("usage: writer_threads DIR [PUTS] [THREADS,…]");
    let dir = Path::new(arguments.first().ok_or_else(usage)?);
    let puts = arguments.get(1).map_or(Ok(400_000), |puts| puts.parse()).map_err(|_| usage())?;
    let threads = arguments.get(2).map_or("1,2,4", String::as_str).split(',').map(str::parse);
    let threads: Vec<u64> = threads.collect::<std::result::Result<_, _>>().map_err(|_| usage())?;
    std::fs::create_dir(dir).map_err(|error| Error::io(dir.display(), error))?;
    let mut rows = BTreeMap::new();
    for round in 0..ROUNDS {
        for (name, index) in INDEXES {
            for &threads in &threads {
                let store = dir.join(format!("{round}-{name}-{threads}"));
                let figures = measure(&store, index, threads.max(1), puts)?;
                rows.entry((name, threads)).or_insert_with(Vec::new).push(figures);
                let _ = std::fs::remove_dir_all(&store);
            }
        }
    }
    let _ = std::fs::remove_dir_all(dir);
    println!(
        "| index | threads | thousand puts a second (lowest, highest) | CPU µs a put |\n|---|---:|---:|---:|"
    );
    for ((name, threads), mut figures) in rows {
        figures.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (low, middle, high) = (figures[0], figures[figures.len() / 2], figures[figures.len() - 1]);
        println!("| {name} | {threads} | {:.0} ({:.0}, {:.0}) | {:.2} |", middle.0, low.0, high.0, middle.1);
    }
    Ok(())
}
