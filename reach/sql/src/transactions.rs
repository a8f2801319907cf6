//! Transactions of a session.

use std::sync::Arc;

use bolide::{Db, Isolation, Savepoint, TransactionOptions};
use parking_lot::RwLock;

use crate::error::{Result, SqlError, SqlState};
use crate::read_point::{SharedTransaction, with_transaction};

/// A transaction between BEGIN and COMMIT.
#[derive(Debug)]
pub(crate) struct OpenTransaction {
    pub(crate) shared: SharedTransaction,
    savepoints: Vec<(String, Savepoint)>,
}

/// Begins a transaction.
///
/// # Errors
/// If the database is open for reading.
pub(crate) fn begin(db: &Db, isolation: Isolation, max_bytes: usize) -> Result<SharedTransaction> {
    let mut options = TransactionOptions::default().isolation(isolation);
    options.max_bytes = max_bytes;
    Ok(Arc::new(RwLock::new(Some(db.begin(options)?))))
}

/// Commits after all scans of the transaction have ended. Blocks.
///
/// # Errors
/// A conflict with another commit; those of writing. Nothing is written then.
pub(crate) fn commit(shared: &SharedTransaction) -> Result<()> {
    let transaction = shared.write().take();
    match transaction {
        Some(transaction) => transaction.commit().map(drop).map_err(|error| {
            let converted = SqlError::from(error);
            match converted.state() {
                SqlState::SerializationFailure => SqlError::new(
                    SqlState::SerializationFailure,
                    format!("the transaction conflicts with another commit: {}", converted.message()),
                )
                .with_hint("run the transaction again"),
                _ => converted,
            }
        }),
        None => Err(SqlError::new(SqlState::NoActiveTransaction, "the transaction has ended")),
    }
}

impl OpenTransaction {
    pub(crate) fn new(shared: SharedTransaction) -> Self {
        Self { shared, savepoints: Vec::new() }
    }

    /// A position among the writes, to which a statement that fails returns.
    pub(crate) fn position(&self) -> Result<Savepoint> {
        with_transaction(&self.shared, |transaction| Ok(transaction.savepoint()))
    }

    /// Removes the writes after `position`. Blocks.
    pub(crate) fn return_to(&self, position: &Savepoint) -> Result<()> {
        with_transaction(&self.shared, |transaction| Ok(transaction.rollback_to(position)?))
    }

    pub(crate) fn add_savepoint(&mut self, name: String) -> Result<()> {
        let position = self.position()?;
        self.savepoints.push((name, position));
        Ok(())
    }

    /// Removes the writes after the savepoint, and the savepoints after it.
    pub(crate) fn rollback_to(&mut self, name: &str) -> Result<()> {
        let at = self.find(name)?;
        self.savepoints.truncate(at + 1);
        match self.savepoints.last() {
            Some((_, position)) => self.return_to(position),
            None => Ok(()),
        }
    }

    /// Removes the savepoint and those after it; the writes remain.
    pub(crate) fn release(&mut self, name: &str) -> Result<()> {
        let at = self.find(name)?;
        self.savepoints.truncate(at);
        Ok(())
    }

    fn find(&self, name: &str) -> Result<usize> {
        self.savepoints.iter().rposition(|(known, _)| known == name).ok_or_else(|| {
            SqlError::new(SqlState::InvalidSavepoint, format!("there is no savepoint \"{name}\""))
        })
    }
}
