//! The settings of fetching.

use super::pool::FetchPool;

/// How records are fetched. Whatever it says, the answers are the same.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct FetchOptions<'a> {
    /// Leave out components that cannot matter because of their sequence numbers. Default: true.
    pub by_sequence: bool,
    /// Threads that fetch together, the caller's included. Default: 1.
    pub threads: usize,
    /// Records from which on several threads fetch them; a 128th of that, but no fewer than two, where they are read from
    /// files. Default: 1024, so that eight from files are shared. Two processors took longer over 200 cached records than one
    /// (`docs/EVIDENCE.md`, Perseid's figure 10).
    pub shared_from: usize,
    /// The threads. Default: none, the caller fetches alone.
    pub pool: Option<&'a FetchPool>,
}

impl Default for FetchOptions<'_> {
    fn default() -> Self {
        Self { by_sequence: true, threads: 1, shared_from: 1024, pool: None }
    }
}
