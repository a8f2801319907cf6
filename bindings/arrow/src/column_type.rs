//! The types of columns.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arrow_schema::{DataType, Field, TimeUnit};

use crate::{ConversionError, Result};

/// The type of a column that is no list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ScalarType {
    /// `true` and `false`.
    Bool,
    /// Numbers without a fraction in the range of `i64`, in any notation: `1.0` is 1.
    Int64,
    /// Numbers; integers beyond 2^53 are the nearest `f64`.
    Float64,
    /// Strings.
    String,
    /// Any value except null, as its JSON text.
    Json,
    /// Text of the form `2026-11-30`.
    Date,
    /// Integers that count this unit since 1970-01-01 UTC.
    Timestamp(TimeUnit),
    /// Text of the form `2026-11-30T12:00:00.5Z`, in microseconds; without an offset it is UTC.
    IsoTimestamp,
}

/// The type of a column.
///
/// ```
/// use bolide_arrow::ColumnType;
/// for text in ["int64", "float64", "string", "bool", "json", "date", "timestamp", "timestamp[ms]", "list<string>"] {
///     assert_eq!(text.parse::<ColumnType>()?.to_string(), text);
/// }
/// # Ok::<(), bolide_arrow::ConversionError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// One value.
    Scalar(ScalarType),
    /// An array of values; an element of another type is NULL.
    List(ScalarType),
}

const TYPES: &str = "the types are bool, int64, float64, string, json, date, timestamp (ISO text), timestamp[s], \
                     timestamp[ms], timestamp[us], timestamp[ns] (integers), and list<TYPE> of these";

impl ScalarType {
    /// The type in Arrow.
    pub fn data_type(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int64 => DataType::Int64,
            Self::Float64 => DataType::Float64,
            Self::String | Self::Json => DataType::Utf8,
            Self::Date => DataType::Date32,
            Self::Timestamp(unit) => DataType::Timestamp(unit, None),
            Self::IsoTimestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int64 => "int64",
            Self::Float64 => "float64",
            Self::String => "string",
            Self::Json => "json",
            Self::Date => "date",
            Self::IsoTimestamp => "timestamp",
            Self::Timestamp(TimeUnit::Second) => "timestamp[s]",
            Self::Timestamp(TimeUnit::Millisecond) => "timestamp[ms]",
            Self::Timestamp(TimeUnit::Microsecond) => "timestamp[us]",
            Self::Timestamp(TimeUnit::Nanosecond) => "timestamp[ns]",
        }
    }

    fn all() -> impl Iterator<Item = Self> {
        let units = [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond];
        let plain = [
            Self::Bool,
            Self::Int64,
            Self::Float64,
            Self::String,
            Self::Json,
            Self::Date,
            Self::IsoTimestamp,
        ];
        plain.into_iter().chain(units.map(Self::Timestamp))
    }
}

impl ColumnType {
    /// The type in Arrow; elements of lists may be NULL.
    pub fn data_type(self) -> DataType {
        match self {
            Self::Scalar(scalar) => scalar.data_type(),
            Self::List(element) => DataType::List(Self::element_field(element)),
        }
    }

    pub(crate) fn element_field(element: ScalarType) -> Arc<Field> {
        Arc::new(Field::new_list_field(element.data_type(), true))
    }
}

impl From<ScalarType> for ColumnType {
    fn from(scalar: ScalarType) -> Self {
        Self::Scalar(scalar)
    }
}

impl FromStr for ColumnType {
    type Err = ConversionError;

    fn from_str(text: &str) -> Result<Self> {
        let scalar = |name: &str| ScalarType::all().find(|scalar| scalar.name() == name);
        let list = |name: &str| {
            name.strip_prefix("list<")
                .and_then(|rest| rest.strip_suffix('>'))
                .and_then(scalar)
                .map(Self::List)
        };
        let text = text.trim();
        scalar(text)
            .map(Self::Scalar)
            .or_else(|| list(text))
            .ok_or_else(|| ConversionError::new(format!("`{text}` is no type of a column: {TYPES}")))
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar(scalar) => f.write_str(scalar.name()),
            Self::List(element) => write!(f, "list<{}>", element.name()),
        }
    }
}
