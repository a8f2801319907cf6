//! A simulated disk in memory that loses unsynced data at a power cut, with fault injection.
//!
//! A run over a [`SimVfs`] and a [`SimRuntime`] depends only on their seeds, as long as a single thread uses them. `crash.rs`
//! defines the state after a power cut, `fault.rs` the faults.

mod crash;
mod disk;
mod fault;
mod file;
mod machine;
mod rng;
mod runtime;
mod vfs;

pub use crash::CrashMode;
pub use fault::{Fault, FaultPlan, IoCounters};
pub use machine::RecordImages;
pub use rng::SimRng;
pub use runtime::SimRuntime;
pub use vfs::{DiskImage, SimVfs};
