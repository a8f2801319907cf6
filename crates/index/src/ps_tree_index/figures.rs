//! Size and progress of an index of kind `ps-tree`.

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
    /// Sequence numbers since the durable state.
    pub unwritten_sequences: u64,
}
