//! Query costs of an index of kind `ps-tree`.

use std::fmt;

crate::index_costs! {
    /// What queries on an index of kind `ps-tree` read.
    #[non_exhaustive]
    pub struct PsCosts for "ps-tree" {
        /// Secondary keys.
        keys,
        /// PKey groups.
        groups,
        /// PKey pages, counted per key.
        pages,
        /// PKey entries, skipped ones included.
        entries,
        /// Entries read from sstables.
        spilled,
        /// Entries that were obsolete by the version table.
        obsolete,
        /// Entries whose verdict at the snapshot was unknown.
        unknown,
        /// Entries that the query flagged as obsolete.
        flagged,
    }
}

/// One line of text, as in [`Explain`](crate::Explain).
impl fmt::Display for PsCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "ps-tree       {} secondary keys, {} groups on {} pages, {} entries, {} spilled ones: {} obsolete, {} unknown; {} flagged",
            self.keys,
            self.groups,
            self.pages,
            self.entries,
            self.spilled,
            self.obsolete,
            self.unknown,
            self.flagged
        )
    }
}
