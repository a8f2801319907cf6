//! Indexes in external trees, held in memory and written by checkpoints: those of kind `ps-tree`.
//!
//! Such an index has a tree like every other. During the build its entries go there, by the rules of
//! [`crate::index_build`]. When the build is complete, an external tree is attached, which receives all later writes of
//! the tree. An opening creates the external tree from what the manifest names, before anything is written.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use bolide_base::{Result, SequenceNumber, TreeId};
use bolide_index::ps_tree_index::{
    DeletedRanges, PsTreeBackend, RegionLocation, file_in_place, is_file_in_place,
};
use bolide_lsm::Store;
use bolide_lsm::store::TreeReader;

use crate::components::Components;
use crate::index_set::Index;

/// The deleted ranges of a collection.
#[derive(Debug)]
struct RangesOf {
    records: TreeReader,
}

impl DeletedRanges for RangesOf {
    fn newest(&self, primary_key: &[u8], at: SequenceNumber) -> SequenceNumber {
        self.records.newest_range_tombstone_at(primary_key, at)
    }

    fn newest_of_all(&self) -> SequenceNumber {
        self.records.newest_range_tombstone_of_all()
    }

    fn are_there(&self) -> bool {
        self.records.has_range_tombstones()
    }
}

/// Attaches the external tree of `index`, over the records in `table`, if its kind has one and it is not attached yet.
/// `dir` is the directory of the database, `dax_dir` that of persistent memory.
///
/// # Errors
/// `Corruption` or `Io` from its files; `Unsupported` if it requires persistent memory that is missing; `NoSpace` if
/// memory is exhausted.
pub(crate) fn attach(
    store: &Store,
    components: &Components,
    dir: &Path,
    dax_dir: Option<&Path>,
    table: TreeId,
    index: &Index,
) -> Result<()> {
    let Some(ps_tree) = index.ps_tree.as_ref().filter(|ps_tree| ps_tree.backend().is_none()) else {
        return Ok(());
    };
    let location = RegionLocation {
        vfs: components.vfs.clone(),
        runtime: components.runtime.clone(),
        dir: dir.to_owned(),
        dax_dir: dax_dir.map(Path::to_owned),
        database_id: store.database_id(),
        seed: components.runtime.random_u64(),
        tag: components.runtime.random_u64().max(1),
        read_only: store.options().read_only,
        deleted: Arc::new(RangesOf { records: store.tree_reader(table)? }),
    };
    let root = store.external_root(index.tree);
    let name_root = |root| store.name_external_root(index.tree, root);
    let backend = PsTreeBackend::open(index.spec(), index.tree, root.as_deref(), &location, &name_root)?;
    let external = Arc::new(backend);
    store.set_external_tree(index.tree, external.clone())?;
    ps_tree.attach(external)
}

/// Drops the tree of an index with its whole content. With `replacement`, the tree of a replacement index and its new
/// descriptor, both happen or neither.
///
/// # Errors
/// Those of [`Store::drop_tree`]. A file that could not be removed is removed by the next opening, if it lies in the
/// directory of the database.
pub(crate) fn drop_tree(
    store: &Store,
    components: &Components,
    dax_dir: Option<&Path>,
    tree: TreeId,
    replacement: Option<(TreeId, &[u8])>,
) -> Result<()> {
    let root = store.external_root(tree);
    match replacement {
        Some((replacement, descriptor)) => store.drop_tree_for(tree, replacement, descriptor)?,
        None => store.drop_tree(tree)?,
    }
    let file = root.and_then(|root| file_in_place(&root, &store.options().dir, dax_dir));
    if let Some(file) = file {
        let _ = components.vfs.remove(&file);
    }
    Ok(())
}

/// Removes region files in the directory of the database that no index has: those of an interrupted drop.
pub(crate) fn remove_unknown_files(store: &Store, components: &Components) -> Result<()> {
    let dir = &store.options().dir;
    let is_region = |name: &String| is_file_in_place(name, store.database_id());
    let mut unknown: Vec<String> = components.vfs.list(dir)?.into_iter().filter(is_region).collect();
    for tree in store.trees() {
        // Compares names alone, which are unique: the directory of persistent memory may be this one by another path.
        let known = store.external_root(tree.id).and_then(|root| file_in_place(&root, dir, None));
        let name = known.as_deref().and_then(Path::file_name);
        unknown.retain(|other| Some(OsStr::new(other)) != name);
    }
    unknown.iter().try_for_each(|name| components.vfs.remove(&dir.join(name)))
}
