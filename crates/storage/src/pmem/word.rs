//! Words of a region for readers.

use super::sync::{AtomicU64, Ordering};

/// Eight bytes of a region, read-only. They may change concurrently; each load is atomic.
///
/// Writes use [`RegionWriter`](super::RegionWriter), which copies pages that a checkpoint still needs.
#[derive(Debug)]
#[repr(transparent)]
pub struct Word(pub(super) AtomicU64);

impl Word {
    /// The current value. `ordering` is `Relaxed` or `Acquire`.
    #[inline]
    pub fn load(&self, ordering: std::sync::atomic::Ordering) -> u64 {
        self.0.load(ordering)
    }

    /// The current value, relaxed.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The current value, with acquire order.
    #[inline]
    pub fn acquire(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
