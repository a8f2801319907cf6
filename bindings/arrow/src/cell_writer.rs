//! Values of an Arrow array as JSON.

use std::io::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal128Type, Decimal256Type, Float16Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType, Time32SecondType,
    Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Decimal128Array, Decimal256Array, PrimitiveArray, StringViewArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, TimeUnit};

use crate::{ConversionError, Result, json_text, time_text};

/// Maximum nesting of types: that of a record.
const MAX_DEPTH: usize = 126;

/// Whether the values of a type have a form in JSON.
pub(crate) fn check_type(name: &str, data_type: &DataType) -> Result<()> {
    let mut open = vec![(data_type, 0)];
    while let Some((data_type, depth)) = open.pop() {
        if depth > MAX_DEPTH {
            return Err(ConversionError::new(format!(
                "the column `{name}` is nested more than {MAX_DEPTH} times"
            )));
        }
        match data_type {
            DataType::Null
            | DataType::Boolean
            | DataType::Float16
            | DataType::Float32
            | DataType::Float64
            | DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Date32
            | DataType::Date64
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Timestamp(..)
            | DataType::Decimal128(..)
            | DataType::Decimal256(..) => {}
            other if other.is_integer() => {}
            DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
                open.push((field.data_type(), depth + 1));
            }
            DataType::Dictionary(_, values) => open.push((values, depth)),
            DataType::Struct(fields) => {
                let mut names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
                names.sort_unstable();
                if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
                    return Err(ConversionError::new(format!(
                        "the column `{name}` has two fields named `{}`: a record has a name once",
                        pair[0]
                    )));
                }
                open.extend(fields.iter().map(|field| (field.data_type(), depth + 1)));
            }
            other => {
                return Err(ConversionError::new(format!(
                    "the column `{name}` has type {other}, which has no form in JSON: convert it to text or numbers, or leave it out"
                )));
            }
        }
    }
    Ok(())
}

/// The text of a record, within a limit.
pub(crate) struct RecordText {
    pub(crate) bytes: Vec<u8>,
    pub(crate) max_bytes: usize,
}

impl RecordText {
    /// Fails if the text is longer than the limit. A list of a few bytes in Arrow may have 2^31 elements.
    #[inline]
    pub(crate) fn check_length(&self) -> Result<()> {
        if self.bytes.len() <= self.max_bytes {
            return Ok(());
        }
        Err(ConversionError::limit(format!(
            " the record has more than {} bytes: leave the column out, or divide the record",
            self.max_bytes
        )))
    }
}

/// Writes the values of one array.
pub(crate) struct CellWriter<'a> {
    array: &'a ArrayRef,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Null,
    Bool(&'a BooleanArray),
    Int(IntCells<'a>),
    Float(FloatCells<'a>),
    Text(TextCells<'a>),
    Time(TimeCells<'a>),
    Decimal(DecimalCells<'a>),
    List(ListCells<'a>),
    Struct(Vec<(Vec<u8>, CellWriter<'a>)>),
    Dictionary(Vec<usize>, Box<CellWriter<'a>>),
}

enum IntCells<'a> {
    I8(&'a PrimitiveArray<Int8Type>),
    I16(&'a PrimitiveArray<Int16Type>),
    I32(&'a PrimitiveArray<Int32Type>),
    I64(&'a PrimitiveArray<Int64Type>),
    U8(&'a PrimitiveArray<UInt8Type>),
    U16(&'a PrimitiveArray<UInt16Type>),
    U32(&'a PrimitiveArray<UInt32Type>),
    U64(&'a PrimitiveArray<UInt64Type>),
}

enum FloatCells<'a> {
    F16(&'a PrimitiveArray<Float16Type>),
    F32(&'a PrimitiveArray<Float32Type>),
    F64(&'a PrimitiveArray<Float64Type>),
}

enum TextCells<'a> {
    Small(&'a arrow_array::StringArray),
    Large(&'a arrow_array::LargeStringArray),
    View(&'a StringViewArray),
}

enum DecimalCells<'a> {
    Small(&'a Decimal128Array),
    Large(&'a Decimal256Array),
}

/// Counts of units, with their number in a second.
enum TimeCells<'a> {
    Date(&'a PrimitiveArray<Date32Type>),
    DateMillis(&'a PrimitiveArray<Date64Type>),
    Timestamp { counts: &'a [i64], per_second: i64, is_utc: bool },
    Time32 { counts: &'a [i32], per_second: i64 },
    Time64 { counts: &'a [i64], per_second: i64 },
}

enum ListCells<'a> {
    Small(&'a OffsetBuffer<i32>, Box<CellWriter<'a>>),
    Large(&'a OffsetBuffer<i64>, Box<CellWriter<'a>>),
    Fixed(usize, Box<CellWriter<'a>>),
}

fn counts<T: ArrowPrimitiveType>(array: &ArrayRef) -> &[T::Native] {
    array.as_primitive::<T>().values()
}

impl<'a> CellWriter<'a> {
    /// The writer of an array whose type [`check_type`] accepts.
    pub(crate) fn new(array: &'a ArrayRef) -> Result<Self> {
        let kind = match array.data_type() {
            DataType::Null => Kind::Null,
            DataType::Boolean => Kind::Bool(array.as_boolean()),
            DataType::Int8 => Kind::Int(IntCells::I8(array.as_primitive())),
            DataType::Int16 => Kind::Int(IntCells::I16(array.as_primitive())),
            DataType::Int32 => Kind::Int(IntCells::I32(array.as_primitive())),
            DataType::Int64 => Kind::Int(IntCells::I64(array.as_primitive())),
            DataType::UInt8 => Kind::Int(IntCells::U8(array.as_primitive())),
            DataType::UInt16 => Kind::Int(IntCells::U16(array.as_primitive())),
            DataType::UInt32 => Kind::Int(IntCells::U32(array.as_primitive())),
            DataType::UInt64 => Kind::Int(IntCells::U64(array.as_primitive())),
            DataType::Float16 => Kind::Float(FloatCells::F16(array.as_primitive())),
            DataType::Float32 => Kind::Float(FloatCells::F32(array.as_primitive())),
            DataType::Float64 => Kind::Float(FloatCells::F64(array.as_primitive())),
            DataType::Utf8 => Kind::Text(TextCells::Small(array.as_string())),
            DataType::LargeUtf8 => Kind::Text(TextCells::Large(array.as_string())),
            DataType::Utf8View => Kind::Text(TextCells::View(array.as_string_view())),
            DataType::Decimal128(..) => {
                Kind::Decimal(DecimalCells::Small(array.as_primitive::<Decimal128Type>()))
            }
            DataType::Decimal256(..) => {
                Kind::Decimal(DecimalCells::Large(array.as_primitive::<Decimal256Type>()))
            }
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                Kind::List(ListCells::Small(list.offsets(), Box::new(Self::new(list.values())?)))
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                Kind::List(ListCells::Large(list.offsets(), Box::new(Self::new(list.values())?)))
            }
            DataType::FixedSizeList(_, len) => {
                let elements = Self::new(array.as_fixed_size_list().values())?;
                Kind::List(ListCells::Fixed(usize::try_from(*len).unwrap_or(0), Box::new(elements)))
            }
            DataType::Struct(fields) => {
                let columns = fields.iter().zip(array.as_struct().columns());
                let columns = columns.map(|(field, column)| {
                    let mut name = Vec::new();
                    json_text::write_string(field.name(), &mut name);
                    name.push(b':');
                    Ok((name, Self::new(column)?))
                });
                Kind::Struct(columns.collect::<Result<_>>()?)
            }
            // Arrow normalizes no keys without values.
            DataType::Dictionary(..) if array.as_any_dictionary().values().is_empty() => Kind::Null,
            DataType::Dictionary(..) => {
                let dictionary = array.as_any_dictionary();
                Kind::Dictionary(dictionary.normalized_keys(), Box::new(Self::new(dictionary.values())?))
            }
            _ => Kind::Time(TimeCells::new(array)?),
        };
        Ok(Self { array, kind })
    }

    #[inline]
    pub(crate) fn is_null(&self, row: usize) -> bool {
        match &self.kind {
            Kind::Null => true,
            Kind::Dictionary(places, values) => {
                self.array.is_null(row) || places.get(row).is_none_or(|place| values.is_null(*place))
            }
            _ => self.array.is_null(row),
        }
    }

    /// Appends the value; `null` for NULL. The length of the record is checked after each element.
    pub(crate) fn write(&self, row: usize, record: &mut RecordText) -> Result<()> {
        let out = &mut record.bytes;
        if self.is_null(row) {
            out.extend_from_slice(b"null");
            return record.check_length();
        }
        match &self.kind {
            Kind::Null => {}
            Kind::Bool(array) => out.extend_from_slice(if array.value(row) { b"true" } else { b"false" }),
            Kind::Int(cells) => cells.write(row, out),
            Kind::Float(cells) => cells.write(row, out)?,
            Kind::Text(cells) => json_text::write_string(cells.value(row), out),
            Kind::Time(cells) => cells.write(row, out)?,
            Kind::Decimal(cells) => {
                let text = match cells {
                    DecimalCells::Small(array) => array.value_as_string(row),
                    DecimalCells::Large(array) => array.value_as_string(row),
                };
                json_text::write_string(&text, out);
            }
            Kind::List(cells) => {
                let (elements, range) = match cells {
                    ListCells::Small(offsets, elements) => {
                        (elements, offsets[row] as usize..offsets[row + 1] as usize)
                    }
                    ListCells::Large(offsets, elements) => {
                        (elements, offsets[row] as usize..offsets[row + 1] as usize)
                    }
                    ListCells::Fixed(len, elements) => (elements, row * len..(row + 1) * len),
                };
                out.push(b'[');
                for (at, element) in range.enumerate() {
                    if at > 0 {
                        record.bytes.push(b',');
                    }
                    elements.write(element, record)?;
                }
                record.bytes.push(b']');
            }
            Kind::Struct(columns) => {
                out.push(b'{');
                let mut is_first = true;
                for (name, column) in columns.iter().filter(|(_, column)| !column.is_null(row)) {
                    if !std::mem::take(&mut is_first) {
                        record.bytes.push(b',');
                    }
                    record.bytes.extend_from_slice(name);
                    column.write(row, record)?;
                }
                record.bytes.push(b'}');
            }
            Kind::Dictionary(places, values) => {
                values.write(places.get(row).copied().unwrap_or(0), record)?;
            }
        }
        record.check_length()
    }
}

impl IntCells<'_> {
    fn write(&self, row: usize, out: &mut Vec<u8>) {
        let signed = match self {
            Self::I8(array) => i64::from(array.value(row)),
            Self::I16(array) => i64::from(array.value(row)),
            Self::I32(array) => i64::from(array.value(row)),
            Self::I64(array) => array.value(row),
            Self::U8(array) => i64::from(array.value(row)),
            Self::U16(array) => i64::from(array.value(row)),
            Self::U32(array) => i64::from(array.value(row)),
            Self::U64(array) => return print(out, format_args!("{}", array.value(row))),
        };
        print(out, format_args!("{signed}"));
    }
}

impl FloatCells<'_> {
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::F16(array) => write_float(f64::from(array.value(row)), out),
            // The shortest text of the 32-bit value: 0.1 is not 0.10000000149011612.
            Self::F32(array) if array.value(row).is_finite() => {
                print(out, format_args!("{:?}", array.value(row)));
                Ok(())
            }
            Self::F32(array) => write_float(f64::from(array.value(row)), out),
            Self::F64(array) => write_float(array.value(row), out),
        }
    }
}

fn write_float(value: f64, out: &mut Vec<u8>) -> Result<()> {
    if !value.is_finite() {
        return Err(ConversionError::new(format!(
            " the value {value} has no form in JSON: replace it by NULL"
        )));
    }
    print(out, format_args!("{value:?}"));
    Ok(())
}

fn print(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a vector cannot fail.
    let _ = out.write_fmt(text);
}

impl<'a> TextCells<'a> {
    fn value(&self, row: usize) -> &'a str {
        match self {
            Self::Small(array) => array.value(row),
            Self::Large(array) => array.value(row),
            Self::View(array) => array.value(row),
        }
    }
}

fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

impl<'a> TimeCells<'a> {
    fn new(array: &'a ArrayRef) -> Result<Self> {
        Ok(match array.data_type() {
            DataType::Date32 => Self::Date(array.as_primitive()),
            DataType::Date64 => Self::DateMillis(array.as_primitive()),
            DataType::Time32(unit) => {
                let counts = match unit {
                    TimeUnit::Second => counts::<Time32SecondType>(array),
                    _ => counts::<Time32MillisecondType>(array),
                };
                Self::Time32 { counts, per_second: per_second(*unit) }
            }
            DataType::Time64(unit) => {
                let counts = match unit {
                    TimeUnit::Nanosecond => counts::<Time64NanosecondType>(array),
                    _ => counts::<Time64MicrosecondType>(array),
                };
                Self::Time64 { counts, per_second: per_second(*unit) }
            }
            DataType::Timestamp(unit, zone) => {
                let counts = match unit {
                    TimeUnit::Second => counts::<TimestampSecondType>(array),
                    TimeUnit::Millisecond => counts::<TimestampMillisecondType>(array),
                    TimeUnit::Microsecond => counts::<TimestampMicrosecondType>(array),
                    TimeUnit::Nanosecond => counts::<TimestampNanosecondType>(array),
                };
                Self::Timestamp { counts, per_second: per_second(*unit), is_utc: zone.is_some() }
            }
            other => return Err(ConversionError::new(format!("the type {other} has no form in JSON"))),
        })
    }

    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        let mut text = String::new();
        let written = match self {
            Self::Date(array) => time_text::write_date(array.value(row).into(), &mut text),
            Self::DateMillis(array) => {
                time_text::write_date(array.value(row).div_euclid(86_400_000), &mut text)
            }
            Self::Timestamp { counts, per_second, is_utc } => {
                let written = time_text::write_timestamp(counts[row], *per_second, &mut text);
                if *is_utc {
                    text.push('Z');
                }
                written
            }
            Self::Time32 { counts, per_second } => write_time(counts[row].into(), *per_second, &mut text),
            Self::Time64 { counts, per_second } => write_time(counts[row], *per_second, &mut text),
        };
        if written.is_none() {
            return Err(ConversionError::new(
                " a date or time is outside of the years 0 to 9999 or of a day: replace it by NULL",
            ));
        }
        json_text::write_string(&text, out);
        Ok(())
    }
}

fn write_time(count: i64, per_second: i64, text: &mut String) -> Option<()> {
    time_text::write_time(count.checked_mul(1_000_000_000 / per_second)?, text)
}
