//! Child processes: the threads of a database do not exist in them, so its objects are unusable there.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of forks that led to this process since the first database was opened.
static FORKS: AtomicU64 = AtomicU64::new(0);

static REGISTERED: Once = Once::new();

/// The present number of forks. An object with another number belongs to a parent process.
pub(crate) fn forks() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// Counts forks from now on.
pub(crate) fn watch() {
    REGISTERED.call_once(register);
}

#[cfg(unix)]
fn register() {
    type Hook = Option<extern "C" fn()>;

    unsafe extern "C" {
        fn pthread_atfork(prepare: Hook, parent: Hook, child: Hook) -> std::ffi::c_int;
    }

    extern "C" fn note_fork() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }

    // SAFETY: the function of POSIX with its signature; the hook only adds to an atomic number. Without memory for it, forks stay
    // unnoticed.
    unsafe { pthread_atfork(None, None, Some(note_fork)) };
}

#[cfg(not(unix))]
fn register() {}
