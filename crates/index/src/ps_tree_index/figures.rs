//! Figures of an index of kind `ps-tree`.

/// What an index takes, and how far what it has on disk is behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PsTreeFigures {
    /// Secondary keys, as counted since the index was opened and noted before.
    pub keys: u64,
    /// Entries, obsolete ones included, counted likewise.
    pub entries: u64,
    /// Bytes of address space of the region.
    pub region_bytes: u64,
    /// Bytes of it that are in use.
    pub allocated_bytes: u64,
    /// Bytes of it that wait for readers or can be handed out without growing.
    pub free_bytes: u64,
    /// Primary keys in the version table.
    pub version_keys: u64,
    /// Bytes of the version table.
    pub version_bytes: u64,
    /// Bytes of its filter of keys that were written before.
    pub filter_bytes: u64,
    /// The region is changed in place, in persistent memory.
    pub in_place: bool,
    /// Bytes of its files.
    pub disk_bytes: u64,
    /// Bytes of them that are not garbage.
    pub disk_live_bytes: u64,
    /// Page segments.
    pub segments: u64,
    /// Bytes that cuts wrote, or that were written back in place, since the index was opened.
    pub written_bytes: u64,
    /// Bytes of pages that changed since the last cut: what the next one writes.
    pub unwritten_bytes: u64,
    /// Sequence numbers since the newest that it has on disk.
    pub unwritten_sequences: u64,
}
