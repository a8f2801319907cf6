//! The lock and the counter of the record of recent commits: those of `parking_lot` and the standard library. Under
//! `--cfg bolide_shuttle` those of the model checker `shuttle`, which explores the interleavings of threads.

#[cfg(bolide_shuttle)]
pub(super) use shuttle::sync::atomic::{AtomicUsize, Ordering};
#[cfg(not(bolide_shuttle))]
pub(super) use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(bolide_shuttle)]
pub(super) use model::Mutex;
#[cfg(not(bolide_shuttle))]
pub(super) use parking_lot::Mutex;

/// The lock of the model checker with the interface of `parking_lot`.
#[cfg(bolide_shuttle)]
mod model {
    use shuttle::sync::MutexGuard;

    #[derive(Debug, Default)]
    pub(in crate::store::commit) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(in crate::store::commit) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(in crate::store::commit) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("a run that panics ends")
        }
    }
}
