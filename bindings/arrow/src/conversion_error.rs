//! The error of a conversion.

use std::fmt;

/// Why records and batches cannot be converted: what, where, and what to do.
///
/// ```
/// use bolide_arrow::ColumnType;
/// let error = "decimal".parse::<ColumnType>().unwrap_err();
/// assert!(error.to_string().contains("the types are"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversionError(String);

impl ConversionError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for ConversionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConversionError {}

impl From<arrow_schema::ArrowError> for ConversionError {
    fn from(error: arrow_schema::ArrowError) -> Self {
        Self(error.to_string())
    }
}
