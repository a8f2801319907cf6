//! Transfer of the writes of a tree to its external tree, when that is set.
//!
//! If the writes would exceed the memory of an external tree that spills, it receives only as many of the newest as fit into half of
//! that. The others stay in the sstables of the tree, and its cut is raised above them:
//!
//! ```text
//! writes through the root    in the external tree -> an sstable
//! older writes, to the cut   those in memtables   -> an sstable; the others are in sstables
//! newer writes               -> the external tree
//! ```
//!
//! After a power cut before the next checkpoint, the root, the log and the older sstables have all of them, as after a spill.

use std::collections::BTreeMap;
use std::sync::Arc;

use bolide_base::{Result, SequenceNumber, Trailer};

use crate::compaction::EntrySink;
use crate::cursor::{ComponentCursor, InternalCursor, MergingCursor};
use crate::external_tree::{ExternalTree, ExternalWrite, SpillingTree};
use crate::file_name::FileName;
use crate::memtable::Visibility;
use crate::options::StoreOptions;
use crate::store::jobs::environment::TableEnvironment;
use crate::store::jobs::spill::{install_spilled, write_spill};
use crate::store::jobs::table_output::TableOutput;
use crate::store::read::snapshots::Snapshots;
use crate::store::tree::{Tree, TreeState};
use crate::version::TableMeta;

/// Parts of the sequence numbers that a first cut is one of.
const CUT_STEPS: usize = 1024;

/// The oldest writes of a tree above a position, as many as fit into memory.
struct OldestWrites {
    writes: BTreeMap<(SequenceNumber, Vec<u8>), (Trailer, Vec<u8>)>,
    bytes: usize,
    /// Maximum bytes of keys and values.
    limit: usize,
    /// True once a write did not fit.
    is_truncated: bool,
}

impl OldestWrites {
    fn new(limit: usize) -> Self {
        Self { writes: BTreeMap::new(), bytes: 0, limit, is_truncated: false }
    }

    fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) {
        let position = (trailer.sequence(), key.to_vec());
        if self.is_truncated && self.writes.last_key_value().is_some_and(|(last, _)| *last < position) {
            return;
        }
        // After a crash between a spill and the next checkpoint, memtable and sstable both have a write.
        if self.writes.insert(position, (trailer, value.to_vec())).is_none() {
            self.bytes += key.len() + value.len();
        }
        while self.bytes > self.limit && self.writes.len() > 1 {
            let Some(((_, key), (_, value))) = self.writes.pop_last() else { break };
            self.bytes -= key.len() + value.len();
            self.is_truncated = true;
        }
    }
}

/// Applies the writes of the tree in memtables and sstables, above sequence number `above` and through `through`,
/// to the external tree in the order of the log. Returns the bytes of their keys and values. Memory is limited by
/// [`hand_over_bytes`](crate::StoreOptions::hand_over_bytes).
pub(super) fn hand_over(
    options: &StoreOptions,
    snapshots: &Snapshots,
    state: &TreeState,
    external_tree: &dyn ExternalTree,
    above: SequenceNumber,
    through: SequenceNumber,
) -> Result<u64> {
    let limit = options.hand_over_bytes;
    let mut bytes = 0;
    let oldest_in_use = || snapshots.oldest();
    let mut done: Option<(SequenceNumber, Vec<u8>)> = None;
    loop {
        let mut oldest = OldestWrites::new(limit);
        let mut cursor = MergingCursor::new(state.sources_above(above));
        cursor.seek_to_first()?;
        while cursor.valid() {
            let (key, trailer) = (cursor.key(), cursor.trailer());
            let position = (trailer.sequence(), key);
            let is_within = above < position.0 && position.0 <= through;
            if is_within && done.as_ref().is_none_or(|(sequence, key)| position > (*sequence, key)) {
                oldest.add(key, trailer, cursor.value());
            }
            cursor.next()?;
        }
        bytes += oldest.bytes as u64;
        for ((_, key), (trailer, value)) in &oldest.writes {
            external_tree.reserve(1, key.len() + value.len())?;
            external_tree.apply(ExternalWrite { key, trailer: *trailer, value }, &oldest_in_use)?;
        }
        if !oldest.is_truncated {
            return Ok(bytes);
        }
        done = oldest.writes.pop_last().map(|(position, _)| position);
    }
}

/// Raises the cut of `external_tree`, which is about to be set, if it has no room for all writes of `tree` through `through`, a
/// published number. Returns the number above which writes are to be transferred. No compaction of the tree runs meanwhile.
pub(super) fn leave_oldest(
    env: &TableEnvironment<'_>,
    tree: &Arc<Tree>,
    external_tree: &dyn ExternalTree,
    through: SequenceNumber,
) -> Result<SequenceNumber> {
    let contained = external_tree.contains_through();
    let Some(spilling) = external_tree.spilling() else { return Ok(contained) };
    // It writes no sstable. What does not fit is refused by the memory budget.
    if env.merge.options.read_only || through <= contained {
        return Ok(contained);
    }
    let (state, before) = (tree.state(), spilling.spilled_through());
    let Some(cut) = first_cut(&state, spilling, contained, through)?.filter(|cut| *cut > before) else {
        return Ok(contained);
    };
    let in_memory =
        if contained > before { write_spill(env, tree, spilling, contained)? } else { Vec::new() };
    let in_memtables = write_memtables(env, tree, &state, (contained, cut)).inspect_err(|_| {
        in_memory.iter().for_each(|table| env.merge.files.discard(FileName::Table(table.number)));
    })?;
    install_spilled(env, tree, [in_memory, in_memtables])?;
    spilling.finish_spill(cut)?;
    Ok(cut)
}

/// The smallest cut at or above `contained` above which all writes through `through` fit into half of the memory; `None` if all of them
/// fit beside what is there.
fn first_cut(
    state: &TreeState,
    spilling: &dyn SpillingTree,
    contained: SequenceNumber,
    through: SequenceNumber,
) -> Result<Option<SequenceNumber>> {
    let memory = spilling.memory();
    let room = memory.limit_bytes.saturating_sub(memory.used_bytes);
    let memtables: usize = state.memtables().map(|logged| logged.memtable.memory_bytes()).sum();
    let has_tables = state.version.tables().any(|table| table.meta().largest_sequence > contained);
    if !has_tables && memtables as u64 <= room / 4 {
        return Ok(None);
    }
    let span = through - contained;
    // Numbers of writes, and bytes of keys and values.
    let mut steps = vec![(0_u64, 0_u64); CUT_STEPS];
    let mut cursor = MergingCursor::new(state.sources_above(contained));
    cursor.seek_to_first()?;
    while cursor.valid() {
        let sequence = cursor.trailer().sequence();
        if contained < sequence && sequence <= through {
            let step = u128::from(sequence - contained - 1) * CUT_STEPS as u128 / u128::from(span);
            if let Some((writes, bytes)) = steps.get_mut(step as usize) {
                *writes += 1;
                *bytes += (cursor.key().len() + cursor.value().len()) as u64;
            }
        }
        cursor.next()?;
    }
    let expected = |&(writes, bytes): &(u64, u64)| spilling.expected_bytes(writes, bytes);
    if steps.iter().map(expected).fold(0, u64::saturating_add) <= room {
        return Ok(None);
    }
    let mut above = 0_u64;
    for (step, writes) in steps.iter().enumerate().rev() {
        above = above.saturating_add(expected(writes));
        if above > memory.limit_bytes / 2 {
            let numbers = (u128::from(span) * (step as u128 + 1)).div_ceil(CUT_STEPS as u128);
            return Ok(Some(through.min(contained + numbers as u64)));
        }
    }
    // What is there has to move.
    Ok(Some(contained))
}

/// Writes the entries in memtables above the first and at or below the second of `bounds` to sstables.
fn write_memtables(
    env: &TableEnvironment<'_>,
    tree: &Tree,
    state: &TreeState,
    (above, cut): (SequenceNumber, SequenceNumber),
) -> Result<Vec<TableMeta>> {
    let memtables = state.memtables().filter(|logged| !logged.memtable.is_empty());
    let sources = memtables.map(|logged| ComponentCursor::from(logged.memtable.cursor(Visibility::All)));
    let mut cursor = MergingCursor::new(sources.collect());
    let mut output = TableOutput::new(env.merge.files, env.merge.options, tree, u64::MAX, 0);
    let mut last: (Vec<u8>, SequenceNumber) = (Vec::new(), 0);
    cursor.seek_to_first()?;
    while cursor.valid() {
        let (key, trailer) = (cursor.key(), cursor.trailer());
        let sequence = trailer.sequence();
        // Retained entries may be in two memtables.
        let is_new = last.1 != sequence || last.0 != key;
        if above < sequence && sequence <= cut && is_new {
            output.add(key, trailer, cursor.value())?;
            last.0.clear();
            last.0.extend_from_slice(key);
            last.1 = sequence;
        }
        cursor.next()?;
    }
    output.finish().map(|finished| finished.tables)
}

#[cfg(test)]
mod tests {
    use bolide_base::EntryKind;

    use super::*;

    #[test]
    fn a_write_that_two_sources_have_is_counted_once() {
        let mut oldest = OldestWrites::new(20);
        for sequence in [1, 1, 1, 2, 2] {
            oldest.add(b"key", Trailer::new(sequence, EntryKind::Put), b"value");
        }
        assert_eq!((oldest.bytes, oldest.is_truncated), (16, false));
    }
}
