//! Rows of SQL as keys and records.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, Field, Float64Type, Int64Type, Schema, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow::util::display::array_value_to_string;
use bolide::key::KeyFormat;
use bolide_arrow::{ColumnType, EncodedKey, RECORD_COLUMN, SEQUENCE_COLUMN, ScalarType};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ColumnarValue;
use serde_json::value::RawValue;

use crate::error::{Result, SqlError, SqlState};
use crate::record_edit::set_field;
use crate::record_key::{KeyType, stored_key};
use crate::table_schema::{DeclaredColumn, TableSchema};

/// The column of the table that a column of a batch is written to.
#[derive(Debug, Clone)]
enum WrittenColumn {
    Key,
    /// The whole record as JSON text.
    Record,
    Field(DeclaredColumn),
}

/// A change of a field of a record: the names of the path, and the value as JSON text; `None` removes the field.
pub(crate) type FieldChange = (Vec<String>, Option<String>);

/// A row that is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WrittenRow {
    pub(crate) key: Vec<u8>,
    /// The whole record, if a column has it.
    pub(crate) record: Option<String>,
    pub(crate) changes: Vec<FieldChange>,
}

impl WrittenRow {
    /// The record of a new row.
    pub(crate) fn new_record(&self) -> Result<String> {
        self.applied_to(self.record.as_deref().unwrap_or("{}"))
    }

    /// The record after the changes.
    pub(crate) fn applied_to(&self, record: &str) -> Result<String> {
        let mut record = record.to_owned();
        for (names, value) in &self.changes {
            record = set_field(&record, names, value.as_deref())?;
        }
        Ok(record)
    }
}

/// Encodes batches whose columns are written to these columns of a table.
#[derive(Debug, Clone)]
pub(crate) struct RowEncoder {
    columns: Vec<WrittenColumn>,
    key_name: String,
    key_type: KeyType,
    keys: KeyFormat,
    /// Required columns that are not among the written ones.
    missing: Vec<String>,
}

impl RowEncoder {
    /// An encoder for the columns `names` of the table.
    ///
    /// # Errors
    /// For a name that is no column, or twice among the names.
    pub(crate) fn new(schema: &TableSchema, keys: KeyFormat, names: &[String]) -> Result<Self> {
        let mut columns = Vec::with_capacity(names.len());
        for (at, name) in names.iter().enumerate() {
            if names.iter().take(at).any(|earlier| earlier == name) {
                return Err(SqlError::syntax(format!("the column \"{name}\" is given twice")));
            }
            columns.push(match schema.declared(name) {
                Some(column) => WrittenColumn::Field(column.clone()),
                None if schema.is_key(name) => WrittenColumn::Key,
                None if name == RECORD_COLUMN => WrittenColumn::Record,
                None if name == SEQUENCE_COLUMN => {
                    return Err(SqlError::syntax("the column \"_sequence\" cannot be written"));
                }
                None => return Err(undefined_column(schema, name)),
            });
        }
        let is_missing = |column: &&DeclaredColumn| column.is_required && !names.contains(&column.name);
        let missing = schema.columns.iter().filter(is_missing).map(|column| column.name.clone()).collect();
        Ok(Self { columns, key_name: schema.key_name.clone(), key_type: schema.key_type, keys, missing })
    }

    /// Fails if a new row would have no value of the key or of a required column.
    pub(crate) fn check_complete(&self) -> Result<()> {
        if !self.columns.iter().any(|column| matches!(column, WrittenColumn::Key)) {
            return Err(null_key(&self.key_name));
        }
        let has_record = self.columns.iter().any(|column| matches!(column, WrittenColumn::Record));
        match self.missing.first() {
            Some(name) if !has_record => Err(null_value(name)),
            _ => Ok(()),
        }
    }

    /// The rows of a batch, whose columns are converted to the types of the table.
    ///
    /// # Errors
    /// For a value that cannot be converted or is NULL in a required column, with the number of its row, from 1.
    pub(crate) fn encode(&self, batch: &RecordBatch) -> Result<Vec<WrittenRow>> {
        let arrays = self.arrays(batch)?;
        (0..batch.num_rows())
            .map(|row| {
                self.row(&arrays, row).map_err(|error| {
                    let mut located = SqlError::new(error.state(), format!("row {}: {error}", row + 1));
                    if let Some(hint) = error.hint() {
                        located = located.with_hint(hint);
                    }
                    located
                })
            })
            .collect()
    }

    /// A batch with the names and types that its columns have in the table.
    ///
    /// # Errors
    /// For a value that cannot be converted.
    pub(crate) fn typed(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let arrays = self.arrays(batch)?;
        let names = self.columns.iter().map(|column| match column {
            WrittenColumn::Key => self.key_name.as_str(),
            WrittenColumn::Record => RECORD_COLUMN,
            WrittenColumn::Field(column) => column.name.as_str(),
        });
        let fields =
            names.zip(&arrays).map(|(name, array)| Field::new(name, array.data_type().clone(), true));
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields.collect::<Vec<_>>())), arrays)?)
    }

    /// The columns of a batch in the types of the table.
    fn arrays(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        if batch.num_columns() != self.columns.len() {
            return Err(SqlError::syntax(format!(
                "the statement has {} columns and {} values",
                self.columns.len(),
                batch.num_columns()
            )));
        }
        let columns = self.columns.iter().zip(batch.columns());
        columns.map(|(column, array)| self.converted(column, array)).collect()
    }

    fn converted(&self, column: &WrittenColumn, array: &ArrayRef) -> Result<ArrayRef> {
        let (name, target) = match column {
            WrittenColumn::Key => (
                &self.key_name,
                match self.key_type {
                    KeyType::Text => DataType::Utf8,
                    KeyType::Int => DataType::Int64,
                    KeyType::Binary => DataType::Binary,
                },
            ),
            WrittenColumn::Record => return cast(RECORD_COLUMN, array, &DataType::Utf8),
            WrittenColumn::Field(column) => (&column.name, column.column_type.data_type()),
        };
        cast(name, array, &target)
    }

    fn row(&self, arrays: &[ArrayRef], row: usize) -> Result<WrittenRow> {
        let mut written = WrittenRow { key: Vec::new(), record: None, changes: Vec::new() };
        for (column, array) in self.columns.iter().zip(arrays) {
            let is_null = array.is_null(row);
            match column {
                WrittenColumn::Key if is_null => return Err(null_key(&self.key_name)),
                WrittenColumn::Key => {
                    let key = match self.key_type {
                        KeyType::Text => EncodedKey::Text(array.as_string::<i32>().value(row)),
                        KeyType::Int => EncodedKey::Int(array.as_primitive::<Int64Type>().value(row)),
                        KeyType::Binary => EncodedKey::Bytes(array.as_binary::<i32>().value(row)),
                    };
                    written.key = stored_key(key, self.keys);
                }
                WrittenColumn::Record if is_null => return Err(null_value(RECORD_COLUMN)),
                WrittenColumn::Record => {
                    written.record = Some(array.as_string::<i32>().value(row).to_owned());
                }
                WrittenColumn::Field(column) => {
                    if is_null && column.is_required {
                        return Err(null_value(&column.name));
                    }
                    let names = column.path.fields().to_vec();
                    let value = if is_null { None } else { Some(cell(array, row, column)?) };
                    written.changes.push((names, value));
                }
            }
        }
        Ok(written)
    }
}

/// The error for a name that is no column of the table.
pub(crate) fn undefined_column(schema: &TableSchema, name: &str) -> SqlError {
    let names = schema.writable_names();
    let known = names.iter().take(20).map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
    SqlError::new(SqlState::UndefinedColumn, format!("the table has no column \"{name}\"")).with_hint(format!(
        "the columns are {known}{}; ANALYZE adds the fields of new records, and \"_record\" takes a whole record",
        if names.len() > 20 { " and more" } else { "" }
    ))
}

fn null_key(name: &str) -> SqlError {
    SqlError::new(SqlState::NotNullViolation, format!("the key \"{name}\" is NULL"))
        .with_hint(format!("give a value for the column \"{name}\""))
}

fn null_value(name: &str) -> SqlError {
    SqlError::new(SqlState::NotNullViolation, format!("the column \"{name}\" is NULL, and requires a value"))
}

fn cast(name: &str, array: &ArrayRef, target: &DataType) -> Result<ArrayRef> {
    if array.data_type() == target {
        return Ok(array.clone());
    }
    let options = datafusion::common::format::DEFAULT_CAST_OPTIONS;
    let converted = ColumnarValue::Array(array.clone()).cast_to(target, Some(&options));
    let converted = converted.and_then(|value| value.into_array(array.len()));
    converted.map_err(|error| {
        let cause = SqlError::from(error);
        SqlError::data(format!("the column \"{name}\" is {target}: {cause}"))
    })
}

/// The value as JSON text.
fn cell(array: &ArrayRef, row: usize, column: &DeclaredColumn) -> Result<String> {
    let mut out = String::new();
    match column.column_type {
        ColumnType::Scalar(scalar) => write_scalar(array, row, scalar, &mut out)?,
        ColumnType::List(element) => {
            let elements = array.as_list::<i32>().value(row);
            out.push('[');
            for at in 0..elements.len() {
                if at > 0 {
                    out.push(',');
                }
                if elements.is_null(at) {
                    out.push_str("null");
                } else {
                    write_scalar(&elements, at, element, &mut out)?;
                }
            }
            out.push(']');
        }
    }
    Ok(out)
}

fn write_scalar(array: &ArrayRef, row: usize, scalar: ScalarType, out: &mut String) -> Result<()> {
    let number = |value: i64, out: &mut String| {
        // A text takes everything.
        let _ = write!(out, "{value}");
    };
    match scalar {
        ScalarType::Bool => out.push_str(if array.as_boolean().value(row) { "true" } else { "false" }),
        ScalarType::Int64 => number(array.as_primitive::<Int64Type>().value(row), out),
        ScalarType::Float64 => {
            let value = array.as_primitive::<Float64Type>().value(row);
            if !value.is_finite() {
                return Err(SqlError::data(format!(
                    "{value} cannot be stored: JSON has finite numbers alone"
                )));
            }
            out.push_str(&serde_json::to_string(&value)?);
        }
        ScalarType::String => write_text(array.as_string::<i32>().value(row), out),
        ScalarType::Json => {
            let text = array.as_string::<i32>().value(row);
            let parsed: &RawValue = serde_json::from_str(text).map_err(|error| {
                SqlError::data(format!("{text:.60} is no JSON: {error}"))
                    .with_hint("a text is '\"text\"' in JSON")
            })?;
            out.push_str(parsed.get());
        }
        ScalarType::Date => {
            let text = array_value_to_string(array, row)?;
            if text.len() != 10 || text.starts_with('-') {
                return Err(SqlError::data(format!("the date {text} has no year of four digits")));
            }
            write_text(&text, out);
        }
        ScalarType::IsoTimestamp => {
            let text = array_value_to_string(array, row)?;
            write_text(&format!("{text}Z"), out);
        }
        ScalarType::Timestamp(TimeUnit::Second) => {
            number(array.as_primitive::<TimestampSecondType>().value(row), out);
        }
        ScalarType::Timestamp(TimeUnit::Millisecond) => {
            number(array.as_primitive::<TimestampMillisecondType>().value(row), out);
        }
        ScalarType::Timestamp(TimeUnit::Microsecond) => {
            number(array.as_primitive::<TimestampMicrosecondType>().value(row), out);
        }
        ScalarType::Timestamp(TimeUnit::Nanosecond) => {
            number(array.as_primitive::<TimestampNanosecondType>().value(row), out);
        }
        other => return Err(SqlError::internal(format!("{other:?} is not written"))),
    }
    Ok(())
}

fn write_text(text: &str, out: &mut String) {
    let mut bytes = Vec::with_capacity(text.len() + 2);
    bolide_arrow::write_json_string(text, &mut bytes);
    out.push_str(&String::from_utf8_lossy(&bytes));
}

/// A literal for a stored key, to find the record by the key column.
pub(crate) fn key_literal(key: &[u8], key_type: KeyType, format: KeyFormat) -> ScalarValue {
    use bolide_arrow::RecordKey;

    crate::record_key::with_record_key(key, format, |found| match (key_type, found) {
        (KeyType::Int, RecordKey::Int(value)) => ScalarValue::Int64(Some(value)),
        (KeyType::Binary, _) => ScalarValue::Binary(Some(key.to_vec())),
        (_, RecordKey::Text(text)) => ScalarValue::Utf8(Some(text.to_owned())),
        (_, RecordKey::Int(value)) => ScalarValue::Utf8(Some(value.to_string())),
        (_, RecordKey::Uint(value)) => ScalarValue::Utf8(Some(value.to_string())),
        (_, RecordKey::Bytes(bytes)) => ScalarValue::Utf8(Some(String::from_utf8_lossy(bytes).into_owned())),
        (_, _) => ScalarValue::Utf8(None),
    })
}
