//! The backend of an index that an opening leaves unopened until a query or a flush needs it.

use std::fmt;
use std::sync::{Arc, Weak};

use bolide_base::{Error, ErrorKind, Result, TreeId};
use bolide_lsm::external_tree::{ExternalRoot, ExternalTree, ExternalTreeStats};
use bolide_lsm::page_log::{PageLog, RootPointer};
use bolide_lsm::store::{DeferredExternalTree, ExternalTreeOpener};
use parking_lot::Mutex;

use super::backend::PsTreeBackend;
use super::region_location::RegionLocation;
use crate::spec::IndexSpec;

/// Opens the backend of one index, whose region is on disk.
pub(super) struct PsTreeOpener {
    spec: IndexSpec,
    tree: TreeId,
    location: RegionLocation,
    /// The backend of the last opening. If it was attached, the tree holds it; otherwise its memory is free again.
    opened: Mutex<Weak<PsTreeBackend>>,
}

impl PsTreeOpener {
    pub(super) fn new(spec: IndexSpec, tree: TreeId, location: RegionLocation) -> Self {
        Self { spec, tree, location, opened: Mutex::default() }
    }

    fn pointer(&self, root: &ExternalRoot) -> Result<RootPointer> {
        RootPointer::decode(&root.root).ok_or_else(|| {
            let what = format!("index {}: a malformed root", self.spec.name());
            Error::new(ErrorKind::Corruption, what)
        })
    }
}

impl ExternalTreeOpener for PsTreeOpener {
    fn open(&self, root: Option<&ExternalRoot>) -> Result<Arc<dyn ExternalTree>> {
        let never = |_| Err(Error::internal("a region on disk changes its root"));
        let backend = PsTreeBackend::open(&self.spec, self.tree, root, &self.location, &never)?;
        let backend = Arc::new(backend);
        *self.opened.lock() = Arc::downgrade(&backend);
        Ok(backend)
    }

    fn verify(&self, root: &ExternalRoot) -> Result<(u64, u64)> {
        let (vfs, dir) = (self.location.vfs.clone(), &self.location.dir);
        let summary = PageLog::verify(vfs, dir, u64::from(self.tree), self.pointer(root)?)?;
        let bytes = summary.segments.iter().map(|&(_, len)| len).sum();
        Ok((summary.segments.len() as u64, bytes))
    }

    fn stats(&self, root: &ExternalRoot) -> Result<ExternalTreeStats> {
        let (vfs, dir) = (&*self.location.vfs, &self.location.dir);
        let summary = PageLog::summary(vfs, dir, u64::from(self.tree), self.pointer(root)?)?;
        let disk_bytes = summary.segments.iter().map(|&(_, len)| len).sum();
        Ok(ExternalTreeStats { memory_bytes: 0, disk_bytes, entries: 0 })
    }
}

impl fmt::Debug for PsTreeOpener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PsTreeOpener").field("tree", &self.tree).finish_non_exhaustive()
    }
}

/// The backend of an index before its first use.
#[derive(Debug)]
pub(super) struct DeferredBackend {
    pub(super) opener: Arc<PsTreeOpener>,
    pub(super) external_tree: DeferredExternalTree,
}

impl DeferredBackend {
    /// The backend, which is opened if it is not.
    ///
    /// # Errors
    /// Those of [`DeferredExternalTree::attach`]; `NotFound` if the index was dropped meanwhile.
    pub(super) fn open(&self) -> Result<Arc<PsTreeBackend>> {
        self.external_tree.attach()?;
        let dropped = || {
            let what = format!("index {} was dropped", self.opener.spec.name());
            Error::new(ErrorKind::NotFound, what)
        };
        self.opened().ok_or_else(dropped)
    }

    /// The backend, if it is open and attached.
    pub(super) fn opened(&self) -> Option<Arc<PsTreeBackend>> {
        if self.external_tree.is_attached() { self.opener.opened.lock().upgrade() } else { None }
    }
}
