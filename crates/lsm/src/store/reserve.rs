//! Space that a full disk leaves to what frees space.
//!
//! The file `RESERVE` takes blocks of the disk and holds nothing. What finds the disk full and is needed to free space removes it and tries
//! again: the start of a log segment, a flush or compaction, an edit of the manifest, a write of deletes alone. Writes of records are refused while
//! the reserve is away, so that they do not use up what was released; it is taken again as soon as the disk has the space.

use std::sync::atomic::{AtomicBool, Ordering};

use bolide_base::{EntryKind, Error, ErrorKind, Result};

use super::StoreInner;
use crate::batch::{BatchReader, Operation, StoreBatch};
use crate::file_name::FileName;

/// Whether the reserve is there. True, too, where none is wanted.
#[derive(Debug)]
pub(super) struct Reserve {
    is_there: AtomicBool,
}

impl Reserve {
    /// Of a store with a reserve of so many bytes, which is not there yet.
    pub(super) fn new(bytes: u64) -> Self {
        Self { is_there: AtomicBool::new(bytes == 0) }
    }
}

impl StoreInner {
    /// Takes the reserve, unless it is there or the disk has not the space.
    pub(super) fn allocate_reserve(&self) {
        if self.has_reserve() || self.check_writable().is_err() {
            return;
        }
        let _one_at_a_time = self.reserve_lock.lock();
        let path = FileName::Reserve.path(&self.options.dir);
        match self.vfs.create_reserved(&path, self.options.reserve_bytes) {
            Err(error) if error.kind() == ErrorKind::NoSpace => {}
            // Where none can be made for another reason, writes go on without it.
            _ => self.reserve.is_there.store(true, Ordering::Release),
        }
    }

    /// Gives the space of the reserve back to the disk; false if there is none.
    pub(super) fn release_reserve(&self) -> bool {
        if self.options.reserve_bytes == 0 {
            return false;
        }
        let _one_at_a_time = self.reserve_lock.lock();
        if !self.reserve.is_there.swap(false, Ordering::AcqRel) {
            return false;
        }
        let removed = self.vfs.remove(&FileName::Reserve.path(&self.options.dir));
        // Some file systems hand out freed blocks only after their next commit.
        removed.is_ok() && self.vfs.sync_dir(&self.options.dir).is_ok()
    }

    /// Releases the reserve if work failed for lack of space; true if it may be tried again at once.
    pub(super) fn release_reserve_for(&self, result: &Result<()>) -> bool {
        matches!(result, Err(error) if error.kind() == ErrorKind::NoSpace) && self.release_reserve()
    }

    /// Does what is needed to free space, a second time without the reserve if the disk is full.
    pub(super) fn with_reserve<T>(&self, mut act: impl FnMut() -> Result<T>) -> Result<T> {
        act().or_else(|error| {
            if error.kind() == ErrorKind::NoSpace && self.release_reserve() { act() } else { Err(error) }
        })
    }

    /// Refuses a write of records while the reserve is away.
    #[inline]
    pub(super) fn check_reserve(&self) -> Result<()> {
        if self.has_reserve() { Ok(()) } else { self.allocate_reserve_for_write() }
    }

    /// Whether the reserve is there, or none is wanted.
    #[inline]
    pub(super) fn has_reserve(&self) -> bool {
        self.reserve.is_there.load(Ordering::Acquire)
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

/// Whether the sealed `batches` only delete: each deletes a key or a range, and all else in it is derived from that, as the
/// entries by which an index learns of a delete.
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
