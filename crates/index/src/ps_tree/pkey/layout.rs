//! Distribution of groups over pages in a rewrite (Perseid §4.2.2, split).

use super::page::{HEAD_HEADER_BYTES, SEALED_HEADER_BYTES};

/// Sizes derived from the length of head pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageSizes {
    /// Length of a head page in bytes.
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

    /// Threshold in bytes above which a page is split.
    fn split_above(self) -> usize {
        self.capacity() * 7 / 10
    }

    /// Distributes groups of these sizes, in key order, over head pages. Returns the number of groups per page.
    ///
    /// A page with much free space is not split. `ascending`: the new entry is above all keys of the page; keys inserted in
    /// ascending order then leave full pages.
    pub(crate) fn distribute(self, sizes: &[usize], ascending: bool) -> Vec<usize> {
        let total: usize = sizes.iter().sum();
        if sizes.is_empty() {
            return Vec::new();
        }
        if total <= self.split_above() || sizes.len() == 1 {
            return vec![sizes.len()];
        }
        let pages = (total.div_ceil(self.split_above())).max(2);
        let share = if ascending { self.capacity() * 9 / 10 } else { total / pages };
        let mut counts = Vec::new();
        let (mut bytes, mut count) = (0, 0);
        for (index, &size) in sizes.iter().enumerate() {
            let is_last = index + 1 == sizes.len();
            // The group goes to the side with the smaller part of it beyond the share.
            let over = bytes + size / 2 > share || bytes + size > self.capacity();
            if count > 0 && (over || ascending && is_last && counts.is_empty()) {
                counts.push(count);
                (bytes, count) = (0, 0);
            }
            bytes += size;
            count += 1;
        }
        counts.push(count);
        counts
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
    fn a_page_is_split_near_the_middle() {
        assert_eq!(SIZES.distribute(&[], false), Vec::<usize>::new());
        assert_eq!(SIZES.distribute(&[100; 4], false), [4]);
        assert_eq!(SIZES.distribute(&[100; 10], false), [5, 5]);
        assert_eq!(SIZES.distribute(&[500, 100, 100, 100, 100], false), [1, 4]);
        assert_eq!(SIZES.distribute(&[100, 100, 100, 100, 500], false), [4, 1]);
        assert_eq!(SIZES.distribute(&[1000], false), [1]);
        assert_eq!(SIZES.distribute(&[500, 500], false), [1, 1]);
    }

    #[test]
    fn ascending_keys_leave_full_pages() {
        assert_eq!(SIZES.distribute(&[100; 9], true), [8, 1]);
        assert_eq!(SIZES.distribute(&[100; 10], true), [9, 1]);
    }

    #[test]
    fn every_distribution_fits_into_pages() {
        let mut state = 7_u64;
        for _ in 0..20_000 {
            let mut next = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % below
            };
            let count = 1 + next(30) as usize;
            let limit = SIZES.seal_above() as u64 + 16;
            let sizes: Vec<usize> = (0..count).map(|_| 16 + next(limit - 16) as usize).collect();
            let ascending = next(2) == 0;
            let counts = SIZES.distribute(&sizes, ascending);
            let total: usize = sizes.iter().sum();
            assert_eq!(counts.iter().sum::<usize>(), count);
            let mut rest = &sizes[..];
            for count in counts {
                assert!(count > 0);
                let (page, more) = rest.split_at(count);
                let bytes = page.iter().sum::<usize>();
                assert!(bytes <= SIZES.capacity(), "{sizes:?}");
                // With ascending keys, the last page takes the next inserts.
                let is_filled = ascending && !more.is_empty();
                assert!(
                    is_filled || total > SIZES.capacity() || bytes + SIZES.capacity() / 5 <= SIZES.capacity()
                );
                rest = more;
            }
        }
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
