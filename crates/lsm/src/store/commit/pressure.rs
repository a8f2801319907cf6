//! Write throttling.
//!
//! Writers are not stopped if it can be avoided. From a first threshold on, every written byte has a delay, which grows
//! with the backlog of background work. Only at a second threshold, where memory would grow without bound, writers
//! wait.
//!
//! The backlog is that of sorted runs, or the memory of an external tree that has to spill. A spill that fails is tried again later:
//! until then writers are slowed down but do not wait, and the memory budget is the bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bolide_base::Result;
use bolide_storage::Runtime;
use parking_lot::Mutex;

use crate::external_tree::SpillMemory;
use crate::options::StoreOptions;
use crate::store::health::Health;
use crate::store::jobs::work::WorkQueue;
use crate::store::stats::Counters;
use crate::store::tree::directory::TreeDirectory;

/// Delay in nanoseconds for each byte at the end of the slow range, just before writers wait: 1 MB/s.
const SLOWEST_NANOS_PER_BYTE: u64 = 1_000;
/// Minimum sleep in nanoseconds; shorter delays are accumulated because a sleep costs more.
const SHORTEST_SLEEP_NANOS: u64 = 1_000_000;
/// Special value: writers wait until background work is done.
const STOP: u64 = u64::MAX;

/// Parts of the memory of an external tree; and the numbers of parts in use at which writers are slowed down, and wait, while a
/// spill is due.
const MEMORY_PARTS: usize = 64;
const SLOWDOWN_PARTS: usize = 56;

/// The current delay of writes.
pub(in crate::store) struct Pressure {
    runtime: Arc<dyn Runtime>,
    /// Its signal wakes writers that wait.
    work: Arc<WorkQueue>,
    limits: PressureLimits,
    /// Delay in nanoseconds for each byte; 0 without a backlog, [`STOP`] if writers wait.
    nanos_per_byte: AtomicU64,
    /// Accumulated delay of writers.
    owed_nanos: AtomicU64,
    /// Serialises updates, from the inspection of the trees until the delay is stored. Otherwise a stale [`STOP`] could
    /// overwrite a newer value and remain for ever.
    counting: Mutex<()>,
}

/// The backlogs at which writers are slowed down or wait; see [`StoreOptions`].
struct PressureLimits {
    /// False if writers do the background work themselves.
    throttles: bool,
    max_immutable_memtables: usize,
    slowdown_runs: usize,
    stop_runs: usize,
}

impl Pressure {
    pub(in crate::store) fn new(
        options: &StoreOptions,
        runtime: Arc<dyn Runtime>,
        work: Arc<WorkQueue>,
    ) -> Self {
        let limits = PressureLimits {
            throttles: options.background_threads != 0,
            max_immutable_memtables: options.max_immutable_memtables,
            slowdown_runs: options.slowdown_runs,
            stop_runs: options.stop_runs,
        };
        Self {
            runtime,
            work,
            limits,
            nanos_per_byte: AtomicU64::new(0),
            owed_nanos: AtomicU64::new(0),
            counting: Mutex::new(()),
        }
    }

    /// The delay for `runs` sorted runs between `slowdown` and `stop`: quadratic, so that the first steps are small.
    fn price(runs: usize, slowdown: usize, stop: usize) -> u64 {
        if runs >= stop {
            return STOP;
        }
        if runs < slowdown {
            return 0;
        }
        let gone = (runs - slowdown + 1) as u64;
        let way = (stop - slowdown).max(1) as u64;
        (SLOWEST_NANOS_PER_BYTE * gone * gone / (way * way)).max(1)
    }

    /// The delay while an external tree with this memory has to spill.
    fn price_of_memory(memory: SpillMemory) -> u64 {
        let parts = u128::from(memory.used_bytes) * MEMORY_PARTS as u128;
        let parts = parts / u128::from(memory.limit_bytes.max(1));
        Pressure::price(parts.min(MEMORY_PARTS as u128) as usize, SLOWDOWN_PARTS, MEMORY_PARTS)
    }

    /// Updates the delay from the backlog of `trees`. Called whenever a memtable fills up or is
    /// flushed, a spill becomes due, or a compaction ends.
    /// While memory `is_exceeded`, full memtables are flushed at once, and writers wait for that.
    pub(in crate::store) fn update(&self, trees: &TreeDirectory, is_exceeded: bool) {
        let _counting = self.counting.lock();
        let mut price = 0;
        for tree in trees.load().values() {
            let state = tree.state_guard();
            if is_exceeded && !state.immutables.is_empty() {
                tree.flush_all.store(true, Ordering::Release);
                price = STOP;
            }
            if state.pending_flushes() > self.limits.max_immutable_memtables {
                price = STOP;
            }
            // If runs cannot be merged any more, waiting for merges is useless.
            let runs = if tree.unreadable.get().is_some() { 0 } else { state.version.first_level_runs() };
            price = price.max(Pressure::price(runs, self.limits.slowdown_runs, self.limits.stop_runs));
            if let Some(spilling) = tree.backend().due_spill(&state.version) {
                let of_spill = Pressure::price_of_memory(spilling.memory());
                let has_failed = tree.spill_failures.are_there();
                price = price.max(if has_failed { of_spill.min(SLOWEST_NANOS_PER_BYTE) } else { of_spill });
            }
        }
        self.nanos_per_byte.store(price, Ordering::Release);
    }

    /// True if writers must wait or sleep.
    #[inline]
    pub(super) fn throttles(&self) -> bool {
        self.nanos_per_byte.load(Ordering::Acquire) != 0 && self.limits.throttles
    }

    /// Delays a write of `bytes` bytes.
    pub(super) fn throttle(&self, bytes: usize, health: &Health, counters: &Counters) -> Result<()> {
        if !self.throttles() {
            return Ok(());
        }
        let price = self.nanos_per_byte.load(Ordering::Acquire);
        if price == STOP {
            return self.wait_for_background_work(health, counters);
        }
        let owed = price.saturating_mul(bytes as u64);
        let total = self.owed_nanos.fetch_add(owed, Ordering::Relaxed).saturating_add(owed);
        if total >= SHORTEST_SLEEP_NANOS {
            self.owed_nanos.fetch_sub(total, Ordering::Relaxed);
            counters.throttled_nanos.fetch_add(total, Ordering::Relaxed);
            self.runtime.sleep(Duration::from_nanos(total.min(100 * SHORTEST_SLEEP_NANOS)));
        }
        Ok(())
    }

    fn wait_for_background_work(&self, health: &Health, counters: &Counters) -> Result<()> {
        let started = self.runtime.now_micros();
        let mut work = self.work.lock();
        while self.nanos_per_byte.load(Ordering::Acquire) == STOP {
            health.check()?;
            // A transient background failure (a full disk) is returned to the writer, which would otherwise wait for
            // ever.
            if let Some(error) = work.take_failure() {
                return Err(error);
            }
            self.work.wait(&mut work);
        }
        let waited = self.runtime.now_micros().saturating_sub(started);
        counters.throttled_nanos.fetch_add(waited.saturating_mul(1_000), Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bolide_storage::{MemVfs, SystemRuntime};
    use bolide_table::BlockCache;

    use super::*;
    use crate::options::{SyncMode, TreeOptions};
    use crate::store::{Store, StoreComponents};

    #[test]
    fn writers_do_not_wait_for_work_on_a_dropped_tree() {
        let mut options = StoreOptions::new("/db");
        options.background_threads = 1;
        options.memtable_bytes = 64 << 10;
        options.max_immutable_memtables = 1;
        // No memtable is flushed.
        options.start_paused = true;
        let components = StoreComponents {
            vfs: Arc::new(MemVfs::new()),
            runtime: Arc::new(SystemRuntime::new()),
            cache: BlockCache::new(1 << 20),
        };
        let store = Store::open(options, components).unwrap();
        let tree = store.create_tree(TreeOptions::default(), b"").unwrap();
        let pressure = &store.inner.pressure;
        for key in 0..1_000_u32 {
            if pressure.throttles() {
                break;
            }
            store.put(tree, &key.to_be_bytes(), &[7; 2_000], SyncMode::None).unwrap();
        }
        assert_eq!(pressure.nanos_per_byte.load(Ordering::Acquire), STOP);
        store.drop_tree(tree).unwrap();
        assert!(!pressure.throttles());
        let other = store.create_tree(TreeOptions::default(), b"").unwrap();
        store.put(other, b"key", b"value", SyncMode::None).unwrap();
    }

    #[test]
    fn the_price_rises_smoothly_until_writers_wait() {
        let prices: Vec<_> = (0..=36).map(|runs| Pressure::price(runs, 12, 36)).collect();
        assert!(prices[..12].iter().all(|&price| price == 0));
        assert!(prices.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(prices[12] > 0 && prices[12] < 10);
        assert_eq!(prices[36], STOP);
    }

    #[test]
    fn the_price_of_memory_rises_from_seven_eighths_to_the_bound() {
        let of = |used_bytes| Pressure::price_of_memory(SpillMemory { used_bytes, limit_bytes: 6_400 });
        assert_eq!((of(0), of(5_599)), (0, 0));
        assert!(0 < of(5_600) && of(5_600) < of(6_000) && of(6_399) <= SLOWEST_NANOS_PER_BYTE);
        assert_eq!((of(6_400), of(u64::MAX)), (STOP, STOP));
    }
}
