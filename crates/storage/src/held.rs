//! The list of the files that this process has locked.
//!
//! A forked child inherits the memory of its parent, but none of its locks, nor the thread that may hold the mutex of the list at
//! that moment. Each process therefore has a list of its own, which it makes at its first use.

#![allow(unsafe_code, reason = "a pointer to a list that is never freed")]

use std::collections::BTreeSet;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Device and inode of a file.
pub(crate) type Identity = (u64, u64);

/// The files that one process has locked.
struct OfProcess {
    process: u32,
    // That of the standard library, which shares no table of waiting threads with other mutexes: a fork could find it locked.
    files: Mutex<BTreeSet<Identity>>,
}

/// The list of the process that used it last.
pub(crate) struct HeldLocks(AtomicPtr<OfProcess>);

impl HeldLocks {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// The list of the process with the number `process`, which is this one. It never waits for a thread of another process.
    pub(crate) fn of(&self, process: u32) -> MutexGuard<'static, BTreeSet<Identity>> {
        self.list(process).files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn list(&self, process: u32) -> &'static OfProcess {
        let mut current = self.0.load(Ordering::Acquire);
        loop {
            // SAFETY: NULL, or a list of below, which is never freed.
            if let Some(list) = unsafe { current.as_ref() }.filter(|list| list.process == process) {
                return list;
            }
            let new = Box::into_raw(Box::new(OfProcess { process, files: Mutex::default() }));
            match self.0.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire) {
                // That of the parent stays in memory: one list for each fork.
                Ok(_) => current = new,
                Err(other) => {
                    // SAFETY: made above, and unknown to other threads.
                    drop(unsafe { Box::from_raw(new) });
                    current = other;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_keeps_its_list() {
        let locks = HeldLocks::new();
        locks.of(1).insert((7, 8));
        assert!(locks.of(1).contains(&(7, 8)));
    }

    #[test]
    fn a_forked_child_neither_inherits_the_list_nor_waits_for_its_mutex() {
        let locks = HeldLocks::new();
        let mut of_parent = locks.of(1);
        of_parent.insert((7, 8));
        // The parent holds the mutex at the fork, as far as the child sees.
        assert!(locks.of(2).is_empty());
        locks.of(2).insert((7, 8));
        assert_eq!(locks.of(2).len(), 1);
    }

    #[test]
    fn threads_that_begin_together_have_one_list() {
        let locks = HeldLocks::new();
        std::thread::scope(|scope| {
            for at in 0..8 {
                scope.spawn({
                    let locks = &locks;
                    move || locks.of(1).insert((at, at))
                });
            }
        });
        assert_eq!(locks.of(1).len(), 8);
    }
}
