//! A simulated clock, which advances at reads and sleeps, and seeded random numbers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bolide_base::Result;

use super::rng::nth;
use crate::runtime::{JoinHandle, Runtime, spawn_thread};

/// A runtime whose clock and random numbers depend only on its seed and on the previous calls.
///
/// [`sleep`](Runtime::sleep) advances the clock and returns at once. Threads are real, so a run is deterministic only without
/// them.
///
/// ```
/// use std::time::Duration;
/// use bolide_storage::{Runtime, SimRuntime};
/// let runtime = SimRuntime::new(1);
/// let before = runtime.now_micros();
/// runtime.sleep(Duration::from_secs(3600));
/// assert!(runtime.now_micros() >= before + 3_600_000_000);
/// assert_eq!(SimRuntime::new(5).random_u64(), SimRuntime::new(5).random_u64());
/// ```
#[derive(Debug)]
pub struct SimRuntime {
    seed: u64,
    drawn: AtomicU64,
    now_micros: AtomicU64,
}

impl SimRuntime {
    /// The runtime of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { seed, drawn: AtomicU64::new(0), now_micros: AtomicU64::new(0) }
    }

    /// Advances the clock.
    pub fn advance(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let _ = self
            .now_micros
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| Some(now.saturating_add(micros)));
    }
}

impl Runtime for SimRuntime {
    fn now_micros(&self) -> u64 {
        // One microsecond per read, so that a loop that waits for a time ends.
        self.now_micros.fetch_add(1, Ordering::AcqRel)
    }

    fn random_u64(&self) -> u64 {
        nth(self.seed, self.drawn.fetch_add(1, Ordering::AcqRel).wrapping_add(1))
    }

    fn sleep(&self, duration: Duration) {
        self.advance(duration);
        // A loop that sleeps until another thread is done must yield to it.
        thread::yield_now();
    }

    fn spawn(&self, name: &str, task: Box<dyn FnOnce() + Send>) -> Result<Box<dyn JoinHandle>> {
        spawn_thread(name, task)
    }

    /// Constant: 4 GiB.
    fn memory_bytes(&self) -> u64 {
        4 << 30
    }

    /// Constant: power cuts change the mount ids instead.
    fn boot_id(&self) -> u128 {
        1
    }

    /// Always 0: CPU time would differ from run to run.
    fn thread_cpu_micros(&self) -> u64 {
        0
    }

    /// Always 0: CPU time would differ from run to run.
    fn process_cpu_micros(&self) -> u64 {
        0
    }
}
