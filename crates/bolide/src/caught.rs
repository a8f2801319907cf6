//! Panics in a program's extractor as errors.
//!
//! An extractor is called by writers, readers, flushes, compactions and builds. There each of them has to be ready for an error;
//! a panic would end a background thread, or leave what it was amid of half done.

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
    /// `inner`, which the program gave for `collection`.
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

    fn accepts(&self, record: &[u8]) -> Result<bool> {
        self.catch(|inner| inner.accepts(record))
    }
}
