//! Another layout for a tree that is in use.
//!
//! Every policy knows what other layouts leave behind and moves it to where it belongs, in the background, while the tree is
//! read and written. What a tree consists of at any moment is right under each layout: runs in the order of their age.

use bolide_base::{Result, TreeId};

use super::Store;
use crate::compaction::partitioned::TABLES_PER_PARTITION;
use crate::options::{Layout, TreeOptions};
use crate::version::{LAST_LEVEL, Version, VersionEdit, boundaries_between};

impl Store {
    /// Arranges the runs of `tree` in another layout from now on. Durable when it returns; what has to be rewritten
    /// for it is so in the background, once. Waits for compactions of the tree that run.
    ///
    /// To `partitioned` and `fragmented` from a tree whose last level is one run nothing is rewritten: it only gets boundaries.
    ///
    /// # Errors
    /// `NotFound`; `Io` or `NoSpace` from the manifest; a failed manifest write poisons the handle.
    pub fn set_layout(&self, tree: TreeId, layout: Layout) -> Result<()> {
        let inner = &*self.inner;
        inner.check_writable()?;
        let tree = inner.tree(tree)?;
        inner.with_reserved(tree.id, || {
            let options = TreeOptions { layout, ..TreeOptions::clone(&tree.options()) };
            let mut edit = VersionEdit::new();
            edit.set_options(tree.id, options.encode());
            let divides = layout.has_partitions();
            inner.install_placed(&tree, edit, &|version, edit| {
                if divides {
                    divide(version, edit);
                }
            })?;
            tree.set_options(options);
            Ok(())
        })?;
        inner.rebuild_views(&tree)
    }
}

/// Cuts the last level of `version` into partitions, where it has none and is one run.
fn divide(version: &Version, edit: &mut VersionEdit) {
    let runs = version.level(LAST_LEVEL);
    let [run] = runs else { return };
    if version.boundaries(LAST_LEVEL).is_empty() {
        let metas = run.tables().iter().map(|table| table.meta()).collect();
        for key in boundaries_between(metas, TABLES_PER_PARTITION) {
            edit.add_boundary(version.tree(), LAST_LEVEL, key);
        }
    }
}
