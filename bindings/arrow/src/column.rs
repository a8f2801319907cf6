//! The declaration of a column.

use arrow_schema::{DataType, Field};

use crate::column_path::ColumnPath;
use crate::column_type::{ColumnType, ScalarType};
use crate::{ConversionError, Result};

/// The column of primary keys.
pub const KEY_COLUMN: &str = "_key";
/// The column of sequence numbers.
pub const SEQUENCE_COLUMN: &str = "_sequence";
/// The column of whole records.
pub const RECORD_COLUMN: &str = "_record";

/// What a column consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ColumnSource {
    /// The primary key as text; integers in decimal digits.
    TextKey,
    /// The primary key as an integer.
    IntKey,
    /// The primary key as bytes, as the engine stores them.
    BinaryKey,
    /// The sequence number of the write that put the record.
    Sequence,
    /// The whole record as JSON text.
    Record,
    /// The value at a path of the record.
    Path(ColumnPath, ColumnType),
}

/// A column: its name and what it consists of.
///
/// ```
/// use bolide_arrow::Column;
/// assert_eq!(Column::parse("user.id", "int64")?.name(), "user.id");
/// assert!(Column::parse("user.id", "integer").is_err());
/// # Ok::<(), bolide_arrow::ConversionError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    name: String,
    source: ColumnSource,
}

impl Column {
    /// A column.
    pub fn new(name: impl Into<String>, source: ColumnSource) -> Self {
        Self { name: name.into(), source }
    }

    /// The column with the name `name` and the type `type_text`. `_key`, `_sequence` and `_record` are key, sequence
    /// number and whole record; every other name is a [`ColumnPath`].
    ///
    /// # Errors
    /// For an invalid path, a name with NUL, which Arrow's C interface cannot pass, or a type that does not exist or does not suit
    /// the name.
    pub fn parse(name: &str, type_text: &str) -> Result<Self> {
        if name.contains('\0') {
            return Err(ConversionError::new(format!(
                "the name of the column `{}` contains NUL",
                name.escape_debug()
            )));
        }
        let source = match (name, type_text.trim()) {
            (KEY_COLUMN, "string") => ColumnSource::TextKey,
            (KEY_COLUMN, "int64") => ColumnSource::IntKey,
            (KEY_COLUMN, "binary") => ColumnSource::BinaryKey,
            (SEQUENCE_COLUMN, "int64") => ColumnSource::Sequence,
            (RECORD_COLUMN, "json" | "string") => ColumnSource::Record,
            (KEY_COLUMN | SEQUENCE_COLUMN | RECORD_COLUMN, other) => {
                return Err(ConversionError::new(format!(
                    "the type of `{name}` cannot be `{other}`: `_key` is string, int64 or binary, `_sequence` \
                     is int64, and `_record` is json"
                )));
            }
            (path, other) => ColumnSource::Path(path.parse()?, other.parse()?),
        };
        Ok(Self::new(name, source))
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it consists of.
    pub fn source(&self) -> &ColumnSource {
        &self.source
    }

    /// The name of the type, as [`parse`](Self::parse) takes it.
    ///
    /// ```
    /// assert_eq!(bolide_arrow::Column::parse("tags", "list<string>")?.type_name(), "list<string>");
    /// # Ok::<(), bolide_arrow::ConversionError>(())
    /// ```
    pub fn type_name(&self) -> String {
        match &self.source {
            ColumnSource::TextKey => "string".to_owned(),
            ColumnSource::IntKey | ColumnSource::Sequence => "int64".to_owned(),
            ColumnSource::BinaryKey => "binary".to_owned(),
            ColumnSource::Record => "json".to_owned(),
            ColumnSource::Path(_, column_type) => column_type.to_string(),
        }
    }

    /// The field in Arrow.
    pub fn field(&self) -> Field {
        let (data_type, nullable) = match &self.source {
            ColumnSource::TextKey => (DataType::Utf8, false),
            ColumnSource::Record => (DataType::Utf8, false),
            ColumnSource::IntKey | ColumnSource::Sequence => (DataType::Int64, false),
            ColumnSource::BinaryKey => (DataType::Binary, false),
            ColumnSource::Path(_, column_type) => (column_type.data_type(), true),
        };
        Field::new(&self.name, data_type, nullable)
    }

    pub(crate) fn column_type(&self) -> ColumnType {
        match &self.source {
            ColumnSource::Path(_, column_type) => *column_type,
            ColumnSource::IntKey | ColumnSource::Sequence => ScalarType::Int64.into(),
            ColumnSource::TextKey | ColumnSource::BinaryKey | ColumnSource::Record => {
                ScalarType::String.into()
            }
        }
    }
}
