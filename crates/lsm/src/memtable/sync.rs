//! The atomics of the memtable: the standard library's, or those of the model checker `shuttle` under
//! `--cfg bolide_shuttle`, which explores how threads interleave.

#[cfg(bolide_shuttle)]
pub(super) use shuttle::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(not(bolide_shuttle))]
pub(super) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// How many lanes the writers of a memtable are spread over.
pub(super) const LANES: usize = 4;

/// The lane of this thread. Threads of different lanes write to different cache lines where they can.
#[inline]
pub(super) fn lane() -> usize {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    thread_local! {
        static LANE: usize = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % LANES;
    }
    // While a thread ends, any lane will do.
    LANE.try_with(|&lane| lane).unwrap_or(0)
}

/// Waits for another thread to leave a section of a few dozen instructions. `turns` counts the waits of
/// one caller: after some of them the processor is given away, since that thread may not be running.
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

/// Asks for the `lines` cache lines from `address` on, ahead of their use. Any address is fine.
#[inline]
pub(crate) fn prefetch<T>(address: *const T, lines: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in 0..lines {
        // SAFETY: a prefetch reads nothing and cannot fault, whatever its address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(address.cast::<i8>().wrapping_add(64 * line));
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (address, lines);
}
