//! Records of secondary keys, with the full key, its value and a body, and the heap that they are allocated from.
//!
//! ```text
//! record := value lengths key body padding       padded with zeros to a multiple of 8 bytes
//!
//! value     the only entry of the key, or its newest group; 0 while the key is being removed, and in the
//!           separators of nodes: see `KeyContent`
//! lengths   bits  0..16  length of the key in bytes
//!           bits 16..24  length of the body in bytes
//!           bits 24..44  checksum of the inline entry: of its header without the obsolete bit, and of the body
//!           bits 44..64  checksum of the key
//! body      that of the inline entry with which the record was written; unused once the key has pages
//! ```
//!
//! A record never moves, so the value is changed by a compare-and-swap independent of the nodes above. Nothing else of it
//! changes. A sweep replaces the record of a key that has one entry left in a page by a record with an inline entry.
//!
//! Records and pages up to 512 bytes are allocated from chunks of 4 KiB. The space of removed ones is listed by length, and reused
//! once no reader can access it. The lists are volatile: after reopening, the region's reclaim frees the space without
//! records.

use std::cmp::Ordering;
use std::collections::VecDeque;

use bolide_base::checksum::hash_key;
use bolide_base::limits::MAX_SECONDARY_KEY_BYTES;
use bolide_base::{Error, Result};
use bolide_storage::pmem::{Place, Region, RegionWriter};

use crate::ps_tree::pkey::content::{KeyContent, MAX_INLINE_BODY_BYTES, inline_word};
use crate::ps_tree::pkey::damage;
use crate::ps_tree::pkey::entry::{self, EntryHeader};
use crate::ps_tree::pkey::group;
use crate::ps_tree::pkey::pointer::check_place;
use crate::ps_tree::sync::Mutex;

/// Bytes before the key.
const HEADER_BYTES: usize = 16;
const CHUNK_BYTES: usize = 4096;
/// Longer records and pages have their own allocation.
pub(crate) const MAX_SMALL_BYTES: usize = 512;
const CLASSES: usize = MAX_SMALL_BYTES / 8 + 1;

const BODY_SHIFT: u32 = 16;
const ENTRY_CHECK_SHIFT: u32 = 24;
const KEY_CHECK_SHIFT: u32 = 44;
const CHECK_MASK: u64 = (1 << (KEY_CHECK_SHIFT - ENTRY_CHECK_SHIFT)) - 1;
/// The bits of the lengths that depend on the key alone.
const KEY_BITS: u64 = 0xffff | !0 << KEY_CHECK_SHIFT;

fn key_bits(key_bytes: usize, hash: u64) -> u64 {
    key_bytes as u64 | hash << KEY_CHECK_SHIFT
}

/// The bits of the lengths that depend on the inline entry.
fn entry_bits(header: EntryHeader, body: &[u8]) -> u64 {
    let hash = hash_key(body) ^ (header.word() & !entry::OBSOLETE).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (body.len() as u64) << BODY_SHIFT | ((hash ^ hash >> 32) & CHECK_MASK) << ENTRY_CHECK_SHIFT
}

/// Bytes of a record with a key and a body of these lengths.
fn record_bytes(key: usize, body: usize) -> usize {
    HEADER_BYTES + (key + body).next_multiple_of(8)
}

/// Bytes of a record.
///
/// # Errors
/// As [`key_length`].
pub(crate) fn bytes_of(region: &Region, record: Place) -> Result<usize> {
    let lengths = region.load(record.wrapping_add(8))?;
    Ok(record_bytes((lengths & 0xffff) as usize, (lengths >> BODY_SHIFT & 0xff) as usize))
}

/// Appends the body of the inline entry of a record, whose header is `header`, to `out`.
///
/// # Errors
/// `Corruption` if the record has no body of this length.
pub(crate) fn read_body(
    region: &Region,
    record: Place,
    header: EntryHeader,
    out: &mut Vec<u8>,
) -> Result<()> {
    let lengths = region.load(record.wrapping_add(8))?;
    let (key, body) = ((lengths & 0xffff) as Place, (lengths >> BODY_SHIFT & 0xff) as usize);
    if body != header.body_bytes() {
        return Err(damage(record, "the body of an inline entry"));
    }
    region.read(record.wrapping_add(HEADER_BYTES as Place + key), body, out)
}

/// The content of a key.
///
/// # Errors
/// `Corruption` for a value that no writer writes.
#[inline]
pub(crate) fn content(region: &Region, record: Place) -> Result<KeyContent> {
    content_of(record, value(region, record)?)
}

/// The content of a key, whose record has the value `word`.
///
/// # Errors
/// As [`content`].
#[inline]
pub(crate) fn content_of(record: Place, word: u64) -> Result<KeyContent> {
    KeyContent::parse(word).ok_or_else(|| damage(record, "the value of a secondary key"))
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
    let Ok([value, lengths, words @ ..]) = region.words(record, record_bytes(key.len(), 0)) else {
        return Ok(false);
    };
    if lengths.get() & KEY_BITS != key_bits(key.len(), hash) {
        return Ok(false);
    }
    let (chunks, rest) = key.as_chunks::<8>();
    let (whole, last) = words.split_at_checked(chunks.len()).unwrap_or_default();
    let mut is_equal = chunks.iter().zip(whole).all(|(chunk, word)| u64::from_le_bytes(*chunk) == word.get());
    if let (Some(word), false) = (last.first(), rest.is_empty()) {
        let mut padded = [0; 8];
        padded.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        // The body follows in the same word.
        let mask = (1 << (8 * rest.len())) - 1;
        is_equal &= u64::from_le_bytes(padded) == word.get() & mask;
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

/// Verifies the checksums of a record, and leaves its key in `scratch`.
///
/// # Errors
/// `Corruption` if one does not match.
pub(crate) fn verify(region: &Region, record: Place, scratch: &mut Vec<u8>) -> Result<()> {
    let lengths = region.load(record.wrapping_add(8))?;
    scratch.clear();
    if let KeyContent::Inline(header) = content(region, record)? {
        read_body(region, record, header, scratch)?;
        if lengths & !KEY_BITS != entry_bits(header, scratch) {
            return Err(damage(record, "the checksum of an inline entry"));
        }
    }
    scratch.clear();
    read_key(region, record, scratch)?;
    if lengths & KEY_BITS != key_bits(scratch.len(), hash_key(scratch)) {
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
