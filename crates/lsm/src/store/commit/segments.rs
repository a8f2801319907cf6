//! The segments of the log: their start, and the rotation of memtables with them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::{ErrorKind, Result};

use super::log::{LogState, Rotate};
use crate::file_name::FileName;
use crate::store::StoreInner;
use crate::store::commit::log::Log;
use crate::store::files::StoreFiles;
use crate::store::files::apply_edit;
use crate::store::health::Health;
use crate::store::tree::directory::TreeDirectory;
use crate::store::tree::logged_memtable::LoggedMemtable;
use crate::version::VersionEdit;
use crate::wal::WalWriter;

/// Number of finished segments that a memtable with few writes may retain.
const MAX_OLD_LOGS: usize = 4;

/// A memtable with less than this part (1/`MIN_SHARE_DIVISOR`) of the total memory does not justify a run of its own.
const MIN_SHARE_DIVISOR: usize = 16;

/// Starts a new segment if the writable memtables have no room for `incoming` bytes.
pub(in crate::store) fn make_room(store: &StoreInner, log: &mut LogState, incoming: usize) -> Result<()> {
    if store.active_bytes.get() + incoming > store.memtables.limit_bytes() && has_active_entries(&store.trees)
    {
        rotate(store, log, Rotate::LargeOrStale)?;
    }
    Ok(())
}

/// Finishes the segment and replaces the memtables of trees with a sufficient share of the memory.
///
/// A tree with few entries retains its memtable for a few more segments, so that many quiet trees do not write many
/// tiny sstables.
///
/// On an error before the new segment exists, nothing has changed and the store continues.
pub(in crate::store) fn rotate(store: &StoreInner, log: &mut LogState, which: Rotate) -> Result<()> {
    store.health.poison_on_panic(|| try_rotate(store, log, which))
}

fn try_rotate(store: &StoreInner, log: &mut LogState, which: Rotate) -> Result<()> {
    store.log.sync_and_check(log, &store.health)?;
    let finished = log.writer()?.end();
    let mut edit = VersionEdit::new();
    edit.seal_wal(finished.number, finished.len);
    start_segment(store, log, edit)?;
    let stale_before = note_old_log(&store.log, finished.number);
    let min_bytes = match which {
        Rotate::All => 0,
        Rotate::LargeOrStale | Rotate::Tree(_) => store.active_bytes.get() / MIN_SHARE_DIVISOR,
    };
    for tree in store.trees.load().values() {
        let state = tree.state_guard();
        // Retained entries, compacted memtables and memtables that wait for more must not retain the log for ever.
        // A pending flush does not suffice: it may turn into a compaction in memory each time.
        let is_waiting = tree.flushes_due(&store.options) == 0;
        let is_stale = |logged: &Arc<LoggedMemtable>| {
            let oldest = if logged.is_retained() { Some(logged.last_log()) } else { logged.first_log() };
            (!logged.is_from_writers() || is_waiting) && oldest.is_some_and(|oldest| oldest <= stale_before)
        };
        // A flushed memtable that is about to be released needs no log.
        let is_publication_pending = tree.publication_pending.load(Ordering::Acquire);
        if !is_publication_pending && state.immutables.iter().any(is_stale) {
            tree.flush_all.store(true, Ordering::Release);
        }
        let active = &state.active;
        let Some(first) = active.first_log() else { continue };
        let is_due = tree
            .is_checkpoint_due(store.counters.log_bytes())
            .unwrap_or_else(|| first <= stale_before || active.memtable.memory_bytes() >= min_bytes);
        if is_due || which == Rotate::All || which == Rotate::Tree(tree.id) {
            tree.replace_state(|state| state.rotated(store.options.memtable_bytes));
        }
    }
    log.targets.clear();
    store.active_bytes.set(store.trees.active_bytes());
    store.backlog().changed();
    Ok(())
}

/// Removes a segment that was not put into use.
fn discard_segment(files: &StoreFiles, health: &Health, number: u64) {
    let path = files.path(FileName::Wal(number));
    if let Err(error) = files.vfs.remove(&path)
        && error.kind() != ErrorKind::NotFound
    {
        health.poison(&error);
    }
}

/// Records a finished segment. Returns the number of the last segment that memtables must not need any more.
fn note_old_log(log: &Log, number: u64) -> u64 {
    let mut old_logs = log.finished.lock();
    old_logs.push(number);
    old_logs.len().checked_sub(MAX_OLD_LOGS).map_or(0, |position| old_logs[position])
}

fn has_active_entries(trees: &TreeDirectory) -> bool {
    trees.load().values().any(|tree| tree.state_guard().active.first_log().is_some())
}

/// Creates a segment, makes `edit` durable together with its name, and directs writes to it.
///
/// On an error before the edit is durable, nothing has changed.
pub(in crate::store) fn start_segment(
    store: &StoreInner,
    log: &mut LogState,
    mut edit: VersionEdit,
) -> Result<()> {
    let mut versions = store.files.versions.lock();
    let identity = store.files.new_identity(versions.new_file_number());
    let number = identity.file_number;
    let writer = store.reserve.with(|| {
        WalWriter::create(&*store.files.vfs, &store.options.dir, identity, store.boot, versions.marker())
            .inspect_err(|_| discard_segment(&store.files, &store.health, number))
    })?;
    edit.start_wal(number, identity.tag);
    apply_edit(&mut versions, edit, &store.health, &store.reserve).inspect_err(|error| {
        // After any other failure the edit may be durable, and then it names the segment.
        if error.kind() == ErrorKind::NoSpace {
            discard_segment(&store.files, &store.health, number);
        }
    })?;
    // Not earlier: until now the marker has the length of the previous segment, whose end the edit stores.
    writer.note_in_use();
    writer.preallocate_with(store.files.pages());
    log.start_segment(writer);
    store.log.current.store(number, Ordering::Release);
    Ok(())
}
