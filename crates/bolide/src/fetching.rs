//! Fetch settings and helper threads of a database.

use std::sync::Arc;

use bolide_index::{FetchOptions, FetchPool, FetchPoolStats};
use bolide_storage::Runtime;

/// Fetch settings of a database or a query; `None` uses those of the database or the default.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FetchSettings {
    /// 0 means the default of the machine.
    pub(crate) threads: Option<usize>,
    pub(crate) shared_from: Option<usize>,
    pub(crate) by_sequence: Option<bool>,
}

/// The settings of a database, with its threads.
#[derive(Debug)]
pub(crate) struct Fetching {
    pool: FetchPool,
    /// The default of the machine; never 0.
    default_threads: usize,
    settings: FetchSettings,
}

impl Fetching {
    /// With `settings`, and threads from `runtime`. Starts none.
    pub(crate) fn new(settings: FetchSettings, runtime: &Arc<dyn Runtime>) -> Self {
        let default_threads = FetchPool::default_threads(&**runtime);
        Self { pool: FetchPool::new(Arc::clone(runtime)), default_threads, settings }
    }

    /// The fetch options of a query with the settings `query`.
    pub(crate) fn options(&self, query: FetchSettings) -> FetchOptions<'_> {
        let mut fetch = FetchOptions::default();
        fetch.pool = Some(&self.pool);
        fetch.threads = match query.threads.or(self.settings.threads).unwrap_or(0) {
            0 => self.default_threads,
            threads => threads,
        };
        if let Some(shared_from) = query.shared_from.or(self.settings.shared_from) {
            fetch.shared_from = shared_from;
        }
        if let Some(by_sequence) = query.by_sequence.or(self.settings.by_sequence) {
            fetch.by_sequence = by_sequence;
        }
        fetch
    }

    /// Statistics of the threads.
    pub(crate) fn stats(&self) -> FetchPoolStats {
        self.pool.stats()
    }
}
