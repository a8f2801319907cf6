//! Memory that is made before a region grows into it.
//!
//! Touching memory for the first time has the system find and clear it: microseconds for a page of 4 KiB, milliseconds for a
//! huge page of 2 MiB. In exchange, huge pages make a trip to a random place of a large region shorter, since the processor
//! knows where each of them lies without looking it up in memory first. So they are made by who has time for it, and a
//! region that grows takes what is ready.

use super::extent::HeapExtent;
use super::sync::Mutex;

/// Extents of a region up to which nothing is made ahead: small ones lie in caches as they are.
const SMALL: usize = 2;
/// For so many extents one is made ahead at most, so that a fourth of the memory at most waits for its use.
const EXTENTS_FOR_ONE: usize = 4;

/// Extents that are ready.
#[derive(Debug, Default)]
pub(super) struct Growth(Mutex<Ready>);

#[derive(Debug, Default)]
struct Ready {
    extents: Vec<HeapExtent>,
    /// How many the region had when some were last made ready.
    seen: usize,
}

impl Growth {
    /// One that is ready.
    pub(super) fn take(&self) -> Option<HeapExtent> {
        self.0.lock().extents.pop()
    }

    /// How many are ready.
    #[cfg(test)]
    pub(super) fn ready(&self) -> usize {
        self.0.lock().extents.len()
    }

    /// Makes some ready for a region that has `extents` now, as many as it took since the last call.
    pub(super) fn prepare(&self, extents: usize) {
        if extents < SMALL {
            return;
        }
        let wanted = {
            let mut ready = self.0.lock();
            let grown = extents.saturating_sub(ready.seen);
            ready.seen = extents;
            grown.clamp(1, extents.div_ceil(EXTENTS_FOR_ONE))
        };
        // Made without the lock: who grows meanwhile does not wait for it.
        while self.0.lock().extents.len() < wanted {
            let Ok(extent) = HeapExtent::touched() else { return };
            self.0.lock().extents.push(extent);
        }
    }
}
