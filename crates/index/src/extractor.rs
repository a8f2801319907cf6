//! Takes the values of declared attributes out of a record.

use std::fmt;

use bolide_base::{ErrorKind, Result};

use crate::attribute_plan::{AttributePlan, AttributeValues};

/// Finds the values of attributes in the bytes of a record.
///
/// The default for JSON records is [`JsonExtractor`](crate::JsonExtractor). Another record format
/// brings its own. An extractor must be a pure function of the record: an index holds what it found
/// when the record was written, and expects to find the same again.
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
    /// Pushes the values that `record` has at the paths of `plan` to `out`, in any order.
    ///
    /// An attribute that the record lacks gets no value.
    ///
    /// # Errors
    /// `InvalidInput` or `LimitExceeded` where the record is malformed; the write that brought it is
    /// then refused.
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

    /// As [`extract`](Self::extract), for a record that is stored already. One that is malformed has no values, and
    /// the result is false: queries, builds and index writes skip it. It was written before its format was
    /// validated as it is now.
    ///
    /// # Errors
    /// Those of `extract`, but for the kinds `InvalidInput` and `LimitExceeded`.
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

    /// True if the record is well-formed and so short and plain that none of its attributes, whatever their paths,
    /// can be over a limit: [`extract`](Self::extract) would succeed with at most
    /// [`MAX_INDEXED_ELEMENTS`](bolide_base::limits::MAX_INDEXED_ELEMENTS) values, none of them too long for an
    /// index. False where that takes a closer look. Lets writers do without the values where nobody needs them.
    ///
    /// # Errors
    /// As [`extract_into`](Self::extract_into).
    fn accepts(&self, record: &[u8]) -> Result<bool> {
        let _ = record;
        Ok(false)
    }
}
