//! JSON records to Arrow batches, without a tree of the record between them.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};

use crate::batch_columns::BatchColumns;
use crate::column::{Column, ColumnSource};
use crate::column_builder::ColumnBuilder;
use crate::column_type::{ColumnType, ScalarType};
use crate::json_number;
use crate::json_scan::JsonScan;
use crate::json_text;
use crate::projection::{FieldTarget, NamePosition, Projection};
use crate::{ConversionError, Result};

/// The key of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordKey<'k> {
    /// An integer.
    Int(i64),
    /// An integer above the range of `i64`.
    Uint(u64),
    /// A text.
    Text(&'k str),
    /// Any bytes.
    Bytes(&'k [u8]),
}

/// When a batch is full. The last record may exceed the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchLimits {
    /// Rows of a batch. Default: 8,192.
    pub rows: usize,
    /// Bytes of the values of a batch. Default: 4 MiB.
    pub bytes: usize,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self { rows: 8_192, bytes: 4 << 20 }
    }
}

impl BatchLimits {
    /// Sets the rows of a batch; at least one.
    ///
    /// ```
    /// assert_eq!(bolide_arrow::BatchLimits::default().with_rows(0).rows, 1);
    /// ```
    #[must_use]
    pub fn with_rows(mut self, rows: usize) -> Self {
        self.rows = rows.max(1);
        self
    }
}

/// Decodes records into batches of the declared columns.
///
/// One pass over each record: the names of the projected columns are compared with the predicted ones, other values are
/// skipped, and values go straight into the columns of the batch. The pass ends with the last projected column.
///
/// A malformed record, which only older versions of the engine stored, has no values, and is counted. The decoder never
/// panics, and its memory is that of one batch and one record.
///
/// ```
/// use arrow_array::cast::AsArray;
/// use arrow_array::types::Int64Type;
/// use bolide_arrow::{BatchLimits, Column, RecordDecoder, RecordKey};
/// let columns = vec![Column::parse("_key", "string")?, Column::parse("user.id", "int64")?];
/// let mut decoder = RecordDecoder::new(columns, BatchLimits::default())?;
/// decoder.push(RecordKey::Text("a"), 1, br#"{"user":{"id":7}}"#)?;
/// decoder.push(RecordKey::Text("b"), 2, br#"{"user":"none"}"#)?;
/// let batch = decoder.finish()?;
/// let ids = batch.column(1).as_primitive::<Int64Type>();
/// assert_eq!(ids.iter().collect::<Vec<_>>(), [Some(7), None]);
/// # Ok::<(), bolide_arrow::ConversionError>(())
/// ```
pub struct RecordDecoder {
    declared: Vec<Column>,
    schema: SchemaRef,
    columns: BatchColumns,
    projection: Projection,
    /// The number of columns that are values of records.
    projected: usize,
    limits: BatchLimits,
    rows: usize,
    malformed: u64,
    /// No column has more bytes of texts, or more elements.
    filled: usize,
    /// The limit of these.
    max_filled: usize,
}

/// The offsets of Arrow's texts and lists have 32 bits.
const MAX_FILLED: usize = i32::MAX as usize;
/// Longest text of an integer.
const MAX_INT_BYTES: usize = 20;

impl RecordDecoder {
    /// A decoder for these columns.
    ///
    /// # Errors
    /// If two columns have one name.
    pub fn new(columns: Vec<Column>, limits: BatchLimits) -> Result<Self> {
        let schema = Arc::new(Schema::new(columns.iter().map(Column::field).collect::<Vec<_>>()));
        let mut names: Vec<&str> = columns.iter().map(Column::name).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ConversionError::new(format!("two columns are named `{}`", pair[0])));
        }
        let paths: Vec<(&[String], usize)> =
            (0..).zip(&columns).filter_map(|(at, column)| path_of(column, at)).collect();
        let mut sorted: Vec<&[String]> = paths.iter().map(|(path, _)| *path).collect();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ConversionError::new(format!("two columns have the path `{}`", pair[0].join("."))));
        }
        let builders = BatchColumns::new(columns.iter().map(Column::column_type));
        let (projection, projected) = (Projection::new(paths.iter().copied()), paths.len());
        drop(paths);
        Ok(Self {
            declared: columns,
            schema,
            columns: builders,
            projection,
            projected,
            limits,
            rows: 0,
            malformed: 0,
            filled: 0,
            max_filled: MAX_FILLED,
        })
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The number of records in the batch.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether the batch has reached a limit. More records may still be added.
    pub fn is_full(&self) -> bool {
        self.rows >= self.limits.rows || self.columns.bytes(self.rows) >= self.limits.bytes
    }

    /// The number of malformed records so far.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Appends the row of a record.
    ///
    /// # Errors
    /// If the key does not suit the type of the column `_key`, the column `_record` is declared and the record is not
    /// UTF-8, or a column could exceed 2 GiB ([`ConversionError::is_limit`]). The batch is then unchanged.
    pub fn push(&mut self, key: RecordKey<'_>, sequence: u64, record: &[u8]) -> Result<()> {
        self.reserve(key, record)?;
        let row = self.rows;
        if let Err(error) = self.push_sources(key, sequence, record) {
            self.columns.truncate(row);
            return Err(error);
        }
        if self.projected > 0 {
            let mut pass = RecordPass {
                scan: JsonScan::new(record),
                projection: &mut self.projection,
                columns: &mut self.columns,
                row,
                missing: self.projected,
            };
            let end = pass.record();
            let missing = pass.missing;
            if matches!(end, Err(Halt::Malformed)) {
                self.malformed += 1;
                self.columns.truncate(row);
                self.push_sources(key, sequence, record)?;
            }
            if missing > 0 || matches!(end, Err(Halt::Malformed)) {
                self.columns.fill(row + 1);
            }
        }
        self.rows += 1;
        Ok(())
    }

    /// Makes sure that the offsets of all columns have space for what a record can add.
    fn reserve(&mut self, key: RecordKey<'_>, record: &[u8]) -> Result<()> {
        let key = match key {
            RecordKey::Text(text) => text.len(),
            RecordKey::Bytes(bytes) => bytes.len(),
            RecordKey::Int(_) | RecordKey::Uint(_) => MAX_INT_BYTES,
        };
        // A column has a part of the record once; a text is not longer than its form in JSON.
        let added = key.max(record.len());
        if self.filled.saturating_add(added) > self.max_filled {
            // So far the records counted as a whole.
            self.filled = self.columns.filled();
        }
        let filled = self.filled.saturating_add(added);
        if filled > self.max_filled {
            return Err(ConversionError::limit(format!(
                "the batch of {} rows has no space for a record of {} bytes, since a column has at most {} bytes: take the \
                 batch before, or leave the column out",
                self.rows,
                record.len(),
                self.max_filled
            )));
        }
        self.filled = filled;
        Ok(())
    }

    /// Appends what the record does not contain.
    fn push_sources(&mut self, key: RecordKey<'_>, sequence: u64, record: &[u8]) -> Result<()> {
        if self.projected == self.declared.len() {
            return Ok(());
        }
        for (column, builder) in self.declared.iter().zip(self.columns.all_mut()) {
            match column.source() {
                ColumnSource::Path(..) => {}
                ColumnSource::Sequence => builder.append_int(i64::try_from(sequence).unwrap_or(i64::MAX)),
                ColumnSource::Record => match std::str::from_utf8(record) {
                    Ok(_) => builder.append_bytes(record),
                    Err(_) => {
                        return Err(ConversionError::new(format!("the record of {key:?} is not UTF-8")));
                    }
                },
                ColumnSource::IntKey => match key {
                    RecordKey::Int(value) => builder.append_int(value),
                    other => return Err(unsuited(other, "int64")),
                },
                ColumnSource::TextKey => match key {
                    RecordKey::Text(text) => builder.append_bytes(text.as_bytes()),
                    RecordKey::Int(value) => builder.append_bytes(value.to_string().as_bytes()),
                    RecordKey::Uint(value) => builder.append_bytes(value.to_string().as_bytes()),
                    RecordKey::Bytes(bytes) => match std::str::from_utf8(bytes) {
                        Ok(_) => builder.append_bytes(bytes),
                        Err(_) => return Err(unsuited(key, "string")),
                    },
                },
                ColumnSource::BinaryKey => match key {
                    RecordKey::Bytes(bytes) => builder.append_bytes(bytes),
                    RecordKey::Text(text) => builder.append_bytes(text.as_bytes()),
                    other => return Err(unsuited(other, "binary")),
                },
            }
        }
        Ok(())
    }

    /// The batch of all records since the last one. The decoder is empty afterwards.
    ///
    /// # Errors
    /// Those of Arrow; none is expected.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        let rows = std::mem::take(&mut self.rows);
        self.filled = 0;
        let arrays: Vec<ArrayRef> = self.columns.finish(&self.schema)?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?)
    }
}

fn path_of(column: &Column, at: usize) -> Option<(&[String], usize)> {
    match column.source() {
        ColumnSource::Path(path, _) => Some((path.fields(), at)),
        _ => None,
    }
}

fn unsuited(key: RecordKey<'_>, column_type: &str) -> ConversionError {
    ConversionError::new(format!(
        "the key {key:?} does not suit `_key` of type {column_type}: declare another type"
    ))
}

/// Why a pass ends before the end of the record.
enum Halt {
    /// All projected columns have a value.
    Complete,
    /// The text is not that of a record.
    Malformed,
}

/// The pass over one record. Its methods take the start of an element and return its end.
struct RecordPass<'d, 'r> {
    scan: JsonScan<'r>,
    projection: &'d mut Projection,
    columns: &'d mut BatchColumns,
    row: usize,
    /// Projected columns without a value of this record.
    missing: usize,
}

impl RecordPass<'_, '_> {
    fn record(&mut self) -> std::result::Result<(), Halt> {
        let start = self.scan.expect(self.scan.skip_space(0), b'{').ok_or(Halt::Malformed)?;
        let end = self.object(start, 0)?;
        if self.scan.rest(self.scan.skip_space(end)).is_empty() { Ok(()) } else { Err(Halt::Malformed) }
    }

    /// An object after its opening brace; `object` is its place in the projection. The depth of the recursion is that of
    /// the projection.
    fn object(&mut self, start: usize, object: u32) -> std::result::Result<usize, Halt> {
        let mut position = NamePosition::default();
        let mut at = self.scan.skip_space(start);
        if self.scan.peek(at) == b'}' {
            return Ok(at + 1);
        }
        loop {
            let (target, value) = self.name(at, object, &mut position)?;
            let value = self.scan.skip_space(value);
            let end = if target.is_skipped() {
                self.scan.skip_value(value).ok_or(Halt::Malformed)?
            } else {
                self.value(value, target)?
            };
            at = self.scan.skip_space(end);
            match self.scan.peek(at) {
                b',' => at = self.scan.skip_space(at + 1),
                b'}' => return Ok(at + 1),
                _ => return Err(Halt::Malformed),
            }
        }
    }

    #[inline]
    fn name(
        &mut self,
        at: usize,
        object: u32,
        position: &mut NamePosition,
    ) -> std::result::Result<(FieldTarget, usize), Halt> {
        match self.projection.predicted(object, position, self.scan.rest(at)) {
            Some((target, len)) => Ok((target, at + len)),
            None => self.other_name(at, object, position).ok_or(Halt::Malformed),
        }
    }

    #[inline(never)]
    fn other_name(
        &mut self,
        at: usize,
        object: u32,
        position: &mut NamePosition,
    ) -> Option<(FieldTarget, usize)> {
        let start = self.scan.expect(at, b'"')?;
        let name = self.scan.string(start)?;
        let end = self.scan.expect(self.scan.skip_space(name.end), b':')?;
        if name.has_escapes {
            let mut plain = Vec::new();
            json_text::unescape(name.content, &mut plain)?;
            return Some((self.projection.target(object, position, &plain, None), end));
        }
        // Without spaces before the colon, as records are mostly written.
        let token = (end == name.end + 1).then(|| self.scan.slice(at, end));
        Some((self.projection.target(object, position, name.content, token), end))
    }

    /// The value of a projected field.
    fn value(&mut self, at: usize, target: FieldTarget) -> std::result::Result<usize, Halt> {
        let is_object = self.scan.peek(at) == b'{';
        let mut end = None;
        if let Some(column) = target.column {
            // Of fields with one name the first counts.
            if !self.columns.has_value(column, self.row) {
                end = Some(self.cell(at, column).ok_or(Halt::Malformed)?);
                self.note_value()?;
            }
        }
        match (target.object, end) {
            (Some(object), _) if is_object => self.object(at + 1, object),
            (_, Some(end)) => Ok(end),
            _ => self.scan.skip_value(at).ok_or(Halt::Malformed),
        }
    }

    #[inline]
    fn note_value(&mut self) -> std::result::Result<(), Halt> {
        self.missing = self.missing.saturating_sub(1);
        if self.missing == 0 { Err(Halt::Complete) } else { Ok(()) }
    }

    /// Appends the value at `at` to its column.
    #[inline]
    fn cell(&mut self, at: usize, column: u32) -> Option<usize> {
        let scan = self.scan;
        let builder = self.columns.column(column)?;
        let first = scan.peek(at);
        match builder.column_type() {
            ColumnType::Scalar(ScalarType::Json) if first != b'n' => json_cell(scan, at, builder),
            ColumnType::List(element) if first == b'[' => list_cell(scan, at + 1, builder, element),
            _ => scalar_cell(scan, at, builder),
        }
    }
}

/// Appends the text of the value.
fn json_cell(scan: JsonScan<'_>, at: usize, builder: &mut ColumnBuilder) -> Option<usize> {
    let end = scan.skip_value(at)?;
    let text = scan.slice(at, end);
    std::str::from_utf8(text).ok()?;
    builder.append_bytes(text);
    Some(end)
}

/// Appends the elements of an array after its opening bracket.
fn list_cell(
    scan: JsonScan<'_>,
    start: usize,
    builder: &mut ColumnBuilder,
    element: ScalarType,
) -> Option<usize> {
    let mut at = scan.skip_space(start);
    if scan.peek(at) == b']' {
        builder.end_list();
        return Some(at + 1);
    }
    loop {
        let elements = builder.elements()?;
        let end = match element {
            ScalarType::Json if scan.peek(at) != b'n' => json_cell(scan, at, elements)?,
            _ => scalar_cell(scan, at, elements)?,
        };
        at = scan.skip_space(end);
        match scan.peek(at) {
            b',' => at = scan.skip_space(at + 1),
            b']' => {
                builder.end_list();
                return Some(at + 1);
            }
            _ => return None,
        }
    }
}

/// Appends a value to a column of scalars; NULL for one of another type.
#[inline]
fn scalar_cell(scan: JsonScan<'_>, at: usize, builder: &mut ColumnBuilder) -> Option<usize> {
    let literal = |word: &[u8]| scan.rest(at).starts_with(word).then_some(at + word.len());
    match scan.peek(at) {
        b'"' => {
            let token = scan.string(at + 1)?;
            if let ColumnType::Scalar(ScalarType::String | ScalarType::Date | ScalarType::IsoTimestamp) =
                builder.column_type()
            {
                builder.append_string(token)?;
            } else {
                builder.append_null();
            }
            Some(token.end)
        }
        b'-' | b'0'..=b'9' => {
            let (number, end) = json_number::parse(scan, at)?;
            builder.append_number(number);
            Some(end)
        }
        b't' => {
            let end = literal(b"true")?;
            builder.append_bool(true);
            Some(end)
        }
        b'f' => {
            let end = literal(b"false")?;
            builder.append_bool(false);
            Some(end)
        }
        b'n' => {
            let end = literal(b"null")?;
            builder.append_null();
            Some(end)
        }
        b'{' | b'[' => {
            let end = scan.skip_value(at)?;
            builder.append_null();
            Some(end)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_ends_before_its_offsets_overflow() {
        let columns = [("_key", "string"), ("t", "string"), ("l", "list<int64>"), ("j", "list<json>")];
        let columns: Vec<Column> =
            columns.iter().map(|(name, of)| Column::parse(name, of)).collect::<Result<_>>().unwrap();
        let mut decoder = RecordDecoder::new(columns, BatchLimits::default()).unwrap();
        decoder.max_filled = 1_000;
        let key = RecordKey::Text("key");
        // Records count as a whole only until the columns are measured.
        let skipped = format!(r#"{{"t":"ab","other":"{}"}}"#, "x".repeat(600));
        for _ in 0..20 {
            decoder.push(key, 1, skipped.as_bytes()).unwrap();
        }
        for record in [
            format!(r#"{{"t":"{}"}}"#, "x".repeat(300)),
            format!(r#"{{"l":[{}0]}}"#, "1,".repeat(150)),
            format!(r#"{{"j":[{}0]}}"#, "{},".repeat(100)),
        ] {
            let pushed = (0..100).take_while(|_| decoder.push(key, 1, record.as_bytes()).is_ok()).count();
            assert!((1..7).contains(&pushed), "{pushed} {record}");
            let (rows, error) = (decoder.rows(), decoder.push(key, 1, record.as_bytes()).unwrap_err());
            assert!(error.is_limit() && error.to_string().contains(&format!("{rows} rows")), "{error}");
            // A record with nothing for the columns still has space.
            decoder.push(key, 1, b"{}").unwrap();
            assert_eq!(decoder.finish().unwrap().num_rows(), rows + 1);
            decoder.push(key, 1, record.as_bytes()).unwrap();
        }
        let whole = vec![b' '; 1_001];
        assert!(decoder.push(key, 1, &whole).unwrap_err().is_limit());
        assert!(decoder.push(RecordKey::Text(&"k".repeat(1_001)), 1, b"{}").unwrap_err().is_limit());
    }
}
