//! The failure plan of the global allocator. The allocator calls [`admits`]; the proof sets the plan.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The number of the failing allocation, counted from 1; 0 for none.
static FAILS_AT: AtomicU64 = AtomicU64::new(0);
/// Allocations since the plan was set.
static COUNT: AtomicU64 = AtomicU64::new(0);
/// The maximum size of one allocation in bytes.
static LIMIT_BYTES: AtomicUsize = AtomicUsize::new(usize::MAX);
/// The number of allocations refused because of their size, and the size of the largest.
static REFUSED: AtomicU64 = AtomicU64::new(0);
static LARGEST_REFUSED: AtomicUsize = AtomicUsize::new(0);

/// Whether an allocation of `bytes` succeeds. Does not allocate.
pub fn admits(bytes: usize) -> bool {
    if bytes > LIMIT_BYTES.load(Ordering::Relaxed) {
        REFUSED.fetch_add(1, Ordering::Relaxed);
        LARGEST_REFUSED.fetch_max(bytes, Ordering::Relaxed);
        return false;
    }
    let fails_at = FAILS_AT.load(Ordering::Relaxed);
    fails_at == 0 || COUNT.fetch_add(1, Ordering::Relaxed) + 1 != fails_at
}

/// Makes the `number`-th allocation after this call fail, in any thread.
pub fn fail_at(number: u64) {
    COUNT.store(0, Ordering::Relaxed);
    FAILS_AT.store(number, Ordering::Relaxed);
}

/// The number of allocations since [`fail_at`].
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Refuses every allocation of more than `bytes`.
pub fn limit(bytes: usize) {
    LIMIT_BYTES.store(bytes, Ordering::Relaxed);
}

/// Returns and resets the number of allocations refused because of their size, and the size of the largest.
pub fn take_refused() -> (u64, usize) {
    (REFUSED.swap(0, Ordering::Relaxed), LARGEST_REFUSED.swap(0, Ordering::Relaxed))
}
