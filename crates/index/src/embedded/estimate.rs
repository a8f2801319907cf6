//! How many records match a question, told by what is in memory.
//!
//! Of each sstable that its zone map in the manifest does not rule out, some blocks are asked, evenly spread, and
//! stand for the others. A block whose zone map or filter says no has none. Else:
//! * a range has as much of the block's records as it has of the zone from its smallest to its largest value, taking
//!   values for evenly spread, and at least one;
//! * one value has all of its records if it is its only value; else one, as a rule, since few blocks meet a value
//!   twice. Of the blocks that a filter admits, those are taken off that it admits in vain, by its bits.
//!
//! Where a range lies between the blocks that are asked, it has about a quarter of what lies there.
//!
//! Of a memtable that was asked before, the index tells. Other memtables, and sstables without the index, are
//! assumed to be like the rest; if there is no rest, nothing can be said.
//!
//! Reads no data blocks; meta blocks that are not in memory yet are read once, as the question itself would.
//! At most [`ASKED_BLOCKS`] blocks of an sstable are asked, so it costs some microseconds an sstable.

use bolide_base::Result;
use bolide_lsm::TreeView;
use bolide_lsm::store::{Component, TableComponent};

use super::cursor::{load, wanted_hash};
use super::meta_block::{Answer, MetaBlock, Wanted};
use crate::access::Access;
use crate::in_sstable::memtable_index::{ATTACHMENT, MemtableIndex};
use crate::in_sstable::{SstableIndexBase, summary};

/// Blocks of an sstable that are asked, at most.
const ASKED_BLOCKS: u64 = 64;
/// Entries of a memtable's index that are counted one by one.
const COUNTED_ENTRIES: usize = 64;

/// About how many records of `table` match `access`, old versions included; `None` where there is nothing to tell
/// it by.
pub(super) fn estimate(index: &SstableIndexBase, access: &Access, table: &TreeView) -> Result<Option<u64>> {
    let wanted = Wanted { low: &access.low, end: &access.end, hash: wanted_hash(index, access) };
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
    wanted: &Wanted<'_>,
    sstable: &TableComponent,
    view: u64,
) -> Result<f64> {
    let filters = load(sstable, index)?;
    if !matches!(filters.match_table(wanted, view), Answer::Maybe { .. }) {
        return Ok(0.0);
    }
    let blocks = filters.blocks().max(1);
    let records = sstable.meta().entries as f64 / blocks as f64;
    let stride = blocks.div_ceil(ASKED_BLOCKS).max(1);
    let (mut asked, mut in_vain, mut matches) = (0.0, 0.0, 0.0);
    for block in (0..blocks).step_by(usize::try_from(stride).unwrap_or(usize::MAX)) {
        asked += 1.0;
        match filters.match_block(block, wanted, view) {
            Answer::Maybe { filtered, .. } => {
                matches += in_block(&filters, block, access, wanted, records);
                in_vain += if filtered { 1.0 } else { 0.0 };
            }
            // It would have let a part of these through.
            Answer::NotInFilter => in_vain += 1.0,
            Answer::TooNew | Answer::OutOfZone => {}
        }
    }
    if matches == 0.0 && stride > 1 && !access.point {
        // A run of blocks that was stepped over: shorter than the stride, about half of it, half filled.
        return Ok((records * stride as f64 / 4.0).max(1.0));
    }
    let admitted = in_vain * false_positives(filters.bits());
    // The whole sstable may have a match: at least one is assumed.
    Ok(((matches - admitted) * blocks as f64 / asked).max(1.0))
}

/// About which part of the values that it does not have a filter of `bits` for each value admits.
fn false_positives(bits: u8) -> f64 {
    0.6185_f64.powi(i32::from(bits))
}

/// About how many of the `records` of a block match, of which neither filter nor zone map says no.
fn in_block(filters: &MetaBlock, block: u64, access: &Access, wanted: &Wanted<'_>, records: f64) -> f64 {
    let Some((low, high)) = filters.zone_of(block) else { return records };
    if wanted.low <= low && high < wanted.end {
        return records;
    }
    if access.point {
        return 1.0_f64.min(records);
    }
    // Behind what the ends of the zone share, some bytes as a number.
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
