//! The heap of records and small pages.
//!
//! They are allocated from chunks of 4 KiB. Freed space is listed by length, and reused once no reader can access it. A
//! longer piece is split if none of the length is listed. When much space is listed, neighbouring pieces are joined, and
//! whole granules return to the region: keys that grow leave pieces that no other key needs.
//!
//! The lists are volatile: after reopening, the region's reclaim frees the granules without records.

use std::collections::VecDeque;

use bolide_base::checksum::hash_key;
use bolide_base::limits::MAX_SECONDARY_KEY_BYTES;
use bolide_base::{Error, Result};
use bolide_storage::pmem::{GRANULE_BYTES, Place, Region, RegionWriter};

use super::record::{HEADER_BYTES, bytes_of, entry_bits, key_bits, record_bytes};
use crate::ps_tree::pkey::content::{MAX_INLINE_BODY_BYTES, inline_word};
use crate::ps_tree::pkey::group;
use crate::ps_tree::pkey::pointer::check_place;
use crate::ps_tree::sync::Mutex;

const CHUNK_BYTES: usize = 4096;
/// Longer records and pages have their own allocation.
pub(crate) const MAX_SMALL_BYTES: usize = 512;
const CLASSES: usize = MAX_SMALL_BYTES / 8 + 1;
/// The least rest of a piece that is split: shorter rests would mostly stay unused.
const MIN_REST_BYTES: usize = 40;
/// Freed pieces from which on a free looks for those that no reader can access.
const MAX_PENDING: usize = 256;
/// Listed bytes below which pieces are not joined.
const MIN_JOINED_BYTES: usize = if cfg!(any(test, bolide_shuttle)) { 4 << 10 } else { 64 << 10 };

/// Allocator of records and of small pages.
#[derive(Debug)]
pub(crate) struct KeyHeap(Mutex<KeyHeapState>);

#[derive(Debug)]
struct KeyHeapState {
    /// The next free byte of the current chunk, and its end.
    next: Place,
    end: Place,
    /// Free space, by length / 8.
    free: Vec<Vec<Place>>,
    /// Bytes of it.
    free_bytes: usize,
    /// Listed bytes from which on pieces are joined.
    join_at: usize,
    /// Bytes of the chunks of this session.
    chunk_bytes: usize,
    /// Freed space that readers may still access: epoch, place, bytes.
    pending_free: VecDeque<(u64, Place, usize)>,
    /// During the walk of a region reclaim, freed space is left to it instead of being listed.
    is_reclaiming: bool,
    /// Space allocated since a reclaim was announced; its walk may miss it.
    recent: Option<Vec<(Place, usize)>>,
}

impl KeyHeap {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(KeyHeapState {
            next: 0,
            end: 0,
            free: vec![Vec::new(); CLASSES],
            free_bytes: 0,
            join_at: MIN_JOINED_BYTES,
            chunk_bytes: 0,
            pending_free: VecDeque::new(),
            is_reclaiming: false,
            recent: None,
        }))
    }

    /// Writes a record without an inline entry, which becomes durable with the next fence.
    ///
    /// # Errors
    /// `LimitExceeded` for a key that is too long; `NoSpace` from the region.
    pub(crate) fn put(
        &self,
        writer: &RegionWriter<'_>,
        region: &Region,
        key: &[u8],
        value: u64,
    ) -> Result<Place> {
        self.put_record(writer, region, (key, &[]), value, key_bits(key.len(), hash_key(key)))
    }

    /// Writes a record with the inline entry `entry`, whose body has at most [`MAX_INLINE_BODY_BYTES`] bytes. The record
    /// becomes durable with the next fence.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub(crate) fn put_inline(
        &self,
        writer: &RegionWriter<'_>,
        region: &Region,
        key: &[u8],
        entry: &[u8],
    ) -> Result<Place> {
        let parsed = group::split_entries(entry).next();
        let Some((header, entry)) = parsed.filter(|(header, _)| header.body_bytes() <= MAX_INLINE_BODY_BYTES)
        else {
            return Err(Error::internal("an entry that does not fit into a record"));
        };
        let body = group::body_of(header, entry);
        let lengths = key_bits(key.len(), hash_key(key)) | entry_bits(header, body);
        self.put_record(writer, region, (key, body), inline_word(header), lengths)
    }

    fn put_record(
        &self,
        writer: &RegionWriter<'_>,
        region: &Region,
        (key, body): (&[u8], &[u8]),
        value: u64,
        lengths: u64,
    ) -> Result<Place> {
        if key.len() > MAX_SECONDARY_KEY_BYTES {
            let limit = MAX_SECONDARY_KEY_BYTES as u64;
            return Err(Error::limit_exceeded("a secondary key in bytes", key.len() as u64, limit));
        }
        let bytes = record_bytes(key.len(), body.len());
        let at = self.allocate(writer, region, bytes)?;
        writer.store(at, value)?;
        writer.store(at + 8, lengths)?;
        if body.is_empty() {
            writer.write(at + HEADER_BYTES as Place, key)?;
        } else {
            writer.write(at + HEADER_BYTES as Place, &[key, body].concat())?;
        }
        writer.persist(at, bytes)?;
        Ok(at)
    }

    /// Allocates `bytes` bytes, a multiple of 8, with any content.
    ///
    /// # Errors
    /// `NoSpace` from the region.
    pub(crate) fn allocate(&self, writer: &RegionWriter<'_>, region: &Region, bytes: usize) -> Result<Place> {
        if bytes > MAX_SMALL_BYTES {
            let at = writer.allocate(bytes)?;
            check_place(at, bytes)?;
            return Ok(at);
        }
        let mut inner = self.0.lock();
        let at = inner.allocate_small(writer, region, bytes)?;
        if let Some(recent) = &mut inner.recent {
            recent.push((at, bytes));
        }
        Ok(at)
    }

    /// Frees the space of a record that no new search can reach. Its removal must be durable.
    ///
    /// # Errors
    /// `Corruption` if there is no record at `record`.
    pub(crate) fn remove(&self, writer: &RegionWriter<'_>, region: &Region, record: Place) -> Result<()> {
        self.free(writer, region, record, bytes_of(region, record)?);
        Ok(())
    }

    /// Frees `bytes` bytes that [`allocate`](Self::allocate) returned and that no new search can reach.
    pub(crate) fn free(&self, writer: &RegionWriter<'_>, region: &Region, at: Place, bytes: usize) {
        if bytes > MAX_SMALL_BYTES {
            writer.free(at, bytes);
            return;
        }
        let mut inner = self.0.lock();
        if !inner.is_reclaiming {
            inner.pending_free.push_back((region.end_epoch(), at, bytes));
            if inner.pending_free.len() > MAX_PENDING {
                inner.tidy(writer, region);
            }
        }
    }

    /// Frees a record that was never reachable.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub(crate) fn free_unlinked(
        &self,
        writer: &RegionWriter<'_>,
        region: &Region,
        record: Place,
    ) -> Result<()> {
        self.free_unused(writer, record, bytes_of(region, record)?);
        Ok(())
    }

    /// Frees `bytes` bytes that [`allocate`](Self::allocate) returned and that were never reachable.
    pub(crate) fn free_unused(&self, writer: &RegionWriter<'_>, at: Place, bytes: usize) {
        if bytes > MAX_SMALL_BYTES {
            writer.free(at, bytes);
        } else {
            self.0.lock().add_free(at, bytes);
        }
    }

    /// Announces a reclaim of the region, before it starts.
    pub(crate) fn announce_reclaim(&self) {
        self.0.lock().recent = Some(Vec::new());
    }

    /// At the start of the walk of a reclaim: drops all free space, so that the reclaim frees it, and lists none.
    pub(crate) fn begin_walk(&self) {
        let mut inner = self.0.lock();
        inner.free.iter_mut().for_each(Vec::clear);
        inner.free_bytes = 0;
        inner.pending_free.clear();
        (inner.next, inner.end) = (0, 0);
        inner.is_reclaiming = true;
    }

    /// At the end of the walk: the records that it may have missed.
    pub(crate) fn recent(&self) -> Vec<(Place, usize)> {
        self.0.lock().recent.take().unwrap_or_default()
    }

    /// After the reclaim: freed space is listed again.
    pub(crate) fn end_reclaim(&self) {
        let mut inner = self.0.lock();
        inner.is_reclaiming = false;
        inner.recent = None;
    }
}

impl KeyHeapState {
    /// Allocates at most [`MAX_SMALL_BYTES`] bytes.
    fn allocate_small(&mut self, writer: &RegionWriter<'_>, region: &Region, bytes: usize) -> Result<Place> {
        self.tidy(writer, region);
        if let Some(at) = self.take(bytes) {
            return Ok(at);
        }
        if self.end - self.next < bytes as Place {
            // The rest of the old chunk is smaller than the longest small record.
            self.add_free(self.next, (self.end - self.next) as usize);
            self.next = writer.allocate(CHUNK_BYTES)?;
            self.end = self.next + CHUNK_BYTES as Place;
            self.chunk_bytes += CHUNK_BYTES;
            check_place(self.next, CHUNK_BYTES)?;
        }
        let at = self.next;
        self.next += bytes as Place;
        Ok(at)
    }

    /// Lists the space that no reader can access any more, and joins pieces if there is much.
    fn tidy(&mut self, writer: &RegionWriter<'_>, region: &Region) {
        if !self.pending_free.is_empty() {
            self.release(region.oldest_pin());
        }
        if self.free_bytes >= self.join_at {
            self.join(writer);
        }
    }

    /// Takes listed space: a piece of the length, else the start of a longer one.
    fn take(&mut self, bytes: usize) -> Option<Place> {
        let lengths = std::iter::once(bytes).chain((bytes + MIN_REST_BYTES..=MAX_SMALL_BYTES).step_by(8));
        for length in lengths {
            if let Some(at) = self.free.get_mut(length / 8).and_then(Vec::pop) {
                self.free_bytes -= length;
                self.add_free(at + bytes as Place, length - bytes);
                return Some(at);
            }
        }
        None
    }

    /// Joins neighbouring listed pieces, and returns whole granules to the region.
    fn join(&mut self, writer: &RegionWriter<'_>) {
        let mut pieces: Vec<(Place, usize)> = Vec::new();
        for (class, places) in self.free.iter_mut().enumerate() {
            pieces.extend(places.drain(..).map(|at| (at, 8 * class)));
        }
        pieces.sort_unstable();
        self.free_bytes = 0;
        let mut pieces = pieces.into_iter().peekable();
        while let Some((at, mut bytes)) = pieces.next() {
            while let Some((_, more)) = pieces.next_if(|(next, _)| *next == at + bytes as Place) {
                bytes += more;
            }
            self.add_joined(writer, at, bytes);
        }
        self.join_at = MIN_JOINED_BYTES.max(self.free_bytes / 2 * 3 + self.chunk_bytes / 32);
    }

    /// Lists the parts of a joined piece before and after its whole granules, which the region gets.
    fn add_joined(&mut self, writer: &RegionWriter<'_>, at: Place, bytes: usize) {
        const GRANULE: Place = GRANULE_BYTES as Place;
        let (first, end) = (at.next_multiple_of(GRANULE), (at + bytes as Place) / GRANULE * GRANULE);
        if end <= first {
            self.add_free(at, bytes);
            return;
        }
        writer.free(first, (end - first) as usize);
        self.chunk_bytes = self.chunk_bytes.saturating_sub((end - first) as usize);
        self.add_free(at, (first - at) as usize);
        self.add_free(end, (at + bytes as Place - end) as usize);
    }

    fn release(&mut self, oldest: u64) {
        while let Some((_, at, bytes)) =
            self.pending_free.front().copied().filter(|(epoch, ..)| *epoch < oldest)
        {
            self.pending_free.pop_front();
            self.add_free(at, bytes);
        }
    }

    fn add_free(&mut self, at: Place, bytes: usize) {
        if let (Some(list), false) = (self.free.get_mut(bytes / 8), self.is_reclaiming || bytes == 0) {
            list.push(at);
            self.free_bytes += bytes;
        }
    }
}

#[cfg(all(test, not(bolide_shuttle)))]
mod tests {
    use super::*;
    use crate::ps_tree::test_region;

    #[test]
    fn joined_pieces_return_to_the_region() {
        let (region, heap) = (test_region(), KeyHeap::new());
        let writer = region.writer();
        let allocate = |bytes: usize, count: usize| -> Vec<Place> {
            (0..count).map(|_| heap.allocate(&writer, &region, bytes).unwrap()).collect()
        };
        let short = allocate(64, 640);
        let held = region.stats().allocated_bytes;
        short.iter().for_each(|&at| heap.free(&writer, &region, at, 64));
        // A longer one finds no piece of its length, and the pieces are joined before.
        let long = allocate(504, 40);
        assert!(region.stats().allocated_bytes <= held, "{:?}", region.stats());
        let mut used: Vec<Place> = long;
        used.sort_unstable();
        assert!(used.windows(2).all(|pair| pair[0] + 504 <= pair[1]), "overlapping pieces");
        assert_eq!(region.stats().refused_frees, 0);
    }

    #[test]
    fn a_longer_piece_is_split_and_none_is_used_twice() {
        let (region, heap) = (test_region(), KeyHeap::new());
        let writer = region.writer();
        let (mut state, mut used) = (9_u64, Vec::<(Place, usize)>::new());
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bytes = 16 + 8 * ((state >> 33) % 62) as usize;
            if used.len() > 300 || state >> 40 & 1 == 0 && !used.is_empty() {
                let (at, bytes) = used.swap_remove((state >> 20) as usize % used.len());
                heap.free(&writer, &region, at, bytes);
            } else {
                used.push((heap.allocate(&writer, &region, bytes).unwrap(), bytes));
            }
        }
        used.sort_unstable();
        assert!(used.windows(2).all(|pair| pair[0].0 + pair[0].1 as Place <= pair[1].0));
        assert!(region.stats().allocated_bytes < 1 << 20 && region.stats().refused_frees == 0);
    }
}
