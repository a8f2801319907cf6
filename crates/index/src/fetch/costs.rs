//! Counters of the fetches of one query.

use std::fmt;

/// Counters of the fetches of one query.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct FetchCosts {
    /// True if components could be skipped because of their sequence numbers.
    pub by_sequence: bool,
    /// Records found in the only components that can contain a write known to be current.
    pub exact: u64,
    /// Records not found there, and searched again by sequence number.
    pub missed: u64,
    /// Candidates found to be obsolete in memory, without a search for their records.
    pub spared: u64,
    /// Maximum threads that fetched a list of records together; 0 if none was shared.
    pub threads: u64,
    /// Records that were searched from a shared queue.
    pub shared: u64,
    /// Of these, records that helper threads searched.
    pub by_helpers: u64,
}

impl FetchCosts {
    /// Adds the costs of other fetches of the query.
    pub(crate) fn add(&mut self, other: &Self) {
        self.by_sequence |= other.by_sequence;
        self.exact += other.exact;
        self.missed += other.missed;
        self.spared += other.spared;
        self.threads = self.threads.max(other.threads);
        self.shared += other.shared;
        self.by_helpers += other.by_helpers;
    }
}

impl fmt::Display for FetchCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.by_sequence { "by sequence number" } else { "by key alone" };
        write!(
            f,
            "fetch         {mode}: {} exact, {} missed, {} spared",
            self.exact, self.missed, self.spared
        )?;
        match self.threads {
            0 => writeln!(f, "; one thread"),
            threads => {
                let (shared, helpers) = (self.shared, self.by_helpers);
                writeln!(f, "; {shared} shared by {threads} thread(s), {helpers} of them fetched by helpers")
            }
        }
    }
}
