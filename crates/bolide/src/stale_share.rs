//! The stale share of an index, estimated from a sample.
//!
//! Writes of records count nothing: a blind write cannot detect whether it makes an entry stale. So the estimate reads
//! a few entries at each of a number of positions spread evenly over the keys of the index, and looks up in the table
//! whether they are current. Positions are evenly spread over keys, not over entries: if many entries are in few keys,
//! the estimate is biased towards the others.
//!
//! A kind may count stale entries itself, as `ps-tree` counts the primary keys with obsolete entries.

use bolide_base::{Result, SequenceNumber};
use bolide_lsm::{Bounds, ReadView};

use crate::index_set::Index;
use crate::schema::OpenCollection;

/// The number of sampled positions.
const POSITIONS: u64 = 32;

/// The share of stale entries among about `sample` of the index, from 0 to 1; `None` for an index without entries, or
/// of a kind that does not report the writes of its entries.
pub(crate) fn share(
    view: &ReadView,
    collection: &OpenCollection,
    index: &Index,
    sample: u64,
) -> Result<Option<f64>> {
    if let Some(share) = index.hooks.stale_share() {
        return Ok(share);
    }
    let table = view.tree(collection.tree)?;
    let mut entries = view.cursor(index.tree, Bounds::all())?;
    entries.seek_to_last()?;
    let Some(last) = entries.valid().then(|| entries.key().to_vec()) else { return Ok(None) };
    entries.seek_to_first()?;
    let first = if entries.valid() { entries.key().to_vec() } else { return Ok(None) };
    let (mut checked, mut stale) = (0_u64, 0_u64);
    let mut reached: Vec<u8> = Vec::new();
    for position in 0..POSITIONS {
        let start = between(&first, &last, position);
        // Positions may be among the same entries: no entry counts twice.
        entries.seek(if start > reached { &start } else { &reached })?;
        for _ in 0..sample.div_ceil(POSITIONS) {
            if !entries.valid() {
                break;
            }
            let mut visit = |sequence: SequenceNumber, key: &[u8]| {
                checked += 1;
                stale += u64::from(table.newest_sequence(key)? != Some(sequence));
                Ok(())
            };
            if !index.structure.origins(entries.key(), entries.sequence(), entries.value(), &mut visit)? {
                return Ok(None);
            }
            entries.next()?;
        }
        if !entries.valid() {
            break;
        }
        reached.clear();
        reached.extend_from_slice(entries.key());
    }
    Ok((checked > 0).then(|| stale as f64 / checked as f64))
}

/// The key at `position` of [`POSITIONS`] between `first` and `last`, interpolated in the eight bytes after their
/// common prefix.
fn between(first: &[u8], last: &[u8], position: u64) -> Vec<u8> {
    let common = first.iter().zip(last).take_while(|(first, last)| first == last).count();
    let number = |key: &[u8]| {
        let mut bytes = [0; 8];
        for (byte, from) in bytes.iter_mut().zip(key.iter().skip(common)) {
            *byte = *from;
        }
        u64::from_be_bytes(bytes)
    };
    let (low, high) = (number(first), number(last));
    let way = u128::from(high.saturating_sub(low)) * u128::from(position) / u128::from(POSITIONS);
    let mut key = first.get(..common).unwrap_or_default().to_vec();
    key.extend_from_slice(&low.saturating_add(way as u64).to_be_bytes());
    key
}
