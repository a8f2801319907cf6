//! Entries that a flush retains: they stay in memory, and are written to the log again (REMIX §4.2, abort).
//!
//! # Durability
//! 1. They are appended to the segment in use, marked, with their sequence numbers.
//! 2. The log is synced, and the edit that installs the flush names their part of the log.
//! 3. Recovery takes marked records only where the manifest names them. So a failed or interrupted flush has no effect,
//!    and an older part becomes invalid at the moment when the next flush is installed.
//!
//! Their memtable is the oldest of the tree. It is flushed with the next flush, or on its own once it needs too many
//! log segments. It does not count as pending.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::{Error, ErrorKind, MAX_SEQUENCE, Result};

use crate::batch::StoreBatch;
use crate::cursor::{InternalCursor, MergingCursor};
use crate::memtable::Visibility;
use crate::store::commit::log::Log;
use crate::store::files::StoreFiles;
use crate::store::jobs::environment::TableEnvironment;
use crate::store::jobs::obsolete_files::log_floor_without;
use crate::store::tree::Tree;
use crate::store::tree::directory::TreeDirectory;
use crate::store::tree::logged_memtable::LoggedMemtable;
use crate::version::{RetainedLog, VersionEdit};

/// Size in bytes at which a new record starts.
const RECORD_BYTES: usize = 1 << 20;

/// The bounds of a partition: an inclusive start and an exclusive end.
pub(in crate::store) type PartitionRange = (Option<Vec<u8>>, Option<Vec<u8>>);

/// The entries that a flush retains.
pub(in crate::store) struct RetainedEntries {
    pub(in crate::store) memtable: Arc<LoggedMemtable>,
    log: RetainedLog,
}

/// Copies the entries of `flushed` within `ranges`, in the versions of `visibility`, to a memtable of their own and
/// appends them to the log. `None` without ranges.
pub(in crate::store) fn retain(
    env: &TableEnvironment<'_>,
    tree: &Tree,
    flushed: &[Arc<LoggedMemtable>],
    visibility: Visibility,
    ranges: &[PartitionRange],
) -> Result<Option<RetainedEntries>> {
    if ranges.is_empty() {
        return Ok(None);
    }
    let mut retained = LoggedMemtable::retained(env.merge.files.pages());
    let mut batches = Vec::new();
    let mut batch = StoreBatch::new();
    let cursors = flushed.iter().map(|logged| logged.memtable.cursor(visibility)).collect();
    let mut cursor = MergingCursor::new(cursors);
    for (start, end) in ranges {
        match start {
            Some(start) => cursor.seek(start, MAX_SEQUENCE)?,
            None => cursor.seek_to_first()?,
        }
        while cursor.valid() && end.as_deref().is_none_or(|end| cursor.key() < end) {
            let (key, trailer, value) = (cursor.key(), cursor.trailer(), cursor.value());
            retained.memtable.insert(key, trailer, value);
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
    let log = append_retained(env, &mut batches)?;
    retained.note_retained(log);
    Ok(Some(RetainedEntries { memtable: Arc::new(retained), log }))
}

/// Appends `batches` to the segment in use, and returns their location.
fn append_retained(env: &TableEnvironment<'_>, batches: &mut [StoreBatch]) -> Result<RetainedLog> {
    let health = env.install.health;
    let mut log = env.install.log.lock();
    health.check()?;
    for batch in batches.iter_mut() {
        batch.assign(log.applied + 1);
        batch.seal();
    }
    let (segment, start) = (log.number(), log.len());
    let append = || log.append(batches.iter().map(StoreBatch::sealed_bytes));
    health.poison_on_panic(append).inspect_err(|error| {
        // On a full disk nothing is appended.
        if error.kind() != ErrorKind::NoSpace {
            health.poison(error);
        }
    })?;
    let end = log.len();
    env.counters.add_log_bytes(end - start);
    env.counters.retained_bytes.fetch_add(end - start, Ordering::Relaxed);
    Ok(RetainedLog { segment, start, end })
}

/// Adds the operations of a flush of `flushed`, apart from its sstables, to `edit`: range tombstones, the new log
/// floor of the tree, and the location of retained entries.
pub(in crate::store) fn note_flushed(
    tree: &Tree,
    flushed: &[Arc<LoggedMemtable>],
    retained: Option<&RetainedEntries>,
    edit: &mut VersionEdit,
) {
    for logged in flushed.iter().rev() {
        for tombstone in logged.memtable.range_tombstones() {
            edit.add_range_tombstone(tree.id, tombstone);
        }
    }
    // Memtables of retained entries share their segment with the writable one.
    let first_copies = flushed.iter().filter(|logged| !logged.is_retained());
    if let Some(last_log) = first_copies.map(|logged| logged.last_log()).max() {
        edit.set_tree_log_floor(tree.id, last_log + 1);
    }
    if retained.is_some() || flushed.iter().any(|logged| logged.is_retained()) {
        edit.set_retained(tree.id, retained.map(|retained| retained.log));
    }
}

/// Adds the log floor of the store to `edit`, for a flush of `flushed` that retains `retained`.
pub(in crate::store) fn note_log_floor(
    log: &Log,
    trees: &TreeDirectory,
    tree: &Tree,
    flushed: &[Arc<LoggedMemtable>],
    retained: Option<&RetainedEntries>,
    edit: &mut VersionEdit,
) {
    let floor = log_floor_without(log, trees, &BTreeMap::from([(tree.id, flushed)]));
    edit.set_wal_floor(retained.map_or(floor, |retained| floor.min(retained.log.segment)));
}

/// Fails if the manifest names retained entries of `tree` and replay has found another number of bytes than
/// `found`.
pub(in crate::store) fn check_retained(files: &StoreFiles, tree: &Tree, found: u64) -> Result<()> {
    let Some(log) = files.versions.lock().retained(tree.id) else { return Ok(()) };
    if log.end - log.start == found {
        return Ok(());
    }
    let path = files.path(crate::file_name::FileName::Wal(log.segment));
    let what = format!(
        "tree {} has {} bytes of entries that are retained here, and {found} are found",
        tree.id,
        log.end - log.start
    );
    Err(Error::corruption(path.display(), log.start, what))
}
