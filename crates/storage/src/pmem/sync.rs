//! The atomics and locks of regions: the real ones, or those of the model checker `shuttle` under `--cfg bolide_shuttle`, which
//! explores the interleavings of threads.

#[cfg(bolide_shuttle)]
pub(super) use shuttle::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(not(bolide_shuttle))]
pub(super) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(bolide_shuttle)]
pub(super) use model::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(bolide_shuttle))]
pub(super) use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The checker's locks with the interface of `parking_lot`.
#[cfg(bolide_shuttle)]
mod model {
    use shuttle::sync::MutexGuard;
    pub(in super::super) use shuttle::sync::{RwLockReadGuard, RwLockWriteGuard};

    #[derive(Debug, Default)]
    pub(in super::super) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(in super::super) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(in super::super) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }

    #[derive(Debug, Default)]
    pub(in super::super) struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(in super::super) fn new(value: T) -> Self {
            Self(shuttle::sync::RwLock::new(value))
        }

        pub(in super::super) fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner)
        }

        pub(in super::super) fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
            self.0.try_read().ok()
        }

        pub(in super::super) fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }
}
