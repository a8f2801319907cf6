//! The state that results from the readable edits of a manifest, however well they fit together.
//!
//! Unlike in the catalogue of an open store, an edit that does not fit is no error: it is counted and applied in part.

use std::collections::{BTreeMap, BTreeSet};

use bolide_base::{SequenceNumber, TreeId};

use crate::range_tombstones::RangeTombstone;
use crate::version::{EditOperation, RetainedLog, TableMeta, VersionEdit, WalSegment};

/// The known facts about a tree.
#[derive(Debug, Default)]
pub(super) struct SalvagedTreeState {
    /// The encoded settings; `None` if unknown.
    pub(super) options: Option<Vec<u8>>,
    /// The descriptor; `None` if unknown.
    pub(super) descriptor: Option<Vec<u8>>,
    /// The writes in segments below this number are all in sstables.
    pub(super) log_floor: u64,
    /// The log position of the entries that the last flush retained.
    pub(super) retained: Option<RetainedLog>,
    pub(super) tables: BTreeMap<u64, TableMeta>,
    pub(super) tombstones: BTreeSet<RangeTombstone>,
}

/// The known facts about a database.
#[derive(Debug, Default)]
pub(super) struct SalvagedState {
    pub(super) trees: BTreeMap<TreeId, SalvagedTreeState>,
    /// Trees that were certainly dropped.
    pub(super) dropped: BTreeSet<TreeId>,
    pub(super) wal_floor: u64,
    pub(super) segments: BTreeMap<u64, WalSegment>,
    /// The segments with a cut tail.
    cut_tails: BTreeSet<u64>,
    pub(super) last_sequence: SequenceNumber,
    /// All sstables that an edit added or removed.
    pub(super) mentioned: BTreeSet<u64>,
}

impl SalvagedState {
    /// Applies an edit. Returns how many of its operations did not fit.
    pub(super) fn apply(&mut self, edit: &VersionEdit) -> u64 {
        let mut misfits = 0;
        // As in the catalogue, removals come first: a file that moves is removed and added in one edit.
        for operation in edit.operations() {
            if let EditOperation::RemoveTable { tree, number } = operation {
                self.mentioned.insert(*number);
                let removed = self.trees.get_mut(tree).and_then(|tree| tree.tables.remove(number));
                misfits += u64::from(removed.is_none());
            }
        }
        for operation in edit.operations() {
            misfits += u64::from(self.apply_operation(operation).is_none());
        }
        let (floor, cut_tails) = (self.wal_floor, &self.cut_tails);
        self.segments.retain(|number, segment| {
            *number >= floor && (!segment.is_empty() || cut_tails.contains(number))
        });
        misfits
    }

    /// Applies an operation that does not remove an sstable; `None` if it does not fit.
    fn apply_operation(&mut self, operation: &EditOperation) -> Option<()> {
        match operation {
            EditOperation::LastSequence(sequence) => {
                self.last_sequence = self.last_sequence.max(*sequence);
            }
            EditOperation::WalFloor(number) => {
                self.wal_floor = self.wal_floor.max(*number);
            }
            EditOperation::NoteCutTail(tail) => {
                self.cut_tails.insert(tail.segment);
            }
            EditOperation::ForgetCutTail(number) => {
                self.cut_tails.remove(number);
            }
            EditOperation::StartWal { number, tag } => {
                self.segments.insert(*number, WalSegment { tag: *tag, end: None });
            }
            EditOperation::SealWal { number, len } => match self.segments.get_mut(number) {
                Some(segment) => segment.end = Some(*len),
                None if *number < self.wal_floor => {}
                None => return None,
            },
            EditOperation::CreateTree { tree, options, descriptor } => {
                let entry = self.tree(*tree)?;
                entry.options = Some(options.clone());
                entry.descriptor = Some(descriptor.clone());
            }
            EditOperation::DropTree { tree } => {
                self.dropped.insert(*tree);
                self.trees.remove(tree)?;
            }
            EditOperation::SetDescriptor { tree, descriptor } => {
                self.tree(*tree)?.descriptor = Some(descriptor.clone());
            }
            EditOperation::SetOptions { tree, options } => {
                self.tree(*tree)?.options = Some(options.clone());
            }
            EditOperation::TreeLogFloor { tree, number } => {
                let entry = self.tree(*tree)?;
                entry.log_floor = entry.log_floor.max(*number);
                entry.retained = entry.retained.filter(|retained| retained.segment >= entry.log_floor);
            }
            EditOperation::AddTable { tree, meta, .. } => {
                self.mentioned.insert(meta.number);
                self.last_sequence = self.last_sequence.max(meta.largest_sequence);
                self.tree(*tree)?.tables.insert(meta.number, meta.clone());
            }
            EditOperation::AddRangeTombstone { tree, tombstone } => {
                self.last_sequence = self.last_sequence.max(tombstone.sequence);
                self.tree(*tree)?.tombstones.insert(tombstone.clone());
            }
            EditOperation::RemoveRangeTombstone { tree, tombstone } => {
                self.tree(*tree)?.tombstones.remove(tombstone).then_some(())?;
            }
            EditOperation::SetRetained { tree, retained } => self.tree(*tree)?.retained = *retained,
            // Not needed: numbers, boundaries, and derived files.
            _ => {}
        }
        Some(())
    }

    /// The tree, created if the edit that created it is lost; `None` if it was dropped.
    fn tree(&mut self, tree: TreeId) -> Option<&mut SalvagedTreeState> {
        if self.dropped.contains(&tree) { None } else { Some(self.trees.entry(tree).or_default()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::{CutTail, WriterEnd};

    fn meta(number: u64) -> TableMeta {
        TableMeta {
            number,
            tag: number,
            file_bytes: 1000,
            smallest_key: b"a".to_vec(),
            largest_key: b"b".to_vec(),
            smallest_sequence: 1,
            largest_sequence: number,
            entries: 3,
            tombstones: 0,
            filtered_through: 0,
            attachment: Vec::new(),
        }
    }

    #[test]
    fn ended_segments_without_a_record_are_dropped_unless_they_have_a_cut_tail() {
        let mut state = SalvagedState::default();
        let mut edit = VersionEdit::new();
        for number in [6, 7, 8] {
            edit.start_wal(number, 1);
        }
        edit.seal_wal(6, 64);
        edit.seal_wal(7, 64);
        edit.seal_wal(8, 65);
        edit.note_cut_tail(CutTail { segment: 7, start: 64, end: 70, ended_by: WriterEnd::Process });
        assert_eq!(state.apply(&edit), 0);
        assert_eq!(state.segments.keys().copied().collect::<Vec<_>>(), [7, 8]);
        let mut edit = VersionEdit::new();
        edit.forget_cut_tail(7);
        assert_eq!(state.apply(&edit), 0);
        assert_eq!(state.segments.keys().copied().collect::<Vec<_>>(), [8]);
    }

    #[test]
    fn edits_that_do_not_fit_are_counted_and_applied_in_part() {
        let mut state = SalvagedState::default();
        let mut edit = VersionEdit::new();
        edit.create_tree(1, vec![1], vec![2]);
        edit.add_tables(1, 0, 1, vec![meta(5)]);
        edit.start_wal(6, 66);
        assert_eq!(state.apply(&edit), 0);
        // A move: removed and added at once.
        let mut edit = VersionEdit::new();
        edit.add_tables(1, 1, 1, vec![meta(5)]);
        edit.remove_table(1, 5);
        assert_eq!(state.apply(&edit), 0);
        assert_eq!(state.trees[&1].tables.len(), 1);
        // The tree and the sstable of this edit are unknown.
        let mut edit = VersionEdit::new();
        edit.remove_table(2, 7);
        edit.add_tables(2, 0, 1, vec![meta(8)]);
        edit.seal_wal(9, 100);
        assert_eq!(state.apply(&edit), 2);
        assert!(state.trees[&2].descriptor.is_none());
        assert_eq!(state.trees[&2].tables.len(), 1);
        assert_eq!(state.mentioned, BTreeSet::from([5, 7, 8]));
        let mut edit = VersionEdit::new();
        edit.drop_tree(1);
        edit.set_descriptor(1, vec![3]);
        edit.set_wal_floor(7);
        assert_eq!(state.apply(&edit), 1);
        assert!(state.segments.is_empty() && state.dropped.contains(&1));
        assert_eq!(state.last_sequence, 8);
    }
}
