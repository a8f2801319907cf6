//! All compared indexes against a model, on random histories.

use std::collections::BTreeMap;
use std::sync::Arc;

use bolide::{Components, FindOptions};
use bolide_index::ps_tree::SkeyKind;

use super::keys::primary_number;
use super::*;
use crate::data::random::Random;

const SKEYS: [SkeyKind; 2] = [SkeyKind::BTree, SkeyKind::Trie];
const KINDS: [PmKind; 3] = [PmKind::PsTree, PmKind::Composite, PmKind::Log];
const RECORDS: u64 = 120;
const SECONDARIES: u64 = 30;
const ALL: usize = 10_000;

/// The newest write of every record: secondary key and time.
#[derive(Default)]
struct Model {
    records: BTreeMap<u64, (u64, u64)>,
    clock: u64,
}

impl Model {
    fn put(&mut self, secondary: u64, number: u64) {
        self.clock += 1;
        self.records.insert(number, (secondary, self.clock));
    }

    fn newest(&self, secondary: u64, limit: usize) -> Vec<u64> {
        let mut found: Vec<(u64, u64)> = self
            .records
            .iter()
            .filter(|(_, (key, _))| *key == secondary)
            .map(|(number, (_, time))| (*time, *number))
            .collect();
        found.sort_unstable_by(|left, right| right.cmp(left));
        found.into_iter().take(limit).map(|(_, number)| number).collect()
    }
}

/// An index under test.
enum TestIndex {
    Pm(Box<PmIndex>),
    Lsm(LsmIndex),
}

impl TestIndex {
    fn put(&self, secondary: u64, number: u64) {
        match self {
            Self::Pm(index) => index.put(&secondary_key(secondary), &primary_key(number)).unwrap(),
            Self::Lsm(index) => index.put(secondary, number, b"").unwrap(),
        }
    }

    fn delete(&self, number: u64) {
        match self {
            Self::Pm(index) => index.delete(&primary_key(number)).unwrap(),
            Self::Lsm(index) => index.records().delete(&primary_key(number)).unwrap(),
        }
    }

    fn newest(&self, secondary: u64, limit: usize) -> Vec<u64> {
        let mut out = Vec::new();
        match self {
            Self::Pm(index) => index
                .newest(&secondary_key(secondary), limit, &mut |key, _| out.push(primary_number(key)))
                .unwrap(),
            Self::Lsm(index) => index
                .keys(LsmIndex::newest_of(secondary, limit), &mut |key| out.push(primary_number(key)))
                .unwrap(),
        }
        out
    }

    fn range(&self, first: u64, count: u64, limit: usize) -> Vec<u64> {
        let mut out = Vec::new();
        match self {
            Self::Pm(index) => index
                .range(&secondary_key(first), &secondary_key(first + count), limit, &mut |key, _| {
                    out.push(primary_number(key));
                })
                .unwrap(),
            Self::Lsm(index) => index
                .keys(LsmIndex::newest_of_each(first, count, limit), &mut |key| {
                    out.push(primary_number(key));
                })
                .unwrap(),
        }
        out
    }
}

fn lsm(index: &'static str, in_memory: bool) -> LsmKind {
    // Several flushes, so that entries lie in files.
    LsmKind {
        index: Some(index),
        in_memory,
        cache_bytes: 1 << 20,
        memtable_bytes: 64 << 10,
        tiered: in_memory,
    }
}

fn subjects() -> Vec<(String, TestIndex)> {
    let mut all = Vec::new();
    for kind in KINDS {
        for skey in SKEYS {
            let index = PmIndex::create(PmSettings { kind, skey, latency: None }).unwrap();
            all.push((format!("{kind:?} {skey:?}"), TestIndex::Pm(Box::new(index))));
        }
    }
    for (index, in_memory) in [
        ("composite:validation=key-index", false),
        ("composite:validation=key-index", true),
        ("ps-tree", false),
    ] {
        let made = LsmIndex::create(lsm(index, in_memory), None, Components::system()).unwrap();
        all.push((format!("{index} {in_memory}"), TestIndex::Lsm(made)));
    }
    all
}

fn check(subjects: &[(String, TestIndex)], model: &Model, seed: u64) {
    for (name, subject) in subjects {
        for secondary in 0..SECONDARIES {
            for limit in [1, 3, ALL] {
                let context = || format!("{name}, seed {seed}: secondary key {secondary}, limit {limit}");
                assert_eq!(subject.newest(secondary, limit), model.newest(secondary, limit), "{}", context());
            }
        }
        for (first, count, limit) in [(0, SECONDARIES, 2), (5, 7, 5), (20, 20, ALL), (SECONDARIES, 5, 1)] {
            let expected: Vec<u64> =
                (first..first + count).flat_map(|secondary| model.newest(secondary, limit)).collect();
            let found = subject.range(first, count, limit);
            assert_eq!(found, expected, "{name}, seed {seed}: range of {count} from {first}, {limit} each");
        }
    }
}

#[test]
fn all_indexes_match_the_model() {
    for seed in [1, 2] {
        let subjects = subjects();
        let (mut model, mut random) = (Model::default(), Random::new(seed));
        for round in 0..4 {
            for _ in 0..800 {
                let number = random.below(RECORDS);
                if random.below(10) == 0 {
                    model.records.remove(&number);
                    subjects.iter().for_each(|(_, subject)| subject.delete(number));
                    continue;
                }
                // Some secondary keys are much more frequent than others.
                let secondary = random.below(SECONDARIES).min(random.below(2 * SECONDARIES));
                model.put(secondary, number);
                subjects.iter().for_each(|(_, subject)| subject.put(secondary, number));
            }
            if round == 1 {
                for (_, subject) in &subjects {
                    if let TestIndex::Lsm(index) = subject {
                        index.db().flush().unwrap();
                    }
                }
            }
            // Twice, since the first check flags obsolete entries.
            check(&subjects, &model, seed);
            check(&subjects, &model, seed);
        }
    }
}

#[test]
fn staged_and_concurrent_puts_return_the_expected_answers() {
    for kind in KINDS {
        let index = PmIndex::create(PmSettings { kind, skey: SkeyKind::BTree, latency: None }).unwrap();
        let mut model = Model::default();
        let mut random = Random::new(3);
        for _ in 0..40 {
            let puts: Vec<StagedPut> = (0..50)
                .map(|_| {
                    let (secondary, number) = (random.below(5), random.below(RECORDS));
                    model.put(secondary, number);
                    StagedPut { secondary_key: secondary_key(secondary), primary_key: primary_key(number) }
                })
                .collect();
            index.put_in_stages(&puts).unwrap();
        }
        let subject = [(format!("{kind:?}"), TestIndex::Pm(Box::new(index)))];
        for secondary in 0..5 {
            assert_eq!(subject[0].1.newest(secondary, ALL), model.newest(secondary, ALL), "{kind:?}");
        }
        let TestIndex::Pm(index) = &subject[0].1 else { continue };
        let mut candidates = Candidates::default();
        index.candidates(&secondary_key(1), ALL, &mut candidates).unwrap();
        assert_eq!(index.validate(&candidates).unwrap(), model.newest(1, ALL).len(), "{kind:?}");

        // Every thread has records of its own; all share the secondary keys.
        std::thread::scope(|scope| {
            for thread in 1..=3u64 {
                scope.spawn(move || {
                    for number in 0..500 {
                        let number = thread * 1000 + number % 200;
                        index.put(&secondary_key(number % 5), &primary_key(number)).unwrap();
                    }
                });
            }
        });
        for secondary in 0..5 {
            let mut found: Vec<(u64, u64)> = Vec::new();
            index
                .newest(&secondary_key(secondary), ALL, &mut |key, sequence| {
                    found.push((sequence, primary_number(key)));
                })
                .unwrap();
            assert!(found.is_sorted_by(|left, right| left.0 > right.0), "{kind:?}: {found:?}");
            let mut numbers: Vec<u64> =
                found.into_iter().map(|(_, number)| number).filter(|number| *number >= 1000).collect();
            numbers.sort_unstable();
            let expected: Vec<u64> = (1..=3u64)
                .flat_map(|thread| (0..200).map(move |number| thread * 1000 + number))
                .filter(|number| number % 5 == secondary)
                .collect();
            assert_eq!(numbers, expected, "{kind:?}");
        }
    }
}

#[test]
fn the_driver_fetches_the_records_of_entries() {
    for kind in KINDS {
        let entries =
            Arc::new(PmIndex::create(PmSettings { kind, skey: SkeyKind::Trie, latency: None }).unwrap());
        let source = EntrySource::default();
        source.set_entries(&entries, 4);
        let components = with_substitute_index(LsmIndex::ATTRIBUTE, &source);
        let table = LsmIndex::create(lsm("composite", false), None, components).unwrap();
        let (mut model, mut random) = (Model::default(), Random::new(4));
        for _ in 0..2_000 {
            let (secondary, number) = (random.below(SECONDARIES), random.below(RECORDS));
            model.put(secondary, number);
            let sequence = table.put_numbered(secondary, number, b"filler").unwrap();
            let key = LsmIndex::index_key(secondary).unwrap();
            entries.put_at(&key, &primary_key(number), sequence).unwrap();
        }
        for secondary in 0..SECONDARIES {
            let query = LsmIndex::newest_of(secondary, 4);
            let answers = table.records().find_with(&query, &FindOptions::default()).unwrap();
            assert_eq!(answers.explain().obsolete, 0);
            let found: Vec<u64> = answers.iter().map(|answer| primary_number(&answer.key)).collect();
            assert_eq!(found, model.newest(secondary, 4), "{kind:?}");
            assert!(answers.iter().all(|answer| {
                answer.record.as_deref().is_some_and(|record| {
                    record.starts_with(&secondary_key(secondary)) && record.ends_with(b"filler")
                })
            }));
        }
    }
}
