//! Growth of files without signals.
//!
//! A write past the file-size limit of the process (`RLIMIT_FSIZE`) raises SIGXFSZ, which ends the process by default. So the
//! limit is checked before a file grows, and a growth past it is an error. The signal handlers of the process stay unchanged.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use bolide_base::{Error, ErrorKind, Result};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::retry_on_intr;
use rustix::process::{Resource, getrlimit};

use crate::io_error::describe;

/// The limit is read again each time a file has grown by this many bytes. If it is lowered below the file's size meanwhile, the
/// signal is raised.
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

/// A file length that was checked against the limit.
#[derive(Debug, Default)]
pub(crate) struct CheckedSize(AtomicU64);

impl CheckedSize {
    /// As [`check_file_size`], with one system call per 64 KiB of growth.
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
        // Close to the limit each append reads the limit.
        let checked = if check_file_size(path, ahead).is_ok() { ahead } else { end };
        check_file_size(path, end)?;
        self.0.store(checked, Ordering::Relaxed);
        Ok(())
    }
}

/// Reserves the space of a file from `start` to `end`, and extends the file to `end`.
///
/// # Errors
/// `NoSpace`, also at the file-size limit; `Io`. A part of the space may be reserved then.
pub(crate) fn reserve_space(file: &fs::File, path: &Path, start: u64, end: u64) -> Result<()> {
    check_file_size(path, end)?;
    retry_on_intr(|| fallocate(file, FallocateFlags::empty(), start, end - start))
        .map_err(|errno| describe("reserve space in", path, io::Error::from(errno)))
}
