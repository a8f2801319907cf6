//! Errors of the operating system with the failed operation and its path.

use std::io;
use std::path::Path;

use bolide_base::{Error, ErrorKind};

/// The error of a failed operation on one path.
pub(crate) fn describe(operation: &str, path: &Path, error: io::Error) -> Error {
    with_kind(format!("{operation} {}", path.display()), error)
}

/// The error of a failed operation on two paths.
pub(crate) fn describe_two(operation: &str, from: &Path, to: &Path, error: io::Error) -> Error {
    with_kind(format!("{operation} {} to {}", from.display(), to.display()), error)
}

fn with_kind(context: String, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::AlreadyExists => Error::new(ErrorKind::Conflict, format!("{context}: {error}")),
        _ => Error::io(context, error),
    }
}
