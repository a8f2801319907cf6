//! Salvage: reading of a damaged database without opening it.
//!
//! The result is logical: the newest version of each key of each tree. The directory is not changed, not even by a lock file.
//! Every part that cannot be read becomes a [`Loss`].
//!
//! # Sources
//! 1. `CURRENT` and the manifest: the sstables, range tombstones and log segments in use. See `manifest`.
//! 2. The log; see `logs`.
//! 3. The sstables. If the manifest is not intact, also those that it neither adds nor removes; their properties contain
//!    their tree.
//!
//! Derived files (sorted views, regions) are not read.
//!
//! # Versions
//! Versions are ordered by their sequence numbers alone, whichever source they are in. So a version that is in the log and in
//! an sstable, or in two sstables because the edit that replaced one is lost, is one version. A version is hidden by newer
//! versions of its key and by newer range tombstones. If the sstable with the newest version is lost, an older version
//! becomes visible; the loss covers its key.
//!
//! # Memory
//! One block of each sstable that overlaps others, the index block of its partition, and 16 MiB of log entries; further log
//! entries are in scratch files. All range tombstones and losses are in memory.
//!
//! | file | concept |
//! |---|---|
//! | `loss` | the unreadable parts |
//! | `state`, `manifest` | the readable edits, and the resulting state |
//! | `logs`, `spill` | the entries of the log, in bounded memory |
//! | `tables` | the sstables of a tree |
//! | `records` | the newest versions of all sources |

mod logs;
mod loss;
mod manifest;
mod records;
mod spill;
mod state;
mod tables;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber, TreeId};
use bolide_storage::Vfs;
use bolide_table::{FilePool, FileSource, TableOwner, TableSalvage};

use self::logs::{LogContents, LogSalvage};
pub use self::loss::{Loss, LossKind, LostKeys};
use self::manifest::SalvagedManifest;
pub use self::records::VisitRecord;
use self::spill::Spill;
use self::state::SalvagedTreeState;
use self::tables::{Losses, chains};
use crate::file_name::FileName;
use crate::range_tombstones::RangeTombstones;
use crate::sync_marker::Marks;
use crate::version::TableMeta;

/// The maximum number of open sstables.
const MAX_OPEN_FILES: usize = 256;

/// The known facts about a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvagedTree {
    /// The id.
    pub id: TreeId,
    /// The encoded settings; `None` if unknown.
    pub options: Option<Vec<u8>>,
    /// The descriptor; `None` if unknown.
    pub descriptor: Option<Vec<u8>>,
    /// True if the log shows that the tree contains records. Otherwise, and without a descriptor, it may contain index entries.
    pub has_logged_records: bool,
}

impl SalvagedTree {
    /// A tree of which only the id is known.
    pub fn unknown(id: TreeId) -> Self {
        Self { id, options: None, descriptor: None, has_logged_records: false }
    }
}

/// A damaged database that is being read.
///
/// ```
/// use std::path::Path;
/// use std::sync::Arc;
/// use bolide_lsm::salvage::Salvage;
/// use bolide_lsm::{Store, StoreBatch, StoreComponents, StoreOptions, SyncMode, TreeOptions};
/// # use bolide_storage::{MemVfs, SystemRuntime, Vfs};
/// # use bolide_table::BlockCache;
/// # let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
/// # let components = StoreComponents {
/// #     vfs: vfs.clone(), runtime: Arc::new(SystemRuntime::new()), cache: BlockCache::new(1 << 20),
/// # };
/// let store = Store::open(StoreOptions::new("db"), components)?;
/// let tree = store.create_tree(TreeOptions::default(), b"notes")?;
/// let mut batch = StoreBatch::new();
/// batch.put(tree, b"key", b"value")?;
/// store.commit(batch, None, SyncMode::Always)?;
/// drop(store);
/// vfs.remove(Path::new("db/CURRENT"))?;
///
/// let mut salvage = Salvage::open(vfs, Path::new("db"), Path::new("scratch"))?;
/// assert_eq!(salvage.trees()[0].descriptor.as_deref(), Some(&b"notes"[..]));
/// salvage.read_logs(&|_| true)?;
/// let mut found = Vec::new();
/// salvage.visit_newest(tree, &mut |key, sequence, value| {
///     found.push((key.to_vec(), sequence, value.to_vec()));
///     Ok(())
/// })?;
/// assert_eq!(found, [(b"key".to_vec(), 1, b"value".to_vec())]);
/// # Ok::<(), bolide_base::Error>(())
/// ```
#[derive(Debug)]
pub struct Salvage {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    pool: Arc<FilePool>,
    marks: Marks,
    manifest: SalvagedManifest,
    segments: BTreeSet<u64>,
    spill: Spill,
    found: LogContents,
    losses: Vec<Loss>,
    notes: Vec<String>,
    /// The highest sequence number of sstables that no manifest names.
    table_sequence: SequenceNumber,
    ignores_range_tombstones: bool,
}

/// The files of a directory, by kind.
#[derive(Debug, Default)]
struct Files {
    manifests: Vec<u64>,
    segments: BTreeSet<u64>,
    tables: BTreeSet<u64>,
    any: bool,
}

impl Files {
    fn read(vfs: &dyn Vfs, dir: &Path) -> Result<Self> {
        let mut files = Self::default();
        for name in vfs.list(dir)? {
            match FileName::parse(&name) {
                Some(FileName::Manifest(number)) => files.manifests.push(number),
                Some(FileName::Wal(number)) => drop(files.segments.insert(number)),
                Some(FileName::Table(number)) => drop(files.tables.insert(number)),
                Some(FileName::Lock | FileName::Reserve | FileName::Marker | FileName::Temp(_)) | None => {
                    continue;
                }
                Some(FileName::Current | FileName::Tail(_) | FileName::Region(_) | FileName::View(_)) => {}
            }
            files.any = true;
        }
        files.manifests.sort_unstable();
        Ok(files)
    }
}

impl Salvage {
    /// Reads the manifest of the database in `dir`. Scratch files are created in the directory `scratch`, if any are needed.
    ///
    /// # Errors
    /// `NotFound` if the directory contains no file of a database; `Unsupported` if its files are of another format version;
    /// those of listing it.
    pub fn open(vfs: Arc<dyn Vfs>, dir: &Path, scratch: &Path) -> Result<Self> {
        let files = Files::read(&*vfs, dir)?;
        if !files.any {
            let what = format!("{} contains no file of a database", dir.display());
            return Err(Error::new(ErrorKind::NotFound, what));
        }
        let marks = Marks::read(&*vfs, dir);
        let (mut losses, mut notes) = (Vec::new(), Vec::new());
        let manifest = manifest::read(&*vfs, dir, &files.manifests, &marks, &mut losses, &mut notes);
        let mut salvage = Self {
            pool: FilePool::new(vfs.clone(), dir, MAX_OPEN_FILES),
            spill: Spill::new(vfs.clone(), scratch),
            vfs,
            dir: dir.to_owned(),
            marks,
            manifest,
            segments: files.segments,
            found: LogContents::default(),
            losses,
            notes,
            table_sequence: 0,
            ignores_range_tombstones: false,
        };
        if !salvage.manifest.intact {
            salvage.adopt(&files.tables);
        }
        match &salvage.manifest.unsupported {
            // Not damage: a database of another version.
            Some(error) if salvage.manifest.state.trees.is_empty() => Err(error.clone()),
            _ => Ok(salvage),
        }
    }

    /// An intentional defect, for tests of the verification: range tombstones hide nothing.
    #[doc(hidden)]
    #[must_use]
    pub fn ignoring_range_tombstones(mut self, ignores: bool) -> Self {
        self.ignores_range_tombstones = ignores;
        self
    }

    /// Adds the sstables that the manifest neither adds nor removes to the trees in their properties, and completes the facts
    /// about trees.
    fn adopt(&mut self, on_disk: &BTreeSet<u64>) {
        let unknown: Vec<u64> = on_disk.difference(&self.manifest.state.mentioned).copied().collect();
        for number in unknown {
            if let Err(error) = self.adopt_table(number) {
                let what =
                    format!("{}: the manifest does not name it, and its tree is not known", error.message());
                self.losses.push(Loss::new(LossKind::Table, FileName::Table(number).to_string(), what));
            }
        }
        let lacks_descriptor =
            |(_, tree): &(&TreeId, &SalvagedTreeState)| tree.descriptor.is_none() || tree.options.is_none();
        let incomplete: Vec<(TreeId, Vec<TableMeta>)> = (self.manifest.state.trees.iter())
            .filter(lacks_descriptor)
            .map(|(&id, tree)| (id, tree.tables.values().rev().cloned().collect()))
            .collect();
        for (id, tables) in incomplete {
            for meta in tables {
                let expected = Some((meta.identity(), meta.file_bytes));
                let opened = TableSalvage::open(FileSource::pooled(&self.pool, meta.number), expected);
                let Ok(table) = opened else { continue };
                let owner = table.properties().ok().and_then(|properties| properties.owner.as_ref());
                if let (Some(owner), Some(tree)) = (owner, self.manifest.state.trees.get_mut(&id)) {
                    complete(tree, owner);
                }
            }
        }
    }

    fn adopt_table(&mut self, number: u64) -> Result<()> {
        let table = TableSalvage::open(FileSource::pooled(&self.pool, number), None)?;
        let properties = table.properties()?;
        let lacks = |what| Error::unsupported(FileName::Table(number), what);
        let owner = properties.owner.as_ref().ok_or_else(|| lacks("its properties do not contain a tree"))?;
        if table.identity().file_number != number {
            return Err(lacks("it is another file under this name"));
        }
        let meta = TableMeta::new(table.identity(), properties, 0);
        if meta.check().is_err() || self.manifest.state.dropped.contains(&owner.tree) {
            return Ok(());
        }
        self.table_sequence = self.table_sequence.max(meta.largest_sequence);
        self.manifest.state.trees.entry(owner.tree).or_default().tables.insert(number, meta);
        Ok(())
    }

    /// True if no acknowledged edit of the manifest is missing: then the sstables and log segments in use are known.
    pub fn is_intact(&self) -> bool {
        self.manifest.intact
    }

    /// The known trees. After [`read_logs`](Self::read_logs) they include those that only the log names.
    pub fn trees(&self) -> Vec<SalvagedTree> {
        // A tree with nothing but its id in the edits, and without a record in the log, has nothing to salvage.
        let is_known = |(id, tree): &(&TreeId, &SalvagedTreeState)| {
            tree.descriptor.is_some() || !tree.tables.is_empty() || self.found.unknown.contains(id)
        };
        let known = self.manifest.state.trees.iter().filter(is_known).map(|(&id, tree)| SalvagedTree {
            id,
            options: tree.options.clone(),
            descriptor: tree.descriptor.clone(),
            has_logged_records: self.found.unknown.contains(&id),
        });
        let is_new = |id: &&TreeId| !self.manifest.state.trees.contains_key(id);
        let unknown = self.found.unknown.iter().filter(is_new);
        known
            .chain(unknown.map(|&id| SalvagedTree { has_logged_records: true, ..SalvagedTree::unknown(id) }))
            .collect()
    }

    /// Reads the log: the entries of the trees that are `wanted`. Call it once, before [`visit_newest`](Self::visit_newest).
    ///
    /// # Errors
    /// Those of writing scratch files. An unreadable part of the log is a loss.
    pub fn read_logs(&mut self, wanted: &dyn Fn(TreeId) -> bool) -> Result<()> {
        LogSalvage::new(
            &*self.vfs,
            &self.dir,
            &self.manifest,
            &self.marks,
            wanted,
            &mut self.spill,
            &mut self.found,
            &mut self.losses,
        )
        .read(&self.segments)
    }

    /// Passes the newest version of each key of `tree` that is not deleted to `visit`, with its sequence number, in key order.
    ///
    /// # Errors
    /// Those of `visit` and of the scratch files; `LimitExceeded` for too many range tombstones.
    pub fn visit_newest(&mut self, tree: TreeId, visit: &mut VisitRecord<'_>) -> Result<()> {
        let state = self.manifest.state.trees.get(&tree);
        let in_manifest = state.into_iter().flat_map(|tree| tree.tombstones.iter().cloned());
        let logged = self.found.tombstones.get(&tree).into_iter().flatten().cloned();
        let tombstones = match self.ignores_range_tombstones {
            true => RangeTombstones::new(),
            false => RangeTombstones::from_tombstones(in_manifest.chain(logged))?,
        };
        let lost = Losses::default();
        let metas = state.into_iter().flat_map(|tree| tree.tables.values().cloned());
        let chains = chains(tree, metas, &self.pool, &lost);
        let entries = records::visit_newest(tree, chains, &self.spill, &tombstones, visit)?;
        self.losses.append(&mut lost.lock());
        self.losses.extend(entries);
        Ok(())
    }

    /// No entry has a sequence number above this one, as far as known.
    pub fn last_sequence(&self) -> SequenceNumber {
        self.manifest.state.last_sequence.max(self.found.last_sequence).max(self.table_sequence)
    }

    /// The unreadable parts so far.
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// Damage without losses.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Removes the scratch files.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn remove_scratch(&mut self) -> Result<()> {
        self.spill.remove()
    }
}

/// Completes the facts about a tree from the properties of an sstable.
fn complete(tree: &mut SalvagedTreeState, owner: &TableOwner) {
    if tree.options.is_none() {
        tree.options.clone_from(&owner.options);
    }
    if tree.descriptor.is_none() {
        tree.descriptor.clone_from(&owner.descriptor);
    }
}
