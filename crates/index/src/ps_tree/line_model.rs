//! Power cuts at every fence: with any subset of the memory lines persisted, the tree opens, its invariants hold, and
//! its contents are those of the completed operations, with or without the one in progress.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};

use bolide_base::SequenceNumber;
use bolide_storage::pmem::{CrashOutcome, Region, RegionOptions};

use super::oracle::{Random, Versions};
use super::tests::rows;
use super::{Obsolescence, PsBounds, PsTree, PsTreeOptions, SkeyKind};
use crate::query::Order;
use crate::validation::Verdict;

/// The operations applied to the tree so far.
#[derive(Debug, Clone, Default)]
struct AppliedWrites {
    /// Entries by secondary key and sequence number.
    entries: BTreeMap<(Vec<u8>, SequenceNumber), Vec<u8>>,
    /// Entries of the operation in progress.
    in_progress: BTreeMap<(Vec<u8>, SequenceNumber), Vec<u8>>,
    newest: HashMap<Vec<u8>, SequenceNumber>,
    flagged: HashSet<SequenceNumber>,
}

impl AppliedWrites {
    fn begin(&mut self, skey: &[u8], pkey: &[u8], sequence: SequenceNumber) {
        self.in_progress.insert((skey.to_vec(), sequence), pkey.to_vec());
        let newest = self.newest.entry(pkey.to_vec()).or_default();
        *newest = sequence.max(*newest);
    }

    fn end(&mut self) {
        let in_progress = std::mem::take(&mut self.in_progress);
        self.entries.extend(in_progress);
    }

    /// Verifies the contents of the tree.
    fn verify(&self, tree: &PsTree) {
        let check = tree.check().unwrap();
        assert_eq!(check.problems, Vec::<String>::new());
        let all = PsBounds::Range { low: b"", end: None };
        let mut there = HashSet::new();
        for (skey, pkey, sequence, _) in rows(tree.cursor(all, Order::Value, SequenceNumber::MAX).unwrap()) {
            let place = (skey, sequence);
            let wanted = self.entries.get(&place).or_else(|| self.in_progress.get(&place));
            assert_eq!(wanted, Some(&pkey), "an entry that was never written");
            assert!(there.insert(place), "a duplicate entry");
        }
        for (place, pkey) in &self.entries {
            let replaced = self.newest.get(pkey).is_some_and(|&newest| newest > place.1);
            assert!(there.contains(place) || replaced, "{place:?} is lost");
        }
    }
}

/// A version table with replaced keys, without counts.
struct Replaced(HashMap<Vec<u8>, SequenceNumber>);

impl Obsolescence for Replaced {
    fn verdict(&self, pkey: &[u8], sequence: SequenceNumber, _: SequenceNumber) -> Verdict {
        match self.0.get(pkey) {
            Some(&newest) if newest > sequence => Verdict::Obsolete,
            _ => Verdict::Current,
        }
    }

    fn removed(&self, _: &[u8], _: SequenceNumber, _: bool) {}
}

/// Opens the tree after a power cut, verifies it, and optionally continues with further operations.
fn verify_crash(crash: &CrashOutcome, applied: &AppliedWrites, continues: bool) {
    let tree = PsTree::open(Arc::new(crash.reopen().unwrap())).unwrap();
    applied.verify(&tree);
    if !continues {
        return;
    }
    tree.reclaim().unwrap();
    // The log restores all entries; present ones stay unchanged.
    let replaced = Replaced(applied.newest.clone());
    let mut log: Vec<_> = applied.entries.iter().chain(&applied.in_progress).collect();
    log.sort_by_key(|((_, sequence), _)| *sequence);
    for ((skey, sequence), pkey) in log {
        let writer = tree.region().writer();
        tree.insert(&writer, skey, pkey, *sequence, b"", &replaced, *sequence).unwrap();
    }
    let mut applied = applied.clone();
    applied.end();
    applied.verify(&tree);
    let mut next = applied.entries.keys().map(|(_, sequence)| *sequence).max().unwrap_or(0);
    for index in 0..60_u64 {
        next += 1;
        let (skey, pkey) = (format!("{:02}", index % 7).into_bytes(), index.to_be_bytes());
        applied.begin(&skey, &pkey, next);
        let writer = tree.region().writer();
        tree.insert(&writer, &skey, &pkey, next, b"", &replaced, next).unwrap();
        applied.end();
    }
    applied.verify(&tree);
    tree.reclaim().unwrap();
    applied.verify(&tree);
    replace_all(&tree, &mut applied, next);
    assert_eq!(tree.region().stats().refused_frees, 0);
}

/// All entries and their keys become obsolete and are removed; new keys reuse their space. Remains of an interrupted
/// operation do not restore them.
fn replace_all(tree: &PsTree, applied: &mut AppliedWrites, mut next: SequenceNumber) {
    let pkeys: Vec<Vec<u8>> = applied.newest.keys().cloned().collect();
    let insert = |applied: &mut AppliedWrites, skey: &[u8], pkey: &[u8], sequence| {
        applied.begin(skey, pkey, sequence);
        let replaced = Replaced(applied.newest.clone());
        let writer = tree.region().writer();
        tree.insert(&writer, skey, pkey, sequence, b"", &replaced, sequence).unwrap();
        applied.end();
    };
    for pkey in pkeys {
        next += 1;
        insert(applied, b"the last key of all", &pkey, next);
    }
    let replaced = Replaced(applied.newest.clone());
    // The first round may find pages that the second one joins.
    for round in 0..2 {
        let mut position = Vec::new();
        loop {
            let writer = tree.region().writer();
            tree.sweep(&writer, &mut position, 12, &replaced, next).unwrap();
            if position.is_empty() {
                break;
            }
        }
        if round == 1 && next.is_multiple_of(2) {
            assert!(tree.compact_keys_if(&tree.region().writer(), |_| true).unwrap());
        }
        applied.verify(tree);
    }
    assert_eq!(tree.check().unwrap().keys, 1, "unused keys");
    for index in 0..40_u64 {
        next += 1;
        let skey = match index % 3 {
            0 => format!("{:02}", index % 11),
            1 => format!("{index:03}"),
            _ => format!("a/long/common/prefix/of/keys/{index:03}"),
        };
        insert(applied, skey.as_bytes(), &index.to_be_bytes(), next);
    }
    applied.verify(tree);
}

/// One history on a simulated region, with power cuts at its fences.
struct History {
    tree: PsTree,
    applied: Arc<Mutex<AppliedWrites>>,
    versions: Versions,
    random: Random,
    sequence: SequenceNumber,
    keys: u64,
    position: Vec<u8>,
}

impl History {
    fn skey(&mut self) -> Vec<u8> {
        let number = self.random.below(self.keys);
        let prefix = if self.keys.is_multiple_of(2) { "" } else { "a/long/common/prefix/of/keys/" };
        format!("{prefix}{number:03}").into_bytes()
    }

    fn insert(&mut self) {
        self.sequence += 1 + self.random.below(3);
        let skey = self.skey();
        let mut pkey = self.random.below(40).to_be_bytes().to_vec();
        if self.random.chance(4) {
            pkey.resize(150, b'x');
        }
        self.versions.write(&pkey, self.sequence);
        self.applied.lock().unwrap().begin(&skey, &pkey, self.sequence);
        let writer = self.tree.region().writer();
        self.tree.insert(&writer, &skey, &pkey, self.sequence, b"", &self.versions, self.sequence).unwrap();
        self.applied.lock().unwrap().end();
    }

    /// Inserts an entry that is older than the newest of its key.
    fn insert_late(&mut self) {
        let skey = self.skey();
        let sequence = 1 + self.random.below(self.sequence.max(1));
        if self.applied.lock().unwrap().entries.keys().any(|(_, used)| *used == sequence) {
            return;
        }
        let pkey = self.random.below(40).to_be_bytes();
        self.versions.write(&pkey, sequence);
        self.applied.lock().unwrap().begin(&skey, &pkey, sequence);
        let writer = self.tree.region().writer();
        self.tree.insert(&writer, &skey, &pkey, sequence, b"", &self.versions, 0).unwrap();
        self.applied.lock().unwrap().end();
    }

    fn flag(&mut self) {
        let skey = self.skey();
        let mut cursor = self.tree.cursor(PsBounds::One(&skey), Order::Newest, u64::MAX).unwrap();
        let mut places = Vec::new();
        while let Some(entry) = cursor.next_entry().unwrap() {
            if self.versions.verdict(entry.primary_key, entry.sequence, self.sequence) == Verdict::Obsolete {
                places.push((entry.place, entry.sequence));
            }
        }
        for (place, sequence) in places {
            self.applied.lock().unwrap().flagged.insert(sequence);
            cursor.flag_obsolete(place).unwrap();
        }
    }

    fn sweep(&mut self) {
        let writer = self.tree.region().writer();
        self.tree.sweep(&writer, &mut self.position, 8, &self.versions, self.sequence).unwrap();
    }

    fn compact_keys(&mut self) {
        assert!(self.tree.compact_keys_if(&self.tree.region().writer(), |_| true).unwrap());
    }
}

/// How much of the model is tried: every outcome at every fence takes minutes.
#[derive(Debug, Clone, Copy)]
struct Effort {
    steps: usize,
    /// One of this many fences is tested.
    one_fence_in: u64,
    /// Maximum number of outcomes per fence.
    outcomes: usize,
    /// One of this many outcomes is continued.
    continue_one_in: u64,
}

fn run(skey: SkeyKind, seed: u64, effort: Effort) -> u64 {
    let region = Arc::new(Region::simulated(RegionOptions::new().name("model")).unwrap());
    let tree = PsTree::create(Arc::clone(&region), PsTreeOptions::new().skey(skey).page_bytes(512)).unwrap();
    let applied = Arc::new(Mutex::new(AppliedWrites::default()));
    let verified = Arc::new(Mutex::new((Random(seed ^ 77), 0_u64)));
    let hook = {
        let (region, applied, verified) =
            (Arc::downgrade(&region), Arc::clone(&applied), Arc::clone(&verified));
        move || {
            let mut verified = verified.lock().unwrap();
            if verified.0.below(effort.one_fence_in) != 0 {
                return;
            }
            let Some(region) = region.upgrade() else { return };
            let applied = applied.lock().unwrap().clone();
            let crash_seed = verified.0.next();
            for crash in region.crash_outcomes(crash_seed).take(effort.outcomes) {
                let continues = verified.0.below(effort.continue_one_in) == 0;
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    verify_crash(&crash, &applied, continues);
                }));
                if let Err(panic) = outcome {
                    eprintln!("{skey:?}, seed {seed}, crash seed {crash_seed}: {crash:?}");
                    std::panic::resume_unwind(panic);
                }
                verified.1 += 1;
            }
        }
    };
    region.set_fence_hook(Some(Arc::new(hook)));
    let mut random = Random(seed);
    let keys = [1, 6, 60, 61][random.below(4) as usize];
    let versions = Versions::default();
    let mut history = History { tree, applied, versions, random, sequence: 0, keys, position: Vec::new() };
    for _ in 0..effort.steps {
        match history.random.below(100) {
            0..92 => history.insert(),
            92..95 => history.insert_late(),
            95..98 => history.flag(),
            98 if history.random.chance(30) => history.compact_keys(),
            _ => history.sweep(),
        }
    }
    region.set_fence_hook(None);
    history.applied.lock().unwrap().verify(&history.tree);
    verified.lock().unwrap().1
}

/// A sample in every run of the tests; with `PS_TREE_LINE_MODEL=full` all subsets up to 12 lines, else 1,000 samples,
/// at every fence.
fn effort() -> (Effort, u64) {
    if std::env::var("PS_TREE_LINE_MODEL").is_ok_and(|effort| effort == "full") {
        return (Effort { steps: 250, one_fence_in: 1, outcomes: usize::MAX, continue_one_in: 50 }, 12);
    }
    (Effort { steps: 220, one_fence_in: 8, outcomes: 6, continue_one_in: 12 }, 6)
}

fn power_cuts_leave_a_valid_tree(skey: SkeyKind) {
    let (effort, seeds) = effort();
    let verified: u64 = (0..seeds).map(|seed| run(skey, seed, effort)).sum();
    println!("{skey:?}: {verified} outcomes of power cuts");
    assert!(verified > 500);
}

#[test]
fn power_cuts_leave_a_valid_tree_with_a_btree() {
    power_cuts_leave_a_valid_tree(SkeyKind::BTree);
}

#[test]
fn power_cuts_leave_a_valid_tree_with_a_trie() {
    power_cuts_leave_a_valid_tree(SkeyKind::Trie);
}
