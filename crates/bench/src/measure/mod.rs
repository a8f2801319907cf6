//! The costs of a row: CPU time of the calling thread and of the process, wall time, bytes written, bytes on disk, resident
//! memory.
//!
//! All figures come from the operating system and have the same meaning for every engine. They include work in other threads
//! (process CPU), in the kernel (both clocks count system time) and after the row (see [`settle`]).

mod clock;
mod control_group;
mod io;
mod process;

pub use clock::{process_cpu_nanos, settle, thread_cpu_nanos};
pub use control_group::{ColdRun, ControlGroup};
pub use io::{Cause, CountingVfs, IoCount, IoCounters, with_cause};
pub use process::{device_read_bytes, disk_bytes, memory, read_bytes, written_bytes};
