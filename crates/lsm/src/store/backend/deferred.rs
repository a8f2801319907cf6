//! External trees that are opened when they are first needed.
//!
//! Such a tree begins as an LSM tree: writes since the last checkpoint, replayed ones included, are in its memtables. So an opening
//! reads no file of the external tree, and neither does a write. It is opened and set, with these writes, by the first
//!
//! * read of the layer above ([`DeferredExternalTree::attach`]),
//! * flush of the tree, in place of the flush,
//! * call of [`Store::verify`], which only reads its files.
//!
//! If its files are damaged, or memory is short, memtables are flushed to sstables, as before an external tree is set: no write
//! fails. A later attachment transfers them. A refusal by the memory budget is remembered until the budget has more room, or for a
//! number of calls ([`Refusal`]).

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bolide_base::{Error, ErrorKind, Result, TreeId};
use bolide_memory::MemoryBudget;
use parking_lot::Mutex;

use crate::external_tree::{ExternalRoot, ExternalTree, ExternalTreeStats};
use crate::store::backend::refusal::Refusal;
use crate::store::{Store, StoreInner};

/// Opens the external tree of one tree.
pub trait ExternalTreeOpener: Send + Sync + fmt::Debug {
    /// Opens the external tree in the state of `root`; an empty one without a root.
    ///
    /// # Errors
    /// `Corruption`, `NotFound` or `Unsupported` for its files: it is not opened again. Any other error: a later call tries
    /// again.
    fn open(&self, root: Option<&ExternalRoot>) -> Result<Arc<dyn ExternalTree>>;

    /// Reads and checks the files of `root`, without opening the external tree; returns their number and their bytes.
    ///
    /// # Errors
    /// `Corruption` with file and offset; `Io`.
    fn verify(&self, root: &ExternalRoot) -> Result<(u64, u64)>;

    /// The disk space of the files of `root`, without opening the external tree. Cost: one small read.
    ///
    /// # Errors
    /// `Corruption` or `Io` from the root.
    fn stats(&self, root: &ExternalRoot) -> Result<ExternalTreeStats>;
}

/// An external tree that is opened when it is needed.
#[derive(Clone)]
pub struct DeferredExternalTree(Arc<Deferral>);

/// The state of a deferred external tree.
pub(in crate::store) struct Deferral {
    store: Weak<StoreInner>,
    tree: TreeId,
    opener: Arc<dyn ExternalTreeOpener>,
    /// Serialises openings.
    opening: Mutex<()>,
    is_attached: AtomicBool,
    /// The damage of its files.
    damage: OnceLock<Error>,
    /// The last opening failed for another reason: memory is short. Flushes do not wait for another one.
    was_refused: AtomicBool,
    refusal: Mutex<Option<Refusal>>,
    /// Openings that the memory budget refused.
    refusals: AtomicU64,
    stats: OnceLock<ExternalTreeStats>,
}

impl DeferredExternalTree {
    /// Opens and sets the external tree, unless it is set. Cost of the first call: that of opening it, and the transfer of the
    /// writes since its root.
    ///
    /// # Errors
    /// Those of [`ExternalTreeOpener::open`] and [`Store::set_external_tree`]; `Closed`; `NotFound` for a dropped tree.
    pub fn attach(&self) -> Result<()> {
        if self.is_attached() {
            return Ok(());
        }
        let closed = || Error::new(ErrorKind::Closed, "the database is closed");
        self.0.attach(&*self.0.store.upgrade().ok_or_else(closed)?)
    }

    /// Whether the external tree is set.
    pub fn is_attached(&self) -> bool {
        self.0.is_attached.load(Ordering::Acquire)
    }
}

impl fmt::Debug for DeferredExternalTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Deferral {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeferredExternalTree")
            .field("tree", &self.tree)
            .field("is_attached", &self.is_attached)
            .finish_non_exhaustive()
    }
}

impl Deferral {
    /// As [`DeferredExternalTree::attach`].
    pub(in crate::store) fn attach(&self, store: &StoreInner) -> Result<()> {
        if self.is_attached.load(Ordering::Acquire) {
            return Ok(());
        }
        let budget = store.files.tables.cache.memory_pool().budget();
        let refusals = self.refusals.load(Ordering::Acquire);
        // Without the lock: a reader with another plan does not wait for an opening.
        if let Some(error) = self.refusal(budget) {
            return Err(error);
        }
        let _opening = self.opening.lock();
        if self.is_attached.load(Ordering::Acquire) {
            return Ok(());
        }
        if let Some(damage) = self.damage.get() {
            return Err(damage.clone());
        }
        // The opening that this call waited for was refused.
        if self.refusals.load(Ordering::Acquire) != refusals
            && let Some(refusal) = &*self.refusal.lock()
        {
            return Err(refusal.error().clone());
        }
        // In this order, a root is not missing because the tree is being dropped.
        let versions = store.files.versions.lock();
        let tree = store.trees.get(self.tree)?;
        let root = versions.external_root(self.tree);
        drop(versions);
        let attached = self
            .opener
            .open(root.as_deref())
            .and_then(|external_tree| store.set_external_tree(&tree, &external_tree));
        // The files of a tree that was dropped meanwhile may be gone.
        store.trees.get(self.tree)?;
        match &attached {
            Ok(()) => self.is_attached.store(true, Ordering::Release),
            Err(error) if is_damage(error) => _ = self.damage.set(error.clone()),
            Err(error) => {
                self.was_refused.store(true, Ordering::Release);
                self.remember_refusal(error, budget);
            }
        }
        attached
    }

    /// The error of the last opening, if it was refused by `budget` and is not to be attempted again yet.
    fn refusal(&self, budget: &MemoryBudget) -> Option<Error> {
        if self.refusals.load(Ordering::Acquire) == 0 {
            return None;
        }
        let grantable_bytes = budget.grantable_bytes();
        let mut refusal = self.refusal.lock();
        let refusal = refusal.as_mut()?;
        (!refusal.is_over(grantable_bytes)).then(|| refusal.error().clone())
    }

    /// Called when the memory of the opening was given back. Errors that have other causes are not remembered.
    fn remember_refusal(&self, error: &Error, budget: &MemoryBudget) {
        let Some(needed_bytes) = error.needed_memory_bytes() else { return };
        let grantable_bytes = budget.grantable_bytes();
        let mut refusal = self.refusal.lock();
        *refusal = Some(Refusal::new(error.clone(), needed_bytes, grantable_bytes, refusal.as_ref()));
        self.refusals.fetch_add(1, Ordering::Release);
    }

    /// Whether a flush opens the external tree, instead of writing an sstable.
    pub(in crate::store) fn is_due_at_flush(&self) -> bool {
        !self.is_attached.load(Ordering::Acquire)
            && self.damage.get().is_none()
            && !self.was_refused.load(Ordering::Acquire)
    }

    /// The damage that an opening found.
    pub(in crate::store) fn damage(&self) -> Option<&Error> {
        self.damage.get()
    }

    /// As [`ExternalTreeOpener::stats`], read once; nothing if that fails.
    pub(in crate::store) fn stats(&self) -> ExternalTreeStats {
        *self.stats.get_or_init(|| {
            let root =
                self.store.upgrade().and_then(|store| store.files.versions.lock().external_root(self.tree));
            root.and_then(|root| self.opener.stats(&root).ok()).unwrap_or_default()
        })
    }

    /// As [`ExternalTreeOpener::verify`]; `None` if the external tree is set, or was set meanwhile. Openings do not wait for it.
    pub(in crate::store) fn verify(&self, store: &StoreInner) -> Option<Result<(u64, u64)>> {
        let root = store.files.versions.lock().external_root(self.tree);
        if self.is_attached.load(Ordering::Acquire) {
            return None;
        }
        let verified = root.as_ref().map_or(Ok((0, 0)), |root| self.opener.verify(root));
        if let Err(error) = &verified {
            // The first checkpoint after an opening, or a drop of the tree, removes the files that were read.
            if store.files.versions.lock().external_root(self.tree) != root {
                return None;
            }
            if is_damage(error) {
                let _ = self.damage.set(error.clone());
            }
        }
        Some(verified)
    }
}

fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corruption | ErrorKind::NotFound | ErrorKind::Unsupported)
}

impl Store {
    /// Declares that `tree` has an external tree, which `opener` opens when it is needed; see [`ExternalTreeOpener`]. Called once,
    /// between an opening with [`start_paused`](crate::StoreOptions::start_paused) and [`start`](Self::start).
    ///
    /// # Errors
    /// `NotFound` if there is no such tree; `Conflict` if it was called before.
    pub fn defer_external_tree(
        &self,
        tree: TreeId,
        opener: Arc<dyn ExternalTreeOpener>,
    ) -> Result<DeferredExternalTree> {
        let of = self.inner.trees.get(tree)?;
        let deferral = Arc::new(Deferral {
            store: self.inner.itself.clone(),
            tree,
            opener,
            opening: Mutex::new(()),
            is_attached: AtomicBool::new(false),
            damage: OnceLock::new(),
            was_refused: AtomicBool::new(false),
            refusal: Mutex::default(),
            refusals: AtomicU64::new(0),
            stats: OnceLock::new(),
        });
        of.deferral.set(deferral.clone()).map_err(|_| {
            Error::new(ErrorKind::Conflict, format!("tree {tree} has a deferred external tree already"))
        })?;
        Ok(DeferredExternalTree(deferral))
    }
}
