//! The keys that divide a level into partitions.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::table_meta::TableMeta;

/// The boundaries of one level, ascending. `n` boundaries make `n + 1` partitions.
pub type Boundaries = BTreeSet<Vec<u8>>;

/// The boundary that `meta` crosses, if there is one.
pub(super) fn crossed<'b>(boundaries: &'b Boundaries, meta: &TableMeta) -> Option<&'b [u8]> {
    let within =
        (Bound::Excluded(meta.smallest_key.as_slice()), Bound::Included(meta.largest_key.as_slice()));
    if meta.smallest_key >= meta.largest_key {
        return None;
    }
    boundaries.range::<[u8], _>(within).next().map(Vec::as_slice)
}

/// Keys that divide `tables` into groups of `group_tables`; a group has more where an sstable crosses its end.
pub fn boundaries_between(mut tables: Vec<&TableMeta>, group_tables: usize) -> Vec<Vec<u8>> {
    tables.sort_by(|left, right| left.smallest_key.cmp(&right.smallest_key));
    let mut boundaries = Vec::new();
    let (mut in_partition, mut largest): (usize, &[u8]) = (0, &[]);
    for meta in tables {
        if in_partition >= group_tables && largest < meta.smallest_key.as_slice() {
            boundaries.push(meta.smallest_key.clone());
            in_partition = 0;
        }
        in_partition += 1;
        largest = largest.max(&meta.largest_key);
    }
    boundaries
}
