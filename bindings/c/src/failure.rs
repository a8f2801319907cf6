//! What an error object has.

use std::ffi::{CStr, CString};

use bolide::{Error, ErrorKind};
use bolide_arrow::ConversionError;

use crate::code::*;

/// The codes of the kinds of the engine's errors.
const CODES: [(ErrorKind, bolide_code); 15] = [
    (ErrorKind::InvalidInput, BOLIDE_INVALID_INPUT),
    (ErrorKind::LimitExceeded, BOLIDE_LIMIT_EXCEEDED),
    (ErrorKind::NotFound, BOLIDE_NOT_FOUND),
    (ErrorKind::Conflict, BOLIDE_CONFLICT),
    (ErrorKind::Locked, BOLIDE_LOCKED),
    (ErrorKind::Corruption, BOLIDE_CORRUPTION),
    (ErrorKind::Unsupported, BOLIDE_UNSUPPORTED),
    (ErrorKind::NoSpace, BOLIDE_NO_SPACE),
    (ErrorKind::Io, BOLIDE_IO),
    (ErrorKind::ReadOnly, BOLIDE_READ_ONLY),
    (ErrorKind::Poisoned, BOLIDE_POISONED),
    (ErrorKind::Expired, BOLIDE_EXPIRED),
    (ErrorKind::Closed, BOLIDE_CLOSED),
    (ErrorKind::Interrupted, BOLIDE_INTERRUPTED),
    (ErrorKind::Internal, BOLIDE_INTERNAL),
];

/// What a child process can do.
const CHILD_ADVICE: &str = "call exec in the child, or fork while no database is open";

/// The content of an error object.
#[derive(Debug, Clone)]
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

    pub(crate) fn in_use(message: impl AsRef<str>, advice: &str) -> Self {
        Self::new(BOLIDE_IN_USE, message.as_ref(), advice)
    }

    pub(crate) fn ended_transaction() -> Self {
        Self::new(BOLIDE_CLOSED, "the transaction has ended: it was committed", "begin another transaction")
    }

    pub(crate) fn forked(what: &str) -> Self {
        Self::new(
            BOLIDE_FORKED,
            &format!("{what} belongs to the parent process, whose threads do not exist here"),
            CHILD_ADVICE,
        )
    }

    pub(crate) fn forked_library() -> Self {
        Self::new(
            BOLIDE_FORKED,
            "the parent process had a database open at the fork of this one",
            CHILD_ADVICE,
        )
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code =
            CODES.iter().find(|(kind, _)| *kind == error.kind()).map_or(BOLIDE_INTERNAL, |(_, code)| *code);
        Self::new(code, error.message(), error.advice())
    }
}

impl From<ConversionError> for Failure {
    fn from(error: ConversionError) -> Self {
        let kind = if error.is_limit() { ErrorKind::LimitExceeded } else { ErrorKind::InvalidInput };
        Error::new(kind, error.to_string()).into()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_kind_of_error_has_a_code_of_its_own() {
        let source = include_str!("../../../crates/base/src/error.rs");
        let body = source.split_once("pub enum ErrorKind {").unwrap().1.split_once("\n}").unwrap().0;
        let kinds: BTreeSet<String> = body
            .lines()
            .map(|line| line.trim().trim_end_matches(','))
            .filter(|line| !line.is_empty() && line.chars().all(char::is_alphanumeric))
            .map(str::to_owned)
            .collect();
        let mapped: BTreeSet<String> = CODES.iter().map(|(kind, _)| format!("{kind:?}")).collect();
        assert_eq!(kinds, mapped);
        let codes: BTreeSet<_> = CODES.iter().map(|(_, code)| code).collect();
        assert_eq!(codes.len(), CODES.len());
        for (kind, code) in CODES {
            assert_eq!(Failure::from(Error::new(kind, "text")).code, code);
        }
    }
}
