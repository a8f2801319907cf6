//! Arrow data in capsules of Python: the PyCapsule interface of Arrow.
//!
//! ```text
//! __arrow_c_stream__(requested_schema)   capsule "arrow_array_stream"
//! __arrow_c_schema__()                   capsule "arrow_schema"
//! __arrow_c_array__(requested_schema)    capsules "arrow_schema", "arrow_array"
//! ```
//!
//! A consumer moves the structure out of its capsule, and leaves a released one there, so each capsule is read once. The
//! capsule drops what was not moved.

#![allow(unsafe_code, reason = "the pointers of capsules of other libraries")]

use std::ffi::CStr;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{Array, RecordBatch, RecordBatchIterator, RecordBatchReader, StructArray};
use arrow_schema::{DataType, Schema};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::arrow_errors::from_stream;
use crate::errors::invalid_input;

const STREAM: &CStr = c"arrow_array_stream";
const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";

/// A stream of batches.
pub(crate) type BoxedReader = Box<dyn RecordBatchReader + Send>;

/// The capsule of a stream.
pub(crate) fn stream_capsule(py: Python<'_>, reader: BoxedReader) -> PyResult<Bound<'_, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(reader), STREAM)
}

/// The capsule of a schema.
pub(crate) fn schema_capsule<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema).map_err(|error| from_stream(&error))?;
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

/// The batches of an object with `__arrow_c_stream__` or `__arrow_c_array__`.
pub(crate) fn reader_of(data: &Bound<'_, PyAny>) -> PyResult<BoxedReader> {
    if data.hasattr("__arrow_c_stream__")? {
        let capsule = data.call_method0("__arrow_c_stream__")?;
        let stream = capsule.cast::<PyCapsule>()?.pointer_checked(Some(STREAM))?.cast();
        // SAFETY: by the interface, a capsule of this name points to such a structure for as long as it exists. It is moved
        // out, and a released one is left.
        let reader = unsafe { ArrowArrayStreamReader::from_raw(stream.as_ptr()) };
        return Ok(Box::new(reader.map_err(|error| from_stream(&error))?));
    }
    if data.hasattr("__arrow_c_array__")? {
        let batch = batch_of(&data.call_method0("__arrow_c_array__")?)?;
        let schema = batch.schema();
        return Ok(Box::new(RecordBatchIterator::new([Ok(batch)], schema)));
    }
    Err(PyTypeError::new_err(format!(
        "{} has neither __arrow_c_stream__ nor __arrow_c_array__: pass an object of pyarrow, polars, pandas or duckdb",
        data.get_type().name()?
    )))
}

/// The batch of the two capsules of an array.
fn batch_of(capsules: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
    let capsules = capsules.cast::<PyTuple>()?;
    let (schema, array) = (capsules.get_item(0)?, capsules.get_item(1)?);
    let schema = schema.cast::<PyCapsule>()?.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    let array = array.cast::<PyCapsule>()?.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();
    // SAFETY: by the interface, capsules of these names point to such structures for as long as they exist, which is longer
    // than this function. The array is moved out, and a released one is left.
    let (schema, array) = unsafe { (schema.as_ref(), FFI_ArrowArray::from_raw(array.as_ptr())) };
    if array.is_released() {
        return Err(invalid_input("the Arrow array was read before: a capsule is read once"));
    }
    let kind = DataType::try_from(schema).map_err(|error| from_stream(&error))?;
    if !matches!(kind, DataType::Struct(_)) {
        return Err(invalid_input(format!("an array of type {kind} is no batch: pass a batch or a table")));
    }
    // SAFETY: by the interface, the schema is that of the array.
    let data = unsafe { from_ffi(array, schema) }.map_err(|error| from_stream(&error))?;
    let rows = StructArray::from(data);
    if rows.null_count() > 0 {
        return Err(invalid_input(
            "a row of the array is NULL as a whole: a batch has NULL in its columns only",
        ));
    }
    Ok(RecordBatch::from(rows))
}
