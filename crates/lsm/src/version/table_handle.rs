//! An sstable that versions share.
//!
//! All versions that contain an sstable have the same `Arc<TableHandle>`. The first read opens the file; it stays open as far
//! as the [`FilePool`] allows. When an edit removes the sstable from its tree, the handle is marked obsolete. The drop of the
//! last reference, by a version or a reader, queues its number for deletion. So no reader meets a deleted file.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bolide_base::{Error, Result};
use bolide_memory::{MemoryPool, PagePool};
use bolide_storage::Vfs;
use bolide_table::{BlockCache, FilePool, FileSource, TableReader};
use parking_lot::Mutex;

use super::table_meta::TableMeta;
use crate::attachments::Attachments;
use crate::file_name::FileName;

/// Files that no version and no reader needs any more: sstables, sorted views, and files of external trees.
#[derive(Debug, Default)]
pub struct ObsoleteFiles {
    names: Mutex<BTreeSet<FileName>>,
}

impl ObsoleteFiles {
    /// Removes and returns all names; the caller deletes the files.
    pub fn take(&self) -> Vec<FileName> {
        std::mem::take(&mut *self.names.lock()).into_iter().collect()
    }

    /// Adds a name to the queue, also after a failed deletion.
    pub fn push(&self, name: FileName) {
        self.names.lock().insert(name);
    }

    /// True if there is nothing to delete.
    pub fn is_empty(&self) -> bool {
        self.names.lock().is_empty()
    }
}

/// Errors of damaged or missing REMIX files, until they are read.
#[derive(Debug, Default)]
pub struct ViewFailures {
    errors: Mutex<Vec<Error>>,
    count: AtomicU64,
}

/// The number of errors that are stored; further ones are only counted.
const MAX_FAILURES: usize = 100;

impl ViewFailures {
    /// Adds an error.
    pub fn push(&self, error: Error) {
        let mut errors = self.errors.lock();
        if errors.len() < MAX_FAILURES {
            errors.push(error);
        }
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// The number of errors so far, including removed ones.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Removes and returns the stored errors.
    pub fn take(&self) -> Vec<Error> {
        std::mem::take(&mut *self.errors.lock())
    }
}

/// The shared means to read all sstables and REMIX files of a database.
#[derive(Clone)]
pub struct TableFiles {
    /// The file system.
    pub vfs: Arc<dyn Vfs>,
    /// The directory of the database.
    pub dir: PathBuf,
    /// The open files.
    pub pool: Arc<FilePool>,
    /// The blocks in memory.
    pub cache: Arc<BlockCache>,
    /// The queue of obsolete files.
    pub obsolete: Arc<ObsoleteFiles>,
    /// The errors of REMIX files that could not be read.
    pub view_failures: Arc<ViewFailures>,
}

impl TableFiles {
    /// The large pages of the database.
    pub fn pages(&self) -> &Arc<PagePool> {
        self.cache.memory_pool().pages()
    }
}

impl fmt::Debug for TableFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableFiles").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// One sstable of a tree: its meta, and its reader after the first read.
pub struct TableHandle {
    meta: TableMeta,
    reader: OnceLock<Arc<TableReader>>,
    /// Serializes opening the file.
    opening: Mutex<()>,
    obsolete: AtomicBool,
    files: Arc<TableFiles>,
    /// The layer above's decoded meta blocks of the file.
    attachments: Attachments,
}

impl TableHandle {
    /// The memory of arrays that live as long as the sstable.
    pub fn memory_pool(&self) -> &Arc<MemoryPool> {
        self.files.cache.memory_pool()
    }

    /// A handle for the file that `meta` describes. Does not open it.
    pub fn new(meta: TableMeta, files: Arc<TableFiles>) -> Self {
        Self {
            meta,
            reader: OnceLock::new(),
            opening: Mutex::new(()),
            obsolete: AtomicBool::new(false),
            files,
            attachments: Attachments::default(),
        }
    }

    /// The facts about the file in the manifest.
    #[inline]
    pub fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// The reader; the first call opens the file and reads its footer, index and filter.
    ///
    /// # Errors
    /// Those of [`TableReader::open`]. A later call tries again.
    #[inline]
    pub fn reader(&self) -> Result<&Arc<TableReader>> {
        match self.reader.get() {
            Some(reader) => Ok(reader),
            None => self.open(),
        }
    }

    /// The reader if the file was opened already.
    pub fn opened_reader(&self) -> Option<&Arc<TableReader>> {
        self.reader.get()
    }

    /// The layer above's data about the file in memory, for the life of the handle.
    #[inline]
    pub fn attachments(&self) -> &Attachments {
        &self.attachments
    }

    /// Bytes of memory of the open reader and the attachments, without cached blocks; 0 before the file is opened.
    pub fn memory_bytes(&self) -> usize {
        self.reader.get().map_or(0, |reader| reader.memory_bytes()) + self.attachments.memory_bytes()
    }

    #[cold]
    fn open(&self) -> Result<&Arc<TableReader>> {
        let _opening = self.opening.lock();
        if let Some(reader) = self.reader.get() {
            return Ok(reader);
        }
        let source = FileSource::pooled(&self.files.pool, self.meta.number);
        let reader = TableReader::open(source, self.meta.identity(), Arc::clone(&self.files.cache))?;
        let reader = self.reader.get_or_init(|| Arc::new(reader));
        self.memory_pool().budget().release_excess(reader.memory_bytes() as u64);
        Ok(reader)
    }

    /// Marks the sstable as removed from all later versions: its file is deleted with the last reference. Call it only after
    /// the edit that removes it is durable.
    pub(super) fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for TableHandle {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            self.files.obsolete.push(FileName::Table(self.meta.number));
        }
    }
}

impl fmt::Debug for TableHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableHandle({})", self.meta.number)
    }
}
