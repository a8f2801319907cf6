//! The thread that makes pages ahead of those who fill them.
//!
//! ```text
//! what is made          for whom                            when
//! large pages           LargePages::new, of one page        few are kept, see Pool::is_short
//! the next extent       a log that nobody syncs             it asks while it fills the one before, see ask
//! ```
//!
//! Extents go first, but where no page is kept at all: who takes the next page waits for it at once, while a log that asks has some of
//! its extent left.

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::large_pages::{LARGE_PAGE_BYTES, MAKER_WANTED, MadeAhead, Mapping, POOL};

/// Has a maker call [`make_ahead`](MadeAhead::make_ahead) soon, once however often it was asked meanwhile, unless `whom` is gone by then. False where
/// there is no maker; never waits for one.
pub(crate) fn ask(whom: Weak<dyn MadeAhead>) -> bool {
    let mut pool = POOL.lock();
    if pool.makers == 0 {
        return false;
    }
    if !pool.asked.iter().any(|other| other.ptr_eq(&whom)) {
        // Those who are gone take no room: there are no more entries than who can ask.
        pool.asked.retain(|other| other.strong_count() > 0);
        pool.asked.push_back(whom);
    }
    drop(pool);
    MAKER_WANTED.notify_one();
    true
}

/// Makes large pages ahead of those who fill them, in a thread of its own.
///
/// A writer that gets a page which was never touched waits for the system to clear 2 MiB. Where others have just given
/// pages back it gets one of theirs; but while a flush takes longer than the next memtable takes to fill up, nobody gives
/// any back. Then those made here are at hand: one for each four pages in use, at most eight, 16 MiB in the whole process
/// however many makers there are. What is ready stays ready until it is used.
///
/// The same holds for a log of [`DiskVfs`](crate::DiskVfs) that nobody syncs while it fills up: its next extent, 4 MiB of the file, is reserved and
/// in memory when it is needed. One for each log.
///
/// ```
/// use std::sync::Arc;
/// use bolide_storage::{LargePagePreallocator, Runtime, SystemRuntime};
///
/// let maker = Arc::new(LargePagePreallocator::default());
/// let works = maker.clone();
/// let thread = SystemRuntime::new().spawn("memory", Box::new(move || works.run()))?;
/// maker.stop();
/// thread.join()?;
/// # Ok::<(), bolide_base::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct LargePagePreallocator {
    /// Changed under the lock of the pool.
    is_stopping: AtomicBool,
}

impl LargePagePreallocator {
    /// Makes pages whenever few are left, and what logs ask for, until it is told to stop. It sleeps while there are enough.
    pub fn run(&self) {
        self.run_with(|| Mapping::touched(LARGE_PAGE_BYTES));
    }

    /// The same, with pages from `make`.
    pub(crate) fn run_with(&self, mut make: impl FnMut() -> Option<Mapping>) {
        let mut pool = POOL.lock();
        pool.makers += 1;
        // Memory is short: nothing is made until somebody takes a page and asks again.
        let mut has_failed = false;
        while !self.is_stopping.load(Ordering::Relaxed) {
            let is_short = !has_failed && pool.is_short();
            if !(is_short && pool.kept.is_empty())
                && let Some(asked) = pool.asked.pop_front()
            {
                drop(pool);
                if let Some(asked) = asked.upgrade() {
                    asked.make_ahead();
                }
                pool = POOL.lock();
                continue;
            }
            if !is_short {
                has_failed = false;
                MAKER_WANTED.wait(&mut pool);
                continue;
            }
            pool.being_made += 1;
            drop(pool);
            // Made without the lock: who asks meanwhile does not wait for it.
            let made = make();
            pool = POOL.lock();
            pool.being_made -= 1;
            has_failed = made.is_none();
            if let Some(page) = made {
                drop(pool.keep(page));
            }
        }
        pool.makers -= 1;
        if pool.makers == 0 {
            pool.asked.clear();
        }
    }

    /// Has [`run`](Self::run) return, after the page or the extent at hand.
    pub fn stop(&self) {
        // The lock orders this signal after the look of a maker that is about to sleep.
        let pool = POOL.lock();
        self.is_stopping.store(true, Ordering::Relaxed);
        drop(pool);
        MAKER_WANTED.notify_all();
    }
}

#[cfg(test)]
#[path = "page_maker_tests.rs"]
mod tests;
