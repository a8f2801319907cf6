//! Whether a handle accepts writes.

use std::sync::{Arc, OnceLock};

use bolide_base::{Error, ErrorKind, Result};

/// Threads that wait for work.
pub(super) trait WaitingThreads: Send + Sync {
    /// Wakes them: the handle was poisoned.
    fn wake_all(&self);
}

/// The health of a handle. A handle that was poisoned rejects all further writes; reads go on.
pub(super) struct Health {
    is_read_only: bool,
    poisoned: OnceLock<Error>,
    /// Woken when the handle is poisoned.
    waiting: Arc<dyn WaitingThreads>,
}

impl Health {
    pub(super) fn new(is_read_only: bool, waiting: Arc<dyn WaitingThreads>) -> Self {
        Self { is_read_only, poisoned: OnceLock::new(), waiting }
    }

    /// Fails if writes are not allowed.
    #[inline]
    pub(super) fn check(&self) -> Result<()> {
        if let Some(error) = self.poisoned.get() {
            return Err(error.clone());
        }
        if self.is_read_only {
            return Err(Error::new(ErrorKind::ReadOnly, "the database is open read-only"));
        }
        Ok(())
    }

    /// True if the handle was poisoned.
    pub(super) fn is_poisoned(&self) -> bool {
        self.poisoned.get().is_some()
    }

    /// Rejects all further writes of this handle because of `cause`.
    pub(super) fn poison(&self, cause: &Error) {
        let message = format!("an earlier write failed, so this handle refuses to write: {cause}");
        let _ = self.poisoned.set(Error::new(ErrorKind::Poisoned, message));
        self.waiting.wake_all();
    }

    /// Runs `write`, which writes to the log or the manifest. A panic poisons the handle: the log may have records whose
    /// sequence numbers are not counted, and the next write would use them again. The same holds for the manifest.
    #[inline]
    pub(super) fn poison_on_panic<T>(&self, write: impl FnOnce() -> T) -> T {
        let mut guard = PoisonOnPanic { health: self, armed: true };
        let result = write();
        guard.armed = false;
        result
    }
}

/// Poisons the handle if it is dropped while armed, that is, during a panic.
struct PoisonOnPanic<'a> {
    health: &'a Health,
    armed: bool,
}

impl Drop for PoisonOnPanic<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.armed {
            let cause = "a thread panicked while it wrote to the log or to the manifest";
            self.health.poison(&Error::internal(cause));
        }
    }
}
