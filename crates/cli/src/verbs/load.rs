//! Loading: one thread reads rows and derives their index entries, another one commits.
//!
//! Batches are committed in the order of the file, so a later row overrides an earlier one of the same key. At most
//! [`MAX_PENDING_BATCHES`] batches wait, so memory is bounded for files of any size.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use bolide::{Collection, Db, SyncMode, WriteBatch, WriteOptions};

use crate::arguments::BadRows;
use crate::failure::Failure;
use crate::input::{ByteCounter, InputRow, RowReader, Source};
use crate::output::report;
use crate::progress::ImportBar;
use crate::row::{RowChange, RowShape};

/// The number of rows per commit.
const BATCH_ROWS: usize = 1_000;
/// Bytes after which a batch is committed even with fewer rows.
const BATCH_BYTES: usize = 1 << 20;
/// The maximum number of batches that wait for the committing thread.
const MAX_PENDING_BATCHES: usize = 4;
/// Loads of at least this size end with a flush, so that later opens need not replay the log.
const FLUSH_ROWS: u64 = 10_000;
/// The maximum number of skipped bad rows that are reported one by one.
const MAX_NAMED_BAD_ROWS: u64 = 10;

/// Options of a load.
#[derive(Debug, Clone)]
pub(super) struct LoadOptions {
    /// The path of the key, and whether rows may delete.
    pub(super) shape: RowShape,
    /// When a batch is safe from a power cut.
    pub(super) sync: SyncMode,
    /// The handling of a row that is not a record.
    pub(super) bad_rows: BadRows,
    /// Whether to print after each batch how many rows are in the database.
    pub(super) acknowledge: bool,
}

/// The result of a load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tally {
    /// Rows put or deleted.
    pub(super) rows: u64,
    /// Rows skipped.
    pub(super) bad_rows: u64,
    /// From the first row to the last commit.
    pub(super) duration: Duration,
}

/// Loads all rows of `source`, and counts in `committed` those that are in the database.
///
/// # Errors
/// A bad row if those stop the load, an input that ends early, and errors of the store; the earlier rows stay in every
/// case.
pub(super) fn load(
    db: &Db,
    collection: &Collection,
    source: Source,
    options: &LoadOptions,
    committed: &AtomicU64,
) -> Result<Tally, Failure> {
    let started = Instant::now();
    let (sender, receiver) = sync_channel(MAX_PENDING_BATCHES);
    let mut reader = RowLoader::new(collection, source, options)?;
    let (read, written) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| commit_all(db, receiver, options, committed));
        let read = reader.read_all(&sender);
        drop(sender);
        let written = writer.join().unwrap_or_else(|_| {
            Err(Failure::operation("the committing thread ended badly", "report this as a bug of Bolide"))
        });
        (read, written)
    });
    reader.bar.finish();
    let rows = committed.load(Ordering::Relaxed);
    // If both failed, the store's error was first: the reader only noticed that the channel was closed.
    written.and(read).map_err(|failure| match failure {
        Failure::Operation { message, advice, kind } => {
            let rest = match rows {
                0 => "no row was loaded".to_owned(),
                _ => format!("the {rows} rows before it are in the database"),
            };
            Failure::Operation { message: format!("{message}; {rest}"), advice, kind }
        }
        other => other,
    })?;
    let tally = Tally { rows, bad_rows: reader.bad_rows, duration: started.elapsed() };
    if rows >= FLUSH_ROWS {
        db.flush()?;
    }
    Ok(tally)
}

/// Commits batches in order; counts the committed rows.
fn commit_all(
    db: &Db,
    batches: Receiver<WriteBatch>,
    options: &LoadOptions,
    committed: &AtomicU64,
) -> Result<(), Failure> {
    let write_options = WriteOptions::default().sync(options.sync);
    for batch in batches {
        let rows = batch.len() as u64;
        db.write_with(batch, &write_options)?;
        let rows = committed.fetch_add(rows, Ordering::Relaxed) + rows;
        if options.acknowledge {
            report!("acknowledged {rows} rows");
        }
    }
    Ok(())
}

struct RowLoader<'a> {
    collection: &'a Collection,
    options: &'a LoadOptions,
    name: String,
    rows: RowReader,
    file: ByteCounter,
    bar: ImportBar,
    batch: WriteBatch,
    rows_read: u64,
    row_bytes: u64,
    bad_rows: u64,
}

impl<'a> RowLoader<'a> {
    fn new(collection: &'a Collection, source: Source, options: &'a LoadOptions) -> Result<Self, Failure> {
        let (name, file, bar) =
            (source.name().to_owned(), source.counter(), ImportBar::new(source.file_bytes()));
        let rows = RowReader::new(source).map_err(|error| Failure::reading_rows(&name, 0, &error))?;
        let batch = WriteBatch::new();
        Ok(Self {
            collection,
            options,
            name,
            rows,
            file,
            bar,
            batch,
            rows_read: 0,
            row_bytes: 0,
            bad_rows: 0,
        })
    }

    /// Reads to the end; passes full batches to `sender`. Stops without an error once the channel is closed.
    fn read_all(&mut self, sender: &SyncSender<WriteBatch>) -> Result<(), Failure> {
        let outcome = self.read_rows(sender);
        // The rows before a bad row are committed.
        if !self.batch.is_empty() {
            let _ = sender.send(std::mem::take(&mut self.batch));
        }
        outcome
    }

    fn read_rows(&mut self, sender: &SyncSender<WriteBatch>) -> Result<(), Failure> {
        let mut text = Vec::new();
        loop {
            let row = self
                .rows
                .next(&mut text)
                .map_err(|error| Failure::reading_rows(&self.name, self.rows.line(), &error))?;
            let added = match row {
                None => return Ok(()),
                Some(InputRow::Bad(reason)) => Err(reason),
                Some(InputRow::Json) => self.add(&text),
            };
            match added {
                Ok(()) => self.rows_read += 1,
                Err(reason) => self.bad_row(&reason)?,
            }
            self.row_bytes += text.len() as u64 + 1;
            self.bar.update(self.rows_read, self.row_bytes, self.file.bytes());
            let is_full = self.batch.len() >= BATCH_ROWS || self.batch.len_bytes() >= BATCH_BYTES;
            if is_full && sender.send(std::mem::take(&mut self.batch)).is_err() {
                return Ok(());
            }
        }
    }

    /// Adds a row to the batch, or returns why it is bad.
    fn add(&mut self, text: &[u8]) -> Result<(), String> {
        let added = match self.options.shape.read(text)? {
            RowChange::Put(key) => self.batch.put(self.collection, &key.encode(), text.trim_ascii()),
            RowChange::Delete(key) => self.batch.delete(self.collection, &key.encode()),
        };
        added.map_err(|error| error.message().to_owned())
    }

    fn bad_row(&mut self, reason: &str) -> Result<(), Failure> {
        let bad_row = format!("line {} of {}: {reason}", self.rows.line(), self.name);
        match self.options.bad_rows {
            BadRows::Stop => {
                Err(Failure::operation(bad_row, "fix the row, or skip such rows with --bad-rows skip"))
            }
            BadRows::Skip => {
                self.bad_rows += 1;
                match self.bad_rows {
                    ..MAX_NAMED_BAD_ROWS => self.bar.note(&format!("skipped {bad_row}")),
                    MAX_NAMED_BAD_ROWS => {
                        self.bar.note(&format!("skipped {bad_row}; further ones are only counted"))
                    }
                    _ => {}
                }
                Ok(())
            }
        }
    }
}
