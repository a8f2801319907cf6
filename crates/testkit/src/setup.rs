//! The settings and objects that a run opens its database with.

use std::fmt;
use std::sync::Arc;

use bolide::{BuildOptions, CollectionOptions, Components, Compression, Db, Layout, Options};
use bolide_storage::{Runtime, SimRng, SimRuntime, SystemRuntime, Vfs};

/// Where the database lies. It is two directories deep, so that the names of both are to be synced.
pub const DATABASE: &str = "data/db";

/// One point in the space of settings. None of them may change an answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setup {
    /// Of all collections.
    pub layout: Layout,
    /// Of all collections.
    pub compression: Compression,
    /// Of all collections.
    pub block_bytes: usize,
    /// Of all collections.
    pub bloom_bits_per_key: usize,
    /// Of all collections.
    pub target_file_bytes: u64,
    /// Of the database.
    pub memtable_bytes: usize,
    /// Of the database.
    pub manifest_bytes: u64,
    /// Of the database.
    pub cache_bytes: usize,
    /// Of the database.
    pub max_open_files: usize,
    /// Of the database. With 0 a run depends on its seed alone.
    pub threads: usize,
    /// Of the building of indexes: records in each batch, after which it takes down how far it is; 0 for the
    /// library's own measure. Only for a simulated clock: it sleeps in between.
    pub build_batch_records: u64,
    /// Of the database: threads that fetch the records of a query together, however few they are. With 1 a run depends on
    /// its seed alone.
    pub fetch_threads: usize,
    /// Of the database: whether records are looked for by their sequence numbers.
    pub fetch_by_sequence: bool,
    /// Of the database: whether tiered trees keep sorted views.
    pub sorted_views: bool,
}

impl Setup {
    /// A setup of tiny pieces, so that a short history meets flushes, compactions, several files and
    /// new manifests.
    pub fn random(rng: &mut SimRng) -> Self {
        let pick = |rng: &mut SimRng, choices: &[u64]| rng.pick(choices).copied().unwrap_or_default();
        Self {
            layout: rng.pick(&Layout::ALL).copied().unwrap_or_default(),
            compression: match rng.below(4) {
                0 => Compression::None,
                1 => Compression::Zstd(1),
                _ => Compression::Lz4,
            },
            block_bytes: pick(rng, &[128, 512, 4096]) as usize,
            bloom_bits_per_key: pick(rng, &[0, 10, 10]) as usize,
            target_file_bytes: pick(rng, &[2 << 10, 16 << 10, 1 << 20]),
            memtable_bytes: pick(rng, &[2 << 10, 16 << 10, 64 << 10, 1 << 20]) as usize,
            manifest_bytes: pick(rng, &[512, 4 << 10, 1 << 20]),
            cache_bytes: pick(rng, &[0, 16 << 10, 1 << 20]) as usize,
            max_open_files: pick(rng, &[2, 16, 512]) as usize,
            threads: 0,
            build_batch_records: pick(rng, &[1, 5, 20, 0]),
            fetch_threads: 1,
            fetch_by_sequence: rng.below(4) > 0,
            sorted_views: rng.one_in(2),
        }
    }

    /// Small blocks without a cache, and a memtable, files and a manifest that few records do not fill.
    pub fn small_blocks(layout: Layout, compression: Compression) -> Self {
        Self {
            layout,
            compression,
            block_bytes: 256,
            bloom_bits_per_key: 10,
            target_file_bytes: 1 << 20,
            memtable_bytes: 1 << 20,
            manifest_bytes: 1 << 20,
            cache_bytes: 0,
            max_open_files: 64,
            threads: 0,
            build_batch_records: 0,
            fetch_threads: 1,
            fetch_by_sequence: true,
            sorted_views: true,
        }
    }

    /// The same with `layout`, if one is given.
    #[must_use]
    pub fn with_layout(self, layout: Option<Layout>) -> Self {
        Self { layout: layout.unwrap_or(self.layout), ..self }
    }

    /// How indexes are built.
    pub fn build_options(&self) -> BuildOptions {
        match self.build_batch_records {
            0 => BuildOptions::default(),
            // A second has twenty batches.
            records => BuildOptions::default().records_per_second(20 * records).checkpoint_bytes(1),
        }
    }

    /// The settings of the database.
    pub fn options(&self) -> Options {
        Options::default()
            .memtable_bytes(self.memtable_bytes)
            .manifest_bytes(self.manifest_bytes)
            .cache_bytes(self.cache_bytes)
            .row_cache_bytes(self.row_cache_bytes())
            .max_open_files(self.max_open_files)
            .background_threads(self.threads)
            .fetch_threads(self.fetch_threads)
            .fetch_shared_from(2)
            .fetch_by_sequence(self.fetch_by_sequence)
            .sorted_views(self.sorted_views)
            .memory_compaction(self.memory_compaction())
    }

    /// With two of three sizes of blocks.
    fn memory_compaction(&self) -> bool {
        self.block_bytes != 512
    }

    /// Of the small cache the smallest part that keeps rows.
    fn row_cache_bytes(&self) -> usize {
        if self.cache_bytes == 0 { 0 } else { (self.cache_bytes / 16).max(4 << 10) }
    }

    /// The settings of a collection, without its indexes.
    pub fn collection_options(&self) -> CollectionOptions {
        CollectionOptions::json()
            .layout(self.layout)
            .compression(self.compression)
            .block_bytes(self.block_bytes)
            .bloom_bits_per_key(self.bloom_bits_per_key)
            .target_file_bytes(self.target_file_bytes)
    }

    /// Opens the database on `vfs`, creating it if it is not there. Random numbers come from `seed`,
    /// and so does the clock as long as no threads are used.
    pub fn open(&self, vfs: Arc<dyn Vfs>, seed: u64) -> bolide::Result<Db> {
        Db::open_with(DATABASE, self.options(), self.components(vfs, seed))
    }

    /// What [`open`](Self::open) opens the database with.
    pub fn components(&self, vfs: Arc<dyn Vfs>, seed: u64) -> Components {
        let runtime: Arc<dyn Runtime> = match self.threads {
            0 => Arc::new(SimRuntime::new(seed)),
            _ => Arc::new(SystemRuntime::new()),
        };
        Components::system().vfs(vfs).runtime(runtime)
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
