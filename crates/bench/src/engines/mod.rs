//! The stores under test, each behind the traits of [`crate::engine`].
//!
//! # Configuration
//!
//! 1 GB of cache, 64 MB memtables, no compression, the log written and not synced (a crash of the
//! program loses nothing, a power cut may), all other settings at their defaults:
//!
//! | store | version | set |
//! |---|---|---|
//! | Bolide | this tree | cache 1 GB, memtable 64 MB, no compression, sync off |
//! | RocksDB | Debian's 7.8.3 | LRU block cache 1 GB, write buffer 64 MB, no compression, Bloom 10 bits a key, WAL on, sync off |
//! | fjall | 3.1 | cache 1 GB, memtable 64 MB, no compression, journal not synced |
//! | redb | 4 | cache 1 GB, durability none; every 1,000th commit immediate, since redb reuses no page before |
//! | LMDB | heed 0.20 | no-sync, map 64 GB; its cache is the page cache |
//! | SQLite | bundled | `journal_mode=WAL`, `synchronous=OFF`, cache 1 GB, table without row ids, statements prepared once |

mod bolide;
#[cfg(feature = "peers")]
mod fjall;
#[cfg(feature = "peers")]
mod handmade;
#[cfg(feature = "peers")]
mod lmdb;
#[cfg(feature = "peers")]
mod redb;
#[cfg(feature = "peers")]
mod rocksdb;
#[cfg(feature = "peers")]
mod sqlite;
mod transactions;

use std::path::Path;

pub use self::bolide::SecondaryKey;
pub use self::transactions::{open_transactions, transaction_names};

use crate::engine::{Engine, IndexEngine, StoreSettings};
use crate::error::{Error, Result};

/// Names of the plain stores this build can run, Bolide first.
pub fn store_names(peers: bool) -> Vec<&'static str> {
    let mut names = vec!["bolide"];
    if peers && cfg!(feature = "peers") {
        names.extend(["rocksdb", "fjall", "redb", "lmdb", "sqlite"]);
    }
    names
}

/// Names of the stores with an index this build can run, Bolide first.
pub fn index_names(peers: bool) -> Vec<&'static str> {
    let mut names = vec!["bolide", "bolide-synchronous", "bolide-ps-tree"];
    if peers && cfg!(feature = "peers") {
        names.extend(["rocksdb", "rocksdb-blind", "fjall", "redb", "lmdb", "sqlite"]);
    }
    names
}

/// Opens the plain store `name` in the directory `path`, or creates it there.
pub fn open_store(name: &str, path: &Path, settings: &StoreSettings) -> Result<Box<dyn Engine>> {
    match name {
        "bolide" => bolide::open_store(path, settings),
        #[cfg(feature = "peers")]
        "rocksdb" => rocksdb::open_store(path, settings),
        #[cfg(feature = "peers")]
        "fjall" => fjall::open_store(path, settings),
        #[cfg(feature = "peers")]
        "redb" => redb::open_store(path, settings),
        #[cfg(feature = "peers")]
        "lmdb" => lmdb::open_store(path),
        #[cfg(feature = "peers")]
        "sqlite" => sqlite::open_store(path, settings),
        other => Err(unknown(other)),
    }
}

/// Opens the store with an index `name` in the directory `path`, or creates it there.
pub fn open_index(name: &str, path: &Path, settings: &StoreSettings) -> Result<Box<dyn IndexEngine>> {
    match name {
        "bolide" => bolide::open_index(path, settings, "composite"),
        "bolide-synchronous" => bolide::open_index(path, settings, "composite:maintenance=synchronous"),
        "bolide-ps-tree" => bolide::open_index(path, settings, "ps-tree"),
        #[cfg(feature = "peers")]
        "rocksdb" => rocksdb::open_index(path, settings, handmade::Removal::Read),
        #[cfg(feature = "peers")]
        "rocksdb-blind" => rocksdb::open_index(path, settings, handmade::Removal::Blind),
        #[cfg(feature = "peers")]
        "fjall" => fjall::open_index(path, settings),
        #[cfg(feature = "peers")]
        "redb" => redb::open_index(path, settings),
        #[cfg(feature = "peers")]
        "lmdb" => lmdb::open_index(path),
        #[cfg(feature = "peers")]
        "sqlite" => sqlite::open_index(path, settings),
        other => Err(unknown(other)),
    }
}

fn unknown(name: &str) -> Error {
    format!("no engine `{name}` in this build; peers need `--features peers`").into()
}
