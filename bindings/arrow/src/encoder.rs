//! Arrow batches to JSON records with their keys.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, SchemaRef};

use crate::cell_writer::{CellWriter, RecordText, check_type};
use crate::column::{KEY_COLUMN, SEQUENCE_COLUMN};
use crate::json_text;
use crate::{ConversionError, Result};

/// The key of an encoded record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodedKey<'b> {
    /// A value of an integer column.
    Int(i64),
    /// A value of an integer column above the range of `i64`.
    Uint(u64),
    /// A value of a text column.
    Text(&'b str),
    /// A value of a binary column.
    Bytes(&'b [u8]),
}

/// Longest record by default, in bytes: that of Bolide.
const MAX_RECORD_BYTES: usize = 64 << 20;

/// Encodes the rows of batches as JSON records, with the memory of one record.
///
/// | in the batch | in the record |
/// |---|---|
/// | NULL in a column | no field; in lists and structs of lists `null` |
/// | booleans, integers, floats, texts, lists, structs, dictionaries | the same value |
/// | decimals | text, which is exact |
/// | dates, times, timestamps | ISO text; with `Z` if the type has a time zone |
/// | a float that is not finite | an error: JSON has none |
/// | binary values, durations, intervals, unions | an error: convert the column first |
///
/// The columns `_key` and `_sequence` are not fields of the records.
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{Int64Array, RecordBatch, StringArray};
/// use bolide_arrow::{EncodedKey, RecordEncoder};
/// let batch = RecordBatch::try_from_iter([
///     ("id", Arc::new(StringArray::from(vec!["a", "b"])) as _),
///     ("n", Arc::new(Int64Array::from(vec![Some(1), None])) as _),
/// ])?;
/// let mut records = Vec::new();
/// let mut encoder = RecordEncoder::new(batch.schema(), "id")?;
/// encoder.encode(&batch, |key, record| {
///     assert!(matches!(key, EncodedKey::Text(_)));
///     records.push(String::from_utf8_lossy(record).into_owned());
///     Ok::<(), bolide_arrow::ConversionError>(())
/// })?;
/// assert_eq!(records, [r#"{"id":"a","n":1}"#, r#"{"id":"b"}"#]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RecordEncoder {
    schema: SchemaRef,
    key: usize,
    /// For each column the name with quotes and colon; `None` if it is not a field.
    names: Vec<Option<Vec<u8>>>,
    record: RecordText,
    rows: u64,
}

impl RecordEncoder {
    /// An encoder for batches of `schema`, whose column `key` has the keys.
    ///
    /// # Errors
    /// If there is no such column, its type is neither text, binary nor integer, a type has no form in JSON, or two columns
    /// have one name.
    pub fn new(schema: SchemaRef, key: &str) -> Result<Self> {
        let names = || schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>();
        let key = schema.fields().iter().position(|field| field.name() == key).ok_or_else(|| {
            ConversionError::new(format!(
                "there is no column `{key}` for the keys; the columns are {}",
                names().join(", ")
            ))
        })?;
        let mut sorted = names();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ConversionError::new(format!(
                "two columns are named `{}`: a record has a name once",
                pair[0]
            )));
        }
        check_key_type(schema.field(key).name(), schema.field(key).data_type())?;
        let names = schema.fields().iter().map(|field| {
            if [KEY_COLUMN, SEQUENCE_COLUMN].contains(&field.name().as_str()) {
                return Ok(None);
            }
            check_type(field.name(), field.data_type())?;
            let mut name = Vec::new();
            json_text::write_string(field.name(), &mut name);
            name.push(b':');
            Ok(Some(name))
        });
        let names = names.collect::<Result<_>>()?;
        let record = RecordText { bytes: Vec::new(), max_bytes: MAX_RECORD_BYTES };
        Ok(Self { key, names, schema, record, rows: 0 })
    }

    /// Sets the length of the longest record, in bytes. Default: 64 MiB. The memory exceeds it by one value at most.
    #[must_use]
    pub fn max_record_bytes(mut self, bytes: usize) -> Self {
        self.record.max_bytes = bytes;
        self
    }

    /// Calls `write` with the key and the record of each row of `batch`.
    ///
    /// # Errors
    /// For a NULL key, a value without a form in JSON, a record that is too long ([`ConversionError::is_limit`]), or a batch
    /// of another schema: the message has the number of the row. Those of `write`.
    pub fn encode<E: From<ConversionError>>(
        &mut self,
        batch: &RecordBatch,
        mut write: impl FnMut(EncodedKey<'_>, &[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        if batch.schema().fields() != self.schema.fields() {
            return Err(ConversionError::new("a batch has another schema than the first one").into());
        }
        let keys = KeyColumn::new(batch.column(self.key))?;
        let mut fields: Vec<(&[u8], CellWriter<'_>)> = Vec::with_capacity(self.names.len());
        for (name, column) in self.names.iter().zip(batch.columns()) {
            if let Some(name) = name {
                fields.push((name, CellWriter::new(column)?));
            }
        }
        for row in 0..batch.num_rows() {
            let number = self.rows + row as u64;
            let located = |error: ConversionError| error.located(format_args!("row {number}: "));
            let record = &mut self.record;
            record.bytes.clear();
            record.bytes.push(b'{');
            for (name, field) in &fields {
                if field.is_null(row) {
                    continue;
                }
                if record.bytes.len() > 1 {
                    record.bytes.push(b',');
                }
                record.bytes.extend_from_slice(name);
                let in_column = |error: ConversionError| {
                    located(error.located(format_args!("column {}", String::from_utf8_lossy(name))))
                };
                field.write(row, record).map_err(in_column)?;
            }
            record.bytes.push(b'}');
            record.check_length().map_err(|error| error.located(format_args!("row {number}:")))?;
            write(keys.key(row).map_err(located)?, &record.bytes)?;
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }
}

fn check_key_type(name: &str, data_type: &DataType) -> Result<()> {
    let inner = match data_type {
        DataType::Dictionary(_, values) => values,
        other => other,
    };
    match inner {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Ok(()),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Ok(()),
        other if other.is_integer() => Ok(()),
        other => Err(ConversionError::new(format!(
            "the column `{name}` of the keys has type {other}: keys are text, bytes or integers"
        ))),
    }
}

/// The keys of a batch.
struct KeyColumn {
    values: ArrayRef,
    /// For dictionaries the place of each value.
    places: Option<Vec<Option<usize>>>,
}

impl KeyColumn {
    fn new(column: &ArrayRef) -> Result<Self> {
        let Some(dictionary) = column.as_any_dictionary_opt() else {
            return Ok(Self { values: column.clone(), places: None });
        };
        let keys = dictionary.keys();
        if dictionary.values().is_empty() {
            // Arrow normalizes no keys without values: all are NULL.
            return Ok(Self { values: Arc::clone(dictionary.values()), places: Some(Vec::new()) });
        }
        let places = dictionary.normalized_keys().into_iter().enumerate();
        let places = places.map(|(row, place)| keys.is_valid(row).then_some(place)).collect();
        Ok(Self { values: Arc::clone(dictionary.values()), places: Some(places) })
    }

    fn key(&self, row: usize) -> Result<EncodedKey<'_>> {
        let place = match &self.places {
            None => Some(row),
            Some(places) => places.get(row).copied().flatten(),
        };
        let Some(place) = place.filter(|place| self.values.is_valid(*place)) else {
            return Err(ConversionError::new("the key is NULL: every row needs one"));
        };
        let values = &self.values;
        Ok(match values.data_type() {
            DataType::Utf8 => EncodedKey::Text(values.as_string::<i32>().value(place)),
            DataType::LargeUtf8 => EncodedKey::Text(values.as_string::<i64>().value(place)),
            DataType::Utf8View => EncodedKey::Text(values.as_string_view().value(place)),
            DataType::Binary => EncodedKey::Bytes(values.as_binary::<i32>().value(place)),
            DataType::LargeBinary => EncodedKey::Bytes(values.as_binary::<i64>().value(place)),
            DataType::BinaryView => EncodedKey::Bytes(values.as_binary_view().value(place)),
            DataType::Int8 => EncodedKey::Int(values.as_primitive::<Int8Type>().value(place).into()),
            DataType::Int16 => EncodedKey::Int(values.as_primitive::<Int16Type>().value(place).into()),
            DataType::Int32 => EncodedKey::Int(values.as_primitive::<Int32Type>().value(place).into()),
            DataType::Int64 => EncodedKey::Int(values.as_primitive::<Int64Type>().value(place)),
            DataType::UInt8 => EncodedKey::Int(values.as_primitive::<UInt8Type>().value(place).into()),
            DataType::UInt16 => EncodedKey::Int(values.as_primitive::<UInt16Type>().value(place).into()),
            DataType::UInt32 => EncodedKey::Int(values.as_primitive::<UInt32Type>().value(place).into()),
            DataType::UInt64 => {
                let value = values.as_primitive::<UInt64Type>().value(place);
                i64::try_from(value).map_or(EncodedKey::Uint(value), EncodedKey::Int)
            }
            other => return Err(ConversionError::new(format!("keys of type {other} are not supported"))),
        })
    }
}
