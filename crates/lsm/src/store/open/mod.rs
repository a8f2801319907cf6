//! Opening a store.
//!
//! # Order
//! 1. Lock the directory (not when read-only).
//! 2. Recover the manifest, or create the database.
//! 3. Replay the log into memtables; see `recovery`.
//! 4. Seal the end of the old log, start a new segment (not when read-only).
//! 5. Remove files that nothing refers to (not when read-only).
//! 6. Start the background threads: they flush what was replayed.

mod close;
pub(super) mod recovery;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bolide_base::{Error, ErrorKind, Result, TreeId};
use bolide_memory::{MemoryUse, PagePool};
use bolide_storage::{FileLock, Vfs};
use bolide_table::FilePool;
use parking_lot::Mutex;

use crate::file_name::FileName;
use crate::options::{StoreOptions, TreeOptions};
use crate::record_log::Boot;
use crate::row_cache::RowCache;
use crate::store::commit::CommitQueue;
use crate::store::commit::log::Log;
use crate::store::commit::pressure::Pressure;
use crate::store::commit::recent::RecentCommits;
use crate::store::commit::targets::ActiveBytes;
use crate::store::files::StoreFiles;
use crate::store::health::Health;
use crate::store::jobs::sorted_view::{add_outdated_views, open_views};
use crate::store::jobs::work::WorkQueue;
use crate::store::jobs::workers::Workers;
use crate::store::memory::MemtableBudget;
use crate::store::open::recovery::{recover, remove_unknown_files, start_log};
use crate::store::read::snapshots::Snapshots;
use crate::store::reserve::Reserve;
use crate::store::stats::Counters;
use crate::store::tree::Tree;
use crate::store::tree::directory::TreeDirectory;
use crate::store::{Store, StoreComponents, StoreInner};
use crate::version::{OpenMode, VersionSet, VersionSetOptions, no_database};

impl Store {
    /// Opens the database in `options.dir`, and creates it if the options require it.
    ///
    /// Cost: reads the manifest and the log segments that hold unflushed writes; sstables are opened
    /// when first read.
    ///
    /// # Errors
    /// `NotFound` if there is no database and none is to be created; `Locked` if it is open already;
    /// `Corruption` with file and offset; `Unsupported` for files of a newer version; `Io`.
    pub fn open(options: StoreOptions, components: StoreComponents) -> Result<Self> {
        let lock = lock_directory(&options, &components)?;
        // The database exists: `lock_directory` has checked that.
        Self::open_files(options, components, lock).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::new(
                ErrorKind::Corruption,
                format!("a file of the database is missing: {}", error.message()),
            ),
            _ => error,
        })
    }

    /// True if the database in `dir` is open for writing, in this process or another one.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn has_writer(vfs: &dyn Vfs, dir: &Path) -> Result<bool> {
        vfs.is_locked(&FileName::Lock.path(dir))
    }

    fn open_files(
        options: StoreOptions,
        components: StoreComponents,
        lock: Option<Box<dyn FileLock>>,
    ) -> Result<Self> {
        if lock.is_some() && options.reserve_bytes > 0 {
            // The opening may need the space; it is allocated again at the end.
            match components.vfs.remove(&FileName::Reserve.path(&options.dir)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let inner = StoreInner::open(options, components, lock)?;
        open_views(&inner.files, &inner.options, &inner.trees);
        recover(&inner)?;
        if !inner.options.read_only {
            start_log(&inner)?;
            remove_unknown_files(&inner)?;
            inner.reserve.allocate(&inner.health);
            add_outdated_views(&inner.files, &inner.trees, &inner.work);
        }
        inner.memtables.update();
        inner.pressure.update(&inner.trees, false);
        if inner.options.background_threads == 0 && !inner.options.read_only {
            inner.run_pending_work();
        }
        let workers = Workers::start(&inner)?;
        Ok(Self { inner, workers })
    }
}

/// Takes the lock file, after creating the directory if the options require it.
fn lock_directory(options: &StoreOptions, components: &StoreComponents) -> Result<Option<Box<dyn FileLock>>> {
    let vfs = &components.vfs;
    let exists = vfs.exists(&FileName::Current.path(&options.dir))?;
    if !exists && (options.read_only || !options.create_if_missing) {
        return Err(no_database(&**vfs, &options.dir));
    }
    if options.read_only {
        return Ok(None);
    }
    if !exists {
        create_directory(&**vfs, &options.dir)?;
    }
    vfs.lock(&FileName::Lock.path(&options.dir)).map(Some)
}

/// Creates the directory and its missing parents, and makes their names survive a power cut.
pub(in crate::store) fn create_directory(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    let mut missing = Vec::new();
    for path in dir.ancestors().filter(|path| !path.as_os_str().is_empty()) {
        if vfs.exists(path)? {
            break;
        }
        missing.push(path);
    }
    if missing.is_empty() {
        // A creation that was interrupted by a power cut may have made it without a sync.
        missing.push(dir);
    }
    vfs.create_dir_all(dir)?;
    missing.iter().rev().filter_map(|path| path.parent()).try_for_each(|parent| vfs.sync_dir(parent))
}

impl StoreInner {
    fn open(
        options: StoreOptions,
        components: StoreComponents,
        lock: Option<Box<dyn FileLock>>,
    ) -> Result<Arc<Self>> {
        let StoreComponents { vfs, runtime, cache } = components;
        let mode = match (options.read_only, options.create_if_missing) {
            (true, _) => OpenMode::ReadOnly,
            (false, true) => OpenMode::CreateIfMissing,
            (false, false) => OpenMode::Existing,
        };
        let pool = FilePool::new(vfs.clone(), &options.dir, options.max_open_files);
        let versions = VersionSet::open(VersionSetOptions {
            vfs: vfs.clone(),
            dir: options.dir.clone(),
            runtime: runtime.clone(),
            max_manifest_bytes: options.manifest_bytes,
            mode,
            pool: pool.clone(),
            cache,
            reset_tree: options.reset_tree,
        })?;
        let pages = versions.table_files().pages().clone();
        let memory_pool = versions.table_files().cache.memory_pool().clone();
        let trees = Arc::new(TreeDirectory::new(open_trees(&versions, options.memtable_bytes, &pages)?));
        let last_sequence = versions.last_sequence();
        let work = Arc::new(WorkQueue::new(options.start_paused));
        let recent = memory_pool.budget().holder(MemoryUse::RecentCommits, None);
        Ok(Arc::new_cyclic(|itself: &Weak<Self>| Self {
            database_id: versions.database_id(),
            boot: Boot { id: runtime.boot_id(), mount: vfs.mount_id(&options.dir).unwrap_or(0) },
            memtables: MemtableBudget::new(&options, &memory_pool, &trees),
            trees,
            snapshots: Snapshots::default(),
            commits: CommitQueue::default(),
            recent: RecentCommits::new(options.recent_commit_bytes, recent),
            tombstone_removal: Mutex::new(()),
            active_bytes: ActiveBytes::default(),
            health: Health::new(options.read_only, work.clone()),
            pressure: Pressure::new(&options, runtime.clone(), work.clone()),
            work,
            counters: Counters::default(),
            rows: RowCache::new(options.row_cache_bytes, memory_pool),
            reserve: Reserve::new(vfs.clone(), &options.dir, options.reserve_bytes),
            itself: itself.clone(),
            log: Log::new(last_sequence, runtime.clone(), &options, lock),
            files: StoreFiles::new(vfs, &options.dir, runtime.clone(), versions),
            options,
            runtime,
        }))
    }
}

/// The trees in the manifest. Each memtable has a budget of `budget_bytes`, in large pages of `pages`.
fn open_trees(
    versions: &VersionSet,
    budget_bytes: usize,
    pages: &Arc<PagePool>,
) -> Result<BTreeMap<TreeId, Arc<Tree>>> {
    let mut trees = BTreeMap::new();
    for entry in versions.trees() {
        let options = TreeOptions::decode(&entry.options).ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                format!("the settings of tree {} are of a newer version", entry.id),
            )
        })?;
        let tree = Tree::new(
            entry.id,
            options,
            entry.descriptor.clone(),
            entry.version.clone(),
            budget_bytes,
            pages,
        );
        tree.written_bytes.store(entry.written_bytes, Ordering::Relaxed);
        trees.insert(entry.id, Arc::new(tree));
    }
    Ok(trees)
}
