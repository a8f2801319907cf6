//! Filling a region with the pages of a cut.

use bolide_base::{Error, Result};

use super::free_space::{FreeSpace, masks};
use super::layout::{
    BITMAP_WORDS, EXTENT_BYTES, FIRST_PLACE, FORMAT_VERSION, GRANULE_BYTES, ID_AT, MAGIC, MAGIC_AT, MARK_AT,
    OPEN_COUNT_AT, PAGE_BYTES, Place, VERSION_AT, bitmap_at, extent_of, first_free_of, within_extent,
};
use super::region::{Backing, Region, RegionOptions};
use super::sync::Ordering;

/// A region in memory that is being filled with pages which cuts have written.
///
/// ```
/// use bolide_storage::pmem::{Region, RegionOptions, RegionRestore};
/// let region = Region::in_memory(RegionOptions::new())?;
/// region.writer().set_root(3, 33)?;
/// let mut restore = RegionRestore::new(RegionOptions::new());
/// let mut cut = region.cut()?;
/// while let Some((page, bytes)) = cut.next_page() {
///     restore.put_page(page, bytes)?;
/// }
/// cut.finish()?;
/// let again = restore.finish()?;
/// assert_eq!(again.root(3)?, 33);
/// assert_eq!(again.open_count(), 2);
/// # Ok::<(), bolide_base::Error>(())
/// ```
#[derive(Debug)]
pub struct RegionRestore {
    region: Region,
    id: u64,
}

impl RegionRestore {
    /// Begins with zeros everywhere. `options` has the id that the region must turn out to have.
    pub fn new(options: RegionOptions) -> Self {
        let id = options.id;
        Self { region: Region::without_extents(&options, Backing::Memory), id }
    }

    /// Puts the page `page`, whose bytes are whole and checked. A page may come again; the last holds.
    ///
    /// # Errors
    /// `Corruption` if `bytes` is not a page, `NoSpace` if the page lies behind the region's limit or memory
    /// is short.
    pub fn put_page(&mut self, page: u64, bytes: &[u8]) -> Result<()> {
        let region = &self.region;
        let at = page.saturating_mul(PAGE_BYTES as u64);
        if bytes.len() != PAGE_BYTES {
            return Err(region.outside(at, bytes.len()));
        }
        if extent_of(at) >= region.table.limit() {
            return Err(region.full());
        }
        while region.table.len() <= extent_of(at) {
            region.table.grow(|index| region.extent_memory(index))?;
        }
        let words = region.table.words(at, PAGE_BYTES / 8).ok_or_else(|| region.outside(at, PAGE_BYTES))?;
        for (word, bytes) in words.iter().zip(bytes.chunks_exact(8)) {
            let value = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
            word.0.store(value, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The region, ready for use. All space that was not in use at the cut is on offer at once.
    ///
    /// # Errors
    /// `Corruption` if the header page or a bitmap contradicts itself or the region has another id;
    /// `Unsupported` for a format version that this program does not know.
    pub fn finish(self) -> Result<Region> {
        let region = self.region;
        let damaged = |at: Place, what: &str| Error::corruption(region.name(), at, what);
        if region.own(MAGIC_AT) != MAGIC {
            return Err(damaged(MAGIC_AT, "the header page is not that of a region"));
        }
        let version = region.own(VERSION_AT);
        if version != FORMAT_VERSION {
            let what = format!("format version {version} of the region; this program knows 1");
            return Err(Error::unsupported(region.name(), what));
        }
        if region.own(ID_AT) != self.id {
            return Err(damaged(ID_AT, "the region is another one"));
        }
        let mark = region.own(MARK_AT);
        let last = extent_of(mark.saturating_sub(1));
        let whole = mark.is_multiple_of(GRANULE_BYTES as Place) && mark > FIRST_PLACE;
        // Pages behind the last written one are zeros, and may be absent, but the extent has a bitmap.
        if !whole || last + 1 != region.table.len() || mark < first_free_of(last) {
            return Err(damaged(MARK_AT, "the mark of the header page does not fit the region's pages"));
        }
        {
            let mut space = region.space.lock();
            let bitmaps = (0..=last).map(|extent| bitmap_of(&region, extent, mark)).collect::<Result<_>>()?;
            space.free = FreeSpace::new();
            space.free.rebuild(bitmaps, mark);
            space.next = mark;
            space.mark = mark;
        }
        {
            let writer = region.writer();
            writer.store_own(OPEN_COUNT_AT, region.own(OPEN_COUNT_AT).saturating_add(1));
        }
        Ok(region)
    }
}

/// The bitmap of an extent as its pages say.
fn bitmap_of(region: &Region, extent: usize, mark: Place) -> Result<Box<[u64]>> {
    let at = bitmap_at(extent);
    let words = region.table.words(at, BITMAP_WORDS).ok_or_else(|| region.outside(at, BITMAP_WORDS * 8))?;
    let bitmap: Box<[u64]> = words.iter().map(|word| word.get()).collect();
    let head = within_extent(first_free_of(extent)) / GRANULE_BYTES;
    let head_used =
        masks(0, head).all(|(index, mask)| bitmap.get(index).is_some_and(|word| word & mask == mask));
    let start = (extent * EXTENT_BYTES) as Place;
    let end = (mark - start).min(EXTENT_BYTES as Place) as usize / GRANULE_BYTES;
    let none_above = masks(end, bitmap.len() * 64 - end)
        .all(|(index, mask)| bitmap.get(index).is_some_and(|word| word & mask == 0));
    if head_used && none_above {
        return Ok(bitmap);
    }
    Err(Error::corruption(region.name(), at, "the bitmap of an extent contradicts the header page"))
}
