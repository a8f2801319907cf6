//! Arguments of functions.

#![deny(unsafe_op_in_unsafe_fn)]

use std::ffi::{c_char, c_void};

use bolide::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use bolide::{Error, Isolation, SyncMode};

use crate::failure::Failure;

/// Longest text of an argument, in bytes.
pub(crate) const MAX_TEXT_BYTES: usize = 16 << 20;

/// `size` bytes at `data`, which may be NULL for none. A longer argument than `limit` is refused before it is read.
///
/// # Safety
/// `data` is NULL or valid for reads of `size` bytes, which nothing changes in `'a`.
pub(crate) unsafe fn bytes<'a>(
    data: *const c_void,
    size: usize,
    what: &str,
    limit: usize,
) -> Result<&'a [u8], Failure> {
    if size > limit {
        let subject = format!("the size of {what} in bytes");
        return Err(Error::limit_exceeded(subject, size as u64, limit as u64).into());
    }
    match (data.is_null(), size) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::invalid(format!("{what} is NULL, but its size is {size}"))),
        // SAFETY: as for this function; the size is within the limit.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(data.cast(), size) }),
    }
}

/// # Safety
/// As for [`bytes`].
pub(crate) unsafe fn key<'a>(data: *const c_void, size: usize) -> Result<&'a [u8], Failure> {
    // SAFETY: as for this function.
    unsafe { bytes(data, size, "the key", MAX_KEY_BYTES) }
}

/// # Safety
/// As for [`bytes`].
pub(crate) unsafe fn record<'a>(data: *const c_void, size: usize) -> Result<&'a [u8], Failure> {
    // SAFETY: as for this function.
    unsafe { bytes(data, size, "the record", MAX_VALUE_BYTES) }
}

/// A text in UTF-8.
///
/// # Safety
/// As for [`bytes`].
pub(crate) unsafe fn text<'a>(data: *const c_char, size: usize, what: &str) -> Result<&'a str, Failure> {
    // SAFETY: as for this function.
    let bytes = unsafe { bytes(data.cast(), size, what, MAX_TEXT_BYTES) }?;
    std::str::from_utf8(bytes).map_err(|error| {
        Failure::invalid(format!(
            "{what} is not UTF-8: the byte at position {} is invalid",
            error.valid_up_to()
        ))
    })
}

/// The value with the number `number`, of these.
pub(crate) fn choice<T: Copy>(what: &str, number: i64, values: &[(i32, &str, T)]) -> Result<T, Failure> {
    values.iter().find(|(known, ..)| i64::from(*known) == number).map(|(.., value)| *value).ok_or_else(|| {
        let known: Vec<String> = values.iter().map(|(known, name, _)| format!("{name} ({known})")).collect();
        Failure::invalid(format!("{number} is no {what}: the values are {}", known.join(", ")))
    })
}

/// A number that fits into `usize`.
pub(crate) fn size(what: &str, number: u64) -> Result<usize, Failure> {
    usize::try_from(number).map_err(|_| Error::limit_exceeded(what, number, usize::MAX as u64).into())
}

/// The moment at which a write is safe from a power cut.
pub type bolide_sync = i32;

/// That of the database.
pub const BOLIDE_SYNC_DEFAULT: bolide_sync = 0;
/// One sync serves many writes: a power cut may lose the last moments.
pub const BOLIDE_SYNC_BATCH: bolide_sync = 1;
/// The write returns after it was synced.
pub const BOLIDE_SYNC_ALWAYS: bolide_sync = 2;
/// The operating system writes at a time of its choice.
pub const BOLIDE_SYNC_NONE: bolide_sync = 3;

/// The mode with this number; `None` for that of the database.
pub(crate) fn sync_mode(number: i64) -> Result<Option<SyncMode>, Failure> {
    choice(
        "sync mode",
        number,
        &[
            (BOLIDE_SYNC_DEFAULT, "BOLIDE_SYNC_DEFAULT", None),
            (BOLIDE_SYNC_BATCH, "BOLIDE_SYNC_BATCH", Some(SyncMode::Batch)),
            (BOLIDE_SYNC_ALWAYS, "BOLIDE_SYNC_ALWAYS", Some(SyncMode::Always)),
            (BOLIDE_SYNC_NONE, "BOLIDE_SYNC_NONE", Some(SyncMode::None)),
        ],
    )
}

/// What a commit of a transaction is checked for.
pub type bolide_isolation = i32;

/// The commit fails if another one has changed anything that the transaction read.
pub const BOLIDE_SERIALIZABLE: bolide_isolation = 0;
/// The commit fails if another one has changed what the transaction writes, or has read for an update.
pub const BOLIDE_SNAPSHOT_ISOLATION: bolide_isolation = 1;

pub(crate) fn isolation(number: bolide_isolation) -> Result<Isolation, Failure> {
    choice(
        "isolation",
        number.into(),
        &[
            (BOLIDE_SERIALIZABLE, "BOLIDE_SERIALIZABLE", Isolation::Serializable),
            (BOLIDE_SNAPSHOT_ISOLATION, "BOLIDE_SNAPSHOT_ISOLATION", Isolation::Snapshot),
        ],
    )
}
