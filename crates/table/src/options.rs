//! The settings of an sstable. Readers need none of them: the file contains all that they need.

use bolide_base::limits::{MAX_TREE_KEY_BYTES, MAX_VALUE_BYTES};

/// The compression of the blocks of an sstable.
///
/// A block that compression does not reduce by at least one eighth is stored uncompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Uncompressed: fastest to read, largest on disk.
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
    /// A data block is closed before it would exceed this many bytes (before compression). A larger entry has a block of
    /// its own. Default 4096; 256 bytes to 16 MiB.
    ///
    /// Larger blocks compress better and need a smaller index; a point read decodes more.
    pub block_bytes: usize,
    /// The compression of all blocks. Default LZ4.
    pub compression: Compression,
    /// Bits of the Bloom filter per distinct user key; 0 writes no filter. Default 10: about 1 in 100 absent keys passes.
    /// At most 32.
    pub bloom_bits_per_key: u32,
    /// An index larger than this is split into partitions of about this size, which are read through the block cache on
    /// demand. A smaller one stays in memory as a whole. Default 256 KiB; 256 bytes to 16 MiB.
    pub index_partition_bytes: usize,
    /// Whether the number of entries of each data block is written to a meta block, one byte per block for small
    /// blocks. Default false. Sorted views over tables with it open faster (REMIX §4.1).
    pub key_counts: bool,
}

/// Bounds of [`TableOptions::block_bytes`].
const BLOCK_BYTES: std::ops::RangeInclusive<usize> = 256..=16 << 20;
/// Largest useful number of bits per key: more probes do not reduce the false positive rate.
const MAX_BLOOM_BITS: u32 = 32;
/// Bounds of [`TableOptions::index_partition_bytes`].
const PARTITION_BYTES: std::ops::RangeInclusive<usize> = 256..=16 << 20;

/// Maximum size of a decoded block: the largest entry, or a block of the largest size, and its overhead. Readers
/// reject a larger length before they allocate.
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

    /// The same settings, each clamped to its bounds.
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
