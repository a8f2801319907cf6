//! How an sstable is written. Readers need none of this: all they need is in the file.

use bolide_base::limits::{MAX_TREE_KEY_BYTES, MAX_VALUE_BYTES};

/// How the blocks of an sstable are compressed.
///
/// A block that compression does not make at least one eighth smaller is stored as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Blocks are stored as they are: fastest to read, largest on disk.
    None,
    /// LZ4: about 2.3 times smaller on JSON records of blocks of 4 KiB, decoded at some 3.7 GB/s.
    #[default]
    Lz4,
    /// Zstandard at this level (1 to 22; clamped). Level 1: about 3.2 times smaller, 0.9 GB/s.
    Zstd(i32),
}

/// Settings of a [`TableBuilder`](crate::TableBuilder).
///
/// ```
/// use bolide_table::{Compression, TableOptions};
/// let options = TableOptions::default().block_bytes(8 << 10).compression(Compression::Zstd(3));
/// assert_eq!(options.block_bytes, 8 << 10);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableOptions {
    /// A data block is closed before it would grow over this many bytes (before compression). One
    /// entry that is larger has a block of its own. Default 4096; 256 bytes to 16 MiB.
    ///
    /// Larger blocks compress better and need less index; a point read decodes more.
    pub block_bytes: usize,
    /// The compression of all blocks. Default LZ4.
    pub compression: Compression,
    /// Bits of the Bloom filter per distinct user key; 0 writes no filter. Default 10, which lets about
    /// 1 in 100 absent keys pass; at most 32.
    pub bloom_bits_per_key: u32,
    /// An index larger than this is split into partitions of about this size, which are read through
    /// the block cache on demand; a smaller one stays in memory whole. Default 256 KiB; 256 bytes to 16 MiB.
    pub index_partition_bytes: usize,
    /// Whether the number of entries of each data block is written to a meta block, one byte a block where blocks
    /// are small. Default false. Sorted views open faster over tables that have it (REMIX §4.1).
    pub key_counts: bool,
}

/// Bounds of [`TableOptions::block_bytes`].
const BLOCK_BYTES: std::ops::RangeInclusive<usize> = 256..=16 << 20;
/// Most bits per key that make sense: beyond, more probes buy nothing.
const MAX_BLOOM_BITS: u32 = 32;
/// Bounds of [`TableOptions::index_partition_bytes`].
const PARTITION_BYTES: std::ops::RangeInclusive<usize> = 256..=16 << 20;

/// No block, however compressed, decodes to more than this: the largest entry, or a block of the
/// largest size, and its overhead. Readers refuse a larger claim before they allocate.
pub(crate) const MAX_BLOCK_BYTES: usize = MAX_VALUE_BYTES + MAX_TREE_KEY_BYTES + 1024;

/// Largest caller-defined meta block, in bytes (before compression).
pub const MAX_META_BLOCK_BYTES: usize = 256 << 20;

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            block_bytes: 4096,
            compression: Compression::default(),
            bloom_bits_per_key: 10,
            index_partition_bytes: 256 << 10,
            key_counts: false,
        }
    }
}

impl TableOptions {
    /// Sets [`block_bytes`](Self::block_bytes).
    #[must_use]
    pub fn block_bytes(mut self, bytes: usize) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// Sets [`compression`](Self::compression).
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Sets [`bloom_bits_per_key`](Self::bloom_bits_per_key).
    #[must_use]
    pub fn bloom_bits_per_key(mut self, bits: u32) -> Self {
        self.bloom_bits_per_key = bits;
        self
    }

    /// Sets [`index_partition_bytes`](Self::index_partition_bytes).
    #[must_use]
    pub fn index_partition_bytes(mut self, bytes: usize) -> Self {
        self.index_partition_bytes = bytes;
        self
    }

    /// Sets [`key_counts`](Self::key_counts).
    #[must_use]
    pub fn key_counts(mut self, written: bool) -> Self {
        self.key_counts = written;
        self
    }

    /// The same settings with each value brought into its bounds.
    pub(crate) fn clamped(&self) -> Self {
        Self {
            block_bytes: self.block_bytes.clamp(*BLOCK_BYTES.start(), *BLOCK_BYTES.end()),
            compression: match self.compression {
                Compression::Zstd(level) => Compression::Zstd(level.clamp(1, 22)),
                other => other,
            },
            bloom_bits_per_key: self.bloom_bits_per_key.min(MAX_BLOOM_BITS),
            index_partition_bytes: self
                .index_partition_bytes
                .clamp(*PARTITION_BYTES.start(), *PARTITION_BYTES.end()),
            key_counts: self.key_counts,
        }
    }
}
