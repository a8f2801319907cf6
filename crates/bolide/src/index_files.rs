//! Files of indexes that the store does not manage: regions in persistent memory.

use std::ffi::OsStr;
use std::path::Path;

use bolide_base::{Result, TreeId};
use bolide_index::hooks::DatabaseLocation;
use bolide_index::kinds::{is_own_file, own_file_of};
use bolide_lsm::Store;

use crate::components::Components;

/// Where the files of the indexes of `collection`, of a database in `dir`, are.
pub(crate) fn location<'l>(
    components: &'l Components,
    dir: &'l Path,
    dax_dir: Option<&'l Path>,
    collection: &'l str,
) -> DatabaseLocation<'l> {
    DatabaseLocation { vfs: &components.vfs, runtime: &components.runtime, dir, dax_dir, collection }
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
    let file = root.and_then(|root| own_file_of(&root, &store.options().dir, dax_dir));
    if let Some(file) = file {
        let _ = components.vfs.remove(&file);
    }
    Ok(())
}

/// Removes region files in the directory of the database that no index has: those of an interrupted drop.
pub(crate) fn remove_unknown_files(store: &Store, components: &Components) -> Result<()> {
    let dir = &store.options().dir;
    let is_region = |name: &String| is_own_file(name, store.database_id());
    let mut unknown: Vec<String> = components.vfs.list(dir)?.into_iter().filter(is_region).collect();
    for tree in store.trees() {
        // Compares names alone, which are unique: the directory of persistent memory may be this one by another path.
        let known = store.external_root(tree.id).and_then(|root| own_file_of(&root, dir, None));
        let name = known.as_deref().and_then(Path::file_name);
        unknown.retain(|other| Some(OsStr::new(other)) != name);
    }
    unknown.iter().try_for_each(|name| components.vfs.remove(&dir.join(name)))
}
