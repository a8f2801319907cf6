//! Arrow batches as records.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::RecordBatch;
use bolide::key::{self, KeyFormat};
use bolide::{Collection, Db, WriteBatch, WriteOptions};
use bolide_arrow::{ConversionError, EncodedKey, RecordEncoder};
use pyo3::prelude::*;

use crate::arrow_errors::from_stream;
use crate::capsules::reader_of;
use crate::errors::{detached, from_conversion, invalid_input};
use crate::keys::check_bytes;
use crate::session::Shared;

/// Bytes of a batch of writes, about.
const BATCH_BYTES: usize = 4 << 20;
/// Bytes of the arrays that are written between two tests for signals, about.
const PART_BYTES: usize = 4 << 20;
/// Most rows between two tests for signals.
const MAX_PART_ROWS: usize = 16_384;

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
    let mut reader = read_arrow(|| reader_of(data))??;
    let encoder = RecordEncoder::new(reader.schema(), key_column).map_err(|error| from_conversion(&error))?;
    let mut encoder = encoder.max_record_bytes(bolide::limits::MAX_VALUE_BYTES);
    let mut rows = 0;
    let mut writes = WriteBatch::new();
    loop {
        // The stream may be a generator of Python, and handlers of signals run after a part: without a use of the database.
        let next = py.detach(|| catch_unwind(AssertUnwindSafe(|| reader.next())));
        let next = next.map_err(|_| unread_slice())?.transpose();
        let Some(batch) = next.map_err(|error| from_stream(&error))? else { break };
        for part in parts(&batch) {
            write_part(py, collection, &mut encoder, &part, &mut writes, options)?;
            py.check_signals()?;
        }
        rows += batch.num_rows() as u64;
    }
    if !writes.is_empty() {
        let used_db = collection.session().db()?;
        let db: &Db = &used_db;
        detached(py, || db.write_with(writes, options))?;
    }
    Ok(rows)
}

/// Consecutive rows of `batch`, of at least one row and about [`PART_BYTES`] bytes.
fn parts(batch: &RecordBatch) -> impl Iterator<Item = RecordBatch> + '_ {
    let (rows, bytes) = (batch.num_rows(), batch.get_array_memory_size());
    let rows_of_part =
        (rows as u128 * PART_BYTES as u128 / (bytes as u128).max(1)).clamp(1, MAX_PART_ROWS as u128);
    let rows_of_part = rows_of_part as usize;
    (0..rows).step_by(rows_of_part).map(move |start| batch.slice(start, rows_of_part.min(rows - start)))
}

/// Adds the rows of a part to `writes`, and writes those that are full.
fn write_part(
    py: Python<'_>,
    collection: &Shared<Collection>,
    encoder: &mut RecordEncoder,
    part: &RecordBatch,
    writes: &mut WriteBatch,
    options: &WriteOptions,
) -> PyResult<()> {
    let (used_db, used) = (collection.session().db()?, collection.read()?);
    let (db, collection): (&Db, &Collection) = (&used_db, &used);
    detached(py, || {
        let write = |key: EncodedKey<'_>, record: &[u8]| -> Result<(), ImportError> {
            put(writes, collection, key, record)?;
            if writes.len_bytes() >= BATCH_BYTES {
                db.write_with(std::mem::take(writes), options).map_err(ImportError::Engine)?;
            }
            Ok(())
        };
        encoder.encode(part, write).map_err(bolide::Error::from)
    })
}

fn put(
    writes: &mut WriteBatch,
    collection: &Collection,
    key: EncodedKey<'_>,
    record: &[u8],
) -> Result<(), ImportError> {
    let encoded;
    let key = match (key, collection.key_format()) {
        (EncodedKey::Bytes(bytes), format) => {
            check_bytes(bytes, format).map_err(ImportError::Engine)?;
            bytes
        }
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
