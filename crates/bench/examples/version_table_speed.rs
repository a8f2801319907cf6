//! The cost of a version table alone: with its novelty filter, and with every key, as in the durable table of the paper
//! (Perseid §4.3).
//!
//! ```text
//! cargo run --release -p bolide-bench --example version_table_speed -- [primary keys]
//! ```
//!
//! Prints CPU time of the calling thread for an operation, in microseconds, and bytes for each primary key.

use std::sync::Arc;

use bolide_base::Result;
use bolide_index::Verdict;
use bolide_index::version_table::{VersionTable, VersionTableOptions};
use bolide_storage::pmem::{Region, RegionOptions};
use bolide_storage::{Runtime, SimRng, SystemRuntime};

fn main() -> Result<()> {
    let keys = std::env::args().nth(1).map_or(5_000_000, |text| text.parse().unwrap_or(5_000_000));
    println!(
        "| 8-byte keys: {keys} | insert | update | verdict current | verdict obsolete | bytes a key, inserted | updated |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for every_key in [false, true] {
        measure(keys, every_key)?;
    }
    Ok(())
}

fn measure(keys: u64, every_key: bool) -> Result<()> {
    let clock = SystemRuntime::default();
    let region = Arc::new(Region::in_memory(RegionOptions::new())?);
    let options = VersionTableOptions { every_key, many_entries: false, seed: 7 };
    let table = VersionTable::create(&region, options)?;
    let mut rng = SimRng::new(1);
    let timed = |work: &mut dyn FnMut() -> Result<()>| {
        let start = clock.thread_cpu_micros();
        work()?;
        Ok::<f64, bolide_base::Error>((clock.thread_cpu_micros() - start) as f64 / keys as f64)
    };
    // Keys are scattered, like hashes of a counter.
    let key = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let insert = timed(&mut || {
        (0..keys).try_for_each(|number| table.note_entry(&region.writer(), &key(number), 1 + number))
    })?;
    let bytes = |table: &VersionTable| {
        let stats = table.stats();
        (stats.table_bytes + stats.filter_bytes) as f64 / keys as f64
    };
    let inserted = bytes(&table);
    let mut latest: Vec<u64> = (1..=keys).collect();
    let update = timed(&mut || {
        for turn in 0..keys {
            let number = rng.below(keys);
            let sequence = keys + 1 + turn;
            table.note_entry(&region.writer(), &key(number), sequence)?;
            latest[number as usize] = sequence;
        }
        Ok(())
    })?;
    let mut measure_verdicts = |obsolete: bool| {
        let mut wrong = 0;
        let micros = timed(&mut || {
            for _ in 0..keys {
                let number = rng.below(keys);
                let newest = latest[number as usize];
                let first = number + 1;
                let (sequence, expected) = match obsolete && newest != first {
                    true => (first, Verdict::Obsolete),
                    false => (newest, Verdict::Current),
                };
                wrong += u64::from(table.verdict(&key(number), sequence, 2 * keys)? != expected);
            }
            Ok(())
        })?;
        assert_eq!(wrong, 0, "wrong verdicts");
        Ok::<f64, bolide_base::Error>(micros)
    };
    let (current, old) = (measure_verdicts(false)?, measure_verdicts(true)?);
    let name = if every_key { "every key" } else { "novelty filter" };
    println!(
        "| {name} | {insert:.2} | {update:.2} | {current:.2} | {old:.2} | {inserted:.1} | {:.1} |",
        bytes(&table)
    );
    Ok(())
}
