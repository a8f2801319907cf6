//! The stores with transactions, each behind the traits of [`crate::transaction_engine`], configured as in [`super`].
//!
//! | store | transactions | keys that were read |
//! |---|---|---|
//! | Bolide | optimistic, serializable or snapshot | validated; with snapshot isolation those that are written |
//! | RocksDB | `OptimisticTransactionDB` | validated, by `get_for_update` |
//! | fjall | `OptimisticTxDatabase`, serializable | validated, also ranges |
//! | redb, LMDB, SQLite (`BEGIN IMMEDIATE`) | one writer at a time | locked with everything else |
//!
//! The index of tasks is a table of `group | key` in stores without secondary indexes.

mod bolide;
#[cfg(feature = "peers")]
mod fjall;
#[cfg(feature = "peers")]
mod lmdb;
#[cfg(feature = "peers")]
mod redb;
#[cfg(feature = "peers")]
mod rocksdb;
#[cfg(feature = "peers")]
mod sqlite;

use std::path::Path;

use crate::error::Result;
use crate::transaction_engine::TransactionEngine;

/// Names of the stores with transactions this build can run, Bolide first.
pub fn transaction_names(peers: bool) -> Vec<&'static str> {
    let mut names = vec!["bolide", "bolide-snapshot"];
    if peers && cfg!(feature = "peers") {
        names.extend(["rocksdb", "fjall", "redb", "lmdb", "sqlite"]);
    }
    names
}

/// Opens the store `name` in the empty directory `path`.
pub fn open_transactions(name: &str, path: &Path) -> Result<Box<dyn TransactionEngine>> {
    match name {
        "bolide" => bolide::open(path, ::bolide::Isolation::Serializable),
        "bolide-snapshot" => bolide::open(path, ::bolide::Isolation::Snapshot),
        #[cfg(feature = "peers")]
        "rocksdb" => rocksdb::open(path),
        #[cfg(feature = "peers")]
        "fjall" => fjall::open(path),
        #[cfg(feature = "peers")]
        "redb" => redb::open(path),
        #[cfg(feature = "peers")]
        "lmdb" => lmdb::open(path),
        #[cfg(feature = "peers")]
        "sqlite" => sqlite::open(path),
        other => Err(super::unknown(other)),
    }
}

/// The index key of a task.
#[cfg(feature = "peers")]
fn entry(group: &[u8], key: &[u8]) -> Vec<u8> {
    [group, key].concat()
}

/// The group of a record, as in its index key.
#[cfg(feature = "peers")]
fn group_of(record: &[u8]) -> Result<&[u8]> {
    record.get(..8).ok_or_else(|| "an incomplete record".into())
}
