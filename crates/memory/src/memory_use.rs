//! The purposes of memory, and the sizes by purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The purpose of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum MemoryUse {
    /// Blocks of sstables.
    BlockCache,
    /// Records that were read by their keys more than once.
    RowCache,
    /// Free pages of the pool.
    FreePages,
    /// Memtables of all trees, with their point indexes.
    Memtables,
    /// Regions of indexes.
    IndexRegions,
    /// Structures of indexes outside of their regions: filters of version tables, global indexes, decoded blocks.
    IndexStructures,
    /// Sorted views.
    SortedViews,
    /// Filters and block indexes of open sstables.
    OpenTables,
    /// Candidates, windows and rows of running queries.
    Queries,
    /// Buffers of running flushes and compactions.
    Compactions,
    /// The record of recent commits, for open transactions.
    RecentCommits,
}

impl MemoryUse {
    /// All uses, in the order of reports.
    pub const ALL: [Self; 11] = [
        Self::BlockCache,
        Self::RowCache,
        Self::FreePages,
        Self::Memtables,
        Self::IndexRegions,
        Self::IndexStructures,
        Self::SortedViews,
        Self::OpenTables,
        Self::Queries,
        Self::Compactions,
        Self::RecentCommits,
    ];

    /// The name in reports.
    ///
    /// ```
    /// assert_eq!(bolide_memory::MemoryUse::BlockCache.name(), "block cache");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::BlockCache => "block cache",
            Self::RowCache => "row cache",
            Self::FreePages => "free pages",
            Self::Memtables => "memtables",
            Self::IndexRegions => "index regions",
            Self::IndexStructures => "index structures",
            Self::SortedViews => "sorted views",
            Self::OpenTables => "open sstables",
            Self::Queries => "queries",
            Self::Compactions => "compactions",
            Self::RecentCommits => "recent commits",
        }
    }

    /// The position among the counters.
    pub(crate) fn position(self) -> usize {
        self as usize
    }
}

/// A size in memory, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemorySize {
    /// Bytes in use.
    pub used: u64,
    /// Bytes that count against the budget: for a cache its capacity.
    pub reserved: u64,
}

impl MemorySize {
    /// Of a structure that takes more only after a request or a report.
    pub fn used(bytes: u64) -> Self {
        Self { used: bytes, reserved: bytes }
    }
}

/// The bytes of one holder.
#[derive(Debug)]
pub(crate) struct HeldMemory {
    memory_use: MemoryUse,
    name: Option<Arc<str>>,
    pub(crate) bytes: AtomicU64,
}

impl HeldMemory {
    pub(crate) fn new(memory_use: MemoryUse, name: Option<Arc<str>>) -> Self {
        Self { memory_use, name, bytes: AtomicU64::new(0) }
    }

    pub(crate) fn memory_use(&self) -> MemoryUse {
        self.memory_use
    }

    pub(crate) fn name(&self) -> Option<&Arc<str>> {
        self.name.as_ref()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}
