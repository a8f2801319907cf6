//! CPU clocks, and the wait for background work to end.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// CPU time of the calling thread so far, user and system, in nanoseconds.
pub fn thread_cpu_nanos() -> u64 {
    nanos(ClockId::ThreadCPUTime)
}

/// CPU time of every thread of this process so far, user and system, in nanoseconds.
pub fn process_cpu_nanos() -> u64 {
    nanos(ClockId::ProcessCPUTime)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Waits until the process has been idle for a third of a second, when the flushes and compactions of any engine are done. Ends
/// after `limit` at the latest. Returns the time waited.
pub fn settle(limit: Duration) -> Duration {
    const WINDOW: Duration = Duration::from_millis(60);
    const IDLE_WINDOWS: u32 = 6;
    const IDLE_CPU_NANOS: u64 = 1_500_000;

    let started = Instant::now();
    let mut idle = 0;
    let mut before = process_cpu_nanos();
    while idle < IDLE_WINDOWS && started.elapsed() < limit {
        std::thread::sleep(WINDOW);
        let now = process_cpu_nanos();
        idle = if now - before < IDLE_CPU_NANOS { idle + 1 } else { 0 };
        before = now;
    }
    started.elapsed()
}
