//! Errors and panics of threads that no call waits for.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bolide_base::{Error, Result};
use parking_lot::Mutex;

/// Errors that are kept; later ones are counted.
const MAX_KEPT: usize = 16;

/// Errors and panics of background work that no call returns, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct BackgroundErrors(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    errors: Vec<Error>,
    further: u64,
}

impl BackgroundErrors {
    /// Does `work`, which is called `what`. An error or a panic of it is noted; then there is no result.
    pub(crate) fn watch<T>(&self, what: &str, work: impl FnOnce() -> Result<T>) -> Option<T> {
        let outcome = catch_unwind(AssertUnwindSafe(work))
            .map(|outcome| outcome.map_err(|error| error.context(what)))
            .unwrap_or_else(|panic| Err(Error::panicked(what, &*panic)));
        outcome.map_err(|error| self.note(error)).ok()
    }

    /// Notes an error, unless the last one was the same.
    fn note(&self, error: Error) {
        let mut kept = self.0.lock();
        if kept.errors.last().is_some_and(|last| last.message() == error.message()) {
            return;
        }
        if kept.errors.len() == MAX_KEPT {
            kept.further += 1;
            return;
        }
        kept.errors.push(error);
    }

    /// The errors, and how many came after these.
    pub(crate) fn all(&self) -> (Vec<Error>, u64) {
        let kept = self.0.lock();
        (kept.errors.clone(), kept.further)
    }
}

#[cfg(test)]
mod tests {
    use bolide_base::ErrorKind;

    use super::*;

    #[test]
    fn errors_and_panics_are_kept_and_bounded() {
        let errors = BackgroundErrors::default();
        let fail = |message: String| {
            let failed: Option<()> = errors.watch("the work", || Err(Error::new(ErrorKind::Io, message)));
            assert_eq!(failed, None);
        };
        assert_eq!(errors.watch("the work", || Ok(7)), Some(7));
        let panicked: Option<()> = errors.watch("the work", || panic!("no idea"));
        assert_eq!(panicked, None);
        (0..2).for_each(|_| fail("the disk fails".to_owned()));
        let (all, further) = errors.all();
        assert_eq!((all.len(), further), (2, 0), "the same error is kept once");
        assert!(all[0].message().contains("the work panicked: no idea"), "{all:?}");
        assert_eq!((all[0].kind(), all[1].kind()), (ErrorKind::Internal, ErrorKind::Io));
        (0..20).for_each(|number| fail(format!("failure {number}")));
        let (all, further) = errors.all();
        assert_eq!((all.len(), further), (MAX_KEPT, 6));
    }
}
