//! Entries that a flush keeps back: they stay in memory, and are written to the log again (REMIX §4.2, abort).
//!
//! # How they survive
//! 1. They are appended to the segment in use, marked, with the numbers that they have.
//! 2. The log is synced, and the edit that installs the flush names the part of the log that they are in.
//! 3. Recovery takes marked records only where the manifest names them. So a flush that failed or was cut off leaves
//!    nothing behind that counts, and an older part stops to count in the moment when the next flush is installed.
//!
//! Their memtable is the oldest of the tree. It goes with the next flush, is not counted as one that waits for a flush, and is
//! flushed on its own account once it holds back too much of the log.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::{Error, ErrorKind, MAX_SEQUENCE, Result};

use super::logged_memtable::LoggedMemtable;
use super::partition_flush::PartitionRange;
use super::tree::Tree;
use super::{StoreInner, poison};
use crate::batch::StoreBatch;
use crate::cursor::{InternalCursor, MergingCursor};
use crate::memtable::Visibility;
use crate::version::{RetainedLog, VersionEdit};

/// Size at which a new record starts, in bytes.
const RECORD_BYTES: usize = 1 << 20;

/// What a flush keeps back.
pub(super) struct Retained {
    pub(super) memtable: Arc<LoggedMemtable>,
    log: RetainedLog,
}

impl StoreInner {
    /// Copies the entries of `flushed` within `ranges`, the versions that are `shown`, to a memtable of their own and appends
    /// them to the log. `None` without ranges.
    pub(super) fn retain(
        &self,
        tree: &Tree,
        flushed: &[Arc<LoggedMemtable>],
        shown: Visibility,
        ranges: &[PartitionRange],
    ) -> Result<Option<Retained>> {
        if ranges.is_empty() {
            return Ok(None);
        }
        let mut kept = LoggedMemtable::retained();
        let mut batches = Vec::new();
        let mut batch = StoreBatch::new();
        let cursors = flushed.iter().map(|logged| logged.memtable.cursor(shown)).collect();
        let mut cursor = MergingCursor::new(cursors);
        for (start, end) in ranges {
            match start {
                Some(start) => cursor.seek(start, MAX_SEQUENCE)?,
                None => cursor.seek_to_first()?,
            }
            while cursor.valid() && end.as_deref().is_none_or(|end| cursor.key() < end) {
                let (key, trailer, value) = (cursor.key(), cursor.trailer(), cursor.value());
                kept.memtable.insert(key, trailer, value);
                batch.retain_at(tree.id, key, trailer, value)?;
                if batch.len_bytes() >= RECORD_BYTES {
                    batches.push(std::mem::take(&mut batch));
                }
                cursor.next()?;
            }
        }
        if !batch.is_empty() {
            batches.push(batch);
        }
        let log = self.append_retained(&mut batches)?;
        kept.note_retained(log);
        Ok(Some(Retained { memtable: Arc::new(kept), log }))
    }

    /// Appends `batches` to the segment in use, and says where they are in it.
    fn append_retained(&self, batches: &mut [StoreBatch]) -> Result<RetainedLog> {
        let mut log = self.log.lock();
        self.check_writable()?;
        for batch in batches.iter_mut() {
            batch.assign(log.applied + 1);
            batch.seal();
        }
        let (segment, start) = (log.number(), log.len());
        let append = || log.append(batches.iter().map(StoreBatch::sealed_bytes));
        self.poison_on_panic(append).inspect_err(|error| {
            // A full disk appended nothing.
            if error.kind() != ErrorKind::NoSpace {
                poison(self, error);
            }
        })?;
        let end = log.len();
        self.counters.add_log_bytes(end - start);
        self.counters.retained_bytes.fetch_add(end - start, Ordering::Relaxed);
        Ok(RetainedLog { segment, start, end })
    }

    /// Adds to `edit` what a flush of `flushed` says besides its sstables: deleted ranges, what of the log is needed no more,
    /// and what is kept back.
    pub(super) fn note_flushed(
        &self,
        tree: &Tree,
        flushed: &[Arc<LoggedMemtable>],
        retained: Option<&Retained>,
        edit: &mut VersionEdit,
    ) {
        for logged in flushed.iter().rev() {
            for tombstone in logged.memtable.range_tombstones() {
                edit.add_range_tombstone(tree.id, tombstone);
            }
        }
        // Memtables of entries that were kept back share their segment with the writable one.
        let first_copies = flushed.iter().filter(|logged| !logged.is_retained());
        if let Some(last_log) = first_copies.map(|logged| logged.last_log()).max() {
            edit.set_tree_log_floor(tree.id, last_log + 1);
        }
        if retained.is_some() || flushed.iter().any(|logged| logged.is_retained()) {
            edit.set_retained(tree.id, retained.map(|retained| retained.log));
        }
        let floor = self.log_floor_without(tree, flushed);
        edit.set_wal_floor(retained.map_or(floor, |retained| floor.min(retained.log.segment)));
    }

    /// Fails where the manifest names a part of the log for entries that were kept back, and `found` bytes of it are there.
    pub(super) fn check_retained(&self, tree: &Tree, found: u64) -> Result<()> {
        let Some(log) = self.versions.lock().retained(tree.id) else { return Ok(()) };
        if log.end - log.start == found {
            return Ok(());
        }
        let path = crate::file_name::FileName::Wal(log.segment).path(&self.options.dir);
        let what = format!(
            "tree {} has {} bytes of entries that were kept back here, and {found} are found",
            tree.id,
            log.end - log.start
        );
        Err(Error::corruption(path.display(), log.start, what))
    }
}
