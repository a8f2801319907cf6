//! Records of secondary keys, with the full key, its value and a body.
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

use std::cmp::Ordering;

use bolide_base::Result;
use bolide_base::checksum::hash_key;
use bolide_storage::pmem::{Place, Region};

use crate::ps_tree::pkey::content::KeyContent;
use crate::ps_tree::pkey::damage;
use crate::ps_tree::pkey::entry::{self, EntryHeader};

/// Bytes before the key.
pub(super) const HEADER_BYTES: usize = 16;

const BODY_SHIFT: u32 = 16;
const ENTRY_CHECK_SHIFT: u32 = 24;
const KEY_CHECK_SHIFT: u32 = 44;
const CHECK_BITS: u32 = KEY_CHECK_SHIFT - ENTRY_CHECK_SHIFT;
/// The bits of the lengths that depend on the key alone.
const KEY_BITS: u64 = 0xffff | !0 << KEY_CHECK_SHIFT;

pub(super) fn key_bits(key_bytes: usize, hash: u64) -> u64 {
    key_bytes as u64 | hash << KEY_CHECK_SHIFT
}

/// The bits of the lengths that depend on the inline entry.
pub(super) fn entry_bits(header: EntryHeader, body: &[u8]) -> u64 {
    // The upper bits of the product depend on all bits.
    let hash = (hash_key(body) ^ header.word() & !entry::OBSOLETE).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (body.len() as u64) << BODY_SHIFT | (hash >> (64 - CHECK_BITS)) << ENTRY_CHECK_SHIFT
}

/// Bytes of a record with a key and a body of these lengths.
pub(super) fn record_bytes(key: usize, body: usize) -> usize {
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

/// Verifies the checksum of the inline entry of a record, whose body is `body`.
///
/// # Errors
/// `Corruption` if it does not match.
pub(crate) fn verify_body(region: &Region, record: Place, header: EntryHeader, body: &[u8]) -> Result<()> {
    let lengths = region.load(record.wrapping_add(8))?;
    if lengths & !KEY_BITS != entry_bits(header, body) {
        return Err(damage(record, "the checksum of an inline entry"));
    }
    Ok(())
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
        verify_body(region, record, header, scratch)?;
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

#[cfg(all(test, not(bolide_shuttle)))]
mod tests {
    use super::super::heap::KeyHeap;
    use super::*;
    use crate::ps_tree::pkey::entry::put_entry;
    use crate::ps_tree::test_region;

    #[test]
    fn every_flipped_bit_of_a_record_is_detected() {
        let region = test_region();
        let writer = region.writer();
        let mut entry = Vec::new();
        put_entry(&writer, 255, b"primary key", 77, b"covering", &mut entry).unwrap();
        let record = KeyHeap::new().put_inline(&writer, &region, b"a secondary key", &entry).unwrap();
        let (mut scratch, bytes) = (Vec::new(), bytes_of(&region, record).unwrap());
        verify(&region, record, &mut scratch).unwrap();
        assert_eq!(scratch, b"a secondary key");
        let used = HEADER_BYTES + scratch.len() + 2 + b"primary key".len() + b"covering".len();
        for bit in 0..bytes * 8 {
            let at = record + (bit / 64 * 8) as Place;
            let word = region.load(at).unwrap();
            writer.store(at, word ^ 1 << (bit % 64)).unwrap();
            // The obsolete flag is no damage, the padding is not read. Without the bit of inline entries the value names a page.
            let is_read = bit != 0 && bit != 63 && bit / 8 < used;
            assert_eq!(verify(&region, record, &mut scratch).is_err(), is_read, "bit {bit}");
            writer.store(at, word).unwrap();
        }
    }
}
