//! Open sstable files within a limit.
//!
//! A database may have more sstables than the limit of open files of a process. A [`FilePool`] keeps the
//! most recently used handles and reopens the others when they are read.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_base::{Error, Result};
use bolide_storage::{File, Vfs};
use parking_lot::Mutex;

/// The file name of the sstable with this number: `000123.sst`.
pub fn table_file_name(file_number: u64) -> String {
    format!("{file_number:06}.sst")
}

/// At most a given number of open sstables of one directory, least recently used closed first.
///
/// Safe to share between threads. A read of an open file costs one short lock; a read of another file opens it first. A
/// handle in use by a read survives its removal from the pool until that read ends, so the number of open files may
/// exceed the limit for short times.
pub struct FilePool {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    max_open: usize,
    open: Mutex<OpenFiles>,
}

#[derive(Default)]
struct OpenFiles {
    files: HashMap<u64, OpenFile>,
    /// Incremented by every use; the handle with the smallest `last_use` is closed first.
    clock: u64,
}

struct OpenFile {
    file: Arc<dyn File>,
    last_use: u64,
}

impl FilePool {
    /// A pool for the sstables in `dir` that keeps at most `max_open` (at least 1) of them open.
    pub fn new(vfs: Arc<dyn Vfs>, dir: impl Into<PathBuf>, max_open: usize) -> Arc<Self> {
        Arc::new(Self { vfs, dir: dir.into(), max_open: max_open.max(1), open: Mutex::default() })
    }

    /// The directory of the files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The number of open files.
    pub fn open_files(&self) -> usize {
        self.open.lock().files.len()
    }

    /// Closes the file with this number if it is open. To be called before the file is removed.
    pub fn close(&self, file_number: u64) {
        let closed = self.open.lock().files.remove(&file_number);
        // The handle is dropped outside of the lock: closing a removed file may take the system a while.
        drop(closed);
    }

    /// An open handle of the file with this number.
    fn file(&self, file_number: u64) -> Result<Arc<dyn File>> {
        if let Some(file) = self.open.lock().touch(file_number) {
            return Ok(file);
        }
        let opened = self.vfs.open(&self.dir.join(table_file_name(file_number)))?;
        let mut open = self.open.lock();
        if let Some(file) = open.touch(file_number) {
            return Ok(file);
        }
        let closed = if open.files.len() >= self.max_open { open.remove_oldest() } else { None };
        let last_use = open.tick();
        open.files.insert(file_number, OpenFile { file: Arc::clone(&opened), last_use });
        drop(open);
        drop(closed);
        Ok(opened)
    }
}

impl OpenFiles {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn touch(&mut self, file_number: u64) -> Option<Arc<dyn File>> {
        let now = self.tick();
        let entry = self.files.get_mut(&file_number)?;
        entry.last_use = now;
        Some(Arc::clone(&entry.file))
    }

    /// Removes the least recently used handle. Linear in the number of open files, which is cheap compared to opening the file
    /// that replaces it.
    fn remove_oldest(&mut self) -> Option<OpenFile> {
        let (&oldest, _) = self.files.iter().min_by_key(|(_, file)| file.last_use)?;
        self.files.remove(&oldest)
    }
}

impl fmt::Debug for FilePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilePool").field("dir", &self.dir).field("max_open", &self.max_open).finish()
    }
}

/// The file that a [`TableReader`](crate::TableReader) reads.
#[derive(Debug, Clone)]
pub struct FileSource {
    name: String,
    location: FileLocation,
}

#[derive(Debug, Clone)]
enum FileLocation {
    Pooled { pool: Arc<FilePool>, file_number: u64 },
    Direct(Arc<dyn File>),
}

impl FileSource {
    /// The sstable with this number, through `pool`. Opens nothing yet.
    pub fn pooled(pool: &Arc<FilePool>, file_number: u64) -> Self {
        Self {
            name: pool.dir.join(table_file_name(file_number)).display().to_string(),
            location: FileLocation::Pooled { pool: Arc::clone(pool), file_number },
        }
    }

    /// An open file. `name` is its name in errors.
    pub fn direct(name: impl Into<String>, file: Arc<dyn File>) -> Self {
        Self { name: name.into(), location: FileLocation::Direct(file) }
    }

    /// The name of the file in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The length of the file, in bytes.
    pub fn len(&self) -> Result<u64> {
        self.file()?.len()
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buf` from `offset`.
    pub(crate) fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        match &self.location {
            FileLocation::Pooled { pool, file_number } => pool.file(*file_number)?.read_exact_at(offset, buf),
            FileLocation::Direct(file) => file.read_exact_at(offset, buf),
        }
    }

    /// Announces a read of `bytes` bytes from `offset` on, if the file can be opened.
    pub(crate) fn read_ahead(&self, offset: u64, bytes: u64) {
        if let Ok(file) = self.file() {
            file.read_ahead(offset, bytes);
        }
    }

    /// A corruption error that names this file and `offset`.
    #[cold]
    pub(crate) fn corruption(&self, offset: u64, what: impl fmt::Display) -> Error {
        Error::corruption(&self.name, offset, what)
    }

    fn file(&self) -> Result<Arc<dyn File>> {
        match &self.location {
            FileLocation::Pooled { pool, file_number } => pool.file(*file_number),
            FileLocation::Direct(file) => Ok(Arc::clone(file)),
        }
    }
}

#[cfg(test)]
mod tests {
    use bolide_base::ErrorKind;
    use bolide_storage::MemVfs;

    use super::*;

    #[test]
    fn the_number_of_open_files_stays_within_the_limit() -> Result<()> {
        let vfs = MemVfs::new();
        for number in 0..10 {
            vfs.create(Path::new(&table_file_name(number)))?.append(&[number as u8; 4])?;
        }
        let pool = FilePool::new(Arc::new(vfs), "", 3);
        for number in (0..10).chain((0..10).rev()) {
            let source = FileSource::pooled(&pool, number);
            let mut buf = [0; 2];
            source.read_exact_at(1, &mut buf)?;
            assert_eq!(buf, [number as u8; 2]);
            assert!(pool.open_files() <= 3);
        }
        pool.close(0);
        assert_eq!(pool.open_files(), 2);
        Ok(())
    }

    #[test]
    fn an_error_names_a_missing_file() {
        let pool = FilePool::new(Arc::new(MemVfs::new()), "", 3);
        let error = FileSource::pooled(&pool, 77).len().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("000077.sst"), "{error}");
    }
}
