//! Errors of the engine as exceptions, and work without the lock of the interpreter.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bolide::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// The module with the classes.
static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyType>> {
    let module = CLASSES.get_or_try_init(py, || py.import("bolide._errors").map(Bound::unbind))?;
    Ok(module.bind(py).getattr(name)?.cast_into::<PyType>()?)
}

fn exception(py: Python<'_>, name: &str, message: &str, advice: &str) -> PyResult<PyErr> {
    let value = class(py, name)?.call1((message,))?;
    value.setattr("advice", advice)?;
    Ok(PyErr::from_value(value))
}

fn raise(name: &str, message: &str, advice: &str) -> PyErr {
    Python::attach(|py| exception(py, name, message, advice).unwrap_or_else(|error| error))
}

/// The kinds of errors with the names of their classes.
const CLASS_NAMES: [(ErrorKind, &str); 15] = [
    (ErrorKind::InvalidInput, "InvalidInput"),
    (ErrorKind::LimitExceeded, "LimitExceeded"),
    (ErrorKind::NotFound, "NotFound"),
    (ErrorKind::Conflict, "Conflict"),
    (ErrorKind::Locked, "Locked"),
    (ErrorKind::Corruption, "Corruption"),
    (ErrorKind::Unsupported, "Unsupported"),
    (ErrorKind::NoSpace, "NoSpace"),
    (ErrorKind::Io, "IoError"),
    (ErrorKind::ReadOnly, "ReadOnly"),
    (ErrorKind::Poisoned, "Poisoned"),
    (ErrorKind::Expired, "Expired"),
    (ErrorKind::Closed, "Closed"),
    (ErrorKind::Interrupted, "Interrupted"),
    (ErrorKind::Internal, "InternalError"),
];

pub(crate) fn class_name(kind: ErrorKind) -> &'static str {
    CLASS_NAMES.iter().find(|(named, _)| *named == kind).map_or("Error", |(_, name)| *name)
}

pub(crate) fn kind_of_class(name: &str) -> Option<ErrorKind> {
    CLASS_NAMES.iter().find(|(_, class)| *class == name).map(|(kind, _)| *kind)
}

/// The exception of a kind of errors.
pub(crate) fn raise_kind(kind: ErrorKind, message: &str) -> PyErr {
    raise(class_name(kind), message, kind.advice())
}

/// The exception of an error: its message, and its advice as an attribute.
pub(crate) fn from_engine(error: &Error) -> PyErr {
    raise_kind(error.kind(), error.message())
}

/// An [`ErrorKind::InvalidInput`] of the binding.
pub(crate) fn invalid_input(message: impl AsRef<str>) -> PyErr {
    raise_kind(ErrorKind::InvalidInput, message.as_ref())
}

/// A missing key or collection.
pub(crate) fn not_found(message: &str) -> PyErr {
    raise_kind(ErrorKind::NotFound, message)
}

pub(crate) fn closed_error() -> PyErr {
    raise_kind(ErrorKind::Closed, "the database or this object of it is closed")
}

/// The end of an object within a call that uses it, in a callback or a signal handler.
pub(crate) fn inside_call(message: &str) -> PyErr {
    raise(
        "Conflict",
        message,
        "call it after that call has returned, not in its function nor in a signal handler",
    )
}

const FORK_ADVICE: &str = "start processes with the method `spawn`, or fork while no database is open";

pub(crate) fn fork_error() -> PyErr {
    raise(
        "ForkError",
        "this handle belongs to the parent process, whose threads do not exist here",
        FORK_ADVICE,
    )
}

pub(crate) fn forked_library() -> PyErr {
    raise("ForkError", "the parent process had a database open at the fork of this one", FORK_ADVICE)
}

/// The error of a panic that was caught.
pub(crate) fn from_panic(panic: &(dyn std::any::Any + Send)) -> PyErr {
    from_engine(&Error::panicked("the operation", panic))
}

/// Runs `work` without the lock of the interpreter. A panic becomes an `InternalError`.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> bolide::Result<T> + Send,
) -> PyResult<T> {
    match py.detach(|| catch_unwind(AssertUnwindSafe(work))) {
        Ok(result) => result.map_err(|error| from_engine(&error)),
        Err(panic) => Err(from_panic(&*panic)),
    }
}

/// Runs short `work`, which neither reads a file nor waits, with the lock of the interpreter.
#[inline]
pub(crate) fn attached<T>(work: impl FnOnce() -> bolide::Result<T>) -> PyResult<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|error| from_engine(&error)),
        Err(panic) => Err(from_panic(&*panic)),
    }
}

/// An exception as an error of the engine, for callbacks that the engine calls.
pub(crate) fn into_engine(error: &PyErr) -> Error {
    Error::invalid_input(format!("the function failed: {error}"))
}

/// An error of a conversion.
pub(crate) fn from_conversion(error: &bolide_arrow::ConversionError) -> PyErr {
    let kind = if error.is_limit() { ErrorKind::LimitExceeded } else { ErrorKind::InvalidInput };
    raise_kind(kind, &error.to_string())
}
