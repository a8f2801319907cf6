//! The store: trees over one log and one manifest, and their background work.
//!
//! | folder or file | concept |
//! |---|---|
//! | `commit` | group commit: log, memtables, publication; write throttling |
//! | `read` | reads of keys, views, components and locations |
//! | `tree` | one tree's current memtables, version and sorted views |
//! | `jobs` | background work: flushes, compactions, sorted views, removal of files |
//! | `backend` | the structures that store the writes of a tree: LSM tree, external tree |
//! | `open` | opening of a store, and recovery |
//! | `files` | names of files, the manifest, and files to be removed |
//! | `memory` | the store's memory within its budget |
//! | `health` | whether a handle accepts writes |
//! | `reserve` | reserved disk space for operations that free space |
//! | `checkpoint`, `stats`, `verify` | copies, statistics and checks |
//!
//! # Lock order
//! `tombstone_removal` → log → versions → a tree's `state_lock` → work → finished segments. A thread may skip locks, but never
//! goes back.

mod backend;
mod checkpoint;
mod commit;
mod files;
mod health;
mod jobs;
mod memory;
mod open;
mod read;
mod reserve;
mod stats;
mod tree;
mod verify;

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bolide_base::{Error, Result, SequenceNumber, TreeId};
use bolide_memory::MemoryBudget;
use bolide_storage::{Runtime, Vfs};
use bolide_table::BlockCache;
use parking_lot::Mutex;

pub use self::backend::deferred::{DeferredExternalTree, ExternalTreeOpener};
pub use self::commit::recent::{RecentCommit, RecentCommits, RecentWrite, TransactionView};
pub use self::commit::{CommitStage, CommitState};
pub use self::jobs::rewrite::RewriteOutcome;
pub use self::read::cached_reads::CachedGet;
pub use self::read::components::{
    BlockReader, Component, MemtableComponent, TableComponent, TablePlace, VersionAt,
};
pub use self::read::estimate::RangeEstimate;
pub use self::read::get_lite::LiteVerdict;
pub use self::read::known_writes::KnownWrite;
pub use self::read::newer_versions::FoundInRun;
pub use self::read::read_view::{ReadView, TreeView};
pub use self::read::tree_reader::TreeReader;
pub use self::read::versions_at::{VersionPlace, VersionRead, VersionReads, VersionValue};
pub use self::stats::{LevelStats, StoreStats, TreeStats, WriteCounters};
pub use self::verify::StoreVerification;

use self::commit::CommitQueue;
use self::commit::log::{Log, LogState};
use self::commit::pressure::Pressure;
use self::commit::targets::ActiveBytes;
use self::files::{StoreFiles, apply_edit};
use self::health::Health;
use self::jobs::work::WorkQueue;
use self::jobs::workers::Workers;
use self::memory::MemtableBudget;
use self::read::snapshots::Snapshots;
use self::reserve::Reserve;
use self::stats::Counters;
use self::tree::Tree;
use self::tree::directory::TreeDirectory;
use crate::collectors::CollectorFactory;
use crate::compaction::{CompactionFilter, MergeOperator};
use crate::drop_listener::DropListener;
use crate::options::{StoreOptions, TreeOptions};
use crate::record_log::Boot;
use crate::row_cache::RowCache;
use crate::store::jobs::obsolete_files::remove_obsolete_files;
use crate::version::VersionEdit;

/// The dependencies of a store, apart from its settings.
#[derive(Debug, Clone)]
pub struct StoreComponents {
    /// The file system.
    pub vfs: Arc<dyn Vfs>,
    /// Clock, random numbers, threads.
    pub runtime: Arc<dyn Runtime>,
    /// The block cache; several stores may share one.
    pub cache: Arc<BlockCache>,
}

/// A tree in the catalogue of a store.
#[derive(Debug, Clone)]
pub struct TreeInfo {
    /// Its number, never reused.
    pub id: TreeId,
    /// Its settings.
    pub options: TreeOptions,
    /// Opaque bytes of the layer above.
    pub descriptor: Arc<[u8]>,
}

/// An open store. Dropping it closes it; see [`close`](Self::close).
///
/// All methods may be called from many threads at once.
pub struct Store {
    inner: Arc<StoreInner>,
    workers: Workers,
}

/// The state that handles, views and background threads share.
pub(crate) struct StoreInner {
    options: StoreOptions,
    files: StoreFiles,
    runtime: Arc<dyn Runtime>,
    database_id: u64,
    /// Boot and mount at the time of the opening.
    boot: Boot,
    trees: Arc<TreeDirectory>,
    snapshots: Snapshots,
    commits: CommitQueue,
    /// The commits since the oldest open transaction began.
    recent: RecentCommits,
    /// Serialises the removal of spent range tombstones.
    tombstone_removal: Mutex<()>,
    active_bytes: ActiveBytes,
    memtables: MemtableBudget,
    work: Arc<WorkQueue>,
    pressure: Pressure,
    counters: Counters,
    /// Rows of records that were read more than once.
    rows: RowCache,
    reserve: Reserve,
    health: Health,
    itself: Weak<StoreInner>,
    /// Has the lock of the directory, which is released last.
    log: Log,
}

impl StoreInner {
    /// Records the drop of a tree under a sequence number of its own, if transactions are open.
    fn record_drop(&self, log: &mut LogState, tree: TreeId) -> Result<()> {
        if !self.recent.is_needed() {
            return Ok(());
        }
        commit::check_sequences(log.applied, 1)?;
        log.applied += 1;
        self.snapshots.publish(log.applied);
        self.recent.record_drop(log.applied, tree);
        Ok(())
    }

    /// A counted reference to the store, for views that outlive the call.
    fn shared(&self) -> Arc<StoreInner> {
        // A method can only run while a counted reference exists.
        self.itself.upgrade().unwrap_or_else(|| unreachable!("a live store refers to itself"))
    }
}

impl Store {
    /// The memory budget, which belongs to the memory pool of the block cache.
    pub fn memory_budget(&self) -> &Arc<MemoryBudget> {
        self.inner.files.tables.cache.memory_pool().budget()
    }

    /// A view of everything committed so far.
    pub fn read_view(&self) -> ReadView {
        ReadView::latest(self.inner.clone())
    }

    /// Raises the last sequence number to at least `through`: for a store that imports entries with their sequence
    /// numbers ([`StoreBatch::put_at`](crate::StoreBatch::put_at)).
    ///
    /// # Errors
    /// `LimitExceeded` for a number without a successor; `ReadOnly`, `Poisoned`.
    pub fn reserve_sequences(&self, through: SequenceNumber) -> Result<()> {
        self.inner.health.check()?;
        commit::check_sequences(through, 1)?;
        let mut log = self.inner.log.lock();
        log.applied = log.applied.max(through);
        self.inner.snapshots.publish(log.applied);
        Ok(())
    }

    /// The newest sequence number that readers may see.
    pub fn published_sequence(&self) -> SequenceNumber {
        self.inner.snapshots.published()
    }

    /// The oldest sequence number of current and future readers. Takes a lock.
    pub fn oldest_in_use(&self) -> SequenceNumber {
        self.inner.snapshots.oldest()
    }

    /// The settings it was opened with.
    pub fn options(&self) -> &StoreOptions {
        &self.inner.options
    }

    /// The random number that was drawn when the database was created.
    pub fn database_id(&self) -> u64 {
        self.inner.database_id
    }

    /// Creates an empty tree. Durable when it returns.
    ///
    /// # Errors
    /// `Io` or `NoSpace` from the manifest; a failed manifest write poisons the handle.
    pub fn create_tree(&self, options: TreeOptions, descriptor: &[u8]) -> Result<TreeId> {
        let trees = self.create_trees(|_| vec![(options, descriptor.to_vec())])?;
        trees.first().copied().ok_or_else(|| Error::internal("no tree was created"))
    }

    /// Creates several empty trees, all or none, with one edit of the manifest. `declare` is passed the id of the first tree,
    /// which the ids of the others follow, and returns their settings and descriptors. Returns the ids. Durable when it
    /// returns.
    ///
    /// # Errors
    /// As [`create_tree`](Self::create_tree).
    pub fn create_trees(
        &self,
        declare: impl FnOnce(TreeId) -> Vec<(TreeOptions, Vec<u8>)>,
    ) -> Result<Vec<TreeId>> {
        let inner = &*self.inner;
        inner.health.check()?;
        let mut versions = inner.files.versions.lock();
        let first = versions.next_tree_id();
        let declared: Vec<_> = (first..).zip(declare(first)).collect();
        let mut edit = VersionEdit::new();
        for (id, (options, descriptor)) in &declared {
            edit.create_tree(*id, options.encode(), descriptor.clone());
        }
        apply_edit(&mut versions, edit, &inner.health, &inner.reserve)?;
        let budget_bytes = inner.options.memtable_bytes;
        let create = |(id, (options, descriptor)): (TreeId, (TreeOptions, Vec<u8>))| {
            let version = versions.current(id).ok_or_else(|| Error::internal("a new tree has no version"))?;
            let descriptor = descriptor.into();
            Ok(Arc::new(Tree::new(id, options, descriptor, version, budget_bytes, inner.files.pages())))
        };
        let trees = declared.into_iter().map(create).collect::<Result<Vec<_>>>()?;
        inner.trees.insert(&trees);
        Ok(trees.iter().map(|tree| tree.id).collect())
    }

    /// Drops a tree. Its files are removed when the last view that reads them is dropped.
    ///
    /// # Errors
    /// `NotFound`; as [`create_tree`](Self::create_tree).
    pub fn drop_tree(&self, id: TreeId) -> Result<()> {
        self.drop_with(id, VersionEdit::new())
    }

    /// Drops a tree and sets the descriptor of another tree, `replacement`, in one atomic edit.
    ///
    /// # Errors
    /// As [`drop_tree`](Self::drop_tree).
    pub fn drop_tree_for(&self, id: TreeId, replacement: TreeId, descriptor: &[u8]) -> Result<()> {
        let replacement_tree = self.inner.trees.get(replacement)?;
        let mut edit = VersionEdit::new();
        edit.set_descriptor(replacement, descriptor.to_vec());
        self.drop_with(id, edit)?;
        *replacement_tree.descriptor.write() = descriptor.into();
        Ok(())
    }

    /// Drops a tree as a part of `edit`.
    fn drop_with(&self, id: TreeId, edit: VersionEdit) -> Result<()> {
        let inner = &*self.inner;
        inner.health.check()?;
        let dropped = self.drop_under_locks(id, edit);
        // Writers may wait for a job of the tree, which is not picked any more.
        inner.backlog().changed();
        dropped
    }

    fn drop_under_locks(&self, id: TreeId, mut edit: VersionEdit) -> Result<()> {
        let inner = &*self.inner;
        // Excludes commits during the removal.
        let mut log = inner.log.lock();
        let tree = inner.trees.get(id)?;
        let mut versions = inner.files.versions.lock();
        edit.drop_tree(id);
        apply_edit(&mut versions, edit, &inner.health, &inner.reserve)?;
        tree.dropped.store(true, Ordering::Release);
        inner.trees.remove(id);
        drop(versions);
        drop(tree);
        log.targets.clear();
        inner.active_bytes.set(inner.trees.active_bytes());
        inner.record_drop(&mut log, id)?;
        remove_obsolete_files(&inner.files, &inner.health, &inner.log);
        Ok(())
    }

    /// Sets the descriptor of a tree. Durable when it returns.
    ///
    /// # Errors
    /// `NotFound`; as [`create_tree`](Self::create_tree).
    pub fn set_descriptor(&self, id: TreeId, descriptor: &[u8]) -> Result<()> {
        let inner = &*self.inner;
        inner.health.check()?;
        // In this order, the tree is not dropped in between; that would look like a damaged manifest.
        let mut versions = inner.files.versions.lock();
        let tree = inner.trees.get(id)?;
        let mut edit = VersionEdit::new();
        edit.set_descriptor(id, descriptor.to_vec());
        apply_edit(&mut versions, edit, &inner.health, &inner.reserve)?;
        *tree.descriptor.write() = descriptor.into();
        Ok(())
    }

    /// Sets a filter of the entries that compactions of `tree` write.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree.
    pub fn set_compaction_filter(&self, tree: TreeId, filter: Arc<dyn CompactionFilter>) -> Result<()> {
        let tree = self.inner.trees.get(tree)?;
        tree.row_gate.disable();
        *tree.filter.write() = Some(filter);
        Ok(())
    }

    /// Sets an operator that merges operands in flushes and compactions of `tree`.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree.
    pub fn set_merge_operator(&self, tree: TreeId, operator: Arc<dyn MergeOperator>) -> Result<()> {
        let tree = self.inner.trees.get(tree)?;
        tree.row_gate.disable();
        *tree.merge_operator.write() = Some(operator);
        Ok(())
    }

    /// Sets the collectors of all sstables that `tree` writes from now on; `None` removes them. Sstables that are being
    /// written are not affected.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree.
    pub fn set_meta_collectors(
        &self,
        tree: TreeId,
        factory: Option<Arc<dyn CollectorFactory>>,
    ) -> Result<()> {
        *self.inner.trees.get(tree)?.collectors.write() = factory;
        Ok(())
    }

    /// Sets a listener that receives the versions that flushes and compactions of `tree` drop from now on; `None`
    /// removes it.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree.
    pub fn set_drop_listener(&self, tree: TreeId, listener: Option<Arc<dyn DropListener>>) -> Result<()> {
        *self.inner.trees.get(tree)?.drop_listener.write() = listener;
        Ok(())
    }

    /// The settings of a tree.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree.
    pub fn tree_options(&self, tree: TreeId) -> Result<TreeOptions> {
        self.inner.trees.get(tree).map(|tree| TreeOptions::clone(&tree.options()))
    }

    /// All trees, by number. Cost: copies the settings of each.
    pub fn trees(&self) -> Vec<TreeInfo> {
        let trees = self.inner.trees.load();
        let info = |tree: &Arc<Tree>| TreeInfo {
            id: tree.id,
            options: TreeOptions::clone(&tree.options()),
            descriptor: tree.descriptor.read().clone(),
        };
        trees.values().map(info).collect()
    }

    /// Syncs the log: all acknowledged writes survive a power cut when it returns.
    ///
    /// # Errors
    /// `Io`; a failed sync poisons the handle.
    pub fn sync(&self) -> Result<()> {
        self.inner.health.check()?;
        self.inner.log.sync(&self.inner.health)
    }
}

impl fmt::Debug for StoreInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("dir", &self.options.dir).finish_non_exhaustive()
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
