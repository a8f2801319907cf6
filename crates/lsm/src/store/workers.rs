//! The threads that do the work of the scheduler.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bolide_base::{Error, Result};
use bolide_storage::{JoinHandle, LARGE_PAGE_BYTES, LargePageMaker};

use super::{StoreInner, poison};

/// From so many bytes of memtables on, memory is made ahead for them: smaller ones never have as many large pages in use
/// as make it worth it.
const SMALLEST_MADE_AHEAD: usize = 4 * LARGE_PAGE_BYTES;

/// The background threads of a store. Dropping them stops and joins them.
#[derive(Debug)]
pub(super) struct Workers {
    inner: Arc<StoreInner>,
    threads: Vec<Box<dyn JoinHandle>>,
    /// Has memory ready for memtables and the log, in the last of the threads.
    page_maker: Option<Arc<LargePageMaker>>,
}

impl Workers {
    pub(super) fn start(inner: &Arc<StoreInner>) -> Result<Self> {
        let mut workers = Self { inner: inner.clone(), threads: Vec::new(), page_maker: None };
        let options = &inner.options;
        if options.read_only || options.background_threads == 0 {
            return Ok(workers);
        }
        for number in 0..options.background_threads {
            let shared = inner.clone();
            let name = format!("bolide-work-{number}");
            workers.threads.push(inner.runtime.spawn(&name, Box::new(move || shared.work_or_poison()))?);
        }
        if options.memtable_bytes >= SMALLEST_MADE_AHEAD {
            let maker = Arc::new(LargePageMaker::default());
            workers.page_maker = Some(maker.clone());
            workers.threads.push(inner.runtime.spawn("bolide-memory", Box::new(move || maker.run()))?);
        }
        Ok(workers)
    }

    /// Stops the threads after the work at hand; what is left waits for the next opening.
    pub(super) fn stop(&mut self) {
        self.inner.work.lock().stopping = true;
        self.inner.work_signal.notify_all();
        if let Some(maker) = &self.page_maker {
            maker.stop();
        }
        for thread in self.threads.drain(..) {
            if let Err(error) = thread.join() {
                poison(&self.inner, &error);
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
    /// Works until the store is closed. A panic between two jobs poisons the store: writers would wait for work that no
    /// thread does.
    fn work_or_poison(&self) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.work_loop())) {
            poison(self, &Error::panicked("a background thread", &*panic));
        }
    }
}
