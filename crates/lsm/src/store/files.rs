//! The files of a store: their names, their manifest, and the files to be removed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_base::{ErrorKind, FileIdentity, Result};
use bolide_memory::PagePool;
use bolide_storage::{Runtime, Vfs};
use parking_lot::Mutex;

use super::health::Health;
use super::reserve::Reserve;
use crate::file_name::FileName;
use crate::version::{TableFiles, VersionEdit, VersionSet};

/// The files of a store.
pub(super) struct StoreFiles {
    pub(super) vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    runtime: Arc<dyn Runtime>,
    /// Open sstables, and files that nothing refers to any more.
    pub(super) tables: Arc<TableFiles>,
    /// The manifest.
    pub(super) versions: Mutex<VersionSet>,
    /// Locked while files are removed, or must not be removed.
    pub(super) removal: Mutex<()>,
}

impl StoreFiles {
    /// The files in `dir` with the manifest `versions`.
    pub(super) fn new(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        runtime: Arc<dyn Runtime>,
        versions: VersionSet,
    ) -> Self {
        Self {
            vfs,
            dir: dir.to_owned(),
            runtime,
            tables: versions.table_files().clone(),
            versions: Mutex::new(versions),
            removal: Mutex::new(()),
        }
    }

    /// The pool of large pages.
    pub(super) fn pages(&self) -> &Arc<PagePool> {
        self.tables.pages()
    }

    /// The path of a file.
    pub(super) fn path(&self, name: FileName) -> PathBuf {
        name.path(&self.dir)
    }

    /// A number for a file that is never used again.
    pub(super) fn new_number(&self) -> u64 {
        self.versions.lock().new_file_number()
    }

    /// The identity of a file to be created, with a new random tag.
    pub(super) fn new_identity(&self, file_number: u64) -> FileIdentity {
        FileIdentity { file_number, tag: self.runtime.random_u64() }
    }

    /// Makes the names of new files durable.
    pub(super) fn sync_dir(&self) -> Result<()> {
        self.vfs.sync_dir(&self.dir)
    }

    /// Schedules a file for removal.
    pub(super) fn discard(&self, name: FileName) {
        self.tables.obsolete.push(name);
    }
}

/// Makes an edit of the manifest durable. A full disk leaves the store unchanged; any other failure
/// poisons the handle.
pub(super) fn apply_edit(
    versions: &mut VersionSet,
    edit: VersionEdit,
    health: &Health,
    reserve: &Reserve,
) -> Result<()> {
    health.check()?;
    let mut apply = || versions.apply(edit.clone()).map(drop);
    health.poison_on_panic(|| reserve.with(&mut apply)).inspect_err(|error| {
        if !matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::LimitExceeded) {
            health.poison(error);
        }
    })
}
