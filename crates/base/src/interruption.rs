//! Interruption of long reads by their caller.
//!
//! A read of unknown length, such as a query or a check, tests at bounded distances whether its thread has an interruption
//! to deliver. Writes and background jobs never test. A thread without [`interruptible`] pays one load of a thread-local
//! flag for each [`InterruptionSteps::INTERVAL`] steps.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::error::{Error, ErrorKind, Result};

/// Returns whether the read shall end.
type Test = Rc<dyn Fn() -> bool>;

thread_local! {
    /// Whether `TEST` contains a test, and it is not running.
    static IS_SET: Cell<bool> = const { Cell::new(false) };
    static TEST: RefCell<Option<Test>> = const { RefCell::new(None) };
}

/// Restores the test of the enclosing scope.
struct EnclosingTest {
    was_set: bool,
    test: Option<Test>,
}

impl EnclosingTest {
    fn replace_by(test: Option<Test>) -> Self {
        let was_set = IS_SET.replace(test.is_some());
        Self { was_set, test: TEST.replace(test) }
    }
}

impl Drop for EnclosingTest {
    fn drop(&mut self) {
        IS_SET.set(self.was_set);
        let own = TEST.replace(self.test.take());
        drop(own);
    }
}

/// Runs `work`. Reads in it, in this thread, call `is_interrupted` from time to time, and end with
/// [`ErrorKind::Interrupted`] once it returns true.
///
/// Queries, aggregates, checks, measurements of the advisor, and the reads of updates and deletes of all answers end so.
/// A read tests every few hundred records: it calls a test of some nanoseconds. What an interrupted operation has
/// committed stays. During the test itself no read is interrupted.
///
/// ```
/// use bolide_base::ErrorKind;
/// use bolide_base::interruption::{InterruptionSteps, interruptible};
/// let scan = || {
///     let mut steps = InterruptionSteps::default();
///     (0..1_000).try_for_each(|_| steps.step())
/// };
/// assert!(scan().is_ok());
/// assert_eq!(interruptible(|| true, scan).unwrap_err().kind(), ErrorKind::Interrupted);
/// ```
pub fn interruptible<T>(is_interrupted: impl Fn() -> bool + 'static, work: impl FnOnce() -> T) -> T {
    let _enclosing = EnclosingTest::replace_by(Some(Rc::new(is_interrupted)));
    work()
}

/// The steps of a read.
#[derive(Debug, Clone, Copy, Default)]
pub struct InterruptionSteps(u32);

impl InterruptionSteps {
    /// Steps between two tests.
    pub const INTERVAL: u32 = 256;

    /// Counts a step, and tests at the end of an interval.
    ///
    /// # Errors
    /// [`ErrorKind::Interrupted`] if the caller has interrupted the read.
    #[inline]
    pub fn step(&mut self) -> Result<()> {
        self.0 = self.0.wrapping_add(1);
        if self.0.is_multiple_of(Self::INTERVAL) && IS_SET.get() { test() } else { Ok(()) }
    }
}

#[cold]
fn test() -> Result<()> {
    // Not set while it runs: it may call this program's own code, which reads and writes.
    let running = EnclosingTest::replace_by(None);
    let is_interrupted = running.test.as_ref().is_some_and(|test| test());
    drop(running);
    if is_interrupted {
        return Err(Error::new(ErrorKind::Interrupted, "the caller interrupted the operation"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    fn read(records: usize) -> Result<()> {
        let mut steps = InterruptionSteps::default();
        (0..records).try_for_each(|_| steps.step())
    }

    #[test]
    fn a_read_ends_after_an_interval() {
        let calls = Rc::new(Cell::new(0));
        let counted = calls.clone();
        let result = interruptible(
            move || {
                counted.set(counted.get() + 1);
                counted.get() == 3
            },
            || {
                read(2 * 256 + 255)?;
                assert_eq!(calls.get(), 2);
                read(1_000)
            },
        );
        assert_eq!((result.unwrap_err().kind(), calls.get()), (ErrorKind::Interrupted, 3));
        assert!(read(1_000).is_ok());
    }

    #[test]
    fn scopes_nest_also_in_a_test_and_after_a_panic() {
        let inner = || interruptible(|| false, || read(1_000));
        let result = interruptible(
            move || {
                // The reads of the test are not interrupted by itself.
                assert!(inner().is_ok() && read(1_000).is_ok());
                true
            },
            || {
                assert!(inner().is_ok());
                assert!(catch_unwind(|| interruptible(|| false, || panic!("a fault"))).is_err());
                read(1_000)
            },
        );
        assert!(result.is_err());
        assert!(read(1_000).is_ok());
    }
}
