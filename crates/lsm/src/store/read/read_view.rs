//! A consistent view of the whole store at one sequence number.

use std::collections::BTreeMap;
use std::sync::Arc;

use bolide_base::{Result, SequenceNumber, TreeId};
use bolide_table::ValueRef;

use crate::cursor::{Bounds, BudgetedCursor, ComponentCursor, StepBudget, VersionsCursor, VisibleCursor};
use crate::memtable::Visibility;
use crate::store::StoreInner;
use crate::store::read::estimate::RangeEstimate;
use crate::store::read::point_lookup::PointLookup;
use crate::store::tree::{Tree, TreeState};
use crate::version::TableMeta;

/// A consistent view of all trees at one sequence number.
///
/// While it exists, no version that it sees is compacted away. Creating (one lock, no I/O) and cloning it are cheap,
/// but an old view retains old versions on disk.
#[derive(Debug)]
pub struct ReadView {
    store: Arc<StoreInner>,
    sequence: SequenceNumber,
    registered: bool,
    /// The trees at the time of its creation, also those dropped since.
    trees: Arc<BTreeMap<TreeId, Arc<Tree>>>,
}

impl ReadView {
    pub(in crate::store) fn latest(store: Arc<StoreInner>) -> Self {
        let sequence = store.snapshots.register();
        let trees = store.trees.load_full();
        Self { store, sequence, registered: true, trees }
    }

    /// A view for the duration of one commit, at a number that is not published yet. Versions at or above the published
    /// number are not compacted away, so it needs no registration.
    pub(in crate::store) fn unregistered(store: Arc<StoreInner>, sequence: SequenceNumber) -> Self {
        let trees = store.trees.load_full();
        Self { store, sequence, registered: false, trees }
    }

    /// The view sees writes up to this number.
    pub fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    /// The value of `key` in `tree`, with the sequence number of the write that set it.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree; `Corruption` or `Io` from reading an sstable.
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<(SequenceNumber, ValueRef)>> {
        PointLookup::new(key, self.sequence).value(&self.find(tree)?.state_guard())
    }

    /// The sequence number of the write that set `key` in `tree`; `None` if the key is absent, deleted
    /// or within a deleted range. Reads no value.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn newest_sequence(&self, tree: TreeId, key: &[u8]) -> Result<Option<SequenceNumber>> {
        PointLookup::new(key, self.sequence).sequence(&self.find(tree)?.state_guard())
    }

    /// True if a range tombstone of `tree` that this view sees covers a write of `key` at `sequence`.
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

    /// The oldest sequence number of current and future readers. Takes a lock.
    pub fn oldest_in_use(&self) -> SequenceNumber {
        self.store.snapshots.oldest()
    }

    /// A cursor over the visible entries of `tree` within `bounds`, not positioned.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn cursor(&self, tree: TreeId, bounds: Bounds) -> Result<VisibleCursor<ComponentCursor>> {
        self.tree(tree)?.cursor(bounds)
    }

    /// One tree at this view, for many reads.
    ///
    /// # Errors
    /// `NotFound` if there is no such tree.
    pub fn tree(&self, tree: TreeId) -> Result<TreeView> {
        Ok(TreeView { state: self.find(tree)?.state(), sequence: self.sequence, view: self.clone() })
    }

    /// A tree of the view, or one created later: an index built since may be complete at this view too.
    fn find(&self, tree: TreeId) -> Result<Arc<Tree>> {
        self.trees.get(&tree).cloned().map_or_else(|| self.store.trees.get(tree), Ok)
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

/// One tree at a read view. It pins the memtables and sstables of its creation.
#[derive(Debug, Clone)]
pub struct TreeView {
    pub(in crate::store) state: Arc<TreeState>,
    sequence: SequenceNumber,
    /// Keeps the sequence number registered.
    view: ReadView,
}

impl TreeView {
    /// The view sees writes up to this number.
    pub fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    /// Identifies the set of memtables and sstables that this view reads: two live views of the tree with the same
    /// number read the same set. Locations of one set are invalid in another.
    pub fn components_id(&self) -> usize {
        Arc::as_ptr(&self.state) as usize
    }

    pub(in crate::store) fn state(&self) -> &TreeState {
        &self.state
    }

    /// The read view of all trees.
    pub fn view(&self) -> &ReadView {
        &self.view
    }

    /// As [`ReadView::get`].
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading an sstable.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Result<Option<(SequenceNumber, ValueRef)>> {
        PointLookup::new(key, self.sequence).value(&self.state)
    }

    /// As [`ReadView::newest_sequence`].
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading an sstable.
    #[inline]
    pub fn newest_sequence(&self, key: &[u8]) -> Result<Option<SequenceNumber>> {
        PointLookup::new(key, self.sequence).sequence(&self.state)
    }

    /// [`get`](Self::get) for each of `keys`: results are appended to `out` in their order.
    ///
    /// Cache misses of the reads overlap: with a dozen keys or more, whose blocks are cached, each costs less than half
    /// of a single get. Sorted keys share blocks. Each value pins its block: split lists of thousands of keys.
    ///
    /// # Errors
    /// As [`get`](Self::get). `out` then has fewer results than there are keys.
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

    /// True if [`covered_by_range_tombstone`](Self::covered_by_range_tombstone) can be true.
    #[inline]
    pub fn has_range_tombstones(&self) -> bool {
        self.state.has_range_tombstones()
    }

    /// As [`ReadView::covered_by_range_tombstone`].
    pub fn covered_by_range_tombstone(&self, key: &[u8], sequence: SequenceNumber) -> bool {
        self.has_range_tombstones() && self.state.newest_range_tombstone(key, self.sequence) > sequence
    }

    /// An estimate of the number of entries from `low` up to, but without, `end`; `None` for no end.
    ///
    /// In an sstable, it counts the data blocks between the two keys and assumes that all have the same number of
    /// entries. In a memtable, it takes the share of the search tree between them, and counts a few entries. The error
    /// is less than about two data blocks for each run, and a factor of about two in memtables of many entries. Old
    /// versions and tombstones count as entries. No data block is read; the cost is about one seek in each component.
    ///
    /// # Errors
    /// `Corruption` or `Io` from opening an sstable or reading its index.
    pub fn estimate(&self, low: &[u8], end: Option<&[u8]>) -> Result<RangeEstimate> {
        self.estimate_weighed(low, end, &|_| 1.0)
    }

    /// As [`estimate`](Self::estimate), with a weight for each entry of an sstable: for trees with several items in an
    /// entry. Entries of a memtable have the weight 1.
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

    /// As [`cursor`](Self::cursor), whose calls fail with `LimitExceeded` once `budget` is used up. Each entry that it steps
    /// over costs a unit, also a tombstone or a version that is not visible; a seek costs 8 for each component.
    ///
    /// # Errors
    /// As [`cursor`](Self::cursor).
    pub fn cursor_within(
        &self,
        bounds: Bounds,
        budget: &StepBudget,
    ) -> Result<VisibleCursor<BudgetedCursor>> {
        let sources = self.state.sources(Visibility::At(self.sequence), &bounds);
        let sources = sources.into_iter().map(|source| BudgetedCursor::new(source, budget.clone())).collect();
        let ranges = self.state.merged_range_tombstones()?;
        Ok(VisibleCursor::new(sources, self.sequence, ranges, bounds))
    }

    /// A cursor over the operands and versions within `bounds` that are to be merged, newest first under each key, not
    /// positioned.
    ///
    /// # Errors
    /// `Corruption` or `Io` from opening an sstable.
    pub fn versions(&self, bounds: Bounds) -> Result<VersionsCursor<ComponentCursor>> {
        let sources = self.state.sources(Visibility::All, &bounds);
        let ranges = self.state.merged_range_tombstones()?;
        Ok(VersionsCursor::new(sources, self.sequence, ranges, bounds))
    }
}
