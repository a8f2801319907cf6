//! Records of secondary keys, with the full key and its value, and the heap that they are allocated from.
//!
//! ```text
//! record := value length-and-checksum key padding       padded with zeros to a multiple of 8 bytes
//!
//! value     group pointer of the newest group of the key; 0 while the key is being removed, and
//!           in the separators of nodes
//! length    bits  0..16  length of the key in bytes
//!           bits 16..64  checksum of the key
//! ```
//!
//! A record never moves while its key exists, so the value is changed by a compare-and-swap independent of the nodes above.
//!
//! Records up to 512 bytes are allocated from chunks of 4 KiB. The space of removed ones is listed by length, and reused
//! once no reader can access it. The lists are volatile: after reopening, the region's reclaim frees the space without
//! records.

use std::cmp::Ordering;
use std::collections::VecDeque;

use bolide_base::checksum::hash_key;
use bolide_base::limits::MAX_SECONDARY_KEY_BYTES;
use bolide_base::{Error, Result};
use bolide_storage::pmem::{Place, Region, RegionWriter};

use crate::ps_tree::pkey::damage;
use crate::ps_tree::pkey::pointer::check_place;
use crate::ps_tree::sync::Mutex;

/// Bytes before the key.
const HEADER_BYTES: usize = 16;
const CHUNK_BYTES: usize = 4096;
/// Longer records have their own allocation.
const MAX_SMALL_BYTES: usize = 512;
const CLASSES: usize = MAX_SMALL_BYTES / 8 + 1;

fn length_word(key: &[u8]) -> u64 {
    key.len() as u64 | hash_key(key) << 16
}

/// Bytes of the record of a key of `length` bytes.
pub(crate) fn record_bytes(length: usize) -> usize {
    HEADER_BYTES + length.next_multiple_of(8)
}

/// The length of the key of a record.
///
/// # Errors
/// `Corruption` for a place outside of the region; the same for all functions that read a record.
#[inline]
pub(crate) fn key_length(region: &Region, record: Place) -> Result<usize> {
    Ok((region.load(record.wrapping_add(8))? & 0xffff) as usize)
}

/// Appends the key of a record to `out`.
///
/// # Errors
/// `Corruption` if there is no record at `record`.
pub(crate) fn read_key(region: &Region, record: Place, out: &mut Vec<u8>) -> Result<()> {
    let length = key_length(region, record)?;
    region.read(record.wrapping_add(HEADER_BYTES as Place), length, out)
}

/// Compares the key of a record with `key`.
///
/// # Errors
/// As [`key_length`].
#[inline]
pub(crate) fn compare_key(region: &Region, record: Place, key: &[u8]) -> Result<Ordering> {
    let length = key_length(region, record)?;
    region.compare(record.wrapping_add(HEADER_BYTES as Place), length, key)
}

/// Whether a record is that of `key`, whose hash is `hash`, and its key is not being removed. `record` must have been the
/// place of a record at some time since the region was pinned.
///
/// # Errors
/// None, also for a place without a record of this key length.
#[inline]
pub(crate) fn is_of(region: &Region, record: Place, key: &[u8], hash: u64) -> Result<bool> {
    let Ok([value, length, words @ ..]) = region.words(record, record_bytes(key.len())) else {
        return Ok(false);
    };
    if length.get() != (key.len() as u64 | hash << 16) {
        return Ok(false);
    }
    let (chunks, rest) = key.as_chunks::<8>();
    let (whole, last) = words.split_at_checked(chunks.len()).unwrap_or_default();
    let mut is_equal = chunks.iter().zip(whole).all(|(chunk, word)| u64::from_le_bytes(*chunk) == word.get());
    if let (Some(word), false) = (last.first(), rest.is_empty()) {
        let mut padded = [0; 8];
        padded.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        is_equal &= u64::from_le_bytes(padded) == word.get();
    }
    Ok(is_equal && value.acquire() != 0)
}

/// The value of a record.
///
/// # Errors
/// As [`key_length`].
#[inline]
pub(crate) fn value(region: &Region, record: Place) -> Result<u64> {
    region.load_acquire(record)
}

/// Verifies the checksum of a record.
///
/// # Errors
/// `Corruption` if it does not match.
pub(crate) fn verify(region: &Region, record: Place, scratch: &mut Vec<u8>) -> Result<()> {
    scratch.clear();
    read_key(region, record, scratch)?;
    if region.load(record.wrapping_add(8))? != length_word(scratch) {
        return Err(damage(record, "the checksum of a secondary key"));
    }
    Ok(())
}

/// The first 16 bytes of a key as two numbers that compare like the bytes; shorter keys are padded with zeros.
#[inline]
pub(crate) fn head_of(key: &[u8]) -> (u64, u64) {
    if let Some((head, _)) = key.split_first_chunk::<16>() {
        let head = u128::from_be_bytes(*head);
        return ((head >> 64) as u64, head as u64);
    }
    let mut head = [0; 16];
    head[..key.len()].copy_from_slice(key);
    let head = u128::from_be_bytes(head);
    ((head >> 64) as u64, head as u64)
}

/// Allocator of records.
#[derive(Debug)]
pub(crate) struct KeyHeap(Mutex<KeyHeapState>);

#[derive(Debug)]
struct KeyHeapState {
    /// The next free byte of the current chunk, and its end.
    next: Place,
    end: Place,
    /// Free space, by length / 8.
    free: Vec<Vec<Place>>,
    /// Freed space that readers may still access: epoch, place, bytes.
    pending_free: VecDeque<(u64, Place, usize)>,
    /// During the walk of a region reclaim, freed space is left to it instead of being listed.
    is_reclaiming: bool,
    /// Records written since a reclaim was announced; its walk may miss them.
    recent: Option<Vec<(Place, usize)>>,
}

impl KeyHeap {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(KeyHeapState {
            next: 0,
            end: 0,
            free: vec![Vec::new(); CLASSES],
            pending_free: VecDeque::new(),
            is_reclaiming: false,
            recent: None,
        }))
    }

    /// Writes a record, which becomes durable with the next fence.
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
        if key.len() > MAX_SECONDARY_KEY_BYTES {
            let limit = MAX_SECONDARY_KEY_BYTES as u64;
            return Err(Error::limit_exceeded("a secondary key in bytes", key.len() as u64, limit));
        }
        let bytes = record_bytes(key.len());
        let at = self.allocate(writer, region, bytes)?;
        writer.store(at, value)?;
        writer.store(at + 8, length_word(key))?;
        writer.write(at + HEADER_BYTES as Place, key)?;
        writer.persist(at, bytes)?;
        Ok(at)
    }

    fn allocate(&self, writer: &RegionWriter<'_>, region: &Region, bytes: usize) -> Result<Place> {
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
        let bytes = record_bytes(key_length(region, record)?);
        if bytes > MAX_SMALL_BYTES {
            writer.free(record, bytes);
            return Ok(());
        }
        let mut inner = self.0.lock();
        if !inner.is_reclaiming {
            inner.pending_free.push_back((region.end_epoch(), record, bytes));
        }
        Ok(())
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
        let bytes = record_bytes(key_length(region, record)?);
        if bytes > MAX_SMALL_BYTES {
            writer.free(record, bytes);
        } else {
            self.0.lock().add_free(record, bytes);
        }
        Ok(())
    }

    /// Announces a reclaim of the region, before it starts.
    pub(crate) fn announce_reclaim(&self) {
        self.0.lock().recent = Some(Vec::new());
    }

    /// At the start of the walk of a reclaim: drops all free space, so that the reclaim frees it, and lists none.
    pub(crate) fn begin_walk(&self) {
        let mut inner = self.0.lock();
        inner.free.iter_mut().for_each(Vec::clear);
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
        if !self.pending_free.is_empty() {
            self.release(region.oldest_pin());
        }
        if let Some(at) = self.free.get_mut(bytes / 8).and_then(Vec::pop) {
            return Ok(at);
        }
        if self.end - self.next < bytes as Place {
            // The rest of the old chunk is smaller than the longest small record.
            self.add_free(self.next, (self.end - self.next) as usize);
            self.next = writer.allocate(CHUNK_BYTES)?;
            self.end = self.next + CHUNK_BYTES as Place;
            check_place(self.next, CHUNK_BYTES)?;
        }
        let at = self.next;
        self.next += bytes as Place;
        Ok(at)
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
        }
    }
}
