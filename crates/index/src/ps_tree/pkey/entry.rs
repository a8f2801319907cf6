//! One primary key of a secondary key (Perseid §4.2.1).
//!
//! ```text
//! entry    := header body padding            padded with zeros to a multiple of 8 bytes
//!
//! header   bits  0..13  length of the body in bytes, without the padding
//!          bit      13  covered: the body has a covering value
//!          bit      14  overflow: the body lies in an overflow extent
//!          bit      15  zero
//!          bit      16  obsolete: every reader sees a newer write of the primary key
//!          bits 17..64  sequence number of the write
//!
//! body     plain:    primary key
//!          covered:  length of the primary key (2) primary key covering
//!          overflow: place of the extent (8) checksum of the extent's bytes (8)
//!
//! extent   := length of the primary key (4) length of the covering (4) primary key covering
//! ```
//!
//! Numbers are little-endian. Only the obsolete bit changes after the entry was linked. A body longer than an eighth of a
//! page is stored in an overflow extent.

use bolide_base::checksum::hash_key;
use bolide_base::{Error, MAX_SEQUENCE, Result, SequenceNumber};
use bolide_storage::pmem::{Place, Region, RegionWriter};

use super::damage;

const LENGTH_MASK: u64 = (1 << 13) - 1;
const COVERED: u64 = 1 << 13;
const OVERFLOW: u64 = 1 << 14;
const RESERVED: u64 = 1 << 15;
/// The obsolete bit of an entry's header.
pub(crate) const OBSOLETE: u64 = 1 << 16;
const SEQUENCE_SHIFT: u32 = 17;

/// Bytes of an entry's header.
pub(crate) const HEADER_BYTES: usize = 8;
const OVERFLOW_BODY_BYTES: usize = 16;
const EXTENT_HEADER_BYTES: usize = 8;

/// The header of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryHeader(u64);

impl EntryHeader {
    /// Parses `word`; `None` if it is no valid header.
    #[inline]
    pub(crate) fn parse(word: u64) -> Option<Self> {
        let header = Self(word);
        // Most entries have neither bit.
        if word & (RESERVED | OVERFLOW) != 0 && !header.is_valid_overflow() {
            return None;
        }
        (header.sequence() != 0).then_some(header)
    }

    /// The header as a word.
    #[inline]
    pub(crate) fn word(self) -> u64 {
        self.0
    }

    /// The header in `word`, unchecked; the caller has it checked later.
    #[cfg(feature = "paper")]
    #[inline]
    pub(crate) fn unchecked(word: u64) -> Self {
        Self(word)
    }

    #[cold]
    fn is_valid_overflow(self) -> bool {
        self.0 & RESERVED == 0 && self.body_bytes() == OVERFLOW_BODY_BYTES
    }

    /// Whether the body is a primary key and nothing else.
    #[inline]
    pub(crate) fn is_plain(self) -> bool {
        self.0 & (COVERED | OVERFLOW) == 0
    }

    #[inline]
    pub(crate) fn sequence(self) -> SequenceNumber {
        self.0 >> SEQUENCE_SHIFT
    }

    #[inline]
    pub(crate) fn is_obsolete(self) -> bool {
        self.0 & OBSOLETE != 0
    }

    #[inline]
    pub(crate) fn is_covered(self) -> bool {
        self.0 & COVERED != 0
    }

    #[inline]
    pub(crate) fn is_overflow(self) -> bool {
        self.0 & OVERFLOW != 0
    }

    /// Bytes of the body.
    #[inline]
    pub(crate) fn body_bytes(self) -> usize {
        (self.0 & LENGTH_MASK) as usize
    }

    /// Bytes of the whole entry.
    #[inline]
    pub(crate) fn entry_bytes(self) -> usize {
        8 * self.entry_words()
    }

    /// Words of the whole entry.
    #[inline]
    pub(crate) fn entry_words(self) -> usize {
        HEADER_BYTES / 8 + self.body_bytes().div_ceil(8)
    }
}

/// Place and used bytes of an overflow extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OverflowExtent {
    pub(crate) at: Place,
    pub(crate) bytes: usize,
}

/// Appends an entry to `out`. A body longer than `inline_limit` bytes is written to an overflow extent, which becomes
/// durable with the next fence.
///
/// # Errors
/// `LimitExceeded` for a sequence number or a body over the limits; `NoSpace` from the region.
pub(crate) fn put_entry(
    writer: &RegionWriter<'_>,
    inline_limit: usize,
    primary_key: &[u8],
    sequence: SequenceNumber,
    covering: &[u8],
    out: &mut Vec<u8>,
) -> Result<()> {
    if sequence == 0 || sequence > MAX_SEQUENCE {
        return Err(Error::limit_exceeded("a sequence number", sequence, MAX_SEQUENCE));
    }
    let covered = if covering.is_empty() { 0 } else { 2 + covering.len() };
    let body = primary_key.len() + covered;
    let mut header = sequence << SEQUENCE_SHIFT;
    if body > inline_limit.min(LENGTH_MASK as usize) {
        header |= OVERFLOW | OVERFLOW_BODY_BYTES as u64;
        let (at, checksum) = put_extent(writer, primary_key, covering)?;
        out.extend_from_slice(&header.to_le_bytes());
        out.extend_from_slice(&at.to_le_bytes());
        out.extend_from_slice(&checksum.to_le_bytes());
        return Ok(());
    }
    header |= body as u64;
    if covering.is_empty() {
        out.extend_from_slice(&header.to_le_bytes());
        out.extend_from_slice(primary_key);
    } else {
        header |= COVERED;
        out.extend_from_slice(&header.to_le_bytes());
        out.extend_from_slice(&(primary_key.len() as u16).to_le_bytes());
        out.extend_from_slice(primary_key);
        out.extend_from_slice(covering);
    }
    let padding = body.next_multiple_of(8) - body;
    out.extend_from_slice(&[0; 8][..padding]);
    Ok(())
}

fn put_extent(writer: &RegionWriter<'_>, primary_key: &[u8], covering: &[u8]) -> Result<(Place, u64)> {
    let mut bytes = Vec::with_capacity(EXTENT_HEADER_BYTES + primary_key.len() + covering.len());
    bytes.extend_from_slice(&(primary_key.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&(covering.len() as u32).to_le_bytes());
    bytes.extend_from_slice(primary_key);
    bytes.extend_from_slice(covering);
    let at = writer.allocate(bytes.len())?;
    writer.write(at, &bytes)?;
    writer.persist(at, bytes.len())?;
    Ok((at, hash_key(&bytes)))
}

/// The parts of the body of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryBody<'b> {
    pub(crate) primary_key: &'b [u8],
    pub(crate) covering: &'b [u8],
}

/// Splits an inline body.
#[inline]
pub(crate) fn split_body(header: EntryHeader, body: &[u8]) -> Option<EntryBody<'_>> {
    if !header.is_covered() {
        return Some(EntryBody { primary_key: body, covering: &[] });
    }
    let (len, rest) = body.split_first_chunk::<2>()?;
    let (primary_key, covering) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
    Some(EntryBody { primary_key, covering })
}

/// The place and checksum in the body of an overflow entry; does not read the extent.
fn named_extent(body: &[u8]) -> Option<(Place, u64)> {
    let (at, rest) = body.split_first_chunk::<8>()?;
    let (checksum, _) = rest.split_first_chunk::<8>()?;
    Some((Place::from_le_bytes(*at), u64::from_le_bytes(*checksum)))
}

/// The overflow extent of an entry.
///
/// # Errors
/// `Corruption` if it names none.
pub(crate) fn extent_of(region: &Region, body: &[u8]) -> Result<OverflowExtent> {
    let (at, _) = named_extent(body).ok_or_else(|| damage(0, "an entry without its extent"))?;
    let lengths = region.load(at)?;
    let bytes = EXTENT_HEADER_BYTES + (lengths as u32) as usize + (lengths >> 32) as usize;
    Ok(OverflowExtent { at, bytes })
}

/// Reads the extent of an overflow entry into `out`, which is cleared first, and splits it.
///
/// # Errors
/// `Corruption` if the place or the checksum is wrong.
pub(crate) fn read_extent<'o>(region: &Region, body: &[u8], out: &'o mut Vec<u8>) -> Result<EntryBody<'o>> {
    let (at, checksum) = named_extent(body).ok_or_else(|| damage(0, "an entry without its extent"))?;
    let extent = extent_of(region, body)?;
    out.clear();
    region.read(at, extent.bytes, out)?;
    if hash_key(out) != checksum {
        return Err(damage(at, "the checksum of an overflow extent"));
    }
    let lengths = out.split_first_chunk::<8>();
    let Some((lengths, rest)) = lengths else { return Err(damage(at, "an overflow extent")) };
    let key = u32::from_le_bytes([lengths[0], lengths[1], lengths[2], lengths[3]]) as usize;
    let (primary_key, covering) =
        rest.split_at_checked(key).ok_or_else(|| damage(at, "the lengths of an overflow extent"))?;
    Ok(EntryBody { primary_key, covering })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ps_tree::test_region;

    fn round_trip(
        primary_key: &[u8],
        sequence: SequenceNumber,
        covering: &[u8],
        limit: usize,
    ) -> EntryHeader {
        let region = test_region();
        let writer = region.writer();
        let mut bytes = Vec::new();
        put_entry(&writer, limit, primary_key, sequence, covering, &mut bytes).unwrap();
        assert_eq!(bytes.len() % 8, 0);
        let (word, rest) = bytes.split_first_chunk::<8>().unwrap();
        let header = EntryHeader::parse(u64::from_le_bytes(*word)).unwrap();
        assert_eq!((header.sequence(), header.entry_bytes()), (sequence, bytes.len()));
        let body = &rest[..header.body_bytes()];
        let mut extent = Vec::new();
        let parts = if header.is_overflow() {
            read_extent(&region, body, &mut extent).unwrap()
        } else {
            split_body(header, body).unwrap()
        };
        assert_eq!((parts.primary_key, parts.covering), (primary_key, covering));
        header
    }

    #[test]
    fn inline_and_overflow_entries_round_trip() {
        for length in [0, 1, 7, 8, 9, 100, 511, 512] {
            let key = vec![b'k'; length];
            assert!(!round_trip(&key, MAX_SEQUENCE, b"", 512).is_overflow());
            assert!(round_trip(&key, 1, b"x", 514).is_covered() || length > 511);
        }
        assert!(round_trip(&[7; 513], 9, b"", 512).is_overflow());
        assert!(round_trip(&[7; 65_535], 9, &[8; 100_000], 512).is_overflow());
    }

    #[test]
    fn invalid_headers_are_rejected() {
        assert_eq!(EntryHeader::parse(0), None);
        assert_eq!(EntryHeader::parse(RESERVED | 1 << SEQUENCE_SHIFT), None);
        assert_eq!(EntryHeader::parse(OVERFLOW | 1 << SEQUENCE_SHIFT), None);
        let region = test_region();
        let over = put_entry(&region.writer(), 64, b"k", MAX_SEQUENCE + 1, b"", &mut Vec::new());
        assert_eq!(over.unwrap_err().kind(), bolide_base::ErrorKind::LimitExceeded);
    }

    #[test]
    fn a_damaged_extent_is_detected() {
        let region = test_region();
        let writer = region.writer();
        let mut bytes = Vec::new();
        put_entry(&writer, 4, b"a long primary key", 5, b"", &mut bytes).unwrap();
        let body = &bytes[8..];
        let extent = extent_of(&region, body).unwrap();
        assert_eq!(extent.bytes, 8 + 18);
        let word = region.load(extent.at + 8).unwrap();
        writer.store(extent.at + 8, word ^ 1).unwrap();
        assert!(read_extent(&region, body, &mut Vec::new()).unwrap_err().is_corruption());
    }
}
