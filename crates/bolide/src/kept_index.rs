//! Indexes that are kept in memory, and written down by cuts: those of kind `ps-tree`.
//!
//! Such an index has a tree like every other. While it is built its entries go there, by the rules of
//! [`crate::index_build`]; when it is complete its tree is handed to a keeper, and from then on the keeper takes what is
//! written to the tree. At an opening the keeper is made from what the manifest names, before anything is written.

use std::path::Path;
use std::sync::Arc;

use bolide_base::{Result, SequenceNumber, TreeId};
use bolide_index::perseid::{DeletedRanges, Kept, KeptHome};
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
}

/// Has `index`, of the records in `table`, kept from now on, if it is of a kind that is kept and is not kept yet. `dir` is
/// the directory of the database.
///
/// # Errors
/// `Corruption` or `Io` from its files; `NoSpace` for want of memory.
pub(crate) fn keep(
    store: &Store,
    components: &Components,
    dir: &Path,
    table: TreeId,
    index: &Index,
) -> Result<()> {
    let Some(ps_tree) = index.ps_tree.as_ref().filter(|ps_tree| ps_tree.kept().is_none()) else {
        return Ok(());
    };
    let home = KeptHome {
        vfs: components.vfs.clone(),
        dir: dir.to_owned(),
        database_id: store.database_id(),
        seed: components.runtime.random_u64(),
        deleted: Arc::new(RangesOf { records: store.tree_reader(table)? }),
    };
    let root = store.kept_root(index.tree);
    let kept = Arc::new(Kept::open(index.spec(), index.tree, root.as_deref(), home)?);
    store.set_keeper(index.tree, kept.clone())?;
    ps_tree.keep(kept)
}
