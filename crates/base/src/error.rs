//! The error type of the whole store.
//!
//! An [`Error`] has a [`kind`](Error::kind), which determines what the caller can do, a message with the cause and the
//! location, and, for an error of the operating system, that error as its [`source`](std::error::Error::source).

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;

/// The result of every fallible operation of Bolide.
pub type Result<T> = std::result::Result<T, Error>;

/// The kind of an [`Error`], by what the caller can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input is invalid (a malformed predicate, broken JSON, a wrong type): fix it and call again.
    InvalidInput,
    /// The input is over a documented limit: make it smaller.
    LimitExceeded,
    /// The named collection, index, file or key does not exist.
    NotFound,
    /// The named object exists already, a concurrent operation uses it, or a concurrent commit changed what this one depends
    /// on: choose another name, wait, or run the transaction again.
    Conflict,
    /// Another process, or another handle in this process, has the database open.
    Locked,
    /// Bytes on disk are damaged: restore from a copy, run `bolide check` to see the extent, or copy the intact data with
    /// `bolide repair`.
    Corruption,
    /// The file was written by a newer version of Bolide, or is not a Bolide file: use a version that
    /// supports it.
    Unsupported,
    /// The disk, the quota, the limit of file sizes or memory is exhausted, and nothing was written: free some, then retry.
    NoSpace,
    /// The operating system refused an operation: see the source.
    Io,
    /// The handle or the medium is read-only.
    ReadOnly,
    /// An earlier write failed, so this handle refuses further writes: reopen the database.
    Poisoned,
    /// A cursor token or snapshot is no longer available: start again.
    Expired,
    /// The database is closed or closing.
    Closed,
    /// The caller interrupted a read; see [`interruptible`](crate::interruption::interruptible).
    Interrupted,
    /// An invariant of Bolide itself is broken: report a bug.
    Internal,
}

impl ErrorKind {
    /// A short phrase that states what the caller can do.
    pub fn advice(self) -> &'static str {
        match self {
            Self::InvalidInput => "fix the input and try again",
            Self::LimitExceeded => "make the input smaller",
            Self::NotFound => "check the name",
            Self::Conflict => {
                "choose another name, wait for the other operation, or run the transaction again"
            }
            Self::Locked => "close the other opener first",
            Self::Corruption => {
                "restore the file from a copy; `bolide check` shows the extent, and `bolide repair` copies what is left to a new database"
            }
            Self::Unsupported => "use a version of Bolide that supports this format",
            Self::NoSpace => "free space on the disk and try again",
            Self::Io => "see the operating system's message",
            Self::ReadOnly => "open the database for writing",
            Self::Poisoned => "reopen the database",
            Self::Expired => "start the query again",
            Self::Closed => "open the database again",
            Self::Interrupted => "call it again",
            Self::Internal => "report this as a bug of Bolide",
        }
    }
}

/// An error: a kind, a message with its context, and perhaps a source.
///
/// One pointer wide and cheap to clone, so that a failed group commit can report the same error to every waiting writer.
#[derive(Clone)]
pub struct Error(Arc<ErrorState>);

struct ErrorState {
    kind: ErrorKind,
    message: String,
    source: Option<io::Error>,
    needed_memory: Option<u64>,
}

impl Error {
    /// An error of `kind` with a message that contains the cause and the location.
    ///
    /// ```
    /// use bolide_base::{Error, ErrorKind};
    /// let error = Error::new(ErrorKind::NotFound, "no collection named \"posts\"");
    /// assert_eq!(error.kind(), ErrorKind::NotFound);
    /// assert!(error.to_string().contains("posts"));
    /// ```
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(ErrorState { kind, message: message.into(), source: None, needed_memory: None }))
    }

    /// An [`ErrorKind::NoSpace`] error: the memory budget does not allow a structure that needs `needed_bytes` bytes in all.
    ///
    /// ```
    /// use bolide_base::{Error, ErrorKind};
    /// let error = Error::memory_refused("index posts.author needs 4096 bytes", 4_096);
    /// assert_eq!((error.kind(), error.needed_memory_bytes()), (ErrorKind::NoSpace, Some(4_096)));
    /// assert!(error.advice().contains("memory_bytes"));
    /// ```
    pub fn memory_refused(message: impl Into<String>, needed_bytes: u64) -> Self {
        let (kind, needed_memory) = (ErrorKind::NoSpace, Some(needed_bytes));
        Self(Arc::new(ErrorState { kind, message: message.into(), source: None, needed_memory }))
    }

    /// An [`ErrorKind::InvalidInput`] error.
    pub fn invalid_input(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, message)
    }

    /// An [`ErrorKind::LimitExceeded`] error: `what` has `actual` units, and `limit` are allowed.
    pub fn limit_exceeded(what: impl fmt::Display, actual: u64, limit: u64) -> Self {
        Self::new(ErrorKind::LimitExceeded, format!("{what} is {actual}; the limit is {limit}"))
    }

    /// An [`ErrorKind::Internal`] error: an invariant is violated.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// An [`ErrorKind::Internal`] error: `what` panicked; `panic` is what
    /// [`catch_unwind`](std::panic::catch_unwind) returned for it.
    pub fn panicked(what: impl fmt::Display, panic: &(dyn Any + Send)) -> Self {
        let message = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        Self::internal(format!("{what} panicked: {message}"))
    }

    /// An [`ErrorKind::Corruption`] error that names the file and the byte offset of the damage.
    pub fn corruption(file: impl fmt::Display, offset: u64, what: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Corruption, format!("{file}: damaged at byte {offset}: {what}"))
    }

    /// An [`ErrorKind::Unsupported`] error that names the file.
    pub fn unsupported(file: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Unsupported, format!("{file}: {what}"))
    }

    /// Wraps an error of the operating system; `context` names the failed operation and the file.
    ///
    /// A full disk or quota, a file over the limit of file sizes and a lack of memory become [`ErrorKind::NoSpace`], a
    /// read-only medium [`ErrorKind::ReadOnly`], a missing file [`ErrorKind::NotFound`], all others [`ErrorKind::Io`].
    pub fn io(context: impl fmt::Display, source: io::Error) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge
            | io::ErrorKind::OutOfMemory => ErrorKind::NoSpace,
            io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            _ => ErrorKind::Io,
        };
        let message = format!("{context}: {source}");
        Self(Arc::new(ErrorState { kind, message, source: Some(source), needed_memory: None }))
    }

    /// The same error with `context` before its message.
    #[must_use]
    pub fn context(self, context: impl fmt::Display) -> Self {
        let message = format!("{context}: {}", self.0.message);
        let source = self.0.source.as_ref().map(|source| io::Error::new(source.kind(), source.to_string()));
        let (kind, needed_memory) = (self.0.kind, self.0.needed_memory);
        Self(Arc::new(ErrorState { kind, message, source, needed_memory }))
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The message without the advice.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What the caller can do: that of the [kind](ErrorKind::advice), unless the memory budget refused memory.
    pub fn advice(&self) -> &'static str {
        match self.0.needed_memory {
            Some(_) => "raise the memory budget (`Options::memory_bytes`, `--memory`)",
            None => self.0.kind.advice(),
        }
    }

    /// The bytes that a structure needs at least, all its memory together, if the memory budget refused them; `None` for every
    /// other error, a full disk included.
    pub fn needed_memory_bytes(&self) -> Option<u64> {
        self.0.needed_memory
    }

    /// Whether damaged bytes on disk were found.
    pub fn is_corruption(&self) -> bool {
        self.kind() == ErrorKind::Corruption
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({:?})", self.0.kind, self.0.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Error numbers of Linux.
    mod libc_codes {
        pub(super) const ENOMEM: i32 = 12;
        pub(super) const EFBIG: i32 = 27;
        pub(super) const EDQUOT: i32 = 122;
    }

    #[test]
    fn a_full_disk_is_distinguished_from_other_failures() {
        let full = Error::io("write 000001.wal", io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(full.kind(), ErrorKind::NoSpace);
        for errno in [libc_codes::EFBIG, libc_codes::ENOMEM, libc_codes::EDQUOT] {
            let error = Error::io("write 000001.wal", io::Error::from_raw_os_error(errno));
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        }
        let other = Error::io("write 000001.wal", io::Error::other("EIO"));
        assert_eq!(other.kind(), ErrorKind::Io);
    }

    #[test]
    fn a_panic_becomes_an_error_with_its_message() {
        let panic = std::panic::catch_unwind(|| panic!("row {}", 7)).unwrap_err();
        assert_eq!(Error::panicked("the extractor", &*panic).message(), "the extractor panicked: row 7");
        let panic = std::panic::catch_unwind(|| panic!("plain")).unwrap_err();
        assert_eq!(Error::panicked("it", &*panic).message(), "it panicked: plain");
        assert_eq!(Error::panicked("it", &7_u8).message(), "it panicked: no message");
    }

    #[test]
    fn context_keeps_the_kind_and_the_source() {
        let error = Error::io("read", io::Error::other("EIO")).context("collection posts");
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().starts_with("collection posts: read"));
        assert!(std::error::Error::source(&error).is_some());
    }

    #[test]
    fn a_refusal_of_memory_is_no_full_disk() {
        let refused = Error::memory_refused("index c.group", 4_096).context("query");
        assert_eq!((refused.kind(), refused.needed_memory_bytes()), (ErrorKind::NoSpace, Some(4_096)));
        assert!(refused.advice().contains("--memory") && !refused.advice().contains("disk"));
        let full = Error::io("write", io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(full.needed_memory_bytes(), None);
        assert!(full.advice().contains("disk"));
    }
}
