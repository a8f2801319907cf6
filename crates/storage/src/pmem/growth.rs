//! Preallocated extents of a growing region.
//!
//! At the first access to memory the system finds and clears it: microseconds for a page of 4 KiB, milliseconds for a huge page
//! of 2 MiB. In exchange, random accesses to a large region in huge pages rarely miss the TLB. So background threads preallocate
//! extents in huge pages, and a growing region uses them.

use super::extent::HeapExtent;
use super::layout::EXTENT_BYTES;
use super::memory_count::MemoryCount;
use super::sync::Mutex;

/// The smallest region with preallocated extents, in extents: smaller ones fit into caches.
const MIN_EXTENTS: usize = 2;
/// One extent is preallocated for at most this many extents: at most a fourth of the memory is unused.
const EXTENTS_PER_PREPARED: usize = 4;

/// Preallocated extents of a region.
#[derive(Debug, Default)]
pub(super) struct Growth(Mutex<PreparedExtents>);

#[derive(Debug, Default)]
struct PreparedExtents {
    extents: Vec<HeapExtent>,
    /// The number of extents of the region at the last call of `prepare`.
    previous: usize,
}

impl Growth {
    /// Removes a prepared extent.
    pub(super) fn take(&self) -> Option<HeapExtent> {
        self.0.lock().extents.pop()
    }

    /// The number of prepared extents.
    #[cfg(test)]
    pub(super) fn prepared(&self) -> usize {
        self.0.lock().extents.len()
    }

    /// Prepares extents for a region of `extents` extents: as many as it has grown by since the last call.
    /// `memory` counts them.
    pub(super) fn prepare(&self, extents: usize, memory: &MemoryCount) {
        if extents < MIN_EXTENTS {
            return;
        }
        let target = {
            let mut prepared = self.0.lock();
            let grown = extents.saturating_sub(prepared.previous);
            prepared.previous = extents;
            grown.clamp(1, extents.div_ceil(EXTENTS_PER_PREPARED))
        };
        // Allocated without the lock, so that a growing region does not wait.
        while self.0.lock().extents.len() < target {
            if !memory.request_more(EXTENT_BYTES as u64) {
                return;
            }
            let Ok(extent) = HeapExtent::prefaulted() else { return };
            self.0.lock().extents.push(extent);
        }
    }
}
