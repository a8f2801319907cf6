//! Settings of a store and of its trees: plain data.
//!
//! The manifest stores the settings of a tree:
//!
//! ```text
//! options  format              u8      1
//!          layout              u8      0 leveled, 1 tiered, 2 fragmented, 3 partitioned
//!          compression         u8      0 none, 1 lz4, 2 zstd
//!          zstd level          u8      0 where compression is not zstd
//!          block bytes         varint
//!          bloom bits per key  varint
//!          target file bytes   varint
//!          flags               u8      omitted if 0; bit 0: view tags
//! ```

use std::path::PathBuf;
use std::time::Duration;

use bolide_base::Error;
use bolide_base::coding::{self, Decoder};
use bolide_table::{Compression, TableOptions};

pub use crate::layout::Layout;
use crate::layout::ViewRule;

/// The moment at which an acknowledged write is safe from a power cut. Every mode survives the end of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncMode {
    /// The log is written to the operating system and not synced until its segment ends.
    None,
    /// One sync serves many writes: at the latest after [`StoreOptions::sync_interval`] or [`StoreOptions::sync_bytes`]. A
    /// power cut may lose that much of the acknowledged writes.
    #[default]
    Batch,
    /// The write is acknowledged after its log record was synced. Concurrent writers share a sync.
    Always,
}

/// The trees with sorted views over their sorted runs, which readers need not merge then (REMIX §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SortedViews {
    /// None.
    Never,
    /// Trees with partitions: the layouts [`Partitioned`](Layout::Partitioned) and [`Fragmented`](Layout::Fragmented).
    #[default]
    Partitions,
    /// These and trees of layout [`Tiered`](Layout::Tiered).
    Always,
}

impl SortedViews {
    /// The first level that has views in a tree of this layout; `None` for no level.
    pub(crate) fn first_level(self, layout: Layout) -> Option<usize> {
        match (self, layout.strategy().view_rule()) {
            (Self::Never, _) | (_, ViewRule::NoLevel) | (Self::Partitions, ViewRule::IfWantedFrom(_)) => None,
            (_, ViewRule::IfWantedFrom(level) | ViewRule::From(level)) => Some(level),
        }
    }
}

impl From<bool> for SortedViews {
    /// `true`: [`Always`](Self::Always); `false`: [`Never`](Self::Never).
    fn from(always: bool) -> Self {
        if always { Self::Always } else { Self::Never }
    }
}

/// Decides at the opening whether a tree is emptied: `descriptor` is the layer above's data about the tree, `missing` the
/// error for the first of its missing files. Returns the descriptor of the emptied tree, or `None` for a tree that is not
/// emptied: missing files then fail the opening.
///
/// Only trees that the layer above can derive from other trees may be emptied. Writes logged before the opening are not
/// replayed into an emptied tree: it contains every later write and none before.
pub type ResetTree = fn(descriptor: &[u8], missing: Option<&Error>) -> Option<Vec<u8>>;

/// Settings of an open store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoreOptions {
    /// The directory of the database.
    pub dir: PathBuf,
    /// Create the database if it does not exist. Default: true.
    pub create_if_missing: bool,
    /// Change no byte; reject writes. Default: false.
    pub read_only: bool,
    /// The mode of syncing writes. Default: [`SyncMode::Batch`].
    pub sync: SyncMode,
    /// The longest time that [`SyncMode::Batch`] leaves a write unsynced. Default: 50 ms.
    pub sync_interval: Duration,
    /// The most log bytes that [`SyncMode::Batch`] leaves unsynced. Default: 1 MiB.
    pub sync_bytes: u64,
    /// The memory of the writable memtables of all trees together, in bytes, at which they are flushed. Default: 64 MiB.
    pub memtable_bytes: usize,
    /// Bytes of keys and values that are sorted at a time when a tree is moved to an external tree; each such part takes one pass
    /// over the tree. Default: 32 MiB.
    pub hand_over_bytes: usize,
    /// The number of generations of full memtables at which writers wait for flushes. Default: 3.
    pub max_immutable_memtables: usize,
    /// The number of sorted runs in the first level of a tree at which writers are slowed down. Default: 12.
    pub slowdown_runs: usize,
    /// The number of sorted runs in the first level of a tree at which writers wait. Default: 36.
    pub stop_runs: usize,
    /// Threads for flushes and compactions. With 0 these run inside the writing call, in an order that depends on the calls
    /// alone. Otherwise, and with `memtable_bytes` of 8 MiB or more, one more thread prepares memory for writers. Default: 2.
    pub background_threads: usize,
    /// Start no background work before [`Store::start`](crate::Store::start) is called, so that compaction filters and
    /// dependents are installed. Default: false.
    pub start_paused: bool,
    /// The maximum number of open sstables. Default: 512.
    pub max_open_files: usize,
    /// The size at which the manifest is rewritten. Default: 4 MiB.
    pub manifest_bytes: u64,
    /// The trees with sorted views over their runs, so that scans do not merge them. A view takes two to three bytes of memory
    /// per entry, and some nanoseconds per entry to rebuild. Views are rebuilt after a flush or compaction if the tree was read
    /// since the last time, otherwise at the first read or the first pause of writes. Default: [`SortedViews::Partitions`].
    pub sorted_views: SortedViews,
    /// The view of a partition is rebuilt once the runs outside of it have this percentage of its entries, or are more than four;
    /// until then readers merge them with it. Default: 0, whenever views are rebuilt (see
    /// [`sorted_views`](Self::sorted_views)). More suits many writes over the whole key range and few scans (REMIX §4.3).
    pub view_delay_percent: u32,
    /// The maximum number of sorted runs of a partition after a flush that rewrites none, with at most twice as many sstables: T
    /// of REMIX §4.2. Default: 10. A larger value writes less and makes reads search more runs. At least 2.
    pub partition_tables: usize,
    /// The number of full memtables of a tree of layout [`Partitioned`](Layout::Partitioned) that are flushed together.
    /// Default: 2. A larger value makes fewer and larger runs, and so fewer bytes written and faster scans, for as many times the
    /// memory (REMIX §4: memtables of 4 GB). A waiting memtable is flushed once it retains four segments of the log. At least 1,
    /// at most `max_immutable_memtables`.
    pub partition_memtables: usize,
    /// Full memtables of which at least a quarter is hidden versions are not flushed: their remaining entries are merged in
    /// memory, up to [`memtable_bytes`](Self::memtable_bytes). The result is flushed once it retains four segments of the log. So
    /// records that are overwritten often are rarely written to sstables. Default: true.
    pub memory_compaction: bool,
    /// Disk space that the file `RESERVE` occupies. It is released when the disk is full, so that deletes, flushes and
    /// compactions still work; writes of records are rejected until the space is available again. 0: none. Default: 1 MiB.
    pub reserve_bytes: u64,
    /// Bytes of the row cache, for records that were read by key more than once, in addition to the block cache. Default: 8 MiB.
    pub row_cache_bytes: usize,
    /// The memory of the record of recent commits, for open transactions, in bytes. Older transactions are refused.
    pub recent_commit_bytes: usize,
    /// Selects the trees that are emptied at the opening because their files are missing or damaged. Default: none.
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
            recent_commit_bytes: 32 << 20,
            reset_tree: None,
        }
    }
}

/// Settings of one tree. The manifest stores them; see the [module](self) for their encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeOptions {
    /// The arrangement of the runs. Default: leveled.
    pub layout: Layout,
    /// The compression of the blocks. Default: lz4.
    pub compression: Compression,
    /// The size at which a data block ends, in bytes before compression. Default: 4096.
    pub block_bytes: usize,
    /// Bits of the Bloom filter per key; 0 for none. Default: 10.
    pub bloom_bits_per_key: u32,
    /// The size at which a compaction starts a new sstable, in bytes. Default: 64 MiB.
    pub target_file_bytes: u64,
    /// The sorted views of the tree, if it has any, answer point reads too: they contain a byte of each key's hash, and new
    /// sstables have no Bloom filters (REMIX §4). Default: false.
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

    /// The encoding in the manifest.
    pub fn encode(&self) -> Vec<u8> {
        let (compression, level) = match self.compression {
            Compression::None => (0, 0),
            Compression::Lz4 => (1, 0),
            Compression::Zstd(level) => (2, level.clamp(1, 22) as u8),
        };
        let mut out = vec![1, self.layout.strategy().code(), compression, level];
        coding::put_varint(&mut out, self.block_bytes as u64);
        coding::put_varint(&mut out, self.bloom_bits_per_key.into());
        coding::put_varint(&mut out, self.target_file_bytes);
        if self.view_tags {
            out.push(VIEW_TAGS);
        }
        out
    }

    /// Decodes the output of [`encode`](Self::encode); `None` for anything else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        if decoder.u8()? != 1 {
            return None;
        }
        let layout = Layout::of_code(decoder.u8()?)?;
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
