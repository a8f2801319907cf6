//! Settings of a store and of its trees: data without behaviour.
//!
//! The settings of a tree are kept in the manifest:
//!
//! ```text
//! | format u8 = 1 | layout u8: 0 leveled, 1 tiered, 2 fragmented, 3 partitioned | compression u8: 0 none, 1 lz4, 2 zstd | level u8 |
//! | block bytes varint | Bloom bits per key varint | target file bytes varint | flags u8, unless 0: bit 0 view tags |
//! ```

use std::path::PathBuf;
use std::time::Duration;

use bolide_base::Error;
use bolide_base::coding::{self, Decoder};
use bolide_table::{Compression, TableOptions};

/// When an acknowledged write is safe from a power cut. Every mode survives the end of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncMode {
    /// The log is handed to the operating system and not synced until its segment ends.
    None,
    /// The log is synced together for many writes: at the latest after
    /// [`StoreOptions::sync_interval`] or [`StoreOptions::sync_bytes`]. A power cut may lose that
    /// much of what was acknowledged.
    #[default]
    Batch,
    /// The write is acknowledged after its log record was synced. Concurrent writers share a sync.
    Always,
}

/// How the sorted runs of a tree are arranged and compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Layout {
    /// One sorted run a level, each about ten times the one above: fast reads.
    #[default]
    Leveled,
    /// Runs of similar size are merged together: fewer bytes written, more runs to read.
    Tiered,
    /// Levels of partitions; what leaves a level is added to the partitions of the next one, which are not
    /// rewritten but for the last level's (PebblesDB's guards).
    Fragmented,
    /// One level of partitions, which full memtables go straight into: the fewest bytes written where writes are
    /// near each other (REMIX §4.2).
    Partitioned,
}

impl Layout {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Leveled, Self::Tiered, Self::Fragmented, Self::Partitioned];

    /// The name used in options and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leveled => "leveled",
            Self::Tiered => "tiered",
            Self::Fragmented => "fragmented",
            Self::Partitioned => "partitioned",
        }
    }

    /// True where the last level is cut into partitions.
    pub(crate) fn has_partitions(self) -> bool {
        matches!(self, Self::Fragmented | Self::Partitioned)
    }
}

/// Which trees keep sorted views over their sorted runs, so that readers need not merge these (REMIX §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SortedViews {
    /// None.
    Never,
    /// Those whose levels are cut into partitions: the layouts [`Partitioned`](Layout::Partitioned) and
    /// [`Fragmented`](Layout::Fragmented).
    #[default]
    Partitions,
    /// Those and the ones of layout [`Tiered`](Layout::Tiered).
    Always,
}

impl SortedViews {
    /// The first level that has views in a tree of this layout; `None` for no level.
    pub(crate) fn first_level(self, layout: Layout) -> Option<usize> {
        match (self, layout) {
            (Self::Never, _) | (_, Layout::Leveled) | (Self::Partitions, Layout::Tiered) => None,
            // What lies above the partitions is on its way to them.
            (_, Layout::Partitioned) => Some(1),
            (_, Layout::Fragmented | Layout::Tiered) => Some(0),
        }
    }
}

impl From<bool> for SortedViews {
    /// `true`: [`Always`](Self::Always); `false`: [`Never`](Self::Never).
    fn from(kept: bool) -> Self {
        if kept { Self::Always } else { Self::Never }
    }
}

/// Decides at an opening whether a tree is emptied: `descriptor` is what the layer above keeps with it, `missing` the error
/// for the first of its files that is not in the directory. Returns the descriptor of the emptied tree, or `None` for a
/// tree that stays as it is: missing files then fail the opening.
///
/// Only trees that the layer above can derive from other trees may be emptied. Writes of the log from before the opening are
/// not replayed into an emptied tree: it holds every later write and none before.
pub type ResetTree = fn(descriptor: &[u8], missing: Option<&Error>) -> Option<Vec<u8>>;

/// Settings of a store, for the time it is open.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoreOptions {
    /// The directory of the database.
    pub dir: PathBuf,
    /// Create the database where there is none. Default: true.
    pub create_if_missing: bool,
    /// Change no byte; refuse writes. Default: false.
    pub read_only: bool,
    /// When writes are synced. Default: [`SyncMode::Batch`].
    pub sync: SyncMode,
    /// Longest time that [`SyncMode::Batch`] leaves a write unsynced. Default: 50 ms.
    pub sync_interval: Duration,
    /// Most log bytes that [`SyncMode::Batch`] leaves unsynced. Default: 1 MiB.
    pub sync_bytes: u64,
    /// Bytes of memory that the writable memtables of all trees may take together before they are
    /// flushed. Default: 64 MiB.
    pub memtable_bytes: usize,
    /// Bytes of keys and values that are put in order at a time when a tree is handed to a keeper; the tree is read once for
    /// each. Default: 32 MiB.
    pub hand_over_bytes: usize,
    /// How many generations of full memtables may wait to be flushed before writers wait. Default: 3.
    pub max_immutable_memtables: usize,
    /// Sorted runs in the first level of a tree from which on writers are slowed down. Default: 12.
    pub slowdown_runs: usize,
    /// Sorted runs in the first level of a tree at which writers wait. Default: 36.
    pub stop_runs: usize,
    /// Threads for flushes and compactions. With 0 they run inside the writing call, in an order that
    /// depends on nothing but the calls; else, and with `memtable_bytes` of 8 MiB or more, one thread more sleeps but to
    /// have memory ready for writers. Default: 2.
    pub background_threads: usize,
    /// Start no background work before [`Store::start`](crate::Store::start) is called, so that compaction
    /// filters and dependents are in place. Default: false.
    pub start_paused: bool,
    /// Most sstables held open at once. Default: 512.
    pub max_open_files: usize,
    /// Size at which the manifest is written anew. Default: 4 MiB.
    pub manifest_bytes: u64,
    /// Which trees keep sorted views over their runs, so that scans do not merge them. Takes two to three bytes of
    /// memory for each entry, and some nanoseconds for each whenever they are renewed: after a flush or compaction if
    /// somebody read the tree since the last time, else with the first read or the first pause of writes. Default: [`SortedViews::Partitions`].
    pub sorted_views: SortedViews,
    /// The view of a partition is built again once the runs that it lacks have so many entries for 100 of its own, or are more
    /// than four; until then readers merge them with it. Default: 0, whenever views are renewed (see
    /// [`sorted_views`](Self::sorted_views)). More where there are many writes all over the keys and few scans (REMIX §4.3).
    pub view_delay_percent: u32,
    /// Most sorted runs of a partition that a flush only adds to, as long as they are at most twice as many sstables: T of REMIX
    /// §4.2. Default: 10. More writes less and has reads go through more runs. At least 2.
    pub partition_tables: usize,
    /// So many full memtables of a tree of layout [`Partitioned`](Layout::Partitioned) are flushed together. Default: 2. More makes fewer
    /// and larger runs, and so fewer bytes written and a faster scan, for as many times the memory (REMIX §4: memtables of
    /// 4 GB). What waits for others is flushed once it holds back four segments of the log. At least 1, at most
    /// `max_immutable_memtables`.
    pub partition_memtables: usize,
    /// Full memtables of which a quarter or more is versions that newer ones hide are not flushed: what is left of them is
    /// put together in memory, as long as that takes no more than [`memtable_bytes`](Self::memtable_bytes). It is flushed once it holds back
    /// four segments of the log. So records that are written again and again are rarely written to sstables. Default: true.
    pub memory_compaction: bool,
    /// Bytes of the disk that are reserved in the file `RESERVE` and released when the disk is full, so that deletes, flushes and compactions
    /// still work; writes of records are refused until the space is there again. 0: none. Default: 1 MiB.
    pub reserve_bytes: u64,
    /// Bytes of memory for records that were asked for by their key more than once, beside the cache of blocks. Default: 8 MiB.
    pub row_cache_bytes: usize,
    /// Which trees are emptied at the opening, because their files are missing or damaged. Default: none.
    pub reset_tree: Option<ResetTree>,
}

impl StoreOptions {
    /// The defaults for a database in `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            create_if_missing: true,
            read_only: false,
            sync: SyncMode::default(),
            sync_interval: Duration::from_millis(50),
            sync_bytes: 1 << 20,
            memtable_bytes: 64 << 20,
            hand_over_bytes: 32 << 20,
            max_immutable_memtables: 3,
            slowdown_runs: 12,
            stop_runs: 36,
            background_threads: 2,
            start_paused: false,
            max_open_files: 512,
            manifest_bytes: 4 << 20,
            sorted_views: SortedViews::default(),
            view_delay_percent: 0,
            partition_tables: 10,
            partition_memtables: 2,
            memory_compaction: true,
            reserve_bytes: 1 << 20,
            row_cache_bytes: 8 << 20,
            reset_tree: None,
        }
    }
}

/// Settings of one tree. They are kept in the manifest.
///
/// ```text
/// options  format              u8      1
///          layout              u8      0 leveled, 1 tiered, 2 fragmented, 3 partitioned
///          compression         u8      0 none, 1 lz4, 2 zstd
///          zstd level          u8      0 where compression is not zstd
///          block bytes         varint
///          bloom bits per key  varint
///          target file bytes   varint
///          flags               u8      left out where it is 0; bit 0: view tags
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeOptions {
    /// How its runs are arranged. Default: leveled.
    pub layout: Layout,
    /// How its blocks are compressed. Default: lz4.
    pub compression: Compression,
    /// Size at which a data block ends, in bytes before compression. Default: 4096.
    pub block_bytes: usize,
    /// Bits of Bloom filter a key; 0 for none. Default: 10.
    pub bloom_bits_per_key: u32,
    /// Size at which a compaction starts a new sstable, in bytes. Default: 64 MiB.
    pub target_file_bytes: u64,
    /// Where the tree keeps sorted views, they answer point reads, too: they have a byte of each key's hash, and new sstables
    /// have no Bloom filters (REMIX §4). Default: false.
    pub view_tags: bool,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self {
            layout: Layout::default(),
            compression: Compression::Lz4,
            block_bytes: 4096,
            bloom_bits_per_key: 10,
            target_file_bytes: 64 << 20,
            view_tags: false,
        }
    }
}

/// The flag for [`TreeOptions::view_tags`].
const VIEW_TAGS: u8 = 1;

impl TreeOptions {
    /// The settings of this tree's sstables.
    pub fn table_options(&self) -> TableOptions {
        TableOptions::default()
            .block_bytes(self.block_bytes)
            .compression(self.compression)
            .bloom_bits_per_key(self.bloom_bits_per_key)
    }

    /// The bytes kept in the manifest.
    pub fn encode(&self) -> Vec<u8> {
        let layout = match self.layout {
            Layout::Leveled => 0,
            Layout::Tiered => 1,
            Layout::Fragmented => 2,
            Layout::Partitioned => 3,
        };
        let (compression, level) = match self.compression {
            Compression::None => (0, 0),
            Compression::Lz4 => (1, 0),
            Compression::Zstd(level) => (2, level.clamp(1, 22) as u8),
        };
        let mut out = vec![1, layout, compression, level];
        coding::put_varint(&mut out, self.block_bytes as u64);
        coding::put_varint(&mut out, self.bloom_bits_per_key.into());
        coding::put_varint(&mut out, self.target_file_bytes);
        if self.view_tags {
            out.push(VIEW_TAGS);
        }
        out
    }

    /// Reads what [`encode`](Self::encode) wrote; `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        if decoder.u8()? != 1 {
            return None;
        }
        let layout = match decoder.u8()? {
            0 => Layout::Leveled,
            1 => Layout::Tiered,
            2 => Layout::Fragmented,
            3 => Layout::Partitioned,
            _ => return None,
        };
        let compression = match (decoder.u8()?, decoder.u8()?) {
            (0, 0) => Compression::None,
            (1, 0) => Compression::Lz4,
            (2, level @ 1..=22) => Compression::Zstd(level.into()),
            _ => return None,
        };
        let mut options = Self {
            layout,
            compression,
            block_bytes: decoder.length(1 << 30)?,
            bloom_bits_per_key: decoder.length(64)? as u32,
            target_file_bytes: decoder.varint()?,
            view_tags: false,
        };
        if !decoder.is_empty() {
            options.view_tags = decoder.u8()? == VIEW_TAGS;
            if !options.view_tags {
                return None;
            }
        }
        decoder.is_empty().then_some(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_options_round_trip() {
        for layout in Layout::ALL {
            for compression in [Compression::None, Compression::Lz4, Compression::Zstd(3)] {
                let options = TreeOptions { layout, compression, block_bytes: 777, ..TreeOptions::default() };
                let bytes = options.encode();
                assert_eq!(TreeOptions::decode(&bytes), Some(options));
                for cut in 0..bytes.len() {
                    assert_eq!(TreeOptions::decode(&bytes[..cut]), None);
                }
                let tagged = TreeOptions { view_tags: true, ..TreeOptions::decode(&bytes).unwrap() };
                assert_eq!(TreeOptions::decode(&tagged.encode()), Some(tagged));
                assert_eq!(TreeOptions::decode(&[&bytes[..], &[2]].concat()), None);
            }
        }
        assert_eq!(TreeOptions::decode(&[2, 0, 0, 0, 1, 1, 1]), None);
    }
}
