//! A disk in memory that forgets what was not synced when the power goes, and fails when told.
//!
//! A run over a [`SimVfs`] and a [`SimRuntime`] depends on their seeds alone, as long as one thread
//! uses them. What a power cut leaves is described in `crash.rs`, what can fail in `fault.rs`.

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
