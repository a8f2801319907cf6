//! Transactions of a database, and their repetition after a conflict.

use std::time::Duration;

use bolide_base::{ErrorKind, Result};

use super::{Transaction, TransactionOptions};
use crate::db::Db;

/// The longest pause before the second repetition, in microseconds. It doubles from one to the next.
const FIRST_PAUSE_MICROS: u64 = 50;
/// The longest pause, in microseconds.
const MAX_PAUSE_MICROS: u64 = 10_000;

impl Db {
    /// Begins a transaction at the present state.
    ///
    /// # Errors
    /// `ReadOnly` on a database that is open read-only; `LimitExceeded` if the sequence numbers are almost exhausted.
    pub fn begin(&self, options: TransactionOptions) -> Result<Transaction> {
        self.handle.engine.check_writable()?;
        Transaction::begin(self.handle.clone(), options)
    }

    /// Runs `work` in a transaction and commits it. After a conflict it runs `work` again in a new transaction, at once the
    /// first time, later after a short random pause; see [`TransactionOptions::retries`]. An error of `work` ends the transaction without an effect.
    ///
    /// # Errors
    /// Those of `work`; those of [`Transaction::commit`], `Conflict` after the last repetition.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let counters = db.create_collection("counters", Default::default())?;
    /// let increment = || {
    ///     db.transaction(|tx| {
    ///         let record = tx.get(&counters, b"visits")?.unwrap_or_else(|| br#"{"n":0}"#.to_vec());
    ///         let text = String::from_utf8_lossy(&record);
    ///         let number: u64 = text[5..text.len() - 1].parse().unwrap_or(0);
    ///         tx.put(&counters, b"visits", format!(r#"{{"n":{}}}"#, number + 1).as_bytes())
    ///     })
    /// };
    /// std::thread::scope(|scope| {
    ///     let threads: Vec<_> = (0..2).map(|_| scope.spawn(increment)).collect();
    ///     threads.into_iter().try_for_each(|thread| thread.join().unwrap())
    /// })?;
    /// assert_eq!(counters.get(b"visits")?.as_deref(), Some(&br#"{"n":2}"#[..]));
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn transaction<T>(&self, work: impl FnMut(&Transaction) -> Result<T>) -> Result<T> {
        self.transaction_with(&TransactionOptions::default(), work)
    }

    /// As [`transaction`](Self::transaction), with settings.
    ///
    /// # Errors
    /// As [`transaction`](Self::transaction).
    pub fn transaction_with<T>(
        &self,
        options: &TransactionOptions,
        mut work: impl FnMut(&Transaction) -> Result<T>,
    ) -> Result<T> {
        let runtime = &self.handle.engine.components.runtime;
        let mut repetitions = 0;
        loop {
            let transaction = self.begin(options.clone())?;
            let result = work(&transaction)?;
            match transaction.commit() {
                Ok(_) => return Ok(result),
                Err(error) if error.kind() != ErrorKind::Conflict => return Err(error),
                Err(error) if repetitions >= options.retries => {
                    return Err(error.context(format_args!("after {} attempts", u64::from(repetitions) + 1)));
                }
                Err(_) => {}
            }
            if let Some(pauses) = repetitions.checked_sub(1) {
                let longest = (FIRST_PAUSE_MICROS << pauses.min(16)).min(MAX_PAUSE_MICROS);
                runtime.sleep(Duration::from_micros(runtime.random_u64() % longest + 1));
            }
            repetitions += 1;
        }
    }
}
