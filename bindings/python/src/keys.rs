//! Primary keys as objects of Python.

use bolide::key::{self, KeyFormat, PrimaryKey};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyInt, PyString};

use crate::errors;

/// The text of a string. Surrogates are refused: they have no form in UTF-8.
pub(crate) fn text_of<'a>(text: &'a Bound<'_, PyString>) -> PyResult<&'a str> {
    text.to_str().map_err(|_| errors::invalid_input("the text has surrogates, which have no form in UTF-8"))
}

/// Calls `then` with the bytes of a key.
///
/// Collections of typed keys take `str` and `int`, and bytes that are neither; others take `bytes`, and `str` as UTF-8.
#[inline]
pub(crate) fn with_key<T>(
    key: &Bound<'_, PyAny>,
    format: KeyFormat,
    then: impl FnOnce(&[u8]) -> PyResult<T>,
) -> PyResult<T> {
    if let Ok(bytes) = key.cast::<PyBytes>() {
        let bytes = bytes.as_bytes();
        check_bytes(bytes, format).map_err(|error| errors::from_engine(&error))?;
        return then(bytes);
    }
    if let Ok(text) = key.cast::<PyString>() {
        let text = text_of(text)?;
        return match format {
            KeyFormat::Typed => then(&key::encode_string(text)),
            _ => then(text.as_bytes()),
        };
    }
    if format == KeyFormat::Typed && key.is_instance_of::<PyInt>() && !key.is_instance_of::<PyBool>() {
        return then(&encode_int(key)?);
    }
    let expected = if format == KeyFormat::Typed { "str, int or bytes" } else { "bytes or str" };
    Err(PyTypeError::new_err(format!(
        "a key of this collection is {expected}, not {}",
        key.get_type().name()?
    )))
}

/// Refuses the bytes of a typed key: such a key would be read as `str` or `int`, and replace the record under it.
pub(crate) fn check_bytes(bytes: &[u8], format: KeyFormat) -> bolide::Result<()> {
    let is_control = bytes.first().is_none_or(|first| *first < b' ');
    if format != KeyFormat::Typed || !is_control {
        return Ok(());
    }
    let (of, value) = match key::decode(bytes) {
        PrimaryKey::Bytes(_) => return Ok(()),
        PrimaryKey::String(text) => ("str", format!("{text:?}")),
        other => ("int", other.to_string()),
    };
    Err(bolide::Error::invalid_input(format!(
        "the bytes \"{}\" are the encoded form of the {of} {value}: pass the {of} as the key, or create the collection with \
         keys=\"bytes\"",
        bytes.escape_ascii()
    )))
}

fn encode_int(key: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(value) = key.extract::<i64>() {
        return Ok(key::encode_int(value));
    }
    key.extract::<u64>()
        .map(key::encode_uint)
        .map_err(|_| errors::invalid_input(format!("the key {key} is no integer of 64 bits")))
}

/// The bytes of a key.
pub(crate) fn key_bytes(key: &Bound<'_, PyAny>, format: KeyFormat) -> PyResult<Vec<u8>> {
    with_key(key, format, |bytes| Ok(bytes.to_vec()))
}

/// A key of a collection of this format: of typed keys `str` or `int`, otherwise `bytes`.
pub(crate) fn key_object<'py>(
    py: Python<'py>,
    bytes: &[u8],
    format: KeyFormat,
) -> PyResult<Bound<'py, PyAny>> {
    if format != KeyFormat::Typed {
        return Ok(PyBytes::new(py, bytes).into_any());
    }
    Ok(match key::decode(bytes) {
        PrimaryKey::Int(value) => value.into_pyobject(py)?.into_any(),
        PrimaryKey::Uint(value) => value.into_pyobject(py)?.into_any(),
        PrimaryKey::String(text) => PyString::new(py, &text).into_any(),
        PrimaryKey::Bytes(bytes) => PyBytes::new(py, &bytes).into_any(),
    })
}
