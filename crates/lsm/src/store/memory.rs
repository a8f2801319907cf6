//! The memory of a store within its budget: its report, and the size at which memtables are flushed.
//!
//! ```text
//! size of the writable memtables, at most     memtable_bytes while memory is free
//!                                             the free memory / generations of memtables, if that is less
//!                                             a sixteenth of memtable_bytes if nothing is free, at least 64 KiB
//! memtables of a tree that wait               flushed at once while the budget is exceeded; writers wait meanwhile
//! ```
//!
//! Both are computed when a memtable is rotated and when background work ends, not for each write: in between, writers fill at
//! most one set of memtables.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bolide_memory::{MemoryBudget, MemoryHolder, MemoryPool, MemorySize, MemoryUse, ReclaimableMemory};

use crate::options::StoreOptions;
use crate::store::tree::directory::TreeDirectory;

/// Without free memory, memtables are flushed at this part (1/`MIN_DIVISOR`) of their size.
const MIN_DIVISOR: usize = 16;
/// The smallest size at which memtables are flushed for lack of memory: smaller ones make too many sstables.
const MIN_LIMIT_BYTES: usize = 64 << 10;
/// Updates that are skipped while twice the memory of all memtables is free.
const MAX_SKIPS: usize = 15;
/// Caches leave up to this part (1/`SPARE_DIVISOR`) of the budget to growing memtables.
const SPARE_DIVISOR: u64 = 8;

/// The report of the memory of all trees.
struct TreeMemory {
    trees: Arc<TreeDirectory>,
}

impl TreeMemory {
    fn memtable_bytes(&self) -> u64 {
        let trees = self.trees.load();
        let memtables = trees.values().map(|tree| {
            let state = tree.state_guard();
            state.memtables().map(|logged| logged.memtable.memory_bytes()).sum::<usize>()
        });
        memtables.sum::<usize>() as u64
    }
}

impl ReclaimableMemory for TreeMemory {
    fn report(&self, report: &mut dyn FnMut(MemoryUse, MemorySize)) {
        let [mut views, mut tables, mut attached] = [0; 3];
        for tree in self.trees.load().values() {
            let state = tree.state_guard();
            views += state.views.memory_bytes();
            attached += state.version.attachments().memory_bytes();
            attached += tree.backend().external().map_or(0, |external| external.uncounted_bytes());
            attached += state.memtables().map(|logged| logged.attachments.memory_bytes()).sum::<usize>();
            for table in state.version.tables() {
                tables += table.opened_reader().map_or(0, |reader| reader.memory_bytes());
                attached += table.attachments().memory_bytes();
            }
        }
        report(MemoryUse::Memtables, MemorySize::used(self.memtable_bytes()));
        report(MemoryUse::SortedViews, MemorySize::used(views as u64));
        report(MemoryUse::OpenTables, MemorySize::used(tables as u64));
        report(MemoryUse::IndexStructures, MemorySize::used(attached as u64));
    }
}

/// The memory that memtables may take.
pub(in crate::store) struct MemtableBudget {
    budget: Arc<MemoryBudget>,
    trees: Arc<TreeMemory>,
    /// Counts the capacity of the row cache.
    _rows: MemoryHolder,
    max_bytes: usize,
    /// The maximum number of memtables of one tree: writable, full, and one that a compaction in memory writes.
    generations: usize,
    /// The size at which the writable memtables are flushed.
    limit_bytes: AtomicUsize,
    is_exceeded: AtomicBool,
    /// Updates to skip: all memtables that there may be fit easily.
    skips: AtomicUsize,
}

impl MemtableBudget {
    pub(in crate::store) fn new(
        options: &StoreOptions,
        pool: &MemoryPool,
        trees: &Arc<TreeDirectory>,
    ) -> Self {
        let budget = pool.budget();
        let trees = Arc::new(TreeMemory { trees: trees.clone() });
        let source: Arc<dyn ReclaimableMemory> = trees.clone();
        budget.add_reclaimable(&source);
        let rows = budget.holder(MemoryUse::RowCache, None);
        rows.set(options.row_cache_bytes as u64);
        Self {
            budget: budget.clone(),
            trees,
            _rows: rows,
            max_bytes: options.memtable_bytes,
            generations: options.max_immutable_memtables.saturating_add(2),
            limit_bytes: AtomicUsize::new(options.memtable_bytes),
            is_exceeded: AtomicBool::new(false),
            skips: AtomicUsize::new(0),
        }
    }

    /// The size at which the writable memtables are flushed.
    #[inline]
    pub(in crate::store) fn limit_bytes(&self) -> usize {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// True while the budget is exceeded, and flushes would help.
    pub(in crate::store) fn is_exceeded(&self) -> bool {
        self.is_exceeded.load(Ordering::Relaxed)
    }

    /// Adapts the sizes of memtables and caches to the free memory. Cost: visits the trees and their sstables, once in
    /// sixteen calls while memory is plentiful.
    pub(in crate::store) fn update(&self) {
        let limit = self.budget.limit_bytes();
        let skip = |skips: usize| skips.checked_sub(1);
        let skipped = self.skips.fetch_update(Ordering::Relaxed, Ordering::Relaxed, skip).is_ok();
        if limit == u64::MAX || skipped {
            return;
        }
        let memtables = self.trees.memtable_bytes();
        let most = (self.max_bytes as u64).saturating_mul(self.generations as u64);
        let spare = most.saturating_sub(memtables).min(limit / SPARE_DIVISOR);
        let others = self.budget.rebalance(spare).saturating_sub(memtables);
        let free = limit.saturating_sub(others);
        if free / 2 >= most {
            self.skips.store(MAX_SKIPS, Ordering::Relaxed);
        }
        let limit_bytes = memtable_limit(self.max_bytes, self.generations, free);
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
        let min_bytes = memtable_limit(self.max_bytes, self.generations, 0) as u64;
        self.is_exceeded.store(memtables > free.max(min_bytes), Ordering::Relaxed);
    }
}

/// The size of one generation of memtables of at most `max_bytes`, if all generations have `free` bytes together.
fn memtable_limit(max_bytes: usize, generations: usize, free: u64) -> usize {
    let share = usize::try_from(free / generations.max(1) as u64).unwrap_or(usize::MAX);
    let max_bytes = max_bytes.max(1);
    share.clamp((max_bytes / MIN_DIVISOR).max(MIN_LIMIT_BYTES).min(max_bytes), max_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memtables_shrink_with_the_free_memory_to_a_minimum() {
        let of = |free: u64| memtable_limit(64 << 20, 5, free);
        assert_eq!(of(u64::MAX), 64 << 20);
        assert_eq!(of(320 << 20), 64 << 20);
        assert_eq!(of(100 << 20), 20 << 20);
        assert_eq!(of(0), 4 << 20);
        assert_eq!((memtable_limit(0, 0, 0), memtable_limit(100, 5, 0)), (1, 100));
        assert_eq!(memtable_limit(1 << 20, 5, 0), 64 << 10);
    }
}
