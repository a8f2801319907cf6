//! The operating system's file system.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bolide_base::{Error, ErrorKind, Result};
use parking_lot::Mutex;

use crate::directory::directory_path;
use crate::file_reads::FileReads;
use crate::file_space::{CheckedSize, reserve_space};
use crate::io_error::{describe, describe_two};
use crate::lock::{is_file_locked, lock_file};
use crate::mapped_log::MappedLog;
use crate::marker;
use crate::pmem::{MappingMode, Region, RegionOptions};
use crate::vfs::{File, FileLock, Marker, Vfs};

/// Files are readable and writable by their owner only.
const FILE_MODE: u32 = 0o600;
/// Directories are accessible to their owner only.
const DIRECTORY_MODE: u32 = 0o700;

/// The operating system's file system.
///
/// ```
/// use bolide_storage::{DiskVfs, Vfs};
/// let dir = tempfile::tempdir().unwrap();
/// let vfs = DiskVfs::new();
/// let file = vfs.create(&dir.path().join("000001.wal"))?;
/// file.append(b"record")?;
/// file.sync()?;
/// vfs.sync_dir(dir.path())?;
/// # Ok::<(), bolide_base::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct DiskVfs {
    assumes_durable: bool,
    maps_logs: bool,
}

impl DiskVfs {
    /// The file system of this machine.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, with regions of persistent memory in ordinary files: for tests, and for memory that stays powered by other
    /// means. The content of a region survives the end of the process; a region of an earlier boot is rejected.
    #[must_use]
    pub fn assume_durable(self) -> Self {
        Self { assumes_durable: true, ..self }
    }

    /// The same, with appends to logs through a mapping instead of system calls, on file systems that guarantee reserved space:
    /// ext4 and tmpfs. On others logs are written as without this option.
    ///
    /// A put of a small record saves a system call. The risk: if the file system refuses a page of the mapping nevertheless
    /// (another program truncates the log, or the medium fails), the system sends SIGBUS, which ends the process. RFC 3 has the
    /// reasons. Off by default.
    ///
    /// ```
    /// use bolide_storage::DiskVfs;
    /// let vfs = DiskVfs::new().map_logs();
    /// # let _ = vfs;
    /// ```
    #[must_use]
    pub fn map_logs(self) -> Self {
        Self { maps_logs: true, ..self }
    }

    fn mapping(self) -> MappingMode {
        if self.assumes_durable { MappingMode::AssumeDurable } else { MappingMode::Dax }
    }
}

fn create_new(path: &Path) -> Result<fs::File> {
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(path)
        .map_err(|error| describe("create", path, error))
}

/// `statfs` types of the file systems with mapped logs: ext4 (and ext2, ext3, which are the same driver), tmpfs.
///
/// XFS refuses pages after a shutdown. btrfs and ZFS copy on write, so reserved space does not cover a page that a snapshot
/// shares. Network file systems guarantee nothing.
const MAPPED_FILE_SYSTEMS: [rustix::fs::FsWord; 2] = [0xEF53, 0x0102_1994];

/// Whether the file system of `file` guarantees every page of reserved space.
fn keeps_reserved_pages(file: &fs::File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| MAPPED_FILE_SYSTEMS.contains(&found.f_type))
}

/// Appends `bytes` zeros.
fn fill(file: &DiskFile, bytes: u64) -> Result<()> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let mut rest = bytes;
    while rest > 0 {
        let count = rest.min(ZEROS.len() as u64);
        file.append(&ZEROS[..count as usize])?;
        rest -= count;
    }
    Ok(())
}

impl Vfs for DiskVfs {
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        Ok(Arc::new(DiskFile::new(create_new(path)?, path, true, 0)))
    }

    fn create_log(&self, path: &Path) -> Result<Arc<dyn File>> {
        let file = create_new(path)?;
        if !self.maps_logs || !keeps_reserved_pages(&file) {
            return Ok(Arc::new(DiskFile::new(file, path, true, 0)));
        }
        Ok(match MappedLog::new(file, path) {
            Ok(log) => Arc::new(log),
            Err(file) => Arc::new(DiskFile::new(file, path, true, 0)),
        })
    }

    fn create_reserved(&self, path: &Path, bytes: u64) -> Result<()> {
        let file = create_new(path)?;
        if bytes == 0 {
            return Ok(());
        }
        let reserved = match reserve_space(&file, path, 0, bytes) {
            // Fallback for file systems without reservations: writes zeros.
            Err(error) if error.kind() != ErrorKind::NoSpace => {
                fill(&DiskFile::new(file, path, true, 0), bytes)
            }
            reserved => reserved,
        };
        reserved.inspect_err(|_| {
            let _ = fs::remove_file(path);
        })
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        let file = fs::File::open(path).map_err(|error| describe("open", path, error))?;
        let metadata = file.metadata().map_err(|error| describe("open", path, error))?;
        if metadata.is_dir() {
            return Err(Error::corruption(path.display(), 0, "the path is a directory"));
        }
        Ok(Arc::new(DiskFile::new(file, path, false, metadata.len())))
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        fs::canonicalize(path).map_err(|error| describe("resolve", path, error))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(|error| match error.kind() {
            io::ErrorKind::IsADirectory => {
                Error::new(ErrorKind::NotFound, format!("remove {}: it is a directory", path.display()))
            }
            _ => describe("remove", path, error),
        })
    }

    fn rewrite(&self, path: &Path, from: u64, to: u64) -> Result<()> {
        marker::rewrite(path, from, to)
    }

    fn open_marker(&self, path: &Path) -> Result<Arc<dyn Marker>> {
        marker::open_marker(path, FILE_MODE)
    }

    fn mount_id(&self, path: &Path) -> Option<u64> {
        marker::mount_id(directory_path(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(|error| describe_two("rename", from, to, error))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        fs::hard_link(from, to).map_err(|error| match error.kind() {
            // FAT and other file systems without links report EPERM.
            io::ErrorKind::CrossesDevices
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::TooManyLinks
            | io::ErrorKind::Unsupported => Error::unsupported(
                to.display(),
                format_args!("no link to {} is possible: {error}", from.display()),
            ),
            _ => describe_two("link", from, to, error),
        })
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let failed = |error| describe("list", dir, error);
        let mut names = Vec::new();
        for entry in fs::read_dir(directory_path(dir)).map_err(failed)? {
            names.extend(entry.map_err(failed)?.file_name().into_string().ok());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        fs::exists(directory_path(path)).map_err(|error| describe("look up", path, error))
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(directory_path(dir))
            .map_err(|error| describe("create directory", dir, error))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        fs::File::open(directory_path(dir))
            .and_then(|directory| directory.sync_all())
            .map_err(|error| describe("sync directory", dir, error))
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        fs::remove_dir(dir).map_err(|error| describe("remove directory", dir, error))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(path)
            .map_err(|error| describe("open lock file", path, error))?;
        lock_file(file, path)
    }

    fn is_locked(&self, path: &Path) -> Result<bool> {
        match fs::File::open(path) {
            Ok(file) => is_file_locked(&file, path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(describe("open lock file", path, error)),
        }
    }

    fn create_region(&self, path: &Path, options: RegionOptions) -> Result<Arc<Region>> {
        Region::create_mapped(path, options, self.mapping()).map(Arc::new)
    }

    fn open_region(&self, path: &Path, options: RegionOptions, private: bool) -> Result<Arc<Region>> {
        let mapping = if private { MappingMode::Private } else { self.mapping() };
        Region::open_mapped(path, options, mapping).map(Arc::new)
    }
}

/// A file and the offset of its end, so that an append is one `pwrite`.
struct DiskFile {
    file: fs::File,
    path: PathBuf,
    /// False for handles from `open`: appends fail.
    writable: bool,
    /// Serializes appends.
    append: Mutex<()>,
    /// The end of the last complete append.
    end: AtomicU64,
    /// The file length that was checked against the limit.
    allowed: CheckedSize,
    /// Set by a failed append or sync: the content after the last sync is unknown.
    poisoned: AtomicBool,
    reads: FileReads,
}

impl DiskFile {
    fn new(file: fs::File, path: &Path, writable: bool, end: u64) -> Self {
        Self {
            file,
            path: path.to_path_buf(),
            writable,
            append: Mutex::new(()),
            end: AtomicU64::new(end),
            allowed: CheckedSize::default(),
            poisoned: AtomicBool::new(false),
            reads: FileReads::default(),
        }
    }

    fn check_poison(&self, operation: &str) -> Result<()> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(Error::new(
                ErrorKind::Poisoned,
                format!("{operation} {}: an earlier write to this file failed", self.path.display()),
            ));
        }
        Ok(())
    }

    /// Truncates the file to its length before a failed append. The handle stays usable only after a full disk or a lack of
    /// memory, and only if the truncation succeeds.
    fn undo_append(&self, end: u64, error: io::Error) -> Error {
        let failure = describe("append to", &self.path, error);
        if failure.kind() != ErrorKind::NoSpace {
            self.poisoned.store(true, Ordering::Release);
            return failure;
        }
        match self.file.set_len(end) {
            Ok(()) => failure,
            Err(second) => {
                self.poisoned.store(true, Ordering::Release);
                Error::new(ErrorKind::Io, format!("{failure}; then cutting the file back failed: {second}"))
            }
        }
    }
}

impl File for DiskFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        loop {
            match self.reads.read_at(&self.file, buf, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result.map_err(|error| describe("read", &self.path, error)),
            }
        }
    }

    fn read_ahead(&self, offset: u64, bytes: u64) {
        self.reads.read_ahead(&self.file, offset, bytes);
    }

    fn append(&self, bytes: &[u8]) -> Result<()> {
        if !self.writable {
            return Err(Error::new(
                ErrorKind::ReadOnly,
                format!("append to {}: the file was opened for reading", self.path.display()),
            ));
        }
        let _one_at_a_time = self.append.lock();
        self.check_poison("append to")?;
        let end = self.end.load(Ordering::Relaxed);
        self.allowed.check(&self.path, end.saturating_add(bytes.len() as u64))?;
        self.file.write_all_at(bytes, end).map_err(|error| self.undo_append(end, error))?;
        self.end.store(end + bytes.len() as u64, Ordering::Release);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.check_poison("sync")?;
        self.file.sync_data().map_err(|error| {
            self.poisoned.store(true, Ordering::Release);
            describe("sync", &self.path, error)
        })
    }

    fn len(&self) -> Result<u64> {
        if self.writable {
            // This handle is the only writer; bytes of a failed append do not count.
            return Ok(self.end.load(Ordering::Acquire));
        }
        // Another handle may append.
        self.file
            .metadata()
            .map(|metadata| metadata.len())
            .map_err(|error| describe("stat", &self.path, error))
    }
}

impl fmt::Debug for DiskFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Every write to this device fails as on a full disk, and it cannot be truncated.
    #[test]
    fn a_full_disk_without_truncation_poisons_the_handle() {
        let path = Path::new("/dev/full");
        let device = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        let file = DiskFile::new(device, path, true, 0);
        let error = file.append(b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("cutting the file back failed"), "{error}");
        assert_eq!(file.append(b"x").unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(file.sync().unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(file.len().unwrap(), 0);
    }

    #[test]
    fn an_append_on_a_full_disk_truncates_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let writable = fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        let file = DiskFile::new(writable, &path, true, 0);
        file.append(b"kept").unwrap();
        // The content after a write that ran out of space half-way.
        file.file.write_all_at(b"part", 4).unwrap();
        let error = file.undo_append(4, io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert_eq!(fs::read(&path).unwrap(), b"kept");
        file.append(b"!").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"kept!");
    }

    #[test]
    fn a_lack_of_memory_leaves_the_handle_usable() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let file = DiskFile::new(create_new(&path).unwrap(), &path, true, 0);
        file.append(b"kept").unwrap();
        let error = file.undo_append(4, io::Error::from(io::ErrorKind::OutOfMemory));
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        file.append(b"!").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"kept!");
    }

    #[test]
    fn another_failure_poisons_the_handle() {
        let path = Path::new("/dev/null");
        // Opened for reading only, so that the write fails with EBADF.
        let file = DiskFile::new(fs::File::open(path).unwrap(), path, true, 0);
        assert_eq!(file.append(b"x").unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(file.append(b"x").unwrap_err().kind(), ErrorKind::Poisoned);
    }
}
