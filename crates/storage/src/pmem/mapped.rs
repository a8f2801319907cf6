//! Regions in mapped files: persistent memory under a file system with direct access (DAX).
//!
//! With `MAP_SYNC` the kernel guarantees that a mapped page stays at its location in the file across a power cut. So writing a
//! line back from the processor's caches (`clwb`, then `sfence`) makes it durable without a system call. File systems without
//! this guarantee refuse the mapping, and so does this module.
//!
//! # Mappings that are assumed to be durable
//! For tests, and for memory that stays powered by other means, an ordinary file can be mapped. Then a power cut may lose any
//! page that the system has not written. The header page of such a region contains the id of the boot that mapped it; after
//! another boot the region is rejected.
#![allow(unsafe_code, reason = "mapping a file and writing lines back")]

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};

use bolide_base::{Error, FileIdentity, Result};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::extent::{ExtentMemory, HeapExtent};
use super::layout::EXTENT_BYTES;
use super::word::Word;
use super::write_back::WriteBack;
use crate::directory::directory_path;
use crate::file_space::{check_file_size, reserve_space};
use crate::io_error::describe;

/// The durability of a mapped file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MappingMode {
    /// Persistent memory: the mapping must be synchronous, or it is map_error.
    Dax,
    /// Any file. Persisted writes count as durable, although only their survival of the end of the process is guaranteed. The
    /// region is rejected after another boot.
    AssumeDurable,
    /// Any file, read-only: writes stay in memory and are discarded with the region.
    Private,
}

/// The file of a region.
#[derive(Debug)]
pub(super) struct MappedFile {
    file: fs::File,
    path: PathBuf,
    mapping: MappingMode,
    write_back: WriteBack,
}

impl MappedFile {
    /// Creates an empty file.
    pub(super) fn create(path: &Path, mapping: MappingMode) -> Result<Self> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(path).map_err(|error| describe("create", path, error))?;
        Ok(Self { file, path: path.into(), mapping, write_back: WriteBack::of_this_machine() })
    }

    /// Opens an existing file.
    pub(super) fn open(path: &Path, mapping: MappingMode) -> Result<Self> {
        let file = fs::OpenOptions::new().read(true).write(mapping != MappingMode::Private).open(path);
        let file = file.map_err(|error| describe("open", path, error))?;
        Ok(Self { file, path: path.into(), mapping, write_back: WriteBack::of_this_machine() })
    }

    /// The number of whole extents of the file.
    pub(super) fn extents(&self) -> Result<usize> {
        let metadata = self.file.metadata().map_err(|error| describe("look up", &self.path, error))?;
        Ok((metadata.len() / EXTENT_BYTES as u64) as usize)
    }

    /// Reserves the space of the extent `index`, and maps it.
    pub(super) fn extent(&self, index: usize) -> Result<Box<dyn ExtentMemory>> {
        let (offset, len) = (index as u64 * EXTENT_BYTES as u64, EXTENT_BYTES as u64);
        if self.extents()? <= index {
            if self.mapping == MappingMode::Private {
                return Ok(Box::new(HeapExtent::new()?));
            }
            reserve_space(&self.file, &self.path, offset, offset + len)?;
            self.sync()?;
        }
        let kind = match self.mapping {
            MappingMode::Dax => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
            MappingMode::AssumeDurable => MapFlags::SHARED,
            MappingMode::Private => MapFlags::PRIVATE,
        };
        // SAFETY: a new mapping at an address that the kernel chooses, of an existing range of the file: its space was reserved,
        // and the file is not truncated while the lock of the database is held.
        let mapped = unsafe {
            mmap(ptr::null_mut(), EXTENT_BYTES, ProtFlags::READ | ProtFlags::WRITE, kind, &self.file, offset)
        };
        let start = mapped.map_err(|errno| self.map_error(errno))?;
        let start = NonNull::new(start.cast::<Word>()).ok_or_else(|| self.map_error(Errno::NOMEM))?;
        Ok(Box::new(MappedExtent { start }))
    }

    fn map_error(&self, errno: Errno) -> Error {
        if self.mapping == MappingMode::Dax && [Errno::OPNOTSUPP, Errno::INVAL].contains(&errno) {
            let what = "the file system does not map files synchronously (MAP_SYNC), so writes to the mapping would \
                        not survive a power cut; use a file system on persistent memory mounted with -o dax, or \
                        keep the region on disk (region=disk)";
            return Error::unsupported(self.path.display(), what);
        }
        describe("map", &self.path, errno.into())
    }

    /// Appends to a file under construction.
    pub(super) fn append(&self, bytes: &[u8]) -> Result<()> {
        let end = self.file.metadata().map_err(|error| describe("look up", &self.path, error))?.len();
        check_file_size(&self.path, end.saturating_add(bytes.len() as u64))?;
        (&self.file).write_all(bytes).map_err(|error| describe("append to", &self.path, error))
    }

    /// Makes length and content of the file durable by a system call.
    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(|error| describe("sync", &self.path, error))
    }

    /// The error of an operation on the file.
    pub(super) fn failed(&self, operation: &str, error: io::Error) -> Error {
        describe(operation, &self.path, error)
    }

    /// Makes the name of the file durable.
    pub(super) fn sync_name(&self) -> Result<()> {
        let dir = directory_path(self.path.parent().unwrap_or(Path::new("")));
        let synced = fs::File::open(dir).and_then(|dir| dir.sync_all());
        synced.map_err(|error| describe("sync directory", dir, error))
    }

    /// Removes the file after a failed creation.
    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }

    pub(super) fn mapping(&self) -> MappingMode {
        self.mapping
    }

    pub(super) fn write_back(&self) -> WriteBack {
        self.write_back
    }
}

/// A mapped extent.
#[derive(Debug)]
struct MappedExtent {
    start: NonNull<Word>,
}

// SAFETY: it owns memory of atomics.
unsafe impl Send for MappedExtent {}
// SAFETY: it is memory of atomics.
unsafe impl Sync for MappedExtent {}

impl ExtentMemory for MappedExtent {
    fn words(&self) -> *const Word {
        self.start.as_ptr()
    }
}

impl Drop for MappedExtent {
    fn drop(&mut self) {
        // SAFETY: mapped by `MappedFile::extent` with this length and unmapped once; the table that lent references is dropped.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), EXTENT_BYTES) };
    }
}

/// The id of the current boot of the machine, never zero.
pub(super) fn boot_id() -> Result<[u64; 2]> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = fs::read_to_string(path).map_err(|error| describe("read", path, error))?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let id = u128::from_str_radix(&digits, 16).unwrap_or(0);
    if id == 0 {
        return Err(describe("read", path, io::Error::from(io::ErrorKind::InvalidData)));
    }
    Ok([(id >> 64) as u64, id as u64])
}

/// The checksum of the constant words of a header page and the boot id.
pub(super) fn header_checksum(id: u64, words: &[u64]) -> u64 {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    FileIdentity { file_number: 0, tag: id }.checksum(0, &bytes)
}
