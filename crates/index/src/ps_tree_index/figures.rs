//! Size and progress of an index of kind `ps-tree`.

use crate::figures::{FigureValue, IndexFigures};
use crate::ps_tree::PsTreeStats;

/// Size of an index, and how far its durable state is behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PsTreeFigures {
    /// Secondary keys, counted since the index was opened on top of the stored count.
    pub keys: u64,
    /// Entries, obsolete ones included, counted the same way.
    pub entries: u64,
    /// Bytes of address space of the region.
    pub region_bytes: u64,
    /// Bytes of it in use.
    pub allocated_bytes: u64,
    /// Bytes of memory at which writers wait for a spill; `u64::MAX` without a bound.
    pub memory_limit_bytes: u64,
    /// Bytes of it that are free, or will be once readers unpin them.
    pub free_bytes: u64,
    /// Primary keys in the version table.
    pub version_keys: u64,
    /// Bytes of the version table.
    pub version_bytes: u64,
    /// Bytes of its novelty filter.
    pub filter_bytes: u64,
    /// The region is changed in place, in persistent memory.
    pub in_place: bool,
    /// Bytes of its files.
    pub disk_bytes: u64,
    /// Bytes of them that are not garbage.
    pub disk_live_bytes: u64,
    /// Page segments.
    pub segments: u64,
    /// Bytes written by checkpoints, or written back in place, since the index was opened.
    pub written_bytes: u64,
    /// Bytes of pages that changed since the last checkpoint.
    pub unwritten_bytes: u64,
    /// Entries of writes at or below this number are in sstables; 0 without spills.
    pub spilled_through: u64,
    /// Sequence numbers since the durable state.
    pub unwritten_sequences: u64,
}

impl IndexFigures for PsTreeFigures {
    fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    fn memory_bytes(&self) -> u64 {
        // Version table and filter lie in the region.
        self.allocated_bytes
    }

    fn named(&self) -> Vec<(&'static str, FigureValue)> {
        vec![
            ("region", FigureValue::Text(if self.in_place { "dax" } else { "disk" })),
            ("region_bytes", self.region_bytes.into()),
            ("allocated_bytes", self.allocated_bytes.into()),
            ("free_bytes", self.free_bytes.into()),
            ("live_bytes_on_disk", self.disk_live_bytes.into()),
            ("secondary_keys", self.keys.into()),
            ("version_keys", self.version_keys.into()),
            ("version_bytes", self.version_bytes.into()),
            ("filter_bytes", self.filter_bytes.into()),
            ("spilled_through", self.spilled_through.into()),
            ("unwritten_bytes", self.unwritten_bytes.into()),
            ("unwritten_sequences", self.unwritten_sequences.into()),
        ]
    }
}

impl IndexFigures for PsTreeStats {
    /// 0: its pages on disk are those of its region.
    fn disk_bytes(&self) -> u64 {
        0
    }

    fn memory_bytes(&self) -> u64 {
        self.head_page_bytes + self.sealed_page_bytes + self.skey.node_bytes + self.skey.record_bytes
    }

    fn named(&self) -> Vec<(&'static str, FigureValue)> {
        vec![
            ("page_bytes", (self.head_page_bytes + self.sealed_page_bytes).into()),
            ("filled_page_bytes", self.filled_bytes.into()),
            ("garbage_page_bytes", self.garbage_bytes().into()),
            ("key_bytes", (self.skey.node_bytes + self.skey.record_bytes).into()),
            ("flagged_entries", self.flagged.into()),
        ]
    }
}
