//! How much of an index is stale, estimated from a sample.
//!
//! Nothing is counted while records are written: a blind write does not know whether it makes an entry stale.
//! So the index is looked at in a number of places spread evenly over its keys, a few entries in each, and the
//! table is asked whether they are current. Places are evenly spread over keys, not over entries: where
//! entries crowd in few keys the estimate leans towards the others.
//!
//! An index of kind `ps-tree` counts the primary keys with obsolete entries itself.

use bolide_base::{Result, SequenceNumber};
use bolide_lsm::{Bounds, ReadView};

use crate::index_set::Index;
use crate::schema::CollectionState;

/// Places that are looked at.
const PLACES: u64 = 32;

/// The share of stale entries among about `sample` of the index, from 0 to 1; `None` for an index without
/// entries, or of a kind that does not say which writes its entries stem from.
pub(crate) fn share(
    view: &ReadView,
    collection: &CollectionState,
    index: &Index,
    sample: u64,
) -> Result<Option<f64>> {
    if let Some(kept) = index.ps_tree.as_ref().and_then(|ps_tree| ps_tree.kept()) {
        // Nothing has to be sampled: the keys with obsolete entries are counted.
        let (entries, obsolete) = (kept.tree().counts().1, kept.versions().stats().keys);
        return Ok((entries > 0).then(|| (obsolete as f64 / entries as f64).min(1.0)));
    }
    let table = view.tree(collection.tree)?;
    let mut entries = view.cursor(index.tree, Bounds::all())?;
    entries.seek_to_last()?;
    let Some(last) = entries.valid().then(|| entries.key().to_vec()) else { return Ok(None) };
    entries.seek_to_first()?;
    let first = if entries.valid() { entries.key().to_vec() } else { return Ok(None) };
    let (mut looked_at, mut stale) = (0_u64, 0_u64);
    let mut reached: Vec<u8> = Vec::new();
    for place in 0..PLACES {
        let start = between(&first, &last, place);
        // Places may fall into the same crowd: no entry counts twice.
        entries.seek(if start > reached { &start } else { &reached })?;
        for _ in 0..sample.div_ceil(PLACES) {
            if !entries.valid() {
                break;
            }
            let mut visit = |sequence: SequenceNumber, key: &[u8]| {
                looked_at += 1;
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
    Ok((looked_at > 0).then(|| stale as f64 / looked_at as f64))
}

/// The key at `place` of [`PLACES`] on the way from `first` to `last`, reckoned in the eight bytes behind what
/// the two have in common.
fn between(first: &[u8], last: &[u8], place: u64) -> Vec<u8> {
    let common = first.iter().zip(last).take_while(|(first, last)| first == last).count();
    let number = |key: &[u8]| {
        let mut bytes = [0; 8];
        for (byte, from) in bytes.iter_mut().zip(key.iter().skip(common)) {
            *byte = *from;
        }
        u64::from_be_bytes(bytes)
    };
    let (low, high) = (number(first), number(last));
    let way = u128::from(high.saturating_sub(low)) * u128::from(place) / u128::from(PLACES);
    let mut key = first.get(..common).unwrap_or_default().to_vec();
    key.extend_from_slice(&low.saturating_add(way as u64).to_be_bytes());
    key
}
