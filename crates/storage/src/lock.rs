//! Exclusive file locks: the operating system's lock, and a list of the locks of this process.
//!
//! The list is necessary because some file systems, such as NFS, turn `flock` into record locks. A process can acquire such a
//! lock several times.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bolide_base::{Error, ErrorKind, Result};

use crate::held::{HeldLocks, Identity};
use crate::io_error::describe;
use crate::vfs::FileLock;

/// The files that this process has locked.
static HELD: HeldLocks = HeldLocks::new();

/// A lock of a file on disk.
#[derive(Debug)]
struct DiskLock {
    file: fs::File,
    identity: Identity,
    path: PathBuf,
    /// The process that acquired it.
    process: u32,
}

impl FileLock for DiskLock {
    fn check(&self) -> Result<()> {
        match fs::metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == self.identity => Ok(()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(describe("look up", &self.path, error))
            }
            _ => Err(lost(&self.path)),
        }
    }
}

/// The error of a lock file that is no longer at its path.
pub(crate) fn lost(path: &Path) -> Error {
    let message = format!(
        "{}: the directory was removed, renamed or replaced while it was in use; what was written since may be lost",
        path.display()
    );
    Error::new(ErrorKind::Io, message)
}

impl Drop for DiskLock {
    fn drop(&mut self) {
        // A forked child shares the open file with its parent, and would release the lock of the parent.
        if self.process == std::process::id() {
            // An error is harmless: closing the file releases the lock as well.
            let _ = self.file.unlock();
            HELD.of(self.process).remove(&self.identity);
        }
    }
}

/// Whether `file`, which was opened by `path`, is locked.
pub(crate) fn is_file_locked(file: &fs::File, path: &Path) -> Result<bool> {
    let held = HELD.of(std::process::id());
    if held.contains(&identity_of(file, path)?) {
        return Ok(true);
    }
    match file.try_lock_shared() {
        // Closing the file would release it as well.
        Ok(()) => file.unlock().map(|()| false).map_err(|error| describe("unlock", path, error)),
        Err(fs::TryLockError::WouldBlock) => Ok(true),
        Err(fs::TryLockError::Error(error)) => Err(describe("lock", path, error)),
    }
}

fn identity_of(file: &fs::File, path: &Path) -> Result<Identity> {
    let metadata = file.metadata().map_err(|error| describe("stat", path, error))?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Locks `file`, which was opened by `path`, without waiting.
pub(crate) fn lock_file(file: fs::File, path: &Path) -> Result<Box<dyn FileLock>> {
    let identity = identity_of(&file, path)?;
    let process = std::process::id();
    // Held until the end, so that two threads cannot both acquire the lock.
    let mut held = HELD.of(process);
    if held.contains(&identity) {
        return Err(locked(path, "this process"));
    }
    match file.try_lock() {
        Ok(()) => {
            held.insert(identity);
            Ok(Box::new(DiskLock { file, identity, path: path.to_path_buf(), process }))
        }
        Err(fs::TryLockError::WouldBlock) => Err(locked(path, "another process")),
        Err(fs::TryLockError::Error(error)) => Err(describe("lock", path, error)),
    }
}

/// The error of a lock that `holder` holds.
pub(crate) fn locked(path: &Path, holder: &str) -> Error {
    Error::new(ErrorKind::Locked, format!("{} is locked by {holder}", path.display()))
}
