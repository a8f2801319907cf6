//! A word of a region as its readers see it.

use super::sync::{AtomicU64, Ordering};

/// Eight bytes of a region that can be read. They change under the reader; each load is whole.
///
/// Writing goes through [`RegionWriter`](super::RegionWriter) alone, which knows what a cut still needs.
#[derive(Debug)]
#[repr(transparent)]
pub struct Word(pub(super) AtomicU64);

impl Word {
    /// The value now. `ordering` is `Relaxed` or `Acquire`.
    #[inline]
    pub fn load(&self, ordering: std::sync::atomic::Ordering) -> u64 {
        self.0.load(ordering)
    }

    /// The value now, without an order among loads.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The value now; all that its writer stored before is seen by loads after this one.
    #[inline]
    pub fn acquire(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
