//! The log of a store while it is open: the segment that is written and those that wait.
//!
//! # Rules
//! * A segment is synced before the next one starts.
//! * Full memtables hold entries of finished segments only, so whatever a flush writes to an sstable
//!   is synced in the log already.
//! * A segment takes records once the manifest names it.
//! * A segment is removed once no memtable of any tree needs it, and the manifest says so.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber, TreeId};

use super::logged_memtable::LoggedMemtable;
use super::commit_targets::CommitTargets;
use super::{StoreInner, poison};

use crate::file_name::FileName;
use crate::options::SyncMode;
use crate::record_log::SingleOperation;
use crate::version::VersionEdit;
use crate::wal::{LogEnd, WalTail, WalWriter};

/// A memtable with less than this share of all is not worth a run of its own yet.
const MEMTABLE_SHARE: usize = 16;
/// How many finished segments a quiet memtable may hold back.
const MAX_OLD_LOGS: usize = 4;

/// Which writable memtables become full ones with a new segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rotate {
    /// All with entries.
    All,
    /// Those that hold a good share of the memory, or hold back an old segment.
    LargeOrStale,
    /// Those, and that of one tree.
    Tree(TreeId),
}

/// Guarded by the lock that whoever writes to the log holds, or starts a new segment.
#[derive(Debug)]
pub(super) struct LogState {
    /// None in a store opened read-only, and after it was closed.
    writer: Option<Arc<WalWriter>>,
    /// The memtables that are written to.
    pub(super) targets: CommitTargets,
    /// What recovery found, until the first segment is started.
    pub(super) tail: Option<WalTail>,
    /// The last segment that recovery read, if its synced length was not known; see [`WalTail::unmarked`].
    pub(super) unmarked: Option<u64>,
    /// The last sequence number inserted into a memtable. At or above the published one.
    pub(super) applied: SequenceNumber,
    last_sync_micros: u64,
    /// True while batched writes wait for their sync.
    owes_sync: bool,
}

impl LogState {
    pub(super) fn new(applied: SequenceNumber) -> Self {
        Self {
            writer: None,
            targets: CommitTargets::default(),
            tail: None,
            unmarked: None,
            applied,
            last_sync_micros: 0,
            owes_sync: false,
        }
    }

    /// Writes to a new segment from now on.
    pub(super) fn start_segment(&mut self, writer: WalWriter) {
        self.writer = Some(Arc::new(writer));
    }

    /// The number of the segment that is written.
    pub(super) fn number(&self) -> u64 {
        self.writer.as_ref().map_or(0, |writer| writer.number())
    }

    /// Bytes appended to the segment so far.
    pub(super) fn len(&self) -> u64 {
        self.writer.as_ref().map_or(0, |writer| writer.len())
    }

    fn writer(&self) -> Result<&Arc<WalWriter>> {
        self.writer.as_ref().ok_or_else(|| Error::new(ErrorKind::Closed, "the log is closed"))
    }

    /// Appends records with one write.
    pub(super) fn append<'a>(&mut self, payloads: impl Iterator<Item = &'a [u8]>) -> Result<()> {
        self.writer()?.append(payloads)
    }

    /// Appends the record of one put.
    #[inline]
    pub(super) fn append_single(&mut self, operation: &SingleOperation<'_>) -> Result<()> {
        self.writer()?.append_single(operation)
    }

    pub(super) fn sync(&mut self, now_micros: u64) -> Result<()> {
        self.last_sync_micros = now_micros;
        self.owes_sync = false;
        let writer = self.writer()?;
        if writer.synced_through() < writer.len() { writer.sync() } else { Ok(()) }
    }

    /// True while a segment is written.
    pub(super) fn is_open(&self) -> bool {
        self.writer.is_some()
    }

    /// Takes the writer out: the log is closed, and ends there.
    pub(super) fn close(&mut self) -> Option<LogEnd> {
        self.writer.take().map(|writer| writer.end())
    }
}

impl StoreInner {
    /// Syncs as the batches that were just applied ask for.
    pub(super) fn sync_as_required(
        &self,
        log: &mut LogState,
        wanted: impl Iterator<Item = SyncMode>,
    ) -> Result<()> {
        let mut due = false;
        let mut batched = false;
        for mode in wanted {
            due |= mode == SyncMode::Always;
            batched |= mode == SyncMode::Batch;
        }
        if due || (batched && self.batch_sync_is_due(log)) {
            self.check_writable()?;
            return log.sync(self.runtime.now_micros()).and_then(|()| self.check_directory());
        }
        log.owes_sync |= batched;
        Ok(())
    }

    /// Syncs the log and looks whether the directory is still there; poisons the store if not.
    pub(super) fn sync_and_check(&self, log: &mut LogState) -> Result<()> {
        let synced = log.sync(self.runtime.now_micros()).and_then(|()| self.check_directory());
        synced.inspect_err(|error| poison(self, error))
    }

    fn batch_sync_is_due(&self, log: &LogState) -> bool {
        let Some(writer) = &log.writer else { return false };
        if writer.len() - writer.synced_through() >= self.options.sync_bytes {
            return true;
        }
        let since = self.runtime.now_micros().saturating_sub(log.last_sync_micros);
        since >= self.options.sync_interval.as_micros() as u64
    }

    /// Syncs everything appended so far. Writers go on meanwhile.
    pub(super) fn sync_log(&self) -> Result<()> {
        let writer = self.log.lock().writer.clone();
        // Without one, recovery is replaying segments that were synced.
        let sync = || writer.map_or(Ok(()), |writer| writer.sync()).and_then(|()| self.check_directory());
        self.poison_on_panic(sync).inspect_err(|error| poison(self, error))
    }

    /// Syncs what batched writes left behind; called by the background threads in their idle time.
    pub(super) fn sync_overdue_log(&self) {
        let Some(mut log) = self.log.try_lock() else { return };
        if log.owes_sync && self.batch_sync_is_due(&log) {
            let now = self.runtime.now_micros();
            if let Err(error) = log.sync(now).and_then(|()| self.check_directory()) {
                poison(self, &error);
            }
        }
    }

    /// Starts a new segment if the writable memtables have no room for `incoming` bytes.
    pub(super) fn make_room(&self, log: &mut LogState, incoming: usize) -> Result<()> {
        if self.active_bytes() + incoming > self.options.memtable_bytes && self.has_active_entries() {
            self.rotate(log, Rotate::LargeOrStale)?;
        }
        Ok(())
    }

    /// Finishes the segment and gives fresh memtables to the trees that fill a good share of them.
    ///
    /// A tree with few entries keeps its memtable for a few segments more, so that many quiet trees do
    /// not write many tiny sstables.
    ///
    /// On an error before the new segment is there nothing has changed and the store goes on.
    pub(super) fn rotate(&self, log: &mut LogState, which: Rotate) -> Result<()> {
        self.poison_on_panic(|| self.try_rotate(log, which))
    }

    fn try_rotate(&self, log: &mut LogState, which: Rotate) -> Result<()> {
        self.sync_and_check(log)?;
        let finished = log.writer()?.end();
        let mut edit = VersionEdit::new();
        edit.seal_wal(finished.number, finished.len);
        self.start_segment(log, edit)?;
        let stale_before = self.note_old_log(finished.number);
        let worth_a_run = match which {
            Rotate::All => 0,
            Rotate::LargeOrStale | Rotate::Tree(_) => self.active_bytes() / MEMTABLE_SHARE,
        };
        for tree in self.trees.load().values() {
            let state = tree.state_guard();
            // What was kept back, was compacted in memory, or waits for others, is not to hold back the log for good. A flush that
            // is due would not do: it may turn into a compaction in memory each time.
            let waits = self.flushes_due(tree) == 0;
            let is_stale = |logged: &Arc<LoggedMemtable>| {
                let oldest = if logged.is_retained() { Some(logged.last_log()) } else { logged.first_log() };
                (!logged.is_from_writers() || waits) && oldest.is_some_and(|oldest| oldest <= stale_before)
            };
            // What was flushed and is about to go holds nothing back.
            let is_going = tree.publication_pending.load(Ordering::Acquire);
            if !is_going && state.immutables.iter().any(is_stale) {
                tree.flush_all.store(true, Ordering::Release);
            }
            let active = &state.active;
            let Some(first) = active.first_log() else { continue };
            let is_worth_it = self
                .is_checkpoint_due(tree)
                .unwrap_or_else(|| first <= stale_before || active.memtable.memory_bytes() >= worth_a_run);
            if is_worth_it || which == Rotate::All || which == Rotate::Tree(tree.id) {
                tree.replace_state(|state| state.rotated(self.options.memtable_bytes));
            }
        }
        log.targets.clear();
        self.reset_active_bytes();
        self.wake_workers();
        Ok(())
    }

    /// Removes a segment that was not put into use.
    pub(super) fn discard_segment(&self, number: u64) {
        let path = FileName::Wal(number).path(&self.options.dir);
        if let Err(error) = self.vfs.remove(&path)
            && error.kind() != ErrorKind::NotFound
        {
            poison(self, &error);
        }
    }

    /// Notes a finished segment; the result says up to which segment no memtable may hold the log back.
    fn note_old_log(&self, number: u64) -> u64 {
        let mut old_logs = self.old_logs.lock();
        old_logs.push(number);
        old_logs.len().checked_sub(MAX_OLD_LOGS).map_or(0, |position| old_logs[position])
    }

    fn has_active_entries(&self) -> bool {
        self.trees.load().values().any(|tree| tree.state_guard().active.first_log().is_some())
    }
}
