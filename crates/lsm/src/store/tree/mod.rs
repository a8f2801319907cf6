//! A tree of a store: its settings and its current state.
//!
//! A [`TreeState`] is immutable and replaced as a whole, so a reader uses one consistent set of memtables and sstables.
//! Its components are ordered by age: the writable memtable, the full memtables (newest first), the runs of the version
//! (newest first). For one key, every version in an earlier component is newer than every version in a later one.

pub(super) mod directory;
pub(super) mod logged_memtable;
pub(super) mod row_gate;
pub(super) mod spill_failures;
mod state;
pub(super) mod tree_views;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use bolide_base::{Error, SequenceNumber, TreeId};
use bolide_memory::PagePool;
use parking_lot::{Mutex, RwLock};

use self::logged_memtable::LoggedMemtable;
use self::row_gate::RowGate;
use self::spill_failures::SpillFailures;
pub(super) use self::state::TreeState;
use self::tree_views::TreeViews;
use crate::collectors::CollectorFactory;
use crate::compaction::{CompactionFilter, MergeOperator};
use crate::drop_listener::DropListener;
use crate::layout::FlushTarget;
use crate::layout::policy::CompactionPolicy;
use crate::memtable::Visibility;
use crate::options::{StoreOptions, TreeOptions};
use crate::store::backend::deferred::Deferral;
use crate::store::backend::{Backend, BackendSlot};
use crate::version::Version;

/// A tree of an open store.
#[derive(Debug)]
pub(in crate::store) struct Tree {
    pub(in crate::store) id: TreeId,
    options: ArcSwap<TreeOptions>,
    /// Opaque bytes of the layer above.
    pub(in crate::store) descriptor: RwLock<Arc<[u8]>>,
    state: ArcSwap<TreeState>,
    /// Serialises replacements of the state.
    state_lock: Mutex<()>,
    /// Number of begun and ended replacements of the state: odd during a replacement.
    replacements: AtomicU64,
    /// The number of replacements at which no compaction was due; odd if that is unknown. Guarded by the lock of the work.
    compacted_at: AtomicU64,
    /// Drops entries of the layer above in compactions.
    pub(in crate::store) filter: RwLock<Option<Arc<dyn CompactionFilter>>>,
    /// Merges operands in flushes and compactions.
    pub(in crate::store) merge_operator: RwLock<Option<Arc<dyn MergeOperator>>>,
    /// Stores the writes.
    pub(in crate::store) backend: BackendSlot,
    /// An external tree that is opened when it is needed.
    pub(in crate::store) deferral: OnceLock<Arc<Deferral>>,
    /// The failures of its spills.
    pub(in crate::store) spill_failures: SpillFailures,
    /// Creates the collectors of new sstables.
    pub(in crate::store) collectors: RwLock<Option<Arc<dyn CollectorFactory>>>,
    /// Receives the versions that flushes and compactions drop.
    pub(in crate::store) drop_listener: RwLock<Option<Arc<dyn DropListener>>>,
    /// Trees with entries about the records of this tree (indexes over it).
    pub(in crate::store) dependents: RwLock<BTreeSet<TreeId>>,
    /// True once the tree is dropped: background work on it ends.
    pub(in crate::store) dropped: AtomicBool,
    /// The error of background work of a derived tree that found a damaged file: the sstables are not merged any more.
    pub(in crate::store) unreadable: OnceLock<Error>,
    /// Bytes of sstables that flushes and compactions wrote since the tree was created.
    pub(in crate::store) written_bytes: AtomicU64,
    /// True while all full memtables are due for a flush that retains nothing, those of retained entries included.
    pub(in crate::store) flush_all: AtomicBool,
    /// Bytes of log records with retained entries that replay has found.
    pub(in crate::store) replayed_retained: AtomicU64,
    /// Serialises rebuilds of the sorted views.
    pub(in crate::store) view_rebuild_lock: Mutex<()>,
    /// True if the thread that rebuilds the views must check once more.
    pub(in crate::store) rebuild_requested: AtomicBool,
    /// True while the manifest has an unpublished flush; see `deferred_publication`. Guarded by the lock of the versions.
    pub(in crate::store) publication_pending: AtomicBool,
    /// Validity of cached rows.
    pub(in crate::store) row_gate: RowGate,
}

impl Tree {
    /// A tree whose writes are all in `version`. Its memtable has a budget of `budget_bytes`, in large pages of `pages`.
    pub(in crate::store) fn new(
        id: TreeId,
        options: TreeOptions,
        descriptor: Arc<[u8]>,
        version: Arc<Version>,
        budget_bytes: usize,
        pages: &Arc<PagePool>,
    ) -> Self {
        let (active, views) =
            (Arc::new(LoggedMemtable::with_budget(budget_bytes, pages)), TreeViews::default());
        let state = TreeState { active, immutables: Vec::new(), version, views };
        Self {
            id,
            options: ArcSwap::from_pointee(options),
            descriptor: RwLock::new(descriptor),
            state: ArcSwap::from_pointee(state),
            state_lock: Mutex::new(()),
            replacements: AtomicU64::new(0),
            compacted_at: AtomicU64::new(u64::MAX),
            filter: RwLock::new(None),
            merge_operator: RwLock::new(None),
            backend: BackendSlot::default(),
            deferral: OnceLock::new(),
            spill_failures: SpillFailures::default(),
            collectors: RwLock::new(None),
            drop_listener: RwLock::new(None),
            dependents: RwLock::default(),
            dropped: AtomicBool::new(false),
            unreadable: OnceLock::new(),
            written_bytes: AtomicU64::new(0),
            flush_all: AtomicBool::new(false),
            replayed_retained: AtomicU64::new(0),
            view_rebuild_lock: Mutex::new(()),
            rebuild_requested: AtomicBool::new(false),
            publication_pending: AtomicBool::new(false),
            row_gate: RowGate::default(),
        }
    }

    /// The structure that stores its writes.
    #[inline]
    pub(in crate::store) fn backend(&self) -> Backend<'_> {
        self.backend.get()
    }

    /// Whether a flush has to open its deferred external tree instead.
    pub(in crate::store) fn attaches_at_flush(&self) -> bool {
        self.deferral.get().is_some_and(|deferral| deferral.is_due_at_flush())
    }

    /// Where full memtables are flushed to.
    pub(in crate::store) fn flush_target(&self) -> FlushTarget {
        self.backend().flush_target(self.options().layout.strategy().flush_target())
    }

    /// Number of full memtables that are due for a flush. A flush into partitions takes several together.
    pub(in crate::store) fn flushes_due(&self, options: &StoreOptions) -> usize {
        let state = self.state_guard();
        if self.flush_all.load(Ordering::Acquire) {
            return state.immutables.len();
        }
        let max = options.max_immutable_memtables.max(1);
        let together = match self.flush_target() {
            FlushTarget::FirstLevel => 1,
            FlushTarget::Partitions => options.partition_memtables.clamp(1, max),
        };
        let waiting = state.pending_flushes();
        if waiting < together { 0 } else { waiting }
    }

    /// Whether a checkpoint of its external tree is due at a new log segment, after `logged` bytes of log. `None` if the
    /// size and the age of the memtable decide.
    pub(in crate::store) fn is_checkpoint_due(&self, logged: u64) -> Option<bool> {
        let state = self.state_guard();
        self.backend().is_checkpoint_due(state.active.log_bytes_since_first(logged), &state.version)
    }

    /// The policy of its compactions; a partition has at most `max_runs` sorted runs.
    pub(in crate::store) fn compaction_policy(&self, max_runs: usize) -> Box<dyn CompactionPolicy> {
        let options = self.options();
        options.layout.strategy().policy(options.target_file_bytes, max_runs)
    }

    /// Its settings.
    pub(in crate::store) fn options(&self) -> arc_swap::Guard<Arc<TreeOptions>> {
        self.options.load()
    }

    /// Replaces the settings. The caller has exclusive access to the compactions of the tree.
    pub(in crate::store) fn set_options(&self, options: TreeOptions) {
        self.options.store(Arc::new(options));
        self.compacted_at.store(u64::MAX, Ordering::Relaxed);
    }

    /// The number of replacements of the state so far, for [`note_compacted`](Self::note_compacted); `None` if no compaction
    /// was due at the present state, and none is running.
    pub(in crate::store) fn uncompacted_state(&self) -> Option<u64> {
        let replacements = self.replacements.load(Ordering::Acquire);
        (replacements != self.compacted_at.load(Ordering::Relaxed)).then_some(replacements)
    }

    /// Records that no compaction is due at a state that was read after `replacements`.
    pub(in crate::store) fn note_compacted(&self, replacements: u64) {
        self.compacted_at.store(replacements, Ordering::Relaxed);
    }

    /// The current state, with a counted reference.
    #[inline]
    pub(in crate::store) fn state(&self) -> Arc<TreeState> {
        self.state.load_full()
    }

    /// The current state, without a counted reference: for short use.
    #[inline]
    pub(in crate::store) fn state_guard(&self) -> arc_swap::Guard<Arc<TreeState>> {
        self.state.load()
    }

    /// A state and a sequence number of `published` that match: the state contains all writes up to the number, and no
    /// version that a reader at the number needs was compacted away. The loop ends once the state is the same before
    /// and after `published` is read: a number published after a replacement implies that the replacement is visible.
    #[inline]
    pub(in crate::store) fn newest_state(
        &self,
        published: impl Fn() -> SequenceNumber,
    ) -> (arc_swap::Guard<Arc<TreeState>>, SequenceNumber) {
        loop {
            let before = self.replacements.load(Ordering::Acquire);
            let state = self.state_guard();
            let sequence = published();
            let is_counted_same =
                before.is_multiple_of(2) && before == self.replacements.load(Ordering::Acquire);
            // Not a spin lock: the pointer comparison ends the loop during a long replacement.
            if is_counted_same || Arc::ptr_eq(&state, &self.state_guard()) {
                return (state, sequence);
            }
        }
    }

    /// The oldest log segment that full memtables need; `None` if they have no entries.
    pub(in crate::store) fn oldest_full_log(&self) -> Option<u64> {
        self.state_guard().immutables.iter().filter_map(|logged| logged.first_log()).min()
    }

    /// Replaces the state by the result of `change`.
    pub(in crate::store) fn replace_state(&self, change: impl FnOnce(&TreeState) -> TreeState) {
        let _locked = self.state_lock.lock();
        let next = change(&self.state.load());
        self.swap_state(next);
    }

    /// Swaps the state. The caller holds `state_lock`.
    fn swap_state(&self, next: TreeState) {
        let next = Arc::new(next);
        self.replacements.fetch_add(1, Ordering::AcqRel);
        let last = self.state.swap(next);
        self.replacements.fetch_add(1, Ordering::AcqRel);
        drop(last);
    }

    /// The versions of `memtables` that a flush reads, for the sequence numbers in use: one version a key if all readers
    /// from now on see the same one. All versions if there are merge operands or a drop listener.
    pub(in crate::store) fn flush_visibility(
        &self,
        memtables: &[Arc<LoggedMemtable>],
        in_use: &[SequenceNumber],
    ) -> Visibility {
        let needs_all = || {
            self.drop_listener.read().is_some()
                || memtables.iter().any(|logged| logged.memtable.has_operands())
        };
        let newest = memtables.iter().filter_map(|logged| logged.memtable.largest_sequence()).max();
        match in_use {
            [only] if newest.is_none_or(|newest| newest <= *only) && !needs_all() => Visibility::At(*only),
            _ => Visibility::All,
        }
    }

    /// Replaces the full memtables `inputs` by `compacted`. Returns false if they are not in the state any more.
    pub(in crate::store) fn compact_immutables(
        &self,
        inputs: &[Arc<LoggedMemtable>],
        compacted: LoggedMemtable,
    ) -> bool {
        let _locked = self.state_lock.lock();
        let next = self.state.load().compacted_in_memory(inputs, Arc::new(compacted));
        next.map(|next| self.swap_state(next)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_number_published_after_a_replacement_comes_with_the_new_state() {
        let version = Arc::new(Version::of_runs(1, Vec::new()).unwrap());
        let tree = Tree::new(1, TreeOptions::default(), Arc::from(*b""), version, 1 << 20, &PagePool::new());
        // A number that is published during the replacement is not in the old state.
        for in_progress in [false, true] {
            tree.replacements.fetch_or(u64::from(in_progress), Ordering::Relaxed);
            let (before, calls) = (tree.state(), Cell::new(0));
            let (state, sequence) = tree.newest_state(|| {
                if calls.replace(calls.get() + 1) == 0 {
                    match in_progress {
                        false => tree.replace_state(|state| state.rotated(1 << 20)),
                        // The replacement begins before the read and ends after it.
                        true => tree.state.store(Arc::new(tree.state().rotated(1 << 20))),
                    }
                }
                calls.get()
            });
            assert_eq!((sequence, calls.get()), (2, 2));
            assert!(!Arc::ptr_eq(&state, &before) && Arc::ptr_eq(&state, &tree.state()));
        }
        // A replacement of any duration does not block readers.
        let calls = Cell::new(0);
        tree.newest_state(|| calls.replace(calls.get() + 1));
        assert_eq!(calls.get(), 1);
    }
}
