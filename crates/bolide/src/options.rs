//! The settings of a database, a collection, a write and an iteration: data without behaviour.
//!
//! All are `#[non_exhaustive]`: start from the default and change what you need with the methods.

use std::ops::Bound;
use std::path::PathBuf;
use std::time::Duration;

use bolide_index::{FetchOptions, IndexSpec};
use bolide_lsm::{Layout, SortedViews, StoreOptions, SyncMode, TreeOptions};
use bolide_table::Compression;

use crate::catalog::RecordKind;
use crate::fetching::FetchSettings;
use crate::key::KeyFormat;
use crate::key_range::KeyRange;
use crate::snapshot::Snapshot;

/// Bounds of [`CollectionOptions::block_bytes`].
const MIN_BLOCK_BYTES: usize = 256;
const MAX_BLOCK_BYTES: usize = 16 << 20;
/// Most bits per key that make sense: beyond, more probes buy nothing.
const MAX_BLOOM_BITS: usize = 32;

/// Settings of a database for the time it is open. None is kept in the database.
///
/// ```
/// use bolide::{Options, SyncMode};
/// let options = Options::default().cache_bytes(1 << 30).sync(SyncMode::Always);
/// assert_eq!(options.cache_bytes, 1 << 30);
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
    /// See [`cache_bytes`](Self::cache_bytes()).
    pub cache_bytes: usize,
    /// See [`memtable_bytes`](Self::memtable_bytes()).
    pub memtable_bytes: usize,
    /// See [`max_immutable_memtables`](Self::max_immutable_memtables()).
    pub max_immutable_memtables: usize,
    /// See [`background_threads`](Self::background_threads()).
    pub background_threads: usize,
    /// See [`max_open_files`](Self::max_open_files()).
    pub max_open_files: usize,
    /// See [`manifest_bytes`](Self::manifest_bytes()).
    pub manifest_bytes: u64,
    /// See [`sorted_views`](Self::sorted_views()).
    pub sorted_views: SortedViews,
    /// See [`fetch_threads`](Self::fetch_threads()).
    pub fetch_threads: usize,
    /// See [`fetch_shared_from`](Self::fetch_shared_from()).
    pub fetch_shared_from: usize,
    /// See [`fetch_by_sequence`](Self::fetch_by_sequence()).
    pub fetch_by_sequence: bool,
    /// See [`dax_dir`](Self::dax_dir()).
    pub dax_dir: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        let store = StoreOptions::new("");
        Self {
            create_if_missing: true,
            sync: store.sync,
            sync_interval: store.sync_interval,
            cache_bytes: 128 << 20,
            memtable_bytes: store.memtable_bytes,
            max_immutable_memtables: store.max_immutable_memtables,
            background_threads: store.background_threads,
            max_open_files: store.max_open_files,
            manifest_bytes: store.manifest_bytes,
            sorted_views: store.sorted_views,
            fetch_threads: 0,
            fetch_shared_from: FetchOptions::default().shared_from,
            fetch_by_sequence: true,
            dax_dir: None,
        }
    }
}

impl Options {
    /// Creates the database where there is none. Default: true. Turn it off where a missing database
    /// means a wrong path.
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

    /// When a write is safe from a power cut, for writes that do not say so themselves. Default:
    /// [`SyncMode::Batch`], which syncs the log for many writes together: the end of the process
    /// loses nothing, a power cut at most [`sync_interval`](Self::sync_interval()) of acknowledged
    /// writes. Choose [`SyncMode::Always`] where an acknowledged write must never be lost, and
    /// [`SyncMode::None`] for loads that could be repeated.
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

    /// Longest time that [`SyncMode::Batch`] leaves a write unsynced. Default: 50 ms. Lower it to lose
    /// less in a power cut, at the price of more syncs.
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

    /// Bytes of memory for data blocks of all collections and indexes. Default: 128 MiB. The best size
    /// is that of the data that is read again and again. Without effect where
    /// [`Components::cache`](crate::Components::cache()) brings a cache.
    ///
    /// ```
    /// assert_eq!(bolide::Options::default().cache_bytes(0).cache_bytes, 0);
    /// ```
    #[must_use]
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// Bytes of memory that the writable memtables of all collections and indexes take together before
    /// they are flushed. Default: 64 MiB. Larger ones write less in compactions; recovery after a
    /// crash reads the log again, of up to this size times the number of memtables.
    ///
    /// ```
    /// assert_eq!(bolide::Options::default().memtable_bytes(1 << 20).memtable_bytes, 1 << 20);
    /// ```
    #[must_use]
    pub fn memtable_bytes(mut self, bytes: usize) -> Self {
        self.memtable_bytes = bytes;
        self
    }

    /// How many generations of full memtables may wait to be flushed before writers wait. Default: 3.
    /// Raise it to ride out longer bursts of writes, at the price of memory.
    ///
    /// ```
    /// assert_eq!(bolide::Options::default().max_immutable_memtables(1).max_immutable_memtables, 1);
    /// ```
    #[must_use]
    pub fn max_immutable_memtables(mut self, count: usize) -> Self {
        self.max_immutable_memtables = count;
        self
    }

    /// Threads for flushes and compactions. Default: 2. With 0 that work runs inside the writing
    /// calls, in an order that depends on nothing but the calls: for tests, and for places without
    /// threads.
    ///
    /// ```
    /// assert_eq!(bolide::Options::default().background_threads(0).background_threads, 0);
    /// ```
    #[must_use]
    pub fn background_threads(mut self, threads: usize) -> Self {
        self.background_threads = threads;
        self
    }

    /// Most sstables held open at once. Default: 512. Lower it where the process may open few files.
    ///
    /// ```
    /// assert_eq!(bolide::Options::default().max_open_files(64).max_open_files, 64);
    /// ```
    #[must_use]
    pub fn max_open_files(mut self, files: usize) -> Self {
        self.max_open_files = files;
        self
    }

    /// Size at which the manifest is written anew. Default: 4 MiB. Smaller ones open faster; tests use
    /// tiny ones to meet the switch often.
    ///
    /// ```
    /// assert_eq!(bolide::Options::default().manifest_bytes(4096).manifest_bytes, 4096);
    /// ```
    #[must_use]
    pub fn manifest_bytes(mut self, bytes: u64) -> Self {
        self.manifest_bytes = bytes;
        self
    }

    /// Which collections and indexes keep sorted views over their sorted runs, so that scans go through them instead of
    /// merging the runs (REMIX §3). A view takes two to three bytes of memory for each entry and is
    /// made by flushes and compactions, from the first one after opening on. Default:
    /// [`SortedViews::Partitions`], those of layout `partitioned` and `fragmented`. `true` stands for tiered ones too,
    /// `false` for none at all. Say `true` where there are many scans of tiered collections.
    ///
    /// ```
    /// use bolide::{Options, SortedViews};
    /// assert_eq!(Options::default().sorted_views, SortedViews::Partitions);
    /// assert_eq!(Options::default().sorted_views(true).sorted_views, SortedViews::Always);
    /// ```
    #[must_use]
    pub fn sorted_views(mut self, kept: impl Into<SortedViews>) -> Self {
        self.sorted_views = kept.into();
        self
    }

    /// Threads that fetch the records of one query together, the caller's included: each takes the next few records from a
    /// shared queue (Perseid §4.4.2). Default: 0, which means as many as the machine runs at once, at most four. With
    /// 1 the caller fetches alone, as it does anyway for [few records](Self::fetch_shared_from()). The threads beside
    /// the caller's are started when they are first wanted, shared by all queries, and 64 at most.
    ///
    /// ```
    /// assert_eq!(bolide::Options::default().fetch_threads(1).fetch_threads, 1);
    /// ```
    #[must_use]
    pub fn fetch_threads(mut self, threads: usize) -> Self {
        self.fetch_threads = threads;
        self
    }

    /// Records that a query must have to fetch for several threads to share them; an eighth of that where the first of them had
    /// to be read from files. Default: 64. Fewer are fetched sooner than threads wake up. Raise it where
    /// many queries run at once anyway.
    ///
    /// ```
    /// assert_eq!(bolide::Options::default().fetch_shared_from(500).fetch_shared_from, 500);
    /// ```
    #[must_use]
    pub fn fetch_shared_from(mut self, records: usize) -> Self {
        self.fetch_shared_from = records;
        self
    }

    /// Whether records are looked for only in those memtables and sstables whose range of sequence numbers can matter, as
    /// the sequence number of each is known from the index (Perseid §4.4.1). Default: true. Turn it off to compare.
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

    /// The directory for indexes of kind `ps-tree` with `region=dax`: an absolute path, on a file system that lies on
    /// persistent memory and maps files synchronously (`mount -o dax`). Default: the directory of the database. The
    /// database remembers where it made the region of an index; set this when the directory has moved since.
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
}

/// Settings of a collection. They are kept in the database, except for the list of indexes to begin
/// with.
///
/// ```
/// use bolide::{CollectionOptions, Components, Compression, Db, Options};
/// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
/// let options = CollectionOptions::default().compression(Compression::Zstd(3)).index("subreddit".parse()?);
/// let posts = db.create_collection("posts", options)?;
/// assert_eq!(posts.indexes().len(), 1);
/// # Ok::<(), bolide::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CollectionOptions {
    /// What the records are. Default: [`RecordKind::Json`]; see [`bytes`](Self::bytes).
    pub records: RecordKind,
    /// See [`keys`](Self::keys()).
    pub keys: KeyFormat,
    /// See [`layout`](Self::layout()).
    pub layout: Layout,
    /// See [`compression`](Self::compression()).
    pub compression: Compression,
    /// See [`block_bytes`](Self::block_bytes()).
    pub block_bytes: usize,
    /// See [`bloom_bits_per_key`](Self::bloom_bits_per_key()).
    pub bloom_bits_per_key: usize,
    /// See [`target_file_bytes`](Self::target_file_bytes()).
    pub target_file_bytes: u64,
    /// See [`index`](Self::index).
    pub indexes: Vec<IndexSpec>,
}

impl Default for CollectionOptions {
    fn default() -> Self {
        let tree = TreeOptions::default();
        Self {
            records: RecordKind::Json,
            keys: KeyFormat::Bytes,
            layout: tree.layout,
            compression: tree.compression,
            block_bytes: tree.block_bytes,
            bloom_bits_per_key: tree.bloom_bits_per_key as usize,
            target_file_bytes: tree.target_file_bytes,
            indexes: Vec::new(),
        }
    }
}

impl CollectionOptions {
    /// A collection of JSON objects: the same as the default.
    ///
    /// ```
    /// use bolide::{CollectionOptions, RecordKind};
    /// assert_eq!(CollectionOptions::json().records, RecordKind::Json);
    /// ```
    pub fn json() -> Self {
        Self::default()
    }

    /// A collection whose records are any bytes. Nothing looks into them, except for the program's own
    /// extractor where there is one; see [`RecordKind::Bytes`].
    ///
    /// ```
    /// use bolide::{CollectionOptions, Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let blobs = db.create_collection("blobs", CollectionOptions::bytes())?;
    /// blobs.put(b"key", &[0xff, 0x00])?;
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn bytes() -> Self {
        Self { records: RecordKind::Bytes, ..Self::default() }
    }

    /// How people read the keys. Default: [`KeyFormat::Bytes`]. The `bolide` command makes collections
    /// of [`KeyFormat::Typed`]; it changes nothing in how keys are stored or compared.
    ///
    /// ```
    /// use bolide::CollectionOptions;
    /// use bolide::key::KeyFormat;
    /// assert_eq!(CollectionOptions::default().keys(KeyFormat::Typed).keys, KeyFormat::Typed);
    /// ```
    #[must_use]
    pub fn keys(mut self, keys: KeyFormat) -> Self {
        self.keys = keys;
        self
    }

    /// How the sorted runs are arranged, of the records and of the indexes alike. Default:
    /// [`Layout::Leveled`]. [`Layout::Tiered`] writes each byte about half as often and makes reads
    /// look into more runs: for loads that mostly write. [`Layout::Partitioned`] cuts the keys into partitions of a few
    /// sstables and writes straight into them: for large collections whose writes are near each other
    /// (REMIX §4.2). [`Layout::Fragmented`] has several levels of such partitions. It can be changed at any time:
    /// [`Collection::set_layout`](crate::Collection::set_layout).
    ///
    /// ```
    /// use bolide::{CollectionOptions, Layout};
    /// assert_eq!(CollectionOptions::default().layout(Layout::Tiered).layout, Layout::Tiered);
    /// ```
    #[must_use]
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// How data blocks are compressed, of the records and of the indexes alike. Default:
    /// [`Compression::Lz4`]. [`Compression::Zstd`] (level 1 to 22) is smaller and slower;
    /// [`Compression::None`] is for records that are compressed already.
    ///
    /// ```
    /// use bolide::{CollectionOptions, Compression};
    /// assert_eq!(CollectionOptions::default().compression(Compression::None).compression, Compression::None);
    /// ```
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Size at which a data block ends, in bytes before compression. Default: 4096; other values are
    /// brought into 256 bytes to 16 MiB. Larger blocks compress better and make a get read more.
    ///
    /// ```
    /// assert_eq!(bolide::CollectionOptions::default().block_bytes(16 << 10).block_bytes, 16 << 10);
    /// ```
    #[must_use]
    pub fn block_bytes(mut self, bytes: usize) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// Bits of Bloom filter a key; 0 for none, at most 32. Default: 10, which lets about 1 % of the
    /// needless reads through. Filters stay in memory: set 0 where keys that are asked for always exist in the
    /// lowest level.
    ///
    /// ```
    /// assert_eq!(bolide::CollectionOptions::default().bloom_bits_per_key(0).bloom_bits_per_key, 0);
    /// ```
    #[must_use]
    pub fn bloom_bits_per_key(mut self, bits: usize) -> Self {
        self.bloom_bits_per_key = bits;
        self
    }

    /// Size at which a compaction starts a new sstable, in bytes. Default: 64 MiB. Smaller ones make
    /// compactions finer and files more.
    ///
    /// ```
    /// assert_eq!(bolide::CollectionOptions::default().target_file_bytes(1 << 20).target_file_bytes, 1 << 20);
    /// ```
    #[must_use]
    pub fn target_file_bytes(mut self, bytes: u64) -> Self {
        self.target_file_bytes = bytes;
        self
    }

    /// Begins with an index. More can be made at any time with
    /// [`Collection::create_index`](crate::Collection::create_index).
    ///
    /// ```
    /// use bolide::CollectionOptions;
    /// let options = CollectionOptions::default().index("tags[*]".parse()?).index("newest=author".parse()?);
    /// assert_eq!(options.indexes.len(), 2);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    #[must_use]
    pub fn index(mut self, spec: IndexSpec) -> Self {
        self.indexes.push(spec);
        self
    }

    /// The settings of the tree of the records.
    pub(crate) fn tree_options(&self) -> TreeOptions {
        let mut options = TreeOptions::default();
        options.layout = self.layout;
        options.compression = self.compression;
        options.block_bytes = self.block_bytes.clamp(MIN_BLOCK_BYTES, MAX_BLOCK_BYTES);
        options.bloom_bits_per_key = self.bloom_bits_per_key.min(MAX_BLOOM_BITS) as u32;
        options.target_file_bytes = self.target_file_bytes;
        options
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
    /// When this write is safe from a power cut. Default: as [`Options::sync`](Options::sync()) says.
    #[must_use]
    pub fn sync(mut self, sync: SyncMode) -> Self {
        self.sync = Some(sync);
        self
    }
}

/// Which records an iteration visits, and as of when.
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
    /// Visits keys within `range` alone. Default: all keys. A range whose start is behind its end is
    /// empty.
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

    /// Visits keys that start with `prefix` alone.
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

/// The first key behind all that start with `prefix`; `None` where there is no such key.
fn behind_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut end = prefix.get(..=last)?.to_vec();
    *end.last_mut()? += 1;
    Some(end)
}
