//! The settings of a collection: data without behaviour.

use bolide_index::IndexSpec;
use bolide_lsm::{Layout, TreeOptions};
use bolide_table::Compression;

use crate::catalog::RecordKind;
use crate::key::KeyFormat;

/// Bounds of [`CollectionOptions::block_bytes`].
const MIN_BLOCK_BYTES: usize = 256;
const MAX_BLOCK_BYTES: usize = 16 << 20;
/// The maximum number of bits per key: beyond it, more probes have no effect.
const MAX_BLOOM_BITS: usize = 32;

/// Settings of a collection. The database stores them, except for the list of initial indexes.
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
    /// The type of the records. Default: [`RecordKind::Json`]; see [`bytes`](Self::bytes).
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
    /// See [`view_tags`](Self::view_tags()).
    pub view_tags: bool,
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
            view_tags: tree.view_tags,
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

    /// A collection whose records are any bytes. Only an extractor of the program reads their content; see
    /// [`RecordKind::Bytes`].
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

    /// The text format of the keys. Default: [`KeyFormat::Bytes`]. The `bolide` command creates collections of
    /// [`KeyFormat::Typed`]. It does not change how keys are stored or compared.
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

    /// The layout of the sorted runs, of the records and of the indexes. Default: [`Layout::Leveled`].
    /// [`Layout::Tiered`] writes each byte about half as often, and reads search more runs: for loads that mostly
    /// write. [`Layout::Partitioned`] divides the keys into partitions of a few sstables and writes directly into them:
    /// for large collections whose writes are near each other (REMIX §4.2). [`Layout::Fragmented`] has several levels
    /// of such partitions. It can be changed at any time: [`Collection::set_layout`](crate::Collection::set_layout).
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

    /// The compression of data blocks, of the records and of the indexes. Default: [`Compression::Lz4`].
    /// [`Compression::Zstd`] (level 1 to 22) is smaller and slower; [`Compression::None`] is for records that are
    /// compressed already.
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

    /// Size at which a data block ends, in bytes before compression. Default: 4096; other values are clamped to 256
    /// bytes to 16 MiB. Larger blocks compress better, and a get reads more.
    ///
    /// ```
    /// assert_eq!(bolide::CollectionOptions::default().block_bytes(16 << 10).block_bytes, 16 << 10);
    /// ```
    #[must_use]
    pub fn block_bytes(mut self, bytes: usize) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// Bits of Bloom filter a key; 0 for none, at most 32. Default: 10, with about 1 % false positives. Filters stay in
    /// memory: set 0 if queried keys always exist in the lowest level.
    ///
    /// ```
    /// assert_eq!(bolide::CollectionOptions::default().bloom_bits_per_key(0).bloom_bits_per_key, 0);
    /// ```
    #[must_use]
    pub fn bloom_bits_per_key(mut self, bits: usize) -> Self {
        self.bloom_bits_per_key = bits;
        self
    }

    /// Size at which a compaction starts a new sstable, in bytes. Default: 64 MiB. Smaller sstables make compactions
    /// smaller, and there are more files.
    ///
    /// ```
    /// assert_eq!(bolide::CollectionOptions::default().target_file_bytes(1 << 20).target_file_bytes, 1 << 20);
    /// ```
    #[must_use]
    pub fn target_file_bytes(mut self, bytes: u64) -> Self {
        self.target_file_bytes = bytes;
        self
    }

    /// Whether sorted views answer point reads, if the collection has them (see
    /// [`Options::sorted_views`](crate::Options::sorted_views())): each entry has a byte of its key's hash there, and
    /// new sstables have no Bloom filters. Default: false. It saves a little memory, and the cost of a get does not
    /// depend on the number of runs (REMIX §5.1); sstables in partitions with one run then have no filter at all.
    ///
    /// ```
    /// assert!(bolide::CollectionOptions::default().view_tags(true).view_tags);
    /// ```
    #[must_use]
    pub fn view_tags(mut self, enabled: bool) -> Self {
        self.view_tags = enabled;
        self
    }

    /// Adds an index. More can be created at any time with
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
    /// The options of a collection with a tree of these options, without indexes.
    pub(crate) fn of_tree(records: RecordKind, keys: KeyFormat, tree: TreeOptions) -> Self {
        Self {
            records,
            keys,
            layout: tree.layout,
            compression: tree.compression,
            block_bytes: tree.block_bytes,
            bloom_bits_per_key: tree.bloom_bits_per_key as usize,
            target_file_bytes: tree.target_file_bytes,
            view_tags: tree.view_tags,
            indexes: Vec::new(),
        }
    }

    pub(crate) fn tree_options(&self) -> TreeOptions {
        let mut options = TreeOptions::default();
        options.layout = self.layout;
        options.compression = self.compression;
        options.block_bytes = self.block_bytes.clamp(MIN_BLOCK_BYTES, MAX_BLOCK_BYTES);
        options.bloom_bits_per_key = self.bloom_bits_per_key.min(MAX_BLOOM_BITS) as u32;
        options.target_file_bytes = self.target_file_bytes;
        options.view_tags = self.view_tags;
        options
    }
}
