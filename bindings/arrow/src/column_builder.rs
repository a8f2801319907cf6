//! The values of one column of a batch.
//!
//! Every method appends exactly one value. Values can be removed from the end: those of a record that turns out to be
//! malformed. Offsets have 32 bits: the decoder appends nothing that exceeds them.

use std::sync::Arc;

use arrow_array::types::{
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Float64Array, Int64Array, ListArray, PrimitiveArray,
    StringArray,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, TimeUnit};

use crate::Result;
use crate::column_type::{ColumnType, ScalarType};
use crate::json_number::JsonNumber;
use crate::json_scan::StringToken;
use crate::{json_text, time_text};

/// Values of one column.
pub(crate) struct ColumnBuilder {
    column_type: ColumnType,
    values: Values,
    /// Whether each value is not NULL; empty as long as none is.
    validity: Vec<bool>,
}

enum Values {
    Bool(Vec<bool>),
    Int(Vec<i64>),
    Float(Vec<f64>),
    Days(Vec<i32>),
    /// The ends of the texts, and their bytes.
    Text(Vec<i32>, Vec<u8>),
    /// The ends of the lists, and their elements.
    List(Vec<i32>, Box<ColumnBuilder>),
}

impl Values {
    fn of(column_type: ColumnType) -> Self {
        match column_type {
            ColumnType::List(element) => Self::List(Vec::new(), Box::new(ColumnBuilder::new(element.into()))),
            ColumnType::Scalar(scalar) => match scalar {
                ScalarType::Bool => Self::Bool(Vec::new()),
                ScalarType::Int64 | ScalarType::Timestamp(_) | ScalarType::IsoTimestamp => {
                    Self::Int(Vec::new())
                }
                ScalarType::Float64 => Self::Float(Vec::new()),
                ScalarType::Date => Self::Days(Vec::new()),
                ScalarType::String | ScalarType::Json => Self::Text(Vec::new(), Vec::new()),
            },
        }
    }

    /// As [`of`](Self::of), with the space of `self`: batches of one stream are about equal.
    fn emptied(&self, column_type: ColumnType) -> Self {
        match self {
            Self::Bool(values) => Self::Bool(Vec::with_capacity(values.len())),
            Self::Int(values) => Self::Int(Vec::with_capacity(values.len())),
            Self::Float(values) => Self::Float(Vec::with_capacity(values.len())),
            Self::Days(values) => Self::Days(Vec::with_capacity(values.len())),
            Self::Text(ends, bytes) => {
                Self::Text(Vec::with_capacity(ends.len()), Vec::with_capacity(bytes.len() + bytes.len() / 8))
            }
            Self::List(..) => Self::of(column_type),
        }
    }
}

impl ColumnBuilder {
    pub(crate) fn new(column_type: ColumnType) -> Self {
        Self { column_type, values: Values::of(column_type), validity: Vec::new() }
    }

    pub(crate) fn column_type(&self) -> ColumnType {
        self.column_type
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        match &self.values {
            Values::Bool(values) => values.len(),
            Values::Int(values) => values.len(),
            Values::Float(values) => values.len(),
            Values::Days(values) => values.len(),
            Values::Text(ends, _) | Values::List(ends, _) => ends.len(),
        }
    }

    /// Removes all values after the first `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        let end = |ends: &[i32]| ends.last().map_or(0, |end| *end as usize);
        self.validity.truncate(len);
        match &mut self.values {
            Values::Bool(values) => values.truncate(len),
            Values::Int(values) => values.truncate(len),
            Values::Float(values) => values.truncate(len),
            Values::Days(values) => values.truncate(len),
            Values::Text(ends, bytes) => {
                ends.truncate(len);
                bytes.truncate(end(ends));
            }
            Values::List(ends, elements) => {
                ends.truncate(len);
                elements.truncate(end(ends));
            }
        }
    }

    #[inline]
    fn note_valid(&mut self) {
        if !self.validity.is_empty() {
            self.validity.push(true);
        }
    }

    #[inline(never)]
    pub(crate) fn append_null(&mut self) {
        if self.validity.is_empty() {
            self.validity.resize(self.len(), true);
        }
        self.validity.push(false);
        match &mut self.values {
            Values::Bool(values) => values.push(false),
            Values::Int(values) => values.push(0),
            Values::Float(values) => values.push(0.0),
            Values::Days(values) => values.push(0),
            Values::Text(ends, bytes) => ends.push(bytes.len() as i32),
            Values::List(ends, elements) => ends.push(elements.len() as i32),
        }
    }

    #[inline]
    pub(crate) fn append_bool(&mut self, value: bool) {
        match &mut self.values {
            Values::Bool(values) => {
                values.push(value);
                self.note_valid();
            }
            _ => self.append_null(),
        }
    }

    #[inline]
    pub(crate) fn append_number(&mut self, number: JsonNumber) {
        match (&mut self.values, self.column_type) {
            (Values::Float(values), _) => values.push(number.as_f64()),
            (Values::Int(values), ColumnType::Scalar(ScalarType::Int64 | ScalarType::Timestamp(_))) => {
                match number.as_i64() {
                    Some(value) => values.push(value),
                    None => return self.append_null(),
                }
            }
            _ => return self.append_null(),
        }
        self.note_valid();
    }

    /// Appends a string. `None`, with nothing appended, if it is not valid.
    #[inline]
    pub(crate) fn append_string(&mut self, token: StringToken<'_>) -> Option<()> {
        if let (Values::Text(ends, bytes), false) = (&mut self.values, token.has_escapes) {
            std::str::from_utf8(token.content).ok()?;
            bytes.extend_from_slice(token.content);
            ends.push(bytes.len() as i32);
            self.note_valid();
            return Some(());
        }
        self.append_escaped(token)
    }

    #[inline(never)]
    fn append_escaped(&mut self, token: StringToken<'_>) -> Option<()> {
        let mut text = Vec::new();
        json_text::unescape(token.content, &mut text)?;
        std::str::from_utf8(&text).ok()?;
        let appended = match (&mut self.values, self.column_type) {
            (Values::Text(ends, bytes), _) => {
                bytes.extend_from_slice(&text);
                ends.push(bytes.len() as i32);
                true
            }
            (Values::Int(values), ColumnType::Scalar(ScalarType::IsoTimestamp)) => {
                time_text::parse_timestamp(&text).map(|micros| values.push(micros)).is_some()
            }
            (Values::Days(values), _) => time_text::parse_date(&text).map(|days| values.push(days)).is_some(),
            _ => false,
        };
        if appended {
            self.note_valid()
        } else {
            self.append_null()
        }
        Some(())
    }

    /// Appends an integer to a column of integers.
    pub(crate) fn append_int(&mut self, value: i64) {
        self.append_number(JsonNumber::Int(value));
    }

    /// Appends bytes to a column of text; of any type that is not text, NULL.
    pub(crate) fn append_bytes(&mut self, value: &[u8]) {
        match &mut self.values {
            Values::Text(ends, bytes) => {
                bytes.extend_from_slice(value);
                ends.push(bytes.len() as i32);
                self.note_valid();
            }
            _ => self.append_null(),
        }
    }

    /// The elements of the list that [`end_list`](Self::end_list) will append, if this is a column of lists.
    #[inline]
    pub(crate) fn elements(&mut self) -> Option<&mut Self> {
        match &mut self.values {
            Values::List(_, elements) => Some(elements),
            _ => None,
        }
    }

    /// Appends the list of all elements that were added since the last one.
    pub(crate) fn end_list(&mut self) {
        if let Values::List(ends, elements) = &mut self.values {
            ends.push(elements.len() as i32);
            self.note_valid();
        }
    }

    /// What the last offset has to count: bytes of texts, or elements.
    pub(crate) fn filled(&self) -> usize {
        match &self.values {
            Values::Text(_, bytes) => bytes.len(),
            Values::List(_, elements) => elements.len().max(elements.filled()),
            _ => 0,
        }
    }

    /// Bytes of texts, for the size of a batch.
    pub(crate) fn text_bytes(&self) -> usize {
        match &self.values {
            Values::Text(_, bytes) => bytes.len(),
            Values::List(_, elements) => elements.text_bytes() + 8 * elements.len(),
            _ => 0,
        }
    }

    /// The values as an array; the builder is empty afterwards.
    ///
    /// # Errors
    /// If texts are not UTF-8: only for [`append_bytes`](Self::append_bytes) with such bytes.
    pub(crate) fn finish(&mut self, data_type: &DataType) -> Result<ArrayRef> {
        let validity = std::mem::take(&mut self.validity);
        let nulls = (!validity.is_empty()).then(|| NullBuffer::new(BooleanBuffer::from(validity)));
        let emptied = self.values.emptied(self.column_type);
        let values = std::mem::replace(&mut self.values, emptied);
        Ok(match values {
            Values::Bool(values) => Arc::new(BooleanArray::new(BooleanBuffer::from(values), nulls)),
            Values::Int(values) => int_array(self.column_type, values.into(), nulls),
            Values::Float(values) => Arc::new(Float64Array::new(values.into(), nulls)),
            Values::Days(values) => Arc::new(Date32Array::new(values.into(), nulls)),
            Values::Text(ends, bytes) => {
                let (offsets, bytes) = (offsets(ends), Buffer::from_vec(bytes));
                match data_type {
                    DataType::Binary => Arc::new(BinaryArray::try_new(offsets, bytes, nulls)?),
                    _ => Arc::new(StringArray::try_new(offsets, bytes, nulls)?),
                }
            }
            Values::List(ends, mut elements) => {
                let field = match self.column_type {
                    ColumnType::List(element) | ColumnType::Scalar(element) => {
                        ColumnType::element_field(element)
                    }
                };
                let elements = elements.finish(field.data_type())?;
                Arc::new(ListArray::try_new(field, offsets(ends), elements, nulls)?)
            }
        })
    }
}

fn offsets(ends: Vec<i32>) -> OffsetBuffer<i32> {
    let mut offsets = Vec::with_capacity(ends.len() + 1);
    offsets.push(0);
    offsets.extend_from_slice(&ends);
    OffsetBuffer::new(offsets.into())
}

fn int_array(column_type: ColumnType, values: ScalarBuffer<i64>, nulls: Option<NullBuffer>) -> ArrayRef {
    match column_type {
        ColumnType::Scalar(ScalarType::Timestamp(TimeUnit::Second)) => {
            Arc::new(PrimitiveArray::<TimestampSecondType>::new(values, nulls))
        }
        ColumnType::Scalar(ScalarType::Timestamp(TimeUnit::Millisecond)) => {
            Arc::new(PrimitiveArray::<TimestampMillisecondType>::new(values, nulls))
        }
        ColumnType::Scalar(ScalarType::Timestamp(TimeUnit::Nanosecond)) => {
            Arc::new(PrimitiveArray::<TimestampNanosecondType>::new(values, nulls))
        }
        ColumnType::Scalar(ScalarType::Timestamp(TimeUnit::Microsecond) | ScalarType::IsoTimestamp) => {
            Arc::new(PrimitiveArray::<TimestampMicrosecondType>::new(values, nulls))
        }
        _ => Arc::new(Int64Array::new(values, nulls)),
    }
}
