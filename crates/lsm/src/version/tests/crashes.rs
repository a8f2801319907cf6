//! Random histories under power cuts and failing calls.

use super::*;

/// Makes random edits that fit the state.
struct History {
    rng: SimRng,
    steps: u64,
}

impl History {
    fn new(seed: u64) -> Self {
        Self { rng: SimRng::new(seed), steps: 0 }
    }

    fn next_edit(&mut self, vfs: &SimVfs, set: &mut VersionSet) -> Result<VersionEdit> {
        self.steps += 1;
        let mut edit = VersionEdit::new();
        edit.set_last_sequence(1_000 + self.steps);
        let trees = set.trees();
        let tree = self.rng.pick(&trees).map(|tree| tree.id);
        match (tree, self.rng.below(11)) {
            (None, _) | (_, 0) => {
                let descriptor = vec![7; self.rng.below(20) as usize];
                edit.create_tree(set.next_tree_id(), vec![1, 2], descriptor);
            }
            (Some(tree), 1) if trees.len() > 2 => edit.drop_tree(tree),
            (Some(tree), 2) => edit.set_descriptor(tree, self.steps.to_le_bytes().to_vec()),
            (Some(tree), 3) => self.compact(vfs, set, tree, &mut edit)?,
            (Some(tree), 4) => {
                let last =
                    set.wal_segments().iter().next_back().map(|(&number, segment)| (number, segment.end));
                match last {
                    Some((number, None)) => {
                        let start = 64 + self.rng.below(1_000);
                        edit.seal_wal(number, start);
                        let (end, ended_by) = (start + 1, WriterEnd::Machine);
                        edit.note_cut_tail(CutTail { segment: number, start, end, ended_by });
                    }
                    Some((number, _)) if self.rng.one_in(2) => {
                        edit.set_wal_floor(number + 1);
                        edit.set_tree_log_floor(tree, number + 1);
                        edit.forget_cut_tail(number);
                    }
                    _ => edit.start_wal(set.new_file_number(), self.rng.next_u64()),
                }
            }
            (Some(tree), 5) => self.range_tombstones(set, tree, &mut edit),
            (Some(tree), 6) => {
                let segment = self.steps + self.rng.below(3);
                edit.set_retained(tree, Some(RetainedLog { segment, start: 64, end: 65 + self.steps }));
            }
            (Some(tree), 7) => {
                // No sstable of these histories lies behind `m`.
                let key = format!("n{}", self.steps).into_bytes();
                match set.current(tree).unwrap().boundaries(5).first().filter(|_| self.rng.one_in(2)) {
                    Some(old) => edit.remove_boundaries(tree, 5, [old]),
                    None => edit.add_boundary(tree, 5, key),
                }
            }
            (Some(tree), _) => {
                let number = set.new_file_number();
                write_table(vfs, number)?;
                edit.add_tables(tree, 0, number, vec![meta(number, "a", "m")]);
            }
        }
        Ok(edit)
    }

    fn compact(
        &mut self,
        vfs: &SimVfs,
        set: &mut VersionSet,
        tree: TreeId,
        edit: &mut VersionEdit,
    ) -> Result<()> {
        let version = set.current(tree).unwrap();
        let level = 1 + self.rng.below(6) as usize;
        if let [only] = version.level(0)
            && version.level(level).is_empty()
        {
            // A move: the same file in another level.
            let meta = only.tables()[0].meta().clone();
            edit.remove_table(tree, meta.number);
            edit.add_tables(tree, level, 0, vec![meta]);
            return Ok(());
        }
        for table in version.tables() {
            edit.remove_table(tree, table.meta().number);
        }
        let mut outputs = Vec::new();
        for (smallest, largest) in [("a", "c"), ("d", "m")] {
            let number = set.new_file_number();
            write_table(vfs, number)?;
            outputs.push(meta(number, smallest, largest));
        }
        edit.add_tables(tree, level, 0, outputs);
        Ok(())
    }

    fn range_tombstones(&mut self, set: &VersionSet, tree: TreeId, edit: &mut VersionEdit) {
        let version = set.current(tree).unwrap();
        if let Some(old) = version.range_tombstones().iter().next()
            && self.rng.one_in(2)
        {
            edit.remove_range_tombstone(tree, old.clone());
        }
        let start = self.rng.below(9) as u8;
        let tombstone = RangeTombstone { start: vec![start], end: vec![start + 1], sequence: self.steps };
        edit.add_range_tombstone(tree, tombstone);
    }
}

/// Runs a history until it ends or a call fails. The result holds the states that a reopened set may
/// have: the last acknowledged one and, after a failure, that of the edit in flight.
fn run(vfs: &SimVfs, seed: u64, steps: usize) -> (Vec<String>, bool) {
    let empty = "floor 0 segments {} tails {} next tree 1\n".to_owned();
    let Ok(mut set) = open(vfs, OpenMode::CreateIfMissing) else { return (vec![empty], false) };
    let mut history = History::new(seed);
    let mut acknowledged = state_of(&set);
    for _ in 0..steps {
        let Ok(edit) = history.next_edit(vfs, &mut set) else { return (vec![acknowledged], false) };
        let in_flight = state_after(&set, &edit);
        match set.apply(edit) {
            Ok(_) => acknowledged = state_of(&set),
            Err(_) => return (vec![acknowledged, in_flight], false),
        }
        assert_eq!(acknowledged, in_flight, "seed {seed}");
        for name in set.table_files().obsolete.take() {
            let _ = vfs.remove(&name.path(dir()));
        }
    }
    (vec![acknowledged], true)
}

/// The state that results from `edit`, determined by a set on a copy of the disk.
fn state_after(set: &VersionSet, edit: &VersionEdit) -> String {
    let vfs = new_disk(0);
    for number in set.live_tables() {
        write_table(&vfs, number).unwrap();
    }
    for operation in edit.operations() {
        if let EditOperation::AddTable { meta, .. } = operation
            && !vfs.exists(&FileName::Table(meta.number).path(dir())).unwrap()
        {
            write_table(&vfs, meta.number).unwrap();
        }
    }
    set.copy().write(&vfs, dir(), &BTreeMap::new()).unwrap();
    let mut copy = open(&vfs, OpenMode::Existing).unwrap();
    copy.apply(edit.clone()).unwrap();
    state_of(&copy)
}

fn check_reopened(vfs: &SimVfs, allowed: &[String], context: &str) {
    match open(vfs, OpenMode::CreateIfMissing) {
        Ok(set) => assert!(allowed.contains(&state_of(&set)), "{context}: {}", state_of(&set)),
        Err(error) => panic!("{context}: {error}"),
    }
}

#[test]
fn a_crash_at_any_sync_point_loses_nothing_acknowledged() {
    for seed in 0..3 {
        for syncs in 0.. {
            let vfs = new_disk(seed);
            vfs.power_off_after_syncs(syncs);
            let (allowed, completed) = run(&vfs, seed, 28);
            for mode in CrashMode::EACH {
                let context = format!("seed {seed}, power off after {syncs} syncs, {mode:?}");
                let after = vfs.crash(mode);
                // Another crash during recovery, at each of its own sync points.
                for again in 0..12 {
                    let second = after.clone_disk();
                    second.power_off_after_syncs(again);
                    if open(&second, OpenMode::CreateIfMissing).is_ok() && !second.is_off() {
                        break;
                    }
                    check_reopened(&second.crash(mode), &allowed, &format!("{context}, then {again}"));
                }
                check_reopened(&after, &allowed, &context);
            }
            if completed {
                assert!(syncs > 30);
                break;
            }
        }
    }
}

#[test]
fn a_failed_call_is_an_error_and_never_a_wrong_state() {
    for fault in Fault::EACH {
        for sticky in [false, true] {
            for nth in 1.. {
                let vfs = new_disk(nth);
                vfs.set_fault(Some(FaultPlan { fault, at: nth, sticky }));
                let (allowed, completed) = run(&vfs, 5, 12);
                vfs.set_fault(None);
                let context = format!("{fault:?} at call {nth}, sticky {sticky}");
                check_reopened(&vfs, &allowed, &context);
                if completed && vfs.counters().faults == 0 {
                    let cannot_hit = [Fault::ShortRead, Fault::MappedAccess];
                    assert!(nth > 1 || cannot_hit.contains(&fault), "{context}");
                    break;
                }
            }
        }
    }
}

#[test]
fn a_failed_write_poisons_the_set_but_a_full_disk_does_not() {
    for (fault, kind) in [(Fault::LostSync, ErrorKind::Poisoned), (Fault::ShortAppend, ErrorKind::Poisoned)] {
        let vfs = new_disk(1);
        let mut set = open(&vfs, OpenMode::CreateIfMissing).unwrap();
        vfs.set_fault(Some(FaultPlan { fault, at: 1, sticky: false }));
        assert!(set.apply(VersionEdit::new()).is_err());
        assert!(set.is_poisoned());
        assert_eq!(set.apply(VersionEdit::new()).unwrap_err().kind(), kind);
        assert_eq!(set.close(None).unwrap_err().kind(), kind);
    }
    let vfs = new_disk(1);
    let mut set = open(&vfs, OpenMode::CreateIfMissing).unwrap();
    vfs.set_fault(Some(FaultPlan { fault: Fault::NoSpace, at: 1, sticky: false }));
    assert_eq!(set.apply(VersionEdit::new()).unwrap_err().kind(), ErrorKind::NoSpace);
    set.apply(VersionEdit::new()).unwrap();
}

#[test]
fn a_long_manifest_is_replaced_unless_the_disk_is_full() {
    let vfs = new_disk(3);
    let mut set = open(&vfs, OpenMode::CreateIfMissing).unwrap();
    let mut edit = VersionEdit::new();
    edit.create_tree(1, vec![], vec![]);
    set.apply(edit).unwrap();
    let mut manifests = BTreeSet::new();
    for step in 0..60_u64 {
        let mut edit = VersionEdit::new();
        edit.set_descriptor(1, vec![step as u8; 40]);
        // The second call of an apply that a full disk can hit is the first of a new manifest.
        let full = step > 40;
        vfs.set_fault(full.then_some(FaultPlan { fault: Fault::NoSpace, at: 2, sticky: true }));
        set.apply(edit).unwrap();
        manifests.insert(set.manifest_number());
        assert!(set.manifest_bytes() < if full { 10_000 } else { 2 * MANIFEST_BYTES });
    }
    vfs.set_fault(None);
    assert!(manifests.len() > 3, "{manifests:?}");
    assert_eq!(metadata_files(&vfs).len(), 2);
    let expected = state_of(&set);
    assert_eq!(state_of(&open(&vfs.crash(CrashMode::None), OpenMode::ReadOnly).unwrap()), expected);
    set.apply(VersionEdit::new()).unwrap();
}
