//! Construction of a database from a store: the collections and indexes of its trees.
//!
//! # What an open completes
//! * A collection that was being created or dropped when the process ended is dropped, with its
//!   indexes.
//! * An index without a collection is dropped.
//! * The build of an index continues; queries do not use the index until it is complete. A replacement index is dropped
//!   or replaces the old one, according to its descriptor.
//! * A key index that no index uses is dropped.
//!
//! # Indexes with damaged or missing files
//! Only records are irreplaceable. An index of which a file is missing or damaged is *damaged*: queries do not use it;
//! lists, statistics and checks report its name and the cause. An open for writing empties its tree and builds it
//! again, as an interrupted build; see [`crate::damaged`]. A region in persistent memory is not discarded, as it may be
//! mounted later: its index is isolated until an open finds the region, or until an explicit rebuild.
//!
//! A read-only open changes nothing: it does not use damaged indexes, and hides incomplete collections.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bolide_base::limits::{MAX_COLLECTIONS, MAX_INDEXES_PER_COLLECTION};
use bolide_base::{Error, ErrorKind, Result, TreeId};
use bolide_index::kinds::own_file_of;
use bolide_index::{IndexSpec, ValidationStrategy};
use bolide_lsm::{Store, StoreComponents, StoreOptions, TreeInfo};
use bolide_memory::{MemoryBudget, MemoryPool};
use bolide_table::BlockCache;
use parking_lot::{Mutex, RwLock};

use crate::catalog::{
    CollectionDescriptor, CollectionLifecycle as Life, Descriptor, IndexDescriptor, IndexState,
    KeyIndexDescriptor,
};
use crate::components::Components;
use crate::damaged;
use crate::fetching::Fetching;
use crate::handle::{Engine, Handle};
use crate::index_build::{self, Job};
use crate::index_files;
use crate::index_set::{Index, IndexSet};
use crate::memory_plan::MemoryPlan;
use crate::options::Options;
use crate::owner::Owner;
use crate::progress::Progress;
use crate::schema::{OpenCollection, Schema};
use crate::stale_deletions::Repairs;
use crate::stale_removal;
use crate::trace::TraceRecorder;

/// The name of the thread's work that frees space after a crash, for messages.
const RECLAIM: &str = "freeing unreachable space in the region of an index";

/// The record of recent commits takes at most this much memory, at most as much as the writable memtables, and at most
/// a quarter of the budget.
const MAX_RECENT_COMMIT_BYTES: usize = 256 << 20;

/// Opens the database in `path`.
pub(crate) fn open(
    path: &Path,
    options: Options,
    components: Components,
    read_only: bool,
) -> Result<Arc<Handle>> {
    let plan = MemoryPlan::new(&options, components.runtime.memory_bytes())?;
    let (row_cache_bytes, cache) = caches(&plan, &options, &components);
    let store_components = StoreComponents {
        vfs: components.vfs.clone(),
        runtime: components.runtime.clone(),
        cache: cache.clone(),
    };
    let store =
        Store::open(store_options(path, &options, read_only, row_cache_bytes, &plan), store_components)?;
    let id = Engine::next_id();
    let catalog = Catalog::read(store.trees())?;
    let repairs = Arc::new(Repairs::default());
    let trace = options.trace.then(Arc::<TraceRecorder>::default);
    let (schema, mut unfinished) = build_schema(id, &catalog, &components, read_only, trace.as_deref())?;
    let dax_dir = options.dax_dir.as_deref();
    for collection in schema.values() {
        for index in collection.indexes_guard().all() {
            index.hooks.install(&store, collection.tree)?;
            // The entries of an index that is being built are still in its tree, unless it was almost ready.
            let is_ready = index.progress.state() == IndexState::Ready;
            let root = store.external_root(index.tree);
            if !is_ready && root.is_none() {
                continue;
            }
            let location = index_files::location(&components, path, dax_dir, &collection.name);
            if is_ready && index.hooks.attach_when_needed(&store, collection.tree, location)? {
                continue;
            }
            let attached = index.hooks.attach(&store, collection.tree, location);
            let in_place = root.and_then(|root| own_file_of(&root, path, dax_dir)).is_some();
            match attached {
                Err(damage) if damage.is_corruption() && !in_place && !read_only => {
                    damaged::empty(&store, collection, index, damage)?;
                    if is_ready {
                        unfinished.push(Job::resumed(collection, index, (0, 0)));
                    }
                }
                attached => isolate_or_fail(attached, &collection.name, index)?,
            }
        }
        collection.indexes_guard().install_collectors(&store, collection.tree, &repairs)?;
    }
    store.start();
    let engine = Arc::new(Engine {
        fetching: Fetching::new(options.fetch_settings(), &components.runtime),
        store,
        id,
        path: path.to_owned(),
        dax_dir: options.dax_dir.clone(),
        read_only,
        sync: options.sync,
        components,
        cache,
        schema: RwLock::new(schema),
        changing: Mutex::new(()),
        repairs,
        background_errors: Arc::default(),
        closing: AtomicBool::new(false),
        builds_in_background: options.background_threads > 0,
        memtable_bytes: plan.memtable_bytes,
        trace,
    });
    let handle = Arc::new(Handle { engine, builders: Mutex::new(Vec::new()) });
    stale_removal::start(&handle)?;
    if !read_only {
        for tree in &catalog.leftover {
            handle.engine.drop_tree(*tree)?;
        }
        index_files::remove_unknown_files(&handle.engine.store, &handle.engine.components)?;
        reclaim(&handle, options.background_threads > 0)?;
        index_build::resume(&handle, unfinished, options.background_threads > 0)?;
    }
    Ok(handle)
}

/// Isolates an index whose region cannot be loaded. Errors that do not concern the region fail the open.
fn isolate_or_fail(attached: Result<()>, collection: &str, index: &Index) -> Result<()> {
    let of_region = [ErrorKind::Corruption, ErrorKind::NotFound, ErrorKind::Unsupported];
    match attached {
        Err(error) if of_region.contains(&error.kind()) => {
            let name = &index.name;
            index.progress.isolate(error.context(format_args!(
                "the index {name:?} of {collection:?} is not used: put its file back and open the database again, or \
                 rebuild the index from the records (`bolide index rebuild`, `Collection::rebuild_index`)"
            )));
            Ok(())
        }
        attached => attached,
    }
}

/// Frees space that a crash left unreachable in the regions of indexes: in a thread of its own if background threads
/// are allowed.
fn reclaim(handle: &Arc<Handle>, in_background: bool) -> Result<()> {
    let schema = handle.engine.schema.read();
    let indexes = schema.values().flat_map(|collection| collection.indexes_guard().all().to_vec());
    let waiting: Vec<Arc<Index>> = indexes.filter(|index| index.hooks.needs_reclaim()).collect();
    drop(schema);
    if waiting.is_empty() || handle.engine.read_only {
        return Ok(());
    }
    // A failure leaves unreachable space allocated. The statistics report it.
    let errors = handle.engine.background_errors.clone();
    let reclaim_one = move |index: &Arc<Index>| _ = errors.watch(RECLAIM, || index.hooks.reclaim());
    let work = move || waiting.iter().for_each(reclaim_one);
    if !in_background {
        work();
        return Ok(());
    }
    let thread = handle.engine.components.runtime.spawn("bolide-reclaim", Box::new(work))?;
    handle.builders.lock().push(thread);
    Ok(())
}

/// The bytes of the row cache, and the cache of blocks.
fn caches(plan: &MemoryPlan, options: &Options, components: &Components) -> (usize, Arc<BlockCache>) {
    if let Some(cache) = &components.cache {
        return (options.row_cache_bytes.unwrap_or(0), cache.clone());
    }
    let pool = MemoryPool::with_budget(MemoryBudget::new(plan.budget_bytes));
    (plan.row_cache_bytes, BlockCache::with_memory(plan.block_cache_bytes, pool))
}

fn store_options(
    path: &Path,
    options: &Options,
    read_only: bool,
    row_cache_bytes: usize,
    plan: &MemoryPlan,
) -> StoreOptions {
    let mut store = StoreOptions::new(path);
    store.row_cache_bytes = row_cache_bytes;
    let quarter = usize::try_from(plan.budget_bytes / 4).unwrap_or(usize::MAX);
    store.recent_commit_bytes = MAX_RECENT_COMMIT_BYTES.min(plan.memtable_bytes).min(quarter);
    store.create_if_missing = options.create_if_missing && !read_only;
    store.read_only = read_only;
    // Background work starts once the filters of the indexes are installed.
    store.start_paused = true;
    store.sync = options.sync;
    store.sync_interval = options.sync_interval;
    store.memtable_bytes = plan.memtable_bytes;
    store.max_immutable_memtables = options.max_immutable_memtables;
    store.background_threads = if read_only { 0 } else { options.background_threads };
    store.max_open_files = options.max_open_files;
    store.manifest_bytes = options.manifest_bytes;
    store.reserve_bytes = options.reserve_bytes;
    store.sorted_views = options.sorted_views;
    store.view_delay_percent = options.view_delay_percent;
    store.partition_tables = options.partition_tables.clamp(2, 60);
    store.memory_compaction = options.memory_compaction;
    store.reset_tree = Some(damaged::reset_tree);
    store
}

/// The trees of a store by their kinds.
struct Catalog {
    collections: BTreeMap<TreeId, CollectionDescriptor>,
    indexes: BTreeMap<TreeId, IndexDescriptor>,
    key_indexes: BTreeMap<TreeId, KeyIndexDescriptor>,
    /// Trees of collections and indexes that were not created completely, or were being dropped.
    leftover: Vec<TreeId>,
}

impl Catalog {
    fn read(trees: Vec<TreeInfo>) -> Result<Self> {
        let mut catalog = Self {
            collections: BTreeMap::new(),
            indexes: BTreeMap::new(),
            key_indexes: BTreeMap::new(),
            leftover: Vec::new(),
        };
        for tree in trees {
            match Descriptor::decode(tree.id, &tree.descriptor)? {
                Descriptor::Collection(found) if found.state == Life::Live => {
                    catalog.collections.insert(tree.id, found);
                }
                Descriptor::Collection(_) => catalog.leftover.push(tree.id),
                Descriptor::Index(found) => {
                    catalog.indexes.insert(tree.id, found);
                }
                Descriptor::KeyIndex(found) => {
                    catalog.key_indexes.insert(tree.id, found);
                }
            }
        }
        catalog.sort_out_indexes();
        catalog.sort_out_key_indexes()?;
        catalog.check()?;
        Ok(catalog)
    }

    /// Sorts out indexes without a collection, and of several of one name those that were replaced or failed: the
    /// newest ready one stays, and its newest replacement.
    fn sort_out_indexes(&mut self) {
        let mut by_name: BTreeMap<(TreeId, &str), Vec<TreeId>> = BTreeMap::new();
        for (&tree, index) in &self.indexes {
            by_name.entry((index.owner, &index.name)).or_default().push(tree);
        }
        let mut first = Vec::new();
        for ((owner, _), trees) in by_name {
            let is_ready = |tree: &TreeId| {
                self.indexes.get(tree).is_some_and(|index| index.life.state == IndexState::Ready)
            };
            let ready = trees.iter().copied().rev().find(is_ready);
            let newest = trees.last().copied();
            let replaces_ready =
                |tree: &TreeId| self.indexes.get(tree).is_some_and(|index| index.life.replaces == ready);
            let stays = |tree: TreeId| match ready {
                _ if !self.collections.contains_key(&owner) => false,
                Some(ready) => tree == ready || (Some(tree) == newest && replaces_ready(&tree)),
                None => Some(tree) == newest,
            };
            self.leftover.extend(trees.iter().copied().filter(|&tree| !stays(tree)));
            first.extend(newest.filter(|_| ready.is_none()));
        }
        // The index that these were to replace does not exist: they are the first of their names.
        for tree in first {
            if let Some(index) = self.indexes.get_mut(&tree) {
                index.life.replaces = None;
            }
        }
        // Indexes are dropped before their collections: a crash in between leaves no index without one.
        self.leftover.sort_unstable_by_key(|tree| !self.indexes.contains_key(tree));
        for tree in &self.leftover {
            self.indexes.remove(tree);
        }
    }

    /// Sorts out key indexes that no index uses: they are created before the first and dropped after the last.
    fn sort_out_key_indexes(&mut self) -> Result<()> {
        let mut users: BTreeMap<TreeId, usize> = BTreeMap::new();
        for index in self.indexes.values() {
            let uses = index.spec.parse::<IndexSpec>().map(|spec| spec.validation());
            if uses.is_ok_and(|validation| validation == ValidationStrategy::KeyIndex) {
                *users.entry(index.owner).or_default() += 1;
            }
        }
        let unused = |(_, found): &(&TreeId, &KeyIndexDescriptor)| !users.contains_key(&found.owner);
        let unused: Vec<TreeId> = self.key_indexes.iter().filter(unused).map(|(&tree, _)| tree).collect();
        for tree in unused {
            self.key_indexes.remove(&tree);
            self.leftover.insert(0, tree);
        }
        let mut owners: Vec<TreeId> = self.key_indexes.values().map(|found| found.owner).collect();
        owners.sort_unstable();
        match owners.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => {
                let what = format!("the collection in tree {} has two key indexes", pair[0]);
                Err(Error::corruption("manifest", 0, what))
            }
            None => Ok(()),
        }
    }

    fn check(&self) -> Result<()> {
        let damaged = |what: String| Err(Error::corruption("manifest", 0, what));
        let mut names: Vec<&str> = self.collections.values().map(|found| found.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return damaged(format!("there are two collections {:?}", pair[0]));
        }
        if names.len() > MAX_COLLECTIONS {
            return damaged(format!("there are {} collections", names.len()));
        }
        let over_limit = |(_, of_one): &(TreeId, Vec<_>)| of_one.len() > MAX_INDEXES_PER_COLLECTION;
        match self.indexes_by_owner().into_iter().find(over_limit) {
            Some((tree, of_one)) => {
                damaged(format!("the collection in tree {tree} has {} indexes", of_one.len()))
            }
            None => Ok(()),
        }
    }

    /// The indexes of each collection that has some, with their trees, ascending.
    fn indexes_by_owner(&self) -> BTreeMap<TreeId, Vec<(TreeId, &IndexDescriptor)>> {
        let mut by_owner: BTreeMap<TreeId, Vec<(TreeId, &IndexDescriptor)>> = BTreeMap::new();
        for (&tree, index) in &self.indexes {
            by_owner.entry(index.owner).or_default().push((tree, index));
        }
        by_owner
    }
}

fn build_schema(
    id: u64,
    catalog: &Catalog,
    components: &Components,
    read_only: bool,
    trace: Option<&TraceRecorder>,
) -> Result<(Schema, Vec<Job>)> {
    let mut schema = Schema::new();
    let mut unfinished = Vec::new();
    let mut by_owner = catalog.indexes_by_owner();
    let key_trees: BTreeMap<TreeId, TreeId> =
        catalog.key_indexes.iter().map(|(&tree, keys)| (keys.owner, tree)).collect();
    for (&tree, found) in &catalog.collections {
        let mut key_index = None;
        if let Some(key_tree) = key_trees.get(&tree)
            && let Some(descriptor) = catalog.key_indexes.get(key_tree)
        {
            key_index = Some(Arc::new(Index::of_keys(*key_tree, Progress::of(&descriptor.life))?));
        }
        let mut indexes = Vec::new();
        let extractor = components.extractors.get(&found.name).cloned();
        let owner = Owner::new(tree, found.records, extractor.clone());
        for (index_tree, descriptor) in by_owner.remove(&tree).unwrap_or_default() {
            let index = open_index(index_tree, &owner, descriptor, key_index.as_deref())?;
            indexes.push(Arc::new(components.wrap(index, tree)));
        }
        damaged::prepare(&indexes, key_index.as_deref(), read_only);
        let set = IndexSet::new(found.records, extractor, indexes.clone())?.with_key_index(key_index);
        let collection = Arc::new(OpenCollection::new(id, tree, found.clone(), set, trace));
        for index in indexes {
            let limits = catalog.indexes.get(&index.tree).map_or((0, 0), |found| found.life.limits);
            let may_go_on = index.hooks.rewrites_sstables() && index.progress.state() == IndexState::Ready;
            if may_go_on || index.progress.state() == IndexState::Building {
                unfinished.push(Job::resumed(&collection, &index, limits));
            }
        }
        schema.insert(found.name.clone(), collection);
    }
    Ok((schema, unfinished))
}

fn open_index(
    tree: TreeId,
    owner: &Owner,
    descriptor: &IndexDescriptor,
    keys: Option<&Index>,
) -> Result<Index> {
    let of = |error: Error| {
        error.context(format_args!("manifest: the index {:?} in tree {tree}", descriptor.name))
    };
    let spec: IndexSpec = descriptor.spec.parse().map_err(of)?;
    let spec = spec.with_name(descriptor.name.clone()).map_err(of)?;
    let progress = Progress::of(&descriptor.life);
    let mut index = Index::new(spec, tree, progress, owner, keys).map_err(of)?;
    index.replaces = descriptor.life.replaces;
    Ok(index)
}
