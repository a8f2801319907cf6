//! A list of places in a region, with a volatile copy for reads without a lock.
//!
//! ```text
//! root slot S      place of the first page, 0 for none      page   next page | 511 places
//! root slot S + 1  length
//! ```

use std::sync::OnceLock;

use bolide_base::{Error, ErrorKind, Result};
use bolide_storage::pmem::{PAGE_BYTES, Place, Region, RegionWriter};

use crate::sync::{AtomicU64, AtomicUsize, Mutex, Ordering};

/// Places on a page.
const PLACES: usize = PAGE_BYTES / 8 - 1;
/// The first chunk of the copy has this many places, each further one twice as many as the previous.
pub(super) const FIRST_CHUNK: usize = 1 << 6;
const CHUNKS: usize = 26;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct PlaceList {
    slot: usize,
    len: AtomicUsize,
    chunks: [OnceLock<Box<[AtomicU64]>>; CHUNKS],
    /// The pages of the list, in order.
    pages: Mutex<Vec<Place>>,
}

/// The chunk of an index, and the position in it.
#[inline]
pub(super) fn chunk_of(index: usize) -> (usize, usize) {
    let chunk = (index / FIRST_CHUNK + 1).ilog2() as usize;
    (chunk, index - FIRST_CHUNK * ((1 << chunk) - 1))
}

impl PlaceList {
    /// The list at root slots `slot` and `slot + 1`.
    pub(super) fn open(region: &Region, slot: usize) -> Result<Self> {
        let list = Self {
            slot,
            len: AtomicUsize::new(0),
            chunks: [const { OnceLock::new() }; CHUNKS],
            pages: Mutex::default(),
        };
        let (mut page, len) = (region.root(slot)?, region.root(slot + 1)? as usize);
        let mut pages = list.pages.lock();
        while page != 0 && pages.len() <= len / PLACES {
            pages.push(page);
            page = region.load(page)?;
        }
        for index in 0..len {
            let damaged =
                || Error::new(ErrorKind::Corruption, "version table: a list of places is truncated");
            let page = *pages.get(index / PLACES).ok_or_else(damaged)?;
            let place = region.load(page + 8 * (1 + index % PLACES) as Place)?;
            list.cache(index, place)?;
        }
        drop(pages);
        list.len.store(len, Ordering::Release);
        Ok(list)
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// The place at `index`; 0 if the list has none.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Place {
        let (chunk, at) = chunk_of(index);
        let chunk = self.chunks.get(chunk).and_then(OnceLock::get);
        chunk.and_then(|chunk| chunk.get(at)).map_or(0, |place| place.load(Ordering::Acquire))
    }

    fn cache(&self, index: usize, place: Place) -> Result<()> {
        let (chunk, at) = chunk_of(index);
        let too_long = || Error::internal("version table: a list of places is too long");
        let make = || (0..FIRST_CHUNK << chunk).map(|_| AtomicU64::new(0)).collect();
        let places = self.chunks.get(chunk).ok_or_else(too_long)?.get_or_init(make);
        places.get(at).ok_or_else(too_long)?.store(place, Ordering::Release);
        Ok(())
    }

    /// Appends a place.
    pub(super) fn push(&self, writer: &RegionWriter<'_>, place: Place) -> Result<()> {
        let mut pages = self.pages.lock();
        let index = self.len();
        if index / PLACES == pages.len() {
            let page = writer.allocate(PAGE_BYTES)?;
            match pages.last() {
                Some(&last) => writer.store_release(last, page)?,
                None => writer.set_root(self.slot, page)?,
            }
            pages.push(page);
        }
        let damaged = || Error::internal("version table: a list of places lacks a page");
        let at = *pages.get(index / PLACES).ok_or_else(damaged)? + 8 * (1 + index % PLACES) as Place;
        writer.store(at, place)?;
        writer.persist(at, 8)?;
        writer.fence();
        self.cache(index, place)?;
        writer.set_root(self.slot + 1, index as u64 + 1)?;
        self.len.store(index + 1, Ordering::Release);
        Ok(())
    }

    /// Removes the last place. Its page stays for the next one.
    pub(super) fn pop(&self, writer: &RegionWriter<'_>) -> Result<Option<Place>> {
        let _pages = self.pages.lock();
        let Some(index) = self.len().checked_sub(1) else { return Ok(None) };
        writer.set_root(self.slot + 1, index as u64)?;
        self.len.store(index, Ordering::Release);
        Ok(Some(self.get(index)))
    }

    /// Calls `visit` with place and size in bytes of every page of the list.
    pub(super) fn visit_allocations(&self, visit: &mut dyn FnMut(Place, usize)) {
        self.pages.lock().iter().for_each(|&page| visit(page, PAGE_BYTES));
    }
}

#[cfg(all(test, not(bolide_shuttle)))]
mod tests {
    use bolide_storage::pmem::RegionOptions;

    use super::*;

    #[test]
    fn every_index_has_its_own_place() {
        let mut expected = (0, 0);
        for index in 0..5_000 {
            assert_eq!(chunk_of(index), expected, "{index}");
            expected.1 += 1;
            if expected.1 == FIRST_CHUNK << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
    }

    #[test]
    fn a_reopened_list_has_the_same_places() {
        let region = Region::in_memory(RegionOptions::new()).unwrap();
        let list = PlaceList::open(&region, 20).unwrap();
        let writer = region.writer();
        for number in 0..1_400 {
            list.push(&writer, 8 * number).unwrap();
        }
        assert_eq!(list.pop(&writer).unwrap(), Some(8 * 1_399));
        let again = PlaceList::open(&region, 20).unwrap();
        assert_eq!(again.len(), 1_399);
        assert!(
            (0..1_399)
                .all(|index| again.get(index) == 8 * index as u64 && list.get(index) == again.get(index))
        );
        assert_eq!(again.get(1 << 30), 0);
    }
}
