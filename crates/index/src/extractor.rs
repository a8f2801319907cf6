//! Extraction of the values of declared attributes from a record.

use std::fmt;

use bolide_base::{ErrorKind, Result};

use crate::attribute_plan::{AttributePlan, AttributeValues};

/// Extracts the values of attributes from the bytes of a record.
///
/// The default for JSON records is [`JsonExtractor`](crate::JsonExtractor). Another record format provides its own
/// extractor. An extractor must be a pure function of the record: an index stores its results at the time of the write,
/// and relies on the same results later.
///
/// ```
/// use bolide_base::Result;
/// use bolide_index::{AttributeExtractor, AttributePlan, AttributeValues, Value};
///
/// /// The attribute `length` of any bytes.
/// #[derive(Debug)]
/// struct Length;
///
/// impl AttributeExtractor for Length {
///     fn extract_into(&self, record: &[u8], plan: &AttributePlan, out: &mut AttributeValues) -> Result<()> {
///         if let Some(slot) = plan.slot(&"length".parse()?) {
///             out.push(slot, &Value::Uint(record.len() as u64))?;
///         }
///         Ok(())
///     }
/// }
///
/// let plan = AttributePlan::new(["length".parse()?]);
/// let mut values = AttributeValues::new();
/// Length.extract(b"four", &plan, &mut values)?;
/// assert_eq!(Value::decode(values.values(0).next().unwrap()), Some((Value::Int(4), 11)));
/// # Ok::<(), bolide_base::Error>(())
/// ```
pub trait AttributeExtractor: Send + Sync + fmt::Debug {
    /// Pushes the values of `record` at the paths of `plan` to `out`, in any order.
    ///
    /// An absent attribute has no value.
    ///
    /// # Errors
    /// `InvalidInput` or `LimitExceeded` for a malformed record, whose write is then rejected.
    fn extract_into(&self, record: &[u8], plan: &AttributePlan, out: &mut AttributeValues) -> Result<()>;

    /// Replaces the contents of `values` by the values of `record`, sorted and distinct.
    ///
    /// # Errors
    /// As [`extract_into`](Self::extract_into).
    fn extract(&self, record: &[u8], plan: &AttributePlan, values: &mut AttributeValues) -> Result<()> {
        values.clear();
        self.extract_into(record, plan, values)?;
        values.finish();
        Ok(())
    }

    /// As [`extract`](Self::extract), for a stored record. Returns false, without values, for a malformed record: queries,
    /// builds and index writes skip it. Such a record was written before the current validation existed.
    ///
    /// # Errors
    /// Those of `extract`, except the kinds `InvalidInput` and `LimitExceeded`.
    fn extract_stored(
        &self,
        record: &[u8],
        plan: &AttributePlan,
        values: &mut AttributeValues,
    ) -> Result<bool> {
        match self.extract(record, plan, values) {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::LimitExceeded) => {
                values.clear();
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the record is well-formed and so short that no attribute at any path can exceed a limit:
    /// [`extract`](Self::extract) would succeed with at most
    /// [`MAX_INDEXED_ELEMENTS`](bolide_base::limits::MAX_INDEXED_ELEMENTS) values, none of them too long for an index. False
    /// if only `extract` decides it. Writers skip the extraction if no index needs the values.
    ///
    /// # Errors
    /// As [`extract_into`](Self::extract_into).
    fn accepts(&self, record: &[u8]) -> Result<bool> {
        let _ = record;
        Ok(false)
    }
}
