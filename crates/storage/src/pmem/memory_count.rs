//! The memory of a region in the budget of its database.
//!
//! A region counts the space below its high-water mark: the memory above it is mapped, but was never touched. It counts in steps,
//! ahead of its allocations, so that a writer that reserves space is refused, and an allocation never fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bolide_base::Result;
use bolide_memory::MemoryHolder;

use super::layout::Place;

/// The step of small regions, in bytes.
const SMALL_STEP_BYTES: u64 = 64 << 10;
/// The largest step, in bytes, and the part (1/`STEP_DIVISOR`) of a region that a step is at most.
const MAX_STEP_BYTES: u64 = 1 << 20;
const STEP_DIVISOR: u64 = 16;

/// Counts the memory of a region, if a database has a budget for it.
#[derive(Debug, Default)]
pub(super) struct MemoryCount {
    holder: Option<Arc<MemoryHolder>>,
    /// Memory was counted that was not requested, since the last request.
    is_ahead: AtomicBool,
}

impl MemoryCount {
    pub(super) fn new(holder: Option<Arc<MemoryHolder>>) -> Self {
        Self { holder, is_ahead: AtomicBool::new(false) }
    }

    /// Requests the memory below `through`.
    ///
    /// # Errors
    /// `NoSpace` with the name of the holder.
    pub(super) fn request_through(&self, through: Place) -> Result<()> {
        if let Some(holder) = self.holder.as_ref().filter(|holder| holder.bytes() < through) {
            holder.request(stepped(through).saturating_sub(holder.bytes()))?;
            self.is_ahead.store(false, Ordering::Relaxed);
        }
        // The usual case: one load for each batch.
        Ok(())
    }

    /// Whether the memory below `through` is not counted yet.
    pub(super) fn is_below(&self, through: Place) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.bytes() < through)
    }

    /// Counts the memory below `through`, which is in use.
    pub(super) fn report_through(&self, through: Place) {
        if let Some(holder) = self.holder.as_ref().filter(|holder| holder.bytes() < through) {
            holder.set_and_release(through.next_multiple_of(SMALL_STEP_BYTES));
            self.is_ahead.store(true, Ordering::Relaxed);
        }
    }

    /// Whether allocations took more than was requested: free space is too fragmented for them.
    pub(super) fn is_ahead(&self) -> bool {
        self.is_ahead.load(Ordering::Relaxed)
    }

    /// Requests `bytes` more in advance; false if the budget does not allow it.
    pub(super) fn request_more(&self, bytes: u64) -> bool {
        self.holder.as_ref().is_none_or(|holder| holder.request(bytes).is_ok())
    }

    /// The space of `bytes` bytes behind `at`, of a small step at least.
    pub(super) fn step_behind(at: Place, bytes: u64) -> Place {
        at.saturating_add(bytes.max(SMALL_STEP_BYTES))
    }
}

/// The end of the step that contains the byte before `through`.
fn stepped(through: Place) -> u64 {
    let part = (through / STEP_DIVISOR).clamp(SMALL_STEP_BYTES, MAX_STEP_BYTES);
    through.next_multiple_of(1 << part.ilog2())
}

#[cfg(all(test, not(any(miri, bolide_shuttle))))]
mod tests {
    use bolide_memory::{MemoryBudget, MemoryUse};

    use super::*;
    use crate::pmem::{EXTENT_BYTES, Region, RegionOptions, RegionRestore};

    fn counted(limit: u64) -> (Arc<MemoryBudget>, Arc<MemoryHolder>, RegionOptions) {
        let budget = MemoryBudget::new(limit);
        let holder = Arc::new(budget.holder(MemoryUse::IndexRegions, Some("posts.author".into())));
        (budget, holder.clone(), RegionOptions::new().memory(holder))
    }

    #[test]
    fn an_empty_region_takes_one_small_step() {
        let (_budget, holder, options) = counted(u64::MAX);
        let region = Region::in_memory(options).unwrap();
        assert_eq!(holder.bytes(), SMALL_STEP_BYTES);
        let writer = region.writer();
        for _ in 0..100 {
            writer.reserve(4096).unwrap();
            writer.allocate(4096).unwrap();
            let used = region.stats().high_water_bytes;
            assert!(holder.bytes() >= used && holder.bytes() <= used + 2 * SMALL_STEP_BYTES);
        }
    }

    #[test]
    fn a_reservation_over_the_budget_is_refused_and_an_allocation_is_not() {
        let (budget, holder, options) = counted(3 << 20);
        let region = Region::in_memory(options).unwrap();
        let writer = region.writer();
        let mut allocated = 0;
        let refused = loop {
            match writer.reserve(16 << 10) {
                Ok(()) => writer.allocate(16 << 10).map(|_| allocated += 16 << 10).unwrap(),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), bolide_base::ErrorKind::NoSpace);
        assert!(refused.message().contains("posts.author"), "{refused}");
        assert!(holder.bytes() <= 3 << 20 && allocated > 2 << 20, "{allocated}");
        // A batch that has its reservation may take more; it is counted.
        writer.allocate(2 << 20).unwrap();
        assert!(holder.bytes() >= region.stats().high_water_bytes && budget.free_bytes() == 0);
        drop(writer);
        drop(region);
    }

    /// A batch is refused before it is logged, not during its allocations.
    #[test]
    fn the_memory_of_a_whole_reservation_is_requested() {
        let (_budget, holder, options) = counted(2 << 20);
        let region = Region::in_memory(options).unwrap();
        let writer = region.writer();
        assert_eq!(
            writer.reserve_with_memory(3 << 20, 3 << 20).unwrap_err().kind(),
            bolide_base::ErrorKind::NoSpace
        );
        let before = holder.bytes();
        assert!(before <= 2 * SMALL_STEP_BYTES, "{before}");
        writer.reserve_with_memory(3 << 20, 1 << 20).unwrap();
        let reserved = holder.bytes();
        assert!(reserved >= 1 << 20);
        (0..16).for_each(|_| _ = writer.allocate(64 << 10).unwrap());
        assert!(holder.bytes() <= reserved + MAX_STEP_BYTES && !region.memory.is_ahead());
    }

    #[test]
    fn free_space_is_reserved_without_a_request() {
        let (_budget, holder, options) = counted(2 << 20);
        let region = Region::in_memory(options).unwrap();
        let at = region.writer().allocate(1 << 20).unwrap();
        while region.writer().reserve(200 << 10).is_ok() {
            let _full = region.writer().allocate(64 << 10).unwrap();
        }
        region.writer().free(at, 1 << 20);
        let _again = region.writer().allocate(64 << 10).unwrap();
        region.writer().reserve(200 << 10).unwrap();
        assert!(holder.bytes() <= 2 << 20);
    }

    #[test]
    fn a_region_that_does_not_fit_is_not_restored() {
        let region = Region::in_memory(RegionOptions::new()).unwrap();
        (0..6).for_each(|_| _ = region.writer().allocate(EXTENT_BYTES / 4).unwrap());
        let mut pages = Vec::new();
        let mut checkpoint = region.checkpoint().unwrap();
        while let Some((page, bytes)) = checkpoint.next_page() {
            pages.push((page, bytes.to_vec()));
        }
        checkpoint.finish().unwrap();
        let restore = |limit| {
            let (_budget, holder, options) = counted(limit);
            let restore = RegionRestore::new(options);
            let put = |(page, bytes): &(u64, Vec<u8>)| restore.put_page(*page, bytes);
            pages.iter().try_for_each(put)?;
            restore.finish().map(|region| (holder.bytes(), region.stats().high_water_bytes))
        };
        let (bytes, used) = restore(16 << 20).unwrap();
        assert!(bytes >= used && bytes <= used + MAX_STEP_BYTES, "{bytes}, {used}");
        assert_eq!(restore(3 << 20).unwrap_err().kind(), bolide_base::ErrorKind::NoSpace);
    }
}
