//! A change of the layout of a tree in use.
//!
//! Every policy can compact the levels of other layouts, in the background, while the tree is read and written. The
//! state of a tree is valid under each layout at any moment: runs in the order of their age.

use bolide_base::{Result, TreeId};

use crate::layout::Layout;
use crate::options::TreeOptions;
use crate::store::Store;
use crate::store::jobs::install::install_placed;
use crate::store::jobs::sorted_view::rebuild_views;
use crate::version::{LAST_LEVEL, Version, VersionEdit, boundaries_between};

impl Store {
    /// Sets the layout of the runs of `tree`. Durable when it returns; sstables are rewritten in the background, once.
    /// Waits for running compactions of the tree.
    ///
    /// A change to `partitioned` or `fragmented`, from a tree whose last level is one run, rewrites nothing: it only
    /// adds boundaries.
    ///
    /// # Errors
    /// `NotFound`; `Io` or `NoSpace` from the manifest; a failed manifest write poisons the handle.
    pub fn set_layout(&self, tree: TreeId, layout: Layout) -> Result<()> {
        let inner = &*self.inner;
        inner.health.check()?;
        let tree = inner.trees.get(tree)?;
        inner.with_reserved(tree.id, || {
            let options = TreeOptions { layout, ..TreeOptions::clone(&tree.options()) };
            let mut edit = VersionEdit::new();
            edit.set_options(tree.id, options.encode());
            install_placed(inner.install_environment(), &tree, edit, &|version, edit| {
                if let Some(tables) = layout.strategy().partition_tables() {
                    add_boundaries(version, tables, edit);
                }
            })?;
            tree.set_options(options);
            Ok(())
        })?;
        rebuild_views(inner.table_environment().views(), &tree)
    }
}

/// Adds boundaries between every `tables` sstables of the last level of `version`, if it has none and is one run.
fn add_boundaries(version: &Version, tables: usize, edit: &mut VersionEdit) {
    let runs = version.level(LAST_LEVEL);
    let [run] = runs else { return };
    if version.boundaries(LAST_LEVEL).is_empty() {
        let metas = run.tables().iter().map(|table| table.meta()).collect();
        for key in boundaries_between(metas, tables) {
            edit.add_boundary(version.tree(), LAST_LEVEL, key);
        }
    }
}
