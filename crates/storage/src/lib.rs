//! The only crate of Bolide that touches files, clocks, random numbers and threads.
//!
//! The crates above use two small traits, [`Vfs`] with [`File`], and [`Runtime`]. Opening a database passes their
//! implementations:
//!
//! | | real | for tests |
//! |---|---|---|
//! | files | [`DiskVfs`] | [`MemVfs`] (fast, volatile), [`SimVfs`] (power cuts and faults by a seed) |
//! | clock, random numbers, threads | [`SystemRuntime`] | [`SimRuntime`] (a manual clock, seeded random numbers) |
//!
//! The clippy list `disallowed-methods` at the root of the repository bans the functions of the operating system from the
//! other library crates. So a run over the simulated implementations depends only on its seed.
#![deny(unsafe_code)]

mod directory;
mod disk;
mod file_reads;
mod file_space;
mod held;
mod io_error;
mod lock;
mod log_window;
mod machine_memory;
mod mapped_log;
mod marker;
mod mem;
pub mod pmem;
mod runtime;
mod sim;
mod vfs;

pub use disk::DiskVfs;
pub use mem::MemVfs;
pub use runtime::{JoinHandle, Runtime, SystemRuntime};
pub use sim::{CrashMode, DiskImage, Fault, FaultPlan, IoCounters, RecordImages, SimRng, SimRuntime, SimVfs};
pub use vfs::{File, FileLock, Marker, Vfs};
