//! A database with one kind of index and the settings of LevelDB++ (§5): compressed blocks, a minimal block cache, and filters
//! and block indexes in memory.
//!
//! The data is many times the memtable, as in the paper, so that nearly all records and index entries are in files: 100 GB
//! with a memtable of 4 MB in the paper, tens of megabytes with [`MEMTABLE_BYTES`] here.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bolide::storage::DiskVfs;
use bolide::{
    Collection, CollectionOptions, Components, Compression, Db, FindOptions, Options, Query, SyncMode,
};

use super::dataset::{Tweet, primary_key};
use crate::error::Result;
use crate::measure::{Cause, CountingVfs, IoCounters, disk_bytes, settle, with_cause};

const TWEETS: &str = "tweets";
/// Memory of the memtables of records and indexes together.
pub const MEMTABLE_BYTES: usize = 256 << 10;
/// Size of an sstable.
pub const FILE_BYTES: u64 = 256 << 10;
/// Block cache: too small to cache blocks from one query to the next.
pub const CACHE_BYTES: usize = 64 << 10;
const SETTLE_LIMIT: Duration = Duration::from_secs(120);

/// A compared index: a kind with options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexVariant {
    /// Its name in the figure.
    pub name: &'static str,
    /// Kind and options of the specification; `None` for no index at all.
    pub spec: Option<&'static str>,
}

/// No index.
pub const NONE: IndexVariant = IndexVariant { name: "none", spec: None };
/// Filters in the sstables, with the length of the paper (100 bits a value).
pub const EMBEDDED: IndexVariant = IndexVariant { name: "embedded", spec: Some("embedded:bloom_bits=100") };
/// Filters in the sstables, with the default length (20 bits a value).
pub const EMBEDDED_SHORT: IndexVariant = IndexVariant { name: "embedded (20 bits)", spec: Some("embedded") };
/// Posting lists that writes append to.
pub const LAZY: IndexVariant = IndexVariant { name: "lazy", spec: Some("lazy") };
/// Composite keys in the paper's order.
pub const COMPOSITE: IndexVariant =
    IndexVariant { name: "composite (paper)", spec: Some("composite:order=primary-key") };
/// Composite keys in the default order.
pub const COMPOSITE_NEWEST: IndexVariant =
    IndexVariant { name: "composite (newest first)", spec: Some("composite") };
/// Posting lists that writes rewrite as a whole, as in the paper.
pub const EAGER: IndexVariant = IndexVariant { name: "eager (paper)", spec: Some("eager:split=off") };
/// Posting lists that are split, and rewritten by parts.
pub const EAGER_SPLIT: IndexVariant = IndexVariant { name: "eager (split)", spec: Some("eager") };

/// The location of databases.
#[derive(Debug, Clone)]
pub struct DatabaseLocation {
    /// The parent directory; `None` for the system's directory for temporary files.
    pub directory: Option<PathBuf>,
}

/// An open database.
pub struct IndexedDatabase {
    // Declared before the folder, which is removed at its drop.
    db: Db,
    tweets: Collection,
    io: Arc<IoCounters>,
    folder: tempfile::TempDir,
}

impl IndexedDatabase {
    /// A new database with an index of `kind` on each of `attributes`.
    pub fn open(
        location: &DatabaseLocation,
        kind: IndexVariant,
        attributes: &[&str],
        compressed: bool,
    ) -> Result<Self> {
        let folder = match &location.directory {
            Some(directory) => tempfile::tempdir_in(directory)?,
            None => tempfile::tempdir()?,
        };
        let vfs = Arc::new(CountingVfs::new(Arc::new(DiskVfs::new())));
        let io = vfs.counters();
        let options =
            Options::default().cache_bytes(CACHE_BYTES).memtable_bytes(MEMTABLE_BYTES).sync(SyncMode::None);
        let db = Db::open_with(folder.path().join("db"), options, Components::system().vfs(vfs))?;
        let compression = if compressed { Compression::Lz4 } else { Compression::None };
        let mut collection = CollectionOptions::json().compression(compression).target_file_bytes(FILE_BYTES);
        for attribute in attributes.iter().filter(|_| kind.spec.is_some()) {
            collection = collection.index(format!("{attribute}:{}", kind.spec.unwrap_or("")).parse()?);
        }
        let tweets = db.create_collection(TWEETS, collection)?;
        Ok(Self { db, tweets, io, folder })
    }

    /// The counts of its file accesses.
    pub fn io(&self) -> &IoCounters {
        &self.io
    }

    /// Waits for flushes and compactions to end.
    pub fn settle(&self) {
        settle(SETTLE_LIMIT);
    }

    /// Flushes the memtables and waits for the background work.
    pub fn flush(&self) -> Result<()> {
        self.db.flush()?;
        self.settle();
        Ok(())
    }

    /// Bytes on disk.
    pub fn disk_bytes(&self) -> Result<u64> {
        Ok(disk_bytes(self.folder.path())?)
    }

    /// The numbers of sorted runs on disk, of the table and of the first index.
    pub fn runs(&self) -> (usize, usize) {
        let stats = self.db.stats();
        let Some(collection) = stats.collections.first() else { return (0, 0) };
        (collection.table.runs(), collection.indexes.first().map_or(0, |index| index.tree.runs()))
    }

    /// Puts a record.
    pub fn put(&self, tweet: &Tweet) -> Result<()> {
        Ok(with_cause(Cause::Put, || self.tweets.put(&primary_key(tweet.number), &tweet.json))?)
    }

    /// Reads a record by its primary key. Returns false if there is none.
    pub fn get(&self, number: u64) -> Result<bool> {
        Ok(with_cause(Cause::Get, || self.tweets.get_pinned(&primary_key(number)))?.is_some())
    }

    /// Reads the newest `limit` records with this value of `attribute`, or all. Returns their number.
    pub fn lookup(&self, attribute: &str, json: &str, limit: Option<usize>) -> Result<usize> {
        let value: serde_json::Value = serde_json::from_str(json)?;
        let query = match value {
            serde_json::Value::String(text) => Query::new().eq(attribute, text.as_str()),
            other => Query::new().eq(attribute, other.as_i64().unwrap_or_default()),
        };
        self.run(query, limit)
    }

    /// Reads the newest `limit` records with `attribute` in a range of times. Returns their number.
    pub fn range_of_times(
        &self,
        attribute: &str,
        range: RangeInclusive<u64>,
        limit: Option<usize>,
    ) -> Result<usize> {
        self.run(Query::new().range(attribute, range), limit)
    }

    /// Reads the newest `limit` records with `attribute` in a range of names. Returns their number.
    pub fn range_of_names(
        &self,
        attribute: &str,
        range: RangeInclusive<&str>,
        limit: Option<usize>,
    ) -> Result<usize> {
        self.run(Query::new().range(attribute, range), limit)
    }

    fn run(&self, query: Query, limit: Option<usize>) -> Result<usize> {
        let query = match limit {
            Some(limit) => query.limit(limit),
            None => query,
        };
        let answers = with_cause(Cause::Lookup, || {
            self.tweets.find_with(&query, &FindOptions::default().measure(false))
        })?;
        Ok(answers.into_vec().len())
    }
}
