//! The parts of an index that work on the store instead of on records and queries.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bolide_base::{Result, TreeId};
use bolide_lsm::Store;
use bolide_lsm::version::TableMeta;
use bolide_storage::{Runtime, Vfs};

use crate::figures::Figures;
use crate::in_sstable::SstableIndex;

/// How the build of an index writes entries for existing records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackFillMode {
    /// Without a check: an entry of a record that was replaced meanwhile costs space and a validation, never an answer.
    Blind,
    /// The commit checks that the record was not replaced meanwhile: the entries of an old version would be above those of a
    /// newer one, or would never be removed.
    Checked,
    /// As [`Checked`](Self::Checked). The entries are written at a sequence number of the back-fill instead of that of the
    /// record.
    CheckedAtOwnNumber,
}

/// Where the files of a database are, for an index with files of its own.
#[derive(Debug, Clone, Copy)]
pub struct DatabaseLocation<'l> {
    /// The file system.
    pub vfs: &'l Arc<dyn Vfs>,
    /// Clock, random numbers and threads.
    pub runtime: &'l Arc<dyn Runtime>,
    /// The directory of the database.
    pub dir: &'l Path,
    /// The directory of regions in persistent memory, if the options name one.
    pub dax_dir: Option<&'l Path>,
    /// The name of the collection, for messages and reports.
    pub collection: &'l str,
}

/// What an index does with the store of its database: filters of compactions, meta blocks in sstables, an external tree,
/// statistics. The database calls these methods when it opens, builds or inspects an index, never during a write or a query.
///
/// Every method has a default, for a kind with entries in a tree of its own and nothing else.
pub trait IndexHooks: Send + Sync + fmt::Debug {
    /// Its part in the sstables of the records.
    fn in_sstables(&self) -> Option<Arc<dyn SstableIndex>> {
        None
    }

    /// Installs compaction filters and merge operators for its tree. `table` is the tree of the records. Called once, before
    /// the first write.
    ///
    /// # Errors
    /// `NotFound` if one of the trees does not exist.
    fn install(&self, store: &Store, table: TreeId) -> Result<()> {
        let _ = (store, table);
        Ok(())
    }

    /// How its build writes entries for existing records.
    fn back_fill(&self) -> BackFillMode {
        BackFillMode::Blind
    }

    /// Attaches an external tree, which receives all later writes of its tree: at the end of the build, and at every opening.
    /// Does nothing if it is attached already, or if the kind has none.
    ///
    /// # Errors
    /// `Corruption` or `Io` from its files; `Unsupported` if it requires persistent memory that is missing; `NoSpace` if
    /// memory is exhausted.
    fn attach(&self, store: &Store, table: TreeId, location: DatabaseLocation<'_>) -> Result<()> {
        let _ = (store, table, location);
        Ok(())
    }

    /// As [`attach`](Self::attach) at an opening, but the external tree is opened only when it is needed. Returns false, without
    /// any effect, if it has to be attached at once.
    ///
    /// # Errors
    /// `NotFound` if its tree or that of the records does not exist.
    fn attach_when_needed(
        &self,
        store: &Store,
        table: TreeId,
        location: DatabaseLocation<'_>,
    ) -> Result<bool> {
        let _ = (store, table, location);
        Ok(false)
    }

    /// Whether a crash may have left unreachable space that [`reclaim`](Self::reclaim) frees.
    fn needs_reclaim(&self) -> bool {
        false
    }

    /// Frees space that a crash left unreachable. Runs in a background thread.
    ///
    /// # Errors
    /// `Corruption` or `Io`; the space stays allocated.
    fn reclaim(&self) -> Result<()> {
        Ok(())
    }

    /// Whether sstables that are older than the index are rewritten in the background to add its part.
    fn rewrites_sstables(&self) -> bool {
        false
    }

    /// Whether an sstable has its part, by the manifest entry of the sstable, for a kind that
    /// [rewrites sstables](Self::rewrites_sstables). No I/O.
    fn is_carried_by(&self, meta: &TableMeta) -> bool {
        let _ = meta;
        true
    }

    /// The share of stale entries, if the index counts them: `Some(None)` for an index without entries. `None`: the share
    /// can be estimated from a sample.
    fn stale_share(&self) -> Option<Option<f64>> {
        None
    }

    /// Its size besides that of its tree. `table` is the tree of the records. No I/O.
    fn figures(&self, store: &Store, table: TreeId) -> Option<Figures> {
        let _ = (store, table);
        None
    }

    /// The use of its space in detail, if the kind reports it. Cost: may read the whole index, in memory.
    ///
    /// # Errors
    /// `Corruption`.
    fn space(&self) -> Result<Option<Figures>> {
        Ok(None)
    }
}
