//! The interface of a store with transactions.
//!
//! A workload opens one [`TransactionConnection`] per thread. A store with optimistic transactions runs the body of a transaction
//! again after a conflict; one with a single writer makes the writers wait for each other.

use crate::error::Result;

/// Length of every record in bytes.
pub const RECORD_BYTES: usize = 100;

/// The tables of the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableName {
    /// Records without an index.
    Accounts,
    /// Records that transactions insert.
    Users,
    /// Records with an index on their group.
    Tasks,
}

impl TableName {
    /// All tables.
    pub const ALL: [Self; 3] = [Self::Accounts, Self::Users, Self::Tasks];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accounts => "accounts",
            Self::Users => "users",
            Self::Tasks => "tasks",
        }
    }
}

/// A record: its group, which the index of [`TableName::Tasks`] sorts by, and its amount, big-endian.
pub fn record(group: u64, amount: u64) -> [u8; RECORD_BYTES] {
    let mut record = [0x5a; RECORD_BYTES];
    record[..8].copy_from_slice(&group.to_be_bytes());
    record[8..16].copy_from_slice(&amount.to_be_bytes());
    record
}

/// The group and the amount of a record.
pub fn read_record(record: &[u8]) -> Result<(u64, u64)> {
    let word =
        |at: usize| record.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
    match (word(0), word(8)) {
        (Some(group), Some(amount)) if record.len() == RECORD_BYTES => Ok((group, amount)),
        _ => Err("an incomplete record".into()),
    }
}

/// The operations inside one transaction.
pub trait TransactionSession {
    /// The record of `key`, which must not change until the commit.
    fn get(&mut self, table: TableName, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Sets `key` to `record`, in the index too.
    fn put(&mut self, table: TableName, key: &[u8], record: &[u8]) -> Result<()>;

    /// The keys of at most `limit` tasks of a group, by the index.
    fn tasks_of(&mut self, group: u64, limit: usize) -> Result<Vec<Vec<u8>>>;
}

/// The body of a transaction.
pub type Body<'b> = &'b mut dyn FnMut(&mut dyn TransactionSession) -> Result<()>;

/// One thread's access to a store.
pub trait TransactionConnection {
    /// Runs `body` in a transaction, and again after each conflict. Returns the number of conflicts.
    fn transact(&mut self, body: Body<'_>) -> Result<u64>;

    /// The record of an account, without a transaction of the program.
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Sets an account, without a transaction of the program.
    fn put(&mut self, key: &[u8], record: &[u8]) -> Result<()>;

    /// Calls `body` while a transaction is open that has read an account and does nothing else. False if the store cannot write
    /// beside it.
    fn beside_transaction(
        &mut self,
        body: &mut dyn FnMut(&mut dyn TransactionConnection) -> Result<()>,
    ) -> Result<bool> {
        let _ = body;
        Ok(false)
    }
}

/// Called with the key and the value of each record.
pub type VisitRecord<'v> = &'v mut dyn FnMut(&[u8], &[u8]) -> Result<()>;

/// An open store with the tables of [`TableName`].
pub trait TransactionEngine: Sync {
    /// Access for the calling thread.
    fn connect(&self) -> Result<Box<dyn TransactionConnection + '_>>;

    /// Visits all records of a table.
    fn visit(&self, table: TableName, each: VisitRecord<'_>) -> Result<()>;
}
