//! The atomics of the arena: those of the standard library, or those of the model checker `shuttle` under
//! `--cfg bolide_shuttle`, which explores thread interleavings.

#[cfg(bolide_shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};
#[cfg(not(bolide_shuttle))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};
