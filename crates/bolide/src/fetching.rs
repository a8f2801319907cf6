//! How queries of a database fetch records: its settings, and the threads that help.

use std::sync::Arc;

use bolide_index::{FetchOptions, FetchPool, FetchPoolStats};
use bolide_storage::Runtime;

use crate::find::FindOptions;
use crate::options::Options;

/// The settings of a database, with its threads.
#[derive(Debug)]
pub(crate) struct Fetching {
    pool: FetchPool,
    /// Where nobody says; never 0.
    default_threads: usize,
    threads: usize,
    shared_from: usize,
    by_sequence: bool,
}

impl Fetching {
    /// As `options` say, with threads from `runtime`. Starts none.
    pub(crate) fn new(options: &Options, runtime: &Arc<dyn Runtime>) -> Self {
        Self {
            pool: FetchPool::new(Arc::clone(runtime)),
            default_threads: FetchPool::default_threads(&**runtime),
            threads: options.fetch_threads,
            shared_from: options.fetch_shared_from,
            by_sequence: options.fetch_by_sequence,
        }
    }

    /// How a query with `options` fetches.
    pub(crate) fn options(&self, options: &FindOptions) -> FetchOptions<'_> {
        let mut fetch = FetchOptions::default();
        fetch.by_sequence = options.fetch_by_sequence.unwrap_or(self.by_sequence);
        fetch.threads = match options.fetch_threads.unwrap_or(self.threads) {
            0 => self.default_threads,
            threads => threads,
        };
        fetch.shared_from = options.fetch_shared_from.unwrap_or(self.shared_from);
        fetch.pool = Some(&self.pool);
        fetch
    }

    /// What the threads did so far.
    pub(crate) fn stats(&self) -> FetchPoolStats {
        self.pool.stats()
    }
}
