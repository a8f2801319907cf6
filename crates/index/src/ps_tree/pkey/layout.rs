//! Which groups go to which page when a page is rewritten (Perseid §4.2.2, split).

use super::page::{HEAD_HEADER_BYTES, SEALED_HEADER_BYTES};

/// Sizes that follow from the length of head pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageSizes {
    /// Length of a head page in bytes.
    pub(crate) page_bytes: usize,
}

impl PageSizes {
    /// Bytes of groups that a head page takes.
    pub(crate) fn capacity(self) -> usize {
        self.page_bytes - HEAD_HEADER_BYTES
    }

    /// Bytes of the largest group of a sealed page.
    pub(crate) fn sealed_capacity(self) -> usize {
        self.page_bytes - SEALED_HEADER_BYTES
    }

    /// A key with more bytes than this moves its older entries to sealed pages.
    pub(crate) fn seal_above(self) -> usize {
        self.capacity() / 2
    }

    /// About how many bytes of its newest entries such a key keeps in the head page.
    pub(crate) fn head_entry_bytes(self) -> usize {
        self.capacity() / 8
    }

    /// The longest body that lies in the page itself.
    pub(crate) fn inline_limit(self) -> usize {
        self.capacity() / 8
    }

    /// With more bytes than this a page is divided in two.
    fn split_above(self) -> usize {
        self.capacity() * 7 / 10
    }

    /// Distributes groups of these sizes, in the order of their keys, over head pages: how many go to each.
    ///
    /// A page that is left with much room stays one page. `ascending` says that the insert that asked for room
    /// is behind all keys of the page: keys that come in order leave full pages behind.
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
            // The group goes to the side on which less of it lies beyond the share.
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

    /// Divides `total` bytes of entries of one key, of which the largest has `largest`, evenly over sealed pages:
    /// the bytes that each may take.
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
    fn a_page_is_divided_at_about_the_middle() {
        assert_eq!(SIZES.distribute(&[], false), Vec::<usize>::new());
        assert_eq!(SIZES.distribute(&[100; 4], false), [4]);
        assert_eq!(SIZES.distribute(&[100; 10], false), [5, 5]);
        assert_eq!(SIZES.distribute(&[500, 100, 100, 100, 100], false), [1, 4]);
        assert_eq!(SIZES.distribute(&[100, 100, 100, 100, 500], false), [4, 1]);
        assert_eq!(SIZES.distribute(&[1000], false), [1]);
        assert_eq!(SIZES.distribute(&[500, 500], false), [1, 1]);
    }

    #[test]
    fn keys_in_order_leave_full_pages() {
        assert_eq!(SIZES.distribute(&[100; 9], true), [8, 1]);
        assert_eq!(SIZES.distribute(&[100; 10], true), [9, 1]);
    }

    #[test]
    fn every_group_finds_room_whatever_the_sizes() {
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
                // The last page of keys in order is where the next one goes.
                let is_filled = ascending && !more.is_empty();
                assert!(
                    is_filled || total > SIZES.capacity() || bytes + SIZES.capacity() / 5 <= SIZES.capacity()
                );
                rest = more;
            }
        }
    }

    #[test]
    fn shares_of_sealed_pages_hold_all() {
        for total in (100..20_000).step_by(37) {
            for largest in [16, 64, 140] {
                let share = SIZES.sealed_share(total, largest);
                assert!(share <= SIZES.sealed_capacity() && share >= largest, "{total} {largest} {share}");
            }
        }
    }
}
