//! Signals during long calls: their handlers run, and an exception of a handler ends the call.
//!
//! A read tests for signals between its steps, in the thread that began it. Work that the engine cannot interrupt goes on
//! in a thread of its own, and its caller waits in steps.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bolide::Result;
use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;

use crate::errors::{from_engine, from_panic};

/// The time between two tests of a read. A test may wait for the interpreter for a switch interval, 5 ms.
const READ_INTERVAL: Duration = Duration::from_millis(50);
/// The time between two tests while a caller waits.
const WAIT_INTERVAL: Duration = Duration::from_millis(20);

/// The signals of one call.
struct Signals {
    last_test: Cell<Instant>,
    raised: RefCell<Option<PyErr>>,
}

impl Signals {
    fn new() -> Self {
        Self { last_test: Cell::new(Instant::now()), raised: RefCell::new(None) }
    }

    /// Whether a handler has raised an exception. Runs the handlers at most once in an interval.
    fn have_raised(&self) -> bool {
        if self.raised.borrow().is_some() {
            return true;
        }
        if self.last_test.get().elapsed() < READ_INTERVAL {
            return false;
        }
        let raised = Python::attach(|py| py.check_signals()).err();
        self.last_test.set(Instant::now());
        let have_raised = raised.is_some();
        *self.raised.borrow_mut() = raised;
        have_raised
    }
}

/// As [`detached`](crate::errors::detached), for a read: handlers of signals run during it, and an exception of one ends it.
/// Handlers may use the database, so `work` must hold no lock of this thread that they may take.
pub(crate) fn interruptible<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    let (done, raised) = py.detach(|| {
        let signals = Rc::new(Signals::new());
        let tested = signals.clone();
        let done =
            catch_unwind(AssertUnwindSafe(|| bolide::interruptible(move || tested.have_raised(), work)));
        (done, signals.raised.take())
    });
    match (raised, done) {
        (Some(raised), _) => Err(raised),
        (None, Ok(result)) => result.map_err(|error| from_engine(&error)),
        (None, Err(panic)) => Err(from_panic(&*panic)),
    }
}

/// The result of work in another thread.
type Outcome = std::thread::Result<Result<()>>;

/// Runs `work` in a thread of its own, and waits for it. If a handler of a signal raises an exception, the caller does not
/// wait any longer, and the work goes on.
pub(crate) fn in_background(
    py: Python<'_>,
    work: impl FnOnce() -> Result<()> + Send + 'static,
) -> PyResult<()> {
    let shared: Arc<(Mutex<Option<Outcome>>, Condvar)> = Arc::default();
    let of_worker = shared.clone();
    let run = move || {
        let done = catch_unwind(AssertUnwindSafe(work));
        *of_worker.0.lock() = Some(done);
        of_worker.1.notify_all();
    };
    // The thread is not joined: it may outlive the call.
    std::thread::Builder::new().name("bolide-call".to_owned()).spawn(run)?;
    loop {
        let done = py.detach(|| {
            let mut outcome = shared.0.lock();
            if outcome.is_none() {
                shared.1.wait_for(&mut outcome, WAIT_INTERVAL);
            }
            outcome.take()
        });
        match done {
            None => py.check_signals()?,
            Some(Ok(result)) => return result.map_err(|error| from_engine(&error)),
            Some(Err(panic)) => return Err(from_panic(&*panic)),
        }
    }
}
