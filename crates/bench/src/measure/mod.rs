//! What one row costs: CPU time of the calling thread and of the process, wall time, bytes written,
//! bytes on disk, resident memory.
//!
//! All figures come from the operating system, so they are the same kind of figure for every
//! engine: an engine cannot leave work out by doing it in another thread (process CPU), in the
//! kernel (both clocks count system time) or after the row (see [`settle`]).

mod clock;
mod io;
mod process;

pub use clock::{process_cpu_nanos, settle, thread_cpu_nanos};
pub use io::{Cause, CountingVfs, IoCount, IoCounters, because};
pub use process::{disk_bytes, memory, read_bytes, written_bytes};
