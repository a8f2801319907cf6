//! An sstable as versions share it.
//!
//! Every version that contains an sstable holds the same `Arc<TableHandle>`. The file is opened when it
//! is first read, and stays open as far as the [`FilePool`] allows. When an edit takes the sstable out
//! of its tree for good, the handle is marked obsolete; once the last version and the last reader let
//! go of it, its number is queued for deletion. So no reader ever meets a deleted file.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bolide_base::{Error, Result};
use bolide_storage::Vfs;
use bolide_table::{BlockCache, FilePool, FileSource, TableReader};
use parking_lot::Mutex;

use super::table_meta::TableMeta;
use crate::attachments::Attachments;
use crate::file_name::FileName;

/// Files that no version and no reader needs any more: sstables, sorted views, and those of keepers.
#[derive(Debug, Default)]
pub struct ObsoleteFiles {
    names: Mutex<BTreeSet<FileName>>,
}

impl ObsoleteFiles {
    /// Takes all names out; the caller deletes their files.
    pub fn take(&self) -> Vec<FileName> {
        std::mem::take(&mut *self.names.lock()).into_iter().collect()
    }

    /// Puts a name (back) into the queue, as after a deletion that failed.
    pub fn push(&self, name: FileName) {
        self.names.lock().insert(name);
    }

    /// True if there is nothing to delete.
    pub fn is_empty(&self) -> bool {
        self.names.lock().is_empty()
    }
}

/// REMIX files that turned out damaged or missing, until somebody asks for them.
#[derive(Debug, Default)]
pub struct ViewFailures {
    errors: Mutex<Vec<Error>>,
    count: AtomicU64,
}

/// As many errors are kept; of others only the number.
const MAX_FAILURES: usize = 100;

impl ViewFailures {
    /// Notes one.
    pub fn push(&self, error: Error) {
        let mut errors = self.errors.lock();
        if errors.len() < MAX_FAILURES {
            errors.push(error);
        }
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// How many there were, also those that were taken.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Takes what was noted.
    pub fn take(&self) -> Vec<Error> {
        std::mem::take(&mut *self.errors.lock())
    }
}

/// What all sstables of a database, and the REMIX files beside them, are read through.
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
    /// Where obsolete ones go.
    pub obsolete: Arc<ObsoleteFiles>,
    /// REMIX files that could not be read.
    pub view_failures: Arc<ViewFailures>,
}

impl fmt::Debug for TableFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableFiles").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// One sstable of a tree: its meta, and its reader once somebody asked for it.
pub struct TableHandle {
    meta: TableMeta,
    reader: OnceLock<Arc<TableReader>>,
    /// Lets one thread open the file while others wait for it.
    opening: Mutex<()>,
    obsolete: AtomicBool,
    files: Arc<TableFiles>,
    /// What the layer above made of the file's meta blocks.
    attachments: Attachments,
}

impl TableHandle {
    /// A handle for the file that `meta` describes. Opens nothing.
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

    /// What the manifest says of the file.
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

    /// What the layer above keeps in memory about the file, as long as the handle lives.
    #[inline]
    pub fn attachments(&self) -> &Attachments {
        &self.attachments
    }

    /// Bytes of memory that the open reader and the attachments hold, apart from cached blocks; 0 before
    /// it is opened.
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
        Ok(self.reader.get_or_init(|| Arc::new(reader)))
    }

    /// Says that no coming version contains the sstable: its file may go once nobody holds the handle.
    /// Call it only after the edit that removes it is durable.
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
