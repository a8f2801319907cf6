//! Codes and error objects.

use std::ffi::{CString, c_char};

use bolide::{Error, ErrorKind};
use bolide_arrow::ConversionError;

use crate::handle::{self, object};

/// The result of a function: `BOLIDE_OK`, `BOLIDE_ABSENT`, or the kind of an error, by what the caller can do about it.
pub type bolide_code = i32;

/// The call succeeded.
pub const BOLIDE_OK: bolide_code = 0;
/// The call succeeded and there is nothing: no record under the key, no further record or answer. There is no error object.
pub const BOLIDE_ABSENT: bolide_code = -1;
/// The input is invalid: fix it and call again.
pub const BOLIDE_INVALID_INPUT: bolide_code = 1;
/// The input is over a documented limit: make it smaller.
pub const BOLIDE_LIMIT_EXCEEDED: bolide_code = 2;
/// The named collection, index or file does not exist.
pub const BOLIDE_NOT_FOUND: bolide_code = 3;
/// The named object exists already, another operation uses it, or another commit changed what this one depends on: choose another
/// name, wait, or run the transaction again.
pub const BOLIDE_CONFLICT: bolide_code = 4;
/// Another process, or another handle in this process, has the database open.
pub const BOLIDE_LOCKED: bolide_code = 5;
/// Bytes on disk are damaged: restore them from a copy.
pub const BOLIDE_CORRUPTION: bolide_code = 6;
/// The file was written by a newer version of Bolide, or is none of Bolide.
pub const BOLIDE_UNSUPPORTED: bolide_code = 7;
/// The disk, the quota or the memory budget is exhausted, and nothing was written: free some, then retry.
pub const BOLIDE_NO_SPACE: bolide_code = 8;
/// The operating system refused an operation.
pub const BOLIDE_IO: bolide_code = 9;
/// The handle or the medium is read-only.
pub const BOLIDE_READ_ONLY: bolide_code = 10;
/// An earlier write failed, so that this handle refuses further ones: open the database again.
pub const BOLIDE_POISONED: bolide_code = 11;
/// A token or a snapshot is no longer available: start the query again.
pub const BOLIDE_EXPIRED: bolide_code = 12;
/// The database is closed, or the transaction has ended.
pub const BOLIDE_CLOSED: bolide_code = 13;
/// An invariant of Bolide itself is broken, or a function panicked: report a bug.
pub const BOLIDE_INTERNAL: bolide_code = 14;
/// The object belongs to the parent process, whose threads do not exist in this one.
pub const BOLIDE_FORKED: bolide_code = 15;

/// An error: a code, a message and an advice.
///
/// Functions write it to their last parameter, which may be NULL. They write NULL there if they succeed. The caller frees it by
/// `bolide_error_free`.
pub struct bolide_error {
    _opaque: [u8; 0],
}

object!(bolide_error, Failure, "the error", of_process = false);

/// The content of an error object.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: bolide_code,
    message: CString,
    advice: CString,
}

/// A text that ends with NUL. Other NULs are replaced.
fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}

impl Failure {
    fn new(code: bolide_code, message: &str, advice: &str) -> Self {
        Self { code, message: c_text(message), advice: c_text(advice) }
    }

    pub(crate) fn invalid(message: impl AsRef<str>) -> Self {
        Self::new(BOLIDE_INVALID_INPUT, message.as_ref(), ErrorKind::InvalidInput.advice())
    }

    pub(crate) fn conflict(message: impl AsRef<str>, advice: &str) -> Self {
        Self::new(BOLIDE_CONFLICT, message.as_ref(), advice)
    }

    pub(crate) fn ended_transaction() -> Self {
        Self::new(BOLIDE_CLOSED, "the transaction has ended: it was committed", "begin another transaction")
    }

    pub(crate) fn forked(what: &str) -> Self {
        Self::new(
            BOLIDE_FORKED,
            &format!("{what} belongs to the parent process, whose threads do not exist here"),
            "open the database in this process after the parent has closed it",
        )
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            ErrorKind::InvalidInput => BOLIDE_INVALID_INPUT,
            ErrorKind::LimitExceeded => BOLIDE_LIMIT_EXCEEDED,
            ErrorKind::NotFound => BOLIDE_NOT_FOUND,
            ErrorKind::Conflict => BOLIDE_CONFLICT,
            ErrorKind::Locked => BOLIDE_LOCKED,
            ErrorKind::Corruption => BOLIDE_CORRUPTION,
            ErrorKind::Unsupported => BOLIDE_UNSUPPORTED,
            ErrorKind::NoSpace => BOLIDE_NO_SPACE,
            ErrorKind::Io => BOLIDE_IO,
            ErrorKind::ReadOnly => BOLIDE_READ_ONLY,
            ErrorKind::Poisoned => BOLIDE_POISONED,
            ErrorKind::Expired => BOLIDE_EXPIRED,
            ErrorKind::Closed => BOLIDE_CLOSED,
            _ => BOLIDE_INTERNAL,
        };
        Self::new(code, error.message(), error.advice())
    }
}

impl From<ConversionError> for Failure {
    fn from(error: ConversionError) -> Self {
        let kind = if error.is_limit() { ErrorKind::LimitExceeded } else { ErrorKind::InvalidInput };
        Error::new(kind, error.to_string()).into()
    }
}

/// The code of an error; `BOLIDE_OK` for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_error_code(error: *const bolide_error) -> bolide_code {
    if error.is_null() {
        return BOLIDE_OK;
    }
    handle::borrow(error).map_or_else(|failure| failure.code, |error| error.code)
}

/// The message: what failed and where. UTF-8 that ends with NUL; valid until the error is freed. Empty for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_error_message(error: *const bolide_error) -> *const c_char {
    handle::borrow(error).map_or(c"".as_ptr(), |error| error.message.as_ptr())
}

/// What the caller can do. UTF-8 that ends with NUL; valid until the error is freed. Empty for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_error_advice(error: *const bolide_error) -> *const c_char {
    handle::borrow(error).map_or(c"".as_ptr(), |error| error.advice.as_ptr())
}

/// Frees an error. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_error_free(error: *mut bolide_error) {
    handle::free(error);
}
