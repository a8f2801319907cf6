//! Whose the cached rows of a tree are, and whether what a reader found may still become one. Why it is right: `rows`.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::row_cache::RowCache;

/// The owner of a tree without rows, for good.
const NOBODY: u32 = u32::MAX;

/// What rows of a tree are right.
#[derive(Debug, Default)]
pub(super) struct RowGate {
    /// Odd while a flush hands on what it brings.
    flushes: AtomicU64,
    /// Whose the rows are; 0 before the first.
    owner: AtomicU32,
}

impl RowGate {
    /// The tree has no rows from now on.
    pub(super) fn close(&self) {
        self.owner.store(NOBODY, Ordering::Release);
    }

    /// Whose the rows are; `None` where there are none.
    pub(super) fn owner(&self, rows: &RowCache) -> Option<u32> {
        match self.owner.load(Ordering::Acquire) {
            NOBODY => None,
            0 => {
                let new = rows.new_owner().unwrap_or(NOBODY);
                let first = self.owner.compare_exchange(0, new, Ordering::AcqRel, Ordering::Acquire);
                Some(first.map_or_else(|owner| owner, |_| new)).filter(|&owner| owner != NOBODY)
            }
            owner => Some(owner),
        }
    }

    /// Gives up all rows.
    pub(super) fn invalidate(&self, rows: &RowCache) {
        let new = rows.new_owner().unwrap_or(NOBODY);
        // Whoever closes it meanwhile is right.
        let change = |owner| (owner != NOBODY).then_some(new);
        let _ = self.owner.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
    }

    /// What [`is_unchanged_since`](Self::is_unchanged_since) compares with.
    pub(super) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Acquire)
    }

    /// True if no flush has begun since `flushes` were counted, and none ran then.
    pub(super) fn is_unchanged_since(&self, flushes: u64) -> bool {
        flushes.is_multiple_of(2) && self.flushes.load(Ordering::Acquire) == flushes
    }
}

/// A flush that hands on what it brings, up to its end.
pub(super) struct RowUpdate<'t>(&'t RowGate);

impl<'t> RowUpdate<'t> {
    pub(super) fn begin(gate: &'t RowGate) -> Self {
        gate.flushes.fetch_add(1, Ordering::AcqRel);
        Self(gate)
    }
}

impl Drop for RowUpdate<'_> {
    fn drop(&mut self) {
        self.0.flushes.fetch_add(1, Ordering::AcqRel);
    }
}
