//! The count of frees, for owners that hand out pieces of their allocations themselves.

use super::region::Region;

impl Region {
    /// Ends the epoch in which something was unlinked, and returns it: no reader can reach that any more once
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

    /// The epoch of the oldest pin that lives; `u64::MAX` without pins. It looks at every slot of the pins in use.
    pub fn oldest_pin(&self) -> u64 {
        self.pins.oldest()
    }
}
