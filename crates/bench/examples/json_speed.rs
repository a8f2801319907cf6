//! The cost of the validation of JSON records, with and without the extraction of attributes.
//!
//! ```text
//! cargo run --release -p bolide-bench --example json_speed -- [PATH...] < FILE.ndjson
//! ```
//!
//! Reads at most 256 MiB of the input. A figure is the CPU time of the fastest pass over its lines within a second.

use std::io::BufRead;

use bolide_base::{Error, Result};
use bolide_index::{AttributeExtractor, AttributePlan, AttributeValues, JsonExtractor};
use bolide_storage::{Runtime, SystemRuntime};

/// Maximum bytes of the input that are read.
const MAX_BYTES: usize = 256 << 20;
/// Minimum duration of all passes, in microseconds of CPU time.
const MIN_MICROS: u64 = 1_000_000;

fn main() -> Result<()> {
    let paths = std::env::args().skip(1).map(|path| path.parse()).collect::<Result<Vec<_>>>()?;
    let records = read_records()?;
    let bytes: usize = records.iter().map(Vec::len).sum();
    println!("{} records, {bytes} bytes", records.len());
    let runtime = SystemRuntime::default();
    let report = |what: &str, pass: &mut dyn FnMut(&[u8]) -> Result<()>| -> Result<()> {
        let (mut best, mut sum) = (u64::MAX, 0);
        while sum < MIN_MICROS {
            let start = runtime.thread_cpu_micros();
            records.iter().try_for_each(|record| pass(record))?;
            let took = runtime.thread_cpu_micros().saturating_sub(start).max(1);
            best = best.min(took);
            sum += took;
        }
        let (per_byte, per_record) =
            (best as f64 * 1e3 / bytes as f64, best as f64 * 1e3 / records.len().max(1) as f64);
        println!("{what}: {per_byte:.2} ns a byte, {per_record:.0} ns a record");
        Ok(())
    };
    report("UTF-8 alone", &mut |record| {
        let text = std::str::from_utf8(record).map_err(|error| Error::invalid_input(error.to_string()))?;
        std::hint::black_box(text);
        Ok(())
    })?;
    report("validation", &mut |record| JsonExtractor.validate(record))?;
    let plan = AttributePlan::new(paths);
    let mut values = AttributeValues::new();
    let what = format!("validation and {} attributes", plan.paths().len());
    report(&what, &mut |record| JsonExtractor.extract(record, &plan, &mut values))
}

fn read_records() -> Result<Vec<Vec<u8>>> {
    let (mut records, mut bytes) = (Vec::new(), 0);
    for line in std::io::stdin().lock().split(b'\n') {
        let line = line.map_err(|error| Error::invalid_input(format!("standard input: {error}")))?;
        bytes += line.len();
        if !line.trim_ascii().is_empty() {
            records.push(line);
        }
        if bytes >= MAX_BYTES {
            break;
        }
    }
    Ok(records)
}
