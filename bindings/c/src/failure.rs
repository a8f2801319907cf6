//! What an error object has.

use std::ffi::{CStr, CString};

use bolide::{Error, ErrorKind};
use bolide_arrow::ConversionError;

use crate::code::*;

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

    pub(crate) fn message(&self) -> &CStr {
        &self.message
    }

    pub(crate) fn advice(&self) -> &CStr {
        &self.advice
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
