//! The figures of one row, and their median over runs.

use serde::{Deserialize, Serialize};

/// The costs of one row with one engine. Times are microseconds per operation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RowFigures {
    /// Name of the row.
    pub row: String,
    /// Threads that ran it.
    pub threads: u64,
    /// Operations done; fewer than planned if the row reached its time limit.
    pub operations: u64,
    /// CPU time of the calling threads, user and system.
    pub thread_micros: f64,
    /// CPU time of the whole process, including the background work of rows that wait for it.
    pub process_micros: f64,
    /// Wall time until the last operation returned.
    pub wall_micros: f64,
    /// Wall time until the background work had ended, seconds; 0 for rows that do not wait.
    pub settle_seconds: f64,
    /// Bytes written by `write` calls or through mappings, log included.
    pub written_bytes: u64,
    /// Bytes that the device read; 0 in figures older than this field.
    #[serde(default)]
    pub device_read_bytes: u64,
    /// Bytes of the keys and values put; 0 for rows that only read.
    pub user_bytes: u64,
    /// Bytes allocated on disk after the row.
    pub disk_bytes: u64,
    /// Maximum resident memory so far, mapped file pages included.
    pub peak_rss_bytes: u64,
    /// Anonymous resident memory after the row.
    pub anonymous_bytes: u64,
    /// Hash of all answers; `None` if it does not depend on the seed alone.
    pub checksum: Option<u64>,
    /// The memory of the index as a share of the size of its table, after the row; `None` if not measured.
    pub index_share: Option<f64>,
}

impl RowFigures {
    /// Bytes written for each byte put; `None` for rows that only read.
    pub fn write_amplification(&self) -> Option<f64> {
        (self.user_bytes > 0).then(|| self.written_bytes as f64 / self.user_bytes as f64)
    }
}

/// All rows of one engine with one number of threads: medians over runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EngineFigures {
    /// Engine name.
    pub engine: String,
    /// Threads of every row.
    pub threads: u64,
    /// Its rows, in the order they ran.
    pub rows: Vec<RowFigures>,
    /// The CPU time of the calling thread by row and run: the variation between runs.
    pub thread_micros_by_run: Vec<Vec<f64>>,
}

/// One invocation of the bench.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// `store` or `index`.
    pub workload: String,
    /// Records loaded.
    pub records: u64,
    /// The number of runs of each median.
    pub runs: usize,
    /// Bolide's layout.
    pub layout: String,
    /// The limit of the memory of each engine after its load, in MiB, if there was one.
    #[serde(default)]
    pub cold_mib: Option<u64>,
    /// Processor, cores, memory, kernel.
    pub machine: String,
    /// One per engine and number of threads.
    pub engines: Vec<EngineFigures>,
}

impl Report {
    /// Fails if two engines returned different answers to the same queries.
    pub fn check_answers(&self) -> crate::error::Result<()> {
        let Some(first) = self.engines.first() else { return Ok(()) };
        for engine in self.engines.iter().filter(|engine| engine.threads == first.threads) {
            for (one, other) in first.rows.iter().zip(&engine.rows) {
                if let (Some(left), Some(right)) = (one.checksum, other.checksum)
                    && left != right
                {
                    let (row, left, right) = (&one.row, &first.engine, &engine.engine);
                    return Err(format!("row {row}: {left} and {right} answered differently").into());
                }
            }
        }
        Ok(())
    }
}

/// The median of each figure over `runs`, which hold the same rows.
pub fn median_of_runs(engine: &str, threads: u64, runs: &[Vec<RowFigures>]) -> EngineFigures {
    let first = runs.first().map_or(&[][..], Vec::as_slice);
    let rows = first.iter().enumerate().map(|(at, row)| {
        let same: Vec<&RowFigures> = runs.iter().filter_map(|run| run.get(at)).collect();
        let real = |figure: fn(&RowFigures) -> f64| middle(same.iter().map(|row| figure(row)).collect());
        let whole = |figure: fn(&RowFigures) -> u64| middle(same.iter().map(|row| figure(row)).collect());
        RowFigures {
            row: row.row.clone(),
            threads: row.threads,
            operations: whole(|row| row.operations),
            thread_micros: real(|row| row.thread_micros),
            process_micros: real(|row| row.process_micros),
            wall_micros: real(|row| row.wall_micros),
            settle_seconds: real(|row| row.settle_seconds),
            written_bytes: whole(|row| row.written_bytes),
            device_read_bytes: whole(|row| row.device_read_bytes),
            user_bytes: whole(|row| row.user_bytes),
            disk_bytes: whole(|row| row.disk_bytes),
            peak_rss_bytes: whole(|row| row.peak_rss_bytes),
            anonymous_bytes: whole(|row| row.anonymous_bytes),
            checksum: row.checksum,
            index_share: row.index_share,
        }
    });
    let by_run = (0..first.len())
        .map(|at| runs.iter().filter_map(|run| Some(run.get(at)?.thread_micros)).collect())
        .collect();
    EngineFigures { engine: engine.to_owned(), threads, rows: rows.collect(), thread_micros_by_run: by_run }
}

fn middle<T: PartialOrd + Copy + Default>(mut numbers: Vec<T>) -> T {
    numbers.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_the_median() {
        assert_eq!(middle(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(middle(vec![5u64]), 5);
        assert_eq!(middle(Vec::<u64>::new()), 0);
    }
}
