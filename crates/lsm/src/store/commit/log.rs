//! The log of an open store: the segment in use and the finished ones.
//!
//! # Rules
//! * A segment is synced before the next one starts.
//! * Full memtables have entries of finished segments only, so every entry that a flush writes to an sstable is already
//!   synced in the log.
//! * A segment takes records once the manifest names it.
//! * A segment is removed once no memtable of any tree needs it, and the manifest no longer names it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber, TreeId};
use bolide_storage::{FileLock, Runtime};
use parking_lot::{Mutex, MutexGuard};

use crate::store::StoreInner;
use crate::store::commit::targets::CommitTargets;
use crate::store::health::Health;
use crate::store::tree::logged_memtable::LoggedMemtable;

use crate::file_name::FileName;
use crate::options::{StoreOptions, SyncMode};
use crate::record_log::SingleOperation;
use crate::version::VersionEdit;
use crate::wal::{LogEnd, WalTail, WalWriter};

/// A memtable with less than this part (1/`MIN_SHARE_DIVISOR`) of the total memory does not justify a run of its own.
const MIN_SHARE_DIVISOR: usize = 16;
/// Number of finished segments that a memtable with few writes may retain.
const MAX_OLD_LOGS: usize = 4;

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

    fn writer(&self) -> Result<&Arc<WalWriter>> {
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

impl StoreInner {
    /// Starts a new segment if the writable memtables have no room for `incoming` bytes.
    pub(in crate::store) fn make_room(&self, log: &mut LogState, incoming: usize) -> Result<()> {
        if self.active_bytes.get() + incoming > self.options.memtable_bytes && self.has_active_entries() {
            self.rotate(log, Rotate::LargeOrStale)?;
        }
        Ok(())
    }

    /// Finishes the segment and replaces the memtables of trees with a sufficient share of the memory.
    ///
    /// A tree with few entries retains its memtable for a few more segments, so that many quiet trees do not write many
    /// tiny sstables.
    ///
    /// On an error before the new segment exists, nothing has changed and the store continues.
    pub(in crate::store) fn rotate(&self, log: &mut LogState, which: Rotate) -> Result<()> {
        self.health.poison_on_panic(|| self.try_rotate(log, which))
    }

    fn try_rotate(&self, log: &mut LogState, which: Rotate) -> Result<()> {
        self.log.sync_and_check(log, &self.health)?;
        let finished = log.writer()?.end();
        let mut edit = VersionEdit::new();
        edit.seal_wal(finished.number, finished.len);
        self.start_segment(log, edit)?;
        let stale_before = self.note_old_log(finished.number);
        let min_bytes = match which {
            Rotate::All => 0,
            Rotate::LargeOrStale | Rotate::Tree(_) => self.active_bytes.get() / MIN_SHARE_DIVISOR,
        };
        for tree in self.trees.load().values() {
            let state = tree.state_guard();
            // Retained entries, compacted memtables and memtables that wait for more must not retain the log for ever.
            // A pending flush does not suffice: it may turn into a compaction in memory each time.
            let is_waiting = self.flushes_due(tree) == 0;
            let is_stale = |logged: &Arc<LoggedMemtable>| {
                let oldest = if logged.is_retained() { Some(logged.last_log()) } else { logged.first_log() };
                (!logged.is_from_writers() || is_waiting)
                    && oldest.is_some_and(|oldest| oldest <= stale_before)
            };
            // A flushed memtable that is about to be released needs no log.
            let is_publication_pending = tree.publication_pending.load(Ordering::Acquire);
            if !is_publication_pending && state.immutables.iter().any(is_stale) {
                tree.flush_all.store(true, Ordering::Release);
            }
            let active = &state.active;
            let Some(first) = active.first_log() else { continue };
            let is_due = self
                .is_checkpoint_due(tree)
                .unwrap_or_else(|| first <= stale_before || active.memtable.memory_bytes() >= min_bytes);
            if is_due || which == Rotate::All || which == Rotate::Tree(tree.id) {
                tree.replace_state(|state| state.rotated(self.options.memtable_bytes));
            }
        }
        log.targets.clear();
        self.reset_active_bytes();
        self.wake_workers();
        Ok(())
    }

    /// Removes a segment that was not put into use.
    pub(in crate::store) fn discard_segment(&self, number: u64) {
        let path = FileName::Wal(number).path(&self.options.dir);
        if let Err(error) = self.vfs.remove(&path)
            && error.kind() != ErrorKind::NotFound
        {
            self.health.poison(&error);
        }
    }

    /// Records a finished segment. Returns the number of the last segment that memtables must not need any more.
    fn note_old_log(&self, number: u64) -> u64 {
        let mut old_logs = self.old_logs.lock();
        old_logs.push(number);
        old_logs.len().checked_sub(MAX_OLD_LOGS).map_or(0, |position| old_logs[position])
    }

    fn has_active_entries(&self) -> bool {
        self.trees.load().values().any(|tree| tree.state_guard().active.first_log().is_some())
    }
}
