//! How queries of a database fetch records: its settings, and the threads that help.

use std::sync::Arc;

use bolide_index::{FetchOptions, FetchPool, FetchPoolStats};
use bolide_storage::Runtime;

/// What a database or a query says about fetching; `None` leaves it to whoever stands behind.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FetchSettings {
    /// 0 means as many as the machine suggests.
    pub(crate) threads: Option<usize>,
    pub(crate) shared_from: Option<usize>,
    pub(crate) by_sequence: Option<bool>,
}

/// The settings of a database, with its threads.
#[derive(Debug)]
pub(crate) struct Fetching {
    pool: FetchPool,
    /// What the machine suggests; never 0.
    default_threads: usize,
    settings: FetchSettings,
}

impl Fetching {
    /// As `settings` say, with threads from `runtime`. Starts none.
    pub(crate) fn new(settings: FetchSettings, runtime: &Arc<dyn Runtime>) -> Self {
        let default_threads = FetchPool::default_threads(&**runtime);
        Self { pool: FetchPool::new(Arc::clone(runtime)), default_threads, settings }
    }

    /// How a query that says `wanted` fetches.
    pub(crate) fn options(&self, wanted: FetchSettings) -> FetchOptions<'_> {
        let mut fetch = FetchOptions::default();
        fetch.pool = Some(&self.pool);
        fetch.threads = match wanted.threads.or(self.settings.threads).unwrap_or(0) {
            0 => self.default_threads,
            threads => threads,
        };
        if let Some(shared_from) = wanted.shared_from.or(self.settings.shared_from) {
            fetch.shared_from = shared_from;
        }
        if let Some(by_sequence) = wanted.by_sequence.or(self.settings.by_sequence) {
            fetch.by_sequence = by_sequence;
        }
        fetch
    }

    /// What the threads did so far.
    pub(crate) fn stats(&self) -> FetchPoolStats {
        self.pool.stats()
    }
}
