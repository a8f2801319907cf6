//! The locks and fences of the structures in regions: those of `parking_lot` and the standard library. Under
//! `--cfg bolide_shuttle` those of the model checker `shuttle`, which explores the interleavings of threads.

#[cfg(bolide_shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(not(bolide_shuttle))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(bolide_shuttle)]
pub(crate) use model::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(bolide_shuttle))]
pub(crate) use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Waits for another thread to leave a critical section of a few dozen instructions. `turns` counts the waits of one
/// caller: after some of them the processor is yielded, since that thread may not be running.
pub(crate) fn wait(turns: &mut u32) {
    *turns += 1;
    #[cfg(bolide_shuttle)]
    shuttle::thread::yield_now();
    #[cfg(not(bolide_shuttle))]
    if *turns < 64 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// The locks of the model checker with the interface of `parking_lot`.
#[cfg(bolide_shuttle)]
mod model {
    pub(crate) use shuttle::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("a run that panics ends")
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().expect("a run that panics ends")
        }

        pub(crate) fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
            self.0.try_read().ok()
        }

        pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().expect("a run that panics ends")
        }

        pub(crate) fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
            self.0.try_write().ok()
        }
    }
}
