//! Settings of transactions.

use bolide_lsm::SyncMode;

/// What a commit of a transaction is checked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Isolation {
    /// The result is that of some order in which the transactions ran one after the other: everything that was read (keys,
    /// scanned ranges, answers of queries) must be unchanged at the commit.
    #[default]
    Serializable,
    /// The keys that are written must be unchanged since the snapshot, and those that
    /// [`get_for_update`](crate::Transaction::get_for_update) read. What else was read may have changed: two transactions
    /// that each read what the other writes can both commit (write skew).
    Snapshot,
}

/// Settings of a transaction, for [`Db::begin`](crate::Db::begin) and
/// [`Db::transaction_with`](crate::Db::transaction_with).
///
/// ```
/// use bolide::{Isolation, TransactionOptions};
/// let options = TransactionOptions::default().isolation(Isolation::Snapshot).retries(3);
/// assert_eq!((options.isolation, options.retries), (Isolation::Snapshot, 3));
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TransactionOptions {
    /// See [`isolation`](Self::isolation()).
    pub isolation: Isolation,
    /// See [`sync`](Self::sync()).
    pub sync: Option<SyncMode>,
    /// See [`max_bytes`](Self::max_bytes()).
    pub max_bytes: usize,
    /// See [`retries`](Self::retries()).
    pub retries: u32,
}

impl Default for TransactionOptions {
    fn default() -> Self {
        Self { isolation: Isolation::default(), sync: None, max_bytes: 64 << 20, retries: 100 }
    }
}

impl TransactionOptions {
    /// What the commit is checked for. Default: [`Isolation::Serializable`].
    #[must_use]
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// When the commit is safe from a power cut. Default: that of [`Options::sync`](crate::Options::sync()).
    #[must_use]
    pub fn sync(mut self, sync: SyncMode) -> Self {
        self.sync = Some(sync);
        self
    }

    /// The memory that a transaction may take for its writes and for the record of its reads, in bytes. Default: 64 MiB.
    /// More is an error of the kind [`LimitExceeded`](crate::ErrorKind::LimitExceeded).
    ///
    /// ```
    /// assert_eq!(bolide::TransactionOptions::default().max_bytes(1 << 20).max_bytes, 1 << 20);
    /// ```
    #[must_use]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// How often [`Db::transaction_with`](crate::Db::transaction_with) runs a transaction again after a conflict.
    /// Default: 100. It pauses before each but the first, longer from one to the next, for a random time up to 10 ms.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }
}
