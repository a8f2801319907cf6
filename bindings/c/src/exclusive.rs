//! Objects that one thread uses at a time.

use parking_lot::{Mutex, MutexGuard};

use crate::failure::Failure;

/// A value with one user at a time. A second one is refused and does not wait: the slices that the first one lends
/// would end in its call.
#[derive(Debug, Default)]
pub(crate) struct Exclusive<T>(Mutex<T>);

impl<T> Exclusive<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// `what` is the name in the message.
    pub(crate) fn lock(&self, what: &str) -> Result<MutexGuard<'_, T>, Failure> {
        self.0.try_lock().ok_or_else(|| {
            Failure::in_use(format!("another thread uses {what} now"), "let one thread at a time use it")
        })
    }
}
