//! Sizes of pages in a rewrite (Perseid §4.2.2, split).

use super::page::{HEAD_HEADER_BYTES, PAGE_UNIT_BYTES, SEALED_HEADER_BYTES};
use crate::ps_tree::skey::heap::MAX_SMALL_BYTES;

/// Room for which a page stays in the heap instead of taking whole granules.
const MIN_ROOM_BYTES: usize = 64;

/// Sizes derived from the maximum length of head pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageSizes {
    /// Maximum length of a head page in bytes.
    pub(crate) page_bytes: usize,
}

impl PageSizes {
    /// Bytes of a head page available for groups.
    pub(crate) fn capacity(self) -> usize {
        self.page_bytes - HEAD_HEADER_BYTES
    }

    /// Maximum bytes of the group of a sealed page.
    pub(crate) fn sealed_capacity(self) -> usize {
        self.page_bytes - SEALED_HEADER_BYTES
    }

    /// Threshold in bytes above which a key moves its older entries to sealed pages.
    pub(crate) fn seal_above(self) -> usize {
        self.capacity() / 2
    }

    /// Approximate bytes of the newest entries that such a key retains in the head page.
    pub(crate) fn head_entry_bytes(self) -> usize {
        self.capacity() / 8
    }

    /// Maximum length of an inline body.
    pub(crate) fn inline_limit(self) -> usize {
        self.capacity() / 8
    }

    /// Length of a new head page for a group of `bytes` bytes with `count` entries; `is_sealed`: the key has sealed pages.
    ///
    /// A key with two entries gets no room: most values with two entries have an obsolete one. With more entries, room
    /// for a third more is left, so that the rewrites of a growing key copy a constant number of bytes per entry.
    pub(crate) fn head_page_bytes(self, bytes: usize, count: usize, is_sealed: bool) -> usize {
        let needed = HEAD_HEADER_BYTES + bytes;
        let room = if count > 2 { needed / 3 + 24 } else { 0 };
        let wanted = if is_sealed { self.page_bytes } else { (needed + room).next_multiple_of(8) };
        if wanted <= MAX_SMALL_BYTES {
            return wanted;
        }
        if !is_sealed && needed + MIN_ROOM_BYTES <= MAX_SMALL_BYTES {
            return MAX_SMALL_BYTES;
        }
        wanted.next_multiple_of(PAGE_UNIT_BYTES).min(self.page_bytes)
    }

    /// Whether a head page of `page_bytes` bytes is longer than a new one would be, by enough for a rewrite.
    pub(crate) fn is_loose(self, page_bytes: usize, new_bytes: usize) -> bool {
        page_bytes > new_bytes + new_bytes / 4 + 16
    }

    /// The bytes per sealed page that distribute `total` bytes of entries of one key evenly; the largest entry has `largest`
    /// bytes.
    pub(crate) fn sealed_share(self, total: usize, largest: usize) -> usize {
        let capacity = self.sealed_capacity() - super::group::LONG_HEADER_BYTES;
        let pages = total.div_ceil(capacity.saturating_sub(largest).max(1)).max(1);
        (total.div_ceil(pages) + largest).min(capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: PageSizes = PageSizes { page_bytes: 1024 };

    #[test]
    fn head_pages_hold_their_group_and_grow_up_to_the_limit() {
        for sizes in [512, 1024, 2048, 4096].map(|page_bytes| PageSizes { page_bytes }) {
            for bytes in (24..=sizes.capacity()).step_by(8) {
                for count in [1, 2, 3, 40] {
                    let page = sizes.head_page_bytes(bytes, count, false);
                    assert!(page >= HEAD_HEADER_BYTES + bytes && page <= sizes.page_bytes, "{bytes}");
                    assert!(page <= MAX_SMALL_BYTES || page.is_multiple_of(PAGE_UNIT_BYTES), "{page}");
                    assert!(!sizes.is_loose(page, page));
                }
                assert_eq!(sizes.head_page_bytes(bytes, 3, true), sizes.page_bytes);
            }
        }
        assert_eq!(SIZES.head_page_bytes(48, 2, false), 64);
        assert!(SIZES.is_loose(120, 64) && !SIZES.is_loose(80, 64));
    }

    #[test]
    fn a_sealed_share_holds_the_largest_entry() {
        for total in (100..20_000).step_by(37) {
            for largest in [16, 64, 140] {
                let share = SIZES.sealed_share(total, largest);
                assert!(share <= SIZES.sealed_capacity() && share >= largest, "{total} {largest} {share}");
            }
        }
    }
}
