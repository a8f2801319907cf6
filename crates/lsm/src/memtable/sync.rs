//! The atomics of the memtable: those of the standard library, or those of the model checker `shuttle` under
//! `--cfg bolide_shuttle`, which explores thread interleavings.

#[cfg(bolide_shuttle)]
pub(super) use shuttle::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(not(bolide_shuttle))]
pub(super) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// The number of lanes over which the writer threads of a memtable are distributed.
pub(super) const LANES: usize = 4;

/// The lane of this thread. Threads of different lanes write to different cache lines where possible.
#[inline]
pub(super) fn lane() -> usize {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    thread_local! {
        static LANE: usize = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % LANES;
    }
    // During the destruction of thread-local data, any lane is valid.
    LANE.try_with(|&lane| lane).unwrap_or(0)
}

/// Waits for another thread to leave a critical section of a few dozen instructions. `turns` counts the waits of one
/// caller: after 64 of them it yields the processor, since the other thread may not be running.
pub(super) fn wait(turns: &mut u32) {
    *turns += 1;
    #[cfg(bolide_shuttle)]
    shuttle::thread::yield_now();
    #[cfg(not(bolide_shuttle))]
    if *turns < 64 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}
