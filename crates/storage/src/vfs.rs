//! The file system as Bolide needs it: append-only files, whole-file names, explicit syncs.
//!
//! # What survives a power cut
//!
//! Only synced data; nothing else may be assumed:
//!
//! 1. The bytes of a file survive up to the length it had at its last successful [`File::sync`].
//!    Bytes after that survive by whole or part sectors, in any order, as zeros, as garbage, or not.
//! 2. A name (a create, rename, removal, hard link or new directory) survives if its directory was synced by
//!    [`Vfs::sync_dir`] afterwards; otherwise it may or may not. Syncing a file does not sync its name.
//! 3. A rename is atomic: the target name means the old file or the new one, never neither.
//!
//! # After a failure
//!
//! * A failed [`File::append`] may have written some of its bytes. The handle is poisoned: every later `append` and `sync` on it
//!   fails with [`ErrorKind::Poisoned`]. The exception is a full disk (or quota, file-size limit, lack of memory): the file is
//!   truncated to its previous length. An error of kind [`ErrorKind::NoSpace`] means that *nothing* was appended and the handle
//!   stays usable. (If the truncation fails too, the kind is [`ErrorKind::Io`].)
//! * A failed [`File::sync`] may have dropped the unsynced bytes, although reads still return them. The handle is poisoned; a
//!   second sync must not count as a success.
//! * Reads stay possible in both cases.
//! * A failed call of [`Vfs`] has either no effect or its complete effect.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, Result};
use bolide_memory::PagePool;

use crate::pmem::{Region, RegionOptions};

/// A file system: the operations on names that a store needs.
///
/// All methods may be called from any thread. Paths are not normalized; an empty path is the current directory.
pub trait Vfs: Send + Sync + Debug + 'static {
    /// Creates a new, empty file for reading and appending, accessible to its owner only (mode 0600).
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

    /// Creates a file that occupies `bytes` bytes of the disk without content; [`remove`](Self::remove) frees the space. A file
    /// system without a size limit may create an empty file.
    ///
    /// Fails with [`ErrorKind::Conflict`] if the name exists; with [`ErrorKind::NoSpace`]: then no file is left.
    fn create_reserved(&self, path: &Path, _bytes: u64) -> Result<()> {
        self.create(path).map(drop)
    }

    /// Opens an existing file for reading. Appending to it fails with [`ErrorKind::ReadOnly`].
    ///
    /// Fails with [`ErrorKind::NotFound`] if there is no such file.
    fn open(&self, path: &Path) -> Result<Arc<dyn File>>;

    /// The canonical path of an existing file or directory, without links and `..`. A file system without links returns `path`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; errors of the file system.
    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        Ok(path.to_path_buf())
    }

    /// Removes the name of a file. Open handles can still read the bytes.
    ///
    /// Fails with [`ErrorKind::NotFound`] if there is no such file.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Writes the bytes `from..to` of an existing file again, in place, and makes the file durable through `to`.
    ///
    /// After a failed sync of the file, reads may return bytes that the operating system will never write; a further sync would
    /// succeed without writing them. Rewriting them makes a sync meaningful. A file system that overwrites in place needs no
    /// space for this. Cost: `to - from` bytes read and written, one sync.
    ///
    /// Fails with [`ErrorKind::NotFound`] if there is no such file, with [`ErrorKind::Io`] if it is shorter than `to`.
    fn rewrite(&self, path: &Path, from: u64, to: u64) -> Result<()>;

    /// Opens the marker file of this name; creates it (mode 0600) if it is missing. Neither its name nor its bytes are synced:
    /// see [`Marker`].
    fn open_marker(&self, path: &Path) -> Result<Arc<dyn Marker>>;

    /// The id of the mount that contains `path`, unique until the next boot; each mount of a file system has its own. `None` if
    /// the operating system has no such id.
    fn mount_id(&self, _path: &Path) -> Option<u64> {
        None
    }

    /// Renames the file or directory `from` to `to` atomically. Replaces a file at `to`.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Creates a second name `to` of the file `from` on the same medium.
    ///
    /// Fails with [`ErrorKind::Conflict`] if `to` exists, with [`ErrorKind::Unsupported`] if a link is impossible: on
    /// another file system, on one without links, or at the maximum number of links.
    fn hard_link(&self, from: &Path, to: &Path) -> Result<()>;

    /// The names in a directory (files and directories), sorted. Skips names that are not UTF-8: the store creates none.
    fn list(&self, dir: &Path) -> Result<Vec<String>>;

    /// Whether a file or a directory with this name exists.
    fn exists(&self, path: &Path) -> Result<bool>;

    /// Creates a directory (mode 0700) and its missing parents. An existing directory is no error.
    fn create_dir_all(&self, dir: &Path) -> Result<()>;

    /// Makes the current names in `dir` durable.
    fn sync_dir(&self, dir: &Path) -> Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, dir: &Path) -> Result<()>;

    /// Acquires the exclusive lock of `path`; creates the file (mode 0600) if it is missing.
    ///
    /// The lock is released when the returned guard is dropped, and at the end of the process. Fails with
    /// [`ErrorKind::Locked`], without waiting, if another process or another handle of this process holds it.
    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>>;

    /// Whether the lock of `path` is held; false if there is no such file. Creates no file. A concurrent [`lock`](Self::lock)
    /// may fail because of this call.
    fn is_locked(&self, path: &Path) -> Result<bool>;

    /// Creates an empty region of persistent memory with this name. The name is durable when the call returns, and so are later
    /// persisted writes. [`remove`](Self::remove) removes the region.
    ///
    /// Fails with [`ErrorKind::Unsupported`] where there is no persistent memory, with [`ErrorKind::Conflict`] if
    /// the name exists, with [`ErrorKind::NoSpace`].
    fn create_region(&self, path: &Path, _options: RegionOptions) -> Result<Arc<Region>> {
        Err(Error::unsupported(path.display(), "this file system has no persistent memory"))
    }

    /// Opens a region of [`create_region`](Self::create_region); `options` has its expected id. Writes to a `private` region are
    /// discarded.
    ///
    /// Fails with [`ErrorKind::NotFound`] if there is no such file, with [`ErrorKind::Corruption`] if it is not
    /// that region or is damaged.
    fn open_region(&self, path: &Path, _options: RegionOptions, _private: bool) -> Result<Arc<Region>> {
        Err(Error::unsupported(path.display(), "this file system has no persistent memory"))
    }
}

/// An open file. Appended bytes never change.
///
/// All methods take `&self` and may be called from any thread. Reads run concurrently with each other and with an append;
/// appends are serialized.
pub trait File: Send + Sync + Debug {
    /// Reads up to `buf.len()` bytes from `offset` on; returns their number. Zero means that `offset` is at or after the end, or
    /// that `buf` is empty. A short read has no meaning.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Announces reads of `bytes` bytes from `offset` on. A file system that can reads them ahead in the background, so that
    /// several announced reads overlap; others ignore it. It affects only the speed, and never fails.
    fn read_ahead(&self, _offset: u64, _bytes: u64) {}

    /// Appends all of `bytes`. Usually one system call; nothing is buffered here.
    ///
    /// After an error some of the bytes may have been written: see the module documentation.
    fn append(&self, bytes: &[u8]) -> Result<()>;

    /// Lets the preallocator of `pool` prepare the space of later appends, if the file supports it. It affects only the speed.
    fn preallocate_with(&self, _pool: &Arc<PagePool>) {}

    /// Makes all appended bytes durable (`fdatasync`).
    ///
    /// A success also covers bytes appended through other handles. After an error all unsynced bytes are doubtful, and the handle
    /// is poisoned.
    fn sync(&self) -> Result<()>;

    /// The length of the file, in bytes.
    fn len(&self) -> Result<u64>;

    /// Whether the file has no bytes.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buf` from `offset`.
    ///
    /// An early end of file is an error of kind [`ErrorKind::Io`] with the file, the offset and the length; the caller decides
    /// whether it is damage.
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

/// A small file with in-place writes and no syncs. It survives the end of the process. A power cut may leave any mixture of its
/// states, or no file: each record in it needs a checksum.
pub trait Marker: Send + Sync + Debug {
    /// Writes `bytes` at `offset`. One system call; uses no space beyond the first page of the file.
    fn store(&self, offset: u64, bytes: &[u8]) -> Result<()>;
}

/// An exclusive lock, released when dropped.
pub trait FileLock: Send + Sync + Debug {
    /// Fails if the lock file is no longer at its path: its directory was removed, renamed or replaced. Then another process may
    /// hold the lock of the file at this path.
    fn check(&self) -> Result<()>;
}
