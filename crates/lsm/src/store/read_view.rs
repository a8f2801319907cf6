//! The whole store as it was at one sequence number.

use std::collections::BTreeMap;
use std::sync::Arc;

use bolide_base::{Result, SequenceNumber, TreeId};
use bolide_table::ValueRef;

use super::StoreInner;
use super::estimate::RangeEstimate;
use super::tree::{Tree, TreeState};
use crate::cursor::{Bounds, ComponentCursor, VersionsCursor, VisibleCursor};
use crate::memtable::Visibility;
use crate::version::TableMeta;

/// A consistent view of all trees at one sequence number.
///
/// As long as it lives, no version that it shows is compacted away. It is cheap to make (one lock,
/// no I/O) and to clone, but an old view keeps old versions on disk: drop it when done.
#[derive(Debug)]
pub struct ReadView {
    store: Arc<StoreInner>,
    sequence: SequenceNumber,
    registered: bool,
    /// The trees there were when it was made: it reads them to its end, also those dropped since.
    trees: Arc<BTreeMap<TreeId, Arc<Tree>>>,
}

impl ReadView {
    pub(super) fn latest(store: Arc<StoreInner>) -> Self {
        let sequence = store.snapshots.register();
        let trees = store.trees.load_full();
        Self { store, sequence, registered: true, trees }
    }

    /// A view for the length of one commit, at a number that is not published yet: versions at or
    /// above the published number are not compacted away, so it needs no registration.
    pub(super) fn unregistered(store: Arc<StoreInner>, sequence: SequenceNumber) -> Self {
        let trees = store.trees.load_full();
        Self { store, sequence, registered: false, trees }
    }

    /// Writes up to this number are seen, later ones are not.
    pub fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    /// The value of `key` in `tree`, with the sequence number of the write that set it.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree; `Corruption` or `Io` from reading an sstable.
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<(SequenceNumber, ValueRef)>> {
        self.find(tree)?.state_guard().get(key, self.sequence)
    }

    /// The sequence number of the write that set `key` in `tree`; `None` if the key is absent, deleted
    /// or within a deleted range. Reads no value.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn newest_sequence(&self, tree: TreeId, key: &[u8]) -> Result<Option<SequenceNumber>> {
        self.find(tree)?.state_guard().newest_sequence(key, self.sequence)
    }

    /// True if a range tombstone of `tree` that this view sees covers `key` as written at `sequence`.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree.
    pub fn covered_by_range_tombstone(
        &self,
        tree: TreeId,
        key: &[u8],
        sequence: SequenceNumber,
    ) -> Result<bool> {
        Ok(self.tree(tree)?.covered_by_range_tombstone(key, sequence))
    }

    /// The oldest sequence number at which somebody reads, or may read from now on. Takes a lock.
    pub fn oldest_in_use(&self) -> SequenceNumber {
        self.store.snapshots.oldest()
    }

    /// A cursor over the visible entries of `tree` within `bounds`, not positioned yet.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn cursor(&self, tree: TreeId, bounds: Bounds) -> Result<VisibleCursor<ComponentCursor>> {
        self.tree(tree)?.cursor(bounds)
    }

    /// One tree at this view, for many reads in a row.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree.
    pub fn tree(&self, tree: TreeId) -> Result<TreeView> {
        Ok(TreeView { state: self.find(tree)?.state(), sequence: self.sequence, view: self.clone() })
    }

    /// A tree of then, or one that was made since: an index built since may be complete at this view too.
    fn find(&self, tree: TreeId) -> Result<Arc<Tree>> {
        self.trees.get(&tree).cloned().map_or_else(|| self.store.tree(tree), Ok)
    }
}

impl Clone for ReadView {
    fn clone(&self) -> Self {
        if self.registered {
            self.store.snapshots.register_again(self.sequence);
        }
        Self {
            store: self.store.clone(),
            sequence: self.sequence,
            registered: self.registered,
            trees: self.trees.clone(),
        }
    }
}

impl Drop for ReadView {
    fn drop(&mut self) {
        if self.registered {
            self.store.snapshots.release(self.sequence);
        }
    }
}

/// One tree at a read view. It pins the memtables and sstables it started with.
#[derive(Debug, Clone)]
pub struct TreeView {
    pub(super) state: Arc<TreeState>,
    sequence: SequenceNumber,
    /// Keeps the sequence number registered.
    view: ReadView,
}

impl TreeView {
    /// Writes up to this number are seen.
    pub fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    /// Tells the memtables and sstables that this view reads from those of other views of the tree: two views with
    /// one number, both alive, read the same ones. Places in one mean nothing in another.
    pub fn components_id(&self) -> usize {
        Arc::as_ptr(&self.state) as usize
    }

    pub(super) fn state(&self) -> &TreeState {
        &self.state
    }

    /// The read view that this is a part of.
    pub fn view(&self) -> &ReadView {
        &self.view
    }

    /// As [`ReadView::get`].
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading an sstable.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Result<Option<(SequenceNumber, ValueRef)>> {
        self.state.get(key, self.sequence)
    }

    /// As [`ReadView::newest_sequence`].
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading an sstable.
    #[inline]
    pub fn newest_sequence(&self, key: &[u8]) -> Result<Option<SequenceNumber>> {
        self.state.newest_sequence(key, self.sequence)
    }

    /// [`get`](Self::get) for each of `keys`: the answers are appended to `out` in their order.
    ///
    /// The reads wait for memory together, so that with a dozen keys or more, whose blocks are cached, each
    /// costs less than half of a single one. Sorted keys share blocks. Each value found pins its block:
    /// ask for thousands of keys in parts.
    ///
    /// # Errors
    /// As [`get`](Self::get). `out` then has fewer answers than there are keys.
    pub fn get_many(&self, keys: &[&[u8]], out: &mut Vec<Option<(SequenceNumber, ValueRef)>>) -> Result<()> {
        self.state.get_many(keys, self.sequence, out)
    }

    /// [`newest_sequence`](Self::newest_sequence) for each of `keys`, as [`get_many`](Self::get_many) for
    /// [`get`](Self::get). Pins nothing.
    ///
    /// # Errors
    /// As [`get_many`](Self::get_many).
    pub fn newest_sequences(&self, keys: &[&[u8]], out: &mut Vec<Option<SequenceNumber>>) -> Result<()> {
        self.state.newest_sequences(keys, self.sequence, out)
    }

    /// True where [`covered_by_range_tombstone`](Self::covered_by_range_tombstone) can be true at all.
    #[inline]
    pub fn has_range_tombstones(&self) -> bool {
        self.state.has_range_tombstones()
    }

    /// As [`ReadView::covered_by_range_tombstone`].
    pub fn covered_by_range_tombstone(&self, key: &[u8], sequence: SequenceNumber) -> bool {
        self.has_range_tombstones() && self.state.newest_range_tombstone(key, self.sequence) > sequence
    }

    /// About how many entries lie from `low` on and below `end`; `None` for no end.
    ///
    /// Of an sstable it counts the data blocks between the two keys and takes all for equally full; of a
    /// memtable the share of the tree between them, and a few entries it counts. So it is off by less than
    /// about two data blocks an sstable run, and a factor of about two in memtables of many entries. Old
    /// versions and tombstones count as entries. It reads no data block; costs about a seek in each
    /// component.
    ///
    /// # Errors
    /// `Corruption` or `Io` from opening an sstable or reading a part of its index.
    pub fn estimate(&self, low: &[u8], end: Option<&[u8]>) -> Result<RangeEstimate> {
        self.estimate_weighed(low, end, &|_| 1.0)
    }

    /// As [`estimate`](Self::estimate), where an entry of an sstable counts as much as `weigh` says of that sstable: for
    /// trees whose entries hold several things each. One of a memtable counts as one.
    ///
    /// # Errors
    /// As [`estimate`](Self::estimate).
    pub fn estimate_weighed(
        &self,
        low: &[u8],
        end: Option<&[u8]>,
        weigh: &dyn Fn(&TableMeta) -> f64,
    ) -> Result<RangeEstimate> {
        self.state.estimate(low, end, weigh)
    }

    /// As [`ReadView::cursor`].
    ///
    /// # Errors
    /// `Corruption` or `Io` from opening an sstable.
    pub fn cursor(&self, bounds: Bounds) -> Result<VisibleCursor<ComponentCursor>> {
        let sources = self.state.sources(Visibility::At(self.sequence), &bounds);
        let ranges = self.state.merged_range_tombstones()?;
        Ok(VisibleCursor::new(sources, self.sequence, ranges, bounds))
    }

    /// A cursor over what is to be merged under the keys within `bounds`, newest first under each, not
    /// positioned yet.
    ///
    /// # Errors
    /// `Corruption` or `Io` from opening an sstable.
    pub fn versions(&self, bounds: Bounds) -> Result<VersionsCursor<ComponentCursor>> {
        let sources = self.state.sources(Visibility::All, &bounds);
        let ranges = self.state.merged_range_tombstones()?;
        Ok(VersionsCursor::new(sources, self.sequence, ranges, bounds))
    }
}
