//! Progress bars on standard error for long work; none if it is not a terminal.

use std::time::Instant;

use bolide::BuildProgress;
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::{figures, report};

/// The interval at which the bar is redrawn, in rows.
const ROWS_PER_STEP: u64 = 1_000;

/// The progress of an import.
pub(crate) struct ImportBar {
    bar: ProgressBar,
    started: Instant,
    next_step: u64,
}

impl ImportBar {
    /// A bar over a file of `file_bytes`, or one without an end if that is not known.
    pub(crate) fn new(file_bytes: Option<u64>) -> Self {
        let (bar, template) = match file_bytes {
            Some(bytes) => (ProgressBar::new(bytes), "{bar:30} {percent:>3} %  {msg}  {eta} left"),
            None => (ProgressBar::new_spinner(), "{spinner} {msg}  {elapsed}"),
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━━─"));
        }
        Self { bar, started: Instant::now(), next_step: 0 }
    }

    /// Updates the bar: `rows` with `row_bytes` were read from `file_bytes` of the file.
    pub(crate) fn update(&mut self, rows: u64, row_bytes: u64, file_bytes: u64) {
        if rows < self.next_step || self.bar.is_hidden() {
            return;
        }
        self.next_step = rows + ROWS_PER_STEP;
        let elapsed = self.started.elapsed();
        let rows_a_second = figures::grouped(figures::per_second(rows, elapsed));
        let bytes_a_second = figures::bytes(figures::per_second(row_bytes, elapsed));
        self.bar.set_position(file_bytes);
        let rows = figures::grouped(rows);
        self.bar.set_message(format!("{rows} rows  {rows_a_second} rows/s  {bytes_a_second}/s"));
    }

    /// Writes a line above the bar.
    pub(crate) fn note(&self, text: &str) {
        if self.bar.is_hidden() { report!("{text}") } else { self.bar.println(text) }
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The progress of an index build.
pub(crate) struct BuildBar {
    bar: ProgressBar,
}

impl BuildBar {
    /// A bar whose length the first [`update`](Self::update) sets.
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::new(0);
        let template = "{bar:30} {percent:>3} %  {msg}  {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━━─"));
        }
        Self { bar }
    }

    /// Updates the bar.
    pub(crate) fn update(&self, progress: &BuildProgress) {
        if self.bar.is_hidden() {
            return;
        }
        if progress.sstable_bytes > 0 {
            // The share of old data with blocks; new data has them in any case.
            self.bar.set_length(progress.sstable_bytes);
            self.bar.set_position(progress.carried_bytes);
            let [carried, all] = [progress.carried_bytes, progress.sstable_bytes].map(figures::bytes);
            self.bar.set_message(format!("{carried} of {all} have index blocks"));
            return;
        }
        self.bar.set_length(progress.expected_records);
        self.bar.set_position(progress.records);
        let records = figures::grouped(progress.records);
        let records_a_second = figures::grouped(progress.records_per_second() as u64);
        let bytes_a_second = figures::bytes(progress.bytes_per_second() as u64);
        self.bar.set_message(format!("{records} records  {records_a_second} records/s  {bytes_a_second}/s"));
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
