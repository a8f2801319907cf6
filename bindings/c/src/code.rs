//! The codes that functions return.

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
/// The named object exists already, another operation of the database uses it, or another commit changed what this one depends on:
/// choose another name, wait, or run the transaction again.
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
/// Another thread is inside a call with the object, or objects that depend on it exist: nothing was changed. Free them, or wait for
/// the thread, and call again.
pub const BOLIDE_IN_USE: bolide_code = 16;
/// The caller interrupted the call. No function of this version returns it.
pub const BOLIDE_INTERRUPTED: bolide_code = 17;
