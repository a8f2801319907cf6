//! Edits: round trips and rejected input.

use super::super::table_meta::tests::meta;
use super::super::wal_segment::WriterEnd;
use super::*;

fn everything() -> VersionEdit {
    let tombstone = || RangeTombstone { start: b"a".to_vec(), end: b"b".to_vec(), sequence: MAX_SEQUENCE };
    let mut edit = VersionEdit::new();
    edit.create_tree(1, vec![1, 2, 3], b"descriptor".to_vec());
    edit.set_external_root(1, ExternalRoot { files: vec![3, 9], root: b"root".to_vec() });
    edit.set_external_root(1, ExternalRoot::default());
    edit.push(EditOperation::NextFileNumber(u64::MAX));
    edit.push(EditOperation::NextTreeId(u32::MAX));
    edit.set_last_sequence(MAX_SEQUENCE);
    edit.set_wal_floor(5);
    edit.seal_wal(4, 1 << 40);
    edit.start_wal(5, u64::MAX);
    for ended_by in [WriterEnd::Process, WriterEnd::Machine] {
        edit.note_cut_tail(CutTail { segment: 4, start: 64, end: 1 << 40, ended_by });
    }
    edit.forget_cut_tail(4);
    edit.drop_tree(0);
    edit.set_descriptor(1, vec![]);
    edit.push(EditOperation::SetOptions { tree: 1, options: vec![9; 300] });
    edit.set_tree_log_floor(1, 300);
    edit.add_tables(1, 6, 0, vec![meta(7, "apple", "pear"), meta(8, "plum", "quince")]);
    edit.remove_table(1, 99);
    edit.note_written(1, 1 << 50);
    edit.add_range_tombstone(1, tombstone());
    edit.remove_range_tombstone(1, tombstone());
    edit.add_boundary(1, 6, b"m".to_vec());
    edit.remove_boundaries(1, 6, [&b"m".to_vec()]);
    edit.set_retained(1, Some(RetainedLog { segment: 9, start: 64, end: 300 }));
    edit.set_retained(1, None);
    let view = ViewMeta { number: 12, tag: 77, file_bytes: 300, serves_reads: true, tables: [7, 8].into() };
    edit.push(EditOperation::AddView { tree: 1, view });
    edit.push(EditOperation::RemoveView { tree: 1, number: 11 });
    edit
}

#[test]
fn all_operations_round_trip_and_a_cut_edit_is_another_or_none() {
    let edit = everything();
    let bytes = edit.encode();
    assert_eq!(VersionEdit::decode(&bytes), Some(edit.clone()));
    for cut in 0..bytes.len() {
        let part = VersionEdit::decode(&bytes[..cut]);
        assert!(part.is_none_or(|part| edit.operations.starts_with(&part.operations)));
    }
}

#[test]
fn no_flipped_bit_makes_the_decoder_panic() {
    let bytes = everything().encode();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        if let Some(edit) = VersionEdit::decode(&damaged) {
            assert_eq!(VersionEdit::decode(&edit.encode()), Some(edit));
        }
    }
}

#[test]
fn values_out_of_range_are_refused() {
    for bytes in [
        &[0][..],
        &[15],
        &[11, 1, 7, 1],
        &[13, 1, 1, 1, b'b', 1, b'a'],
        &[13, 1, 1, 1, b'a', 1, b'a'],
        &[7, 0xff, 0xff, 0xff, 0xff, 0x7f],
        &[3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        &[8, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 1],
        &[18, 1, 7, 1, b'a'],
        &[20, 1, 9, 5, 5],
        &[20, 1, 0, 5, 6],
    ] {
        assert_eq!(VersionEdit::decode(bytes), None, "{bytes:?}");
    }
}

#[test]
fn empty_ranges_are_left_out() {
    let mut edit = VersionEdit::new();
    edit.add_range_tombstone(1, RangeTombstone { start: vec![2], end: vec![1], sequence: 1 });
    assert!(edit.is_empty());
}
