//! The error of a statement, with its code in the standard of SQL.

use std::error::Error as StdError;
use std::fmt;

use bolide::ErrorKind;
use bolide_arrow::ConversionError;
use datafusion::error::DataFusionError;

/// The class of an error, with the code that clients of SQL know (`SQLSTATE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SqlState {
    /// 42601: the statement does not follow the grammar.
    SyntaxError,
    /// 42P01: there is no table of this name.
    UndefinedTable,
    /// 42703: there is no column of this name.
    UndefinedColumn,
    /// 42704: there is no index or setting of this name.
    UndefinedObject,
    /// 42P07: the table exists already.
    DuplicateTable,
    /// 42710: the index exists already.
    DuplicateObject,
    /// 42000: the statement is well formed and cannot be planned.
    InvalidStatement,
    /// 0A000: the feature is not supported.
    FeatureNotSupported,
    /// 22000: a value is invalid, or an operation on it overflows.
    DataException,
    /// 23502: a value that is required is NULL.
    NotNullViolation,
    /// 23505: a record with this key exists.
    UniqueViolation,
    /// 25001: not possible within a transaction.
    ActiveTransaction,
    /// 25P01: not possible outside of a transaction.
    NoActiveTransaction,
    /// 25006: the database is open for reading.
    ReadOnly,
    /// 3B001: there is no savepoint of this name.
    InvalidSavepoint,
    /// 40001: another commit changed what this one depends on; run it again.
    SerializationFailure,
    /// 53200: the memory limit is too low.
    OutOfMemory,
    /// 54000: a limit is exceeded.
    LimitExceeded,
    /// 57014: the statement was cancelled.
    Cancelled,
    /// 58030: reading or writing failed.
    IoError,
    /// XX000: an invariant is broken: report a bug.
    Internal,
}

impl SqlState {
    /// The code of five characters.
    ///
    /// ```
    /// assert_eq!(bolide_sql::SqlState::SerializationFailure.code(), "40001");
    /// ```
    pub fn code(self) -> &'static str {
        match self {
            Self::SyntaxError => "42601",
            Self::UndefinedTable => "42P01",
            Self::UndefinedColumn => "42703",
            Self::UndefinedObject => "42704",
            Self::DuplicateTable => "42P07",
            Self::DuplicateObject => "42710",
            Self::InvalidStatement => "42000",
            Self::FeatureNotSupported => "0A000",
            Self::DataException => "22000",
            Self::NotNullViolation => "23502",
            Self::UniqueViolation => "23505",
            Self::ActiveTransaction => "25001",
            Self::NoActiveTransaction => "25P01",
            Self::ReadOnly => "25006",
            Self::InvalidSavepoint => "3B001",
            Self::SerializationFailure => "40001",
            Self::OutOfMemory => "53200",
            Self::LimitExceeded => "54000",
            Self::Cancelled => "57014",
            Self::IoError => "58030",
            Self::Internal => "XX000",
        }
    }
}

/// Why a statement fails: its class, what and where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlError {
    state: SqlState,
    message: String,
    hint: Option<String>,
}

impl SqlError {
    /// An error without a hint.
    pub fn new(state: SqlState, message: impl Into<String>) -> Self {
        Self { state, message: message.into(), hint: None }
    }

    /// The error with a hint: what to do.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The class.
    pub fn state(&self) -> SqlState {
        self.state
    }

    /// What is wrong, and where.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(SqlState::FeatureNotSupported, message)
    }

    pub(crate) fn syntax(message: impl Into<String>) -> Self {
        Self::new(SqlState::SyntaxError, message)
    }

    pub(crate) fn data(message: impl Into<String>) -> Self {
        Self::new(SqlState::DataException, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(SqlState::Internal, message)
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for SqlError {}

impl From<bolide::Error> for SqlError {
    fn from(error: bolide::Error) -> Self {
        let state = match error.kind() {
            ErrorKind::InvalidInput => SqlState::DataException,
            ErrorKind::LimitExceeded => SqlState::LimitExceeded,
            ErrorKind::NotFound => SqlState::UndefinedObject,
            ErrorKind::Conflict => SqlState::SerializationFailure,
            ErrorKind::ReadOnly => SqlState::ReadOnly,
            ErrorKind::Internal => SqlState::Internal,
            _ => SqlState::IoError,
        };
        Self::new(state, error.message()).with_hint(error.advice())
    }
}

impl From<ConversionError> for SqlError {
    fn from(error: ConversionError) -> Self {
        let state = if error.is_limit() { SqlState::LimitExceeded } else { SqlState::DataException };
        Self::new(state, error.to_string())
    }
}

impl From<arrow::error::ArrowError> for SqlError {
    fn from(error: arrow::error::ArrowError) -> Self {
        DataFusionError::from(error).into()
    }
}

impl From<serde_json::Error> for SqlError {
    fn from(error: serde_json::Error) -> Self {
        Self::data(error.to_string())
    }
}

impl From<SqlError> for DataFusionError {
    fn from(error: SqlError) -> Self {
        Self::External(Box::new(error))
    }
}

impl From<DataFusionError> for SqlError {
    fn from(error: DataFusionError) -> Self {
        if let Some(own) = own_error(&error) {
            return own;
        }
        let state = match error.find_root() {
            DataFusionError::SQL(..) => SqlState::SyntaxError,
            DataFusionError::SchemaError(..) => SqlState::UndefinedColumn,
            DataFusionError::Plan(message) if message.contains("table") && message.contains("not found") => {
                SqlState::UndefinedTable
            }
            DataFusionError::Plan(_) | DataFusionError::Configuration(_) => SqlState::InvalidStatement,
            DataFusionError::NotImplemented(_) => SqlState::FeatureNotSupported,
            DataFusionError::ResourcesExhausted(_) => SqlState::OutOfMemory,
            DataFusionError::IoError(_) => SqlState::IoError,
            DataFusionError::Internal(_) => SqlState::Internal,
            _ => SqlState::DataException,
        };
        let error_of_memory = state == SqlState::OutOfMemory;
        // The first line: the rest is a trace.
        let text = error.strip_backtrace();
        let converted = Self::new(state, text);
        if error_of_memory {
            return converted.with_hint("set a higher --memory, or read fewer rows at a time");
        }
        converted
    }
}

/// The error of Bolide inside of an error of DataFusion.
fn own_error(error: &DataFusionError) -> Option<SqlError> {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(found) = cause {
        if let Some(own) = found.downcast_ref::<SqlError>() {
            return Some(own.clone());
        }
        if let Some(own) = found.downcast_ref::<bolide::Error>() {
            return Some(own.clone().into());
        }
        cause = match found.downcast_ref::<DataFusionError>() {
            Some(DataFusionError::External(inner)) => Some(inner.as_ref()),
            Some(DataFusionError::Shared(inner)) => Some(inner.as_ref()),
            _ => found.source(),
        };
    }
    None
}

/// The result of an operation of SQL.
pub type Result<T> = std::result::Result<T, SqlError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_inside_of_another_one_keeps_its_class() {
        let own = SqlError::new(SqlState::UniqueViolation, "twice").with_hint("once");
        let wrapped = DataFusionError::from(own.clone()).context("while planning");
        assert_eq!(SqlError::from(wrapped), own);
        let engine = bolide::Error::new(ErrorKind::Conflict, "changed");
        let wrapped = DataFusionError::External(Box::new(engine));
        assert_eq!(SqlError::from(wrapped).state(), SqlState::SerializationFailure);
    }
}
