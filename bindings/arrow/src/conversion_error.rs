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
pub struct ConversionError {
    message: String,
    is_limit: bool,
}

impl ConversionError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), is_limit: false }
    }

    /// An input over a limit.
    pub(crate) fn limit(message: impl Into<String>) -> Self {
        Self { message: message.into(), is_limit: true }
    }

    /// The error with its place before the message.
    pub(crate) fn located(self, place: impl fmt::Display) -> Self {
        Self { message: format!("{place}{}", self.message), is_limit: self.is_limit }
    }

    /// Whether the input is valid, but larger than a limit permits.
    ///
    /// ```
    /// use bolide_arrow::{BatchLimits, Column, RecordDecoder};
    /// let twice = vec![Column::parse("a", "int64")?, Column::parse("a", "json")?];
    /// let error = RecordDecoder::new(twice, BatchLimits::default()).err();
    /// assert!(error.is_some_and(|error| !error.is_limit()));
    /// # Ok::<(), bolide_arrow::ConversionError>(())
    /// ```
    pub fn is_limit(&self) -> bool {
        self.is_limit
    }
}

impl fmt::Display for ConversionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConversionError {}

impl From<arrow_schema::ArrowError> for ConversionError {
    fn from(error: arrow_schema::ArrowError) -> Self {
        Self::new(error.to_string())
    }
}
