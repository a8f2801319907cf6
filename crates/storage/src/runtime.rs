//! Clock, random numbers and threads.

use std::collections::hash_map::RandomState;
use std::fmt::Debug;
use std::hash::BuildHasher;
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bolide_base::{Error, Result};
use rustix::time::{ClockId, clock_gettime};

use crate::machine_memory::machine_memory_bytes;

/// The services of the machine that a store needs besides files.
pub trait Runtime: Send + Sync + Debug + 'static {
    /// Microseconds since a fixed moment before the runtime was created. Monotonic.
    fn now_micros(&self) -> u64;

    /// A uniform random number of 64 bits, for identities and sampling, not for secrets.
    fn random_u64(&self) -> u64;

    /// Blocks for `duration`.
    fn sleep(&self, duration: Duration);

    /// Runs `task` on a new thread with this name (Linux truncates it to 15 bytes).
    fn spawn(&self, name: &str, task: Box<dyn FnOnce() + Send>) -> Result<Box<dyn JoinHandle>>;

    /// The number of threads that can run at once. 1 if unknown, and in runs that depend only on a seed.
    fn parallelism(&self) -> usize {
        1
    }

    /// Bytes of memory that the process may use: those of the machine, or the limit of its control group. 0 if unknown. In runs
    /// that depend only on a seed, a constant.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// The id of the current boot of the machine; 0 if unknown.
    fn boot_id(&self) -> u128 {
        0
    }

    /// CPU time of the calling thread, in microseconds; 0 if unknown.
    fn thread_cpu_micros(&self) -> u64;

    /// CPU time of the process, in microseconds; 0 if unknown.
    fn process_cpu_micros(&self) -> u64;
}

/// A thread of [`Runtime::spawn`]. Dropping the handle detaches the thread.
pub trait JoinHandle: Send + Sync + Debug {
    /// Waits for the end of the thread. A panic in it is an error of kind
    /// [`ErrorKind::Internal`](bolide_base::ErrorKind::Internal).
    fn join(self: Box<Self>) -> Result<()>;

    /// Whether the thread has ended.
    fn is_finished(&self) -> bool;
}

/// The clock, random numbers and threads of the operating system.
///
/// ```
/// use bolide_storage::{Runtime, SystemRuntime};
/// let runtime = SystemRuntime::new();
/// let handle = runtime.spawn("flush", Box::new(|| ()))?;
/// handle.join()?;
/// assert!(runtime.now_micros() <= runtime.now_micros());
/// # Ok::<(), bolide_base::Error>(())
/// ```
#[derive(Debug)]
pub struct SystemRuntime {
    start: Instant,
    /// Keyed by random numbers of the operating system, so hashes of a counter are random too.
    keys: RandomState,
    drawn: AtomicU64,
}

impl SystemRuntime {
    /// The runtime of this machine.
    pub fn new() -> Self {
        Self { start: Instant::now(), keys: RandomState::new(), drawn: AtomicU64::new(0) }
    }
}

impl Default for SystemRuntime {
    fn default() -> Self {
        Self::new()
    }
}

impl Runtime for SystemRuntime {
    fn now_micros(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn random_u64(&self) -> u64 {
        // RandomState draws its keys once per thread and increments them afterwards. The process id and the clock make two
        // handles of one moment differ.
        let count = self.drawn.fetch_add(1, Ordering::Relaxed);
        self.keys.hash_one((count, std::process::id(), self.start.elapsed().as_nanos()))
    }

    fn sleep(&self, duration: Duration) {
        thread::sleep(duration);
    }

    fn spawn(&self, name: &str, task: Box<dyn FnOnce() + Send>) -> Result<Box<dyn JoinHandle>> {
        spawn_thread(name, task)
    }

    fn parallelism(&self) -> usize {
        thread::available_parallelism().map_or(1, NonZero::get)
    }

    fn memory_bytes(&self) -> u64 {
        machine_memory_bytes(&|path| std::fs::read_to_string(path).ok())
    }

    fn boot_id(&self) -> u128 {
        // 32 hexadecimal digits in groups (random(4)).
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        u128::from_str_radix(&text.trim().replace('-', ""), 16).unwrap_or(0)
    }

    fn thread_cpu_micros(&self) -> u64 {
        cpu_micros(ClockId::ThreadCPUTime)
    }

    fn process_cpu_micros(&self) -> u64 {
        cpu_micros(ClockId::ProcessCPUTime)
    }
}

fn cpu_micros(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000).saturating_add(nanos / 1_000)
}

/// Starts a thread of the operating system.
pub(crate) fn spawn_thread(name: &str, task: Box<dyn FnOnce() + Send>) -> Result<Box<dyn JoinHandle>> {
    let handle = thread::Builder::new()
        .name(name.to_owned())
        .spawn(task)
        .map_err(|error| Error::io(format_args!("start thread {name}"), error))?;
    Ok(Box::new(ThreadHandle { handle }))
}

#[derive(Debug)]
struct ThreadHandle {
    handle: thread::JoinHandle<()>,
}

impl JoinHandle for ThreadHandle {
    fn join(self: Box<Self>) -> Result<()> {
        let name = self.handle.thread().name().unwrap_or("unnamed").to_owned();
        self.handle.join().map_err(|panic| Error::panicked(format_args!("thread {name}"), &*panic))
    }

    fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }
}
