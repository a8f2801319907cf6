//! The owner of the cached rows of a tree, and the check whether a read may still insert a row. Correctness: see
//! `newest_reads`.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::row_cache::RowCache;

/// The owner of a tree that never has rows.
const DISABLED: u32 = u32::MAX;

/// Validity of the cached rows of a tree.
#[derive(Debug, Default)]
pub(in crate::store) struct RowGate {
    /// Number of begun and ended flushes: odd while a flush updates rows.
    flushes: AtomicU64,
    /// The owner of the rows; 0 before the first.
    owner: AtomicU32,
}

impl RowGate {
    /// Disables rows for the tree, for good.
    pub(in crate::store) fn disable(&self) {
        self.owner.store(DISABLED, Ordering::Release);
    }

    /// The owner of the rows; `None` if rows are disabled.
    pub(in crate::store) fn owner(&self, rows: &RowCache) -> Option<u32> {
        match self.owner.load(Ordering::Acquire) {
            DISABLED => None,
            0 => {
                let new = rows.new_owner().unwrap_or(DISABLED);
                let first = self.owner.compare_exchange(0, new, Ordering::AcqRel, Ordering::Acquire);
                Some(first.map_or_else(|owner| owner, |_| new)).filter(|&owner| owner != DISABLED)
            }
            owner => Some(owner),
        }
    }

    /// Invalidates all rows.
    pub(in crate::store) fn invalidate(&self, rows: &RowCache) {
        let new = rows.new_owner().unwrap_or(DISABLED);
        // A concurrent [`disable`](Self::disable) wins.
        let change = |owner| (owner != DISABLED).then_some(new);
        let _ = self.owner.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
    }

    /// The count for [`is_unchanged_since`](Self::is_unchanged_since).
    pub(in crate::store) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Acquire)
    }

    /// True if no flush has begun since `flushes` was read, and none was running then.
    pub(in crate::store) fn is_unchanged_since(&self, flushes: u64) -> bool {
        flushes.is_multiple_of(2) && self.flushes.load(Ordering::Acquire) == flushes
    }
}

/// A flush that updates rows, until dropped.
pub(in crate::store) struct RowUpdate<'t>(&'t RowGate);

impl<'t> RowUpdate<'t> {
    pub(in crate::store) fn begin(gate: &'t RowGate) -> Self {
        gate.flushes.fetch_add(1, Ordering::AcqRel);
        Self(gate)
    }
}

impl Drop for RowUpdate<'_> {
    fn drop(&mut self) {
        self.0.flushes.fetch_add(1, Ordering::AcqRel);
    }
}
