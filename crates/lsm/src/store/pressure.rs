//! How fast writers may go.
//!
//! Writers are never stopped dead while there is another way: from a first threshold on, every written
//! byte costs a little time, the more the further the background work lags behind. Only at a second
//! threshold, where memory would grow without bound, do they wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bolide_base::Result;
use parking_lot::Mutex;

use super::StoreInner;

/// Nanoseconds a byte at the edge of the slow zone, where writers are about to wait: 1 MB/s.
const SLOWEST_NANOS_PER_BYTE: u64 = 1_000;
/// Sleeps shorter than this cost more than they are worth: they are saved up.
const SHORTEST_SLEEP_NANOS: u64 = 1_000_000;
/// Stands for "wait until some background work is done".
const STOP: u64 = u64::MAX;

/// The current price of a written byte.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    /// Nanoseconds a byte; 0 in quiet times, [`STOP`] where writers wait.
    nanos_per_byte: AtomicU64,
    /// Time that writers owe.
    owed_nanos: AtomicU64,
    /// Held from the look at the trees until the price is told: of two looks the later one has the last word.
    /// Without it a price to wait could come in behind the one that ends the wait, and stay for ever.
    counting: Mutex<()>,
}

impl Pressure {
    /// The price for `runs` sorted runs, between `slowdown` and `stop`: rises with the square of the way
    /// gone, so that the first steps are hardly felt.
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
}

impl StoreInner {
    /// Counts anew how far the background work lags behind. Called whenever a memtable fills up, is
    /// flushed, or a compaction ends.
    pub(super) fn update_pressure(&self) {
        let _counting = self.pressure.counting.lock();
        let trees = self.trees.load();
        let mut price = 0;
        for tree in trees.values() {
            let state = tree.state_guard();
            if state.pending_flushes() > self.options.max_immutable_memtables {
                price = STOP;
            }
            // Runs that cannot be merged any more are no reason to wait for merges.
            let runs = if tree.unreadable.get().is_some() { 0 } else { state.version.first_level_runs() };
            price = price.max(Pressure::price(runs, self.options.slowdown_runs, self.options.stop_runs));
        }
        self.pressure.nanos_per_byte.store(price, Ordering::Release);
    }

    /// Whether writers are to wait for background work.
    #[inline]
    pub(super) fn throttles(&self) -> bool {
        self.pressure.nanos_per_byte.load(Ordering::Acquire) != 0 && self.options.background_threads != 0
    }

    /// Lets a writer of `bytes` wait as long as it should.
    pub(super) fn throttle(&self, bytes: usize) -> Result<()> {
        if !self.throttles() {
            return Ok(());
        }
        let price = self.pressure.nanos_per_byte.load(Ordering::Acquire);
        if price == STOP {
            return self.wait_for_background_work();
        }
        let owed = price.saturating_mul(bytes as u64);
        let total = self.pressure.owed_nanos.fetch_add(owed, Ordering::Relaxed).saturating_add(owed);
        if total >= SHORTEST_SLEEP_NANOS {
            self.pressure.owed_nanos.fetch_sub(total, Ordering::Relaxed);
            self.counters.throttled_nanos.fetch_add(total, Ordering::Relaxed);
            self.runtime.sleep(Duration::from_nanos(total.min(100 * SHORTEST_SLEEP_NANOS)));
        }
        Ok(())
    }

    fn wait_for_background_work(&self) -> Result<()> {
        let started = self.runtime.now_micros();
        let mut work = self.work.lock();
        while self.pressure.nanos_per_byte.load(Ordering::Acquire) == STOP {
            self.check_writable()?;
            // A background failure that may pass (a full disk) is told to the writer instead of keeping
            // it waiting for ever.
            if let Some(error) = work.take_failure() {
                return Err(error);
            }
            self.work_signal.wait(&mut work);
        }
        let waited = self.runtime.now_micros().saturating_sub(started);
        self.counters.throttled_nanos.fetch_add(waited.saturating_mul(1_000), Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_price_rises_smoothly_until_writers_wait() {
        let prices: Vec<_> = (0..=36).map(|runs| Pressure::price(runs, 12, 36)).collect();
        assert!(prices[..12].iter().all(|&price| price == 0));
        assert!(prices.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(prices[12] > 0 && prices[12] < 10);
        assert_eq!(prices[36], STOP);
    }
}
