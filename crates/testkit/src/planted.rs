//! Planted bugs of the file system: one kind of sync is skipped, which the crash runner must detect.
//!
//! Each bug corresponds to a missing sync in the store. The test `crates/testkit/tests/planted.rs` requires that some seed
//! detects each of them.

use std::path::Path;
use std::sync::Arc;

use bolide::Result;
use bolide_storage::{File, FileLock, Marker, SimVfs, Vfs};

use crate::rule::Rule;

/// The kind of skipped sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// Logs are not synced.
    LogSync,
    /// Sstables are not synced.
    TableSync,
    /// Manifests are not synced.
    ManifestSync,
    /// The file that becomes `CURRENT` is not synced.
    CurrentSync,
    /// Directories are not synced.
    DirectorySync,
}

impl Planted {
    /// All planted bugs.
    pub const EACH: [Self; 5] =
        [Self::LogSync, Self::TableSync, Self::ManifestSync, Self::CurrentSync, Self::DirectorySync];

    /// The rules of which the bug breaks one under power cuts, and the texts of which the failure contains one.
    pub fn expected(self) -> (&'static [Rule], &'static [&'static str]) {
        match self {
            // An acknowledged write is lost, or the log has a hole.
            Self::LogSync => (&[Rule::State, Rule::Opens], &["oldest", ".wal"]),
            Self::TableSync => (&[Rule::Readable, Rule::Opens], &[".sst"]),
            Self::ManifestSync => (&[Rule::Opens], &["MANIFEST"]),
            Self::CurrentSync => (&[Rule::Opens], &["CURRENT"]),
            Self::DirectorySync => {
                (&[Rule::State, Rule::Opens], &["oldest", "CURRENT", "MANIFEST", ".wal", ".sst"])
            }
        }
    }

    fn skips_sync_of(self, path: &Path) -> bool {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        match self {
            Self::LogSync => name.ends_with(".wal"),
            Self::TableSync => name.ends_with(".sst"),
            Self::ManifestSync => name.starts_with("MANIFEST"),
            Self::CurrentSync => name.starts_with("CURRENT") || name.ends_with(".tmp"),
            Self::DirectorySync => false,
        }
    }
}

/// A simulated disk with a planted bug.
#[derive(Debug)]
pub struct PlantedVfs {
    disk: SimVfs,
    planted: Planted,
}

impl PlantedVfs {
    /// Wraps the disk with this bug.
    pub fn new(disk: SimVfs, planted: Planted) -> Self {
        Self { disk, planted }
    }

    fn wrap(&self, path: &Path, file: Arc<dyn File>) -> Arc<dyn File> {
        if self.planted.skips_sync_of(path) { Arc::new(UnsyncedFile { file }) } else { file }
    }
}

impl Vfs for PlantedVfs {
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        Ok(self.wrap(path, self.disk.create(path)?))
    }

    fn create_log(&self, path: &Path) -> Result<Arc<dyn File>> {
        Ok(self.wrap(path, self.disk.create_log(path)?))
    }

    fn create_reserved(&self, path: &Path, bytes: u64) -> Result<()> {
        self.disk.create_reserved(path, bytes)
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        Ok(self.wrap(path, self.disk.open(path)?))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.disk.remove(path)
    }

    fn rewrite(&self, path: &Path, from: u64, to: u64) -> Result<()> {
        self.disk.rewrite(path, from, to)
    }

    fn open_marker(&self, path: &Path) -> Result<Arc<dyn Marker>> {
        self.disk.open_marker(path)
    }

    fn mount_id(&self, path: &Path) -> Option<u64> {
        self.disk.mount_id(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.disk.rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.disk.hard_link(from, to)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.disk.exists(path)
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.disk.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        if self.planted == Planted::DirectorySync { Ok(()) } else { self.disk.sync_dir(dir) }
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        self.disk.remove_dir(dir)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.disk.lock(path)
    }

    fn is_locked(&self, path: &Path) -> Result<bool> {
        self.disk.is_locked(path)
    }
}

/// A file whose sync does nothing.
#[derive(Debug)]
struct UnsyncedFile {
    file: Arc<dyn File>,
}

impl File for UnsyncedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.file.read_at(offset, buf)
    }

    fn append(&self, bytes: &[u8]) -> Result<()> {
        self.file.append(bytes)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }
}
