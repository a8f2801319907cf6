//! Transactions.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use bolide::{
    AnswerRef, Collection, FindOptions, IterOptions, Outcome, Query, Savepoint, Transaction,
    TransactionAnswers, TransactionCursor, TransactionOptions, ValueRef,
};
use parking_lot::Mutex;

use crate::code::bolide_code;
use crate::collection::bolide_collection;
use crate::error::bolide_error;
use crate::failure::Failure;
use crate::guard::{Presence, call, find};
use crate::handle::{self, object};
use crate::input::{self, bolide_isolation, bolide_sync, isolation, size, sync_mode};
use crate::output::{self, Out, bolide_bytes};
use crate::query::bolide_query;
use crate::range::{self, bolide_range};
use crate::session::Member;
use crate::session::bolide_db;

/// Reads at one state and writes that are committed together, if what they depend on is unchanged. May be used by many threads.
pub struct bolide_transaction {
    _opaque: [u8; 0],
}

object!(bolide_transaction, TransactionSlot, "the transaction");

/// A position among the writes of a transaction. It belongs to it, and may be freed after it.
pub struct bolide_savepoint {
    _opaque: [u8; 0],
}

object!(bolide_savepoint, Savepoint, "the savepoint", of_process = false);

/// A transaction, which its cursors share; empty after the commit.
pub(crate) struct TransactionSlot(Mutex<Option<OpenTransaction>>);

/// A transaction that is open.
pub(crate) type OpenTransaction = Arc<Member<Transaction>>;

impl TransactionSlot {
    pub(crate) fn open(&self) -> Result<OpenTransaction, Failure> {
        self.0.lock().clone().ok_or_else(Failure::ended_transaction)
    }

    /// Takes the transaction, if nothing else uses it.
    fn take(&self) -> Result<Member<Transaction>, Failure> {
        let mut slot = self.0.lock();
        let shared = slot.take().ok_or_else(Failure::ended_transaction)?;
        Arc::try_unwrap(shared).map_err(|shared| {
            *slot = Some(shared);
            Failure::in_use(
                "the transaction is used by its cursors, its answers or another thread",
                "free the cursors and answers of the transaction before its commit",
            )
        })
    }
}

/// A cursor of a transaction, which it keeps open.
pub(crate) struct SharedTransactionCursor {
    cursor: ManuallyDrop<TransactionCursor<'static>>,
    transaction: ManuallyDrop<OpenTransaction>,
}

impl SharedTransactionCursor {
    pub(crate) fn new(
        transaction: OpenTransaction,
        collection: &Collection,
        options: &IterOptions,
    ) -> Result<Self, Failure> {
        let cursor = transaction.cursor(collection, options)?;
        // SAFETY: the cursor refers to the transaction in the memory of the Arc, which does not move, and is dropped before the Arc.
        let cursor =
            unsafe { std::mem::transmute::<TransactionCursor<'_>, TransactionCursor<'static>>(cursor) };
        Ok(Self { cursor: ManuallyDrop::new(cursor), transaction: ManuallyDrop::new(transaction) })
    }

    pub(crate) fn cursor(&mut self) -> &mut TransactionCursor<'static> {
        &mut self.cursor
    }
}

impl Drop for SharedTransactionCursor {
    fn drop(&mut self) {
        // SAFETY: neither is used again; the cursor ends before its transaction.
        unsafe {
            ManuallyDrop::drop(&mut self.cursor);
            ManuallyDrop::drop(&mut self.transaction);
        }
    }
}

/// The answers of a query in a transaction, which they keep open.
pub(crate) struct SharedTransactionAnswers {
    answers: ManuallyDrop<TransactionAnswers<'static>>,
    transaction: ManuallyDrop<OpenTransaction>,
}

impl SharedTransactionAnswers {
    pub(crate) fn new(
        transaction: OpenTransaction,
        collection: &Collection,
        query: &Query,
        options: &FindOptions,
    ) -> Result<Self, Failure> {
        let answers = transaction.answers(collection, query, options)?;
        // SAFETY: as for the cursor.
        let answers =
            unsafe { std::mem::transmute::<TransactionAnswers<'_>, TransactionAnswers<'static>>(answers) };
        Ok(Self { answers: ManuallyDrop::new(answers), transaction: ManuallyDrop::new(transaction) })
    }

    pub(crate) fn next(&mut self) -> bolide::Result<Option<AnswerRef<'_>>> {
        self.answers.next()
    }

    pub(crate) fn outcome(&mut self) -> Outcome {
        self.answers.outcome()
    }
}

impl Drop for SharedTransactionAnswers {
    fn drop(&mut self) {
        // SAFETY: neither is used again; the answers end before their transaction.
        unsafe {
            ManuallyDrop::drop(&mut self.answers);
            ManuallyDrop::drop(&mut self.transaction);
        }
    }
}

/// Begins a transaction. `max_bytes` is its largest memory; 0 for the default of 64 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_begin(
    db: *const bolide_db,
    isolation_level: bolide_isolation,
    sync: bolide_sync,
    max_bytes: u64,
    transaction: *mut *mut bolide_transaction,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = output::object(transaction, "transaction")?;
        let session = handle::borrow(db)?;
        let mut options = TransactionOptions::default().isolation(isolation(isolation_level)?);
        if let Some(sync) = sync_mode(sync.into())? {
            options = options.sync(sync);
        }
        if max_bytes > 0 {
            options = options.max_bytes(size("the memory of a transaction", max_bytes)?);
        }
        let begun = Arc::new(Member::new(session, session.db.begin(options)?));
        out.set(handle::into_pointer(TransactionSlot(Mutex::new(Some(begun)))));
        Ok(())
    })
}

/// Commits all writes, and stores the sequence number of the last one in `sequence`, which may be NULL. The transaction has ended
/// afterwards, also after an error other than `BOLIDE_IN_USE`, `BOLIDE_FORKED` and `BOLIDE_INVALID_INPUT`; its handle is to be freed.
///
/// `BOLIDE_CONFLICT` if another commit has changed what it depends on: begin another transaction and repeat the work.
/// `BOLIDE_IN_USE`, and the transaction is as it was, if a cursor or answers of it exist, or another thread is inside a call with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_commit(
    transaction: *mut bolide_transaction,
    sequence: *mut u64,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = Out::optional(sequence, 0);
        let last = handle::borrow(transaction)?.take()?.end(Transaction::commit)?;
        if let Some(out) = out {
            out.set(last);
        }
        Ok(())
    })
}

/// Frees the handle of a transaction. One that was not committed has no effect; it ends with its last cursor. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_transaction_free(transaction: *mut bolide_transaction) {
    handle::free(transaction);
}

/// Reads the record under a key, with the writes of the transaction. The caller frees it. With `for_update`, the commit also fails
/// under `BOLIDE_SNAPSHOT_ISOLATION` if another one has changed the record. `BOLIDE_ABSENT` if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_transaction_get(
    transaction: *const bolide_transaction,
    collection: *const bolide_collection,
    key: *const c_void,
    key_size: usize,
    for_update: bool,
    record: *mut bolide_bytes,
    error: *mut *mut bolide_error,
) -> bolide_code {
    find(error, || {
        let out = output::bytes(record, "record")?;
        let transaction = handle::borrow(transaction)?.open()?;
        let (collection, key) = (handle::borrow(collection)?, input::key(key, key_size)?);
        let found = match for_update {
            true => transaction.get_for_update(collection, key)?,
            false => transaction.get(collection, key)?,
        };
        let Some(record) = found else { return Ok(Presence::Absent) };
        out.set(bolide_bytes::of(ValueRef::from(record)));
        Ok(Presence::Found)
    })
}

/// Puts a record at the commit. Reads of the transaction see it at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_transaction_put(
    transaction: *const bolide_transaction,
    collection: *const bolide_collection,
    key: *const c_void,
    key_size: usize,
    record: *const c_void,
    record_size: usize,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let transaction = handle::borrow(transaction)?.open()?;
        let collection = handle::borrow(collection)?;
        Ok(transaction.put(collection, input::key(key, key_size)?, input::record(record, record_size)?)?)
    })
}

/// Deletes the record under a key at the commit, if there is one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_transaction_delete(
    transaction: *const bolide_transaction,
    collection: *const bolide_collection,
    key: *const c_void,
    key_size: usize,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let transaction = handle::borrow(transaction)?.open()?;
        Ok(transaction.delete(handle::borrow(collection)?, input::key(key, key_size)?)?)
    })
}

/// Deletes all records with keys in a range at the commit. `range` is not NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_transaction_delete_range(
    transaction: *const bolide_transaction,
    collection: *const bolide_collection,
    range: *const bolide_range,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let transaction = handle::borrow(transaction)?.open()?;
        Ok(transaction.delete_range(handle::borrow(collection)?, range::deleted(range)?)?)
    })
}

/// Stores the number of records that satisfy a query in `count`, with the writes of the transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_transaction_count(
    transaction: *const bolide_transaction,
    collection: *const bolide_collection,
    query: *const bolide_query,
    count: *mut u64,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = Out::new(count, "count", 0)?;
        let transaction = handle::borrow(transaction)?.open()?;
        let collection = handle::borrow(collection)?;
        let settings = handle::borrow(query)?.read()?;
        out.set(transaction.count(collection, &settings.query)?);
        Ok(())
    })
}

/// The present position among the writes of a transaction. The caller frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_savepoint_new(
    transaction: *const bolide_transaction,
    savepoint: *mut *mut bolide_savepoint,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = output::object(savepoint, "savepoint")?;
        out.set(handle::into_pointer(handle::borrow(transaction)?.open()?.savepoint()));
        Ok(())
    })
}

/// Removes the writes after a savepoint. What was read is validated nevertheless.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_rollback_to(
    transaction: *const bolide_transaction,
    savepoint: *const bolide_savepoint,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let transaction = handle::borrow(transaction)?.open()?;
        Ok(transaction.rollback_to(handle::borrow(savepoint)?)?)
    })
}

/// Frees a savepoint; the writes stay. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_savepoint_free(savepoint: *mut bolide_savepoint) {
    handle::free(savepoint);
}
