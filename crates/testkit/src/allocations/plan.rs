//! Which allocation of the process fails. The allocator of the program calls [`admits`]; the proof sets the plan.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The allocation that fails, counted from 1; 0 for none.
static FAILS_AT: AtomicU64 = AtomicU64::new(0);
/// Allocations since the plan was set.
static COUNT: AtomicU64 = AtomicU64::new(0);
/// The most bytes of one allocation.
static LIMIT_BYTES: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Allocations that were refused because of their size, and the largest of them.
static REFUSED: AtomicU64 = AtomicU64::new(0);
static LARGEST_REFUSED: AtomicUsize = AtomicUsize::new(0);

/// Whether an allocation of so many bytes succeeds. Allocates nothing.
pub fn admits(bytes: usize) -> bool {
    if bytes > LIMIT_BYTES.load(Ordering::Relaxed) {
        REFUSED.fetch_add(1, Ordering::Relaxed);
        LARGEST_REFUSED.fetch_max(bytes, Ordering::Relaxed);
        return false;
    }
    let fails_at = FAILS_AT.load(Ordering::Relaxed);
    fails_at == 0 || COUNT.fetch_add(1, Ordering::Relaxed) + 1 != fails_at
}

/// Lets the allocation with this number from now on fail, in whatever thread it is.
pub fn fail_at(number: u64) {
    COUNT.store(0, Ordering::Relaxed);
    FAILS_AT.store(number, Ordering::Relaxed);
}

/// Allocations since [`fail_at`].
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Refuses every allocation of more bytes than this.
pub fn limit(bytes: usize) {
    LIMIT_BYTES.store(bytes, Ordering::Relaxed);
}

/// How many allocations were refused because of their size, and the size of the largest; counts from nothing again.
pub fn take_refused() -> (u64, usize) {
    (REFUSED.swap(0, Ordering::Relaxed), LARGEST_REFUSED.swap(0, Ordering::Relaxed))
}
