//! What fetching did for one query.

use std::fmt;

/// How the records of a query were fetched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FetchCosts {
    /// True if components could be left out because of their sequence numbers.
    pub by_sequence: bool,
    /// Records that were looked for only where a write known to be current can lie, and were there.
    pub exact: u64,
    /// Those that were not there, and were looked for again as ever.
    pub missed: u64,
    /// Candidates found to be obsolete in memory, before their records were looked for.
    pub spared: u64,
    /// Most threads that fetched a list of records together; 0 where none was shared.
    pub threads: u64,
    /// Records that were looked for from a shared queue.
    pub shared: u64,
    /// Those among them that other threads than the caller's looked for.
    pub by_helpers: u64,
}

impl fmt::Display for FetchCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let manner = if self.by_sequence { "by sequence number" } else { "by key alone" };
        write!(
            f,
            "fetch         {manner}: {} exact, {} missed, {} spared",
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
