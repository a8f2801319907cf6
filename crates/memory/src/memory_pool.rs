//! The memory that the structures of a database share: a pool of large pages, and the slabs of arrays.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::memory_budget::{MemoryBudget, ReclaimableMemory};
use crate::memory_use::{MemorySize, MemoryUse};
use crate::page_mapping::LARGE_PAGE_BYTES;
use crate::page_pool::PagePool;
use crate::slabs::Slabs;

/// Free pages are retained up to this part (1/`FREE_DIVISOR`) of the budget.
const FREE_DIVISOR: u64 = 16;

/// Half full is enough: behind a piece of more than half a slab only smaller ones fit.
const FULL_EIGHTHS: usize = 4;

/// A pool of large pages, and slabs for [arrays](crate::LargeArray).
///
/// A structure keeps the pool that it has memory of alive. Two databases have no memory in common unless they share a pool.
/// They share its [budget](MemoryBudget) too.
pub struct MemoryPool {
    budget: Arc<MemoryBudget>,
    pages: Arc<PagePool>,
    arrays: Mutex<Slabs>,
}

impl MemoryPool {
    /// An empty pool with an unlimited budget. It allocates nothing yet.
    pub fn new() -> Arc<Self> {
        Self::with_budget(MemoryBudget::unlimited())
    }

    /// An empty pool, whose users report to `budget`. It retains free pages up to a sixteenth of the budget, at most 128 MiB,
    /// and returns them to the system when the budget is short.
    ///
    /// ```
    /// use bolide_memory::{MemoryBudget, MemoryPool};
    /// let pool = MemoryPool::with_budget(MemoryBudget::new(64 << 20));
    /// assert_eq!(pool.budget().limit_bytes(), 64 << 20);
    /// ```
    pub fn with_budget(budget: Arc<MemoryBudget>) -> Arc<Self> {
        let max_free = budget.limit_bytes() / FREE_DIVISOR / LARGE_PAGE_BYTES as u64;
        let pages = PagePool::with_limit(usize::try_from(max_free).unwrap_or(usize::MAX));
        let arrays = Mutex::new(Slabs::new(FULL_EIGHTHS, Arc::clone(&pages)));
        let free: Arc<dyn ReclaimableMemory> = pages.clone();
        budget.add_reclaimable(&free);
        Arc::new(Self { budget, pages, arrays })
    }

    /// The budget of all memory of the structures that use the pool, whether it is from the pool or not.
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// The pool of single pages.
    pub fn pages(&self) -> &Arc<PagePool> {
        &self.pages
    }

    /// The slabs of arrays.
    pub(crate) fn arrays(&self) -> &Mutex<Slabs> {
        &self.arrays
    }
}

impl ReclaimableMemory for PagePool {
    fn report(&self, report: &mut dyn FnMut(MemoryUse, MemorySize)) {
        let bytes = (self.free_pages() * LARGE_PAGE_BYTES) as u64;
        report(MemoryUse::FreePages, MemorySize::used(bytes));
    }

    fn release(&self, bytes: u64) -> u64 {
        self.release_free(bytes)
    }

    fn releasable(&self) -> u64 {
        (self.free_pages() * LARGE_PAGE_BYTES) as u64
    }
}

impl fmt::Debug for MemoryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let array_bytes = self.arrays.lock().bytes();
        f.debug_struct("MemoryPool").field("pages", &self.pages).field("array_bytes", &array_bytes).finish()
    }
}
