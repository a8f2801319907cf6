//! The interface of a measured store: two small traits and the common settings.
//!
//! A workload opens one [`Connection`] per thread and passes it batches of operations. A store that writes single records
//! (Bolide, RocksDB, fjall) runs them directly; a transactional store (LMDB, redb, SQLite) runs each batch in a
//! transaction. The batch sizes are such that a transaction has about 100 writes.

pub use bolide::Layout;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde::{Deserialize, Serialize};

use crate::error::Result;

/// Block or page cache of every store, in bytes.
pub const CACHE_BYTES: usize = 1 << 30;

/// Memtable or write buffer of every LSM store, in bytes.
pub const MEMTABLE_BYTES: usize = 64 << 20;

/// Maximum size of the memory map of LMDB, in bytes.
#[cfg(feature = "peers")]
pub const MAP_BYTES: usize = 64 << 30;

/// The access of a batch of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Gets and scans only.
    Read,
    /// Reads and writes.
    Write,
}

/// A parser of the names of layouts.
pub fn layouts() -> impl TypedValueParser<Value = Layout> {
    let names = Layout::ALL.map(|layout| PossibleValue::new(layout.name()).help(layout.summary()));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Layout>())
}

/// The names of layouts in files.
pub mod layout_name {
    use bolide::Layout;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// Writes the name.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(layout: &Layout, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(layout.name())
    }

    /// Reads a name.
    ///
    /// # Errors
    /// Those of the deserializer; an unknown name.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Layout, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// The layouts of Bolide with sorted views.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Views {
    /// None.
    Never,
    /// Those with partitions, the default of Bolide.
    Partitions,
    /// Those with partitions and tiered ones.
    Always,
}

impl Views {
    /// The setting as an option of Bolide.
    pub fn of_bolide(self) -> bolide::SortedViews {
        match self {
            Self::Never => bolide::SortedViews::Never,
            Self::Partitions => bolide::SortedViews::Partitions,
            Self::Always => bolide::SortedViews::Always,
        }
    }
}

/// The settings of Bolide for the records of one store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrangement {
    /// The layout of its sorted runs.
    #[serde(with = "layout_name")]
    pub layout: Layout,
    /// The layouts with sorted views.
    pub views: Views,
    /// True for gets through views with tags instead of Bloom filters.
    pub view_tags: bool,
    /// The data written to a partition before the rebuild of its view, in percent of the data of the view.
    pub view_delay_percent: u32,
}

impl Arrangement {
    /// The default settings of a layout.
    pub fn of(layout: Layout) -> Self {
        Self { layout, views: Views::Partitions, view_tags: false, view_delay_percent: 0 }
    }
}

/// The settings of a store. Engines without a cache or a memtable ignore their size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreSettings {
    /// Bolide's arrangement.
    pub arrangement: Arrangement,
    /// Block or page cache, in bytes.
    pub cache_bytes: usize,
    /// Memtable or write buffer, in bytes.
    pub memtable_bytes: usize,
    /// The target size of an sstable of Bolide in bytes; `None` for the default.
    pub file_bytes: Option<u64>,
}

impl StoreSettings {
    /// The settings of the workloads of stores and indexes.
    pub fn of(arrangement: Arrangement) -> Self {
        Self { arrangement, cache_bytes: CACHE_BYTES, memtable_bytes: MEMTABLE_BYTES, file_bytes: None }
    }

    /// The settings of a run whose memory is limited to `cold_mib` MiB: caches of a quarter of that, memtables of at most an
    /// eighth.
    pub fn of_cold_run(arrangement: Arrangement, cold_mib: Option<u64>) -> Self {
        let settings = Self::of(arrangement);
        match cold_mib.map(|mib| (mib << 20) as usize) {
            Some(bytes) => Self {
                cache_bytes: bytes / 4,
                memtable_bytes: settings.memtable_bytes.min(bytes / 8),
                ..settings
            },
            None => settings,
        }
    }
}

/// The operations of a row on a plain store, inside one batch.
pub trait Session {
    /// Sets `key` to `value`.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Calls `read` with the value of `key`, if there is one, and returns whether there is.
    fn get(&mut self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Visits at most `limit` records from the first key at or after `start` on, in key order. Returns their number. A seek
    /// is a scan of one record.
    fn scan(&mut self, start: &[u8], limit: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize>;
}

/// The operations of one batch.
pub type Batch<'b> = &'b mut dyn FnMut(&mut dyn Session) -> Result<()>;

/// One thread's access to a plain store.
pub trait Connection {
    /// Runs `body`, inside a transaction if the store works by transactions.
    fn batch(&mut self, access: Access, body: Batch<'_>) -> Result<()>;
}

/// An open plain store.
pub trait Engine: Sync {
    /// Access for the calling thread.
    fn connect(&self) -> Result<Box<dyn Connection + '_>>;

    /// Bytes written to files through a mapping so far, which no counter of the system includes.
    fn mapped_bytes(&self) -> u64 {
        0
    }
}

/// The result of a lookup by secondary key.
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
    /// Sets `primary` to `record`, which may replace an older record. Changes table and index atomically.
    fn put(&mut self, primary: &[u8], record: &[u8]) -> Result<()>;

    /// Visits the newest `limit` records whose secondary key is `secondary`, newest first.
    /// Returns their number.
    fn newest(&mut self, secondary: u64, limit: usize, fetch: Fetch, visit: Visit<'_>) -> Result<usize>;
}

/// The operations of one batch on a store with an index.
pub type IndexBatch<'b> = &'b mut dyn FnMut(&mut dyn IndexSession) -> Result<()>;

/// One thread's access to a store with an index.
pub trait IndexConnection {
    /// Runs `body`, inside a transaction if the store works by transactions.
    fn batch(&mut self, access: Access, body: IndexBatch<'_>) -> Result<()>;
}

/// An open store with an index on one attribute.
pub trait IndexEngine: Sync {
    /// Access for the calling thread.
    fn connect(&self) -> Result<Box<dyn IndexConnection + '_>>;

    /// Bytes written to files through a mapping so far, which no counter of the system includes.
    fn mapped_bytes(&self) -> u64 {
        0
    }
}
