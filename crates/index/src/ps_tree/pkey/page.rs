//! PKey pages (Perseid §4.2.1): a *head page* takes appends for its secondary key, a *sealed page* holds one group of older
//! entries.
//!
//! ```text
//! head page   := header tail group*         as long as its groups need, with room for more, up to `page_bytes`
//! sealed page := header tail examined pages group    as long as its group needs, a multiple of 256 bytes
//!
//! header    bits  0..8   kind: 0x50 head, 0x51 sealed
//!           bits  8..24  length of the page / 8
//!           bit      24  retired: the page was replaced, nothing in it changes any more
//!           bits 32..64  checksum of kind, length and place
//! tail      offset of the first free word of the page, in words
//! examined  sealed: place of the group of this chain after which garbage collection continues, 0 for this page
//! pages     sealed: number of sealed pages of the chain from this one on
//! ```
//!
//! # Rules
//! - A page belongs to one key. Its newest group lies in its head page, the older groups there or in its sealed pages.
//! - A head page up to 512 bytes lies in the heap of records, a longer one is a multiple of 256 bytes.
//! - Space is allocated by a compare-and-swap on the tail, written, made durable together with the tail, and only then
//!   linked. Unlinked groups that a crash leaves are garbage until the page is rewritten.

use bolide_base::Result;
use bolide_storage::pmem::{Place, Region, RegionWriter};

use super::damage;
use super::pointer::check_place;

const HEAD: u64 = 0x50;
const SEALED: u64 = 0x51;
const RETIRED: u64 = 1 << 24;

/// Bytes before the first group of a head page.
pub(crate) const HEAD_HEADER_BYTES: usize = 16;
/// Bytes before the group of a sealed page.
pub(crate) const SEALED_HEADER_BYTES: usize = 32;
/// Sealed pages, and head pages of more than 512 bytes, are multiples of this.
pub(crate) const PAGE_UNIT_BYTES: usize = 256;

const TAIL_AT: Place = 8;
const EXAMINED_AT: Place = 16;
const PAGES_AT: Place = 24;

/// The parsed header of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageHeader {
    pub(crate) sealed: bool,
    pub(crate) bytes: usize,
    pub(crate) retired: bool,
}

/// The header word of the page at `at`.
fn header_word(at: Place, kind: u64, bytes: usize) -> u64 {
    let low = kind | ((bytes / 8) as u64) << 8;
    let hash = (at ^ low).wrapping_mul(0xd6e8_feb8_6659_fd93);
    low | (hash ^ hash >> 32) << 32
}

/// Parses the header word of the page at `at`.
///
/// # Errors
/// `Corruption` if it is invalid.
pub(crate) fn parse_header(at: Place, word: u64) -> Result<PageHeader> {
    let bytes = (word >> 8 & 0xffff) as usize * 8;
    let kind = word & 0xff;
    if kind != HEAD && kind != SEALED || bytes == 0 || header_word(at, kind, bytes) != word & !RETIRED {
        return Err(damage(at, "the header of a PKey page"));
    }
    Ok(PageHeader { sealed: kind == SEALED, bytes, retired: word & RETIRED != 0 })
}

/// Reads the header of the page at `at`.
///
/// # Errors
/// `Corruption` if there is no page at `at`.
pub(crate) fn read_header(region: &Region, at: Place) -> Result<PageHeader> {
    parse_header(at, region.load_acquire(at)?)
}

/// The offset of the free space of a page, in bytes.
///
/// # Errors
/// `Corruption` for a place outside of the region.
pub(crate) fn tail(region: &Region, at: Place) -> Result<usize> {
    Ok((region.load_acquire(at.wrapping_add(TAIL_AT))? as usize).saturating_mul(8))
}

/// Appends to `out` the header of the head page at `at` for groups of `bytes` bytes.
pub(crate) fn put_head_header(at: Place, page_bytes: usize, bytes: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&header_word(at, HEAD, page_bytes).to_le_bytes());
    out.extend_from_slice(&(((HEAD_HEADER_BYTES + bytes) / 8) as u64).to_le_bytes());
}

/// State of a chain in one of its sealed pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ChainNote {
    /// Garbage collection continues after the group at this place; 0 for the newest sealed one.
    pub(crate) examined: Place,
    /// Number of sealed pages from this one on.
    pub(crate) pages: u64,
}

/// Writes a sealed page with the group that `put` appends for the given place; it becomes durable with the next fence.
/// Returns the places of page and group.
///
/// # Errors
/// `NoSpace` from the region.
pub(crate) fn write_sealed(
    writer: &RegionWriter<'_>,
    group_bytes: usize,
    note: ChainNote,
    put: impl FnOnce(Place, &mut Vec<u8>),
) -> Result<(Place, Place)> {
    let bytes = sealed_bytes(group_bytes);
    let at = writer.allocate(bytes)?;
    check_place(at, bytes)?;
    let group_at = at + SEALED_HEADER_BYTES as Place;
    let mut out = Vec::with_capacity(bytes);
    out.extend_from_slice(&header_word(at, SEALED, bytes).to_le_bytes());
    out.extend_from_slice(&(((SEALED_HEADER_BYTES + group_bytes) / 8) as u64).to_le_bytes());
    out.extend_from_slice(&note.examined.to_le_bytes());
    out.extend_from_slice(&note.pages.to_le_bytes());
    put(group_at, &mut out);
    debug_assert_eq!(out.len(), SEALED_HEADER_BYTES + group_bytes);
    writer.write(at, &out)?;
    writer.persist(at, out.len())?;
    Ok((at, group_at))
}

/// Bytes of the sealed page for a group of `group_bytes` bytes.
pub(crate) fn sealed_bytes(group_bytes: usize) -> usize {
    (SEALED_HEADER_BYTES + group_bytes).next_multiple_of(PAGE_UNIT_BYTES)
}

/// The sealed page of the group at `group`.
pub(crate) fn sealed_page_of(group: Place) -> Place {
    group.wrapping_sub(SEALED_HEADER_BYTES as Place)
}

/// Reads the chain state in the sealed page at `at`.
///
/// # Errors
/// `Corruption` for a place outside of the region.
pub(crate) fn read_note(region: &Region, at: Place) -> Result<ChainNote> {
    let word = |offset| region.load(at.wrapping_add(offset));
    Ok(ChainNote { examined: word(EXAMINED_AT)?, pages: word(PAGES_AT)? })
}

/// Stores the chain state in the sealed page at `at`. It is a hint: it need not be durable.
///
/// # Errors
/// `Corruption` for a place outside of the region.
pub(crate) fn store_note(writer: &RegionWriter<'_>, at: Place, note: ChainNote) -> Result<()> {
    writer.store(at.wrapping_add(EXAMINED_AT), note.examined)?;
    writer.store(at.wrapping_add(PAGES_AT), note.pages)?;
    writer.persist(at, SEALED_HEADER_BYTES)
}

/// Allocates `bytes` bytes in the page at `page`, which is `page_bytes` long, by a compare-and-swap on its tail. `None` if
/// it has no room.
///
/// # Errors
/// `Corruption` if the tail is invalid.
pub(crate) fn allocate_in_page(
    region: &Region,
    writer: &RegionWriter<'_>,
    page: Place,
    page_bytes: usize,
    bytes: usize,
) -> Result<Option<Place>> {
    let mut tail = region.load_acquire(page + TAIL_AT)?;
    loop {
        let start = (tail as usize).saturating_mul(8);
        if start < HEAD_HEADER_BYTES || start > page_bytes {
            return Err(damage(page, "the tail of a PKey page"));
        }
        if start + bytes > page_bytes {
            return Ok(None);
        }
        match writer.compare_exchange(page + TAIL_AT, tail, tail + bytes as u64 / 8)? {
            Ok(_) => return Ok(Some(page + start as Place)),
            Err(now) => tail = now,
        }
    }
}

/// Starts to persist the tail of `page`; it is durable after the next fence.
///
/// # Errors
/// `Corruption` for a place outside of the region.
pub(crate) fn persist_tail(writer: &RegionWriter<'_>, page: Place) -> Result<()> {
    writer.persist(page + TAIL_AT, 8)
}

/// Marks the page at `at` as replaced, so that a thread about to flag an entry of it detects that.
///
/// # Errors
/// `Corruption` for a place outside of the region.
pub(crate) fn retire(writer: &RegionWriter<'_>, at: Place) -> Result<()> {
    writer.fetch_or(at, RETIRED).map(|_| ())
}
