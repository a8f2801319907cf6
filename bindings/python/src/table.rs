//! Records as Arrow streams.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use bolide::key::{self, KeyFormat, PrimaryKey};
use bolide::{AnswerCursor, Collection, Cursor, FindOptions, IterOptions, Query, Snapshot};
use bolide_arrow::{
    BatchLimits, Column, ColumnSource, InferenceLimits, RecordDecoder, RecordKey, SchemaInference,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use pyo3_arrow::{PyRecordBatchReader, PySchema};

use crate::errors::{self, detached, from_conversion};
use crate::session::{Exclusive, Shared};

/// Records of the sample that types are inferred from.
const SAMPLE_RECORDS: usize = 10_000;
/// Key ranges of the sample.
const SAMPLE_RANGES: usize = 50;
/// Bytes of the sample, about.
const SAMPLE_BYTES: usize = 64 << 20;

/// What a table reads.
pub(crate) struct TableSettings {
    pub(crate) query: Query,
    /// Whether the query is for all records in any order.
    pub(crate) is_whole: bool,
    pub(crate) snapshot: Option<Shared<Snapshot>>,
    pub(crate) batch_rows: usize,
}

/// Records as an Arrow stream: an object with ``__arrow_c_stream__``; made by ``Collection.arrow``.
///
/// Each stream runs the query again.
#[pyclass(frozen, name = "ArrowTable", module = "bolide")]
pub(crate) struct PyArrowTable {
    collection: Shared<Collection>,
    columns: Vec<Column>,
    settings: TableSettings,
}

impl PyArrowTable {
    pub(crate) fn new(collection: Shared<Collection>, columns: Vec<Column>, settings: TableSettings) -> Self {
        Self { collection, columns, settings }
    }

    fn decoder(&self) -> PyResult<RecordDecoder> {
        let limits = BatchLimits::default().with_rows(self.settings.batch_rows);
        RecordDecoder::new(self.columns.clone(), limits).map_err(|error| from_conversion(&error))
    }

    fn reader(&self, py: Python<'_>) -> PyResult<TableReader> {
        let decoder = self.decoder()?;
        let schema = decoder.schema().clone();
        let used = self.collection.read()?;
        let collection: &Collection = &used;
        let snapshot =
            self.settings.snapshot.as_ref().map(|snapshot| Ok::<_, PyErr>(snapshot.read()?.clone()));
        let snapshot = snapshot.transpose()?;
        let rows = detached(py, || {
            if self.settings.is_whole {
                let mut options = IterOptions::default();
                options.snapshot = snapshot;
                let mut cursor = collection.cursor(&options)?;
                cursor.seek_to_first()?;
                return Ok(ScannedRows::All(Box::new(cursor)));
            }
            let mut options = FindOptions::default();
            options.snapshot = snapshot;
            collection
                .answers(&self.settings.query, &options)
                .map(|cursor| ScannedRows::Answers(Box::new(cursor)))
        })?;
        let scan = TableScan { rows, decoder, keys: collection.key_format() };
        let scan = Exclusive::new(self.collection.session(), scan)?;
        Ok(TableReader { schema, scan, has_ended: false })
    }
}

#[pymethods]
impl PyArrowTable {
    /// The stream, as a capsule. It may be read by any thread.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let reader = PyRecordBatchReader::new(Box::new(self.reader(py)?));
        Bound::new(py, reader)?.call_method1("__arrow_c_stream__", (requested_schema,))
    }

    /// The schema, as a capsule.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let schema = PySchema::new(self.decoder()?.schema().clone());
        Bound::new(py, schema)?.call_method0("__arrow_c_schema__")
    }

    /// Names and types of the columns.
    #[getter]
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let columns = PyDict::new(py);
        for column in &self.columns {
            columns.set_item(column.name(), column.type_name())?;
        }
        Ok(columns)
    }

    fn __repr__(&self) -> String {
        let columns: Vec<String> =
            self.columns.iter().map(|column| format!("{} {}", column.name(), column.type_name())).collect();
        format!("<bolide.ArrowTable {}>", columns.join(", "))
    }
}

/// A scan and the batch that it fills.
struct TableScan {
    rows: ScannedRows,
    decoder: RecordDecoder,
    keys: KeyFormat,
}

enum ScannedRows {
    /// At the next record.
    All(Box<Cursor>),
    Answers(Box<AnswerCursor>),
}

/// Calls `then` with the key as a column has it.
fn with_record_key<T>(key: &[u8], format: KeyFormat, then: impl FnOnce(RecordKey<'_>) -> T) -> T {
    if format != KeyFormat::Typed {
        return then(RecordKey::Bytes(key));
    }
    // Without a copy of the text: most keys are texts, with one byte before.
    if let Some(text) = key.strip_prefix(&TEXT_KEY[..]).and_then(|text| std::str::from_utf8(text).ok()) {
        return then(RecordKey::Text(text));
    }
    match key::decode(key) {
        PrimaryKey::Int(value) => then(RecordKey::Int(value)),
        PrimaryKey::Uint(value) => then(RecordKey::Uint(value)),
        PrimaryKey::String(text) => then(RecordKey::Text(&text)),
        PrimaryKey::Bytes(bytes) => then(RecordKey::Bytes(&bytes)),
    }
}

/// The first byte of typed keys that are texts.
const TEXT_KEY: [u8; 1] = [0x1c];

impl TableScan {
    /// The next batch; `None` at the end.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        while !self.decoder.is_full() {
            let decoder = &mut self.decoder;
            let mut push = |key: &[u8], sequence: u64, record: &[u8]| {
                with_record_key(key, self.keys, |key| decoder.push(key, sequence, record)).map_err(external)
            };
            match &mut self.rows {
                ScannedRows::All(cursor) => {
                    if !cursor.valid() {
                        break;
                    }
                    push(cursor.key(), cursor.sequence(), cursor.value())?;
                    cursor.next().map_err(external)?;
                }
                ScannedRows::Answers(cursor) => match cursor.next().map_err(external)? {
                    Some(answer) => push(answer.key, answer.sequence, answer.record.unwrap_or_default())?,
                    None => break,
                },
            }
        }
        if self.decoder.rows() == 0 {
            return Ok(None);
        }
        self.decoder.finish().map(Some).map_err(external)
    }
}

fn external(error: impl std::error::Error + Send + Sync + 'static) -> ArrowError {
    ArrowError::ExternalError(Box::new(error))
}

/// The batches of a stream. Consumers read it from any thread, with or without the lock of the interpreter, which it never
/// requests.
struct TableReader {
    schema: SchemaRef,
    scan: Exclusive<TableScan>,
    has_ended: bool,
}

impl Iterator for TableReader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let read = catch_unwind(AssertUnwindSafe(|| self.scan.with_detached(TableScan::next_batch)));
        let next = match read {
            Ok(Some(batch)) => batch.transpose(),
            Ok(None) => Some(Err(ArrowError::ExternalError(
                "the database was closed, or this is a child process".into(),
            ))),
            Err(panic) => Some(Err(external(bolide::Error::panicked("the stream", &*panic)))),
        };
        self.has_ended = !matches!(next, Some(Ok(_)));
        next
    }
}

impl RecordBatchReader for TableReader {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// The declared columns: a `dict` of types, a list of names, or all of a sample.
pub(crate) fn columns_of(
    py: Python<'_>,
    collection: &Collection,
    declared: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<Column>> {
    let parse = |name: &str, of: &str| Column::parse(name, of).map_err(|error| from_conversion(&error));
    if let Some(types) = declared.and_then(|declared| declared.cast::<PyDict>().ok()) {
        return types
            .iter()
            .map(|(name, of)| parse(&name.extract::<String>()?, &of.extract::<String>()?))
            .collect();
    }
    let names = match declared {
        None => None,
        Some(names) if !names.is_instance_of::<PyString>() => Some(names.extract::<Vec<String>>()?),
        Some(_) => {
            return Err(PyTypeError::new_err("columns is a dict of names and types, or a list of names"));
        }
    };
    let Sample { columns, key } = detached(py, || Sample::read(collection))?;
    let Some(names) = names else {
        let key = Column::new(bolide_arrow::KEY_COLUMN, key);
        return Ok(std::iter::once(key).chain(columns).collect());
    };
    let by_name: HashMap<&str, &Column> = columns.iter().map(|column| (column.name(), column)).collect();
    names
        .iter()
        .map(|name| match name.as_str() {
            bolide_arrow::KEY_COLUMN => Ok(Column::new(name.clone(), key.clone())),
            bolide_arrow::SEQUENCE_COLUMN => parse(name, "int64"),
            bolide_arrow::RECORD_COLUMN => parse(name, "json"),
            other => by_name.get(other).map(|column| (*column).clone()).ok_or_else(|| {
                errors::invalid_input(format!(
                    "no record of the sample has the column {other:?}: declare its type in a dict"
                ))
            }),
        })
        .collect()
}

/// What a sample of the records contains.
struct Sample {
    columns: Vec<Column>,
    key: ColumnSource,
}

impl Sample {
    /// Reads the first records of key ranges with about equal bytes.
    fn read(collection: &Collection) -> bolide::Result<Self> {
        let mut inference = SchemaInference::new(InferenceLimits::default());
        let (mut has_texts, mut has_ints, mut has_bytes) = (false, false, false);
        let ranges = collection.split(SAMPLE_RANGES)?;
        let per_range = SAMPLE_RECORDS / ranges.len().max(1);
        let mut bytes = 0;
        for range in &ranges {
            let mut cursor = collection.cursor(&IterOptions::default().range(range.clone()))?;
            cursor.seek_to_first()?;
            for _ in 0..per_range {
                if !cursor.valid() || bytes > SAMPLE_BYTES {
                    break;
                }
                bytes += cursor.value().len();
                inference.add(cursor.value());
                with_record_key(cursor.key(), collection.key_format(), |key| match key {
                    RecordKey::Text(_) => has_texts = true,
                    RecordKey::Int(_) => has_ints = true,
                    RecordKey::Bytes(bytes) if std::str::from_utf8(bytes).is_ok() => has_texts = true,
                    RecordKey::Bytes(_) => has_bytes = true,
                    _ => has_texts = true,
                });
                cursor.next()?;
            }
        }
        let key = match (has_bytes, has_ints, has_texts) {
            (true, ..) => ColumnSource::BinaryKey,
            (false, true, false) => ColumnSource::IntKey,
            _ => ColumnSource::TextKey,
        };
        Ok(Self { columns: inference.finish(), key })
    }
}
