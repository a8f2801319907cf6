//! A transaction that the scans and the writes of its statements share.
//!
//! Threads work on it that nothing can stop from outside: those of scans, and the one that writes. So each statement has a
//! handle of its own. A statement that was dropped is stopped: its handle refuses every further call, and the next statement
//! undoes its writes. The end of the transaction ends the scans whose rows were not read.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bolide::Transaction;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::error::{Result, SqlError, SqlState};

/// The handle of one statement.
#[derive(Clone)]
pub(crate) struct SharedTransaction {
    transaction: Arc<TransactionState>,
    statement: Arc<StatementState>,
}

struct TransactionState {
    /// Held for writing to end the transaction: after all scans.
    open: RwLock<Option<Transaction>>,
    is_ended: watch::Sender<bool>,
    max_bytes: usize,
}

#[derive(Default)]
struct StatementState {
    is_stopped: AtomicBool,
    /// Held by a call, so that none is under way when the statement has been stopped.
    call: Mutex<()>,
}

/// Stops the statement of a handle at its end, also if its execution is dropped.
pub(crate) struct StopOnDrop(SharedTransaction);

impl fmt::Debug for SharedTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTransaction").field("is_ended", &self.is_ended()).finish_non_exhaustive()
    }
}

impl SharedTransaction {
    /// The transaction, which has `max_bytes` for its reads and writes.
    pub(crate) fn new(transaction: Transaction, max_bytes: usize) -> Self {
        let (is_ended, _) = watch::channel(false);
        let state = TransactionState { open: RwLock::new(Some(transaction)), is_ended, max_bytes };
        Self { transaction: Arc::new(state), statement: Arc::default() }
    }

    /// Memory of the transaction for its reads and writes, in bytes.
    pub(crate) fn max_bytes(&self) -> usize {
        self.transaction.max_bytes
    }

    /// The handle of another statement.
    pub(crate) fn for_statement(&self) -> Self {
        Self { transaction: self.transaction.clone(), statement: Arc::default() }
    }

    /// Stops the statement when the result is dropped.
    pub(crate) fn stop_on_drop(&self) -> StopOnDrop {
        StopOnDrop(self.clone())
    }

    /// Waits for the call of the statement that is under way. It is the last one if the statement was stopped. Blocks.
    pub(crate) fn wait_for_call(&self) {
        drop(self.statement.call.lock());
    }

    /// Reads as long as it takes: the end of the transaction waits.
    ///
    /// # Errors
    /// Those of `read`; a transaction that has ended, and a statement that was stopped.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Transaction) -> Result<T>) -> Result<T> {
        if self.statement.is_stopped.load(Ordering::SeqCst) {
            return Err(SqlError::new(SqlState::Cancelled, "the statement was cancelled"));
        }
        match &*self.transaction.open.read() {
            Some(transaction) => read(transaction),
            None => Err(ended()),
        }
    }

    /// Whether the transaction ends or has ended.
    pub(crate) fn is_ended(&self) -> bool {
        *self.transaction.is_ended.borrow()
    }

    /// Waits until the transaction ends.
    pub(crate) async fn until_ended(&self) {
        // The sender is alive: `self` has it.
        let _ = self.transaction.is_ended.subscribe().wait_for(|is_ended| *is_ended).await;
    }

    /// Ends the scans of the transaction, waits for them, and takes the transaction. Blocks.
    ///
    /// # Errors
    /// If it has ended already.
    pub(crate) fn end(&self) -> Result<Transaction> {
        self.transaction.is_ended.send_replace(true);
        self.transaction.open.write().take().ok_or_else(ended)
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.statement.is_stopped.store(true, Ordering::SeqCst);
    }
}

/// One short call, a read or a write: none begins after the statement was stopped. Blocks.
///
/// # Errors
/// As [`SharedTransaction::read`].
pub(crate) fn with_transaction<T>(
    shared: &SharedTransaction,
    call: impl FnOnce(&Transaction) -> Result<T>,
) -> Result<T> {
    let _under_way = shared.statement.call.lock();
    shared.read(call)
}

/// The error of a transaction that is used after its end.
pub(crate) fn ended() -> SqlError {
    SqlError::new(SqlState::NoActiveTransaction, "the transaction has ended")
        .with_hint("read the rows of a query before COMMIT or ROLLBACK")
}
