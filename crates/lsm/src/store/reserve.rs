//! Reserved disk space for operations that free space.
//!
//! The file `RESERVE` occupies blocks of the disk without contents. An operation that finds the disk full and is needed
//! to free space removes the file and tries again: the start of a log segment, a flush or compaction, an edit of the
//! manifest, a batch of deletes. Writes of records are rejected while the reserve is released, so that they do not use
//! it up. It is allocated again as soon as the disk has the space.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bolide_base::{EntryKind, Error, ErrorKind, Result};
use bolide_storage::Vfs;
use parking_lot::Mutex;

use super::health::Health;
use crate::batch::{BatchReader, Operation, StoreBatch};
use crate::file_name::FileName;

/// The reserve of a directory. Always allocated if its size is 0.
pub(super) struct Reserve {
    vfs: Arc<dyn Vfs>,
    path: PathBuf,
    dir: PathBuf,
    bytes: u64,
    is_allocated: AtomicBool,
    /// Locked while the reserve is allocated or released.
    change_lock: Mutex<()>,
}

impl Reserve {
    /// A reserve of `bytes` bytes in `dir`, which is not allocated yet.
    pub(super) fn new(vfs: Arc<dyn Vfs>, dir: &Path, bytes: u64) -> Self {
        Self {
            vfs,
            path: FileName::Reserve.path(dir),
            dir: dir.to_owned(),
            bytes,
            is_allocated: AtomicBool::new(bytes == 0),
            change_lock: Mutex::new(()),
        }
    }

    /// Allocates the reserve, unless it is allocated, the disk has no space for it, or the handle does not write.
    pub(super) fn allocate(&self, health: &Health) {
        if self.is_allocated() || health.check().is_err() {
            return;
        }
        let _one_at_a_time = self.change_lock.lock();
        match self.vfs.create_reserved(&self.path, self.bytes) {
            Err(error) if error.kind() == ErrorKind::NoSpace => {}
            // If it cannot be created for another reason, writes continue without it.
            _ => self.is_allocated.store(true, Ordering::Release),
        }
    }

    /// Releases the space of the reserve; false if it is not allocated.
    pub(super) fn release(&self) -> bool {
        if self.bytes == 0 {
            return false;
        }
        let _one_at_a_time = self.change_lock.lock();
        if !self.is_allocated.swap(false, Ordering::AcqRel) {
            return false;
        }
        let removed = self.vfs.remove(&self.path);
        // Some file systems free blocks only at their next commit.
        removed.is_ok() && self.vfs.sync_dir(&self.dir).is_ok()
    }

    /// Releases the reserve if work failed for lack of space; true if it may be retried at once.
    pub(super) fn release_for(&self, result: &Result<()>) -> bool {
        matches!(result, Err(error) if error.kind() == ErrorKind::NoSpace) && self.release()
    }

    /// Runs an operation that is needed to free space; on a full disk, releases the reserve and runs it again.
    pub(super) fn with<T>(&self, mut act: impl FnMut() -> Result<T>) -> Result<T> {
        act().or_else(
            |error| {
                if error.kind() == ErrorKind::NoSpace && self.release() { act() } else { Err(error) }
            },
        )
    }

    /// Rejects a write of records while the reserve is released.
    #[inline]
    pub(super) fn check(&self, health: &Health) -> Result<()> {
        if self.is_allocated() { Ok(()) } else { self.allocate_for_write(health) }
    }

    /// True if the reserve is allocated, or its size is 0.
    #[inline]
    pub(super) fn is_allocated(&self) -> bool {
        self.is_allocated.load(Ordering::Acquire)
    }

    #[cold]
    fn allocate_for_write(&self, health: &Health) -> Result<()> {
        self.allocate(health);
        if self.is_allocated() {
            return Ok(());
        }
        let message = format!(
            "{}: the disk is full, and what was reserved for deletes and compactions is in use: free {} bytes, \
             or delete records and compact, which needs space for what remains in the log of records and index entries",
            self.dir.display(),
            self.bytes
        );
        Err(Error::new(ErrorKind::NoSpace, message))
    }
}

/// True if the sealed `batches` only delete: each deletes a key or a range, and all its other operations are derived,
/// like the index entries of a delete.
pub(super) fn only_delete<'b>(batches: impl Iterator<Item = &'b StoreBatch>) -> bool {
    let deletes = |batch: &StoreBatch| -> Result<bool> {
        let mut any = false;
        for placed in BatchReader::new(batch.sealed_bytes())? {
            let placed = placed?;
            match placed.operation {
                _ if placed.derived => {}
                Operation::Entry { kind: EntryKind::Delete, .. } | Operation::RangeDelete { .. } => {
                    any = true
                }
                Operation::Entry { .. } => return Ok(false),
            }
        }
        Ok(any)
    };
    let mut batches = batches;
    batches.all(|batch| deletes(batch).unwrap_or(false))
}
