//! The version table against a model that stores every entry.
#![allow(clippy::disallowed_methods, reason = "a test of threads starts some")]

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use bolide_storage::SimRng;
use bolide_storage::pmem::RegionOptions;

use super::*;
use crate::validation::Verdict;

/// All entries of all keys that are not removed: when written, and whether flagged. Also the newest write of each key.
#[derive(Default)]
struct Model {
    entries: BTreeMap<u64, Vec<(SequenceNumber, bool)>>,
    latest: BTreeMap<u64, SequenceNumber>,
}

impl Model {
    fn obsolete(&self, key: u64) -> usize {
        let latest = self.latest[&key];
        self.entries[&key].iter().filter(|(at, flagged)| *at < latest && !flagged).count()
    }
}

fn key_of(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn table(options: VersionTableOptions) -> (Arc<Region>, VersionTable) {
    let region = Arc::new(Region::in_memory(RegionOptions::new()).unwrap());
    let table = VersionTable::create(&region, options).unwrap();
    (region, table)
}

fn check(table: &VersionTable, model: &Model, view: SequenceNumber, context: &str) {
    for (&key, entries) in &model.entries {
        for &(at, flagged) in entries.iter().filter(|(_, flagged)| !flagged) {
            let verdict = table.verdict(&key_of(key), at, view).unwrap();
            let latest = model.latest[&key];
            let expected = match (at == latest, latest <= view) {
                (true, _) => Verdict::Current,
                (false, true) => Verdict::Obsolete,
                (false, false) => Verdict::Unknown,
            };
            assert_eq!(
                verdict, expected,
                "{context}: key {key} at {at}, latest {latest}, view {view}, {flagged}"
            );
        }
    }
}

#[test]
fn every_verdict_is_that_of_the_model() {
    for seed in 0..24 {
        let mut rng = SimRng::new(seed);
        let options = VersionTableOptions {
            every_key: seed % 4 == 3,
            many_entries: seed % 2 == 1,
            seed: rng.next_u64(),
        };
        let (region, mut table) = table(options);
        let mut model = Model::default();
        let keys = [30, 400, 3_000][rng.below(3) as usize];
        for sequence in 1..4_000 {
            let key = rng.below(keys);
            let writer = region.writer();
            if rng.one_in(3) {
                // A reader flags an obsolete entry.
                let is_obsolete = |at: SequenceNumber| at < model.latest.get(&key).copied().unwrap_or(0);
                let found = model.entries.get_mut(&key).and_then(|entries| {
                    entries.iter_mut().find(|(at, flagged)| !*flagged && is_obsolete(*at))
                });
                if let Some(entry) = found {
                    entry.1 = true;
                    table.note_flagged(&writer, &key_of(key)).unwrap();
                }
            } else {
                let entries = match rng.below(4) {
                    0 => 0,
                    1 if options.many_entries => 1 + rng.below(4),
                    _ => 1,
                };
                if entries == 0 {
                    table.note_absence(&writer, &key_of(key), sequence).unwrap();
                }
                for _ in 0..entries {
                    table.note_entry(&writer, &key_of(key), sequence).unwrap();
                }
                model.latest.insert(key, sequence);
                let all = model.entries.entry(key).or_default();
                all.extend((0..entries).map(|_| (sequence, false)));
            }
            drop(writer);
            if sequence % 500 == 0 {
                check(&table, &model, sequence, &format!("seed {seed}"));
                check(&table, &model, sequence.saturating_sub(rng.below(300)), &format!("seed {seed}"));
            }
            if sequence % 1_300 == 0 {
                let stats = table.stats();
                table = VersionTable::open(&region).unwrap();
                assert_eq!(table.stats(), stats, "seed {seed}");
            }
        }
        if !options.every_key {
            let needed = model.entries.keys().filter(|&&key| model.obsolete(key) > 0).count();
            assert!(table.stats().keys >= needed as u64, "seed {seed}");
        }
    }
}

#[test]
fn a_key_is_removed_when_its_obsolete_entries_are_flagged() {
    let (region, table) = table(VersionTableOptions::default());
    let writer = region.writer();
    let keys = 40_000;
    for round in 0..2 {
        for key in 0..keys {
            table.note_entry(&writer, &key_of(key), 1 + round * keys + key).unwrap();
        }
    }
    // All keys are in the table once, except for false positives of the filter.
    assert!((keys..keys + keys / 100).contains(&table.stats().keys.max(keys)), "{:?}", table.stats());
    let full = table.stats();
    for key in 0..keys {
        table.note_flagged(&writer, &key_of(key)).unwrap();
    }
    let empty = table.stats();
    assert!(empty.keys < keys / 100, "{empty:?}");
    assert!(empty.table_bytes * 8 < full.table_bytes, "memory is freed: {full:?}, {empty:?}");
    // A sweep removes keys that false positives of the filter inserted.
    table.remove_through(&writer, 2 * keys).unwrap();
    assert_eq!(table.stats().keys, 0);
    assert_eq!(table.verdict(&key_of(7), keys + 8, 2 * keys).unwrap(), Verdict::Current);
}

#[test]
fn an_array_of_a_new_key_is_no_update() {
    let (region, table) = table(VersionTableOptions::default());
    let writer = region.writer();
    for _ in 0..3 {
        table.note_entry(&writer, b"k", 7).unwrap();
    }
    assert_eq!(table.stats().keys, 0);
    assert!(VersionTable::open(&region).unwrap().options().many_entries);
    table.note_entry(&writer, b"k", 9).unwrap();
    for _ in 0..2 {
        table.note_flagged(&writer, b"k").unwrap();
    }
    // The number of entries of the write at 7 is unknown: the key stays.
    assert_eq!(table.verdict(b"k", 7, 9).unwrap(), Verdict::Obsolete);
    table.remove_through(&writer, 9).unwrap();
    assert_eq!(table.stats().keys, 0);
}

#[test]
fn a_delete_makes_the_only_entry_obsolete_and_does_nothing_for_a_new_key() {
    let (region, table) = table(VersionTableOptions::default());
    let writer = region.writer();
    table.note_entry(&writer, b"k", 3).unwrap();
    table.note_absence(&writer, b"other", 4).unwrap();
    assert_eq!(table.stats().keys, 0);
    table.note_absence(&writer, b"k", 5).unwrap();
    assert_eq!(table.verdict(b"k", 3, 5).unwrap(), Verdict::Obsolete);
    table.note_flagged(&writer, b"k").unwrap();
    assert_eq!(table.stats().keys, 0);
    // Written again: the old entry is flagged, the new one is current.
    table.note_entry(&writer, b"k", 8).unwrap();
    assert_eq!(table.verdict(b"k", 8, 8).unwrap(), Verdict::Current);
}

#[test]
fn readers_see_each_key_while_buckets_split_and_merge() {
    let (region, table) = table(VersionTableOptions::default());
    {
        let writer = region.writer();
        for key in 0..200_u64 {
            table.note_entry(&writer, &key_of(key), 1).unwrap();
            table.note_absence(&writer, &key_of(key), 2).unwrap();
        }
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (region, table, done) = (&region, &table, &done);
            scope.spawn(move || {
                let mut rng = SimRng::new(reader);
                while !done.load(Ordering::Relaxed) {
                    let _pin = region.pin();
                    let key = rng.below(200);
                    assert_eq!(table.verdict(&key_of(key), 1, 9).unwrap(), Verdict::Obsolete, "key {key}");
                    let stamp = table.stamp();
                    match table.probe(&stamp, &key_of(key)) {
                        Some(located) => {
                            table.prefetch_slot_of(&located);
                            assert_eq!(table.verdict_of(&located, 1, 9).unwrap(), Verdict::Obsolete);
                        }
                        None => assert!(!table.is_unchanged_since(&stamp), "key {key}"),
                    }
                }
            });
        }
        for round in 0..4 {
            let writer = region.writer();
            for key in 1_000..9_000_u64 {
                table.note_entry(&writer, &key_of(key), 10 + round).unwrap();
            }
            if round > 0 {
                (1_000..9_000_u64).for_each(|key| table.note_flagged(&writer, &key_of(key)).unwrap());
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_stamp_is_stale_after_a_removal_and_after_a_resize_and_back() {
    let (region, table) = table(VersionTableOptions::default());
    let empty = table.stamp();
    let writer = region.writer();
    // An empty table is not searched, and may change meanwhile.
    assert!(table.probe(&empty, b"k").is_none() && table.is_unchanged_since(&empty));
    for key in 0..100 {
        table.note_entry(&writer, &key_of(key), 1 + key).unwrap();
        table.note_entry(&writer, &key_of(key), 1_000 + key).unwrap();
    }
    let stamp = table.stamp();
    assert!(!table.is_unchanged_since(&empty) && table.is_unchanged_since(&stamp));
    let located = table.probe(&stamp, &key_of(7)).expect("it is there");
    assert_eq!(table.verdict_of(&located, 8, 5_000).unwrap(), Verdict::Obsolete);
    assert_eq!(table.verdict_of(&located, 1_007, 5_000).unwrap(), Verdict::Current);
    table.note_flagged(&writer, &key_of(7)).unwrap();
    assert!(table.has_removals_since(&stamp) && !table.is_unchanged_since(&stamp));
    assert_eq!(table.verdict_of(&located, 1_007, 5_000).unwrap(), Verdict::Current);
    // As many buckets as before, but others.
    let (stamp, buckets) = (table.stamp(), table.stats().buckets);
    table.set_bucket_count(&writer, buckets + 1).unwrap();
    table.set_bucket_count(&writer, buckets).unwrap();
    assert_eq!(table.stats().buckets, buckets);
    assert!(!table.is_unchanged_since(&stamp) && !table.has_removals_since(&stamp));
}

#[test]
fn exactly_the_allocations_of_the_table_are_visited() {
    let (region, table) = table(VersionTableOptions::default());
    let writer = region.writer();
    for round in 0..2 {
        for key in 0..20_000 {
            table.note_entry(&writer, &key_of(key), 1 + round * 20_000 + key).unwrap();
        }
    }
    let mut reached = 0;
    table
        .visit_allocations(&mut |place, bytes| {
            assert!(place > 0);
            reached += bytes.next_multiple_of(256) as u64;
        })
        .unwrap();
    assert_eq!(reached, region.stats().allocated_bytes, "{:?}", region.stats());
}

/// Otherwise a sweep between the two steps of a write would remove its entry.
#[test]
fn an_entry_is_not_obsolete_before_its_write_is_noted() {
    let region = Arc::new(Region::in_memory(RegionOptions::new()).unwrap());
    let table = VersionTable::create(&region, VersionTableOptions::default()).unwrap();
    for sequence in [5, 8] {
        table.note_entry(&region.writer(), b"k", sequence).unwrap();
    }
    assert_eq!(table.verdict(b"k", 5, 9).unwrap(), Verdict::Obsolete);
    assert_eq!(table.verdict(b"k", 9, 9).unwrap(), Verdict::Unknown);
    table.note_entry(&region.writer(), b"k", 9).unwrap();
    assert_eq!(table.verdict(b"k", 9, 9).unwrap(), Verdict::Current);
}

/// Keys are forgotten by generations as the cut rises. All entries above the cut keep their verdicts, whether their key was in the
/// table when it was written or not, and the filter does not grow.
#[test]
fn forgotten_keys_have_no_entries_above_the_cut() {
    for seed in 0..12 {
        let mut rng = SimRng::new(seed);
        let (region, mut table) = table(VersionTableOptions { seed, ..VersionTableOptions::default() });
        let (mut writes, mut cut, mut dropped) = (Vec::new(), 0, 0);
        let mut sequence = 0;
        for round in 0..40 {
            for _ in 0..rng.below(200) {
                sequence += 1 + rng.below(2);
                // Some keys are written again and again.
                let key = if rng.one_in(2) { rng.below(30) } else { sequence * 1_000 };
                table.note_entry(&region.writer(), &key_of(key), sequence).unwrap();
                writes.push((key, sequence));
            }
            if rng.one_in(3) {
                // A sweep removes all entries that are not the newest of their key.
                let newest: BTreeMap<u64, SequenceNumber> = writes.iter().copied().collect();
                writes.retain(|(key, at)| newest[key] == *at);
                table.remove_through(&region.writer(), sequence).unwrap();
            }
            let before = table.stats().known_keys;
            cut += rng.below(sequence - cut + 1);
            region.with_only_writer(|writer| table.forget_known_keys(writer, cut, 0)).unwrap();
            writes.retain(|(_, at)| *at > cut);
            table.remove_through(&region.writer(), cut).unwrap();
            dropped += u64::from(table.stats().known_keys < before);
            if rng.one_in(5) {
                table = VersionTable::open(&region).unwrap();
                region.with_only_writer(|writer| table.forget_known_keys(writer, cut, sequence)).unwrap();
            }
            let newest: BTreeMap<u64, SequenceNumber> = writes.iter().copied().collect();
            for (key, at) in &writes {
                let verdict = table.verdict(&key_of(*key), *at, sequence).unwrap();
                let expected = if newest[key] == *at { Verdict::Current } else { Verdict::Obsolete };
                assert_eq!(verdict, expected, "seed {seed}, round {round}: key {key} at {at}, cut {cut}");
            }
        }
        assert!(dropped > 5, "seed {seed}: {dropped} generations");
        assert_eq!(region.stats().refused_frees, 0, "seed {seed}");
    }
}
