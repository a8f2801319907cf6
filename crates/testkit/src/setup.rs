//! The settings and components of the database of a run.

use std::fmt;
use std::sync::Arc;

use bolide::{BuildOptions, CollectionOptions, Components, Compression, Db, Layout, Options};
use bolide_storage::{Runtime, SimRng, SimRuntime, SystemRuntime, Vfs};

/// The directory of the database. It has two levels, both of which must be synced.
pub const DATABASE: &str = "data/db";

/// A memory budget that the largest caches and memtables of a random setup nearly fill.
const TINY_BUDGET_BYTES: usize = 4 << 20;

/// Settings of a database and its collections. No setting may change an answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setup {
    /// The layout of all collections.
    pub layout: Layout,
    /// The compression of all collections.
    pub compression: Compression,
    /// The block size of all collections, in bytes.
    pub block_bytes: usize,
    /// The Bloom filter bits per key of all collections.
    pub bloom_bits_per_key: usize,
    /// The target size of sstables of all collections, in bytes.
    pub target_file_bytes: u64,
    /// The memtable size of the database, in bytes.
    pub memtable_bytes: usize,
    /// The maximum manifest size of the database, in bytes.
    pub manifest_bytes: u64,
    /// The block cache size of the database, in bytes.
    pub cache_bytes: usize,
    /// The maximum number of open files of the database.
    pub max_open_files: usize,
    /// The number of background threads of the database. With 0 a run depends only on its seed.
    pub threads: usize,
    /// The number of records per batch of an index build, after which the build persists its progress; 0 for the default of
    /// the library. Only for a simulated clock, because the build sleeps between batches.
    pub build_batch_records: u64,
    /// The number of threads that fetch the records of a query, for any number of records. With 1 a run depends only on its
    /// seed.
    pub fetch_threads: usize,
    /// Whether records are fetched by sequence number.
    pub fetch_by_sequence: bool,
    /// Whether tiered trees have sorted views.
    pub sorted_views: bool,
}

impl Setup {
    /// A random setup with small sizes, so that a short history has flushes, compactions, several files and new manifests.
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

    /// Small blocks, no cache, and a memtable, files and a manifest that a few records do not fill.
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

    /// This setup with `layout`, if set.
    #[must_use]
    pub fn with_layout(self, layout: Option<Layout>) -> Self {
        Self { layout: layout.unwrap_or(self.layout), ..self }
    }

    /// The options of index builds.
    pub fn build_options(&self) -> BuildOptions {
        match self.build_batch_records {
            0 => BuildOptions::default(),
            // Twenty batches per second.
            records => BuildOptions::default().records_per_second(20 * records).checkpoint_bytes(1),
        }
    }

    /// The options of the database.
    pub fn options(&self) -> Options {
        let options = match self.memory_bytes() {
            Some(bytes) => Options::default().memory_bytes(bytes),
            None => Options::default(),
        };
        options
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

    /// A tiny memory budget for one of the three random block sizes, if the explicit sizes fit into it: caches shrink and
    /// memtables are flushed early.
    fn memory_bytes(&self) -> Option<usize> {
        let explicit = self.cache_bytes + 2 * self.memtable_bytes;
        (self.block_bytes == 128 && explicit <= TINY_BUDGET_BYTES).then_some(TINY_BUDGET_BYTES)
    }

    /// Enabled for two of the three random block sizes.
    fn memory_compaction(&self) -> bool {
        self.block_bytes != 512
    }

    /// One sixteenth of the cache, and at least 4 KiB, which is the smallest useful size; 0 without a cache.
    fn row_cache_bytes(&self) -> usize {
        if self.cache_bytes == 0 { 0 } else { (self.cache_bytes / 16).max(4 << 10) }
    }

    /// The options of a collection without indexes.
    pub fn collection_options(&self) -> CollectionOptions {
        CollectionOptions::json()
            .layout(self.layout)
            .compression(self.compression)
            .block_bytes(self.block_bytes)
            .bloom_bits_per_key(self.bloom_bits_per_key)
            .target_file_bytes(self.target_file_bytes)
    }

    /// Opens the database on `vfs`, and creates it if it is missing. `seed` determines the random numbers and, without
    /// background threads, the clock.
    pub fn open(&self, vfs: Arc<dyn Vfs>, seed: u64) -> bolide::Result<Db> {
        Db::open_with(DATABASE, self.options(), self.components(vfs, seed))
    }

    /// The components for [`open`](Self::open).
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
