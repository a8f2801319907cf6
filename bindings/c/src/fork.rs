//! Child processes: the threads of a database do not exist in them, so its objects are unusable there.
//!
//! Nor can a child open a database if its parent had one open at the fork: the table of waiting threads, which all locks of the
//! process share, still lists the threads of the parent there.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::failure::Failure;

/// The number of forks that led to this process since the first database was opened.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// The number of open databases.
static OPEN: AtomicU64 = AtomicU64::new(0);

/// Whether a database was open at a fork that led to this process.
static IS_UNUSABLE: AtomicBool = AtomicBool::new(false);

static REGISTERED: Once = Once::new();

/// The present number of forks. An object with another number belongs to a parent process.
pub(crate) fn forks() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// Counts an open database.
#[derive(Debug)]
pub(crate) struct OpenDatabase(());

impl OpenDatabase {
    /// Counts forks from now on. Fails in a child whose parent had a database open at the fork.
    pub(crate) fn count() -> Result<Self, Failure> {
        if IS_UNUSABLE.load(Ordering::Relaxed) {
            return Err(Failure::forked_library());
        }
        REGISTERED.call_once(register);
        OPEN.fetch_add(1, Ordering::Relaxed);
        Ok(Self(()))
    }
}

impl Drop for OpenDatabase {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(unix)]
fn register() {
    type Hook = Option<extern "C" fn()>;

    unsafe extern "C" {
        fn pthread_atfork(prepare: Hook, parent: Hook, child: Hook) -> std::ffi::c_int;
    }

    extern "C" fn note_fork() {
        FORKS.fetch_add(1, Ordering::Relaxed);
        IS_UNUSABLE.fetch_or(OPEN.load(Ordering::Relaxed) > 0, Ordering::Relaxed);
    }

    // SAFETY: the function of POSIX with its signature; the hook only changes atomic numbers. Without memory for it, forks stay
    // unnoticed.
    unsafe { pthread_atfork(None, None, Some(note_fork)) };
}

#[cfg(not(unix))]
fn register() {}
