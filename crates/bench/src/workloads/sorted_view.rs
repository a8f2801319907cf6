//! Sorted views against merging cursors, on sstables alone (REMIX §5.1, Figures 11 to 13).
//!
//! The figures are million operations per second of CPU time of the calling thread.

use std::path::Path;

use super::view_bed::{BedSettings, BuiltView, ENTRY_BYTES, ViewBed, ViewOperation};
use crate::error::Result;

/// The settings of a measurement.
#[derive(Debug, Clone)]
pub struct SortedViewPlan {
    /// Numbers of runs.
    pub runs: Vec<usize>,
    /// MiB of keys and values in each run.
    pub run_mib: u64,
    /// Operations of each kind.
    pub operations: u64,
    /// Entries of a segment.
    pub segment_entries: usize,
    /// Strong locality: each run holds 64 neighbouring keys at a time instead of one.
    pub strong: bool,
    /// Each figure is the median of this many measurements.
    pub repeats: usize,
    /// Rows to measure; empty for all.
    pub rows: Vec<String>,
}

/// Runs `plan` in `directory` and prints a line for each figure.
pub fn run(plan: &SortedViewPlan, directory: &Path) -> Result<()> {
    if let Some(unknown) =
        plan.rows.iter().find(|row| ViewOperation::ALL.iter().all(|operation| operation.name() != *row))
    {
        let known = ViewOperation::ALL.map(ViewOperation::name).join(", ");
        return Err(format!("no row `{unknown}`; the rows are {known}").into());
    }
    println!("runs  row                M/s CPU");
    for &runs in &plan.runs {
        let entries = plan.run_mib * (1 << 20) * runs as u64 / ENTRY_BYTES as u64;
        let (strong, segment_entries) = (plan.strong, plan.segment_entries);
        let settings = BedSettings { runs, entries, strong, segment_entries, bare: false };
        let bed = ViewBed::build(&settings, directory)?;
        print_build(runs, entries, "", &bed.plain);
        print_build(runs, entries, " with tags", &bed.tagged);
        for operation in ViewOperation::ALL {
            if plan.rows.is_empty() || plan.rows.iter().any(|row| row == operation.name()) {
                // The first round fills the cache.
                bed.run(operation, 0..plan.operations)?;
                let mut nanos = Vec::new();
                for _ in 0..plan.repeats.max(1) {
                    nanos.push(bed.run(operation, 0..plan.operations)?);
                }
                nanos.sort_unstable();
                let rate = plan.operations as f64 * 1e3 / nanos[nanos.len() / 2] as f64;
                println!("{runs:>4}  {:<16} {rate:>9.3}", operation.name());
            }
        }
    }
    Ok(())
}

fn print_build(runs: usize, entries: u64, what: &str, built: &BuiltView) {
    println!(
        "{runs:>4}  build{what:<10} {:>10.2} M keys/s, {:.2} bytes a key in the file, {:.2} in memory",
        entries as f64 * 1e3 / built.nanos as f64,
        built.file_bytes as f64 / entries as f64,
        built.memory_bytes as f64 / entries as f64,
    );
}
