//! Reads of one tree outside of any view.

use std::sync::Arc;

use bolide_base::{Result, SequenceNumber, TreeId};

use crate::store::Store;
use crate::store::read::point_lookup::PointLookup;
use crate::store::tree::Tree;

/// A reader of the current state of one tree. It registers no sequence number: the caller guarantees that the versions
/// it needs are not compacted away.
///
/// Compaction filters use it to read other trees. Unlike a [`Store`], it does not keep the store open.
#[derive(Debug, Clone)]
pub struct TreeReader {
    tree: Arc<Tree>,
}

impl TreeReader {
    /// The sequence number of the newest write of `key` at or below `at`; `None` if the key is then
    /// absent, deleted or within a deleted range.
    ///
    /// Versions that no view can see may be gone: if no view reads at `at` any more, the result may be `None` although
    /// a version existed. It is never a version that a view at or above `at` would find replaced.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading an sstable.
    pub fn newest_sequence_at(&self, key: &[u8], at: SequenceNumber) -> Result<Option<SequenceNumber>> {
        PointLookup::new(key, at).sequence(&self.tree.state_guard())
    }

    /// [`newest_sequence_at`](Self::newest_sequence_at) for each of `keys`: results are appended to `out` in their
    /// order. Cache misses of many keys overlap, and sorted keys share blocks.
    ///
    /// # Errors
    /// As [`newest_sequence_at`](Self::newest_sequence_at).
    pub fn newest_sequences_at(
        &self,
        keys: &[&[u8]],
        at: SequenceNumber,
        out: &mut Vec<Option<SequenceNumber>>,
    ) -> Result<()> {
        self.tree.state_guard().newest_sequences(keys, at, out)
    }

    /// The sequence number of the newest of all range tombstones; 0 if there is none. Cost: linear in their number.
    pub fn newest_range_tombstone_of_all(&self) -> SequenceNumber {
        let state = self.tree.state_guard();
        let flushed = state.version.range_tombstones().iter().map(|tombstone| tombstone.sequence).max();
        let logged = state.memtables().flat_map(|logged| logged.memtable.range_tombstones());
        flushed.max(logged.map(|tombstone| tombstone.sequence).max()).unwrap_or(0)
    }

    /// True if there is a range tombstone. Constant cost.
    pub fn has_range_tombstones(&self) -> bool {
        let state = self.tree.state_guard();
        !state.version.range_tombstones().is_empty()
            || state.memtables().any(|logged| logged.memtable.has_range_tombstones())
    }

    /// The sequence number of the newest range tombstone over `key` at or below `at`; 0 if there is none.
    /// No I/O.
    pub fn newest_range_tombstone_at(&self, key: &[u8], at: SequenceNumber) -> SequenceNumber {
        self.tree.state_guard().newest_range_tombstone(key, at)
    }
}

impl Store {
    /// A reader of `tree` that does not keep the store open.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree.
    pub fn tree_reader(&self, tree: TreeId) -> Result<TreeReader> {
        Ok(TreeReader { tree: self.inner.trees.get(tree)? })
    }
}
