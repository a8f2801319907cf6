//! The clocks of one row of a workload.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::measure;
use crate::report::RowFigures;

/// The clocks at the start of a row.
pub struct Meter<'e> {
    /// Returns the bytes that the engine has written through mappings so far.
    mapped: &'e dyn Fn() -> u64,
    path: &'e Path,
    started: Instant,
    thread_cpu: u64,
    process_cpu: u64,
    written: u64,
    device_read: u64,
}

/// The clocks at the end of the last operation, relative to the start.
pub struct MeterReading {
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
            device_read: measure::device_read_bytes(),
            process_cpu: measure::process_cpu_nanos(),
            started: Instant::now(),
            thread_cpu: measure::thread_cpu_nanos(),
        }
    }

    /// Reads the clocks at the end of the last operation.
    pub fn stop(&self) -> MeterReading {
        MeterReading {
            thread_cpu: measure::thread_cpu_nanos() - self.thread_cpu,
            process_cpu: measure::process_cpu_nanos() - self.process_cpu,
            wall: self.started.elapsed(),
        }
    }

    /// The figures of the row, with the bytes put (0 for a row that reads) and the time of the background work.
    pub fn figures(
        &self,
        row: &str,
        reading: &MeterReading,
        operations: usize,
        settled: Duration,
        user_bytes: usize,
    ) -> Result<RowFigures> {
        // A write row includes its background work; a read row excludes the check of its answers.
        let process_cpu = match user_bytes {
            0 => reading.process_cpu,
            _ => measure::process_cpu_nanos() - self.process_cpu,
        };
        let per_operation = |nanos: u64| nanos as f64 / 1_000.0 / operations.max(1) as f64;
        let memory = measure::memory();
        Ok(RowFigures {
            row: row.to_owned(),
            threads: 1,
            operations: operations as u64,
            thread_micros: per_operation(reading.thread_cpu),
            process_micros: per_operation(process_cpu),
            wall_micros: reading.wall.as_secs_f64() * 1e6 / operations.max(1) as f64,
            settle_seconds: settled.as_secs_f64(),
            written_bytes: measure::written_bytes() + (self.mapped)() - self.written,
            device_read_bytes: measure::device_read_bytes() - self.device_read,
            user_bytes: user_bytes as u64,
            disk_bytes: measure::disk_bytes(self.path)?,
            peak_rss_bytes: memory.peak,
            anonymous_bytes: memory.anonymous,
            checksum: None,
            index_share: None,
        })
    }
}
