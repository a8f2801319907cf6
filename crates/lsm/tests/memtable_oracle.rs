//! The memtable compared with an ordered map.

#![cfg(not(bolide_shuttle))]
#![allow(clippy::disallowed_methods, reason = "the seed of a test comes from the clock")]

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use bolide_base::{EntryKind, SequenceNumber, Trailer};
use bolide_lsm::memtable::{Memtable, MemtableCursor, Visibility};
use bolide_table::InternalCursor;

/// Small under Miri, which is about a hundred times slower.
const SCALE: usize = if cfg!(miri) { 1 } else { 40 };

const NEWEST: SequenceNumber = u64::MAX >> 8;

struct Random(u64);

impl Random {
    fn new(test: &str) -> Self {
        let seed = match std::env::var("BOLIDE_SEED") {
            Ok(text) => text.parse().expect("BOLIDE_SEED is a number"),
            Err(_) if cfg!(miri) => 1,
            Err(_) => std::time::UNIX_EPOCH.elapsed().map_or(1, |time| time.as_nanos() as u64),
        };
        println!("{test}: BOLIDE_SEED={seed}");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

type Entry = (Vec<u8>, u64, Vec<u8>);

/// The expected content of a memtable: the trailer and the value of each key and sequence number, newest first.
#[derive(Default)]
struct Model(BTreeMap<Position, (Trailer, Vec<u8>)>);

/// Tree order: key ascending, sequence number descending.
type Position = (Vec<u8>, Reverse<SequenceNumber>);

impl Model {
    fn insert(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) {
        self.0.insert((key.to_vec(), Reverse(trailer.sequence())), (trailer, value.to_vec()));
    }

    fn get(&self, key: &[u8], max_sequence: SequenceNumber) -> Option<(Trailer, &[u8])> {
        let mut range = self.0.range((key.to_vec(), Reverse(max_sequence))..);
        let ((found, _), (trailer, value)) = range.next()?;
        (found == key).then_some((*trailer, value))
    }

    fn entries(&self, visibility: Visibility) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        for ((key, Reverse(sequence)), (trailer, value)) in &self.0 {
            let is_visible = match visibility {
                Visibility::All => true,
                Visibility::At(at) => {
                    *sequence <= at && entries.last().is_none_or(|(last, _, _)| last != key)
                }
            };
            if is_visible {
                entries.push((key.clone(), trailer.bits(), value.clone()));
            }
        }
        entries
    }
}

fn entry(cursor: &MemtableCursor) -> Option<Entry> {
    let entry = (cursor.key().to_vec(), cursor.trailer().bits(), cursor.value().to_vec());
    cursor.valid().then_some(entry)
}

fn check_scans(memtable: &Arc<Memtable>, model: &Model, visibility: Visibility) {
    let expected = model.entries(visibility);
    let mut cursor = memtable.cursor(visibility);
    assert!(!cursor.valid());
    cursor.seek_to_first().unwrap();
    for want in &expected {
        assert_eq!(entry(&cursor).as_ref(), Some(want), "{visibility:?} forward");
        cursor.next().unwrap();
    }
    assert_eq!(entry(&cursor), None);
    cursor.seek_to_last().unwrap();
    for want in expected.iter().rev() {
        assert_eq!(entry(&cursor).as_ref(), Some(want), "{visibility:?} backward");
        cursor.prev().unwrap();
    }
    assert_eq!(entry(&cursor), None);
}

fn check_seeks(
    memtable: &Arc<Memtable>,
    model: &Model,
    visibility: Visibility,
    random: &mut Random,
    keys: &[Vec<u8>],
) {
    let expected = model.entries(visibility);
    let newest = memtable.largest_sequence().unwrap_or(0) as usize;
    let mut cursor = memtable.cursor(visibility);
    for _ in 0..20 * SCALE {
        let mut key = keys[random.below(keys.len())].clone();
        match random.below(4) {
            0 => key.push(0),
            1 => drop(key.pop()),
            _ => {}
        }
        let mut at = if random.below(2) == 0 {
            let sequence = random.below(newest + 2) as u64;
            // A preparation for this key or another one does not change the result.
            if random.below(3) == 0 {
                let prepared = if random.below(2) == 0 { &key } else { &keys[random.below(keys.len())] };
                cursor.prepare_seek(prepared, sequence);
                // All stages or some.
                let mut stages = random.below(8);
                while stages > 0 && cursor.prepare_next_stage() {
                    stages -= 1;
                }
            }
            cursor.seek(&key, sequence).unwrap();
            expected.partition_point(|(entry, bits, _)| {
                (entry, Reverse(Trailer::from_bits(*bits).sequence())) < (&key, Reverse(sequence))
            }) as isize
        } else {
            cursor.seek_before(&key).unwrap();
            expected.partition_point(|(entry, _, _)| *entry < key) as isize - 1
        };
        for _ in 0..random.below(6) {
            let want = usize::try_from(at).ok().and_then(|at| expected.get(at));
            assert_eq!(entry(&cursor).as_ref(), want, "{visibility:?} near {key:?}");
            if want.is_none() {
                break;
            }
            if random.below(2) == 0 {
                cursor.next().unwrap();
                at += 1;
            } else {
                cursor.prev().unwrap();
                at -= 1;
            }
        }
    }
}

/// Inserts a random history over `keys` and compares the results of all queries, for a memtable that serves point reads by
/// the tree until it is large, and for one with a hash index from the first point read on.
fn check(random: &mut Random, keys: &[Vec<u8>], versions: usize) {
    check_one(random, Memtable::new(), keys, versions);
    check_one(random, Memtable::with_budget(0), keys, versions);
}

fn check_one(random: &mut Random, memtable: Memtable, keys: &[Vec<u8>], versions: usize) {
    let memtable = Arc::new(memtable);
    let mut model = Model::default();
    // Point reads begin before, during or after the writes.
    let first_read = random.below(2 * versions);
    let mut sequences: Vec<u64> = (1..=versions as u64).collect();
    // Mostly in order; some are late, some are repeated.
    for _ in 0..versions / 10 {
        let (left, right) = (random.below(versions), random.below(versions));
        sequences.swap(left, right);
    }
    for (index, &sequence) in sequences.iter().enumerate() {
        let key = if index < keys.len() { &keys[index] } else { &keys[random.below(keys.len())] };
        let kind = if random.below(5) == 0 { EntryKind::Delete } else { EntryKind::Put };
        let length = if kind == EntryKind::Put { random.below(40) } else { 0 };
        let value = vec![sequence as u8; length];
        memtable.insert(key, Trailer::new(sequence, kind), &value);
        model.insert(key, Trailer::new(sequence, kind), &value);
        if random.below(20) == 0 {
            memtable.insert(key, Trailer::new(sequence, EntryKind::Put), b"again");
            model.insert(key, Trailer::new(sequence, EntryKind::Put), b"again");
        }
        if index >= first_read {
            let key = &keys[random.below(keys.len())];
            assert_eq!(memtable.get(key, NEWEST), model.get(key, NEWEST), "{key:?} after {index} writes");
        }
    }
    assert_eq!(memtable.entries(), model.0.len());
    for _ in 0..20 * SCALE {
        let key = &keys[random.below(keys.len())];
        let max_sequence = random.below(versions + 2) as u64;
        assert_eq!(
            memtable.get(key, max_sequence),
            model.get(key, max_sequence),
            "{key:?} at {max_sequence}"
        );
        assert_eq!(
            memtable.newest(key, max_sequence),
            model.get(key, max_sequence).map(|(trailer, _)| trailer)
        );
        let absent = [key.as_slice(), b"\x01absent"].concat();
        assert_eq!(memtable.get(&absent, max_sequence), None);
        let some: Vec<&[u8]> = (0..random.below(40))
            .map(|_| keys[random.below(keys.len())].as_slice())
            .chain([&*absent])
            .collect();
        let mut found = vec![None; some.len()];
        memtable.get_many(&some, max_sequence, &mut found);
        assert_eq!(found, some.iter().map(|key| model.get(key, max_sequence)).collect::<Vec<_>>());
    }
    let middle = versions as u64 / 2;
    for visibility in [Visibility::All, Visibility::At(0), Visibility::At(middle), Visibility::At(NEWEST)] {
        check_scans(&memtable, &model, visibility);
        check_seeks(&memtable, &model, visibility, random, keys);
    }
}

#[test]
fn random_keys() {
    let mut random = Random::new("random_keys");
    let keys: Vec<_> = (0..100 * SCALE).map(|_| random.next().to_be_bytes().to_vec()).collect();
    check(&mut random, &keys, 2 * keys.len());
}

#[test]
fn ascending_and_descending_keys() {
    let mut random = Random::new("ascending_and_descending_keys");
    let mut keys: Vec<_> = (0..100 * SCALE).map(|n| format!("user{n:012}").into_bytes()).collect();
    check(&mut random, &keys, 2 * keys.len());
    keys.reverse();
    check(&mut random, &keys, 2 * keys.len());
}

#[test]
fn long_common_prefixes() {
    let mut random = Random::new("long_common_prefixes");
    let prefix = [b'x'; 60];
    let keys: Vec<_> = (0..80 * SCALE)
        .map(|_| {
            let group = random.below(3);
            let end = random.below(1 << 30);
            [&prefix[..20 + 20 * group], format!("{end:010}").as_bytes()].concat()
        })
        .collect();
    check(&mut random, &keys, 2 * keys.len());
}

#[test]
fn keys_that_are_prefixes_of_other_keys() {
    let mut random = Random::new("keys_that_are_prefixes_of_other_keys");
    let mut keys: Vec<Vec<u8>> = (0..60 * SCALE)
        .map(|_| {
            let length = random.below(24);
            (0..length).map(|_| [0, 0, b'a', 0xff][random.below(4)]).collect()
        })
        .collect();
    keys.push(Vec::new());
    check(&mut random, &keys, 2 * keys.len());
}

#[test]
fn hot_keys_retain_all_versions() {
    let mut random = Random::new("hot_keys_retain_all_versions");
    let keys: Vec<_> = (0..3_u8).map(|n| vec![n]).collect();
    check(&mut random, &keys, if cfg!(miri) { 150 } else { 30_000 });
}

#[test]
fn an_old_version_of_a_hot_key_is_found_in_few_steps() {
    let memtable = Memtable::new();
    let versions = if cfg!(miri) { 300 } else { 100_000 };
    for sequence in 1..=versions {
        memtable.insert(b"hot", Trailer::new(sequence, EntryKind::Put), &sequence.to_le_bytes());
    }
    // A walk over all newer versions would take minutes here.
    for max_sequence in 1..=versions {
        assert_eq!(memtable.get(b"hot", max_sequence).unwrap().1, max_sequence.to_le_bytes());
    }
    assert!(memtable.get(b"hot", 0).is_none());
}

#[test]
fn the_last_of_two_writes_with_one_sequence_number_wins() {
    let memtable = Arc::new(Memtable::new());
    for sequence in [3, 1, 2] {
        memtable.insert(b"k", Trailer::new(sequence, EntryKind::Put), b"first");
        memtable.insert(b"k", Trailer::new(sequence, EntryKind::Delete), b"");
    }
    assert_eq!(memtable.entries(), 3);
    let mut cursor = memtable.cursor(Visibility::All);
    cursor.seek_to_first().unwrap();
    for sequence in [3, 2, 1] {
        assert_eq!(cursor.trailer(), Trailer::new(sequence, EntryKind::Delete));
        cursor.next().unwrap();
    }
    assert!(!cursor.valid());
}

#[test]
fn an_empty_memtable_has_no_entries() {
    let memtable = Arc::new(Memtable::new());
    assert!(memtable.is_empty());
    assert_eq!((memtable.smallest_sequence(), memtable.largest_sequence()), (None, None));
    assert!(memtable.get(b"", u64::MAX >> 8).is_none());
    assert!(memtable.memory_bytes() <= 8 << 10);
    let mut cursor = memtable.cursor(Visibility::All);
    cursor.seek_to_first().unwrap();
    assert!(!cursor.valid());
    cursor.seek_to_last().unwrap();
    assert!(!cursor.valid());
    cursor.seek(b"k", 1).unwrap();
    assert!(!cursor.valid());
    cursor.seek_before(b"k").unwrap();
    assert!(!cursor.valid());
    cursor.next().unwrap();
    cursor.prev().unwrap();
    assert_eq!((cursor.key(), cursor.value(), cursor.trailer().bits()), (&[][..], &[][..], 0));
}

#[test]
fn large_keys_and_values_are_counted() {
    let memtable = Memtable::new();
    // The entry is larger than a quarter of the largest chunk, so that it gets a chunk of its own.
    let value = vec![7; if cfg!(miri) { 300_000 } else { 5 << 20 }];
    let key = vec![1; 262_143];
    memtable.insert(&key, Trailer::new(5, EntryKind::Put), &value);
    memtable.insert(b"", Trailer::new(4, EntryKind::Put), b"");
    assert_eq!(memtable.get(&key, 9).unwrap().1, value);
    assert_eq!(memtable.get(b"", 9).unwrap().1, b"");
    assert!(memtable.memory_bytes() >= value.len() + key.len());
    assert!(memtable.memory_bytes() <= value.len() + key.len() + (32 << 10));
    assert_eq!((memtable.smallest_sequence(), memtable.largest_sequence()), (Some(4), Some(5)));
}

#[test]
#[cfg(not(miri))]
fn memory_use_matches_the_layout() {
    let mut random = Random::new("memory_use_matches_the_layout");
    let memtable = Memtable::new();
    let entries = 100_000;
    for sequence in 1..=entries {
        let key = [random.next().to_be_bytes(), random.next().to_be_bytes()].concat();
        memtable.insert(&key, Trailer::new(sequence, EntryKind::Put), &[0; 100]);
    }
    let per_entry = memtable.memory_bytes() as u64 / entries;
    // Nodes and entries may each have an unused chunk of 2 MiB.
    assert!((170..=210 + (4 << 20) / entries).contains(&per_entry), "{per_entry} bytes for each entry");
}

#[test]
fn range_tombstones_cover_older_versions() {
    let memtable = Memtable::new();
    assert!(!memtable.has_range_tombstones());
    assert_eq!(memtable.newest_range_tombstone(b"c", 99), 0);
    memtable.delete_range(b"b", b"d", 10);
    memtable.delete_range(b"c", b"z", 20);
    memtable.delete_range(b"a", b"c", 30);
    assert!(memtable.has_range_tombstones() && !memtable.is_empty());
    let newest = |key: &[u8], max_sequence| memtable.newest_range_tombstone(key, max_sequence);
    assert_eq!((newest(b"b", 99), newest(b"b", 29), newest(b"b", 9)), (30, 10, 0));
    assert_eq!((newest(b"c", 99), newest(b"c", 19), newest(b"z", 99)), (20, 10, 0));
    assert_eq!(memtable.range_tombstones().len(), 3);
    assert_eq!((memtable.smallest_sequence(), memtable.largest_sequence()), (Some(10), Some(30)));
}
