//! Records as Arrow streams.

use std::collections::HashMap;

use arrow_schema::SchemaRef;
use bolide::{Collection, Db, FindOptions, IterOptions, Query, Snapshot};
use bolide_arrow::{
    BatchLimits, Column, ColumnSource, InferenceLimits, RecordDecoder, RecordKey, SchemaInference,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyString};

use crate::capsules::{schema_capsule, stream_capsule};
use crate::errors::{self, from_conversion};
use crate::session::{Exclusive, Released, Shared};
use crate::signals::interruptible;
use crate::table_scan::{BatchShape, TableReader, TableScan, with_record_key};

/// Records of the sample that types are inferred from.
const SAMPLE_RECORDS: usize = 10_000;
/// Key ranges of the sample.
const SAMPLE_RANGES: usize = 50;
/// Bytes of the sample, about.
const SAMPLE_BYTES: usize = 64 << 20;

/// Most threads of a scan, unless the caller wants more.
const MAX_DEFAULT_THREADS: usize = 8;

/// Most threads of a scan.
pub(crate) const MAX_THREADS: usize = 64;

/// Threads of a scan by default: the cores.
pub(crate) fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(MAX_DEFAULT_THREADS)
}

/// What a table reads.
pub(crate) struct TableSettings {
    pub(crate) query: Query,
    /// Whether the query is for all records in any order.
    pub(crate) is_whole: bool,
    pub(crate) snapshot: Option<Released<Shared<Snapshot>>>,
    pub(crate) batch_rows: usize,
    /// Threads that decode a scan of all records.
    pub(crate) threads: usize,
}

/// Records as an Arrow stream: an object with ``__arrow_c_stream__``; made by ``Collection.arrow``.
///
/// Each stream runs the query again.
#[pyclass(frozen, name = "ArrowTable", module = "bolide")]
pub(crate) struct PyArrowTable {
    collection: Released<Shared<Collection>>,
    columns: Vec<Column>,
    settings: TableSettings,
}

impl PyArrowTable {
    pub(crate) fn new(collection: Shared<Collection>, columns: Vec<Column>, settings: TableSettings) -> Self {
        Self { collection: Released::new(collection), columns, settings }
    }

    fn limits(&self) -> BatchLimits {
        BatchLimits::default().with_rows(self.settings.batch_rows)
    }

    fn schema(&self) -> PyResult<SchemaRef> {
        let decoder = RecordDecoder::new(self.columns.clone(), self.limits());
        Ok(decoder.map_err(|error| from_conversion(&error))?.schema().clone())
    }

    fn reader(&self, py: Python<'_>) -> PyResult<TableReader> {
        let schema = self.schema()?;
        let (used_db, used) = (self.collection.session().db()?, self.collection.read()?);
        let (db, collection): (&Db, &Collection) = (&used_db, &used);
        let snapshot =
            self.settings.snapshot.as_ref().map(|snapshot| Ok::<_, PyErr>(snapshot.read()?.clone()));
        let snapshot = snapshot.transpose()?;
        let shape = BatchShape {
            columns: self.columns.clone(),
            limits: self.limits(),
            keys: collection.key_format(),
        };
        let scan = interruptible(py, || {
            if self.settings.is_whole {
                let snapshot = snapshot.unwrap_or_else(|| db.snapshot());
                return TableScan::of_records(collection, snapshot, &shape, self.settings.threads);
            }
            let mut options = FindOptions::default();
            options.snapshot = snapshot;
            TableScan::of_answers(collection.answers(&self.settings.query, &options)?, &shape)
        })?;
        let scan = Exclusive::new(self.collection.session(), scan)?;
        Ok(TableReader::new(schema, scan))
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
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // A producer may ignore it: the columns have the declared types.
        drop(requested_schema);
        stream_capsule(py, Box::new(self.reader(py)?))
    }

    /// The schema, as a capsule.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &*self.schema()?)
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

/// The declared columns: a `dict` of types, a list of names, or all of a sample.
pub(crate) fn columns_of(
    py: Python<'_>,
    collection: &Collection,
    declared: Option<&Bound<'_, PyAny>>,
    snapshot: Option<Snapshot>,
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
    let Sample { columns, key } = interruptible(py, || Sample::read(collection, snapshot.as_ref()))?;
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
    /// Reads the first records of key ranges with about equal bytes, and the last key, at `snapshot` or now.
    fn read(collection: &Collection, snapshot: Option<&Snapshot>) -> bolide::Result<Self> {
        let mut inference = SchemaInference::new(InferenceLimits::default());
        let (mut has_texts, mut has_ints, mut has_bytes) = (false, false, false);
        let ranges = collection.split(SAMPLE_RANGES)?;
        let per_range = SAMPLE_RECORDS / ranges.len().max(1);
        let mut bytes = 0;
        let mut note_key = |key: &[u8]| {
            with_record_key(key, collection.key_format(), |key| match key {
                RecordKey::Int(_) => has_ints = true,
                RecordKey::Bytes(bytes) if std::str::from_utf8(bytes).is_err() => has_bytes = true,
                _ => has_texts = true,
            });
        };
        for range in &ranges {
            let mut options = IterOptions::default().range(range.clone());
            options.snapshot = snapshot.cloned();
            let mut cursor = collection.cursor(&options)?;
            cursor.seek_to_first()?;
            for _ in 0..per_range {
                if !cursor.valid() || bytes > SAMPLE_BYTES {
                    break;
                }
                bytes += cursor.value().len();
                inference.add(cursor.value());
                note_key(cursor.key());
                cursor.next()?;
            }
        }
        let mut options = IterOptions::default();
        options.snapshot = snapshot.cloned();
        let mut cursor = collection.cursor(&options)?;
        // Texts sort behind integers: a sample of the first records of a range may have none.
        cursor.seek_to_last()?;
        if cursor.valid() {
            note_key(cursor.key());
        }
        let key = match (has_bytes, has_ints, has_texts) {
            (true, ..) => ColumnSource::BinaryKey,
            (false, true, false) => ColumnSource::IntKey,
            _ => ColumnSource::TextKey,
        };
        Ok(Self { columns: inference.finish(), key })
    }
}
