//! The evaluation of predicates on a record.

use bolide_base::Result;

use crate::attribute_plan::{AttributePlan, AttributeValues};
use crate::extractor::AttributeExtractor;

/// The result of evaluating predicates on a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordCheck {
    /// The predicates are satisfied.
    Match,
    /// A predicate is not satisfied.
    Mismatch,
    /// The record is malformed: it has no attributes.
    Malformed,
}

/// Extracts the attributes of `plan` from a stored record to `values`, and evaluates `matches` on them.
///
/// # Errors
/// Those of the extractor, for other reasons than a malformed record.
#[inline]
pub fn check_record(
    extractor: &dyn AttributeExtractor,
    record: &[u8],
    plan: &AttributePlan,
    values: &mut AttributeValues,
    matches: impl FnOnce(&AttributeValues) -> bool,
) -> Result<RecordCheck> {
    if !extractor.extract_stored(record, plan, values)? {
        return Ok(RecordCheck::Malformed);
    }
    Ok(if matches(values) { RecordCheck::Match } else { RecordCheck::Mismatch })
}
