//! The immutable sstable of Bolide: a sorted file of entries `(user key, trailer, value)`.
//!
//! [`TableBuilder`] writes one in a single pass. [`TableReader`] serves point reads; [`TableCursor`] iterates in both
//! directions. Blocks are verified, decompressed and stored in a [`BlockCache`]; a [`FilePool`] limits the open files. The
//! crate does not depend on the trees above it: a [`MetaCollector`] may add its own meta blocks to a table. The
//! module documentation of each codec and `docs/formats/sstable.md` describe the byte layout.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests start threads of their own"))]

mod block;
mod block_builder;
mod block_cache;
mod block_shape;
mod bloom;
mod buffered_entry;
mod cache_stats;
mod cached_lookup;
mod describe;
mod estimate;
mod file_pool;
mod footer;
#[doc(hidden)]
pub mod fuzzing;
mod index_block;
mod internal_cursor;
mod key_counts;
mod meta_collector;
mod options;
mod owner;
mod pinned_block;
mod point_read;
mod properties;
mod read_counters;
mod readahead;
mod salvage;
mod stored_block;
mod table_builder;
mod table_cursor;
mod table_reader;
mod value_ref;
mod verify;

pub use block::KeyDifference;
pub use block_cache::BlockCache;
pub use bloom::BloomFilter;
pub use buffered_entry::BufferedEntry;
pub use cache_stats::BlockCacheStats;
pub use cached_lookup::CachedLookup;
pub use describe::{DescribeMetaBlock, ExplainEntry, TableDetail};
pub use file_pool::{FilePool, FileSource, table_file_name};
pub use footer::{TABLE_FORMAT_VERSION, read_identity};
pub use internal_cursor::{EntryHead, InternalCursor, key_head};
pub use key_counts::KeyCounts;
pub use meta_collector::MetaCollector;
pub use options::{Compression, MAX_META_BLOCK_BYTES, TableOptions};
pub use owner::{MAX_OWNER_BYTES, TableOwner};
pub use pinned_block::{NumberedBlocks, PinnedBlock, PinnedEntry};
pub use point_read::{PointRead, read_many};
pub use properties::TableProperties;
pub use read_counters::ReadCounters;
pub use readahead::MAX_CURSOR_BYTES;
pub use salvage::{SalvageCursor, SkippedBlock, TableSalvage};
pub use stored_block::BlockHandle;
pub use table_builder::TableBuilder;
pub use table_cursor::{TableCursor, TablePosition};
pub use table_reader::TableReader;
pub use value_ref::ValueRef;
pub use verify::TableVerification;
