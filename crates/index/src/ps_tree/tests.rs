//! Random histories against an oracle, through all operations.

use std::collections::HashSet;
use std::sync::Arc;

use bolide_base::SequenceNumber;
use bolide_storage::pmem::{Region, RegionOptions, RegionRestore};

use super::oracle::{Oracle, Random, Versions};
use super::{
    Obsolescence, PsBounds, PsCursor, PsFlag, PsInserted, PsTree, PsTreeOptions, RetainAll, SkeyKind,
};
use crate::query::Order;
use crate::validation::Verdict;

type Row = (Vec<u8>, Vec<u8>, SequenceNumber, Vec<u8>);

pub(super) fn rows(mut cursor: PsCursor<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    while let Some(entry) = cursor.next_entry().unwrap() {
        rows.push((
            entry.secondary_key.to_vec(),
            entry.primary_key.to_vec(),
            entry.sequence,
            entry.covering.to_vec(),
        ));
    }
    rows
}

pub(super) fn new_tree(options: PsTreeOptions) -> PsTree {
    PsTree::create(Arc::new(super::test_region()), options).unwrap()
}

/// The region restored from the pages of a checkpoint.
pub(super) fn reopened(region: &Region) -> Region {
    let restore = RegionRestore::new(RegionOptions::new().name("test"));
    // The first checkpoint of a region has all pages, later ones only changed pages.
    let mut cut = region.checkpoint().unwrap();
    while let Some((page, bytes)) = cut.next_page() {
        restore.put_page(page, bytes).unwrap();
    }
    cut.abandon();
    restore.finish().unwrap()
}

pub(super) const ALL_ORDERS: [Order; 4] =
    [Order::Newest, Order::Oldest, Order::Value, Order::ValueDescending];

/// A run of operations on a tree and its oracle.
struct History {
    tree: PsTree,
    oracle: Oracle,
    versions: Versions,
    flagged: HashSet<(Vec<u8>, SequenceNumber)>,
    random: Random,
    sequence: SequenceNumber,
    position: Vec<u8>,
    keys: u64,
    pkeys: u64,
    long_keys: bool,
}

impl History {
    fn new(options: PsTreeOptions, seed: u64) -> Self {
        let mut random = Random(seed);
        let keys = [1, 3, 40, 400][random.below(4) as usize];
        let pkeys = [20, 200, 3000][random.below(3) as usize];
        let long_keys = random.chance(30);
        Self {
            tree: new_tree(options),
            oracle: Oracle::default(),
            versions: Versions::default(),
            flagged: HashSet::new(),
            random,
            sequence: 0,
            position: Vec::new(),
            keys,
            pkeys,
            long_keys,
        }
    }

    fn skey(&mut self) -> Vec<u8> {
        // Half of the keys are among the first few.
        let spread = if self.random.chance(50) { self.keys } else { self.keys.min(3) };
        let number = self.random.below(spread);
        let mut key =
            if self.long_keys { b"https://example.org/a/common/prefix/".to_vec() } else { vec![0x30] };
        key.extend_from_slice(format!("{:x}", number.wrapping_mul(0x9e37_79b9) % 1000).as_bytes());
        if self.long_keys && number.is_multiple_of(7) {
            key.resize(key.len() + (number as usize * 13) % 700, b'z');
        }
        key
    }

    fn pkey(&mut self) -> Vec<u8> {
        let number = self.random.below(self.pkeys);
        let mut key = number.to_be_bytes().to_vec();
        if number.is_multiple_of(11) {
            key.resize(8 + (number as usize * 7) % 90, b'p');
        }
        if number.is_multiple_of(97) {
            key.resize(2_000, b'P');
        }
        key
    }

    fn covering(&mut self) -> Vec<u8> {
        if self.random.chance(80) { Vec::new() } else { vec![b'c'; self.random.below(40) as usize] }
    }

    fn oldest_in_use(&mut self) -> SequenceNumber {
        self.sequence - self.sequence.min(self.random.below(60))
    }

    fn insert(&mut self) {
        let (skey, pkey, covering) = (self.skey(), self.pkey(), self.covering());
        self.sequence += 1 + self.random.below(6);
        self.versions.write(&pkey, self.sequence);
        self.oracle.insert(&skey, &pkey, self.sequence, &covering);
        let oldest = self.oldest_in_use();
        let writer = self.tree.region().writer();
        let inserted = self
            .tree
            .insert(&writer, &skey, &pkey, self.sequence, &covering, &self.versions, oldest)
            .unwrap();
        assert_eq!(inserted, PsInserted::Added);
    }

    fn removed_or_flagged(&self) -> HashSet<(Vec<u8>, SequenceNumber)> {
        self.versions.removed.lock().union(&self.flagged).cloned().collect()
    }

    /// Inserts a present entry again.
    fn redo(&mut self) {
        let skey = self.skey();
        let removed_or_flagged = self.removed_or_flagged();
        let Some(entries) = self.oracle.entries.get(&skey) else { return };
        let index = self.random.below(entries.len() as u64) as usize;
        let Some((&sequence, (pkey, covering))) = entries.iter().nth(index) else { return };
        if removed_or_flagged.contains(&(pkey.clone(), sequence)) {
            return;
        }
        let writer = self.tree.region().writer();
        let again = self.tree.insert(&writer, &skey, pkey, sequence, covering, &self.versions, 0).unwrap();
        assert_eq!(again, PsInserted::Present);
    }

    /// Inserts an entry that is older than the newest of its key.
    fn insert_late(&mut self) {
        let (skey, pkey, covering) = (self.skey(), self.pkey(), self.covering());
        let sequence = 1 + self.random.below(self.sequence.max(1));
        let mut used = self.oracle.entries.values();
        if used.any(|entries| entries.contains_key(&sequence)) {
            return;
        }
        self.versions.write(&pkey, sequence);
        self.oracle.insert(&skey, &pkey, sequence, &covering);
        let writer = self.tree.region().writer();
        // The count of an entry comes before its removal.
        let inserted =
            self.tree.insert(&writer, &skey, &pkey, sequence, &covering, &self.versions, 0).unwrap();
        assert_eq!(inserted, PsInserted::Added);
    }

    fn flag(&mut self) {
        let skey = self.skey();
        let oldest = self.oldest_in_use();
        let mut cursor = self.tree.cursor(PsBounds::One(&skey), Order::Newest, SequenceNumber::MAX).unwrap();
        let mut places = Vec::new();
        while let Some(entry) = cursor.next_entry().unwrap() {
            if self.versions.verdict(entry.primary_key, entry.sequence, oldest) == Verdict::Obsolete {
                places.push((entry.place, entry.primary_key.to_vec(), entry.sequence));
            }
        }
        for (place, pkey, sequence) in places {
            if self.random.chance(50) {
                assert_eq!(cursor.flag_obsolete(place).unwrap(), PsFlag::Flagged);
                assert_eq!(cursor.flag_obsolete(place).unwrap(), PsFlag::AlreadyFlagged);
                assert!(self.flagged.insert((pkey, sequence)), "flagged once");
            }
        }
    }

    fn sweep(&mut self) {
        let oldest = self.oldest_in_use();
        let keys = self.random.below(100) as usize;
        let writer = self.tree.region().writer();
        self.tree.sweep(&writer, &mut self.position, keys, &self.versions, oldest).unwrap();
    }

    /// The expected rows of the keys within bounds.
    fn expected(&self, low: &[u8], end: Option<&[u8]>, order: Order, snapshot: SequenceNumber) -> Vec<Row> {
        let removed_or_flagged = self.removed_or_flagged();
        let mut rows: Vec<Row> = Vec::new();
        for (skey, entries) in self.oracle.entries.range(low.to_vec()..) {
            if end.is_some_and(|end| skey.as_slice() >= end) {
                break;
            }
            for (&sequence, (pkey, covering)) in entries.range(..=snapshot).rev() {
                if !removed_or_flagged.contains(&(pkey.clone(), sequence)) {
                    rows.push((skey.clone(), pkey.clone(), sequence, covering.clone()));
                }
            }
        }
        match order {
            Order::Newest => rows.sort_by_key(|row| std::cmp::Reverse(row.2)),
            Order::Oldest => rows.sort_by_key(|row| row.2),
            Order::Value | Order::Nearest | Order::Attributes => {}
            Order::ValueDescending => rows.sort_by(|left, right| right.0.cmp(&left.0)),
        }
        rows
    }

    fn compare(&mut self) {
        let snapshot =
            if self.random.chance(50) { SequenceNumber::MAX } else { self.random.below(self.sequence + 2) };
        let (low, end) = (self.skey(), self.skey());
        let mut end_of_one = low.clone();
        end_of_one.push(0);
        for order in ALL_ORDERS {
            let cursor = self.tree.cursor(PsBounds::One(&low), order, snapshot).unwrap();
            assert_eq!(
                rows(cursor),
                self.expected(&low, Some(&end_of_one), order, snapshot),
                "one, {order:?}"
            );
            let end = if self.random.chance(20) { None } else { Some(end.as_slice()) };
            let cursor = self.tree.cursor(PsBounds::Range { low: &low, end }, order, snapshot).unwrap();
            assert_eq!(rows(cursor), self.expected(&low, end, order, snapshot), "range, {order:?}");
        }
    }

    fn compare_all(&self) {
        for order in ALL_ORDERS {
            let all = PsBounds::Range { low: b"", end: None };
            let cursor = self.tree.cursor(all, order, SequenceNumber::MAX).unwrap();
            assert_eq!(rows(cursor), self.expected(b"", None, order, SequenceNumber::MAX), "{order:?}");
        }
        let check = self.tree.check().unwrap();
        assert_eq!(check.problems, Vec::<String>::new());
        let stats = self.tree.stats().unwrap();
        assert_eq!((check.entries, check.keys), (stats.entries, stats.skey.keys));
        assert_eq!(self.tree.counts(), (stats.skey.keys, stats.entries));
        let removed = self.versions.removed.lock();
        let still_flagged = self.flagged.difference(&removed).count() as u64;
        assert_eq!(stats.flagged, still_flagged);
        let in_oracle: u64 = self.oracle.entries.values().map(|entries| entries.len() as u64).sum();
        assert_eq!(stats.entries + removed.len() as u64, in_oracle);
        assert_eq!(*self.versions.removed_flagged.lock(), self.flagged.intersection(&removed).count() as u64);
        assert_eq!(self.tree.region().stats().refused_frees, 0);
    }

    fn step(&mut self) {
        match self.random.below(1000) {
            0..900 => self.insert(),
            900..930 => self.redo(),
            930..940 => self.insert_late(),
            940..960 => self.flag(),
            960..975 => self.sweep(),
            975..990 => self.compare(),
            _ => {
                let mut text = String::new();
                if self.random.chance(5) {
                    self.tree.dump(&mut text).unwrap();
                }
            }
        }
    }
}

fn run_histories(skey: SkeyKind, seeds: std::ops::Range<u64>, steps: usize) {
    for seed in seeds {
        let page_bytes = [512, 1024, 2048, 4096][seed as usize % 4];
        let run = std::panic::catch_unwind(|| {
            let mut history = History::new(PsTreeOptions::new().skey(skey).page_bytes(page_bytes), seed);
            for _ in 0..steps {
                history.step();
            }
            history.compare_all();
            let counts = history.tree.counts();
            history.tree.note_counts(&history.tree.region().writer()).unwrap();
            history.tree = PsTree::open(Arc::new(reopened(history.tree.region()))).unwrap();
            assert_eq!(history.tree.counts(), counts);
            history.compare_all();
            for _ in 0..steps / 4 {
                history.step();
            }
            history.compare_all();
        });
        if let Err(panic) = run {
            eprintln!("seed {seed}, {skey:?}, page_bytes {page_bytes}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn random_histories_match_the_oracle() {
    run_histories(SkeyKind::BTree, 0..12, 2_500);
}

#[test]
fn random_histories_match_the_oracle_on_a_trie() {
    run_histories(SkeyKind::Trie, 100..112, 2_500);
}

#[test]
fn entries_of_many_keys_are_read_in_every_order() {
    let tree = new_tree(PsTreeOptions::new().page_bytes(1024));
    let writer = tree.region().writer();
    let mut random = Random(5);
    for sequence in 1..20_000_u64 {
        let skey = random.below(2_000).to_be_bytes();
        tree.insert(&writer, &skey, &sequence.to_be_bytes(), sequence, b"", &RetainAll, 0).unwrap();
    }
    drop(writer);
    let check = tree.check().unwrap();
    assert_eq!((check.entries, check.problems), (19_999, vec![]));
    let all = rows(tree.cursor(PsBounds::Range { low: b"", end: None }, Order::Newest, u64::MAX).unwrap());
    assert!(all.windows(2).all(|pair| pair[0].2 > pair[1].2) && all.len() == 19_999);
    let estimate = tree.estimate(&500_u64.to_be_bytes(), Some(&700_u64.to_be_bytes())).unwrap();
    assert!((1_000..4_000).contains(&estimate), "{estimate}");
}

#[test]
fn ascending_keys_leave_full_nodes() {
    let tree = new_tree(PsTreeOptions::new());
    let writer = tree.region().writer();
    for sequence in 1..20_000_u64 {
        tree.insert(&writer, &sequence.to_be_bytes(), b"12345678", sequence, b"", &RetainAll, 0).unwrap();
    }
    drop(writer);
    let stats = tree.stats().unwrap();
    assert_eq!((stats.inline_entries, stats.head_pages), (19_999, 0), "{stats:?}");
    assert!(stats.skey.nodes * 35 < stats.skey.keys, "{stats:?}");
}

/// Writes each of 400 records `rounds` times, in the order of their numbers. Returns the largest number of entries.
fn write_rounds(tree: &PsTree, versions: &Versions, rounds: u64, skey_of: impl Fn(u64) -> Vec<u8>) -> u64 {
    let mut largest = 0;
    for sequence in 1..=400 * rounds {
        let number = sequence % 400;
        let pkey = number.to_be_bytes();
        versions.write(&pkey, sequence);
        let writer = tree.region().writer();
        tree.insert(&writer, &skey_of(number), &pkey, sequence, b"", versions, sequence).unwrap();
        largest = largest.max(tree.counts().1);
    }
    assert_eq!(tree.check().unwrap().problems, Vec::<String>::new());
    assert_eq!(tree.region().stats().refused_frees, 0);
    largest
}

#[test]
fn updates_that_keep_a_unique_value_leave_no_garbage() {
    for skey in [SkeyKind::BTree, SkeyKind::Trie] {
        let (tree, versions) = (new_tree(PsTreeOptions::new().skey(skey)), Versions::default());
        let largest = write_rounds(&tree, &versions, 6, |number| number.to_be_bytes().to_vec());
        assert!(largest <= 400 + 4, "{largest}");
        let stats = tree.stats().unwrap();
        assert!(stats.inline_entries >= 400 - 4 && stats.skey.keys == 400, "{stats:?}");
        let rows =
            rows(tree.cursor(PsBounds::Range { low: b"", end: None }, Order::Value, u64::MAX).unwrap());
        let newest = |row: &&Row| row.2 > 400 * 5;
        assert_eq!(rows.iter().filter(newest).count(), 400);
    }
}

#[test]
fn keys_that_grow_together_return_their_space() {
    let (tree, versions) = (new_tree(PsTreeOptions::new()), Versions::default());
    let writer = tree.region().writer();
    for sequence in 1..=400 * 25_u64 {
        let (skey, pkey) = ((sequence % 400).to_be_bytes(), sequence.to_be_bytes());
        tree.insert(&writer, &skey, &pkey, sequence, b"", &versions, 0).unwrap();
    }
    drop(writer);
    let (stats, region) = (tree.stats().unwrap(), tree.region().stats());
    assert_eq!(stats.entries, 400 * 25);
    let unused = region.allocated_bytes - stats.total_bytes();
    assert!(unused * 5 < stats.total_bytes(), "{unused} of {} bytes", region.allocated_bytes);
    assert!(stats.total_bytes() < 400 * 25 * 28, "{stats:?}");
}

#[test]
fn a_damaged_inline_entry_is_not_copied_to_a_page() {
    let tree = new_tree(PsTreeOptions::default());
    let insert =
        |sequence| tree.insert(&tree.region.writer(), b"key", b"primary", sequence, b"", &RetainAll, 0);
    insert(1).unwrap();
    let record = tree.skeys.find(&tree.region, b"key").unwrap().unwrap();
    // The word with the end of the body, behind value, lengths and the first word.
    let at = record + 24;
    tree.region.writer().store(at, tree.region.load(at).unwrap() ^ 1).unwrap();
    let error = insert(2).unwrap_err();
    assert!(error.message().contains("checksum of an inline entry"), "{error}");
    tree.region.writer().store(at, tree.region.load(at).unwrap() ^ 1).unwrap();
    insert(2).unwrap();
}

#[test]
fn another_format_version_is_refused() {
    let region = Arc::new(super::test_region());
    drop(PsTree::create(Arc::clone(&region), PsTreeOptions::new()).unwrap());
    let word = region.root(super::FORMAT_SLOT).unwrap();
    region.writer().set_root(super::FORMAT_SLOT, word & !0xff00 | 1 << 8).unwrap();
    let error = PsTree::open(region).unwrap_err();
    assert_eq!(error.kind(), bolide_base::ErrorKind::Unsupported);
    assert!(error.to_string().contains("format version 1 of the PS-Tree"), "{error}");
    assert!(error.to_string().contains("bolide index rebuild"), "{error}");
    assert!(error.to_string().contains("commit 2b84e50"), "{error}");
}

/// Moving keys, as for times of change: each write replaces an entry of an old key by one of a new key.
fn space_stays_bounded_with_moving_keys(skey: SkeyKind) {
    let tree = new_tree(PsTreeOptions::new().skey(skey));
    let versions = Versions::default();
    let mut random = Random(3);
    let mut position = Vec::new();
    let mut largest = [0; 2];
    for sequence in 1..=60_000_u64 {
        let pkey = random.below(1_000).to_be_bytes();
        let skey = format!("time {sequence:012}");
        versions.write(&pkey, sequence);
        let writer = tree.region().writer();
        tree.insert(&writer, skey.as_bytes(), &pkey, sequence, b"", &versions, sequence).unwrap();
        if sequence % 100 == 0 {
            tree.sweep(&writer, &mut position, 150, &versions, sequence).unwrap();
            if position.is_empty() {
                tree.compact_keys(&writer).unwrap();
            }
        }
        drop(writer);
        let half = usize::from(sequence > 30_000);
        largest[half] = largest[half].max(tree.region().stats().allocated_bytes);
    }
    let check = tree.check().unwrap();
    assert_eq!(check.problems, Vec::<String>::new());
    assert!(check.keys < 6_000, "{}", check.keys);
    assert!(largest[1] * 10 < largest[0] * 12 && largest[1] < 4 << 20, "{largest:?}");
    let rows = rows(tree.cursor(PsBounds::Range { low: b"", end: None }, Order::Newest, u64::MAX).unwrap());
    let current = |row: &&Row| versions.verdict(&row.1, row.2, u64::MAX) == Verdict::Current;
    assert_eq!(rows.iter().filter(current).count(), 1_000);
    assert_eq!(tree.region().stats().refused_frees, 0);
}

#[test]
fn space_stays_bounded_with_moving_keys_in_a_btree() {
    space_stays_bounded_with_moving_keys(SkeyKind::BTree);
}

#[test]
fn space_stays_bounded_with_moving_keys_in_a_trie() {
    space_stays_bounded_with_moving_keys(SkeyKind::Trie);
}
