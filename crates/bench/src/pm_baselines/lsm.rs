//! An index in LSM trees of a database (Perseid §2.2). Composite keys are validated by the table or by a tree of primary keys
//! (the primary key index of Luo and Carey). Files are on disk or in memory.

use std::sync::Arc;

use bolide::storage::MemVfs;
use bolide::{
    Collection, CollectionOptions, Components, Compression, Db, FindOptions, Options, Order, Query, SyncMode,
    Value, WriteBatch,
};

use super::keys;
use crate::engines::SecondaryKey;
use crate::error::Result;

/// The index and the settings of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LsmKind {
    /// Kind and options of the index; `None` for records without one.
    pub index: Option<&'static str>,
    /// All files in memory.
    pub in_memory: bool,
    /// Bytes of the block cache.
    pub cache_bytes: usize,
    /// Bytes of the memtables.
    pub memtable_bytes: usize,
    /// Tiered layout instead of leveled.
    pub tiered: bool,
}

/// A record: its secondary key, and `filler`.
fn record_of(secondary: u64, filler: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(8 + filler.len());
    record.extend_from_slice(&keys::secondary_key(secondary));
    record.extend_from_slice(filler);
    record
}

/// A database with an index on the first eight bytes of its records.
pub struct LsmIndex {
    // Declared before the folder, which is removed at its drop.
    db: Db,
    records: Collection,
    _folder: Option<tempfile::TempDir>,
}

impl LsmIndex {
    /// The name of the collection.
    pub const RECORDS: &str = "records";
    /// The attribute that is the first eight bytes of a record.
    pub const ATTRIBUTE: &str = "secondary";

    /// An empty one below `directory`, or the system's for temporary files; `components` for what `kind` leaves
    /// open.
    ///
    /// # Errors
    /// `Io` where it cannot be made.
    pub fn create(
        kind: LsmKind,
        directory: Option<&std::path::Path>,
        components: Components,
    ) -> Result<Self> {
        if kind.in_memory {
            return Self::create_in(kind, "db".as_ref(), components.vfs(Arc::new(MemVfs::new())));
        }
        let folder = match directory {
            Some(directory) => tempfile::tempdir_in(directory)?,
            None => tempfile::tempdir()?,
        };
        let made = Self::create_in(kind, &folder.path().join("db"), components)?;
        Ok(Self { _folder: Some(folder), ..made })
    }

    /// An empty one in the directory `path`, which stays.
    ///
    /// # Errors
    /// `Io` where it cannot be made.
    pub fn create_in(kind: LsmKind, path: &std::path::Path, components: Components) -> Result<Self> {
        let indexes: Vec<String> =
            kind.index.iter().map(|index| format!("{}:{index}", Self::ATTRIBUTE)).collect();
        Self::create_with(kind, path, components, &indexes)
    }

    /// A database with the declared `indexes` on [`ATTRIBUTE`](Self::ATTRIBUTE).
    ///
    /// # Errors
    /// `Io` from the files; `InvalidInput` for an invalid declaration.
    pub fn create_with(
        kind: LsmKind,
        path: &std::path::Path,
        components: Components,
        indexes: &[String],
    ) -> Result<Self> {
        let components = components.extractor(Self::RECORDS, Arc::new(SecondaryKey));
        let options = Options::default()
            .cache_bytes(kind.cache_bytes)
            .memtable_bytes(kind.memtable_bytes)
            .sync(SyncMode::None);
        let db = Db::open_with(path, options, components)?;
        let layout = if kind.tiered { bolide::Layout::Tiered } else { bolide::Layout::Leveled };
        let mut collection = CollectionOptions::bytes().layout(layout).compression(Compression::None);
        for index in indexes {
            collection = collection.index(index.parse()?);
        }
        let records = db.create_collection(Self::RECORDS, collection)?;
        Ok(Self { db, records, _folder: None })
    }

    /// Closes the database.
    ///
    /// # Errors
    /// `Io` from the files.
    pub fn close(self) -> Result<()> {
        drop(self.records);
        Ok(self.db.close()?)
    }

    /// The database.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Its collection.
    pub fn records(&self) -> &Collection {
        &self.records
    }

    /// Puts record `number` with a secondary key and filler bytes.
    ///
    /// # Errors
    /// `Io` from the files.
    pub fn put(&self, secondary: u64, number: u64, filler: &[u8]) -> Result<()> {
        Ok(self.records.put(&keys::primary_key(number), &record_of(secondary, filler))?)
    }

    /// [`put`](Self::put) that returns the sequence number of the write.
    ///
    /// # Errors
    /// `Io` from the files.
    pub fn put_numbered(&self, secondary: u64, number: u64, filler: &[u8]) -> Result<u64> {
        let mut batch = WriteBatch::new();
        batch.put(&self.records, &keys::primary_key(number), &record_of(secondary, filler))?;
        Ok(self.db.write(batch)?)
    }

    /// The encoded secondary key in an index of the database.
    ///
    /// # Errors
    /// None for numbers.
    pub fn index_key(secondary: u64) -> Result<Vec<u8>> {
        let mut key = Vec::with_capacity(9);
        Value::Uint(keys::secondary_value(secondary)).encode(&mut key)?;
        Ok(key)
    }

    /// The query for the newest `limit` records with a secondary key.
    pub fn newest_of(secondary: u64, limit: usize) -> Query {
        Query::new().eq(Self::ATTRIBUTE, keys::secondary_value(secondary)).order(Order::Newest).limit(limit)
    }

    /// The query for the newest `limit` records of each of `count` secondary keys from `first` on.
    pub fn newest_of_each(first: u64, count: u64, limit: usize) -> Query {
        let range = keys::secondary_value(first)..keys::secondary_value(first + count);
        Query::new().range(Self::ATTRIBUTE, range).order(Order::Value).limit_per_value(limit)
    }

    /// Runs a query for keys alone and passes them to `visit`.
    ///
    /// # Errors
    /// `Corruption` or `Io` from the files.
    pub fn keys(&self, query: Query, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        let answers = self.records.find_with(&query.keys_only(), &FindOptions::default())?;
        answers.iter().for_each(|answer| visit(&answer.key));
        Ok(())
    }
}
