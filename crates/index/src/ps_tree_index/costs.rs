//! Query costs of an index of kind `ps-tree`.

use std::fmt;

/// What queries on an index of kind `ps-tree` read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PsCosts {
    /// Secondary keys.
    pub keys: u64,
    /// PKey groups.
    pub groups: u64,
    /// PKey pages, counted per key.
    pub pages: u64,
    /// PKey entries, skipped ones included.
    pub entries: u64,
    /// Entries that were obsolete by the version table.
    pub obsolete: u64,
    /// Entries whose verdict at the snapshot was unknown.
    pub unknown: u64,
    /// Entries that the query flagged as obsolete.
    pub flagged: u64,
}

/// One line of text, as in [`Explain`](crate::Explain).
impl fmt::Display for PsCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "ps-tree       {} secondary keys, {} groups on {} pages, {} entries: {} obsolete, {} unknown; {} flagged",
            self.keys, self.groups, self.pages, self.entries, self.obsolete, self.unknown, self.flagged
        )
    }
}
