//! Raw memory: large pages, slabs, arrays in them, and prefetches.
//!
//! | module | content |
//! |---|---|
//! | `large_pages`, `page_mapping` | memory in pages of 2 MiB |
//! | `page_pool` | free pages |
//! | `page_preallocator` | the background thread that fills the pool |
//! | `slabs`, `granule_bitmap` | large pages divided into pieces of 256 bytes and more |
//! | `shared_bytes` | reference-counted bytes of a cache, in slabs |
//! | `arena` | memory that is allocated in order and freed as a whole |
//! | `large_array`, `large_bytes` | arrays in large pages or slabs |
//! | `memory_pool` | the pages and slabs of one database |
//! | `memory_budget`, `memory_holder`, `memory_use` | the bytes that a database may take, and the structures that have them |
//! | `prefetch` | prefetches into the processor's cache |
//!
//! No memory is shared by the whole process: a [`MemoryPool`] belongs to a block cache, and with it to the databases that use
//! the cache.
//!
//! The crate has no notion of files or formats. It and the modules that build on its addresses contain the unsafe code of raw
//! memory.
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests start threads of their own"))]

mod arena;
mod granule_bitmap;
mod large_array;
mod large_bytes;
mod large_pages;
mod memory_budget;
#[cfg(test)]
mod memory_budget_tests;
mod memory_holder;
mod memory_pool;
mod memory_use;
mod page_mapping;
mod page_pool;
mod page_preallocator;
mod prefetch;
mod shared_bytes;
mod slabs;
mod sync;
#[cfg(test)]
mod test_random;

pub use arena::Arena;
pub use large_array::LargeArray;
pub use large_bytes::LargeBytes;
pub use large_pages::LargePages;
pub use memory_budget::{MemoryBudget, ReclaimableMemory, UsedMemory};
pub use memory_holder::MemoryHolder;
pub use memory_pool::MemoryPool;
pub use memory_use::{MemorySize, MemoryUse};
pub use page_mapping::LARGE_PAGE_BYTES;
pub use page_pool::{PagePool, Preallocate};
pub use page_preallocator::{LargePagePreallocator, ManualPreallocator};
pub use prefetch::{
    CACHE_LINE_BYTES, prefetch, prefetch_address, prefetch_line, prefetch_lines, prefetch_short,
};
pub use shared_bytes::{CacheMemory, SHARED_HEADER_BYTES, SharedBytes};
