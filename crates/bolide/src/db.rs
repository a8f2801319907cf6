//! An open database.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bolide_base::limits::MAX_COLLECTIONS;
use bolide_base::{Error, ErrorKind, Result, SequenceNumber};
use bolide_lsm::Store;

use crate::catalog::{CollectionDescriptor, CollectionLifecycle as Life, check_name};
use crate::check::{self, CheckReport};
use crate::collection_options::CollectionOptions;
use crate::collection_trees;
use crate::components::Components;
use crate::handle::{Collection, Engine, Handle};
use crate::open;
use crate::options::{Options, WriteOptions};
use crate::schema::OpenCollection;
use crate::snapshot::Snapshot;
use crate::stale_removal;
use crate::stats::{self, DbStats};
use crate::trace::Trace;
use crate::write_batch::WriteBatch;

/// An open database: collections of records, with their indexes.
///
/// Cheap to clone; all clones are the same database, and all methods may be called from many threads.
/// It is closed when the last clone, collection, snapshot, cursor and iterator of it is gone. A
/// directory can be open once at a time.
///
/// ```
/// use bolide::{Db, Options};
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("db");
/// let db = Db::open(&path, Options::default())?;
/// let posts = db.create_collection("posts", Default::default())?;
/// posts.put(b"1", br#"{"subreddit":"rust","score":17}"#)?;
/// assert!(posts.get(b"1")?.is_some());
/// # Ok::<(), bolide::Error>(())
/// ```
#[derive(Clone)]
pub struct Db {
    pub(crate) handle: Arc<Handle>,
}

impl Db {
    /// Opens the database in the directory `path`, creating it if there is none.
    ///
    /// Cost: reads the manifest, and the log of writes that are not in sstables yet.
    ///
    /// # Errors
    /// `Locked` if it is open already, here or in another process; `NotFound` if there is none and
    /// [`Options::create_if_missing`](Options::create_if_missing()) is off; `Corruption` with file and
    /// offset; `Unsupported` for files of a newer version; `Io`, `NoSpace`.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open_with(path, options, Components::system())
    }

    /// Opens a database with the given components; see [`open`](Self::open).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn open_with(path: impl AsRef<Path>, options: Options, components: Components) -> Result<Self> {
        Ok(Self { handle: open::open(path.as_ref(), options, components, false)? })
    }

    /// Opens a database for reading: no byte of it is changed, so it may be on a read-only medium.
    ///
    /// It contains what was written when it was opened. It takes no lock: the caller must ensure that there is no
    /// writer meanwhile (a [checkpoint](Self::checkpoint) is never written). A concurrent writer may remove files that
    /// it reads; then reads fail with an error. [`has_writer`](Self::has_writer) reports a writer.
    ///
    /// # Errors
    /// As [`open`](Self::open). Later, every write fails with `ReadOnly`.
    ///
    /// ```
    /// use bolide::{Components, Db, ErrorKind, Options};
    /// let components = Components::in_memory();
    /// let db = Db::open_with("db", Options::default(), components.clone())?;
    /// db.create_collection("notes", Default::default())?.put(b"1", b"{}")?;
    /// drop(db);
    /// let db = Db::open_read_only_with("db", Options::default(), components)?;
    /// let notes = db.collection("notes")?;
    /// assert!(notes.get(b"1")?.is_some());
    /// assert_eq!(notes.put(b"2", b"{}").unwrap_err().kind(), ErrorKind::ReadOnly);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn open_read_only(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open_read_only_with(path, options, Components::system())
    }

    /// Opens a database for reading with the given components; see [`open_read_only`](Self::open_read_only).
    ///
    /// # Errors
    /// As [`open_read_only`](Self::open_read_only).
    pub fn open_read_only_with(
        path: impl AsRef<Path>,
        options: Options,
        components: Components,
    ) -> Result<Self> {
        Ok(Self { handle: open::open(path.as_ref(), options, components, true)? })
    }

    /// Whether a database is open for writing now, in this process or another one. False if there is no database.
    /// Changes nothing, but a simultaneous opening for writing may be refused.
    ///
    /// # Errors
    /// Those of the file system.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let components = Components::in_memory();
    /// let db = Db::open_with("db", Options::default(), components.clone())?;
    /// assert!(Db::has_writer("db", &components)?);
    /// drop(db);
    /// assert!(!Db::has_writer("db", &components)?);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn has_writer(path: impl AsRef<Path>, components: &Components) -> Result<bool> {
        Store::has_writer(&*components.vfs, path.as_ref())
    }

    /// Creates a collection, with the indexes that `options` lists. Durable when it returns.
    ///
    /// # Errors
    /// `Conflict` if the name is taken; `LimitExceeded` for a name over 255 bytes, for more than
    /// [`MAX_COLLECTIONS`] collections or too many indexes; `InvalidInput` for an empty name, for two
    /// indexes of one name, or for an index on bytes without an extractor; `ReadOnly`, `Poisoned`.
    ///
    /// ```
    /// use bolide::{CollectionOptions, Components, Db, ErrorKind, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// db.create_collection("posts", CollectionOptions::default().index("subreddit".parse()?))?;
    /// let error = db.create_collection("posts", CollectionOptions::default()).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Conflict);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn create_collection(&self, name: &str, options: CollectionOptions) -> Result<Collection> {
        check_name("a collection", name)?;
        let engine = self.engine();
        let _changing = engine.changing.lock();
        engine.check_writable()?;
        {
            let schema = engine.schema.read();
            if schema.contains_key(name) {
                let what = format!("there is a collection {name:?} already");
                return Err(Error::new(ErrorKind::Conflict, what));
            }
            let count = schema.len() + 1;
            if count > MAX_COLLECTIONS {
                let limit = MAX_COLLECTIONS as u64;
                return Err(Error::limit_exceeded("the number of collections", count as u64, limit));
            }
        }
        let state = Arc::new(collection_trees::create_collection(engine, name, &options)?);
        engine.schema.write().insert(name.to_owned(), state.clone());
        if stale_removal::has_repairs(&state) {
            stale_removal::start(&self.handle)?;
        }
        Ok(Collection { handle: self.handle.clone(), state })
    }

    /// The collection of this name. Cost: a lookup in a map.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    ///
    /// ```
    /// use bolide::{Components, Db, ErrorKind, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// assert_eq!(db.collection("posts").unwrap_err().kind(), ErrorKind::NotFound);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn collection(&self, name: &str) -> Result<Collection> {
        let state = self.engine().collection(name)?;
        Ok(Collection { handle: self.handle.clone(), state })
    }

    /// The names of all collections, in order.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// db.create_collection("b", Default::default())?;
    /// db.create_collection("a", Default::default())?;
    /// assert_eq!(db.collections(), ["a", "b"]);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn collections(&self) -> Vec<String> {
        self.engine().schema.read().keys().cloned().collect()
    }

    /// Drops a collection with its records and indexes. Running readers complete; the files are removed after the last
    /// of them. Handles to it fail with `NotFound` from now on.
    ///
    /// # Errors
    /// `NotFound` if there is none; `ReadOnly`, `Poisoned`, `Io`.
    ///
    /// ```
    /// use bolide::{Components, Db, ErrorKind, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let notes = db.create_collection("notes", Default::default())?;
    /// db.drop_collection("notes")?;
    /// assert_eq!(notes.put(b"1", b"{}").unwrap_err().kind(), ErrorKind::NotFound);
    /// assert!(db.collections().is_empty());
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn drop_collection(&self, name: &str) -> Result<()> {
        let engine = self.engine();
        let _changing = engine.changing.lock();
        engine.check_writable()?;
        let collection = engine.collection(name)?;
        let indexes = collection.indexes();
        if !indexes.is_empty() {
            // From here on an open completes the drop.
            engine
                .store
                .set_descriptor(collection.tree, &descriptor(&collection, Life::Dropping).encode())?;
        }
        {
            let mut schema = engine.schema.write();
            collection.mark_dropped();
            for index in indexes.all() {
                index.progress.cancel();
            }
            schema.remove(name);
        }
        for index in indexes.all().iter().chain(indexes.key_index()) {
            engine.drop_tree(index.tree)?;
        }
        engine.drop_tree(collection.tree)
    }

    /// Commits a batch: all its writes or none. Returns the sequence number of the last of them.
    ///
    /// # Errors
    /// `NotFound` if one of its collections was dropped; `NoSpace` with nothing written; `LimitExceeded`; `ReadOnly`;
    /// `Poisoned` after an earlier failure, until the database is reopened; `Io`: a reopen may recover the write or
    /// not.
    ///
    /// ```
    /// use bolide::{Components, Db, Options, WriteBatch};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let notes = db.create_collection("notes", Default::default())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(&notes, b"1", b"{}")?;
    /// batch.put(&notes, b"2", b"{}")?;
    /// let last = db.write(batch)?;
    /// assert_eq!(db.snapshot().sequence(), last);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn write(&self, batch: WriteBatch) -> Result<SequenceNumber> {
        self.engine().write(batch, None)
    }

    /// Commits a batch with settings of its own; see [`write`](Self::write) and [`WriteOptions`].
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_with(&self, batch: WriteBatch, options: &WriteOptions) -> Result<SequenceNumber> {
        self.engine().write(batch, options.sync)
    }

    /// A snapshot of the whole database as it is now; see [`Snapshot`].
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.handle.clone())
    }

    /// Syncs the log: every write acknowledged so far survives a power cut when this returns.
    ///
    /// # Errors
    /// `Io`; the handle then refuses further writes. `ReadOnly`, `Poisoned`.
    ///
    /// ```
    /// use bolide::{Components, Db, Options, SyncMode};
    /// let db = Db::open_with("db", Options::default().sync(SyncMode::None), Components::in_memory())?;
    /// let notes = db.create_collection("notes", Default::default())?;
    /// notes.put(b"1", b"{}")?;
    /// db.sync()?;
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn sync(&self) -> Result<()> {
        self.engine().store.sync()
    }

    /// Writes all memtables to sstables and waits for it. Not needed for durability; makes the next open faster.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, `ReadOnly`, `Poisoned`.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let notes = db.create_collection("notes", Default::default())?;
    /// notes.put(b"1", b"{}")?;
    /// db.flush()?;
    /// assert_eq!(db.stats().collections[0].table.sstables(), 1);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn flush(&self) -> Result<()> {
        self.engine().store.flush()?;
        self.engine().commit_repairs()
    }

    /// Compacts all collections and indexes to one sorted run each, and waits for it. Reads and writes the whole
    /// database; not needed in normal use.
    ///
    /// # Errors
    /// `Corruption` from what is read; as [`flush`](Self::flush).
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// db.create_collection("notes", Default::default())?.put(b"1", b"{}")?;
    /// db.compact()?;
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn compact(&self) -> Result<()> {
        for name in self.collections() {
            match self.collection(&name).and_then(|collection| collection.compact()) {
                // The index was dropped meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Waits until all due flushes and compactions are done, after a large load or a change of layout. Also collects
    /// the garbage of `ps-tree` indexes, if there is enough of it.
    ///
    /// # Errors
    /// The errors of the background work; `Poisoned`, `ReadOnly`.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// db.wait_until_settled()?;
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn wait_until_settled(&self) -> Result<()> {
        self.engine().store.wait_until_settled()
    }

    /// Copies the database as it is now into the new directory `path`, which can be opened as a database of its own.
    /// Sstables are hard links, which cost no space; they are copied if `path` is on another file system, or on one
    /// without links. Writers continue meanwhile.
    ///
    /// # Errors
    /// `Conflict` if `path` exists, even as an empty directory; `NoSpace`, `Io`: then nothing is left at `path`.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let components = Components::in_memory();
    /// let db = Db::open_with("db", Options::default(), components.clone())?;
    /// let notes = db.create_collection("notes", Default::default())?;
    /// notes.put(b"1", b"{}")?;
    /// db.checkpoint("copy")?;
    /// notes.delete(b"1")?;
    /// let copy = Db::open_with("copy", Options::default(), components)?;
    /// assert!(copy.collection("notes")?.get(b"1")?.is_some());
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        self.engine().store.checkpoint(path.as_ref())
    }

    /// Statistics of the database, its collections and its indexes. Takes short locks, does no I/O.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// db.create_collection("notes", Default::default())?.put(b"1", b"{}")?;
    /// let stats = db.stats();
    /// assert_eq!(stats.collections[0].name, "notes");
    /// assert_eq!(stats.collections[0].table.entries, 1);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn stats(&self) -> DbStats {
        stats::of(self.engine())
    }

    /// The operations since the database was opened, counted by collection and form of query; `None` unless
    /// [`Options::trace`](Options::trace()) switched that on. Its text is a file for `bolide index advise --trace`. Bounded: it has
    /// no keys and no values.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// assert!(db.trace().is_none());
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn trace(&self) -> Option<Trace> {
        self.engine().trace.as_ref().map(|trace| trace.trace())
    }

    /// Reads every sstable completely and verifies checksums, order, counts and ranges. With `deep` it also compares
    /// every index with its collection, in both directions. Readers and writers continue.
    ///
    /// The report contains all damage and all differences; see [`CheckReport::problems`]. An index that does not fit into the
    /// memory budget is named there too, and not compared. Sorted views whose files are
    /// damaged or missing are built again in the background, unless the database is open read-only;
    /// [`wait_until_settled`](Self::wait_until_settled) waits for them.
    ///
    /// # Errors
    /// `Io` if the check itself cannot continue.
    ///
    /// ```
    /// use bolide::{CollectionOptions, Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let notes = db.create_collection("notes", CollectionOptions::default().index("tag".parse()?))?;
    /// notes.put(b"1", br#"{"tag":"x"}"#)?;
    /// let report = db.check(true)?;
    /// assert!(report.is_sound());
    /// assert_eq!(report.indexes[0].found.entries, 1);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn check(&self, deep: bool) -> Result<CheckReport> {
        check::run(self.engine(), deep)
    }

    /// Closes the database and returns the error of closing. Dropping the last handle closes it too, but cannot report
    /// an error.
    ///
    /// The log is synced and marked as complete. Memtables are not flushed: the log has them, and the
    /// next open reads it.
    ///
    /// # Errors
    /// `Conflict` if clones, collections, snapshots, iterators or answer cursors are still in use: the database then stays open until
    /// they are dropped. `Io`, `Poisoned`: the next open recovers as after a crash.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// db.close()?;
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn close(self) -> Result<()> {
        let in_use = || Error::new(ErrorKind::Conflict, "handles to the database are still in use");
        let handle = Arc::into_inner(self.handle).ok_or_else(in_use)?;
        handle.stop_builders();
        let engine = handle.engine.clone();
        drop(handle);
        Arc::into_inner(engine).ok_or_else(in_use)?.store.close()
    }

    /// The directory of the database.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// assert_eq!(db.path(), std::path::Path::new("db"));
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn path(&self) -> &Path {
        &self.engine().path
    }

    /// Whether it was opened for reading only.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// assert!(!db.is_read_only());
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn is_read_only(&self) -> bool {
        self.engine().read_only
    }

    fn engine(&self) -> &Engine {
        &self.handle.engine
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db").field("path", &self.path()).finish_non_exhaustive()
    }
}

fn descriptor(collection: &OpenCollection, state: Life) -> CollectionDescriptor {
    CollectionDescriptor {
        name: collection.name.clone(),
        state,
        records: collection.records,
        keys: collection.keys,
    }
}
