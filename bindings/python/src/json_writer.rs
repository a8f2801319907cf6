//! Objects of Python as JSON text, in one walk.

use std::io::Write;

use bolide::RecordKind;
use bolide::limits::MAX_JSON_DEPTH;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple,
};

use crate::errors;

/// Why an object has no form in JSON, and where it is.
struct Refusal {
    /// From the innermost part outwards.
    path: Vec<String>,
    message: String,
    is_type: bool,
}

impl Refusal {
    fn of_type(object: &Bound<'_, PyAny>) -> Self {
        let name = object.get_type().name().map_or_else(|_| "this type".to_owned(), |name| name.to_string());
        let message =
            format!("{name} has no form in JSON: use dict, list, tuple, str, int, float, bool or None");
        Self { path: Vec::new(), message, is_type: true }
    }

    fn of_value(message: impl Into<String>) -> Self {
        Self { path: Vec::new(), message: message.into(), is_type: false }
    }

    fn within(mut self, part: impl FnOnce() -> String) -> Self {
        self.path.push(part());
        self
    }

    fn into_exception(self) -> PyErr {
        let place: String = self.path.iter().rev().map(String::as_str).collect();
        let message = format!("record{place}: {}", self.message);
        if self.is_type { PyTypeError::new_err(message) } else { errors::invalid_input(message) }
    }
}

/// Calls `then` with the bytes of a record: a mapping, or bytes or text as they are. The engine validates them.
#[inline]
pub(crate) fn with_record<T>(
    record: &Bound<'_, PyAny>,
    kind: RecordKind,
    then: impl FnOnce(&[u8]) -> PyResult<T>,
) -> PyResult<T> {
    if let Ok(bytes) = record.cast::<PyBytes>() {
        return then(bytes.as_bytes());
    }
    if let Ok(text) = record.cast::<PyString>() {
        return then(crate::keys::text_of(text)?.as_bytes());
    }
    if let Ok(bytes) = record.cast::<PyByteArray>() {
        return then(&bytes.to_vec());
    }
    let dict = if kind == RecordKind::Json { dict_of(record)? } else { None };
    match dict {
        Some(dict) => {
            let mut text = Vec::with_capacity(256);
            write_dict(&dict, &mut text, 1).map_err(Refusal::into_exception)?;
            then(&text)
        }
        None => {
            let expected =
                if kind == RecordKind::Json { "a dict, or bytes or str of JSON" } else { "bytes or str" };
            Err(PyTypeError::new_err(format!(
                "a record of this collection is {expected}, not {}",
                record.get_type().name()?
            )))
        }
    }
}

/// A mapping as a `dict`; `None` for any other object.
fn dict_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyDict>>> {
    if let Ok(dict) = object.cast::<PyDict>() {
        return Ok(Some(dict.clone()));
    }
    if object.cast::<PyMapping>().is_err() {
        return Ok(None);
    }
    let dict = PyDict::new(object.py());
    dict.call_method1("update", (object,))?;
    Ok(Some(dict))
}

fn write_dict(dict: &Bound<'_, PyDict>, out: &mut Vec<u8>, depth: usize) -> Result<(), Refusal> {
    check_depth(depth)?;
    out.push(b'{');
    let mut is_first = true;
    for (name, value) in dict.iter() {
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        let Ok(name) = name.cast::<PyString>() else {
            let kind =
                name.get_type().name().map_or_else(|_| "another type".to_owned(), |name| name.to_string());
            let mut refusal = Refusal::of_value(format!("the name {name} of a field is {kind}, not str"));
            refusal.is_type = true;
            return Err(refusal);
        };
        write_text(name, out)?;
        out.push(b':');
        write_value(&value, out, depth).map_err(|refusal| refusal.within(|| format!("[{name:?}]")))?;
    }
    out.push(b'}');
    Ok(())
}

fn check_depth(depth: usize) -> Result<(), Refusal> {
    if depth > MAX_JSON_DEPTH {
        return Err(Refusal::of_value(format!("more than {MAX_JSON_DEPTH} levels")));
    }
    Ok(())
}

fn write_value(value: &Bound<'_, PyAny>, out: &mut Vec<u8>, depth: usize) -> Result<(), Refusal> {
    if let Ok(text) = value.cast::<PyString>() {
        return write_text(text, out);
    }
    // Before int, of which bool is a subclass.
    if let Ok(truth) = value.cast::<PyBool>() {
        out.extend_from_slice(if truth.is_true() { b"true" } else { b"false" });
        return Ok(());
    }
    if value.is_instance_of::<PyInt>() {
        return write_int(value, out);
    }
    if let Ok(float) = value.cast::<PyFloat>() {
        let float = float.value();
        if !float.is_finite() {
            return Err(Refusal::of_value(format!(
                "the number {value} is not finite: JSON has no form of it"
            )));
        }
        print(out, format_args!("{float:?}"));
        return Ok(());
    }
    if value.is_none() {
        out.extend_from_slice(b"null");
        return Ok(());
    }
    if let Ok(dict) = value.cast::<PyDict>() {
        return write_dict(dict, out, depth + 1);
    }
    if let Ok(list) = value.cast::<PyList>() {
        return write_elements(list.iter(), out, depth + 1);
    }
    if let Ok(tuple) = value.cast::<PyTuple>() {
        return write_elements(tuple.iter(), out, depth + 1);
    }
    match dict_of(value) {
        Ok(Some(dict)) => write_dict(&dict, out, depth + 1),
        Ok(None) => Err(Refusal::of_type(value)),
        Err(error) => Err(Refusal::of_value(format!("the mapping failed: {error}"))),
    }
}

fn write_elements<'py>(
    elements: impl Iterator<Item = Bound<'py, PyAny>>,
    out: &mut Vec<u8>,
    depth: usize,
) -> Result<(), Refusal> {
    check_depth(depth)?;
    out.push(b'[');
    for (at, element) in elements.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_value(&element, out, depth).map_err(|refusal| refusal.within(|| format!("[{at}]")))?;
    }
    out.push(b']');
    Ok(())
}

fn write_int(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> Result<(), Refusal> {
    if let Ok(int) = value.extract::<i64>() {
        print(out, format_args!("{int}"));
    } else if let Ok(int) = value.extract::<u64>() {
        print(out, format_args!("{int}"));
    } else {
        return Err(Refusal::of_value("the integer has more than 64 bits"));
    }
    Ok(())
}

fn print(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a vector cannot fail.
    let _ = out.write_fmt(text);
}

fn write_text(text: &Bound<'_, PyString>, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let Ok(text) = text.to_str() else {
        return Err(Refusal::of_value("the text has surrogates, which have no form in UTF-8"));
    };
    bolide_arrow::write_json_string(text, out);
    Ok(())
}
