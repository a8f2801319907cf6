//! Errors that pass through an Arrow stream, which has a text and an error number for them.
//!
//! ```text
//! text   bolide.CLASS: message          the class of the exception, as in `bolide`
//! code   EIO, ENOMEM, EINVAL            Io; NoSpace; any other
//! ```
//!
//! A reader of Bolide raises the exception of that class again; `bolide.error_of` returns it for an exception of any
//! other reader whose text contains it.

use arrow_schema::ArrowError;
use bolide::{Error, ErrorKind};
use pyo3::prelude::*;

use crate::errors::{class_name, invalid_input, kind_of_class, raise_kind};

/// What precedes the name of the class.
const MARK: &str = "bolide.";

/// An error of the engine as one of a stream.
pub(crate) fn to_stream(error: &Error) -> ArrowError {
    let text = format!("{MARK}{}: {}", class_name(error.kind()), error.message());
    match error.kind() {
        ErrorKind::Io => ArrowError::IoError(text.clone(), std::io::Error::other(text)),
        ErrorKind::NoSpace => ArrowError::MemoryError(text),
        _ => ArrowError::ExternalError(text.into()),
    }
}

/// The exception of an error of a stream: that of its class, if it came from Bolide.
pub(crate) fn from_stream(error: &ArrowError) -> PyErr {
    let text = error.to_string();
    match parse(&text) {
        Some((kind, message)) => raise_kind(kind, message),
        None => invalid_input(format!("the Arrow stream failed: {text}")),
    }
}

/// The kind and the message in the text of an error, which may have other text before and lines after.
pub(crate) fn parse(text: &str) -> Option<(ErrorKind, &str)> {
    let mut rest = text;
    while let Some(at) = rest.find(MARK) {
        rest = &rest[at + MARK.len()..];
        let Some((class, message)) = rest.split_once(": ") else { continue };
        if let Some(kind) = kind_of_class(class) {
            return Some((kind, message.trim_end()));
        }
    }
    None
}

/// The error of Bolide because of which reading an Arrow stream failed, as an exception of its class; ``None`` if the cause
/// is another one. Consumers of a stream raise exceptions of their own, which contain the text alone.
///
/// >>> import pyarrow
/// >>> table = pyarrow.RecordBatchReader.from_stream(orders.arrow(columns={"total": "float64"}))
/// >>> db.close()
/// >>> try:
/// ...     table.read_all()
/// ... except Exception as error:
/// ...     print(type(bolide.error_of(error) or error).__name__)
/// Closed
#[pyfunction]
pub(crate) fn error_of<'py>(exception: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let text = exception.str()?;
    let Some((kind, message)) = parse(crate::keys::text_of(&text)?) else { return Ok(None) };
    Ok(Some(raise_kind(kind, message).into_value(exception.py()).into_bound(exception.py()).into_any()))
}
