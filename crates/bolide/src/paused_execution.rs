//! An execution that pauses between its results, and owns what they borrow from.
//!
//! Its state consists of the local variables of an `async` block: the compiler stores them together in one object, which is
//! polled without an executor and never waits for anything.

use std::future::{Future, poll_fn};
use std::mem::replace;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bolide_base::{Error, Result};

/// An execution that pauses.
pub(crate) struct PausedExecution {
    /// `None` after its end, or a panic.
    execution: Option<Pin<Box<dyn Future<Output = Result<()>> + Send>>>,
    /// Whether it has returned.
    has_returned: bool,
}

impl PausedExecution {
    pub(crate) fn new(execution: impl Future<Output = Result<()>> + Send + 'static) -> Self {
        Self { execution: Some(Box::pin(execution)), has_returned: false }
    }

    /// Continues up to the next [`pause`]. False if it has ended.
    ///
    /// # Errors
    /// Those of the execution, which has ended then; `Internal` after a panic of it.
    pub(crate) fn resume(&mut self) -> Result<bool> {
        let Some(mut execution) = self.execution.take() else {
            if self.has_returned {
                return Ok(false);
            }
            return Err(Error::internal("the query of this cursor panicked: it has no further answers"));
        };
        match execution.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => {
                self.execution = Some(execution);
                Ok(true)
            }
            Poll::Ready(result) => {
                self.has_returned = true;
                result.map(|()| false)
            }
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.execution.is_none()
    }
}

/// Pauses the execution that waits for it: [`PausedExecution::resume`] returns, and its next call continues here.
pub(crate) fn pause() -> impl Future<Output = ()> {
    let mut paused = false;
    poll_fn(move |_| if replace(&mut paused, true) { Poll::Ready(()) } else { Poll::Pending })
}
