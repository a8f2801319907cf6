//! Cursors over records in key order.

use std::ffi::c_void;
use std::sync::Arc;

use bolide::{Collection, Cursor, IterOptions};

use crate::code::bolide_code;
use crate::collection::bolide_collection;
use crate::error::bolide_error;
use crate::exclusive::Exclusive;
use crate::failure::Failure;
use crate::guard::{Presence, call, find};
use crate::handle::{self, object};
use crate::input;
use crate::output::{self, Out, bolide_row, bolide_slice};
use crate::range::{self, bolide_range};
use crate::session::{Member, Session};
use crate::snapshot::bolide_snapshot;
use crate::transaction::{SharedTransactionCursor, bolide_transaction};

/// A position among the records of a collection, in key order. It reads one state. One thread at a time uses it.
pub struct bolide_cursor {
    _opaque: [u8; 0],
}

object!(bolide_cursor, Exclusive<RecordCursor>, "the cursor");

/// What [`bolide_cursor`] has.
pub(crate) struct RecordCursor {
    source: CursorSource,
    /// The error of the last movement. There is no neighbour of an unknown position.
    failure: Option<Failure>,
}

enum CursorSource {
    OfCollection(Member<Cursor>),
    OfTransaction(SharedTransactionCursor),
}

/// A movement of a cursor.
#[derive(Clone, Copy)]
enum Move<'k> {
    First,
    Last,
    Next,
    Previous,
    Seek(&'k [u8]),
    SeekPrevious(&'k [u8]),
}

/// Moves a cursor, and returns the record of the position. The cursors have the same methods, but no trait in common.
macro_rules! step_cursor {
    ($cursor:expr, $step:expr) => {{
        let cursor = $cursor;
        match $step {
            Move::First => cursor.seek_to_first()?,
            Move::Last => cursor.seek_to_last()?,
            // Without a position there is no neighbour.
            Move::Next | Move::Previous if !cursor.valid() => return Ok(None),
            Move::Next => cursor.next()?,
            Move::Previous => cursor.prev()?,
            Move::Seek(key) => cursor.seek(key)?,
            Move::SeekPrevious(key) => cursor.seek_for_prev(key)?,
        }
        Ok(cursor.valid().then(|| bolide_row {
            key: bolide_slice::of(cursor.key()),
            record: bolide_slice::of(cursor.value()),
            values: bolide_slice::NONE,
            sequence: cursor.sequence(),
        }))
    }};
}

impl RecordCursor {
    fn of(source: CursorSource) -> Exclusive<Self> {
        Exclusive::new(Self { source, failure: None })
    }

    fn step(&mut self, step: Move<'_>) -> Result<Option<bolide_row>, Failure> {
        if let (Some(failure), Move::Next | Move::Previous) = (&self.failure, step) {
            return Err(failure.clone());
        }
        let moved = self.source.step(step);
        self.failure = moved.as_ref().err().cloned();
        moved
    }
}

impl CursorSource {
    fn open(session: &Arc<Session>, collection: &Collection, options: &IterOptions) -> Result<Self, Failure> {
        Ok(Self::OfCollection(Member::new(session, collection.cursor(options)?)))
    }

    fn step(&mut self, step: Move<'_>) -> Result<Option<bolide_row>, Failure> {
        match self {
            Self::OfCollection(cursor) => step_cursor!(cursor.value_mut(), step),
            Self::OfTransaction(shared) => step_cursor!(shared.cursor(), step),
        }
    }
}

/// A copy of a key, which may be one that the cursor lends and that ends in the call.
unsafe fn copied_key(key: *const c_void, key_size: usize) -> Result<Vec<u8>, Failure> {
    Ok(input::key(key, key_size)?.to_vec())
}

/// Moves the cursor of an exported function.
unsafe fn moved(
    cursor: *mut bolide_cursor,
    step: Move<'_>,
    row: *mut bolide_row,
) -> Result<Presence, Failure> {
    let out = Out::optional(row, bolide_row::NONE);
    match handle::borrow(cursor)?.lock("the cursor")?.step(step)? {
        Some(found) => {
            if let Some(out) = out {
                out.set(found);
            }
            Ok(Presence::Found)
        }
        None => Ok(Presence::Absent),
    }
}

/// Opens a cursor over the records with keys in `range`, or all for NULL: the latest, or with `snapshot`, which may be NULL, those of
/// the snapshot. It is at no record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_cursor_open(
    collection: *const bolide_collection,
    range: *const bolide_range,
    snapshot: *const bolide_snapshot,
    cursor: *mut *mut bolide_cursor,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = output::object(cursor, "cursor")?;
        let collection = handle::borrow(collection)?;
        let mut options = range::bounds(range)?;
        if let Some(snapshot) = handle::borrow_optional(snapshot)? {
            options = options.snapshot(snapshot);
        }
        let opened = CursorSource::open(collection.session(), collection, &options)?;
        out.set(handle::into_pointer(RecordCursor::of(opened)));
        Ok(())
    })
}

/// As `bolide_cursor_open`, in a transaction, with its writes until now. It has to be freed before the commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_transaction_cursor(
    transaction: *const bolide_transaction,
    collection: *const bolide_collection,
    range: *const bolide_range,
    cursor: *mut *mut bolide_cursor,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = output::object(cursor, "cursor")?;
        let transaction = handle::borrow(transaction)?.open()?;
        let collection = handle::borrow(collection)?;
        let opened = SharedTransactionCursor::new(transaction, collection, &range::bounds(range)?)?;
        out.set(handle::into_pointer(RecordCursor::of(CursorSource::OfTransaction(opened))));
        Ok(())
    })
}

/// Moves to the first record, and stores it in `row`, which may be NULL. `BOLIDE_ABSENT` if there is none.
///
/// All records in order: `for (code = bolide_cursor_first(c, &row, &e); code == BOLIDE_OK; code = bolide_cursor_next(c, &row, &e))`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_cursor_first(
    cursor: *mut bolide_cursor,
    row: *mut bolide_row,
    error: *mut *mut bolide_error,
) -> bolide_code {
    find(error, || moved(cursor, Move::First, row))
}

/// Moves to the last record; otherwise as `bolide_cursor_first`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_cursor_last(
    cursor: *mut bolide_cursor,
    row: *mut bolide_row,
    error: *mut *mut bolide_error,
) -> bolide_code {
    find(error, || moved(cursor, Move::Last, row))
}

/// Moves to the next record; otherwise as `bolide_cursor_first`. `BOLIDE_ABSENT` if it is at no record. After an error, it returns the
/// same error until another function has moved the cursor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_cursor_next(
    cursor: *mut bolide_cursor,
    row: *mut bolide_row,
    error: *mut *mut bolide_error,
) -> bolide_code {
    find(error, || moved(cursor, Move::Next, row))
}

/// Moves to the previous record; otherwise as `bolide_cursor_next`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_cursor_previous(
    cursor: *mut bolide_cursor,
    row: *mut bolide_row,
    error: *mut *mut bolide_error,
) -> bolide_code {
    find(error, || moved(cursor, Move::Previous, row))
}

/// Moves to the first record at or after a key, which may be one that the cursor lends; otherwise as `bolide_cursor_first`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_cursor_seek(
    cursor: *mut bolide_cursor,
    key: *const c_void,
    key_size: usize,
    row: *mut bolide_row,
    error: *mut *mut bolide_error,
) -> bolide_code {
    find(error, || moved(cursor, Move::Seek(&copied_key(key, key_size)?), row))
}

/// Moves to the last record at or before a key, which may be one that the cursor lends; otherwise as `bolide_cursor_first`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_cursor_seek_previous(
    cursor: *mut bolide_cursor,
    key: *const c_void,
    key_size: usize,
    row: *mut bolide_row,
    error: *mut *mut bolide_error,
) -> bolide_code {
    find(error, || moved(cursor, Move::SeekPrevious(&copied_key(key, key_size)?), row))
}

/// Frees a cursor. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_cursor_free(cursor: *mut bolide_cursor) {
    handle::free(cursor);
}
