//! The cut of an index and the limit of its memory; see the rules in [`spill`](super::spill).

use std::sync::atomic::AtomicU64;

use bolide_base::Result;
use bolide_storage::pmem::Region;

/// Root slot of the region with the cut.
pub(super) const CUT_SLOT: usize = 28;

/// The cut of an index, and the limit of its memory.
#[derive(Debug)]
pub(super) struct SpillState {
    /// Bytes of memory above which a spill is due; `None` if all entries stay.
    pub(super) limit: Option<u64>,
    pub(super) cut: AtomicU64,
    /// Entries after the last spill.
    pub(super) entries_left: AtomicU64,
}

impl SpillState {
    /// The state that `region` has.
    pub(super) fn open(limit: Option<u64>, region: &Region) -> Result<Self> {
        Ok(Self { limit, cut: AtomicU64::new(region.root(CUT_SLOT)?), entries_left: AtomicU64::new(0) })
    }

    /// The cut. It does not rise while a writer of the region is active.
    pub(super) fn cut(&self) -> &AtomicU64 {
        &self.cut
    }
}
