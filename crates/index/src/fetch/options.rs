//! The settings of fetching.

use super::pool::FetchPool;

/// Settings of fetching. They do not change answers.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct FetchOptions<'a> {
    /// Skip components that are excluded by their sequence numbers. Default: true.
    pub by_sequence: bool,
    /// Threads that fetch together, the caller's included. Default: 1.
    pub threads: usize,
    /// Minimum records for a fetch by several threads; 1/128 of that, but at least two, if they are read from files.
    /// Default: 1024, so that eight records from files are shared. For 200 cached records two processors are slower than
    /// one (`docs/evidence/perseid-10.md`).
    pub shared_from: usize,
    /// The threads. Default: none, the caller fetches alone.
    pub pool: Option<&'a FetchPool>,
}

impl Default for FetchOptions<'_> {
    fn default() -> Self {
        Self { by_sequence: true, threads: 1, shared_from: 1024, pool: None }
    }
}
