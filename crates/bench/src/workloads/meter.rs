//! The clocks of one row of a workload.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::measure;
use crate::report::RowFigures;

/// The clocks at the start of a row.
pub struct Meter<'e> {
    /// Bytes that the engine has written through mappings so far.
    mapped: &'e dyn Fn() -> u64,
    path: &'e Path,
    started: Instant,
    thread_cpu: u64,
    process_cpu: u64,
    written: u64,
}

/// What the calling thread spent, up to the end of its operations.
pub struct Stopped {
    thread_cpu: u64,
    process_cpu: u64,
    wall: Duration,
}

impl<'e> Meter<'e> {
    /// Starts the clocks of a row over the store in `path`.
    pub fn start(path: &'e Path, mapped: &'e dyn Fn() -> u64) -> Self {
        Self {
            mapped,
            path,
            written: measure::written_bytes() + mapped(),
            process_cpu: measure::process_cpu_nanos(),
            started: Instant::now(),
            thread_cpu: measure::thread_cpu_nanos(),
        }
    }

    /// Reads the clocks when the last operation returned.
    pub fn stop(&self) -> Stopped {
        Stopped {
            thread_cpu: measure::thread_cpu_nanos() - self.thread_cpu,
            process_cpu: measure::process_cpu_nanos() - self.process_cpu,
            wall: self.started.elapsed(),
        }
    }

    /// The figures of the row: `user_bytes` were put, 0 for a row that reads; its background work took
    /// `settled`.
    pub fn figures(
        &self,
        row: &str,
        stopped: &Stopped,
        operations: usize,
        settled: Duration,
        user_bytes: usize,
    ) -> Result<RowFigures> {
        // Background work a write row left behind is its own; checking a lookup row's answers is not.
        let process_cpu = match user_bytes {
            0 => stopped.process_cpu,
            _ => measure::process_cpu_nanos() - self.process_cpu,
        };
        let per_operation = |nanos: u64| nanos as f64 / 1_000.0 / operations.max(1) as f64;
        let memory = measure::memory();
        Ok(RowFigures {
            row: row.to_owned(),
            threads: 1,
            operations: operations as u64,
            thread_micros: per_operation(stopped.thread_cpu),
            process_micros: per_operation(process_cpu),
            wall_micros: stopped.wall.as_secs_f64() * 1e6 / operations.max(1) as f64,
            settle_seconds: settled.as_secs_f64(),
            written_bytes: measure::written_bytes() + (self.mapped)() - self.written,
            user_bytes: user_bytes as u64,
            disk_bytes: measure::disk_bytes(self.path)?,
            peak_rss_bytes: memory.peak,
            anonymous_bytes: memory.anonymous,
            checksum: None,
            index_share: None,
        })
    }
}
