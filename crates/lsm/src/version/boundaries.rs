//! The keys that a level is cut at.

use std::collections::BTreeSet;
use std::ops::Bound;

use super::table_meta::TableMeta;

/// The boundaries of one level, ascending. `n` of them make `n + 1` partitions.
pub type Boundaries = BTreeSet<Vec<u8>>;

/// The boundary that `meta` reaches across, if there is one.
pub(super) fn crossed<'b>(boundaries: &'b Boundaries, meta: &TableMeta) -> Option<&'b [u8]> {
    let within =
        (Bound::Excluded(meta.smallest_key.as_slice()), Bound::Included(meta.largest_key.as_slice()));
    if meta.smallest_key >= meta.largest_key {
        return None;
    }
    boundaries.range::<[u8], _>(within).next().map(Vec::as_slice)
}

/// The keys that cut `tables` into groups of `most`; of more where one reaches across.
pub fn boundaries_between(mut tables: Vec<&TableMeta>, most: usize) -> Vec<Vec<u8>> {
    tables.sort_by(|left, right| left.smallest_key.cmp(&right.smallest_key));
    let mut boundaries = Vec::new();
    let (mut in_partition, mut largest): (usize, &[u8]) = (0, &[]);
    for meta in tables {
        if in_partition >= most && largest < meta.smallest_key.as_slice() {
            boundaries.push(meta.smallest_key.clone());
            in_partition = 0;
        }
        in_partition += 1;
        largest = largest.max(&meta.largest_key);
    }
    boundaries
}
