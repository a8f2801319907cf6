//! The memory that the structures of a database share: a pool of large pages, and the slabs of arrays.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::page_pool::PagePool;
use crate::slabs::Slabs;

/// Half full is enough: behind a piece of more than half a slab only smaller ones fit.
const FULL_EIGHTHS: usize = 4;

/// A pool of large pages, and slabs for [arrays](crate::LargeArray).
///
/// A structure keeps the pool that it has memory of alive. Two databases have no memory in common unless they share a pool.
pub struct MemoryPool {
    pages: Arc<PagePool>,
    arrays: Mutex<Slabs>,
}

impl MemoryPool {
    /// An empty pool. It allocates nothing yet.
    pub fn new() -> Arc<Self> {
        let pages = PagePool::new();
        Arc::new(Self { arrays: Mutex::new(Slabs::new(FULL_EIGHTHS, Arc::clone(&pages))), pages })
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

impl fmt::Debug for MemoryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let array_bytes = self.arrays.lock().bytes();
        f.debug_struct("MemoryPool").field("pages", &self.pages).field("array_bytes", &array_bytes).finish()
    }
}
