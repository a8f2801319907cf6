//! The effects of edits, in memory and on disk.

use super::*;

#[test]
fn file_numbers_are_never_allocated_twice() {
    let (vfs, _, _) = small_database(false);
    vfs.create(&FileName::Table(500).path(dir())).unwrap();
    let id = open(&vfs, OpenMode::ReadOnly).unwrap().database_id();
    let mut set = open(&vfs, OpenMode::Existing).unwrap();
    assert!(set.new_file_number() > 500);
    assert_eq!((set.next_tree_id(), set.database_id()), (3, id));
    let mut edit = VersionEdit::new();
    edit.drop_tree(2);
    set.apply(edit).unwrap();
    drop(set);
    let mut set = open(&vfs, OpenMode::Existing).unwrap();
    assert_eq!(set.next_tree_id(), 3);
    assert!(set.new_file_number() > 501);
}

#[test]
fn an_edit_that_does_not_fit_changes_nothing() {
    let (vfs, _, after) = small_database(false);
    let mut set = open(&vfs, OpenMode::Existing).unwrap();
    let overlapping = set.trees()[0].version.tables().next().unwrap().meta().clone();
    let edits: [&dyn Fn(&mut VersionEdit); 11] = [
        &|edit| edit.drop_tree(9),
        &|edit| edit.create_tree(1, vec![], vec![]),
        &|edit| edit.remove_table(1, 999),
        &|edit| edit.add_tables(1, 0, 50, vec![overlapping.clone()]),
        &|edit| edit.add_tables(1, 3, 0, vec![meta(90, "a", "c"), meta(91, "c", "d")]),
        &|edit| {
            edit.add_tables(1, 3, 0, vec![meta(90, "a", "c")]);
            edit.add_boundary(1, 3, b"b".to_vec());
        },
        &|edit| {
            edit.add_boundary(1, 3, b"b".to_vec());
            edit.add_boundary(1, 3, b"b".to_vec());
        },
        &|edit| edit.remove_boundaries(1, 3, [&b"b".to_vec()]),
        &|edit| edit.add_boundary(1, LEVELS, b"b".to_vec()),
        &|edit| edit.add_tables(1, LEVELS, 0, vec![meta(90, "a", "c")]),
        &|edit| {
            let tombstone = RangeTombstone { start: b"x".to_vec(), end: b"y".to_vec(), sequence: 1 };
            edit.remove_range_tombstone(1, tombstone);
        },
    ];
    for (position, change) in edits.iter().enumerate() {
        let mut edit = VersionEdit::new();
        edit.set_wal_floor(77);
        change(&mut edit);
        assert_eq!(set.apply(edit).unwrap_err().kind(), ErrorKind::Internal, "edit {position}");
        assert_eq!(state_of(&set), after);
    }
    let mut edit = VersionEdit::new();
    edit.set_descriptor(1, vec![0; (1 << 20) + 1]);
    assert_eq!(set.apply(edit).unwrap_err().kind(), ErrorKind::LimitExceeded);
    assert!(!set.is_poisoned());
}

#[test]
fn a_level_consists_of_partitions_and_of_runs() {
    let (vfs, ..) = small_database(false);
    let mut set = open(&vfs, OpenMode::Existing).unwrap();
    let mut edit = VersionEdit::new();
    edit.add_boundary(2, 6, b"h".to_vec());
    edit.add_boundary(2, 6, b"q".to_vec());
    edit.add_tables(2, 6, 0, vec![meta(90, "a", "c"), meta(91, "h", "p"), meta(92, "q", "z")]);
    edit.add_tables(2, 6, 1, vec![meta(94, "b", "g"), meta(95, "i", "k")]);
    set.apply(edit).unwrap();
    drop(set);
    for number in [90, 91, 92, 94, 95] {
        write_table(&vfs, number).unwrap();
    }
    let set = open(&vfs, OpenMode::Existing).unwrap();
    let version = set.current(2).unwrap();
    version.check().unwrap();
    let partitions = version.partitions(6);
    let numbers = |partition: &Partition<'_>| -> Vec<_> {
        partition.tables().iter().map(|(run, table)| (*run, table.meta().number)).collect()
    };
    let all: Vec<_> = partitions.iter().map(numbers).collect();
    assert_eq!(all, [vec![(1, 94), (0, 90)], vec![(1, 95), (0, 91)], vec![(0, 92)]]);
    assert_eq!(partitions[1].start().zip(partitions[1].end()), Some((&b"h"[..], &b"q"[..])));
    assert_eq!((partitions[0].start(), partitions[2].end()), (None, None));
    assert_eq!(partitions.iter().map(Partition::runs).collect::<Vec<_>>(), [2, 2, 1]);
    // The metas of these tests have numbers from their own to five more.
    assert!(!partitions[0].is_strictly_divided() && !partitions[1].is_strictly_divided());
    assert!(partitions[2].is_strictly_divided());
    let over = |smallest, largest| version.height_over(6, &meta(99, smallest, largest), &BTreeSet::new());
    assert_eq!(
        [over("d", "f"), over("m", "o"), over("d", "d"), over("x", "y"), over("c", "m")],
        [2, 1, 2, 1, 2]
    );
    assert_eq!(version.height_over(6, &meta(99, "b", "c"), &BTreeSet::from([94])), 1);
    assert_eq!(version.height_over(5, &meta(99, "a", "z"), &BTreeSet::new()), 0);
}

#[test]
fn a_retained_log_is_dropped_once_the_log_floor_of_the_tree_is_past_it() {
    let (vfs, ..) = small_database(false);
    let mut set = open(&vfs, OpenMode::Existing).unwrap();
    let log = RetainedLog { segment: 40, start: 64, end: 90 };
    let mut edit = VersionEdit::new();
    edit.set_tree_log_floor(1, 38);
    edit.set_retained(1, Some(log));
    set.apply(edit).unwrap();
    drop(set);
    let mut set = open(&vfs, OpenMode::Existing).unwrap();
    assert_eq!((set.retained(1), set.retained(2)), (Some(log), None));
    for (floor, expected) in [(40, Some(log)), (41, None)] {
        let mut edit = VersionEdit::new();
        edit.set_tree_log_floor(1, floor);
        set.apply(edit).unwrap();
        assert_eq!(set.retained(1), expected);
    }
}

#[test]
fn a_table_is_deleted_with_its_last_reference() {
    let (vfs, _, _) = small_database(false);
    let mut set = open(&vfs, OpenMode::Existing).unwrap();
    let obsolete = Arc::clone(&set.table_files().obsolete);
    let version = set.current(1).unwrap();
    let table = Arc::clone(version.tables().next().unwrap());
    let number = table.meta().number;

    let mut moved = VersionEdit::new();
    moved.remove_table(1, number);
    moved.add_tables(1, 6, 0, vec![table.meta().clone()]);
    set.apply(moved).unwrap();
    assert!(Arc::ptr_eq(&table, set.current(1).unwrap().tables().next().unwrap()));
    drop(version);
    assert!(obsolete.is_empty());

    let mut removed = VersionEdit::new();
    removed.remove_table(1, number);
    set.apply(removed).unwrap();
    assert!(obsolete.is_empty());
    drop(table);
    assert_eq!(obsolete.take(), [FileName::Table(number)]);

    let other = set.current(2).unwrap().tables().next().unwrap().meta().number;
    let mut dropped = VersionEdit::new();
    dropped.drop_tree(2);
    set.apply(dropped).unwrap();
    assert_eq!(obsolete.take(), [FileName::Table(other)]);
    // Files that a closed set still referenced are not deleted.
    drop(set);
    assert!(obsolete.is_empty());
}

#[test]
fn untouched_runs_are_shared_between_versions() {
    let (vfs, _, _) = small_database(false);
    let mut set = open(&vfs, OpenMode::Existing).unwrap();
    let before = set.current(1).unwrap();
    let number = set.new_file_number();
    let mut edit = VersionEdit::new();
    edit.add_tables(1, 0, number, vec![meta(number, "a", "b")]);
    let changed = set.apply(edit).unwrap();
    assert_eq!(changed.len(), 1);
    let after = &changed[0];
    assert_eq!((after.first_level_runs(), after.runs()[0].id()), (2, number));
    assert!(Arc::ptr_eq(&before.runs()[0], &after.runs()[1]));
}

#[test]
fn a_copy_is_a_database_of_its_own() {
    let (vfs, _, after) = small_database(false);
    let mut set = open(&vfs, OpenMode::Existing).unwrap();
    let mut edit = VersionEdit::new();
    edit.start_wal(44, 9);
    let (start, end, ended_by) = (64, 70, WriterEnd::Process);
    edit.note_cut_tail(CutTail { segment: 43, start, end, ended_by });
    set.apply(edit).unwrap();
    let other = new_disk(2);
    let mut copy = set.copy();
    copy.forget_cut_tails();
    for number in copy.tables() {
        write_table(&other, number).unwrap();
    }
    copy.write(&other, dir(), &BTreeMap::from([(44, 640)])).unwrap();
    let copied = open(&other.crash(CrashMode::None), OpenMode::ReadOnly).unwrap();
    assert_eq!(
        state_of(&copied),
        after.replace("segments {}", "segments {44: WalSegment { tag: 9, end: Some(640) }}")
    );
}

#[test]
fn a_close_seals_the_log() {
    let (vfs, _, _) = small_database(false);
    let mut set = open(&vfs, OpenMode::Existing).unwrap();
    let mut edit = VersionEdit::new();
    edit.start_wal(44, 9);
    set.apply(edit).unwrap();
    set.close(Some(LogEnd { number: 44, len: 6400 })).unwrap();
    let after = vfs.crash(CrashMode::None);
    assert_eq!(
        open(&after, OpenMode::ReadOnly).unwrap().wal_segments(),
        &BTreeMap::from([(44, WalSegment { tag: 9, end: Some(6400) })])
    );
}

#[test]
fn only_the_last_segment_may_have_no_end() {
    let (vfs, _, _) = small_database(false);
    let mut set = open(&vfs, OpenMode::Existing).unwrap();
    let mut apply = |change: &dyn Fn(&mut VersionEdit)| {
        let mut edit = VersionEdit::new();
        change(&mut edit);
        set.apply(edit).map(drop)
    };
    apply(&|edit| edit.start_wal(44, 9)).unwrap();
    assert!(apply(&|edit| edit.start_wal(45, 9)).is_err());
    assert!(apply(&|edit| edit.seal_wal(45, 64)).is_err());
    apply(&|edit| {
        edit.seal_wal(44, 64);
        edit.start_wal(45, 9);
    })
    .unwrap();
    assert!(
        apply(&|edit| {
            edit.seal_wal(45, 64);
            edit.start_wal(44, 9);
        })
        .is_err()
    );
}

#[test]
fn a_missing_edit_below_the_marker_is_damage() {
    let (vfs, _, _) = small_database(false);
    let mut set = open(&vfs, OpenMode::Existing).unwrap();
    let manifest = FileName::Manifest(set.manifest_number()).path(dir());
    let before = vfs.contents(&manifest).unwrap().len();
    let mut edit = VersionEdit::new();
    edit.start_wal(44, 9);
    set.apply(edit).unwrap();
    let killed = vfs.clone_disk();
    killed.damage(&manifest, |bytes| bytes.truncate(before)).unwrap();
    let error = open(&killed, OpenMode::ReadOnly).unwrap_err();
    assert!(error.is_corruption() && error.message().contains("MANIFEST"), "{error}");
    // After a power cut that lost the marker, too, the loss is undetectable.
    killed.remove(&FileName::Marker.path(dir())).unwrap();
    open(&killed, OpenMode::ReadOnly).unwrap();
}

#[test]
fn a_range_tombstone_is_spent_when_nothing_older_is_left_in_its_range() {
    let (vfs, _, _) = small_database(false);
    let mut set = open(&vfs, OpenMode::Existing).unwrap();
    let old = set.current(1).unwrap().tables().next().unwrap().meta().clone();
    let tombstone =
        RangeTombstone { start: b"b".to_vec(), end: b"c".to_vec(), sequence: old.largest_sequence + 1 };
    let mut edit = VersionEdit::new();
    edit.add_range_tombstone(1, tombstone.clone());
    set.apply(edit).unwrap();
    let spent = |set: &VersionSet, oldest, flushed| {
        set.current(1).unwrap().spent_range_tombstones(oldest, flushed).contains(&tombstone)
    };
    assert!(!spent(&set, u64::MAX, u64::MAX));
    let number = set.new_file_number();
    let filtered = TableMeta { number, filtered_through: tombstone.sequence, ..old.clone() };
    let mut edit = VersionEdit::new();
    edit.remove_table(1, old.number);
    edit.add_tables(1, 6, 0, vec![filtered]);
    set.apply(edit).unwrap();
    assert!(spent(&set, u64::MAX, u64::MAX));
    assert!(!spent(&set, tombstone.sequence - 1, u64::MAX));
    assert!(!spent(&set, u64::MAX, tombstone.sequence - 1));
}

#[test]
fn a_run_finds_the_one_sstable_that_may_hold_a_key() {
    let mut rng = SimRng::new(11);
    let files = Arc::clone(open(&new_disk(1), OpenMode::CreateIfMissing).unwrap().table_files());
    for round in 0..200 {
        // Few letters and long common prefixes: many equal heads.
        let mut keys = BTreeSet::new();
        let count = 2 + rng.below(40);
        while (keys.len() as u64) < count {
            let len = rng.below(4) as usize;
            let mut key = vec![b'p'; if round % 2 == 0 { 12 } else { 0 }];
            key.extend((0..len).map(|_| b'a' + rng.below(3) as u8));
            key.extend(vec![b'q'; rng.below(2) as usize * 9]);
            key.extend((0..len).map(|_| rng.below(2) as u8));
            keys.insert(key);
        }
        let keys: Vec<_> = keys.into_iter().collect();
        let tables: Vec<_> = keys
            .chunks(2)
            .enumerate()
            .map(|(position, pair)| {
                let (smallest_key, largest_key) = (pair[0].clone(), pair[pair.len() - 1].clone());
                let meta = TableMeta { smallest_key, largest_key, ..meta(position as u64 + 1, "", "") };
                Arc::new(TableHandle::new(meta, Arc::clone(&files)))
            })
            .collect();
        let run = SortedRun::new(1, 0, tables.iter().rev().cloned().collect()).unwrap();
        let mut probes = keys.clone();
        probes.extend(keys.iter().map(|key| [key.as_slice(), b"a"].concat()));
        probes.extend(keys.iter().map(|key| key[..key.len().saturating_sub(1)].to_vec()));
        probes.extend([vec![], b"o".to_vec(), b"q".to_vec(), vec![0xff; 3]]);
        for key in probes {
            let first =
                tables.iter().position(|table| table.meta().largest_key >= key).unwrap_or(tables.len());
            assert_eq!(run.position(&key), first, "round {round}, key {key:?}");
            let holds = |table: &&Arc<TableHandle>| {
                table.meta().smallest_key <= key && key <= table.meta().largest_key
            };
            let expected = tables.iter().find(holds).map(|table| table.meta().number);
            assert_eq!(run.find(&key).map(|table| table.meta().number), expected, "round {round}");
            use std::ops::Bound::{Excluded, Included};
            let after: Vec<_> = tables.iter().filter(|table| table.meta().largest_key >= key).collect();
            assert_eq!(run.overlapping(Included(&key), Excluded(&[0xff; 20])).len(), after.len());
        }
    }
}
