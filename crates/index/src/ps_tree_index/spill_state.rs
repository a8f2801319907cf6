//! The cut of an index and the bound of its memory; see the rules in [`spill`](super::spill).
//!
//! ```text
//! bound      `memory=`, or a quarter of the memory budget
//! > 3/4      a spill is due; it frees memory down to a half
//! > 7/8      writers are slowed down while a spill is due; at the bound they wait for it
//! ```
//!
//! The bound falls to the present size, or to an eighth of its first value or 256 KiB if these are more, when the budget is nearly
//! exhausted: several indexes, or other structures, may need more than there is. It doubles with each measurement that finds a
//! quarter of its first value to grant, up to that value.
//!
//! Memory is measured after writes that are likely to have taken a small part of the bound. So a write adds to a counter, and
//! compares it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bolide_base::{Result, SequenceNumber};
use bolide_lsm::external_tree::SpillMemory;
use bolide_memory::MemoryBudget;
use bolide_storage::pmem::Region;

/// Root slot of the region with the cut.
pub(super) const CUT_SLOT: usize = 28;

/// An index without `memory=` takes at most this part (1/`BUDGET_DIVISOR`) of the budget.
const BUDGET_DIVISOR: u64 = 4;
/// Memory is measured after writes of this part (1/`MEASURE_DIVISOR`) of the bound.
const MEASURE_DIVISOR: u64 = 64;
/// The bound falls when the budget can grant less than this part (1/`SPARE_DIVISOR`) of it, or half that part of the budget.
const SPARE_DIVISOR: u64 = 8;
/// The bound rises again when the budget can grant so many times the part at which it falls, and does not fall below
/// 1/`SPARE_DIVISOR` of its first value.
const RISE_FACTOR: u64 = 2;
/// The budget is compared after a region has grown by so many bytes.
const BUDGET_STEP_BYTES: u64 = 256 << 10;
/// The time that the first spill waits for cursors that read memory alone, in yields of the processor.
const MAX_WAITS: u32 = 1_000;

/// Values of [`SpillState::tiers`]; others are an epoch of the region.
const IN_MEMORY: u64 = 0;
const TIERED: u64 = u64::MAX;

/// No spill before the entries have grown by this part (1/`GROWTH_DIVISOR`) since the last one, and by so many.
const GROWTH_DIVISOR: u64 = 8;
const MIN_GROWTH: u64 = 16;

/// The cut of an index, and the bound of its memory.
pub(super) struct SpillState {
    /// Bound of memory in bytes; `u64::MAX` if all entries stay.
    limit: AtomicU64,
    /// The first value of `limit`, which it never exceeds.
    max_limit: u64,
    cut: AtomicU64,
    /// [`IN_MEMORY`] before the first spill, the epoch of the last pins of cursors that read memory alone, then [`TIERED`].
    tiers: AtomicU64,
    /// Entries after the last spill.
    entries_left: AtomicU64,
    /// Bytes of memory when it was measured last.
    used: AtomicU64,
    /// Likely bytes of writes since then.
    unmeasured: AtomicU64,
    budget: Arc<MemoryBudget>,
    /// The high-water mark of the region when the budget was compared last.
    checked_at: AtomicU64,
}

impl fmt::Debug for SpillState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpillState").field("memory", &self.memory()).field("cut", &self.cut).finish()
    }
}

impl SpillState {
    /// The state that `region` has. The bound is `limit`, or a part of `budget`; there is none if the region `is_in_place`.
    pub(super) fn open(
        limit: Option<u64>,
        is_in_place: bool,
        budget: &Arc<MemoryBudget>,
        region: &Region,
    ) -> Result<Self> {
        let of_budget = match budget.limit_bytes() {
            u64::MAX => u64::MAX,
            bytes => bytes / BUDGET_DIVISOR,
        };
        let limit = if is_in_place { u64::MAX } else { limit.unwrap_or(of_budget) };
        let (stats, cut) = (region.stats(), region.root(CUT_SLOT)?);
        Ok(Self {
            limit: AtomicU64::new(limit),
            max_limit: limit,
            cut: AtomicU64::new(cut),
            tiers: AtomicU64::new(if cut > 0 { TIERED } else { IN_MEMORY }),
            entries_left: AtomicU64::new(0),
            used: AtomicU64::new(stats.allocated_bytes),
            unmeasured: AtomicU64::new(0),
            budget: budget.clone(),
            checked_at: AtomicU64::new(stats.high_water_bytes),
        })
    }

    /// Whether memory has a bound.
    #[inline]
    pub(super) fn is_bounded(&self) -> bool {
        self.limit.load(Ordering::Relaxed) != u64::MAX
    }

    /// The cut. It does not rise while a writer of the region is active.
    #[inline]
    pub(super) fn cut(&self) -> &AtomicU64 {
        &self.cut
    }

    /// Raises the cut. No writer of the region is active.
    pub(super) fn raise_cut(&self, cut: SequenceNumber) {
        self.cut.fetch_max(cut, Ordering::AcqRel);
        self.tiers.store(TIERED, Ordering::SeqCst);
    }

    /// Whether a cursor has to read both tiers. A cursor that does not pins the region before the call, as long as it lives.
    #[inline]
    pub(super) fn is_tiered(&self) -> bool {
        self.tiers.load(Ordering::Acquire) != IN_MEMORY
    }

    /// Prepares the first spill: from now on all cursors read both tiers. False while there may be others.
    pub(super) fn begin_tiering(&self, region: &Region) -> bool {
        if self.tiers.load(Ordering::Acquire) == IN_MEMORY {
            self.tiers.store(IN_MEMORY + 1, Ordering::SeqCst);
            // After the store: a cursor that did not see it has an older pin.
            self.tiers.store(region.end_epoch(), Ordering::SeqCst);
        }
        let epoch = self.tiers.load(Ordering::Acquire);
        let mut waits = 0;
        while epoch != TIERED && region.oldest_pin() <= epoch {
            waits += 1;
            if waits > MAX_WAITS {
                return false;
            }
            std::thread::yield_now();
        }
        self.tiers.store(TIERED, Ordering::SeqCst);
        true
    }

    /// The memory when it was measured last, and its bound.
    pub(super) fn memory(&self) -> SpillMemory {
        SpillMemory {
            used_bytes: self.used.load(Ordering::Acquire),
            limit_bytes: self.limit.load(Ordering::Acquire),
        }
    }

    /// Whether a spill would free memory, with `entries` entries.
    pub(super) fn is_spill_due(&self, entries: u64) -> bool {
        let SpillMemory { used_bytes, limit_bytes } = self.memory();
        let left = self.entries_left.load(Ordering::Acquire);
        limit_bytes != u64::MAX
            && used_bytes > limit_bytes - limit_bytes / 4
            && entries > left + (left / GROWTH_DIVISOR).max(MIN_GROWTH)
    }

    /// The number of entries after a spill, whether it moved any or not.
    pub(super) fn note_entries_left(&self, entries: u64) {
        self.entries_left.store(entries, Ordering::Release);
    }

    /// Notes a reservation for writes that are likely to take `likely` bytes of `region`, which has `entries` entries. True if that
    /// leads to a measurement which finds that a spill is due.
    #[inline]
    pub(super) fn note_reserved(&self, likely: u64, region: &Region, entries: impl FnOnce() -> u64) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        if limit == u64::MAX {
            return false;
        }
        // One thread at a time reserves.
        let unmeasured = self.unmeasured.load(Ordering::Relaxed) + likely;
        self.unmeasured.store(unmeasured, Ordering::Relaxed);
        if unmeasured <= limit / MEASURE_DIVISOR {
            return false;
        }
        self.measure(region);
        self.is_spill_due(entries())
    }

    /// Measures the memory of `region`.
    #[cold]
    pub(super) fn measure(&self, region: &Region) {
        let stats = region.stats();
        self.unmeasured.store(0, Ordering::Relaxed);
        self.used.store(stats.allocated_bytes, Ordering::Release);
        let has_fallen = self.memory().limit_bytes < self.max_limit;
        if has_fallen || stats.high_water_bytes >= self.checked_at.load(Ordering::Relaxed) + BUDGET_STEP_BYTES
        {
            self.checked_at.store(stats.high_water_bytes, Ordering::Relaxed);
            self.adapt_limit(stats.allocated_bytes);
        }
    }

    /// Lowers the bound of a region of `allocated` bytes if the budget is nearly exhausted, or lets it rise again.
    fn adapt_limit(&self, allocated: u64) {
        let (limit, most_of_budget) = (self.memory().limit_bytes, self.budget.limit_bytes() / 2);
        let spare = |bound: u64| bound.min(most_of_budget) / SPARE_DIVISOR;
        let grantable = self.budget.grantable_bytes();
        if grantable < spare(limit) {
            let least = (self.max_limit / SPARE_DIVISOR).max(BUDGET_STEP_BYTES);
            self.limit.fetch_min(allocated.max(least), Ordering::AcqRel);
        } else if limit < self.max_limit && grantable / RISE_FACTOR >= spare(self.max_limit) {
            // Not if it has fallen meanwhile: a spill measures too.
            let risen = limit.saturating_mul(2).min(self.max_limit);
            let _ = self.limit.compare_exchange(limit, risen, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use bolide_memory::MemoryUse;
    use bolide_storage::pmem::RegionOptions;

    use super::*;

    #[test]
    fn the_bound_rises_again_and_does_not_fall_below_an_eighth() {
        let budget = MemoryBudget::new(64 << 20);
        let region = Region::in_memory(RegionOptions::new()).unwrap();
        let state = SpillState::open(None, false, &budget, &region).unwrap();
        let other = budget.holder(MemoryUse::Queries, None);
        other.set(63 << 20);
        let writer = region.writer();
        (0..(512 << 10) / 4096).for_each(|_| _ = writer.allocate(4096).unwrap());
        state.measure(&region);
        assert_eq!(state.memory().limit_bytes, 2 << 20, "not to the present size");
        // 2 MiB are a part to go on with, but twice as much are needed to rise.
        other.set(61 << 20);
        state.measure(&region);
        assert_eq!(state.memory().limit_bytes, 2 << 20);
        other.set(0);
        for limit in [4, 8, 16, 16] {
            state.measure(&region);
            assert_eq!(state.memory().limit_bytes, limit << 20);
        }
        let small = SpillState::open(Some(4096), false, &budget, &region).unwrap();
        other.set(63 << 20);
        small.checked_at.store(0, Ordering::Relaxed);
        small.measure(&region);
        assert_eq!(small.memory().limit_bytes, 4096, "it never rises above its first value");
    }

    #[test]
    fn the_bound_is_a_part_of_the_budget_and_falls_when_that_is_exhausted() {
        let budget = MemoryBudget::new(64 << 20);
        let region = Region::in_memory(RegionOptions::new()).unwrap();
        let state = SpillState::open(None, false, &budget, &region).unwrap();
        assert_eq!(state.memory().limit_bytes, 16 << 20);
        let fixed = SpillState::open(Some(1 << 20), false, &budget, &region).unwrap();
        assert_eq!(fixed.memory().limit_bytes, 1 << 20);
        for unbounded in [
            SpillState::open(Some(1 << 20), true, &budget, &region).unwrap(),
            SpillState::open(None, false, &MemoryBudget::unlimited(), &region).unwrap(),
        ] {
            assert!(!unbounded.is_bounded() && !unbounded.is_spill_due(u64::MAX));
        }
        let writer = region.writer();
        let take = |bytes: usize| (0..bytes / 4096).for_each(|_| _ = writer.allocate(4096).unwrap());
        take(1 << 20);
        assert!(!state.note_reserved(1 << 20, &region, || 100) && !state.is_spill_due(100));
        assert_eq!(state.memory().limit_bytes, 16 << 20);
        let other = budget.holder(MemoryUse::Queries, None);
        other.set(63 << 20);
        take(1 << 20);
        assert!(state.note_reserved(1 << 20, &region, || 100), "measured");
        let memory = state.memory();
        assert!(memory.limit_bytes == memory.used_bytes && memory.used_bytes >= 2 << 20, "{memory:?}");
        assert!(!state.note_reserved(1, &region, || 100), "not measured");
        assert!(!state.note_reserved(1 << 20, &region, || MIN_GROWTH), "the entries have not grown");
        assert!(state.is_spill_due(100) && !state.is_spill_due(MIN_GROWTH));
        state.note_entries_left(100);
        assert!(!state.is_spill_due(116) && state.is_spill_due(117));
    }
}
