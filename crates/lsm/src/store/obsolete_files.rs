//! Removing files that nobody needs any more.
//!
//! An sstable goes when no version and no reader holds it. A log segment goes when no memtable of any
//! tree has entries of it, and the manifest says that recovery will not ask for it.

use bolide_base::ErrorKind;

use super::StoreInner;
use super::logged_memtable::LoggedMemtable;
use super::tree::Tree;
use crate::file_name::FileName;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl StoreInner {
    /// Removes what may go. A file that cannot be removed now is tried again later, at the latest when
    /// the database is opened next.
    pub(super) fn remove_obsolete_files(&self) {
        if self.check_writable().is_err() {
            return;
        }
        // A checkpoint links files by name while it runs.
        let Some(_removing) = self.removing.try_lock() else { return };
        for name in self.table_files.obsolete.take() {
            if let FileName::Table(number) = name {
                self.table_files.pool.close(number);
            }
            if !self.remove(name) {
                self.table_files.obsolete.push(name);
            }
        }
        self.remove_old_logs();
    }

    fn remove_old_logs(&self) {
        let durable_floor = self.versions.lock().wal_floor();
        let mut old_logs = self.old_logs.lock();
        old_logs.retain(|&number| number >= durable_floor || !self.remove(FileName::Wal(number)));
    }

    /// True if the file is gone.
    fn remove(&self, name: FileName) -> bool {
        match self.vfs.remove(&name.path(&self.options.dir)) {
            Ok(()) => true,
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }

    /// The oldest log segment that recovery needs once `flushed` of `tree` are durable elsewhere.
    pub(super) fn log_floor_without(&self, tree: &Tree, flushed: &[Arc<LoggedMemtable>]) -> u64 {
        // Read first: a memtable that gets its first entry after this look gets it from this segment or
        // a later one.
        let current = self.current_log.load(Ordering::Acquire);
        let oldest = |other: &Arc<Tree>| {
            let state = other.state_guard();
            let waits = |logged: &&Arc<LoggedMemtable>| {
                other.id != tree.id || !flushed.iter().any(|done| Arc::ptr_eq(done, logged))
            };
            state.memtables().filter(waits).filter_map(|logged| logged.first_log()).min()
        };
        self.trees.load().values().filter_map(oldest).min().unwrap_or(current).min(current)
    }
}
