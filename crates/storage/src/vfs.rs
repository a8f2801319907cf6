//! The file system as Bolide needs it: append-only files, whole-file names, explicit syncs.
//!
//! # What survives a power cut
//!
//! Only what was synced, and nothing else may be assumed:
//!
//! 1. The bytes of a file survive up to the length it had at its last successful [`File::sync`].
//!    Bytes after that survive by whole or part sectors, in any order, as zeros, as garbage, or not.
//! 2. A name (a create, rename, removal, hard link or new directory) survives if the directory that
//!    holds it was synced by [`Vfs::sync_dir`] afterwards; otherwise it may or may not. Syncing a
//!    file says nothing about its name.
//! 3. A rename is atomic: the target name means the old file or the new one, never neither.
//!
//! # After a failure
//!
//! * A failed [`File::append`] may have written some of its bytes. The handle knows that its end is in
//!   doubt: every later `append` and `sync` on it fails with [`ErrorKind::Poisoned`]. The exception is
//!   a full disk (or quota, limit of file sizes, lack of memory): the file is cut back to the length it had, so an error of kind
//!   [`ErrorKind::NoSpace`] means that *nothing* was appended and the handle may go on. (Where cutting
//!   back fails too, the kind is [`ErrorKind::Io`].)
//! * A failed [`File::sync`] may have dropped the unsynced bytes for good, although reads still show
//!   them. The handle is poisoned; a second sync must not be taken for a success.
//! * Reads stay possible in both cases.
//! * A failed call of [`Vfs`] changed nothing, or did what it was asked and failed to say so.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, Result};

use crate::pmem::{Region, RegionOptions};

/// A file system: the few operations on names that a store needs.
///
/// All methods may be called from any thread. Paths are taken as they are; an empty path means the
/// current directory.
pub trait Vfs: Send + Sync + Debug + 'static {
    /// Creates a new, empty file for reading and appending, readable by its owner alone (mode 0600).
    ///
    /// Fails with [`ErrorKind::Conflict`] if the name exists, with [`ErrorKind::NotFound`] if the
    /// directory does not.
    fn create(&self, path: &Path) -> Result<Arc<dyn File>>;

    /// Creates a file for many small appends, like [`create`](Self::create). Until it is dropped, or if the
    /// process is killed, zeros may follow the appended bytes on disk.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    fn create_log(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.create(path)
    }

    /// Creates a file that takes `bytes` bytes of the disk and holds nothing: [`remove`](Self::remove) gives the space back. Without a limit of
    /// its own, a file system may create an empty file.
    ///
    /// Fails with [`ErrorKind::Conflict`] if the name exists; with [`ErrorKind::NoSpace`], after which there is no such file.
    fn create_reserved(&self, path: &Path, _bytes: u64) -> Result<()> {
        self.create(path).map(drop)
    }

    /// Opens an existing file for reading. Appending to it fails with [`ErrorKind::ReadOnly`].
    ///
    /// Fails with [`ErrorKind::NotFound`] if there is no such file.
    fn open(&self, path: &Path) -> Result<Arc<dyn File>>;

    /// The path of something that exists, without links and `..`; a file system without links returns it as it is.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; those of the file system.
    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        Ok(path.to_path_buf())
    }

    /// Removes the name of a file. Handles that are open keep the bytes.
    ///
    /// Fails with [`ErrorKind::NotFound`] if there is no such file.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Writes the bytes `from..to` of an existing file again, in place, and makes the file durable through `to`.
    ///
    /// After an earlier sync of the file failed, reads may show bytes that the operating system dropped from what it
    /// will write; a further sync would succeed without writing them. Writing them again makes a sync meaningful. No
    /// space is taken on a file system that overwrites in place. Cost: `to - from` bytes read and written, one sync.
    ///
    /// Fails with [`ErrorKind::NotFound`] if there is no such file, with [`ErrorKind::Io`] if it is shorter than `to`.
    fn rewrite(&self, path: &Path, from: u64, to: u64) -> Result<()>;

    /// Opens the marker file of this name, creating it (mode 0600) if it is missing. Neither its name nor its bytes are
    /// ever synced: see [`Marker`].
    fn open_marker(&self, path: &Path) -> Result<Arc<dyn Marker>>;

    /// A number of the mount that holds `path`, unique until the next boot: another mount of the same file system has
    /// another one. `None` where the operating system has no such number.
    fn mount_id(&self, _path: &Path) -> Option<u64> {
        None
    }

    /// Gives the file or directory `from` the name `to`, in one step. A file at `to` is replaced.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Gives the file `from` a second name `to` on the same medium.
    ///
    /// Fails with [`ErrorKind::Conflict`] if `to` exists, with [`ErrorKind::Unsupported`] where a link is impossible: on another file
    /// system, on one without links, or where the file has the most links that it may have.
    fn hard_link(&self, from: &Path, to: &Path) -> Result<()>;

    /// The names in a directory (files and directories), sorted. Names that are not UTF-8 are left
    /// out: the store writes none.
    fn list(&self, dir: &Path) -> Result<Vec<String>>;

    /// Whether a file or a directory has this name.
    fn exists(&self, path: &Path) -> Result<bool>;

    /// Creates a directory (mode 0700) and the missing ones above it. An existing one is no error.
    fn create_dir_all(&self, dir: &Path) -> Result<()>;

    /// Makes the names in `dir` survive a power cut, as they are now.
    fn sync_dir(&self, dir: &Path) -> Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, dir: &Path) -> Result<()>;

    /// Takes the exclusive lock of `path`, creating the file (mode 0600) if it is missing.
    ///
    /// It is released when the returned guard is dropped, and by the end of the process. Fails with
    /// [`ErrorKind::Locked`], without waiting, if another process or another handle in this process
    /// holds it.
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>>;

    /// Whether somebody holds the lock of `path`; false where there is no such file. Creates nothing. Who wants the lock at
    /// this very moment may be refused.
    fn is_locked(&self, path: &Path) -> Result<bool>;

    /// Creates a region of persistent memory under this name, empty so far. Its name is durable when this returns, and
    /// so is what is persisted in it from then on. [`remove`](Self::remove) removes it.
    ///
    /// Fails with [`ErrorKind::Unsupported`] where there is no persistent memory, with [`ErrorKind::Conflict`] if
    /// the name exists, with [`ErrorKind::NoSpace`].
    fn create_region(&self, path: &Path, _options: RegionOptions) -> Result<Arc<Region>> {
        Err(Error::unsupported(path.display(), "this file system has no persistent memory"))
    }

    /// Opens a region that [`create_region`](Self::create_region) made; `options` has the id that it must have. A
    /// `private` region can be written, but keeps nothing of it.
    ///
    /// Fails with [`ErrorKind::NotFound`] if there is no such file, with [`ErrorKind::Corruption`] if it is not
    /// that region, whole.
    fn open_region(&self, path: &Path, _options: RegionOptions, _private: bool) -> Result<Arc<Region>> {
        Err(Error::unsupported(path.display(), "this file system has no persistent memory"))
    }
}

/// An open file. Bytes once appended never change.
///
/// All methods take `&self` and may be called from any thread: reads run in parallel with each other
/// and with an append; appends of several threads come one after the other.
pub trait File: Send + Sync + Debug {
    /// Reads up to `buf.len()` bytes that start at `offset`, and says how many. Zero means that
    /// `offset` is at or after the end, or that `buf` is empty; fewer than asked means nothing.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Writes all of `bytes` at the end. One system call as a rule; nothing is buffered here.
    ///
    /// On an error some of the bytes may have been written; see the module's head for what then holds.
    fn append(&self, bytes: &[u8]) -> Result<()>;

    /// Makes all bytes appended before survive a power cut (`fdatasync`).
    ///
    /// A success also covers bytes appended through other handles. After an error nothing that was
    /// unsynced may be trusted, and the handle is poisoned.
    fn sync(&self) -> Result<()>;

    /// The length of the file, in bytes.
    fn len(&self) -> Result<u64>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buf` from `offset`.
    ///
    /// An end of file before that is an error of kind [`ErrorKind::Io`] that names the file, the
    /// offset and the length: whether it means damage is for the caller to say.
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut filled = 0;
        while let Some(rest) = buf.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.read_at(offset.saturating_add(filled as u64), rest)? {
                0 => {
                    let wanted = buf.len();
                    return Err(Error::new(
                        ErrorKind::Io,
                        format!(
                            "{self:?}: the file ends after {filled} of {wanted} bytes at offset {offset}"
                        ),
                    ));
                }
                count => filled += count,
            }
        }
        Ok(())
    }
}

/// A small file that is overwritten in place and never synced. It survives the end of the process. A power cut may leave
/// any mixture of its states, or no file: each record in it needs a checksum.
pub trait Marker: Send + Sync + Debug {
    /// Writes `bytes` at `offset`. One system call; takes no space beyond the first page of the file.
    fn store(&self, offset: u64, bytes: &[u8]) -> Result<()>;
}

/// An exclusive lock, released when dropped.
pub trait FileLock: Send + Sync + Debug {
    /// Fails if the lock file is no longer at its path: its directory was removed, renamed or replaced, so another process may hold
    /// the lock of the file that is there now.
    fn check(&self) -> Result<()>;
}
