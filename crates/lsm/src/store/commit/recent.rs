//! The record of recent commits: the keys and ranges written since the oldest open transaction began.
//!
//! ```text
//! writes of a commit, in memory only
//!         write*
//! write   kind         u8       0 key, 1 range, 2 tree
//!         tree         varint
//!         key          varint length, bytes; the first key of a range; absent for a tree
//!         end          varint length, bytes; the first key behind a range; only for a range
//! ```
//!
//! # Algorithm
//! 1. A transaction registers under the lock of the record: it raises the count of open transactions, then takes its
//!    snapshot.
//! 2. A commit reads the count after it has applied writes that a later request of its group may be checked against, and
//!    again after it has published. It holds the lock of the log, and records its writes if the count is not zero.
//! 3. A check inside a commit reads the commits in `(snapshot, last applied]`.
//! 4. When a transaction ends, commits that no open or later transaction needs are removed.
//!
//! # Invariants
//! * For an open transaction with snapshot `S`, the record has every commit after `S` up to the last applied one, at any
//!   time at which the lock of the log is free, or its removed part reaches beyond `S`. Proof: count and published number
//!   are accessed with sequentially consistent order. If the writer reads zero after it has published, a transaction that
//!   registers later takes a snapshot that contains the commit.
//! * Commits are recorded in the order of their sequence numbers. So every commit up to [`RecentCommits::through`] that an
//!   open transaction needs is in the record.
//! * A commit above the published number is not removed at the end of a transaction: the next transaction may begin below
//!   it.
//! * The memory is bounded. The oldest commits are removed first, and older transactions are refused.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bolide_base::coding::{Decoder, put_bytes, put_varint};
use bolide_base::{Error, ErrorKind, Result, SequenceNumber, TreeId};
use bolide_memory::MemoryHolder;

use super::sync::{AtomicUsize, Mutex, Ordering};
use super::writes::PendingWrites;
use crate::batch::{Operation, PlacedOperation};
use crate::store::StoreInner;
use crate::store::read::read_view::ReadView;

/// Memory of a recorded commit beside its writes, in bytes.
const COMMIT_BYTES: usize = 96;

const KEY: u8 = 0;
const RANGE: u8 = 1;
const TREE: u8 = 2;

/// A write of a recent commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecentWrite<'c> {
    /// A put or a delete of one key.
    Key {
        /// The tree.
        tree: TreeId,
        /// The key.
        key: &'c [u8],
    },
    /// A delete of all keys from `start` to `end`, exclusive.
    Range {
        /// The tree.
        tree: TreeId,
        /// The first key of the range.
        start: &'c [u8],
        /// The first key behind the range.
        end: &'c [u8],
    },
    /// Any change of a tree: it was dropped.
    Tree {
        /// The tree.
        tree: TreeId,
    },
}

/// The writes of one commit, without their values and without derived operations.
#[derive(Debug)]
pub struct RecentCommit {
    last: SequenceNumber,
    /// Kind, tree and keys of each write.
    writes: Vec<u8>,
}

impl RecentCommit {
    /// The writes with the last sequence number `last`.
    fn of_writes(last: SequenceNumber, writes: &impl PendingWrites) -> Result<Self> {
        let mut commit = Self { last, writes: Vec::new() };
        writes.for_each(|placed| {
            commit.add(placed);
            Ok(())
        })?;
        Ok(commit)
    }

    fn of_dropped_tree(last: SequenceNumber, tree: TreeId) -> Self {
        let mut commit = Self { last, writes: vec![TREE] };
        put_varint(&mut commit.writes, u64::from(tree));
        commit
    }

    fn add(&mut self, placed: &PlacedOperation<'_>) {
        if placed.derived {
            return;
        }
        let (kind, key, end) = match placed.operation {
            Operation::Entry { key, .. } => (KEY, key, None),
            Operation::RangeDelete { start, end } => (RANGE, start, Some(end)),
        };
        self.writes.push(kind);
        put_varint(&mut self.writes, u64::from(placed.tree));
        put_bytes(&mut self.writes, key);
        if let Some(end) = end {
            put_bytes(&mut self.writes, end);
        }
    }

    /// The last sequence number of the commit. A snapshot contains all of a commit or nothing of it.
    pub fn last(&self) -> SequenceNumber {
        self.last
    }

    /// The writes in their order.
    pub fn writes(&self) -> impl Iterator<Item = RecentWrite<'_>> {
        let mut decoder = Decoder::new(&self.writes);
        std::iter::from_fn(move || decode(&mut decoder))
    }

    fn memory_bytes(&self) -> usize {
        self.writes.capacity() + COMMIT_BYTES
    }
}

fn decode<'c>(decoder: &mut Decoder<'c>) -> Option<RecentWrite<'c>> {
    let kind = decoder.u8()?;
    let tree = TreeId::try_from(decoder.varint()?).ok()?;
    Some(match kind {
        KEY => RecentWrite::Key { tree, key: decoder.bytes()? },
        RANGE => RecentWrite::Range { tree, start: decoder.bytes()?, end: decoder.bytes()? },
        _ => RecentWrite::Tree { tree },
    })
}

/// The record of recent commits of a store.
#[derive(Debug)]
pub struct RecentCommits {
    /// The number of open transactions. Changed under the lock of `state`.
    open: AtomicUsize,
    state: Mutex<RecentState>,
    limit_bytes: usize,
    /// Counts the memory of the record.
    memory: MemoryHolder,
}

#[derive(Debug, Default)]
struct RecentState {
    /// The snapshots of open transactions, with their numbers.
    snapshots: BTreeMap<SequenceNumber, usize>,
    /// Ascending by their sequence numbers.
    commits: VecDeque<Arc<RecentCommit>>,
    bytes: usize,
    /// Commits up to this number were removed for lack of memory.
    removed: SequenceNumber,
    /// The last recorded number.
    through: SequenceNumber,
}

impl RecentState {
    /// Removes the oldest commits as long as `is_spare` returns true for the first one. Returns the number of the last.
    fn remove_while(&mut self, is_spare: impl Fn(&Self, &RecentCommit) -> bool) -> Option<SequenceNumber> {
        let mut removed = None;
        while let Some(first) = self.commits.front().filter(|first| is_spare(self, first)).cloned() {
            self.commits.pop_front();
            self.bytes -= first.memory_bytes();
            removed = Some(first.last);
        }
        removed
    }
}

impl RecentCommits {
    /// An empty record of at most `limit_bytes` bytes, which `memory` counts.
    pub(in crate::store) fn new(limit_bytes: usize, memory: MemoryHolder) -> Self {
        Self { open: AtomicUsize::new(0), state: Mutex::default(), limit_bytes, memory }
    }

    /// True while a transaction is open: commits must be recorded.
    #[inline]
    pub(in crate::store) fn is_needed(&self) -> bool {
        self.open.load(Ordering::SeqCst) != 0
    }

    /// Records writes with the last sequence number `last`. The caller holds the lock of the log.
    #[cold]
    pub(super) fn record(&self, last: SequenceNumber, writes: &impl PendingWrites) -> Result<()> {
        self.push(RecentCommit::of_writes(last, writes)?);
        Ok(())
    }

    /// Records the drop of `tree` at `sequence`. The caller holds the lock of the log.
    pub(in crate::store) fn record_drop(&self, sequence: SequenceNumber, tree: TreeId) {
        self.push(RecentCommit::of_dropped_tree(sequence, tree));
    }

    fn push(&self, commit: RecentCommit) {
        let mut state = self.state.lock();
        state.through = state.through.max(commit.last);
        state.bytes += commit.memory_bytes();
        state.commits.push_back(Arc::new(commit));
        let limit = self.limit_bytes;
        if let Some(removed) = state.remove_while(|state, _| state.bytes > limit) {
            state.removed = removed;
        }
        self.memory.set(state.bytes as u64);
    }

    /// Registers a transaction at the snapshot that `snapshot` takes, with its number.
    fn register<V>(&self, snapshot: impl FnOnce() -> (SequenceNumber, V)) -> V {
        let mut state = self.state.lock();
        self.open.fetch_add(1, Ordering::SeqCst);
        let (sequence, view) = snapshot();
        *state.snapshots.entry(sequence).or_insert(0) += 1;
        view
    }

    /// Ends a transaction at the snapshot `sequence`; `published` returns the published number.
    fn release(&self, sequence: SequenceNumber, published: impl FnOnce() -> SequenceNumber) {
        let mut state = self.state.lock();
        if let Some(count) = state.snapshots.get_mut(&sequence) {
            *count -= 1;
            if *count == 0 {
                state.snapshots.remove(&sequence);
            }
        }
        self.open.fetch_sub(1, Ordering::SeqCst);
        let oldest = state.snapshots.keys().next().copied().unwrap_or_else(published);
        state.remove_while(|_, first| first.last <= oldest);
        self.memory.set(state.bytes as u64);
    }

    /// The last recorded number: of the commits that an open transaction needs, all up to it are recorded.
    pub fn through(&self) -> SequenceNumber {
        self.state.lock().through
    }

    /// The commits in `(after, through]`, ascending.
    ///
    /// # Errors
    /// `Conflict` if some of them were removed for lack of memory.
    pub fn between(&self, after: SequenceNumber, through: SequenceNumber) -> Result<Vec<Arc<RecentCommit>>> {
        let state = self.state.lock();
        if after < state.removed {
            return Err(Error::new(
                ErrorKind::Conflict,
                format!(
                    "the transaction is too old: commits after its snapshot {after} were removed from the record of \
                     recent commits, which is limited to {} bytes; run it again",
                    self.limit_bytes
                ),
            ));
        }
        let from = state.commits.partition_point(|commit| commit.last <= after);
        let within = state.commits.iter().skip(from).take_while(|commit| commit.last <= through);
        Ok(within.cloned().collect())
    }

    /// The memory of the record, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// The number of open transactions.
    pub fn open_transactions(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

/// The view of a transaction: as long as it exists, all commits after it are recorded.
#[derive(Debug)]
pub struct TransactionView {
    view: ReadView,
    store: Arc<StoreInner>,
}

impl TransactionView {
    pub(in crate::store) fn open(store: Arc<StoreInner>) -> Self {
        let view = store.recent.register(|| {
            let view = ReadView::latest(store.clone());
            (view.sequence(), view)
        });
        Self { view, store }
    }

    /// The view.
    pub fn view(&self) -> &ReadView {
        &self.view
    }

    /// The commits since the view, among others.
    pub fn recent(&self) -> &RecentCommits {
        &self.store.recent
    }
}

impl Drop for TransactionView {
    fn drop(&mut self) {
        self.store.recent.release(self.view.sequence(), || self.store.snapshots.published());
    }
}

#[cfg(all(test, not(bolide_shuttle)))]
#[path = "recent_tests.rs"]
mod tests;

#[cfg(all(test, bolide_shuttle))]
#[path = "recent_model.rs"]
mod recent_model;
