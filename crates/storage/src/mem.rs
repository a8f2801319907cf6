//! A file system in memory, for fast tests without files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, Result};
use parking_lot::{Mutex, RwLock};

use crate::io_error::describe;
use crate::lock::{locked, lost};
use crate::pmem::{Region, RegionContent, RegionOptions};
use crate::vfs::{File, FileLock, Marker, Vfs};

/// A file system in memory. Clones share it; dropping the last clone frees it.
///
/// ```
/// use std::path::Path;
/// use bolide_storage::{MemVfs, Vfs};
/// let vfs = MemVfs::new();
/// vfs.create(Path::new("a"))?.append(b"bytes")?;
/// assert_eq!(vfs.open(Path::new("a"))?.len()?, 5);
/// # Ok::<(), bolide_base::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct MemVfs {
    names: Arc<Mutex<Names>>,
}

#[derive(Debug, Default)]
struct Names {
    files: BTreeMap<PathBuf, Arc<Content>>,
    directories: BTreeSet<PathBuf>,
    locks: BTreeSet<PathBuf>,
    /// Hard links fail.
    has_no_links: bool,
    /// Files that are regions.
    regions: BTreeMap<PathBuf, RegionContent>,
}

type Content = RwLock<Vec<u8>>;

impl MemVfs {
    /// An empty file system; the root and the current directory exist.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same file system, where hard links fail from now on, as on FAT.
    ///
    /// ```
    /// use std::path::Path;
    /// use bolide_storage::{MemVfs, Vfs};
    /// let vfs = MemVfs::new().without_links();
    /// vfs.create(Path::new("a"))?;
    /// assert!(vfs.hard_link(Path::new("a"), Path::new("b")).is_err());
    /// # Ok::<(), bolide_base::Error>(())
    /// ```
    #[must_use]
    pub fn without_links(self) -> Self {
        self.names.lock().has_no_links = true;
        self
    }
}

/// `path` without `.` components, so that each file has one spelling. The root and the current directory are the same: the
/// empty path.
pub(crate) fn normal(path: &Path) -> PathBuf {
    path.components().filter(|part| !matches!(part, Component::CurDir | Component::RootDir)).collect()
}

fn missing(operation: &str, path: &Path) -> Error {
    describe(operation, path, io::Error::from(io::ErrorKind::NotFound))
}

fn exists_already(operation: &str, path: &Path) -> Error {
    describe(operation, path, io::Error::from(io::ErrorKind::AlreadyExists))
}

impl Names {
    fn is_directory(&self, path: &Path) -> bool {
        path.as_os_str().is_empty() || self.directories.contains(path)
    }

    fn exists(&self, path: &Path) -> bool {
        self.is_directory(path) || self.files.contains_key(path)
    }

    /// An error unless the directory that would hold `path` exists.
    fn check_parent(&self, operation: &str, path: &Path) -> Result<()> {
        match path.parent() {
            Some(parent) if self.is_directory(parent) => Ok(()),
            _ => Err(missing(operation, path)),
        }
    }

    fn children<'a>(&'a self, dir: &'a Path) -> impl Iterator<Item = &'a PathBuf> {
        let files = self.files.keys();
        files.chain(self.directories.iter()).filter(move |path| path.parent() == Some(dir))
    }

    fn rename_directory(&mut self, from: &Path, to: &Path) -> Result<()> {
        if to.starts_with(from) && from != to {
            return Err(Error::invalid_input(format!("rename {} into itself", from.display())));
        }
        if self.files.contains_key(to) || self.children(to).next().is_some() {
            return Err(exists_already("rename to", to));
        }
        let moved = |path: &Path| path.strip_prefix(from).map(|rest| to.join(rest)).ok();
        let rename = |path: PathBuf| moved(&path).unwrap_or(path);
        self.files =
            std::mem::take(&mut self.files).into_iter().map(|(path, file)| (rename(path), file)).collect();
        self.directories = std::mem::take(&mut self.directories).into_iter().map(rename).collect();
        Ok(())
    }
}

impl Vfs for MemVfs {
    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let path = normal(path);
        let mut names = self.names.lock();
        names.check_parent("create", &path)?;
        if names.exists(&path) {
            return Err(exists_already("create", &path));
        }
        let content = Arc::new(Content::default());
        names.files.insert(path.clone(), Arc::clone(&content));
        Ok(Arc::new(MemFile { path, content, writable: true }))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        let path = normal(path);
        let names = self.names.lock();
        let content = names.files.get(&path).ok_or_else(|| missing("open", &path))?;
        let content = Arc::clone(content);
        Ok(Arc::new(MemFile { path, content, writable: false }))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let path = normal(path);
        let mut names = self.names.lock();
        names.regions.remove(&path);
        names.files.remove(&path).map(drop).ok_or_else(|| missing("remove", &path))
    }

    fn rewrite(&self, path: &Path, _from: u64, to: u64) -> Result<()> {
        match self.open(path)?.len()? >= to {
            true => Ok(()),
            false => Err(describe("write again", path, io::Error::from(io::ErrorKind::UnexpectedEof))),
        }
    }

    fn open_marker(&self, path: &Path) -> Result<Arc<dyn Marker>> {
        let path = normal(path);
        let mut names = self.names.lock();
        names.check_parent("open", &path)?;
        let content = Arc::clone(names.files.entry(path.clone()).or_default());
        Ok(Arc::new(MemFile { path, content, writable: true }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let (from, to) = (normal(from), normal(to));
        let mut names = self.names.lock();
        names.check_parent("rename to", &to)?;
        if names.directories.contains(&from) {
            return names.rename_directory(&from, &to);
        }
        if names.is_directory(&to) {
            return Err(exists_already("rename to", &to));
        }
        let file = names.files.remove(&from).ok_or_else(|| missing("rename", &from))?;
        if let Some(region) = names.regions.remove(&from) {
            names.regions.insert(to.clone(), region);
        }
        names.files.insert(to, file);
        Ok(())
    }

    fn create_region(&self, path: &Path, options: RegionOptions) -> Result<Arc<Region>> {
        self.create(path)?;
        let (content, region) = RegionContent::create(options)?;
        self.names.lock().regions.insert(normal(path), content);
        Ok(region)
    }

    fn open_region(&self, path: &Path, options: RegionOptions, private: bool) -> Result<Arc<Region>> {
        let mut names = self.names.lock();
        let content = names.regions.get_mut(&normal(path)).ok_or_else(|| missing("open", path))?;
        content.open(&options, private)?.ok_or_else(|| missing("open", path))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        let (from, to) = (normal(from), normal(to));
        let mut names = self.names.lock();
        if names.has_no_links {
            return Err(Error::unsupported(to.display(), "this file system has no links"));
        }
        names.check_parent("link to", &to)?;
        if names.exists(&to) {
            return Err(exists_already("link to", &to));
        }
        let file = names.files.get(&from).map(Arc::clone).ok_or_else(|| missing("link", &from))?;
        names.files.insert(to, file);
        Ok(())
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let dir = normal(dir);
        let names = self.names.lock();
        if !names.is_directory(&dir) {
            return Err(missing("list", &dir));
        }
        let mut list: Vec<String> = names
            .children(&dir)
            .filter_map(|path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned))
            .collect();
        list.sort_unstable();
        Ok(list)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.names.lock().exists(&normal(path)))
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        let dir = normal(dir);
        let mut names = self.names.lock();
        for above in dir.ancestors().filter(|path| !path.as_os_str().is_empty()) {
            if names.files.contains_key(above) {
                return Err(exists_already("create directory", above));
            }
        }
        for above in dir.ancestors().filter(|path| !path.as_os_str().is_empty()) {
            names.directories.insert(above.to_path_buf());
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let dir = normal(dir);
        if self.names.lock().is_directory(&dir) { Ok(()) } else { Err(missing("sync directory", &dir)) }
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        let dir = normal(dir);
        let mut names = self.names.lock();
        if names.children(&dir).next().is_some() {
            return Err(describe(
                "remove directory",
                &dir,
                io::Error::from(io::ErrorKind::DirectoryNotEmpty),
            ));
        }
        if names.directories.remove(&dir) { Ok(()) } else { Err(missing("remove directory", &dir)) }
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        let path = normal(path);
        let mut names = self.names.lock();
        names.check_parent("open lock file", &path)?;
        if !names.locks.insert(path.clone()) {
            return Err(locked(&path, "this process"));
        }
        names.files.entry(path.clone()).or_default();
        Ok(Box::new(MemLock { path, names: Arc::clone(&self.names) }))
    }

    fn is_locked(&self, path: &Path) -> Result<bool> {
        Ok(self.names.lock().locks.contains(&normal(path)))
    }
}

#[derive(Debug)]
struct MemLock {
    path: PathBuf,
    names: Arc<Mutex<Names>>,
}

impl FileLock for MemLock {
    fn check(&self) -> Result<()> {
        if self.names.lock().files.contains_key(&self.path) { Ok(()) } else { Err(lost(&self.path)) }
    }
}

impl Drop for MemLock {
    fn drop(&mut self) {
        self.names.lock().locks.remove(&self.path);
    }
}

struct MemFile {
    path: PathBuf,
    content: Arc<Content>,
    writable: bool,
}

impl Marker for MemFile {
    fn store(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        overwrite(&mut self.content.write(), offset, bytes);
        Ok(())
    }
}

/// Writes `bytes` at `offset`; pads shorter content with zeros.
pub(crate) fn overwrite(content: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let start = offset as usize;
    let end = start + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[start..end].copy_from_slice(bytes);
}

impl File for MemFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(copy_at(&self.content.read(), offset, buf))
    }

    fn append(&self, bytes: &[u8]) -> Result<()> {
        if !self.writable {
            return Err(opened_for_reading(&self.path));
        }
        self.content.write().extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.content.read().len() as u64)
    }
}

impl fmt::Debug for MemFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

/// Copies the bytes at `offset` into `buf`; returns their number.
pub(crate) fn copy_at(bytes: &[u8], offset: u64, buf: &mut [u8]) -> usize {
    let rest = usize::try_from(offset).ok().and_then(|start| bytes.get(start..)).unwrap_or_default();
    let count = rest.len().min(buf.len());
    buf[..count].copy_from_slice(&rest[..count]);
    count
}

/// The error of an append to a handle from [`Vfs::open`].
pub(crate) fn opened_for_reading(path: &Path) -> Error {
    Error::new(ErrorKind::ReadOnly, format!("append to {}: the file was opened for reading", path.display()))
}
