//! Errors and panics of threads that no call waits for.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bolide_base::{Error, Result};
use parking_lot::Mutex;

/// The maximum number of retained errors; later ones are counted.
const MAX_RETAINED: usize = 16;

/// Errors and panics of background work that no call returns, in the order of their occurrence.
#[derive(Debug, Default)]
pub(crate) struct BackgroundErrors(Mutex<RetainedErrors>);

#[derive(Debug, Default)]
struct RetainedErrors {
    errors: Vec<Error>,
    further: u64,
}

impl BackgroundErrors {
    /// Runs `work`, named `what` in errors. Notes its error or panic and then returns nothing.
    pub(crate) fn watch<T>(&self, what: &str, work: impl FnOnce() -> Result<T>) -> Option<T> {
        let outcome = catch_unwind(AssertUnwindSafe(work))
            .map(|outcome| outcome.map_err(|error| error.context(what)))
            .unwrap_or_else(|panic| Err(Error::panicked(what, &*panic)));
        outcome.map_err(|error| self.note(error)).ok()
    }

    /// Notes an error, unless the last one was the same.
    fn note(&self, error: Error) {
        let mut retained = self.0.lock();
        if retained.errors.last().is_some_and(|last| last.message() == error.message()) {
            return;
        }
        if retained.errors.len() == MAX_RETAINED {
            retained.further += 1;
            return;
        }
        retained.errors.push(error);
    }

    /// The retained errors, and the number of later ones.
    pub(crate) fn all(&self) -> (Vec<Error>, u64) {
        let retained = self.0.lock();
        (retained.errors.clone(), retained.further)
    }
}

#[cfg(test)]
mod tests {
    use bolide_base::ErrorKind;

    use super::*;

    #[test]
    fn errors_and_panics_are_retained_up_to_a_limit() {
        let errors = BackgroundErrors::default();
        let fail = |message: String| {
            let failed: Option<()> = errors.watch("the work", || Err(Error::new(ErrorKind::Io, message)));
            assert_eq!(failed, None);
        };
        assert_eq!(errors.watch("the work", || Ok(7)), Some(7));
        let panicked: Option<()> = errors.watch("the work", || panic!("unexpected state"));
        assert_eq!(panicked, None);
        (0..2).for_each(|_| fail("the disk fails".to_owned()));
        let (all, further) = errors.all();
        assert_eq!((all.len(), further), (2, 0), "the same error is retained once");
        assert!(all[0].message().contains("the work panicked: unexpected state"), "{all:?}");
        assert_eq!((all[0].kind(), all[1].kind()), (ErrorKind::Internal, ErrorKind::Io));
        (0..20).for_each(|number| fail(format!("failure {number}")));
        let (all, further) = errors.all();
        assert_eq!((all.len(), further), (MAX_RETAINED, 6));
    }
}
