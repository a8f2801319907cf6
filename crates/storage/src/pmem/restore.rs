//! Restoring a region from the pages of checkpoints.

use bolide_base::{Error, Result};

use super::layout::{PAGE_BYTES, STATE_AT, extent_of};
use super::region::{Backing, Region, RegionOptions};
use super::sync::{Mutex, Ordering};

/// A region in memory under construction from the pages of checkpoints.
///
/// ```
/// use bolide_storage::pmem::{Region, RegionOptions, RegionRestore};
/// let region = Region::in_memory(RegionOptions::new())?;
/// region.writer().set_root(3, 33)?;
/// let restore = RegionRestore::new(RegionOptions::new());
/// let mut checkpoint = region.checkpoint()?;
/// while let Some((page, bytes)) = checkpoint.next_page() {
///     restore.put_page(page, bytes)?;
/// }
/// checkpoint.finish()?;
/// let again = restore.finish()?;
/// assert_eq!(again.root(3)?, 33);
/// assert_eq!(again.open_count(), 2);
/// # Ok::<(), bolide_base::Error>(())
/// ```
#[derive(Debug)]
pub struct RegionRestore {
    region: Region,
    /// Held while an extent is added.
    growing: Mutex<()>,
    id: u64,
}

impl RegionRestore {
    /// A restore that begins with zeros. `options` has the expected id of the region.
    pub fn new(options: RegionOptions) -> Self {
        let id = options.id;
        Self { region: Region::without_extents(&options, Backing::Memory), growing: Mutex::new(()), id }
    }

    /// Requests the memory of a region with `pages` pages at once, so that one that does not fit is refused before it is read.
    ///
    /// # Errors
    /// `NoSpace` if the memory budget does not allow it.
    pub fn request_pages(&self, pages: u64) -> Result<()> {
        self.region.memory.request_through(pages.saturating_mul(PAGE_BYTES as u64))
    }

    /// Stores the page `page`, whose bytes were checked; whole words of zeros at its end may be missing. A later call for the
    /// same page replaces it. Threads may store different pages concurrently.
    ///
    /// # Errors
    /// `Corruption` if `bytes` is no such page, `NoSpace` if the page is behind the region's limit or memory is short.
    pub fn put_page(&self, page: u64, bytes: &[u8]) -> Result<()> {
        let region = &self.region;
        let at = page.saturating_mul(PAGE_BYTES as u64);
        if bytes.len() > PAGE_BYTES || !bytes.len().is_multiple_of(8) {
            return Err(region.out_of_bounds(at, bytes.len()));
        }
        if extent_of(at) >= region.table.limit() {
            return Err(region.full());
        }
        let end = at + PAGE_BYTES as u64;
        if region.table.words(at, PAGE_BYTES / 8).is_none() || region.memory.is_below(end) {
            let _growing = self.growing.lock();
            region.memory.request_through(end)?;
            while region.table.len() <= extent_of(at) {
                region.table.grow(|index| region.extent_memory(index))?;
            }
        }
        let words =
            region.table.words(at, PAGE_BYTES / 8).ok_or_else(|| region.out_of_bounds(at, PAGE_BYTES))?;
        let (head, tail) = words.split_at(bytes.len() / 8);
        for (word, bytes) in head.iter().zip(bytes.chunks_exact(8)) {
            let value = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
            word.0.store(value, Ordering::Relaxed);
        }
        tail.iter().for_each(|word| word.0.store(0, Ordering::Relaxed));
        Ok(())
    }

    /// The restored region. All space that was unused at the checkpoint is free.
    ///
    /// # Errors
    /// `Corruption` if the header page or a bitmap contradicts itself or the region has another id;
    /// `Unsupported` for an unknown format version.
    pub fn finish(self) -> Result<Region> {
        let region = self.region;
        if region.own(STATE_AT) != 1 {
            return Err(Error::corruption(
                region.name(),
                STATE_AT,
                "the bitmaps of the region are not valid",
            ));
        }
        region.recover(self.id)?;
        region.memory.report_through(region.space.lock().mark);
        Ok(region)
    }
}
