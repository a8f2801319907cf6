//! What a store must offer to be measured: two small traits, and the figures all are configured with.
//!
//! A workload opens one [`Connection`] per thread and hands it batches of operations. A store
//! that writes records one by one (Bolide, RocksDB, fjall) just runs them; a store that lives by
//! transactions (LMDB, redb, SQLite) wraps each batch in one. The workload chooses the batches so
//! that a transaction holds about 100 writes.

use serde::{Deserialize, Serialize};

use crate::error::Result;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Layout {
    /// Few runs, more rewriting.
    Leveled,
    /// More runs, less rewriting.
    Tiered,
    /// Levels of partitions.
    Fragmented,
    /// One level of partitions, which full memtables go straight into.
    Partitioned,
}

impl Layout {
    /// The layout as Bolide calls it.
    pub fn of_bolide(self) -> bolide::Layout {
        match self {
            Self::Leveled => bolide::Layout::Leveled,
            Self::Tiered => bolide::Layout::Tiered,
            Self::Fragmented => bolide::Layout::Fragmented,
            Self::Partitioned => bolide::Layout::Partitioned,
        }
    }
}

/// Which layouts of Bolide have sorted views.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Views {
    /// None.
    Never,
    /// Those with partitions, as it is shipped.
    Partitions,
    /// Those and tiered ones.
    Always,
}

impl Views {
    /// The choice as Bolide calls it.
    pub fn of_bolide(self) -> bolide::SortedViews {
        match self {
            Self::Never => bolide::SortedViews::Never,
            Self::Partitions => bolide::SortedViews::Partitions,
            Self::Always => bolide::SortedViews::Always,
        }
    }
}

/// How Bolide keeps the records of one store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrangement {
    /// Of its sorted runs.
    pub layout: Layout,
    /// Whether they are read through sorted views.
    pub views: Views,
    /// Whether gets go through views with tags instead of Bloom filters.
    pub view_tags: bool,
    /// How much is written to a partition before its view is renewed, in percent of what the view has.
    pub view_delay_percent: u32,
}

impl Arrangement {
    /// That of a layout as it is shipped.
    pub fn of(layout: Layout) -> Self {
        Self { layout, views: Views::Partitions, view_tags: false, view_delay_percent: 0 }
    }
}

/// How a plain store is set up. All engines take cache and memtable, as far as they have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Bolide's arrangement.
    pub arrangement: Arrangement,
    /// Block or page cache, in bytes.
    pub cache_bytes: usize,
    /// Memtable or write buffer, in bytes.
    pub memtable_bytes: usize,
    /// Where Bolide begins another sstable, in bytes; `None` as it is shipped.
    pub file_bytes: Option<u64>,
}

impl Setting {
    /// That of the plain-store workload.
    pub fn of(arrangement: Arrangement) -> Self {
        Self { arrangement, cache_bytes: CACHE_BYTES, memtable_bytes: MEMTABLE_BYTES, file_bytes: None }
    }
}

/// The operations of a row on a plain store, inside one batch.
pub trait Session {
    /// Sets `key` to `value`.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Calls `read` with the value of `key`, if there is one, and returns whether there is.
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

    /// Bytes written to files through a mapping so far, which the system counts nowhere.
    fn mapped_bytes(&self) -> u64 {
        0
    }
}

/// What a lookup by secondary key brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fetch {
    /// Primary keys alone.
    Keys,
    /// Primary keys and whole records.
    Records,
}

/// Called with a primary key and, if requested, its record.
pub type Visit<'v> = &'v mut dyn FnMut(&[u8], Option<&[u8]>);

/// The operations of a row on a store with an index on one attribute, inside one batch.
///
/// A record's first eight bytes are its secondary key, big-endian; the next eight its version,
/// which grows with every write ([`crate::data::indexed_record`]).
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

    /// Bytes written to files through a mapping so far, which the system counts nowhere.
    fn mapped_bytes(&self) -> u64 {
        0
    }
}
