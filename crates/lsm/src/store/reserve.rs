//! Reserved disk space for operations that free space.
//!
//! The file `RESERVE` occupies blocks of the disk without contents. An operation that finds the disk full and is needed
//! to free space removes the file and tries again: the start of a log segment, a flush or compaction, an edit of the
//! manifest, a batch of deletes. Writes of records are rejected while the reserve is released, so that they do not use
//! it up. It is allocated again as soon as the disk has the space.

use std::sync::atomic::{AtomicBool, Ordering};

use bolide_base::{EntryKind, Error, ErrorKind, Result};

use super::StoreInner;
use crate::batch::{BatchReader, Operation, StoreBatch};
use crate::file_name::FileName;

/// The state of the reserve. Always allocated if its size is 0.
#[derive(Debug)]
pub(super) struct Reserve {
    is_allocated: AtomicBool,
}

impl Reserve {
    /// The state of a reserve of `bytes` bytes, which is not allocated yet.
    pub(super) fn new(bytes: u64) -> Self {
        Self { is_allocated: AtomicBool::new(bytes == 0) }
    }
}

impl StoreInner {
    /// Allocates the reserve, unless it is allocated or the disk has no space for it.
    pub(super) fn allocate_reserve(&self) {
        if self.has_reserve() || self.check_writable().is_err() {
            return;
        }
        let _one_at_a_time = self.reserve_lock.lock();
        let path = FileName::Reserve.path(&self.options.dir);
        match self.vfs.create_reserved(&path, self.options.reserve_bytes) {
            Err(error) if error.kind() == ErrorKind::NoSpace => {}
            // If it cannot be created for another reason, writes continue without it.
            _ => self.reserve.is_allocated.store(true, Ordering::Release),
        }
    }

    /// Releases the space of the reserve; false if it is not allocated.
    pub(super) fn release_reserve(&self) -> bool {
        if self.options.reserve_bytes == 0 {
            return false;
        }
        let _one_at_a_time = self.reserve_lock.lock();
        if !self.reserve.is_allocated.swap(false, Ordering::AcqRel) {
            return false;
        }
        let removed = self.vfs.remove(&FileName::Reserve.path(&self.options.dir));
        // Some file systems free blocks only at their next commit.
        removed.is_ok() && self.vfs.sync_dir(&self.options.dir).is_ok()
    }

    /// Releases the reserve if work failed for lack of space; true if it may be retried at once.
    pub(super) fn release_reserve_for(&self, result: &Result<()>) -> bool {
        matches!(result, Err(error) if error.kind() == ErrorKind::NoSpace) && self.release_reserve()
    }

    /// Runs an operation that is needed to free space; on a full disk, releases the reserve and runs it again.
    pub(super) fn with_reserve<T>(&self, mut act: impl FnMut() -> Result<T>) -> Result<T> {
        act().or_else(|error| {
            if error.kind() == ErrorKind::NoSpace && self.release_reserve() { act() } else { Err(error) }
        })
    }

    /// Rejects a write of records while the reserve is released.
    #[inline]
    pub(super) fn check_reserve(&self) -> Result<()> {
        if self.has_reserve() { Ok(()) } else { self.allocate_reserve_for_write() }
    }

    /// True if the reserve is allocated, or its size is 0.
    #[inline]
    pub(super) fn has_reserve(&self) -> bool {
        self.reserve.is_allocated.load(Ordering::Acquire)
    }

    #[cold]
    fn allocate_reserve_for_write(&self) -> Result<()> {
        self.allocate_reserve();
        if self.has_reserve() {
            return Ok(());
        }
        let message = format!(
            "{}: the disk is full, and what was reserved for deletes and compactions is in use: free {} bytes, \
             or delete records and compact, which needs space for what remains in the log of records and index entries",
            self.options.dir.display(),
            self.options.reserve_bytes
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
