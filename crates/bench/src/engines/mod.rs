//! The stores under test, behind two small traits.
//!
//! A workload opens one [`Connection`] per thread and hands it batches of operations. A store
//! that writes records one by one (Bolide, RocksDB, fjall) just runs them; a store that lives by
//! transactions (LMDB, redb, SQLite) wraps each batch in one. The workload chooses the batches so
//! that a transaction holds about 100 writes.
//!
//! # Configuration, alike for all
//!
//! 1 GB of cache, 64 MB memtables, no compression, the log written and not synced (a crash of the
//! program loses nothing, a power cut may), everything else as the library ships it:
//!
//! | store | version | set |
//! |---|---|---|
//! | Bolide | this tree | cache 1 GB, memtable 64 MB, no compression, sync off |
//! | RocksDB | Debian's 7.8.3 | LRU block cache 1 GB, write buffer 64 MB, no compression, Bloom 10 bits a key, WAL on, sync off |
//! | fjall | 3.1 | cache 1 GB, memtable 64 MB, no compression, journal not synced |
//! | redb | 4 | cache 1 GB, durability none; every 1,000th commit immediate, as redb reuses no page before |
//! | LMDB | heed 0.20 | no-sync, map 64 GB; its cache is the page cache |
//! | SQLite | bundled | `journal_mode=WAL`, `synchronous=OFF`, cache 1 GB, table without row ids, statements prepared once |

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

use crate::Result;

/// Block or page cache of every store, in bytes.
pub const CACHE_BYTES: usize = 1 << 30;

/// Memtable or write buffer of every LSM store, in bytes.
pub const MEMTABLE_BYTES: usize = 64 << 20;

/// Most the memory map of LMDB may grow to, in bytes.
#[cfg(feature = "peers")]
pub const MAP_BYTES: usize = 64 << 30;

/// Whether a batch of operations writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Gets and scans alone.
    Read,
    /// Anything.
    Write,
}

/// How Bolide arranges its sorted runs; the peers have no such choice here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Layout {
    /// Few runs, more rewriting.
    Leveled,
    /// More runs, less rewriting.
    Tiered,
}

/// What a row asks of a plain store, inside one batch.
pub trait Session {
    /// Sets `key` to `value`.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Calls `read` with the value of `key`, if there is one, and says whether there was.
    fn get(&mut self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Visits at most `limit` records from the first key at or after `start` on, in key order.
    /// Returns how many there were. A seek is a scan of one.
    fn scan(&mut self, start: &[u8], limit: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize>;
}

/// A body of operations to run inside one batch.
pub type Batch<'b> = &'b mut dyn FnMut(&mut dyn Session) -> Result<()>;

/// One thread's access to a plain store.
pub trait Connection {
    /// Runs `body`, inside a transaction if the store works by transactions.
    fn batch(&mut self, access: Access, body: Batch<'_>) -> Result<()>;
}

/// A plain store, open.
pub trait Engine: Sync {
    /// Access for the calling thread.
    fn connect(&self) -> Result<Box<dyn Connection + '_>>;
}

/// What a lookup by secondary key brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fetch {
    /// Primary keys alone.
    Keys,
    /// Primary keys and whole records.
    Records,
}

/// Called with a primary key and, if asked for, its record.
pub type Visit<'v> = &'v mut dyn FnMut(&[u8], Option<&[u8]>);

/// What a row asks of a store with an index on one attribute, inside one batch.
///
/// A record's first eight bytes are its secondary key, big-endian; the next eight its version,
/// which grows with every write ([`crate::workloads::index`]).
pub trait IndexSession {
    /// Sets `primary` to `record`, which may or may not replace an older one. Table and index
    /// change together.
    fn put(&mut self, primary: &[u8], record: &[u8]) -> Result<()>;

    /// Visits the newest `limit` records whose secondary key is `secondary`, newest first.
    /// Returns how many there were.
    fn newest(&mut self, secondary: u64, limit: usize, fetch: Fetch, visit: Visit<'_>) -> Result<usize>;
}

/// A body of operations on a store with an index to run inside one batch.
pub type IndexBatch<'b> = &'b mut dyn FnMut(&mut dyn IndexSession) -> Result<()>;

/// One thread's access to a store with an index.
pub trait IndexConnection {
    /// Runs `body`, inside a transaction if the store works by transactions.
    fn batch(&mut self, access: Access, body: IndexBatch<'_>) -> Result<()>;
}

/// A store with an index on one attribute, open.
pub trait IndexEngine: Sync {
    /// Access for the calling thread.
    fn connect(&self) -> Result<Box<dyn IndexConnection + '_>>;
}

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
    let mut names = vec!["bolide", "bolide-synchronous"];
    if peers && cfg!(feature = "peers") {
        names.extend(["rocksdb", "rocksdb-blind", "fjall", "redb", "lmdb", "sqlite"]);
    }
    names
}

/// Opens the plain store `name` in the empty directory `path`.
pub fn open_store(name: &str, path: &Path, layout: Layout) -> Result<Box<dyn Engine>> {
    match name {
        "bolide" => bolide::open_store(path, layout),
        #[cfg(feature = "peers")]
        "rocksdb" => rocksdb::open_store(path),
        #[cfg(feature = "peers")]
        "fjall" => fjall::open_store(path),
        #[cfg(feature = "peers")]
        "redb" => redb::open_store(path),
        #[cfg(feature = "peers")]
        "lmdb" => lmdb::open_store(path),
        #[cfg(feature = "peers")]
        "sqlite" => sqlite::open_store(path),
        other => Err(unknown(other)),
    }
}

/// Opens the store with an index `name` in the empty directory `path`.
pub fn open_index(name: &str, path: &Path, layout: Layout) -> Result<Box<dyn IndexEngine>> {
    match name {
        "bolide" => bolide::open_index(path, layout, bolide::Maintenance::Validation),
        "bolide-synchronous" => bolide::open_index(path, layout, bolide::Maintenance::Synchronous),
        #[cfg(feature = "peers")]
        "rocksdb" => rocksdb::open_index(path, handmade::Removal::Read),
        #[cfg(feature = "peers")]
        "rocksdb-blind" => rocksdb::open_index(path, handmade::Removal::Blind),
        #[cfg(feature = "peers")]
        "fjall" => fjall::open_index(path),
        #[cfg(feature = "peers")]
        "redb" => redb::open_index(path),
        #[cfg(feature = "peers")]
        "lmdb" => lmdb::open_index(path),
        #[cfg(feature = "peers")]
        "sqlite" => sqlite::open_index(path),
        other => Err(unknown(other)),
    }
}

fn unknown(name: &str) -> crate::Error {
    format!("no engine `{name}` in this build; peers need `--features peers`").into()
}

#[cfg(feature = "peers")]
mod handmade;
