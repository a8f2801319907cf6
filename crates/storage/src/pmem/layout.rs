//! The format of a region.
//!
//! ```text
//! region   := extent*                       4 MiB each; the first begins with the header page
//! extent   := [header page] bitmap granule* a granule is 256 bytes, the unit of allocation
//!
//! header page (page 0)
//!   offset size
//!        0    8  magic "BolidPMR"
//!        8    8  format version (2)
//!       16    8  region id
//!       24    8  high-water mark: no byte at or above it was ever allocated
//!       32    8  open count: the number of openings for writing
//!       40    8  state: 1 = the bitmaps are valid, 0 = they are not (reclaim first)
//!       48   16  boot id of a mapping that does not survive a power cut, else 0
//!       64    8  mapped regions: checksum of bytes 0..24 and 48..64; other regions store theirs elsewhere
//!      256  256  32 roots of 8 bytes
//!
//! bitmap (2 KiB at the head of the extent, behind the header page in the first): bit g % 8 of byte g / 8
//!     is set while granule g of the extent is in use. Header page and bitmap are always in use.
//! ```
//!
//! Numbers are little-endian. A region contains offsets ([`Place`]) instead of addresses, so it can be mapped at any address.

/// A byte offset in a region; 0 is the null offset. Offsets of words are multiples of 8.
pub type Place = u64;

/// The unit of dirty tracking, of checksums and of checkpoints, in bytes.
pub const PAGE_BYTES: usize = if cfg!(bolide_shuttle) { 512 } else { 4096 };
/// The unit of growth, in bytes. No allocation straddles two extents.
pub const EXTENT_BYTES: usize = if cfg!(bolide_shuttle) {
    32 << 10
} else if cfg!(miri) {
    256 << 10
} else {
    4 << 20
};
/// The unit of allocation, in bytes: the access granularity of persistent memory (Perseid §2.3).
pub const GRANULE_BYTES: usize = 256;
/// The cache line of the processor, its unit of a write-back, in bytes.
pub const LINE_BYTES: usize = 64;
/// The number of roots: entry points of the owner's structures.
pub const ROOT_SLOTS: usize = 32;
/// The largest allocation, in bytes: an extent without its metadata.
pub const MAX_ALLOCATION_BYTES: usize = EXTENT_BYTES - 2 * PAGE_BYTES;

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"BolidPMR");
pub(super) const FORMAT_VERSION: u64 = 2;
pub(super) const MAGIC_AT: Place = 0;
pub(super) const VERSION_AT: Place = 8;
pub(super) const ID_AT: Place = 16;
pub(super) const MARK_AT: Place = 24;
pub(super) const OPEN_COUNT_AT: Place = 32;
pub(super) const STATE_AT: Place = 40;
pub(super) const BOOT_AT: Place = 48;
pub(super) const CHECKSUM_AT: Place = 64;
pub(super) const ROOTS_AT: Place = 256;

/// The first byte behind the header page.
pub(super) const FIRST_PLACE: Place = PAGE_BYTES as u64;
pub(super) const PAGES_PER_EXTENT: usize = EXTENT_BYTES / PAGE_BYTES;
pub(super) const GRANULES_PER_EXTENT: usize = EXTENT_BYTES / GRANULE_BYTES;
pub(super) const BITMAP_WORDS: usize = GRANULES_PER_EXTENT / 64;
/// The size of an extent's bitmap in bytes, whole granules.
pub(super) const BITMAP_BYTES: usize = (BITMAP_WORDS * 8).next_multiple_of(GRANULE_BYTES);

/// The offset of the bitmap of `extent`.
pub(super) fn bitmap_at(extent: usize) -> Place {
    let header = if extent == 0 { PAGE_BYTES } else { 0 };
    (extent * EXTENT_BYTES + header) as Place
}

/// The first offset of `extent` for allocations.
pub(super) fn first_free_of(extent: usize) -> Place {
    bitmap_at(extent) + BITMAP_BYTES as Place
}

/// The extent that contains `at`.
#[inline]
pub(super) fn extent_of(at: Place) -> usize {
    (at / EXTENT_BYTES as Place) as usize
}

/// The offset of `at` in its extent, in bytes.
#[inline]
pub(super) fn within_extent(at: Place) -> usize {
    at as usize % EXTENT_BYTES
}

const _: () = assert!(MAX_ALLOCATION_BYTES + PAGE_BYTES + BITMAP_BYTES <= EXTENT_BYTES);
const _: () = assert!(PAGE_BYTES.is_multiple_of(GRANULE_BYTES) && EXTENT_BYTES.is_power_of_two());
