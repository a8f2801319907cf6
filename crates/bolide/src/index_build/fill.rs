//! The back-fill: entries for the existing records; see the proof in [`super`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bolide_base::{Error, ErrorKind, Result, SequenceNumber, TreeId};
use bolide_index::hooks::BackFillMode;
use bolide_lsm::{Bounds, CommitStage, ReadView, StoreBatch, SyncMode};

use super::conditions::{check_in_use, check_wanted};
use super::options::BuildOptions;
use super::pace::Pace;
use super::{Job, encode_life};
use crate::back_fill::BackFill;
use crate::catalog::{BuildPosition, Filled, IndexLife, IndexState};
use crate::handle::Engine;
use crate::index_set::{Index, IndexSet};
use crate::schema::OpenCollection;

/// Size at which a batch of blind entries is committed, in bytes. A writer may wait while one batch is written to the
/// log and the memtable, so it is small: well under a millisecond.
const BATCH_BYTES: usize = 32 << 10;
/// Records whose entries are committed together if each is checked again inside the commit.
const STAGED_RECORDS: usize = 64;
/// Size of their keys and records at which they are committed before.
const STAGED_BYTES: usize = 256 << 10;
/// The maximum time between two durable records of the progress.
const CHECKPOINT_MICROS: u64 = 2_000_000;

/// A back-fill of one index.
pub(super) struct Fill<'f> {
    pub(super) engine: &'f Engine,
    pub(super) collection: &'f OpenCollection,
    /// The index of this build: the back-fill ends when it is dropped or isolated.
    pub(super) wanted: &'f Index,
    /// The index to fill: the same, or the key index that it needs.
    pub(super) index: &'f Arc<Index>,
    pub(super) options: &'f BuildOptions,
    pub(super) pace: Pace,
}

impl<'f> Fill<'f> {
    pub(super) fn new(
        engine: &'f Engine,
        collection: &'f OpenCollection,
        wanted: &'f Index,
        index: &'f Arc<Index>,
        options: &'f BuildOptions,
    ) -> Self {
        let pace = Pace::new(options, &*engine.components.runtime);
        Self { engine, collection, wanted, index, options, pace }
    }

    /// Commits the entries of all records after those of earlier attempts.
    pub(super) fn run(mut self) -> Result<()> {
        let progress = &self.index.progress;
        let mut filled = progress.filled();
        // The log was synced before the progress of that view was written, so the log must contain it completely.
        if filled.as_ref().is_some_and(|filled| filled.through > self.engine.store.published_sequence()) {
            progress.start_over();
            filled = None;
        }
        let set = self.collection.indexes();
        while let Some(next) = self.fill_section(&set, filled.take())? {
            self.checkpoint(&next)?;
            filled = Some(next);
        }
        Ok(())
    }

    /// Commits the entries of records after `behind` in a new view. Returns the new position; `None` at the end.
    fn fill_section(&mut self, set: &Arc<IndexSet>, behind: Option<Filled>) -> Result<Option<Filled>> {
        let engine = self.engine;
        let view = engine.read_view();
        let lower = behind.map(|filled| [filled.key.as_slice(), &[0]].concat());
        let bounds = lower.map_or_else(Bounds::all, |lower| Bounds::of(lower.as_slice()..));
        let mut records = view.cursor(self.collection.tree, bounds)?;
        records.seek_to_first()?;
        let deadline = engine.components.runtime.now_micros() + CHECKPOINT_MICROS;
        let mut batches = Batches::new(self.collection.tree, self.index, set, self.pace.stride())?;
        let mut read = 0_u64;
        while records.valid() {
            let full = batches.add(records.key(), records.value(), records.sequence())?;
            if full {
                let done = self.commit(&mut batches)?;
                read += done.bytes;
                let here = || Filled { key: records.key().to_vec(), through: view.sequence() };
                // Checked only here, so that each open completes at least one batch, however soon the database closes.
                let goes_on =
                    self.pause(done).and_then(|()| check_wanted(engine, self.collection, self.wanted));
                if goes_on.is_err() && engine.is_closing() {
                    // The next open continues here; if that cannot be noted, slightly before.
                    let _ = self.checkpoint(&here());
                }
                goes_on?;
                let now = engine.components.runtime.now_micros();
                if read >= self.options.checkpoint_bytes || now >= deadline {
                    return Ok(Some(here()));
                }
            }
            records.next()?;
        }
        self.commit(&mut batches)?;
        Ok(None)
    }

    /// Commits the pending records and counts them.
    fn commit(&self, batches: &mut Batches<'_>) -> Result<BuildPosition> {
        let (engine, collection, wanted) = (self.engine, self.collection, self.wanted);
        let check = || check_wanted(engine, collection, wanted);
        // If the index is dropped right here, the store reports that its tree does not exist.
        let done = batches.commit(engine).map_err(|error| check().err().unwrap_or(error))?;
        self.index.progress.count(done);
        Ok(done)
    }

    /// Waits to stay within the limits after `done`.
    fn pause(&mut self, done: BuildPosition) -> Result<()> {
        let (engine, collection, wanted) = (self.engine, self.collection, self.wanted);
        self.pace.wait(done, &*engine.components.runtime, || check_wanted(engine, collection, wanted))
    }

    /// Makes the progress durable.
    fn checkpoint(&self, filled: &Filled) -> Result<()> {
        // The entries that the descriptor covers must be durable before it.
        self.engine.store.sync()?;
        let _changing = self.engine.changing.lock();
        // The descriptor of an isolated index stays as it is: writes may have skipped the index since.
        check_in_use(self.collection, self.wanted)?;
        check_in_use(self.collection, self.index)?;
        let life = IndexLife {
            replaces: self.index.replaces,
            filled: Some(filled.clone()),
            done: self.index.progress.done(),
            limits: self.options.limits(),
            problem: self
                .index
                .progress
                .damage_or_cause()
                .map_or_else(String::new, |cause| cause.to_string()),
            ..IndexLife::begins(IndexState::Building)
        };
        let bytes = encode_life(self.collection, self.index, life);
        let written = self.engine.store.set_descriptor(self.index.tree, &bytes);
        written
            .map_err(|error| check_wanted(self.engine, self.collection, self.wanted).err().unwrap_or(error))
    }
}

/// Records that were read and whose entries are not committed yet.
struct Batches<'i> {
    table: TreeId,
    index: &'i Arc<Index>,
    set: &'i Arc<IndexSet>,
    back_fill: BackFill,
    /// Blind entries.
    entries: StoreBatch,
    /// Whether each record is checked again inside the commit; see [`crate::index_build`].
    is_checked: bool,
    /// Records whose entries are derived inside the commit.
    records: Vec<ReadRecord>,
    /// The pending work, without its entries.
    done: BuildPosition,
    /// The maximum number and bytes of pending records.
    stride: (u64, u64),
}

/// A record that was read from the view.
struct ReadRecord {
    key: Vec<u8>,
    record: Vec<u8>,
    sequence: SequenceNumber,
}

impl<'i> Batches<'i> {
    fn new(table: TreeId, index: &'i Arc<Index>, set: &'i Arc<IndexSet>, stride: (u64, u64)) -> Result<Self> {
        let back_fill = BackFill::new(index, set)?;
        let (entries, records) = (StoreBatch::new(), Vec::new());
        let is_checked = index.hooks.back_fill() != BackFillMode::Blind;
        let done = BuildPosition::default();
        Ok(Self { table, index, set, back_fill, entries, is_checked, records, done, stride })
    }

    /// Adds a record; returns true if the pending ones should be committed.
    fn add(&mut self, key: &[u8], record: &[u8], sequence: SequenceNumber) -> Result<bool> {
        self.done.records += 1;
        self.done.bytes += (key.len() + record.len()) as u64;
        let strides = self.done.records >= self.stride.0 || self.done.bytes >= self.stride.1;
        if self.is_checked {
            self.records.push(ReadRecord { key: key.to_vec(), record: record.to_vec(), sequence });
            let is_full = self.records.len() >= STAGED_RECORDS || self.done.bytes >= STAGED_BYTES as u64;
            return Ok(is_full || strides);
        }
        self.back_fill.add(key, record, sequence, &mut self.entries)?;
        // Records without the attribute count too, otherwise a build over them would exceed its rate limit.
        Ok(strides || self.entries.len_bytes() >= BATCH_BYTES || self.done.bytes >= 32 * BATCH_BYTES as u64)
    }

    /// Commits all pending records.
    fn commit(&mut self, engine: &Engine) -> Result<BuildPosition> {
        let mut done = std::mem::take(&mut self.done);
        if !self.records.is_empty() {
            let entries = Arc::new(AtomicU64::new(0));
            let back_fill = BackFill::new(self.index, self.set)?;
            let mut batch = StoreBatch::new();
            if back_fill.takes_a_number() {
                // No entry has this key: the delete only takes the sequence number of the lists.
                batch.delete(self.index.tree, &[])?;
            }
            let records = std::mem::take(&mut self.records);
            let stage = StillCurrent { table: self.table, back_fill, records, entries: entries.clone() };
            engine.store.commit(batch, Some(Box::new(stage)), SyncMode::None)?;
            done.entries = entries.load(Ordering::Relaxed);
        }
        if !self.entries.is_empty() {
            let entries = std::mem::take(&mut self.entries);
            done.entries += entries.len() as u64;
            engine.store.commit(entries, None, SyncMode::None)?;
        }
        Ok(done)
    }
}

/// Adds the entries of those records that were not replaced since they were read.
struct StillCurrent {
    table: TreeId,
    back_fill: BackFill,
    records: Vec<ReadRecord>,
    /// The number of added entries.
    entries: Arc<AtomicU64>,
}

impl CommitStage for StillCurrent {
    fn stage(&mut self, view: &ReadView, batch: &mut StoreBatch) -> Result<()> {
        let table = view.tree(self.table)?;
        let before = batch.len() as u64;
        let mut current = Vec::with_capacity(self.records.len());
        for ReadRecord { key, record, sequence } in &self.records {
            if table.newest_sequence(key)? == Some(*sequence) {
                self.back_fill.add(key, record, *sequence, batch)?;
                current.push((key.as_slice(), record.as_slice(), *sequence));
            }
        }
        self.back_fill.stage(self.table, &current, view, batch)?;
        self.entries.store(batch.len() as u64 - before, Ordering::Relaxed);
        Ok(())
    }
}

/// Why a build ended; if the store is closing or closed, that the next open continues the build.
pub(super) fn name_end(engine: &Engine, error: Error) -> Error {
    if engine.is_closing() && error.kind() != ErrorKind::Closed {
        return Error::new(ErrorKind::Closed, format!("the database is closing: {error}"));
    }
    error
}

/// Runs a part of a build. A panic in it becomes an error, which is returned to callers that wait for the build.
pub(super) fn caught(job: &Job, work: impl FnOnce() -> Result<()>) -> Result<()> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(Error::panicked(format_args!("the build of index {:?}", job.index.name), &*panic))
    })
}
