//! The epochs of frees, for owners that divide their allocations themselves.

use super::region::Region;

impl Region {
    /// Ends the epoch of an unlinking, and returns it. No reader can reach the unlinked memory once
    /// [`oldest_pin`](Self::oldest_pin) is above it.
    ///
    /// ```
    /// use bolide_storage::pmem::{Region, RegionOptions};
    /// let region = Region::in_memory(RegionOptions::new())?;
    /// let pin = region.pin();
    /// let unlinked = region.end_epoch();
    /// assert!(region.oldest_pin() <= unlinked);
    /// drop(pin);
    /// assert!(region.oldest_pin() > unlinked);
    /// # Ok::<(), bolide_base::Error>(())
    /// ```
    pub fn end_epoch(&self) -> u64 {
        self.pins.retire()
    }

    /// The epoch of the oldest pin; `u64::MAX` without pins. Cost: a read of every used slot of pins.
    pub fn oldest_pin(&self) -> u64 {
        self.pins.oldest()
    }
}
