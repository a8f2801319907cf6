//! The settings of a database, a write and an iteration: data without behaviour.
//!
//! All are `#[non_exhaustive]`: start from the default and change what you need with the methods.

use std::ops::Bound;
use std::path::PathBuf;
use std::time::Duration;

use bolide_index::FetchOptions;
use bolide_lsm::{SortedViews, StoreOptions, SyncMode};

use crate::fetching::FetchSettings;
use crate::key_range::KeyRange;
use crate::snapshot::Snapshot;

/// Settings of a database while it is open. The database stores none of them.
///
/// ```
/// use bolide::{Options, SyncMode};
/// let options = Options::default().cache_bytes(1 << 30).sync(SyncMode::Always);
/// assert_eq!(options.cache_bytes, Some(1 << 30));
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// See [`create_if_missing`](Self::create_if_missing()).
    pub create_if_missing: bool,
    /// See [`sync`](Self::sync()).
    pub sync: SyncMode,
    /// See [`sync_interval`](Self::sync_interval()).
    pub sync_interval: Duration,
    /// See [`memory_bytes`](Self::memory_bytes()).
    pub memory_bytes: Option<usize>,
    /// See [`cache_bytes`](Self::cache_bytes()).
    pub cache_bytes: Option<usize>,
    /// See [`row_cache_bytes`](Self::row_cache_bytes()).
    pub row_cache_bytes: Option<usize>,
    /// See [`memtable_bytes`](Self::memtable_bytes()).
    pub memtable_bytes: Option<usize>,
    /// See [`max_immutable_memtables`](Self::max_immutable_memtables()).
    pub max_immutable_memtables: usize,
    /// See [`background_threads`](Self::background_threads()).
    pub background_threads: usize,
    /// See [`max_open_files`](Self::max_open_files()).
    pub max_open_files: usize,
    /// See [`manifest_bytes`](Self::manifest_bytes()).
    pub manifest_bytes: u64,
    /// See [`reserve_bytes`](Self::reserve_bytes()).
    pub reserve_bytes: u64,
    /// See [`sorted_views`](Self::sorted_views()).
    pub sorted_views: SortedViews,
    /// See [`view_delay_percent`](Self::view_delay_percent()).
    pub view_delay_percent: u32,
    /// See [`partition_tables`](Self::partition_tables()).
    pub partition_tables: usize,
    /// See [`memory_compaction`](Self::memory_compaction()).
    pub memory_compaction: bool,
    /// See [`fetch_threads`](Self::fetch_threads()).
    pub fetch_threads: usize,
    /// See [`fetch_shared_from`](Self::fetch_shared_from()).
    pub fetch_shared_from: usize,
    /// See [`fetch_by_sequence`](Self::fetch_by_sequence()).
    pub fetch_by_sequence: bool,
    /// See [`dax_dir`](Self::dax_dir()).
    pub dax_dir: Option<PathBuf>,
    /// See [`trace`](Self::trace()).
    pub trace: bool,
}

impl Default for Options {
    fn default() -> Self {
        let store = StoreOptions::new("");
        Self {
            create_if_missing: true,
            sync: store.sync,
            sync_interval: store.sync_interval,
            memory_bytes: None,
            cache_bytes: None,
            row_cache_bytes: None,
            memtable_bytes: None,
            max_immutable_memtables: store.max_immutable_memtables,
            background_threads: store.background_threads,
            max_open_files: store.max_open_files,
            manifest_bytes: store.manifest_bytes,
            reserve_bytes: store.reserve_bytes,
            sorted_views: store.sorted_views,
            view_delay_percent: store.view_delay_percent,
            partition_tables: store.partition_tables,
            memory_compaction: store.memory_compaction,
            fetch_threads: 0,
            fetch_shared_from: FetchOptions::default().shared_from,
            fetch_by_sequence: true,
            dax_dir: None,
            trace: false,
        }
    }
}

impl Options {
    /// Creates the database if it does not exist. Default: true. Turn it off if a missing database means a wrong path.
    ///
    /// ```
    /// use bolide::{Components, Db, ErrorKind, Options};
    /// let options = Options::default().create_if_missing(false);
    /// let error = Db::open_with("nowhere", options, Components::in_memory()).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::NotFound);
    /// ```
    #[must_use]
    pub fn create_if_missing(mut self, create: bool) -> Self {
        self.create_if_missing = create;
        self
    }

    /// When a write is safe from a power cut, for writes without a mode of their own. Default: [`SyncMode::Batch`],
    /// which syncs the log for many writes together: the end of the process loses nothing, a power cut at most
    /// [`sync_interval`](Self::sync_interval()) of acknowledged writes. Choose [`SyncMode::Always`] if an acknowledged
    /// write must never be lost, and [`SyncMode::None`] for loads that can be repeated.
    ///
    /// ```
    /// use bolide::{Options, SyncMode};
    /// assert_eq!(Options::default().sync(SyncMode::Always).sync, SyncMode::Always);
    /// ```
    #[must_use]
    pub fn sync(mut self, sync: SyncMode) -> Self {
        self.sync = sync;
        self
    }

    /// The maximum time that [`SyncMode::Batch`] leaves a write unsynced. Default: 50 ms. Lower it to lose less in a
    /// power cut, at the price of more syncs.
    ///
    /// ```
    /// use std::time::Duration;
    /// let options = bolide::Options::default().sync_interval(Duration::from_millis(5));
    /// assert_eq!(options.sync_interval.as_millis(), 5);
    /// ```
    #[must_use]
    pub fn sync_interval(mut self, interval: Duration) -> Self {
        self.sync_interval = interval;
        self
    }

    /// The memory budget in bytes: caches, memtables, indexes in memory, sorted views, filters, queries and compactions
    /// together. Default: a quarter of the memory of the machine or of the control group (cgroup v1 and v2) of the
    /// process, at least 64 MiB, and more if [`cache_bytes`](Self::cache_bytes()) or
    /// [`memtable_bytes`](Self::memtable_bytes()) require it. At least 1 MiB.
    ///
    /// While memory is short, caches shrink, memtables are flushed earlier, and writers wait for flushes. An index in
    /// memory (kind `ps-tree`) that does not fit is an error of kind `NoSpace`, which names it.
    /// [`DbStats::memory`](crate::DbStats::memory) reports what has how much. No effect if
    /// [`Components::cache`](crate::Components::cache()) provides a cache: the budget is that of its memory pool.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default().memory_bytes(64 << 20), Components::in_memory())?;
    /// let memory = db.stats().memory;
    /// assert_eq!(memory.limit_bytes, 64 << 20);
    /// assert!(memory.reserved_bytes() < memory.limit_bytes);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    #[must_use]
    pub fn memory_bytes(mut self, bytes: usize) -> Self {
        self.memory_bytes = Some(bytes);
        self
    }

    /// Bytes of memory for data blocks of all collections and indexes, and for the [row
    /// cache](Self::row_cache_bytes()). Default: 128 MiB, or a quarter of the [memory budget](Self::memory_bytes()) if that
    /// is less. The best size is that of the data that is read repeatedly. No effect if
    /// [`Components::cache`](crate::Components::cache()) provides a cache.
    ///
    /// ```
    /// assert_eq!(bolide::Options::default().cache_bytes(0).cache_bytes, Some(0));
    /// ```
    #[must_use]
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.cache_bytes = Some(bytes);
        self
    }

    /// Bytes of memory for the row cache, which holds single records that were read by their keys more than once: a
    /// part of [`cache_bytes`](Self::cache_bytes()), beside the blocks. A hit there waits for memory twice, one in a
    /// cached block about seven times; hot records in distant blocks take less memory there. Default: a sixteenth of
    /// `cache_bytes`; 0 if [`Components::cache`](crate::Components::cache()) provides a cache, beside which it can be
    /// set. Raise it if most reads are gets of a few hot keys; 0 turns it off.
    ///
    /// ```
    /// let options = bolide::Options::default().cache_bytes(64 << 20).row_cache_bytes(16 << 20);
    /// assert_eq!(options.row_cache_bytes, Some(16 << 20));
    /// ```
    #[must_use]
    pub fn row_cache_bytes(mut self, bytes: usize) -> Self {
        self.row_cache_bytes = Some(bytes);
        self
    }

    /// Bytes of memory of the writable memtables of all collections and indexes together before they are flushed.
    /// Default: 64 MiB, or a sixteenth of the [memory budget](Self::memory_bytes()) if that is less. Larger ones write
    /// less in compactions; recovery after a crash replays the log, of up to this size times the number of memtables.
    ///
    /// ```
    /// assert_eq!(bolide::Options::default().memtable_bytes(1 << 20).memtable_bytes, Some(1 << 20));
    /// ```
    #[must_use]
    pub fn memtable_bytes(mut self, bytes: usize) -> Self {
        self.memtable_bytes = Some(bytes);
        self
    }

    /// The number of generations of full memtables that may wait for a flush before writers wait. Default: 3. Raise it
    /// to absorb longer bursts of writes, at the price of memory.
    ///
    /// ```
    /// assert_eq!(bolide::Options::default().max_immutable_memtables(1).max_immutable_memtables, 1);
    /// ```
    #[must_use]
    pub fn max_immutable_memtables(mut self, count: usize) -> Self {
        self.max_immutable_memtables = count;
        self
    }

    /// Threads for flushes and compactions. Default: 2. With 0 that work runs inside the writing calls, in an order
    /// that depends only on the calls: for tests, and for platforms without threads.
    ///
    /// ```
    /// assert_eq!(bolide::Options::default().background_threads(0).background_threads, 0);
    /// ```
    #[must_use]
    pub fn background_threads(mut self, threads: usize) -> Self {
        self.background_threads = threads;
        self
    }

    /// The maximum number of open sstables. Default: 512. Lower it if the process may open few files.
    ///
    /// ```
    /// assert_eq!(bolide::Options::default().max_open_files(64).max_open_files, 64);
    /// ```
    #[must_use]
    pub fn max_open_files(mut self, files: usize) -> Self {
        self.max_open_files = files;
        self
    }

    /// Size at which the manifest is rewritten. Default: 4 MiB. Smaller ones open faster; tests use tiny ones to
    /// rewrite it often.
    ///
    /// ```
    /// assert_eq!(bolide::Options::default().manifest_bytes(4096).manifest_bytes, 4096);
    /// ```
    #[must_use]
    pub fn manifest_bytes(mut self, bytes: u64) -> Self {
        self.manifest_bytes = bytes;
        self
    }

    /// Bytes of the disk that are reserved in a file beside the data and released when the disk is full, so that
    /// deletes, flushes and compactions still work. Writes of records are refused (`NoSpace`) until the space is free
    /// again. 0: no reserve. Default: 1 MiB.
    ///
    /// ```
    /// assert_eq!(bolide::Options::default().reserve_bytes, 1 << 20);
    /// ```
    #[must_use]
    pub fn reserve_bytes(mut self, bytes: u64) -> Self {
        self.reserve_bytes = bytes;
        self
    }

    /// The collections and indexes with sorted views over their sorted runs: scans read a view instead of merging the
    /// runs (REMIX §3). A view takes two to three bytes for each entry, in a file and, once it is read, in memory.
    /// Flushes and compactions write it, the first read of its partition loads it, and it is built again if its file is
    /// damaged. Default: [`SortedViews::Partitions`], those of layout `partitioned` and `fragmented`. `true` includes
    /// tiered ones, `false` means none. Set `true` for many scans of tiered collections.
    ///
    /// ```
    /// use bolide::{Options, SortedViews};
    /// assert_eq!(Options::default().sorted_views, SortedViews::Partitions);
    /// assert_eq!(Options::default().sorted_views(true).sorted_views, SortedViews::Always);
    /// ```
    #[must_use]
    pub fn sorted_views(mut self, views: impl Into<SortedViews>) -> Self {
        self.sorted_views = views.into();
        self
    }

    /// The number of entries, per 100 entries of the sorted view of a partition, that are written to the partition
    /// before the view is built again; until then readers merge them with it, and at most four sorted runs. Default: 0,
    /// one entry suffices: the view is renewed after a flush if there was a read since the last time, otherwise with
    /// the first read or the first pause of writes. Raise it if writes are spread over the keys and scans are rare
    /// (REMIX §4.3).
    ///
    /// ```
    /// assert_eq!(bolide::Options::default().view_delay_percent(20).view_delay_percent, 20);
    /// ```
    #[must_use]
    pub fn view_delay_percent(mut self, percent: u32) -> Self {
        self.view_delay_percent = percent;
        self
    }

    /// The maximum number of sorted runs that flushes add to a partition of layout `partitioned`, and half of the
    /// maximum number of sstables; with more of either it is merged or split (T in REMIX §4.2). Default: 10; clamped to
    /// 2 to
    /// 60. With
    /// more, less is written, and reads search more sorted runs.
    ///
    /// ```
    /// assert_eq!(bolide::Options::default().partition_tables(6).partition_tables, 6);
    /// ```
    #[must_use]
    pub fn partition_tables(mut self, tables: usize) -> Self {
        self.partition_tables = tables;
        self
    }

    /// Whether full memtables with a quarter or more entries hidden by newer versions are merged in memory instead of
    /// being flushed, as long as the result takes at most [`memtable_bytes`](Self::memtable_bytes()). Default: true.
    /// Records that are rewritten often are then rarely written to sstables. It takes at most the memory of another
    /// full memtable, and a crash leaves up to five segments of the log to replay. Turn it off for the shortest start
    /// after a crash.
    ///
    /// ```
    /// assert!(!bolide::Options::default().memory_compaction(false).memory_compaction);
    /// ```
    #[must_use]
    pub fn memory_compaction(mut self, on: bool) -> Self {
        self.memory_compaction = on;
        self
    }

    /// Threads that fetch the records of one query together, including the caller's: each takes the next few records
    /// from a shared queue (Perseid §4.4.2). Default: 0, which means the number of threads that the machine runs at
    /// once, at most four. With 1 the caller fetches alone, as it does for [few records](Self::fetch_shared_from()).
    /// The other threads are started on first use, shared by all queries, and at most 64.
    ///
    /// ```
    /// assert_eq!(bolide::Options::default().fetch_threads(1).fetch_threads, 1);
    /// ```
    #[must_use]
    pub fn fetch_threads(mut self, threads: usize) -> Self {
        self.fetch_threads = threads;
        self
    }

    /// The number of records of a query from which several threads share the fetch; a 128th of that, at least two, if
    /// the first of them were read from files. Default: 1024: eight records are shared if files are read, and cached
    /// records are left to one thread, which is as fast. Raise it if many queries run at once.
    ///
    /// ```
    /// assert_eq!(bolide::Options::default().fetch_shared_from(500).fetch_shared_from, 500);
    /// ```
    #[must_use]
    pub fn fetch_shared_from(mut self, records: usize) -> Self {
        self.fetch_shared_from = records;
        self
    }

    /// Whether records are searched only in memtables and sstables whose range of sequence numbers contains that of the
    /// record, which is known from the index (Perseid §4.4.1). Default: true. Turn it off to compare.
    ///
    /// ```
    /// assert!(!bolide::Options::default().fetch_by_sequence(false).fetch_by_sequence);
    /// ```
    #[must_use]
    pub fn fetch_by_sequence(mut self, by_sequence: bool) -> Self {
        self.fetch_by_sequence = by_sequence;
        self
    }

    pub(crate) fn fetch_settings(&self) -> FetchSettings {
        FetchSettings {
            threads: Some(self.fetch_threads),
            shared_from: Some(self.fetch_shared_from),
            by_sequence: Some(self.fetch_by_sequence),
        }
    }

    /// The directory for indexes of kind `ps-tree` with `region=dax`: an absolute path, on a file system that is on
    /// persistent memory and maps files synchronously (`mount -o dax`). Default: the directory of the database. The
    /// database stores the location of an index's region; set this if the directory has moved since.
    ///
    /// ```
    /// let options = bolide::Options::default().dax_dir("/mnt/pmem/bolide");
    /// assert_eq!(options.dax_dir.unwrap().to_str(), Some("/mnt/pmem/bolide"));
    /// ```
    #[must_use]
    pub fn dax_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dax_dir = Some(dir.into());
        self
    }

    /// Counts the operations on each collection, queries by their form, for [`Db::trace`](crate::Db::trace). Default: false; then
    /// an operation costs one more comparison. On, an operation by key costs an atomic addition and a query about a
    /// microsecond; memory is bounded.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default().trace(true), Components::in_memory())?;
    /// db.create_collection("notes", Default::default())?.put(b"1", b"{}")?;
    /// assert_eq!(db.trace().unwrap().collections[0].puts, 1);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    #[must_use]
    pub fn trace(mut self, on: bool) -> Self {
        self.trace = on;
        self
    }
}

/// Settings of one write.
///
/// ```
/// use bolide::{Components, Db, Options, SyncMode, WriteBatch, WriteOptions};
/// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
/// let notes = db.create_collection("notes", Default::default())?;
/// let mut batch = WriteBatch::new();
/// batch.put(&notes, b"1", br#"{"text":"must not be lost"}"#)?;
/// db.write_with(batch, &WriteOptions::default().sync(SyncMode::Always))?;
/// # Ok::<(), bolide::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct WriteOptions {
    /// See [`sync`](Self::sync()).
    pub sync: Option<SyncMode>,
}

impl WriteOptions {
    /// When this write is safe from a power cut. Default: that of [`Options::sync`](Options::sync()).
    #[must_use]
    pub fn sync(mut self, sync: SyncMode) -> Self {
        self.sync = Some(sync);
        self
    }
}

/// The records of an iteration, and their snapshot.
///
/// ```
/// use bolide::{Components, Db, IterOptions, Options};
/// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
/// let notes = db.create_collection("notes", Default::default())?;
/// for key in [&b"a/1"[..], b"a/2", b"b/1"] {
///     notes.put(key, b"{}")?;
/// }
/// let options = IterOptions::default().prefix(b"a/").snapshot(&db.snapshot());
/// notes.delete(b"a/1")?;
/// let keys: Vec<_> = notes.iter_with(&options)?.map(|record| record.map(|(key, _)| key)).collect();
/// assert_eq!(keys.len(), 2);
/// # Ok::<(), bolide::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct IterOptions {
    /// See [`range`](Self::range).
    pub lower: Bound<Vec<u8>>,
    /// See [`range`](Self::range).
    pub upper: Bound<Vec<u8>>,
    /// See [`snapshot`](Self::snapshot()).
    pub snapshot: Option<Snapshot>,
}

impl Default for IterOptions {
    fn default() -> Self {
        Self { lower: Bound::Unbounded, upper: Bound::Unbounded, snapshot: None }
    }
}

impl IterOptions {
    /// Visits only keys within `range`. Default: all keys. A range whose start is after its end is empty.
    ///
    /// ```
    /// use bolide::IterOptions;
    /// let options = IterOptions::default().range("a"..="c");
    /// assert_eq!(options.upper, std::ops::Bound::Included(b"c".to_vec()));
    /// ```
    #[must_use]
    pub fn range(mut self, range: impl KeyRange) -> Self {
        (self.lower, self.upper) = range.into_bounds();
        self
    }

    /// Visits only keys that start with `prefix`.
    ///
    /// ```
    /// use std::ops::Bound;
    /// use bolide::IterOptions;
    /// assert_eq!(IterOptions::default().prefix(b"ab").upper, Bound::Excluded(b"ac".to_vec()));
    /// assert_eq!(IterOptions::default().prefix(&[0xff]).upper, Bound::Unbounded);
    /// ```
    #[must_use]
    pub fn prefix(mut self, prefix: &[u8]) -> Self {
        self.lower = Bound::Included(prefix.to_vec());
        self.upper = behind_prefix(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        self
    }

    /// Visits the records as they are in `snapshot`. Default: as they are when the iteration starts.
    #[must_use]
    pub fn snapshot(mut self, snapshot: &Snapshot) -> Self {
        self.snapshot = Some(snapshot.clone());
        self
    }
}

/// The first key after all that start with `prefix`; `None` if there is no such key.
fn behind_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut end = prefix.get(..=last)?.to_vec();
    *end.last_mut()? += 1;
    Some(end)
}
