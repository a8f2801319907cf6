//! Transactions of a session.

use bolide::{Db, Isolation, Savepoint, TransactionOptions};

use crate::blocking;
use crate::error::{Result, SqlError, SqlState};
use crate::shared_transaction::{SharedTransaction, with_transaction};

/// A transaction between BEGIN and COMMIT.
#[derive(Debug)]
pub(crate) struct OpenTransaction {
    pub(crate) shared: SharedTransaction,
    savepoints: Vec<(String, Savepoint)>,
    /// The statement that writes, and the position before it. It remains here if the execution of the statement is dropped.
    writer: Option<(SharedTransaction, Savepoint)>,
}

/// Begins a transaction.
///
/// # Errors
/// If the database is open for reading.
pub(crate) fn begin(db: &Db, isolation: Isolation, max_bytes: usize) -> Result<SharedTransaction> {
    let mut options = TransactionOptions::default().isolation(isolation);
    options.max_bytes = max_bytes;
    Ok(SharedTransaction::new(db.begin(options)?, max_bytes))
}

/// Commits. Scans of the transaction end before. Blocks.
///
/// # Errors
/// A conflict with another commit; those of writing. Nothing is written then.
pub(crate) fn commit(shared: &SharedTransaction) -> Result<()> {
    shared.end()?.commit().map(drop).map_err(|error| {
        let converted = SqlError::from(error);
        match converted.state() {
            SqlState::SerializationFailure => SqlError::new(
                SqlState::SerializationFailure,
                format!("the transaction conflicts with another commit: {}", converted.message()),
            )
            .with_hint("run the transaction again"),
            _ => converted,
        }
    })
}

impl OpenTransaction {
    pub(crate) fn new(shared: SharedTransaction) -> Self {
        Self { shared, savepoints: Vec::new(), writer: None }
    }

    /// The handle of a statement that writes. Its writes are undone by [`undo`](Self::undo) unless
    /// [`keep`](Self::keep) follows.
    pub(crate) fn begin_writer(&mut self) -> Result<SharedTransaction> {
        let (writer, position) = (self.shared.for_statement(), self.position()?);
        self.writer = Some((writer.clone(), position));
        Ok(writer)
    }

    /// Keeps the writes of the statement that has written.
    pub(crate) fn keep(&mut self) {
        self.writer = None;
    }

    /// Removes the writes of a statement that has failed or was dropped.
    pub(crate) async fn undo(&mut self) -> Result<()> {
        let Some((writer, position)) = self.writer.clone() else { return Ok(()) };
        let shared = self.shared.clone();
        blocking(move || {
            drop(writer.stop_on_drop());
            writer.wait_for_call();
            with_transaction(&shared, |transaction| Ok(transaction.rollback_to(&position)?))
        })
        .await??;
        self.writer = None;
        Ok(())
    }

    fn position(&self) -> Result<Savepoint> {
        with_transaction(&self.shared, |transaction| Ok(transaction.savepoint()))
    }

    pub(crate) fn add_savepoint(&mut self, name: String) -> Result<()> {
        let position = self.position()?;
        self.savepoints.push((name, position));
        Ok(())
    }

    /// Removes the writes after the savepoint, and the savepoints after it.
    pub(crate) async fn rollback_to(&mut self, name: &str) -> Result<()> {
        let at = self.find(name)?;
        self.savepoints.truncate(at + 1);
        let Some((_, position)) = self.savepoints.last() else { return Ok(()) };
        let (shared, position) = (self.shared.clone(), *position);
        blocking(move || with_transaction(&shared, |transaction| Ok(transaction.rollback_to(&position)?)))
            .await?
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
