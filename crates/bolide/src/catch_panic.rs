//! Panics of a program's extractor as errors.
//!
//! Writers, readers, flushes, compactions and builds call the extractor. All of them handle an error; a panic would end
//! a background thread, or leave an operation half done.
//!
//! A caught panic does not count as a malformed record: [`extract_stored`](AttributeExtractor::extract_stored) skips
//! records that the extractor refuses, and returns the error of one at which it panics. A skipped record has no
//! entries, so an index without it would differ from a scan once the extractor is fixed. Instead the build fails, stays
//! incomplete, and continues at the next opening.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bolide_base::{Error, Result};
use bolide_index::{AttributeExtractor, AttributePlan, AttributeValues};

/// An extractor whose panics are errors of kind [`ErrorKind::Internal`](bolide_base::ErrorKind::Internal).
#[derive(Debug)]
pub(crate) struct CaughtExtractor {
    collection: String,
    inner: Arc<dyn AttributeExtractor>,
}

impl CaughtExtractor {
    /// `inner`, the program's extractor of `collection`.
    pub(crate) fn new(collection: &str, inner: Arc<dyn AttributeExtractor>) -> Self {
        Self { collection: collection.to_owned(), inner }
    }

    fn catch<T>(&self, work: impl FnOnce(&dyn AttributeExtractor) -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(|| work(&*self.inner))).unwrap_or_else(|panic| {
            let what = format_args!("the extractor of collection {:?}", self.collection);
            Err(Error::panicked(what, &*panic))
        })
    }
}

impl AttributeExtractor for CaughtExtractor {
    fn extract_into(&self, record: &[u8], plan: &AttributePlan, out: &mut AttributeValues) -> Result<()> {
        self.catch(|inner| inner.extract_into(record, plan, out))
    }

    fn extract(&self, record: &[u8], plan: &AttributePlan, values: &mut AttributeValues) -> Result<()> {
        self.catch(|inner| inner.extract(record, plan, values))
    }

    fn extract_stored(
        &self,
        record: &[u8],
        plan: &AttributePlan,
        values: &mut AttributeValues,
    ) -> Result<bool> {
        self.catch(|inner| inner.extract_stored(record, plan, values))
    }

    fn accepts(&self, record: &[u8]) -> Result<bool> {
        self.catch(|inner| inner.accepts(record))
    }
}

#[cfg(test)]
mod tests {
    use bolide_base::ErrorKind;

    use super::*;

    /// Refuses records that start with `!`, and panics at those that start with `?`.
    #[derive(Debug)]
    struct PanickingExtractor;

    impl AttributeExtractor for PanickingExtractor {
        fn extract_into(&self, record: &[u8], _: &AttributePlan, _: &mut AttributeValues) -> Result<()> {
            match record.first() {
                Some(b'!') => Err(Error::new(ErrorKind::InvalidInput, "not a record")),
                Some(b'?') => panic!("unexpected record"),
                _ => Ok(()),
            }
        }
    }

    #[test]
    fn a_stored_record_is_skipped_if_it_is_malformed_and_not_if_its_extractor_panics() {
        let extractor = CaughtExtractor::new("docs", Arc::new(PanickingExtractor));
        let (plan, mut values) = (AttributePlan::new([]), AttributeValues::new());
        assert!(extractor.extract_stored(b"plain", &plan, &mut values).unwrap());
        assert!(!extractor.extract_stored(b"!", &plan, &mut values).unwrap());
        let error = extractor.extract_stored(b"?", &plan, &mut values).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(
            error.message().contains("the extractor of collection \"docs\" panicked: unexpected record"),
            "{error}"
        );
    }
}
