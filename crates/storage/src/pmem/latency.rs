//! Delays that simulate slower memory in ordinary memory, for experiments without the hardware.
//!
//! The unit of access is a block of 256 bytes (Perseid §2.3). A read of a block costs the read delay unless the thread has read
//! the block recently; a persisted block costs the write delay.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use super::layout::{GRANULE_BYTES, Place};

/// Recently read blocks per thread: 1 MiB, about the cache of a core.
const CACHED_BLOCKS: usize = 4096;

/// The delays of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatencyModel {
    /// Delay of reading a block of 256 bytes, in nanoseconds, in addition to the memory's own.
    pub read_nanos: u64,
    /// Delay of persisting a block, in nanoseconds.
    pub write_nanos: u64,
}

/// The delays of one region.
#[derive(Debug)]
pub(super) struct Latency {
    model: LatencyModel,
}

thread_local! {
    /// By block modulo [`CACHED_BLOCKS`]: the last read block, plus one. Shared by all regions.
    static RECENT_BLOCKS: RefCell<Vec<Place>> = RefCell::new(vec![0; CACHED_BLOCKS]);
}

impl Latency {
    pub(super) fn new(model: LatencyModel) -> Self {
        Self { model }
    }

    /// Delays a read of `bytes` bytes from `at` on.
    pub(super) fn read(&self, at: Place, bytes: usize) {
        let fresh = RECENT_BLOCKS.with(|recent| {
            let mut recent = recent.borrow_mut();
            let mut fresh = 0;
            for block in blocks(at, bytes) {
                let cached = &mut recent[block as usize % CACHED_BLOCKS];
                fresh += u64::from(std::mem::replace(cached, block + 1) != block + 1);
            }
            fresh
        });
        spin(fresh * self.model.read_nanos);
    }

    /// Delays a write-back of `bytes` bytes from `at` on.
    pub(super) fn written(&self, at: Place, bytes: usize) {
        spin(blocks(at, bytes).count() as u64 * self.model.write_nanos);
    }
}

fn blocks(at: Place, bytes: usize) -> std::ops::Range<Place> {
    at / GRANULE_BYTES as Place..(at + bytes as Place).div_ceil(GRANULE_BYTES as Place)
}

fn spin(nanos: u64) {
    if nanos == 0 {
        return;
    }
    let start = Instant::now();
    let wait = Duration::from_nanos(nanos);
    while start.elapsed() < wait {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_delayed_once() {
        let latency = Latency::new(LatencyModel { read_nanos: 2_000_000, write_nanos: 3_000_000 });
        let timed = |act: &dyn Fn()| {
            let start = Instant::now();
            act();
            start.elapsed().as_millis()
        };
        assert!(timed(&|| latency.read(1 << 30, 257)) >= 4);
        assert!(timed(&|| (0..1000).for_each(|_| latency.read(1 << 30, 257))) < 1000);
        assert!(timed(&|| latency.written(1 << 30, 512)) >= 6);
    }
}
