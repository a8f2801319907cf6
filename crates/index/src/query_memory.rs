//! The memory of a running query within the budget of the database.
//!
//! A query with little memory counts nothing: it takes [`UNCOUNTED_BYTES`] at most, and a report costs more than the query. Beyond
//! that, a sort requests memory, and makes do with less if the budget refuses it; windows of records, which are bounded, report
//! theirs.

use std::sync::Arc;

use bolide_memory::{MemoryBudget, MemoryHolder, MemoryUse};

/// Bytes that a query takes without a request.
pub(crate) const UNCOUNTED_BYTES: usize = 256 << 10;

/// A part of the memory of a query; counted until it is dropped.
#[derive(Default)]
pub(crate) struct QueryMemory<'b> {
    budget: Option<&'b Arc<MemoryBudget>>,
    /// Created by the first report.
    holder: Option<MemoryHolder>,
}

impl<'b> QueryMemory<'b> {
    /// Memory that counts against `budget`.
    pub(crate) fn new(budget: Option<&'b Arc<MemoryBudget>>) -> Self {
        Self { budget, holder: None }
    }

    /// Counts `bytes` in all, more than before; false if the budget does not allow it.
    pub(crate) fn request(&mut self, bytes: usize) -> bool {
        let Some(budget) = self.budget else { return true };
        let holder = self.holder.get_or_insert_with(|| budget.holder(MemoryUse::Queries, None));
        holder.request((bytes as u64).saturating_sub(holder.bytes())).is_ok()
    }

    /// Counts the `bytes` that are allocated.
    pub(crate) fn set(&mut self, bytes: usize) {
        match (&self.holder, self.budget) {
            (Some(holder), _) => holder.set_and_release(bytes as u64),
            (None, Some(budget)) if bytes > UNCOUNTED_BYTES => {
                let holder = budget.holder(MemoryUse::Queries, None);
                holder.set_and_release(bytes as u64);
                self.holder = Some(holder);
            }
            _ => {}
        }
    }
}
