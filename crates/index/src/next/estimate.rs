//! Estimates the number of matches of a query from the directories of the index blocks, without I/O.
//!
//! An index block whose ranges lie within the range of the query counts whole. For one that extends beyond, a query for one
//! key counts the entries of an average key, and a range query counts its share of each range, assuming evenly spread keys.
//! For sstables without the index, and for memtables whose index does not provide an estimate, the share of matches is
//! assumed to be that of the rest.

use bolide_lsm::TreeView;

use super::global_index::GlobalIndex;
use super::intervals::head_of;
use crate::access::Access;
use crate::in_sstable::SstableIndexBase;
use crate::in_sstable::memtable_index::{ATTACHMENT, MemtableIndex};

/// Entries of a memtable's index that are counted one by one.
const COUNTED_ENTRIES: usize = 64;

/// The estimated number of records of `table` that match `access`, old versions included; `None` without any statistics.
pub(super) fn estimate(
    index: &SstableIndexBase,
    access: &Access,
    table: &TreeView,
    global: &GlobalIndex,
) -> Option<u64> {
    let (mut matches, mut known, mut unknown) = (0.0, 0.0, 0.0);
    for place in table.table_places() {
        let Some(sstable) = table.table_at(place) else { continue };
        let entries = sstable.meta().entries as f64;
        if global.unindexed().contains(&place) { unknown += entries } else { known += entries }
    }
    global.visit_ranges(&access.low, &access.end, access.point, |info, first, last| {
        let (keys, entries) = (f64::from(info.keys.max(1)), f64::from(info.entries));
        let of_range = entries / f64::from(info.ranges.max(1));
        matches += match access.point {
            true if first == last => of_range,
            true => entries / keys,
            false => of_range * share(access, first, last),
        };
    });
    global.visit_rects(access.window.as_ref(), |info, rect| {
        let of_range = f64::from(info.entries) / f64::from(info.ranges.max(1));
        matches += of_range * access.window.as_ref().map_or(1.0, |window| rect.share_of(window));
    });
    for memtable in table.memtable_components() {
        let entries = memtable.memtable().entries() as f64;
        let own = memtable.attachments().get::<MemtableIndex>(ATTACHMENT);
        // The order of rectangles in a memtable index does not make a window a range.
        let own = own.filter(|_| access.window.is_none());
        let share = own.and_then(|own| own.share(index, &access.low, &access.end, COUNTED_ENTRIES));
        match share {
            Some((share, of)) => {
                matches += share * of as f64;
                known += entries;
            }
            None => unknown += entries,
        }
    }
    if known == 0.0 {
        return (unknown == 0.0).then_some(0);
    }
    Some((matches * (1.0 + unknown / known)).ceil() as u64)
}

/// The fraction of the range from `first` to `last` that the query covers.
fn share(access: &Access, first: &[u8], last: &[u8]) -> f64 {
    let (low, end) = (access.low.as_slice(), access.end.as_slice());
    if low <= first && last < end {
        return 1.0;
    }
    let shared = first.iter().zip(last).take_while(|(first, last)| first == last).count();
    let number = |key: &[u8]| head_of(key.get(shared..).unwrap_or_default()) as f64;
    let (from, to) = (number(low.max(first)), number(end.min(last)));
    ((to - from) / (number(last) - number(first)).max(1.0)).clamp(0.0, 1.0)
}
