//! Removal of obsolete files.
//!
//! An sstable is removed when no version and no reader refers to it. A log segment is removed when no memtable of any
//! tree has entries of it, and the manifest has a higher log floor.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::{ErrorKind, Result, TreeId};

use crate::file_name::FileName;
use crate::store::commit::log::Log;
use crate::store::files::StoreFiles;
use crate::store::health::Health;
use crate::store::tree::Tree;
use crate::store::tree::directory::TreeDirectory;
use crate::store::tree::logged_memtable::LoggedMemtable;
use crate::version::CutTail;

/// Removes obsolete files. A file that cannot be removed now is tried again later, at the latest at the next
/// opening.
pub(in crate::store) fn remove_obsolete_files(files: &StoreFiles, health: &Health, log: &Log) {
    if health.check().is_err() {
        return;
    }
    // A running checkpoint links files by name.
    let Some(_locked) = files.removal.try_lock() else { return };
    for name in files.tables.obsolete.take() {
        if let FileName::Table(number) = name {
            files.tables.pool.close(number);
        }
        if !remove(files, name) {
            files.discard(name);
        }
    }
    remove_old_logs(files, log);
}

fn remove_old_logs(files: &StoreFiles, log: &Log) {
    let durable_floor = files.versions.lock().wal_floor();
    let spent: Vec<u64> =
        log.finished.lock().iter().copied().filter(|&number| number < durable_floor).collect();
    let gone: Vec<u64> = spent.into_iter().filter(|&number| remove(files, FileName::Wal(number))).collect();
    log.finished.lock().retain(|number| !gone.contains(number));
}

/// True if the file is gone.
fn remove(files: &StoreFiles, name: FileName) -> bool {
    match retire(files, name) {
        Ok(()) => true,
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// Removes an obsolete file. A segment whose tail recovery cut off is renamed instead and remains.
pub(in crate::store) fn retire(files: &StoreFiles, name: FileName) -> Result<()> {
    match name {
        FileName::Wal(number) if files.versions.lock().cut_tails().contains_key(&number) => {
            files.vfs.rename(&files.path(name), &files.path(FileName::Tail(number)))
        }
        _ => files.vfs.remove(&files.path(name)),
    }
}

/// The tails that recoveries cut off from log segments, oldest first, as long as their files exist.
pub(in crate::store) fn cut_tails(files: &StoreFiles, log: &Log) -> Vec<CutTail> {
    // In a read-only store, the last one is not in the manifest yet.
    let found = log.lock().tail.and_then(|tail| tail.cut_tail);
    files.versions.lock().cut_tails().values().copied().chain(found).collect()
}

/// The oldest log segment that recovery needs once the memtables `flushed`, by tree, are durable elsewhere. Cost: visits all
/// trees.
pub(in crate::store) fn log_floor_without(
    log: &Log,
    trees: &TreeDirectory,
    flushed: &BTreeMap<TreeId, &[Arc<LoggedMemtable>]>,
) -> u64 {
    // Read first: a memtable that gets its first entry later gets it from this segment or a later one.
    let current = log.current.load(Ordering::Acquire);
    let oldest = |tree: &Arc<Tree>| {
        let state = tree.state_guard();
        let flushed = flushed.get(&tree.id).copied().unwrap_or_default();
        let remains = |logged: &&Arc<LoggedMemtable>| !flushed.iter().any(|done| Arc::ptr_eq(done, logged));
        state.memtables().filter(remains).filter_map(|logged| logged.first_log()).min()
    };
    trees.load().values().filter_map(oldest).min().unwrap_or(current).min(current)
}
