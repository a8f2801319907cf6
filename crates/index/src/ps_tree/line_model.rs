//! Power cuts at every fence: whatever subset of the lines of memory survives, the tree opens, its rules hold, and
//! its contents are those of the finished operations, with or without the one that was going on.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};

use bolide_base::SequenceNumber;
use bolide_storage::pmem::{Crash, Region, RegionOptions};

use super::oracle::{Random, Versions};
use super::tests::rows;
use super::{Obsolescence, PsBounds, PsTree, PsTreeOptions, SkeyKind};
use crate::query::Order;
use crate::validation::Verdict;

/// What has been done to the tree so far.
#[derive(Debug, Clone, Default)]
struct Done {
    /// Entries by secondary key and sequence number.
    entries: BTreeMap<(Vec<u8>, SequenceNumber), Vec<u8>>,
    /// Those of the operation that is going on.
    going_on: BTreeMap<(Vec<u8>, SequenceNumber), Vec<u8>>,
    newest: HashMap<Vec<u8>, SequenceNumber>,
    flagged: HashSet<SequenceNumber>,
}

impl Done {
    fn begin(&mut self, skey: &[u8], pkey: &[u8], sequence: SequenceNumber) {
        self.going_on.insert((skey.to_vec(), sequence), pkey.to_vec());
        let newest = self.newest.entry(pkey.to_vec()).or_default();
        *newest = sequence.max(*newest);
    }

    fn end(&mut self) {
        let going_on = std::mem::take(&mut self.going_on);
        self.entries.extend(going_on);
    }

    /// The tree holds what it should.
    fn verify(&self, tree: &PsTree) {
        let check = tree.check().unwrap();
        assert_eq!(check.problems, Vec::<String>::new());
        let all = PsBounds::Range { low: b"", end: None };
        let mut there = HashSet::new();
        for (skey, pkey, sequence, _) in rows(tree.cursor(all, Order::Value, SequenceNumber::MAX).unwrap()) {
            let place = (skey, sequence);
            let wanted = self.entries.get(&place).or_else(|| self.going_on.get(&place));
            assert_eq!(wanted, Some(&pkey), "an entry that nobody wrote");
            assert!(there.insert(place), "an entry comes twice");
        }
        for (place, pkey) in &self.entries {
            let replaced = self.newest.get(pkey).is_some_and(|&newest| newest > place.1);
            assert!(there.contains(place) || replaced, "{place:?} is lost");
        }
    }
}

/// A version table that knows what is replaced and does not count.
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

/// Opens what a power cut left, verifies it, and in some cases goes on with it.
fn verify_crash(crash: &Crash, done: &Done, go_on: bool) {
    let tree = PsTree::open(Arc::new(crash.reopen().unwrap())).unwrap();
    done.verify(&tree);
    if !go_on {
        return;
    }
    tree.reclaim().unwrap();
    // The log brings everything back; what is there stays as it is.
    let replaced = Replaced(done.newest.clone());
    let mut log: Vec<_> = done.entries.iter().chain(&done.going_on).collect();
    log.sort_by_key(|((_, sequence), _)| *sequence);
    for ((skey, sequence), pkey) in log {
        let writer = tree.region().writer();
        tree.insert(&writer, skey, pkey, *sequence, b"", &replaced, *sequence).unwrap();
    }
    let mut done = done.clone();
    done.end();
    done.verify(&tree);
    let mut next = done.entries.keys().map(|(_, sequence)| *sequence).max().unwrap_or(0);
    for index in 0..60_u64 {
        next += 1;
        let (skey, pkey) = (format!("{:02}", index % 7).into_bytes(), index.to_be_bytes());
        done.begin(&skey, &pkey, next);
        let writer = tree.region().writer();
        tree.insert(&writer, &skey, &pkey, next, b"", &replaced, next).unwrap();
        done.end();
    }
    done.verify(&tree);
    tree.reclaim().unwrap();
    done.verify(&tree);
    replace_all(&tree, &mut done, next);
    assert_eq!(tree.region().stats().refused_frees, 0);
}

/// All entries become obsolete and go, and their keys with them; new keys take their room. Nothing that a power cut left half
/// done brings them back.
fn replace_all(tree: &PsTree, done: &mut Done, mut next: SequenceNumber) {
    let pkeys: Vec<Vec<u8>> = done.newest.keys().cloned().collect();
    let insert = |done: &mut Done, skey: &[u8], pkey: &[u8], sequence| {
        done.begin(skey, pkey, sequence);
        let replaced = Replaced(done.newest.clone());
        let writer = tree.region().writer();
        tree.insert(&writer, skey, pkey, sequence, b"", &replaced, sequence).unwrap();
        done.end();
    };
    for pkey in pkeys {
        next += 1;
        insert(done, b"the last key of all", &pkey, next);
    }
    let replaced = Replaced(done.newest.clone());
    // The first round may find pages that the second one joins.
    for round in 0..2 {
        let mut position = Vec::new();
        loop {
            let writer = tree.region().writer();
            tree.sweep(&writer, &mut position, 3, &replaced, next).unwrap();
            if position.is_empty() {
                break;
            }
        }
        if round == 1 && next.is_multiple_of(2) {
            assert!(tree.compact_keys_if(&tree.region().writer(), |_| true).unwrap());
        }
        done.verify(tree);
    }
    assert_eq!(tree.check().unwrap().keys, 1, "keys that nothing belongs to any more");
    for index in 0..40_u64 {
        next += 1;
        let skey = match index % 3 {
            0 => format!("{:02}", index % 11),
            1 => format!("{index:03}"),
            _ => format!("a/long/common/prefix/of/keys/{index:03}"),
        };
        insert(done, skey.as_bytes(), &index.to_be_bytes(), next);
    }
    done.verify(tree);
}

/// One history on a simulated region, with power cuts at its fences.
struct History {
    tree: PsTree,
    done: Arc<Mutex<Done>>,
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
        self.done.lock().unwrap().begin(&skey, &pkey, self.sequence);
        let writer = self.tree.region().writer();
        self.tree.insert(&writer, &skey, &pkey, self.sequence, b"", &self.versions, self.sequence).unwrap();
        self.done.lock().unwrap().end();
    }

    /// An entry that is older than the newest of its key.
    fn insert_late(&mut self) {
        let skey = self.skey();
        let sequence = 1 + self.random.below(self.sequence.max(1));
        if self.done.lock().unwrap().entries.keys().any(|(_, used)| *used == sequence) {
            return;
        }
        let pkey = self.random.below(40).to_be_bytes();
        self.versions.write(&pkey, sequence);
        self.done.lock().unwrap().begin(&skey, &pkey, sequence);
        let writer = self.tree.region().writer();
        self.tree.insert(&writer, &skey, &pkey, sequence, b"", &self.versions, 0).unwrap();
        self.done.lock().unwrap().end();
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
            self.done.lock().unwrap().flagged.insert(sequence);
            cursor.flag_obsolete(place).unwrap();
        }
    }

    fn sweep(&mut self) {
        let writer = self.tree.region().writer();
        self.tree.sweep(&writer, &mut self.position, 2, &self.versions, self.sequence).unwrap();
    }

    fn compact_keys(&mut self) {
        assert!(self.tree.compact_keys_if(&self.tree.region().writer(), |_| true).unwrap());
    }
}

/// How much of the model is tried: every outcome at every fence takes minutes.
#[derive(Debug, Clone, Copy)]
struct Effort {
    steps: usize,
    /// Of so many fences, one is looked at.
    one_fence_in: u64,
    /// At most so many outcomes of a fence.
    outcomes: usize,
    /// Of so many outcomes, one is gone on with.
    go_on_one_in: u64,
}

fn run(skey: SkeyKind, seed: u64, effort: Effort) -> u64 {
    let region = Arc::new(Region::simulated(RegionOptions::new().name("model")).unwrap());
    let tree = PsTree::create(Arc::clone(&region), PsTreeOptions::new().skey(skey).page_bytes(512)).unwrap();
    let done = Arc::new(Mutex::new(Done::default()));
    let verified = Arc::new(Mutex::new((Random(seed ^ 77), 0_u64)));
    let hook = {
        let (region, done, verified) = (Arc::downgrade(&region), Arc::clone(&done), Arc::clone(&verified));
        move || {
            let mut verified = verified.lock().unwrap();
            if verified.0.below(effort.one_fence_in) != 0 {
                return;
            }
            let Some(region) = region.upgrade() else { return };
            let done = done.lock().unwrap().clone();
            let crash_seed = verified.0.next();
            for crash in region.crashes(crash_seed).take(effort.outcomes) {
                let go_on = verified.0.below(effort.go_on_one_in) == 0;
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    verify_crash(&crash, &done, go_on);
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
    let mut history = History { tree, done, versions, random, sequence: 0, keys, position: Vec::new() };
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
    history.done.lock().unwrap().verify(&history.tree);
    verified.lock().unwrap().1
}

/// A sample in every run of the tests; with `PS_TREE_LINE_MODEL=full` all subsets up to 12 lines, else 1,000 samples,
/// at every fence.
fn effort() -> (Effort, u64) {
    if std::env::var("PS_TREE_LINE_MODEL").is_ok_and(|effort| effort == "full") {
        return (Effort { steps: 250, one_fence_in: 1, outcomes: usize::MAX, go_on_one_in: 50 }, 12);
    }
    (Effort { steps: 220, one_fence_in: 8, outcomes: 6, go_on_one_in: 12 }, 6)
}

fn power_cuts_leave_a_tree_that_is_right(skey: SkeyKind) {
    let (effort, seeds) = effort();
    let verified: u64 = (0..seeds).map(|seed| run(skey, seed, effort)).sum();
    println!("{skey:?}: {verified} outcomes of power cuts");
    assert!(verified > 500);
}

#[test]
fn power_cuts_leave_a_tree_that_is_right_with_a_btree() {
    power_cuts_leave_a_tree_that_is_right(SkeyKind::BTree);
}

#[test]
fn power_cuts_leave_a_tree_that_is_right_with_a_trie() {
    power_cuts_leave_a_tree_that_is_right(SkeyKind::Trie);
}
