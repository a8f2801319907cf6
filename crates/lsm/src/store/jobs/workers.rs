//! The worker threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bolide_base::{Error, Result};
use bolide_memory::{LARGE_PAGE_BYTES, LargePagePreallocator};
use bolide_storage::JoinHandle;

use crate::store::StoreInner;

/// Minimum size of memtables for which memory is prepared in advance: smaller ones do not use enough large pages.
const MIN_PREPARED_BYTES: usize = 4 * LARGE_PAGE_BYTES;

/// The background threads of a store. Dropping them stops and joins them.
#[derive(Debug)]
pub(in crate::store) struct Workers {
    inner: Arc<StoreInner>,
    threads: Vec<Box<dyn JoinHandle>>,
    /// Prepares memory for memtables and the log, in the last of the threads.
    preallocator: Option<Arc<LargePagePreallocator>>,
}

impl Workers {
    pub(in crate::store) fn start(inner: &Arc<StoreInner>) -> Result<Self> {
        let mut workers = Self { inner: inner.clone(), threads: Vec::new(), preallocator: None };
        let options = &inner.options;
        if options.read_only || options.background_threads == 0 {
            return Ok(workers);
        }
        for number in 0..options.background_threads {
            let shared = inner.clone();
            let name = format!("bolide-work-{number}");
            workers.threads.push(inner.runtime.spawn(&name, Box::new(move || shared.work_or_poison()))?);
        }
        if options.memtable_bytes >= MIN_PREPARED_BYTES {
            let preallocator = Arc::new(LargePagePreallocator::new(inner.files.pages().clone()));
            workers.preallocator = Some(preallocator.clone());
            workers.threads.push(inner.runtime.spawn("bolide-memory", Box::new(move || preallocator.run()))?);
        }
        Ok(workers)
    }

    /// Stops the threads after their current jobs; pending work waits for the next opening.
    pub(in crate::store) fn stop(&mut self) {
        self.inner.work.lock().stopping = true;
        self.inner.work.notify();
        if let Some(preallocator) = &self.preallocator {
            preallocator.stop();
        }
        for thread in self.threads.drain(..) {
            if let Err(error) = thread.join() {
                self.inner.health.poison(&error);
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop();
    }
}

impl StoreInner {
    /// Runs jobs until the store is closed. A panic between two jobs poisons the store: otherwise writers would wait
    /// for work that no thread does.
    fn work_or_poison(&self) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.work_loop())) {
            self.health.poison(&Error::panicked("a background thread", &*panic));
        }
    }
}
