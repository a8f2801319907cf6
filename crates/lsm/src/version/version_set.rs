//! The owner of all versions.
//!
//! # Rules
//! 1. An edit is checked against the state, appended to the manifest, synced, and only then installed. A failed append or
//!    sync poisons the set: the content of the manifest is in doubt, so nothing more is written until it is read again.
//! 2. `CURRENT` names the manifest in force, and its durable length at that time. Opening the database for writing starts a
//!    new manifest with a snapshot of the state, so no edit ever follows a torn one.
//! 3. A manifest over its limit is replaced in the same way while the database is open.
//! 4. A clean close writes the final length of the manifest into `CURRENT`; the end of the WAL is sealed
//!    by an edit before that. So nothing may be torn in a closed database.
//! 5. File numbers are never allocated twice: a new one is above every number in the directory.
//! 6. Opening read-only writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, FileIdentity, Result, SequenceNumber, TreeId};
use bolide_storage::{Runtime, Vfs};
use bolide_table::{BlockCache, FilePool};

use super::catalogue::{Catalogue, TreeEntry};
use super::current_file::CurrentFile;
use super::manifest::{self, Manifest};
use super::retained_log::RetainedLog;
use super::stored_view::StoredView;
use super::table_handle::TableFiles;
use super::version::Version;
use super::version_edit::{EditOperation, VersionEdit};
use super::version_set_copy::VersionSetCopy;
use super::wal_segment::{CutTail, WalSegment};
use crate::external_tree::ExternalRoot;
use crate::file_name::FileName;
use crate::options::ResetTree;
use crate::record_log::LogRole;
use crate::sync_marker::{Marks, SyncMarker};
use crate::wal::LogEnd;

/// The mode in which a [`VersionSet`] is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// The database must exist; nothing is written.
    ReadOnly,
    /// The database must exist.
    Existing,
    /// An empty database is created if none exists.
    CreateIfMissing,
}

/// The parameters of opening a [`VersionSet`].
#[derive(Debug)]
pub struct VersionSetOptions {
    /// The file system.
    pub vfs: Arc<dyn Vfs>,
    /// The directory of the database. It must exist.
    pub dir: PathBuf,
    /// The source of random numbers: the id of a new database, and the tags of manifests.
    pub runtime: Arc<dyn Runtime>,
    /// The length in bytes at which a manifest is replaced. It counts from the end of the snapshot at its start, so that a
    /// large state is not written again and again.
    pub max_manifest_bytes: u64,
    /// Whether to write, and whether to create.
    pub mode: OpenMode,
    /// The open sstables.
    pub pool: Arc<FilePool>,
    /// The blocks in memory.
    pub cache: Arc<BlockCache>,
    /// Selects the trees that are emptied.
    pub reset_tree: Option<ResetTree>,
}

/// A tree of the catalogue, with its current version.
#[derive(Debug, Clone)]
pub struct CatalogueTree {
    /// The id.
    pub id: TreeId,
    /// The encoded settings.
    pub options: Arc<[u8]>,
    /// The layer above's data about the tree.
    pub descriptor: Arc<[u8]>,
    /// The current version.
    pub version: Arc<Version>,
    /// Bytes written to files of the tree since its creation.
    pub written_bytes: u64,
}

/// The current versions of all trees, and their manifest.
#[derive(Debug)]
pub struct VersionSet {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    runtime: Arc<dyn Runtime>,
    database_id: u64,
    files: Arc<TableFiles>,
    catalogue: Catalogue,
    versions: BTreeMap<TreeId, Arc<Version>>,
    max_manifest_bytes: u64,
    /// The manifest in force; `None` when opened read-only or after a clean close.
    manifest: Option<Manifest>,
    manifest_number: u64,
    /// Stores how far logs are synced.
    marker: Option<Arc<SyncMarker>>,
    /// The content of the marker when the set was opened.
    marks: Marks,
    is_manifest_marked: bool,
    /// The length of the snapshot at the start of the manifest.
    snapshot_len: u64,
    /// The error of all later writes.
    refusal: Option<Error>,
}

/// The error for a `dir` without `CURRENT`: there is no database at all, or `CURRENT` is missing.
pub fn no_database(vfs: &dyn Vfs, dir: &Path) -> Error {
    let nothing = || Error::new(ErrorKind::NotFound, format!("there is no database in {}", dir.display()));
    match DirectoryNames::read(vfs, dir) {
        Ok(names) => names.require_nothing(dir).err().unwrap_or_else(nothing),
        Err(error) if error.kind() == ErrorKind::NotFound => nothing(),
        Err(error) => error,
    }
}

impl VersionSet {
    /// Opens the database in `options.dir`. Opens no sstable, but checks that all exist.
    ///
    /// # Errors
    /// NotFound if there is no database and none may be created; Corruption with file and offset;
    /// Unsupported for newer formats; those of the file system.
    pub fn open(options: VersionSetOptions) -> Result<Self> {
        let VersionSetOptions { vfs, dir, runtime, max_manifest_bytes, mode, pool, cache, reset_tree } =
            options;
        let current = CurrentFile::read(&*vfs, &dir)?;
        let names = DirectoryNames::read(&*vfs, &dir)?;
        let database_id = match &current {
            Some(current) => current.database_id,
            None if mode == OpenMode::CreateIfMissing => {
                names.require_nothing(&dir)?;
                runtime.random_u64()
            }
            None => return Err(no_database(&*vfs, &dir)),
        };
        let files = Arc::new(TableFiles {
            vfs: Arc::clone(&vfs),
            dir: dir.clone(),
            pool,
            cache,
            obsolete: Arc::default(),
            view_failures: Arc::default(),
        });
        let marks = Marks::read(&*vfs, &dir);
        let is_manifest_marked =
            |current: CurrentFile| marks.synced_through(LogRole::Manifest, current.manifest) > 0;
        let is_manifest_marked = current.is_some_and(is_manifest_marked);
        let mut catalogue = match &current {
            Some(current) => manifest::read(&*vfs, &dir, current, &marks, &files)?,
            None => Catalogue::new(),
        };
        catalogue.next_file_number = catalogue.next_file_number.max(names.highest.saturating_add(1));
        names.reset_trees(&dir, &mut catalogue, reset_tree)?;
        let manifest_number = current.map_or(0, |current| current.manifest.file_number);
        let name = FileName::Manifest(manifest_number).path(&dir).display().to_string();
        let versions = all_versions(&catalogue).map_err(|what| Error::corruption(name, 0, what))?;
        let mut set = Self {
            vfs,
            dir,
            runtime,
            database_id,
            files,
            catalogue,
            versions,
            max_manifest_bytes,
            manifest: None,
            marker: None,
            marks,
            is_manifest_marked,
            manifest_number,
            snapshot_len: 0,
            refusal: None,
        };
        if mode == OpenMode::ReadOnly {
            set.refusal = Some(Error::new(ErrorKind::ReadOnly, "the database was opened read-only"));
        } else {
            set.marker = SyncMarker::open(&*set.vfs, &set.dir);
            set.start_manifest()?;
        }
        Ok(set)
    }

    /// Makes `edit` durable, then installs the resulting versions. Returns those of the trees whose sstables or deleted
    /// ranges changed. Handles of removed sstables are marked obsolete.
    ///
    /// Cost: one append and one sync; now and then a new manifest.
    ///
    /// # Errors
    /// LimitExceeded and Internal for an edit that does not fit the state: nothing has changed. NoSpace: nothing has changed.
    /// Poisoned after a failure, ReadOnly, Closed. Any other error poisons the set; then it is in doubt whether the edit is
    /// durable.
    pub fn apply(&mut self, mut edit: VersionEdit) -> Result<Vec<Arc<Version>>> {
        self.check_writable()?;
        if let Some(what) = edit.over_limit() {
            return Err(Error::new(ErrorKind::LimitExceeded, what));
        }
        let catalogue = &self.catalogue;
        edit.push(EditOperation::NextFileNumber(catalogue.next_file_number));
        let mut next = catalogue.clone();
        let applied = next.apply(&edit, &self.files).map_err(Error::internal)?;
        let mut changed = Vec::with_capacity(applied.changed.len());
        for tree in &applied.changed {
            let Some(entry) = next.trees.get(tree) else { continue };
            let before = self.versions.get(tree).map(|version| &**version);
            changed.push(Arc::new(Version::of(*tree, entry, before).map_err(Error::internal)?));
        }
        let written = match &self.manifest {
            Some(manifest) => manifest.append(&edit),
            None => Err(Error::internal("a writable version set has no manifest")),
        };
        if let Err(error) = written {
            let in_doubt = self.manifest.as_ref().is_none_or(Manifest::is_poisoned);
            return Err(if in_doubt { self.poison(error) } else { error });
        }
        self.catalogue = next;
        for version in &changed {
            self.versions.insert(version.tree(), Arc::clone(version));
        }
        for tree in &applied.dropped {
            self.versions.remove(tree);
        }
        for handle in &applied.removed {
            handle.mark_obsolete();
        }
        for name in &applied.released {
            self.files.obsolete.push(*name);
        }
        for view in &applied.removed_views {
            view.mark_obsolete();
        }
        self.replace_long_manifest()?;
        Ok(changed)
    }

    /// Closes the set: seals the end of the WAL, if there is one, and marks the database in `CURRENT` as closed. The WAL must be
    /// synced through `wal`. Later writes fail with Closed.
    ///
    /// # Errors
    /// As [`apply`](Self::apply); then the next opening recovers as after a crash.
    pub fn close(&mut self, wal: Option<LogEnd>) -> Result<()> {
        self.check_writable()?;
        if let Some(end) = wal {
            let mut edit = VersionEdit::new();
            edit.seal_wal(end.number, end.len);
            self.apply(edit)?;
        }
        let temp = self.new_file_number();
        if let Some(manifest) = self.manifest.take() {
            let closed = manifest.put_in_force(&*self.vfs, &self.dir, temp, true);
            closed.map_err(|error| self.poison(error))?;
        }
        self.refusal = Some(Error::new(ErrorKind::Closed, "the database is closed"));
        Ok(())
    }

    /// Writes a new manifest with a snapshot of the state, puts it in force and removes the old one.
    ///
    /// # Errors
    /// NoSpace: nothing has changed. Any other error poisons the set.
    fn start_manifest(&mut self) -> Result<()> {
        let number = self.new_file_number();
        let temp = self.new_file_number();
        let identity = FileIdentity { file_number: number, tag: self.runtime.random_u64() };
        let created = Manifest::create(
            &*self.vfs,
            &self.dir,
            identity,
            self.database_id(),
            &self.catalogue,
            self.marker.clone(),
        )
        .and_then(|manifest| {
            manifest.put_in_force(&*self.vfs, &self.dir, temp, false)?;
            Ok(manifest)
        });
        let manifest = match created {
            Ok(manifest) => manifest,
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                self.remove_manifest(number);
                return Err(error);
            }
            Err(error) => return Err(self.poison(error)),
        };
        let old = std::mem::replace(&mut self.manifest_number, number);
        self.snapshot_len = manifest.len();
        self.manifest = Some(manifest);
        if old != 0 {
            self.remove_manifest(old);
        }
        Ok(())
    }

    /// Removes a manifest that is not in force. A failure is harmless: the next opening for writing removes unreferenced files.
    fn remove_manifest(&self, number: u64) {
        let _ = self.vfs.remove(&FileName::Manifest(number).path(&self.dir));
    }

    fn replace_long_manifest(&mut self) -> Result<()> {
        let len = self.manifest.as_ref().map_or(0, Manifest::len);
        // At least the length of the snapshot, so that the cost of snapshots stays a fixed share.
        let limit = self.max_manifest_bytes.max(self.snapshot_len);
        if len.saturating_sub(self.snapshot_len) <= limit {
            return Ok(());
        }
        match self.start_manifest() {
            // The old manifest remains in use; the next attempt follows when it has grown as much again.
            Err(error) if error.kind() == ErrorKind::NoSpace && !self.is_poisoned() => {
                self.snapshot_len = len;
                Ok(())
            }
            result => result,
        }
    }

    fn poison(&mut self, error: Error) -> Error {
        let message = format!("an earlier write of the manifest failed: {}", error.message());
        self.refusal = Some(Error::new(ErrorKind::Poisoned, message));
        error
    }

    fn check_writable(&self) -> Result<()> {
        self.refusal.clone().map_or(Ok(()), Err)
    }
}

impl VersionSet {
    /// The current version of `tree`; `None` if there is no such tree.
    pub fn current(&self, tree: TreeId) -> Option<Arc<Version>> {
        self.versions.get(&tree).cloned()
    }

    /// All trees, by id.
    pub fn trees(&self) -> Vec<CatalogueTree> {
        let with_version = |(&id, entry): (&TreeId, &Arc<TreeEntry>)| {
            let version = self.versions.get(&id)?;
            Some(CatalogueTree {
                id,
                options: Arc::clone(&entry.options),
                descriptor: Arc::clone(&entry.descriptor),
                version: Arc::clone(version),
                written_bytes: entry.written_bytes,
            })
        };
        self.catalogue.trees.iter().filter_map(with_version).collect()
    }

    /// The present state, for a checkpoint. Cheap.
    pub fn copy(&self) -> VersionSetCopy {
        VersionSetCopy::new(self.database_id(), self.runtime.random_u64(), self.catalogue.clone())
    }

    /// Allocates a file number.
    pub fn new_file_number(&mut self) -> u64 {
        let number = self.catalogue.next_file_number;
        self.catalogue.next_file_number += 1;
        number
    }

    /// The id of the next tree to be created. Ids of dropped trees are not used again.
    pub fn next_tree_id(&self) -> TreeId {
        self.catalogue.next_tree_id
    }

    /// At least the largest sequence number of all writes in sstables and of all edits.
    pub fn last_sequence(&self) -> SequenceNumber {
        self.catalogue.last_sequence
    }

    /// WAL segments below this number are not needed.
    pub fn wal_floor(&self) -> u64 {
        self.catalogue.wal_floor
    }

    /// The WAL segments at or above the floor, by number.
    pub fn wal_segments(&self) -> &BTreeMap<u64, WalSegment> {
        &self.catalogue.segments
    }

    /// The tails that recoveries cut off WAL segments, by segment.
    pub fn cut_tails(&self) -> &BTreeMap<u64, CutTail> {
        &self.catalogue.cut_tails
    }

    /// Stores how far logs are synced; `None` if the set is read-only or the marker cannot be written.
    pub fn marker(&self) -> Option<Arc<SyncMarker>> {
        self.marker.clone()
    }

    /// Whether the marker named the manifest in force when the set was opened.
    pub fn is_manifest_marked(&self) -> bool {
        self.is_manifest_marked
    }

    /// The content of the marker when the set was opened.
    pub fn marks(&self) -> Marks {
        self.marks
    }

    /// The writes of `tree` in WAL segments below this number are all on disk; 0 for an unknown tree.
    pub fn tree_log_floor(&self, tree: TreeId) -> u64 {
        self.catalogue.trees.get(&tree).map_or(0, |entry| entry.log_floor)
    }

    /// The log position of the entries that the last flush of `tree` retained.
    pub fn retained(&self, tree: TreeId) -> Option<RetainedLog> {
        self.catalogue.trees.get(&tree)?.retained
    }

    /// The durable state of the external tree `tree`; `None` if it was always empty.
    pub fn external_root(&self, tree: TreeId) -> Option<Arc<ExternalRoot>> {
        self.catalogue.trees.get(&tree)?.external_root.clone()
    }

    /// The files of all external trees.
    pub fn external_files(&self) -> BTreeSet<u64> {
        self.catalogue.external_files().filter_map(FileName::number).collect()
    }

    /// The REMIX files of `tree`, by number.
    pub fn views(&self, tree: TreeId) -> Vec<Arc<StoredView>> {
        let entry = self.catalogue.trees.get(&tree);
        entry.map_or_else(Vec::new, |entry| entry.views.values().cloned().collect())
    }

    /// The numbers of the REMIX files of all trees.
    pub fn live_views(&self) -> BTreeSet<u64> {
        self.catalogue.view_numbers().collect()
    }

    /// The random number that identifies the database.
    pub fn database_id(&self) -> u64 {
        self.database_id
    }

    /// The number of the manifest in force.
    pub fn manifest_number(&self) -> u64 {
        self.manifest_number
    }

    /// The length of the manifest in force, in bytes; 0 when opened read-only.
    pub fn manifest_bytes(&self) -> u64 {
        self.manifest.as_ref().map_or(0, Manifest::len)
    }

    /// The shared means to read sstables, with the queue of obsolete files.
    pub fn table_files(&self) -> &Arc<TableFiles> {
        &self.files
    }

    /// The numbers of the sstables of all current versions.
    pub fn live_tables(&self) -> BTreeSet<u64> {
        self.catalogue.table_numbers().collect()
    }

    /// True after a write of the manifest has failed.
    pub fn is_poisoned(&self) -> bool {
        self.refusal.as_ref().is_some_and(|error| error.kind() == ErrorKind::Poisoned)
    }
}

fn all_versions(catalogue: &Catalogue) -> std::result::Result<BTreeMap<TreeId, Arc<Version>>, String> {
    let mut owners = BTreeMap::new();
    for (&tree, entry) in &catalogue.trees {
        for &number in entry.tables.keys() {
            if let Some(other) = owners.insert(number, tree) {
                return Err(format!("sstable {number} is in tree {other} and in tree {tree}"));
            }
        }
    }
    let version = |(&tree, entry): (&TreeId, &Arc<TreeEntry>)| {
        Version::of(tree, entry, None).map(|version| (tree, Arc::new(version)))
    };
    catalogue.trees.iter().map(version).collect()
}

/// The files in the directory of a database.
struct DirectoryNames {
    tables: BTreeSet<u64>,
    regions: BTreeSet<u64>,
    first_wal: Option<u64>,
    /// The highest number of any file; 0 if there is none.
    highest: u64,
}

impl DirectoryNames {
    fn read(vfs: &dyn Vfs, dir: &Path) -> Result<Self> {
        let mut names =
            Self { tables: BTreeSet::new(), regions: BTreeSet::new(), first_wal: None, highest: 0 };
        for name in vfs.list(dir)? {
            let Some(name) = FileName::parse(&name) else { continue };
            names.highest = names.highest.max(name.number().unwrap_or(0));
            match name {
                FileName::Table(number) => {
                    names.tables.insert(number);
                }
                FileName::Region(number) => {
                    names.regions.insert(number);
                }
                FileName::Wal(number) => names.first_wal = names.first_wal.or(Some(number)),
                _ => {}
            }
        }
        Ok(names)
    }

    /// Reports a missing `CURRENT` if there are data files.
    fn require_nothing(&self, dir: &Path) -> Result<()> {
        let table = self.tables.first().map(|&number| FileName::Table(number));
        let region = self.regions.first().map(|&number| FileName::Region(number));
        if let Some(name) = table.or(region).or(self.first_wal.map(FileName::Wal)) {
            let what = format!("it is missing, although there is data such as {name}");
            return Err(Error::corruption(FileName::Current.path(dir).display(), 0, what));
        }
        Ok(())
    }

    /// Checks that the files of all trees exist, except of those that `reset_tree` empties.
    fn reset_trees(
        &self,
        dir: &Path,
        catalogue: &mut Catalogue,
        reset_tree: Option<ResetTree>,
    ) -> Result<()> {
        let mut emptied = Vec::new();
        for (&tree, entry) in &catalogue.trees {
            let missing = self.missing_file(dir, entry);
            let descriptor = reset_tree.and_then(|reset| reset(&entry.descriptor, missing.as_ref()));
            match (descriptor, missing) {
                (Some(descriptor), _) => emptied.push((tree, descriptor)),
                (None, Some(missing)) => return Err(missing),
                (None, None) => {}
            }
        }
        emptied.iter().for_each(|(tree, descriptor)| catalogue.empty_tree(*tree, descriptor));
        Ok(())
    }

    /// The error for the first missing file of a tree.
    fn missing_file(&self, dir: &Path, entry: &TreeEntry) -> Option<Error> {
        let table = entry.tables.keys().find(|number| !self.tables.contains(number));
        if let Some(&missing) = table {
            let path = FileName::Table(missing).path(dir);
            return Some(Error::corruption(path.display(), 0, "the sstable is missing"));
        }
        let files = entry.external_root.iter().flat_map(|external_root| &external_root.files);
        let missing = FileName::Region(*files.into_iter().find(|number| !self.regions.contains(number))?);
        Some(Error::corruption(missing.path(dir).display(), 0, "the file of a region is missing"))
    }
}
