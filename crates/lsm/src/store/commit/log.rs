//! The log of an open store: the segment in use and the finished ones.
//!
//! # Rules
//! * A segment is synced before the next one starts.
//! * Full memtables have entries of finished segments only, so every entry that a flush writes to an sstable is already
//!   synced in the log.
//! * A segment takes records once the manifest names it.
//! * A segment is removed once no memtable of any tree needs it, and the manifest no longer names it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber, TreeId};
use bolide_storage::{FileLock, Runtime};
use parking_lot::{Mutex, MutexGuard};

use crate::store::commit::targets::CommitTargets;
use crate::store::health::Health;

use crate::options::{StoreOptions, SyncMode};
use crate::record_log::SingleOperation;
use crate::wal::{LogEnd, WalTail, WalWriter};

/// The writable memtables that become full ones at a new segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Rotate {
    /// All with entries.
    All,
    /// Those with a sufficient share of the memory, and those that need an old segment.
    LargeOrStale,
    /// Those of `LargeOrStale`, and that of one tree.
    Tree(TreeId),
}

/// State of the log. Its lock is held during writes to the log and changes of the segment.
#[derive(Debug)]
pub(in crate::store) struct LogState {
    /// `None` in a store opened read-only, and after a close.
    writer: Option<Arc<WalWriter>>,
    /// Cache of the memtables that writes go to.
    pub(in crate::store) targets: CommitTargets,
    /// The end of the log found by recovery, until the first segment is started.
    pub(in crate::store) tail: Option<WalTail>,
    /// The last segment that recovery read, if its synced length was unknown; see [`WalTail::unmarked`].
    pub(in crate::store) unmarked: Option<u64>,
    /// The last sequence number inserted into a memtable. At or above the published one.
    pub(in crate::store) applied: SequenceNumber,
    last_sync_micros: u64,
    /// True while writes with [`SyncMode::Batch`] wait for their sync.
    sync_pending: bool,
}

impl LogState {
    pub(in crate::store) fn new(applied: SequenceNumber) -> Self {
        Self {
            writer: None,
            targets: CommitTargets::default(),
            tail: None,
            unmarked: None,
            applied,
            last_sync_micros: 0,
            sync_pending: false,
        }
    }

    /// Directs writes to a new segment.
    pub(in crate::store) fn start_segment(&mut self, writer: WalWriter) {
        self.writer = Some(Arc::new(writer));
    }

    /// The number of the segment that is written.
    pub(in crate::store) fn number(&self) -> u64 {
        self.writer.as_ref().map_or(0, |writer| writer.number())
    }

    /// Bytes appended to the segment so far.
    pub(in crate::store) fn len(&self) -> u64 {
        self.writer.as_ref().map_or(0, |writer| writer.len())
    }

    pub(super) fn writer(&self) -> Result<&Arc<WalWriter>> {
        self.writer.as_ref().ok_or_else(|| Error::new(ErrorKind::Closed, "the log is closed"))
    }

    /// Appends records with one write.
    pub(in crate::store) fn append<'a>(&mut self, payloads: impl Iterator<Item = &'a [u8]>) -> Result<()> {
        self.writer()?.append(payloads)
    }

    /// Appends the record of one put.
    #[inline]
    pub(in crate::store) fn append_single(&mut self, operation: &SingleOperation<'_>) -> Result<()> {
        self.writer()?.append_single(operation)
    }

    fn sync(&mut self, now_micros: u64) -> Result<()> {
        self.last_sync_micros = now_micros;
        self.sync_pending = false;
        let writer = self.writer()?;
        if writer.synced_through() < writer.len() { writer.sync() } else { Ok(()) }
    }

    /// True while a segment is written.
    pub(in crate::store) fn is_open(&self) -> bool {
        self.writer.is_some()
    }

    /// Removes the writer: the log is closed. Returns its end.
    pub(in crate::store) fn close(&mut self) -> Option<LogEnd> {
        self.writer.take().map(|writer| writer.end())
    }
}

/// The log of a store, with its rules for syncs.
pub(in crate::store) struct Log {
    state: Mutex<LogState>,
    runtime: Arc<dyn Runtime>,
    /// The longest time that [`SyncMode::Batch`] leaves a write unsynced, in microseconds.
    sync_micros: u64,
    /// The most bytes that [`SyncMode::Batch`] leaves unsynced.
    sync_bytes: u64,
    /// Number of the segment that is written.
    pub(in crate::store) current: AtomicU64,
    /// Finished segments that memtables may still need, ascending.
    pub(in crate::store) finished: Mutex<Vec<u64>>,
    /// The lock of the directory; `None` if opened read-only.
    directory: Option<Box<dyn FileLock>>,
}

impl Log {
    /// The log before its first segment is started.
    pub(in crate::store) fn new(
        applied: SequenceNumber,
        runtime: Arc<dyn Runtime>,
        options: &StoreOptions,
        directory: Option<Box<dyn FileLock>>,
    ) -> Self {
        Self {
            state: Mutex::new(LogState::new(applied)),
            runtime,
            sync_micros: options.sync_interval.as_micros() as u64,
            sync_bytes: options.sync_bytes,
            current: AtomicU64::new(0),
            finished: Mutex::new(Vec::new()),
            directory,
        }
    }

    #[inline]
    pub(in crate::store) fn lock(&self) -> MutexGuard<'_, LogState> {
        self.state.lock()
    }

    #[inline]
    pub(in crate::store) fn try_lock(&self) -> Option<MutexGuard<'_, LogState>> {
        self.state.try_lock()
    }

    /// Fails if the directory was replaced since the opening: writes would be lost, and another process may have opened
    /// the new directory.
    fn check_directory(&self) -> Result<()> {
        self.directory.as_ref().map_or(Ok(()), |lock| lock.check())
    }

    /// Syncs everything appended so far.
    pub(in crate::store) fn sync_now(&self, state: &mut LogState) -> Result<()> {
        state.sync(self.runtime.now_micros())
    }

    /// Syncs the log as the modes of the applied batches require.
    #[inline]
    pub(super) fn sync_as_required(
        &self,
        state: &mut LogState,
        health: &Health,
        sync_modes: impl Iterator<Item = SyncMode>,
    ) -> Result<()> {
        let mut due = false;
        let mut batched = false;
        for mode in sync_modes {
            due |= mode == SyncMode::Always;
            batched |= mode == SyncMode::Batch;
        }
        if due || (batched && self.batch_sync_is_due(state)) {
            health.check()?;
            return self.sync_now(state).and_then(|()| self.check_directory());
        }
        state.sync_pending |= batched;
        Ok(())
    }

    /// Syncs the log and checks that the directory still exists; poisons the handle on failure.
    pub(in crate::store) fn sync_and_check(&self, state: &mut LogState, health: &Health) -> Result<()> {
        let synced = self.sync_now(state).and_then(|()| self.check_directory());
        synced.inspect_err(|error| health.poison(error))
    }

    fn batch_sync_is_due(&self, state: &LogState) -> bool {
        let Some(writer) = &state.writer else { return false };
        if writer.len() - writer.synced_through() >= self.sync_bytes {
            return true;
        }
        let since = self.runtime.now_micros().saturating_sub(state.last_sync_micros);
        since >= self.sync_micros
    }

    /// Syncs everything appended so far, concurrently with writers.
    pub(in crate::store) fn sync(&self, health: &Health) -> Result<()> {
        let writer = self.lock().writer.clone();
        // There is no writer while recovery replays segments, which are synced.
        let sync = || writer.map_or(Ok(()), |writer| writer.sync()).and_then(|()| self.check_directory());
        health.poison_on_panic(sync).inspect_err(|error| health.poison(error))
    }

    /// Syncs batched writes whose sync is overdue. Called by idle background threads.
    pub(in crate::store) fn sync_overdue(&self, health: &Health) {
        let Some(mut state) = self.try_lock() else { return };
        if state.sync_pending && self.batch_sync_is_due(&state) {
            let _ = self.sync_and_check(&mut state, health);
        }
    }
}
