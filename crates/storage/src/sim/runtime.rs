//! A clock that moves when it is read or slept on, and random numbers from a seed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bolide_base::Result;

use super::rng::nth;
use crate::runtime::{JoinHandle, Runtime, spawn_thread};

/// A runtime whose clock and random numbers depend on its seed and on the calls made so far.
///
/// [`sleep`](Runtime::sleep) moves the clock and returns at once. Threads are real ones, so a run
/// depends on the seed alone only as long as it starts none.
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

    /// Moves the clock forward.
    pub fn advance(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let _ = self
            .now_micros
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| Some(now.saturating_add(micros)));
    }
}

impl Runtime for SimRuntime {
    fn now_micros(&self) -> u64 {
        // One microsecond for each look, so that a loop that waits for a moment comes to an end.
        self.now_micros.fetch_add(1, Ordering::AcqRel)
    }

    fn random_u64(&self) -> u64 {
        nth(self.seed, self.drawn.fetch_add(1, Ordering::AcqRel).wrapping_add(1))
    }

    fn sleep(&self, duration: Duration) {
        self.advance(duration);
        // A loop that sleeps until another thread is done must let that thread run.
        thread::yield_now();
    }

    fn spawn(&self, name: &str, task: Box<dyn FnOnce() + Send>) -> Result<Box<dyn JoinHandle>> {
        spawn_thread(name, task)
    }

    /// Always 0: CPU time would differ from run to run.
    /// The same for all: power cuts show in the numbers of mounts.
    fn boot_id(&self) -> u128 {
        1
    }

    fn thread_cpu_micros(&self) -> u64 {
        0
    }

    /// Always 0: CPU time would differ from run to run.
    fn process_cpu_micros(&self) -> u64 {
        0
    }
}
