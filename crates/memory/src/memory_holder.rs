//! A structure's share of the memory budget.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bolide_base::{Error, Result};

use crate::memory_budget::MemoryBudget;
use crate::memory_use::{HeldMemory, MemoryUse};

/// The bytes of one structure, counted in its [budget](MemoryBudget) until it is dropped.
///
/// The structure [requests](Self::request) memory before it allocates, where it can do without; otherwise it
/// [reports](Self::set) what it has. Both are for coarse steps: an extent, an sstable, a query. A report that does not exceed the
/// budget is two atomic additions; a request takes a lock, and has caches and memtables report their sizes.
pub struct MemoryHolder {
    budget: Arc<MemoryBudget>,
    held: Arc<HeldMemory>,
}

impl MemoryBudget {
    /// A holder without memory. `name` distinguishes it in reports and messages.
    pub fn holder(self: &Arc<Self>, memory_use: MemoryUse, name: Option<Arc<str>>) -> MemoryHolder {
        let held = Arc::new(HeldMemory::new(memory_use, name));
        if held.name().is_some() {
            self.add_named(&held);
        }
        MemoryHolder { budget: Arc::clone(self), held }
    }
}

impl MemoryHolder {
    /// Bytes that are counted.
    pub fn bytes(&self) -> u64 {
        self.held.bytes()
    }

    /// The budget.
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// Counts `more` bytes that are about to be allocated, after caches have released memory if that is necessary.
    ///
    /// # Errors
    /// `NoSpace` if the budget does not allow it, with the name of the holder, and with all the memory that the holder
    /// [needs](Error::needed_memory_bytes): nothing is counted then.
    pub fn request(&self, more: u64) -> Result<()> {
        if more == 0 {
            return Ok(());
        }
        self.budget.grant(self.held.memory_use(), more).map_err(|missing| self.refusal(more, missing))?;
        self.held.bytes.fetch_add(more, Ordering::Relaxed);
        Ok(())
    }

    /// Sets the counted bytes to those that the structure has. Never refused.
    pub fn set(&self, bytes: u64) {
        let before = self.held.bytes.swap(bytes, Ordering::Relaxed);
        self.budget.count(self.held.memory_use(), before, bytes);
    }

    /// As [`set`](Self::set); caches release memory if that exceeds the budget. Cost: they report their sizes.
    pub fn set_and_release(&self, bytes: u64) {
        let grown = bytes.saturating_sub(self.bytes());
        self.set(bytes);
        if grown > 0 {
            self.budget.release_excess(grown);
        }
    }

    #[cold]
    fn refusal(&self, more: u64, missing: u64) -> Error {
        let name = self.held.name().map_or(self.held.memory_use().name(), |name| name);
        let limit = self.budget.limit_bytes();
        let bytes = self.bytes();
        Error::memory_refused(
            format!(
                "{name} has {bytes} bytes of memory and needs {more} more, {missing} more than the memory budget of {limit} \
                 bytes leaves it: raise the budget (`Options::memory_bytes`, `--memory`), lower `cache_bytes` or \
                 `memtable_bytes`, or declare the index with a kind that stays on disk (composite)"
            ),
            bytes.saturating_add(more),
        )
    }
}

impl Drop for MemoryHolder {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl fmt::Debug for MemoryHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryHolder({}, {} bytes)", self.held.memory_use().name(), self.bytes())
    }
}
