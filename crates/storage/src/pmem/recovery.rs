//! Opening of an existing region: the header page and the free space.

use bolide_base::{Error, Result};

use super::free_space::{FreeSpace, masks};
use super::layout::{
    BITMAP_WORDS, EXTENT_BYTES, FIRST_PLACE, FORMAT_VERSION, GRANULE_BYTES, ID_AT, MAGIC, MAGIC_AT, MARK_AT,
    OPEN_COUNT_AT, Place, STATE_AT, VERSION_AT, bitmap_at, extent_of, first_free_of, within_extent,
};
use super::region::Region;

impl Region {
    /// Checks the header page of a loaded region, and rebuilds its free space.
    ///
    /// With valid bitmaps all unused space is free. Otherwise all space below the high-water mark counts as used until it is
    /// reclaimed.
    pub(super) fn recover(&self, id: u64) -> Result<()> {
        let mark = self.checked_mark(id)?;
        let saved = self.own(STATE_AT) == 1;
        // An extent without allocations may have no bitmap yet.
        let is_saved = |extent: usize| saved && ((extent * EXTENT_BYTES) as Place) < mark;
        let bitmaps = (0..self.table.len()).map(|extent| match is_saved(extent) {
            true => self.bitmap_of(extent, mark),
            false => Ok(all_used(extent, mark)),
        });
        let bitmaps = bitmaps.collect::<Result<_>>()?;
        {
            let mut space = self.space.lock();
            space.free = FreeSpace::new();
            space.free.rebuild(bitmaps, mark);
            space.next = mark;
            space.mark = mark;
            space.saved = saved;
            space.is_known = saved;
        }
        let writer = self.writer();
        writer.store_own_durably(OPEN_COUNT_AT, self.own(OPEN_COUNT_AT).saturating_add(1))
    }

    /// The high-water mark, if the header page is that of the region `id` and agrees with its extents.
    pub(super) fn checked_mark(&self, id: u64) -> Result<Place> {
        let damaged = |at: Place, what: &str| Error::corruption(self.name(), at, what);
        if self.own(MAGIC_AT) != MAGIC {
            return Err(damaged(MAGIC_AT, "the header page is not that of a region"));
        }
        let version = self.own(VERSION_AT);
        if version != FORMAT_VERSION {
            let what = format!("format version {version} of the region; this program reads {FORMAT_VERSION}");
            return Err(Error::unsupported(self.name(), what));
        }
        if self.own(ID_AT) != id {
            return Err(damaged(ID_AT, "the region is another one"));
        }
        let mark = self.own(MARK_AT);
        let last = extent_of(mark.saturating_sub(1));
        let whole = mark.is_multiple_of(GRANULE_BYTES as Place) && mark > FIRST_PLACE;
        if !whole || last >= self.table.len() || mark < first_free_of(last) {
            return Err(damaged(MARK_AT, "the mark of the header page does not fit the region"));
        }
        Ok(mark)
    }

    /// The stored bitmap of an extent.
    pub(super) fn bitmap_of(&self, extent: usize, mark: Place) -> Result<Box<[u64]>> {
        let at = bitmap_at(extent);
        let words =
            self.table.words(at, BITMAP_WORDS).ok_or_else(|| self.out_of_bounds(at, BITMAP_WORDS * 8))?;
        let bitmap: Box<[u64]> = words.iter().map(|word| word.get()).collect();
        let holds = |(index, mask): (usize, u64), used: u64| {
            bitmap.get(index).is_some_and(|word: &u64| word & mask == used & mask)
        };
        let end = granules_below(extent, mark);
        let head_used = masks(0, head_granules(extent)).all(|part| holds(part, u64::MAX));
        let end_or_head = end.max(head_granules(extent));
        let none_above = masks(end_or_head, BITMAP_WORDS * 64 - end_or_head).all(|part| holds(part, 0));
        if head_used && none_above {
            return Ok(bitmap);
        }
        Err(Error::corruption(self.name(), at, "the bitmap of an extent contradicts the header page"))
    }
}

/// A bitmap with all granules below the high-water mark used.
fn all_used(extent: usize, mark: Place) -> Box<[u64]> {
    let mut bitmap = vec![0; BITMAP_WORDS].into_boxed_slice();
    for (index, mask) in masks(0, granules_below(extent, mark).max(head_granules(extent))) {
        if let Some(word) = bitmap.get_mut(index) {
            *word |= mask;
        }
    }
    bitmap
}

/// Granules of the metadata of an extent.
fn head_granules(extent: usize) -> usize {
    within_extent(first_free_of(extent)) / GRANULE_BYTES
}

/// Granules of an extent below the high-water mark.
fn granules_below(extent: usize, mark: Place) -> usize {
    let start = (extent * EXTENT_BYTES) as Place;
    mark.saturating_sub(start).min(EXTENT_BYTES as Place) as usize / GRANULE_BYTES
}
