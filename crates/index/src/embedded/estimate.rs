//! Estimates the number of matching records of a query from data in memory.
//!
//! For each sstable that its zone map in the manifest does not exclude, some evenly spaced blocks are sampled. A block that
//! its zone map or filter excludes has no match. Otherwise:
//! * a range matches the share of the block's records that it covers of the zone from smallest to largest value, assuming a
//!   uniform distribution of values, and at least one record;
//! * one value matches all records if it is the only value of the block, else one record, since few blocks contain a value
//!   twice. The expected false positives of the filter, by its bits, are subtracted.
//!
//! A range between two sampled blocks is assumed to match about a quarter of the records between them.
//!
//! A memtable with an index uses the index. Other memtables, and sstables without the index, are assumed to be like the
//! rest; without a rest there is no estimate.
//!
//! Reads no data blocks. Meta blocks that are not in memory are read once, as by the query itself. At most
//! [`SAMPLED_BLOCKS`] blocks of an sstable are sampled, so the cost is some microseconds per sstable.

use bolide_base::Result;
use bolide_lsm::TreeView;
use bolide_lsm::store::{Component, TableComponent};

use super::cursor::{load, query_hash};
use super::meta_block::{FilterResult, MetaBlock, MetaBlockQuery};
use crate::access::Access;
use crate::in_sstable::memtable_index::{ATTACHMENT, MemtableIndex};
use crate::in_sstable::{SstableIndexBase, summary};

/// Maximum number of sampled blocks of an sstable.
const SAMPLED_BLOCKS: u64 = 64;
/// Maximum number of entries of a memtable index that are counted instead of sampled.
const COUNTED_ENTRIES: usize = 64;

/// Estimates how many records of `table` match `access`, old versions included; `None` without any basis.
pub(super) fn estimate(index: &SstableIndexBase, access: &Access, table: &TreeView) -> Result<Option<u64>> {
    let wanted = MetaBlockQuery { low: &access.low, end: &access.end, hash: query_hash(index, access) };
    let (mut matches, mut known, mut unknown) = (0.0, 0.0, 0.0);
    for component in table.components() {
        if component.smallest_sequence() > table.sequence() {
            continue;
        }
        match component {
            Component::Memtable(memtable) => {
                let entries = memtable.memtable().entries() as f64;
                let share = memtable
                    .attachments()
                    .get::<MemtableIndex>(ATTACHMENT)
                    .and_then(|own| own.share(index, &access.low, &access.end, COUNTED_ENTRIES));
                match share {
                    Some((share, of)) => {
                        matches += share * of as f64;
                        known += entries;
                    }
                    None => unknown += entries,
                }
            }
            Component::Table(sstable) => {
                let entries = sstable.meta().entries as f64;
                match summary::find(&sstable.meta().attachment, index.id) {
                    None => unknown += entries,
                    Some(summary) => {
                        known += entries;
                        if summary.may_match(wanted.low, wanted.end) {
                            matches += of_sstable(index, access, &wanted, &sstable, table.sequence())?;
                        }
                    }
                }
            }
        }
    }
    if known == 0.0 {
        return Ok((unknown == 0.0).then_some(0));
    }
    Ok(Some((matches * (1.0 + unknown / known)).ceil() as u64))
}

fn of_sstable(
    index: &SstableIndexBase,
    access: &Access,
    wanted: &MetaBlockQuery<'_>,
    sstable: &TableComponent,
    view: u64,
) -> Result<f64> {
    let filters = load(sstable, index)?;
    if !matches!(filters.match_table(wanted, view), FilterResult::MayMatch { .. }) {
        return Ok(0.0);
    }
    let blocks = filters.blocks().max(1);
    let records = sstable.meta().entries as f64 / blocks as f64;
    let stride = blocks.div_ceil(SAMPLED_BLOCKS).max(1);
    let (mut sampled, mut filtered_blocks, mut matches) = (0.0, 0.0, 0.0);
    for block in (0..blocks).step_by(usize::try_from(stride).unwrap_or(usize::MAX)) {
        sampled += 1.0;
        match filters.match_block(block, wanted, view) {
            FilterResult::MayMatch { filtered, .. } => {
                matches += in_block(&filters, block, access, wanted, records);
                filtered_blocks += if filtered { 1.0 } else { 0.0 };
            }
            // The filter admits a part of such blocks.
            FilterResult::NotInFilter => filtered_blocks += 1.0,
            FilterResult::TooNew | FilterResult::OutOfZone => {}
        }
    }
    if matches == 0.0 && stride > 1 && !access.point {
        // The range lies in a run of skipped blocks: on average half a stride, half filled.
        return Ok((records * stride as f64 / 4.0).max(1.0));
    }
    let admitted = filtered_blocks * false_positives(filters.bits());
    // At least one match, since the sstable is not excluded.
    Ok(((matches - admitted) * blocks as f64 / sampled).max(1.0))
}

/// The false positive rate of a filter with `bits` bits per value.
fn false_positives(bits: u8) -> f64 {
    0.6185_f64.powi(i32::from(bits))
}

/// Estimates how many of the `records` of a block match, if neither filter nor zone map excludes it.
fn in_block(
    filters: &MetaBlock,
    block: u64,
    access: &Access,
    wanted: &MetaBlockQuery<'_>,
    records: f64,
) -> f64 {
    let Some((low, high)) = filters.zone_of(block) else { return records };
    if wanted.low <= low && high < wanted.end {
        return records;
    }
    if access.point {
        return 1.0_f64.min(records);
    }
    // The bytes after the common prefix of the zone's bounds, as numbers.
    let shared = low.iter().zip(high).take_while(|(low, high)| low == high).count();
    let number = |key: &[u8]| {
        let mut bytes = [0; 8];
        for (to, from) in bytes.iter_mut().zip(key.get(shared..).unwrap_or_default()) {
            *to = *from;
        }
        u64::from_be_bytes(bytes) as f64
    };
    let (from, to) = (number(wanted.low.max(low)), number(wanted.end.min(high)));
    let zone = (number(high) - number(low)).max(1.0);
    (records * ((to - from) / zone).clamp(0.0, 1.0)).max(1.0_f64.min(records))
}
