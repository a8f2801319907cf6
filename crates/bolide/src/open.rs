//! From a store to a database: the collections and indexes that its trees stand for.
//!
//! # What an open finishes
//! * A collection that was being created or dropped when the process ended is dropped, with its
//!   indexes.
//! * An index whose collection is gone is dropped.
//! * An index that was being built is built anew, in a fresh tree; queries do not use it until then.
//!
//! A read-only open leaves all that as it is and does not show it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bolide_base::limits::{MAX_COLLECTIONS, MAX_INDEXES_PER_COLLECTION};
use bolide_base::{Error, Result, TreeId};
use bolide_index::IndexSpec;
use bolide_lsm::{Store, StoreComponents, StoreOptions, TreeInfo};
use bolide_table::BlockCache;
use parking_lot::{Mutex, RwLock};

use crate::catalog::{
    CollectionDescriptor, CollectionState as Life, Descriptor, IndexDescriptor, IndexState,
};
use crate::components::Components;
use crate::handle::{Engine, Handle};
use crate::index_build::{self, Unfinished};
use crate::index_set::{Index, IndexSet, install_filter};
use crate::options::Options;
use crate::progress::Progress;
use crate::schema::{CollectionState, Schema};

/// Opens the database in `path`.
pub(crate) fn open(
    path: &Path,
    options: Options,
    components: Components,
    read_only: bool,
) -> Result<Arc<Handle>> {
    let cache = components.cache.clone().unwrap_or_else(|| BlockCache::new(options.cache_bytes as u64));
    let store_components = StoreComponents {
        vfs: components.vfs.clone(),
        runtime: components.runtime.clone(),
        cache: cache.clone(),
    };
    let store = Store::open(store_options(path, &options, read_only), store_components)?;
    let id = Engine::next_id();
    let catalog = Catalog::read(store.trees())?;
    let (schema, unfinished) = build_schema(id, &catalog, &components)?;
    for collection in schema.values() {
        for index in collection.indexes_guard().all() {
            install_filter(&store, collection.tree, index)?;
        }
    }
    store.start();
    let engine = Arc::new(Engine {
        store,
        id,
        path: path.to_owned(),
        read_only,
        sync: options.sync,
        components,
        cache,
        schema: RwLock::new(schema),
        changing: Mutex::new(()),
        closing: AtomicBool::new(false),
    });
    let handle = Arc::new(Handle { engine, builders: Mutex::new(Vec::new()) });
    if !read_only {
        for tree in &catalog.leftover {
            handle.engine.store.drop_tree(*tree)?;
        }
        index_build::resume(&handle, unfinished, options.background_threads > 0)?;
    }
    Ok(handle)
}

fn store_options(path: &Path, options: &Options, read_only: bool) -> StoreOptions {
    let mut store = StoreOptions::new(path);
    store.create_if_missing = options.create_if_missing && !read_only;
    store.read_only = read_only;
    // Background work may begin once the filters of the indexes are in place.
    store.start_paused = true;
    store.sync = options.sync;
    store.sync_interval = options.sync_interval;
    store.memtable_bytes = options.memtable_bytes;
    store.max_immutable_memtables = options.max_immutable_memtables;
    store.background_threads = if read_only { 0 } else { options.background_threads };
    store.max_open_files = options.max_open_files;
    store.manifest_bytes = options.manifest_bytes;
    store
}

/// The trees of a store, sorted by what they are.
struct Catalog {
    collections: BTreeMap<TreeId, CollectionDescriptor>,
    indexes: BTreeMap<TreeId, IndexDescriptor>,
    /// Trees of collections and indexes that never came to be, or were on their way out.
    leftover: Vec<TreeId>,
}

impl Catalog {
    fn read(trees: Vec<TreeInfo>) -> Result<Self> {
        let mut catalog =
            Self { collections: BTreeMap::new(), indexes: BTreeMap::new(), leftover: Vec::new() };
        for tree in trees {
            match Descriptor::decode(tree.id, &tree.descriptor)? {
                Descriptor::Collection(found) if found.state == Life::Live => {
                    catalog.collections.insert(tree.id, found);
                }
                Descriptor::Collection(_) => catalog.leftover.push(tree.id),
                Descriptor::Index(found) => {
                    catalog.indexes.insert(tree.id, found);
                }
            }
        }
        catalog.sort_out_indexes();
        catalog.check()?;
        Ok(catalog)
    }

    /// Sets aside indexes without a collection, and of two of one name the one that is to be replaced:
    /// a build that starts anew makes its tree before it drops the old one.
    fn sort_out_indexes(&mut self) {
        let mut kept: BTreeMap<(TreeId, String), TreeId> = BTreeMap::new();
        for (&tree, index) in &self.indexes {
            if !self.collections.contains_key(&index.owner) {
                self.leftover.push(tree);
                continue;
            }
            let place = kept.entry((index.owner, index.name.clone())).or_insert(tree);
            let is_ready =
                |tree: &TreeId| self.indexes.get(tree).map(|index| index.state) == Some(IndexState::Ready);
            if *place != tree {
                let goes = if is_ready(place) { tree } else { std::mem::replace(place, tree) };
                self.leftover.push(goes);
            }
        }
        // Indexes go before their collections: a crash in between leaves no index without one.
        self.leftover.sort_unstable_by_key(|tree| !self.indexes.contains_key(tree));
        for tree in &self.leftover {
            self.indexes.remove(tree);
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
        for tree in self.collections.keys() {
            let count = self.indexes.values().filter(|index| index.owner == *tree).count();
            if count > MAX_INDEXES_PER_COLLECTION {
                return damaged(format!("the collection in tree {tree} has {count} indexes"));
            }
        }
        Ok(())
    }
}

fn build_schema(id: u64, catalog: &Catalog, components: &Components) -> Result<(Schema, Vec<Unfinished>)> {
    let mut schema = Schema::new();
    let mut unfinished = Vec::new();
    for (&tree, found) in &catalog.collections {
        let mut indexes = Vec::new();
        for (&index_tree, descriptor) in catalog.indexes.iter().filter(|(_, index)| index.owner == tree) {
            indexes.push(open_index(index_tree, descriptor)?);
        }
        let extractor = components.extractors.get(&found.name).cloned();
        let set = IndexSet::new(found.records, extractor, indexes.clone())?;
        let collection = Arc::new(CollectionState::new(id, tree, found.clone(), set));
        let building = indexes.into_iter().filter(|index| index.progress.state() == IndexState::Building);
        unfinished.extend(building.map(|index| Unfinished { collection: collection.clone(), index }));
        schema.insert(found.name.clone(), collection);
    }
    Ok((schema, unfinished))
}

fn open_index(tree: TreeId, descriptor: &IndexDescriptor) -> Result<Arc<Index>> {
    let of = |error: Error| {
        error.context(format_args!("manifest: the index {:?} in tree {tree}", descriptor.name))
    };
    let spec: IndexSpec = descriptor.spec.parse().map_err(of)?;
    let spec = spec.with_name(descriptor.name.clone()).map_err(of)?;
    let progress = match descriptor.state {
        IndexState::Building => Progress::building(),
        IndexState::Ready => Progress::complete_since(descriptor.since),
    };
    Index::new(spec, tree, progress).map(Arc::new).map_err(of)
}
