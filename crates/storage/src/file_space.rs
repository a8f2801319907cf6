//! Growing a file without signals.
//!
//! A write past the process's limit of file sizes (`RLIMIT_FSIZE`) raises SIGXFSZ, which ends the process by default. So the limit is read
//! before a file grows, and growing past it is an error. The signal handlers of the process are left alone.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use bolide_base::{Error, ErrorKind, Result};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::retry_on_intr;
use rustix::process::{Resource, getrlimit};

use crate::io_error::describe;

/// The limit is read again each time a file has grown by so many bytes. A limit that is lowered meanwhile to less than the file has raises
/// the signal.
const READ_AGAIN_BYTES: u64 = 64 << 10;

/// Fails with [`ErrorKind::NoSpace`] if the process may not write files of `end` bytes.
pub(crate) fn check_file_size(path: &Path, end: u64) -> Result<()> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if end > limit => {
            let message = format!(
                "append to {}: the file would have {end} bytes; the process may write files of {limit} bytes \
                 (RLIMIT_FSIZE): raise that limit",
                path.display()
            );
            Err(Error::new(ErrorKind::NoSpace, message))
        }
        _ => Ok(()),
    }
}

/// The length that a file may have, read now and then.
#[derive(Debug, Default)]
pub(crate) struct CheckedSize(AtomicU64);

impl CheckedSize {
    /// As [`check_file_size`]. One system call for each 64 KiB.
    #[inline]
    pub(crate) fn check(&self, path: &Path, end: u64) -> Result<()> {
        if end <= self.0.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.read_limit(path, end)
    }

    #[cold]
    fn read_limit(&self, path: &Path, end: u64) -> Result<()> {
        let ahead = end.saturating_add(1).checked_next_multiple_of(READ_AGAIN_BYTES).unwrap_or(end);
        // Close to the limit each append reads it.
        let checked = if check_file_size(path, ahead).is_ok() { ahead } else { end };
        check_file_size(path, end)?;
        self.0.store(checked, Ordering::Relaxed);
        Ok(())
    }
}

/// Reserves the space of a file from `start` to `end`, and makes it that long.
///
/// # Errors
/// `NoSpace`, also for the limit of file sizes; `Io`. Part of the space may have been reserved then.
pub(crate) fn reserve_space(file: &fs::File, path: &Path, start: u64, end: u64) -> Result<()> {
    check_file_size(path, end)?;
    retry_on_intr(|| fallocate(file, FallocateFlags::empty(), start, end - start))
        .map_err(|errno| describe("reserve space in", path, io::Error::from(errno)))
}
