//! A database with one kind of index, set up as in LevelDB++ (§5): compressed blocks, no block cache to
//! speak of, files whose filters and block indexes stay in memory.
//!
//! What must hold for the shapes to be those of the paper is that the data is many times the memtable, so
//! that nearly all of it, and of the indexes, lies in files. There, 100 GB stood against LevelDB's 4 MB;
//! here, tens of megabytes stand against [`MEMTABLE_BYTES`].

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
use crate::measure::{Cause, CountingVfs, IoCounters, because, disk_bytes, settle};

const TWEETS: &str = "tweets";
/// Memory of the memtables of records and indexes together.
pub const MEMTABLE_BYTES: usize = 256 << 10;
/// Size of an sstable.
pub const FILE_BYTES: u64 = 256 << 10;
/// Too small to keep blocks from one query to the next.
pub const CACHE_BYTES: usize = 64 << 10;
const SETTLE_LIMIT: Duration = Duration::from_secs(120);

/// An index as a figure shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// Its name in the figure.
    pub name: &'static str,
    /// Kind and options of the specification; `None` for no index at all.
    pub spec: Option<&'static str>,
}

/// No index.
pub const NONE: Kind = Kind { name: "none", spec: None };
/// Filters in the sstables, as long as the paper has them (100 bits a value).
pub const EMBEDDED: Kind = Kind { name: "embedded", spec: Some("embedded:bloom_bits=100") };
/// Filters in the sstables, as long as they are by default (20 bits a value).
pub const EMBEDDED_SHORT: Kind = Kind { name: "embedded (20 bits)", spec: Some("embedded") };
/// Posting lists appended to.
pub const LAZY: Kind = Kind { name: "lazy", spec: Some("lazy") };
/// Composite keys in the paper's order.
pub const COMPOSITE: Kind = Kind { name: "composite (paper)", spec: Some("composite:order=primary-key") };
/// Composite keys in the default order.
pub const COMPOSITE_NEWEST: Kind = Kind { name: "composite (newest first)", spec: Some("composite") };
/// Posting lists rewritten whole, as in the paper.
pub const EAGER: Kind = Kind { name: "eager (paper)", spec: Some("eager:split=off") };
/// Posting lists rewritten in pieces.
pub const EAGER_SPLIT: Kind = Kind { name: "eager (split)", spec: Some("eager") };

/// How the databases of a figure are made.
#[derive(Debug, Clone)]
pub struct Place {
    /// Where databases are made; the system's folder for temporary files if `None`.
    pub directory: Option<PathBuf>,
}

/// An open database.
pub struct Subject {
    // Before the folder, which goes when it is dropped.
    db: Db,
    tweets: Collection,
    io: Arc<IoCounters>,
    folder: tempfile::TempDir,
}

impl Subject {
    /// A new database with an index of `kind` on each of `attributes`.
    pub fn open(place: &Place, kind: Kind, attributes: &[&str], compressed: bool) -> Result<Self> {
        let folder = match &place.directory {
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

    /// The reads of its files.
    pub fn io(&self) -> &IoCounters {
        &self.io
    }

    /// Waits for flushes and compactions to end.
    pub fn settle(&self) {
        settle(SETTLE_LIMIT);
    }

    /// Writes everything to sstables.
    pub fn flush(&self) -> Result<()> {
        self.db.flush()?;
        self.settle();
        Ok(())
    }

    /// Bytes on disk.
    pub fn disk_bytes(&self) -> Result<u64> {
        Ok(disk_bytes(self.folder.path())?)
    }

    /// Sorted runs on disk of the table, and of the first index.
    pub fn runs(&self) -> (usize, usize) {
        let stats = self.db.stats();
        let Some(collection) = stats.collections.first() else { return (0, 0) };
        (collection.table.runs(), collection.indexes.first().map_or(0, |index| index.tree.runs()))
    }

    /// Puts a record.
    pub fn put(&self, tweet: &Tweet) -> Result<()> {
        Ok(because(Cause::Put, || self.tweets.put(&primary_key(tweet.number), &tweet.json))?)
    }

    /// Reads a record by its primary key; false if there is none.
    pub fn get(&self, number: u64) -> Result<bool> {
        Ok(because(Cause::Get, || self.tweets.get_pinned(&primary_key(number)))?.is_some())
    }

    /// The newest `limit` records with this value of `attribute`, all without a limit. Returns how many.
    pub fn lookup(&self, attribute: &str, json: &str, limit: Option<usize>) -> Result<usize> {
        let value: serde_json::Value = serde_json::from_str(json)?;
        let query = match value {
            serde_json::Value::String(text) => Query::new().eq(attribute, text.as_str()),
            other => Query::new().eq(attribute, other.as_i64().unwrap_or_default()),
        };
        self.run(query, limit)
    }

    /// The newest `limit` records with values of `attribute` in a range of times.
    pub fn range_of_times(
        &self,
        attribute: &str,
        range: RangeInclusive<u64>,
        limit: Option<usize>,
    ) -> Result<usize> {
        self.run(Query::new().range(attribute, range), limit)
    }

    /// The newest `limit` records with values of `attribute` in a range of names.
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
        let answers =
            because(Cause::Lookup, || self.tweets.find_with(&query, &FindOptions::default().measure(false)))?;
        Ok(answers.into_vec().len())
    }
}
