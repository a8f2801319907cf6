//! Arrow batches as records.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bolide::key::{self, KeyFormat};
use bolide::{Collection, Db, WriteBatch, WriteOptions};
use bolide_arrow::{ConversionError, EncodedKey, RecordEncoder};
use pyo3::prelude::*;
use pyo3_arrow::input::AnyRecordBatch;

use crate::errors::{detached, from_conversion, invalid_input};
use crate::session::Shared;

/// Bytes of a batch of writes, about.
const BATCH_BYTES: usize = 4 << 20;

/// An error of a conversion or of the engine.
enum ImportError {
    Conversion(ConversionError),
    Engine(bolide::Error),
}

impl From<ConversionError> for ImportError {
    fn from(error: ConversionError) -> Self {
        Self::Conversion(error)
    }
}

impl From<ImportError> for bolide::Error {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Conversion(error) if error.is_limit() => {
                Self::new(bolide::ErrorKind::LimitExceeded, error.to_string())
            }
            ImportError::Conversion(error) => Self::invalid_input(error.to_string()),
            ImportError::Engine(error) => error,
        }
    }
}

/// Arrow 59 panics on slices of structs within structs (apache/arrow-rs#10835).
fn unread_slice() -> PyErr {
    invalid_input(
        "the Arrow library cannot read this batch; it fails for slices of structs within structs: copy them before, in \
         pyarrow by table.take(range(table.num_rows))",
    )
}

fn read_arrow<T>(read: impl FnOnce() -> T) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(read)).map_err(|_| unread_slice())
}

/// Puts the rows of all batches of `data`. Returns their number.
pub(crate) fn import(
    py: Python<'_>,
    collection: &Shared<Collection>,
    data: &Bound<'_, PyAny>,
    key_column: &str,
    options: &WriteOptions,
) -> PyResult<u64> {
    let data = read_arrow(|| data.extract::<AnyRecordBatch>())??;
    let mut reader = data.into_reader()?;
    let encoder = RecordEncoder::new(reader.schema(), key_column).map_err(|error| from_conversion(&error))?;
    let mut encoder = encoder.max_record_bytes(bolide::limits::MAX_VALUE_BYTES);
    let mut rows = 0;
    let mut writes = WriteBatch::new();
    loop {
        // The stream may be a generator of Python, and handlers of signals run after a batch: without a use of the database.
        let next = py.detach(|| catch_unwind(AssertUnwindSafe(|| reader.next())));
        let next = next.map_err(|_| unread_slice())?.transpose();
        let next = next.map_err(|error| invalid_input(format!("the Arrow stream failed: {error}")))?;
        let (used_db, used) = (collection.session().db()?, collection.read()?);
        let (db, collection): (&Db, &Collection) = (&used_db, &used);
        let Some(batch) = next else {
            if !writes.is_empty() {
                detached(py, || db.write_with(writes, options))?;
            }
            return Ok(rows);
        };
        let written: bolide::Result<()> = detached(py, || {
            let write = |key: EncodedKey<'_>, record: &[u8]| -> Result<(), ImportError> {
                put(&mut writes, collection, key, record)?;
                if writes.len_bytes() >= BATCH_BYTES {
                    db.write_with(std::mem::take(&mut writes), options).map_err(ImportError::Engine)?;
                }
                Ok(())
            };
            Ok(encoder.encode(&batch, write).map_err(bolide::Error::from))
        })?;
        written.map_err(|error| crate::errors::from_engine(&error))?;
        rows += batch.num_rows() as u64;
        drop((used, used_db));
        py.check_signals()?;
    }
}

fn put(
    writes: &mut WriteBatch,
    collection: &Collection,
    key: EncodedKey<'_>,
    record: &[u8],
) -> Result<(), ImportError> {
    let encoded;
    let key = match (key, collection.key_format()) {
        (EncodedKey::Bytes(bytes), _) => bytes,
        (EncodedKey::Text(text), KeyFormat::Bytes) => text.as_bytes(),
        (EncodedKey::Text(text), _) => {
            encoded = key::encode_string(text);
            &encoded[..]
        }
        (EncodedKey::Int(value), KeyFormat::Typed) => {
            encoded = key::encode_int(value);
            &encoded[..]
        }
        (EncodedKey::Uint(value), KeyFormat::Typed) => {
            encoded = key::encode_uint(value);
            &encoded[..]
        }
        _ => {
            return Err(ImportError::Engine(bolide::Error::invalid_input(
                "the keys of this collection are bytes: convert the column of the keys to text or binary",
            )));
        }
    };
    writes.put(collection, key, record).map_err(ImportError::Engine)
}
