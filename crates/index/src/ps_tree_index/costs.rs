//! What questions cost.

use std::fmt;

/// What questions to an index of kind `ps-tree` read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PsCosts {
    /// Secondary keys.
    pub keys: u64,
    /// PKey groups.
    pub groups: u64,
    /// PKey pages, counted again for each key.
    pub pages: u64,
    /// PKey entries, those passed over included.
    pub entries: u64,
    /// Entries that the version table found obsolete.
    pub obsolete: u64,
    /// Entries that it could not judge at the snapshot.
    pub unknown: u64,
    /// Entries that the question flagged as obsolete.
    pub flagged: u64,
}

/// For people: a line, as [`Explain`](crate::Explain) has them.
impl fmt::Display for PsCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "ps-tree       {} secondary keys, {} groups on {} pages, {} entries: {} obsolete, {} unknown; {} flagged",
            self.keys, self.groups, self.pages, self.entries, self.obsolete, self.unknown, self.flagged
        )
    }
}
