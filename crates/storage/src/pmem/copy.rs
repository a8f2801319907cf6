//! Copies between regions: from memory to persistent memory, or back.

use bolide_base::{Error, Result};

use super::layout::{
    BITMAP_BYTES, BITMAP_WORDS, EXTENT_BYTES, FIRST_PLACE, GRANULE_BYTES, MARK_AT, OPEN_COUNT_AT, PAGE_BYTES,
    Place, ROOT_SLOTS, ROOTS_AT, STATE_AT, bitmap_at,
};
use super::region::{Region, RegionOptions};
use super::writer::RegionWriter;

impl Region {
    /// A copy of this region in ordinary memory, with checkpoints. Writers wait meanwhile; the calling thread must not hold one.
    /// Cost: the memory of the region, and one read of it.
    ///
    /// # Errors
    /// `NoSpace` if memory is short.
    pub fn copy_in_memory(&self) -> Result<Self> {
        let limit = self.table.limit() as u64 * EXTENT_BYTES as u64;
        let options = RegionOptions::new().id(self.id()).name(self.name()).limit_bytes(limit);
        let copy = Self::in_memory(options)?;
        copy.fill_from(self)?;
        Ok(copy)
    }

    /// Copies `source`, which has the same id, into this region without allocations. The copy is durable on return, if this
    /// region is. Writers to `source` wait meanwhile; the calling thread must not hold one. After an interrupted copy the
    /// region is damaged.
    ///
    /// # Errors
    /// `InvalidInput` if the region has allocations or another id; `NoSpace` without memory or disk space.
    pub fn fill_from(&self, source: &Self) -> Result<()> {
        if self.stats().allocated_bytes != 0 || self.id() != source.id() {
            let what = format!("{}: only an empty region of the same id is filled", self.name());
            return Err(Error::invalid_input(what));
        }
        let _at_rest = source.gate.write();
        let writer = self.writer();
        while self.table.len() < source.table.len() {
            writer.grow(&mut self.space.lock())?;
        }
        let space = source.space.lock();
        // The copy is invalid until the end.
        writer.store_own_durably(STATE_AT, 0)?;
        for extent in 0..source.table.len() {
            let start = (extent * EXTENT_BYTES) as Place;
            if start < space.mark {
                copy_extent(&writer, source, extent)?;
                let bitmap = space.free.bitmap(extent).unwrap_or_default();
                for (index, word) in (0..BITMAP_WORDS).zip(bitmap) {
                    writer.store_own(bitmap_at(extent) + 8 * index as Place, *word);
                }
            }
            writer.persist(start, EXTENT_BYTES)?;
        }
        for slot in 0..ROOT_SLOTS {
            let at = ROOTS_AT + 8 * slot as Place;
            writer.store_own(at, source.own(at));
        }
        writer.store_own(OPEN_COUNT_AT, source.own(OPEN_COUNT_AT));
        writer.store_own(MARK_AT, space.mark);
        writer.persist(0, PAGE_BYTES)?;
        writer.fence();
        writer.store_own_durably(STATE_AT, 1)?;
        drop((writer, space));
        self.recover(source.id())
    }
}

/// Copies the words of an extent except its bitmap and the header page.
fn copy_extent(writer: &RegionWriter<'_>, source: &Region, extent: usize) -> Result<()> {
    let start = (extent * EXTENT_BYTES) as Place;
    let head = bitmap_at(extent)..bitmap_at(extent) + BITMAP_BYTES as Place;
    for at in (start..start + EXTENT_BYTES as Place).step_by(GRANULE_BYTES) {
        if at < FIRST_PLACE || head.contains(&at) {
            continue;
        }
        let words = source.words(at, GRANULE_BYTES)?;
        for (word, at) in words.iter().zip((at..).step_by(8)) {
            let value = word.get();
            // New space is zeros.
            if value != 0 {
                writer.store_own(at, value);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bolide_base::ErrorKind;

    use super::*;

    fn filled(region: &Region) -> Vec<(Place, Vec<u8>)> {
        let writer = region.writer();
        let mut places: Vec<(Place, Vec<u8>)> = (1..40_u32)
            .map(|number| {
                let bytes = number.to_le_bytes().repeat(9_000);
                let at = writer.allocate(bytes.len()).unwrap();
                writer.write(at, &bytes).unwrap();
                (at, bytes)
            })
            .collect();
        for (at, bytes) in places.extract_if(.., |(_, bytes)| bytes[0] % 3 == 0) {
            writer.free(at, bytes.len());
        }
        writer.set_root(7, places[0].0).unwrap();
        places
    }

    #[test]
    fn a_copy_has_the_content_and_the_free_space() {
        let options = || RegionOptions::new().id(5).limit_bytes(64 << 20);
        let source = Region::in_memory(options()).unwrap();
        let places = filled(&source);
        let durable = Region::simulated(options()).unwrap();
        durable.fill_from(&source).unwrap();
        // All of it is durable.
        let crash = durable.crash_outcomes(1).next().unwrap().reopen().unwrap();
        let back = durable.copy_in_memory().unwrap();
        for copy in [&durable, &crash, &back] {
            for (at, bytes) in &places {
                assert!(copy.compare(*at, bytes.len(), bytes).unwrap().is_eq());
            }
            assert_eq!(copy.root(7).unwrap(), places[0].0);
            assert!(copy.open_count() > source.open_count(), "locks of the source are void");
            assert_eq!(copy.stats().allocated_bytes, source.stats().allocated_bytes);
        }
        let at = back.writer().allocate(36_000).unwrap();
        assert!(places.iter().all(|(other, _)| *other != at));
        assert_eq!(back.load(at).unwrap(), 0);
        // The first checkpoint writes the copied pages.
        assert!(back.stats().dirty_pages > 9 * places.len() as u64 / 2);
        assert_eq!(durable.fill_from(&source).unwrap_err().kind(), ErrorKind::InvalidInput);
        let other = Region::in_memory(options().id(6)).unwrap();
        assert_eq!(other.fill_from(&source).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
