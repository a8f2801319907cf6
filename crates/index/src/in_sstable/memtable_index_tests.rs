//! The index of a memtable against a list of its entries.

use std::cmp::Reverse;
use std::sync::Arc;

use bolide_base::limits::MAX_INDEXED_ELEMENTS;
use bolide_base::{EntryKind, SequenceNumber, Trailer, TreeId};
use bolide_lsm::attachments::Attachment;
use bolide_lsm::memtable::Memtable;

use super::SstableIndexBase;
use super::memtable_index::{MemtableIndex, NewestRange, SmallRange};
use crate::{JsonExtractor, Value};

/// Memory of an entry besides its bytes.
const ENTRY_BYTES: usize = 120;

/// An entry of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ModelEntry {
    key: Vec<u8>,
    sequence: SequenceNumber,
    repeated: bool,
}

/// A memtable, its index, and the expected entries.
struct Fixture {
    memtable: Arc<Memtable>,
    memtable_index: MemtableIndex,
    index: SstableIndexBase,
    entries: Vec<ModelEntry>,
    opaque: Vec<(SequenceNumber, Vec<u8>)>,
}

fn encoded(tag: &str) -> Vec<u8> {
    let mut key = Vec::new();
    Value::from(tag).encode(&mut key).unwrap();
    key
}

fn index_on(id: TreeId, on: &str) -> SstableIndexBase {
    SstableIndexBase::new(on.parse().unwrap(), id, 1, Some(Arc::new(JsonExtractor)))
}

impl Fixture {
    fn new() -> Self {
        Self {
            memtable: Arc::new(Memtable::new()),
            memtable_index: MemtableIndex::default(),
            index: index_on(77, "tags=tags[*]:embedded"),
            entries: Vec::new(),
            opaque: Vec::new(),
        }
    }

    /// Writes a record that has `tags`.
    fn put(&mut self, sequence: SequenceNumber, tags: &[&str]) {
        let primary_key = format!("p{}", sequence % 7).into_bytes();
        let record = format!("{{\"tags\":{tags:?}}}");
        self.memtable.insert(&primary_key, Trailer::new(sequence, EntryKind::Put), record.as_bytes());
        self.entries.extend(tags.iter().map(|tag| {
            let key = [&encoded(tag)[..], &(!sequence).to_be_bytes(), &primary_key].concat();
            ModelEntry { key, sequence, repeated: tags.len() > 1 }
        }));
    }

    /// Writes a record whose attributes cannot be extracted.
    fn put_opaque(&mut self, sequence: SequenceNumber, record: &[u8]) {
        let primary_key = format!("p{}", sequence % 7).into_bytes();
        self.memtable.insert(&primary_key, Trailer::new(sequence, EntryKind::Put), record);
        self.opaque.push((sequence, primary_key));
    }

    /// Writes records with tags of which many share their first bytes. Keys and sequence numbers are not in order.
    fn put_many(&mut self, sequences: std::ops::Range<u64>) {
        for number in sequences.clone() {
            let sequence =
                sequences.start + (number - sequences.start) * 5 % (sequences.end - sequences.start);
            let long = format!("longer than a head {}", sequence % 4);
            match sequence % 6 {
                0 => self.put(sequence, &["a", "b", &long]),
                1 => self.put(sequence, &["b"]),
                2 => self.put(sequence, &["longer", "z"]),
                3 => self.put(sequence, &[]),
                4 => self.put_opaque(sequence, b"{not json"),
                _ => self.put(sequence, &[&long]),
            }
        }
        let deleted = Trailer::new(sequences.end, EntryKind::Delete);
        self.memtable.insert(b"p1", deleted, br#"{"tags":["b"]}"#);
    }

    /// Entries from `low` on and below `end`, in order.
    fn range(&self, low: &[u8], end: &[u8]) -> Vec<ModelEntry> {
        let within = |entry: &&ModelEntry| low <= &entry.key[..] && &entry.key[..] < end;
        let mut range: Vec<ModelEntry> = self.entries.iter().filter(within).cloned().collect();
        range.sort_by(|a, b| a.key.cmp(&b.key));
        range
    }

    /// Calls `check` after each of several steps of writes; later steps include older writes.
    fn at_each_step(mut self, mut check: impl FnMut(&Self)) {
        check(&self);
        for sequences in [100..131, 131..150, 1..42, 60..61, 200..237] {
            self.put_many(sequences);
            check(&self);
        }
    }
}

/// Bounds of ranges: whole keys, parts of them, and keys with the first bytes of others.
fn bounds(fixture: &Fixture) -> Vec<Vec<u8>> {
    let tags = ["a", "b", "c", "longer", "longer than a head 1", "longer than a head 3", "z"];
    let mut bounds: Vec<Vec<u8>> = tags.iter().map(|tag| encoded(tag)).collect();
    bounds.push(encoded("longer t")[..8].to_vec());
    bounds.extend([Vec::new(), vec![0xff; 9]]);
    bounds.extend(fixture.entries.get(fixture.entries.len() / 2).map(|entry| entry.key.clone()));
    bounds
}

fn check_pairs(fixture: &Fixture, mut check: impl FnMut(&[u8], &[u8])) {
    let bounds = bounds(fixture);
    bounds.iter().for_each(|low| bounds.iter().for_each(|end| check(low, end)));
}

/// The visited entries, with the sequence numbers of the model.
fn entries_of(fixture: &Fixture, visited: &[(Vec<u8>, bool)]) -> Vec<ModelEntry> {
    let find = |(key, repeated): &(Vec<u8>, bool)| {
        let entry = fixture.entries.iter().find(|entry| entry.key == *key).expect("an entry of the model");
        ModelEntry { repeated: *repeated, ..entry.clone() }
    };
    visited.iter().map(find).collect()
}

#[test]
fn a_walk_visits_the_newest_entries_of_a_range() {
    Fixture::new().at_each_step(|fixture| {
        let mut by_age = fixture.entries.clone();
        by_age.sort_by_key(|entry| entry.sequence);
        let sequences = [0, 1, 41, 60, 61, 120, 131, 149, 1000];
        check_pairs(fixture, |low, end| {
            for (below, steps) in
                sequences.into_iter().flat_map(|below| [0, 1, 2, 7, 500].map(|s| (below, s)))
            {
                let mut visited = Vec::new();
                let wanted = NewestRange { low, end, below, steps };
                let visit = |key: &[u8], repeated| visited.push((key.to_vec(), repeated));
                let Fixture { memtable_index, memtable, index, .. } = fixture;
                let walked =
                    memtable_index.visit_newest(memtable, index, &JsonExtractor, &wanted, visit).unwrap();
                assert_eq!(walked.entries, by_age.len());

                let older = &by_age[..by_age.partition_point(|entry| entry.sequence < below)];
                let down_to = older.len().checked_sub(steps).and_then(|at| older.get(at)).map(|e| e.sequence);
                let is_walked =
                    |entry: &&ModelEntry| down_to.is_some_and(|down_to| entry.sequence >= down_to);
                let whole = older.len() <= steps || older.iter().all(|entry| is_walked(&entry));
                let mut expected: Vec<ModelEntry> = fixture.range(low, end);
                expected.retain(|entry| entry.sequence < below && (whole || is_walked(&entry)));
                expected.sort_by_key(|entry| (Reverse(entry.sequence), entry.key.clone()));
                let mut found = entries_of(fixture, &visited);
                assert!(found.is_sorted_by_key(|entry| Reverse(entry.sequence)));
                found.sort_by_key(|entry| (Reverse(entry.sequence), entry.key.clone()));
                assert_eq!(found, expected, "below {below}, {steps} steps");
                assert_eq!(walked.down_to, if whole { 0 } else { down_to.unwrap_or(0) });
            }
        });
    });
}

#[test]
fn a_small_range_yields_its_newest_entries() {
    Fixture::new().at_each_step(|fixture| {
        check_pairs(fixture, |low, end| {
            let range = fixture.range(low, end);
            for (below, newest) in [(0, 1), (60, 2), (120, 1), (1000, 2), (1000, 3), (1000, 1000)] {
                for max_entries in
                    [1, range.len(), range.len() + 1, 1000].into_iter().filter(|max_entries| *max_entries > 0)
                {
                    let mut visited = Vec::new();
                    let visit = |key: &[u8], repeated| visited.push((key.to_vec(), repeated));
                    let wanted = SmallRange { low, end, below, max_entries, newest };
                    let Fixture { memtable_index, memtable, index, .. } = fixture;
                    let down_to = memtable_index
                        .visit_small_range(memtable, index, &JsonExtractor, &wanted, visit)
                        .unwrap();
                    if range.len() >= max_entries {
                        assert_eq!((down_to, visited.len()), (None, 0));
                        continue;
                    }
                    let mut expected = range.clone();
                    expected.retain(|entry| entry.sequence < below);
                    expected.sort_by_key(|entry| (Reverse(entry.sequence), entry.key.clone()));
                    let oldest = if expected.len() > 2 * newest { expected[newest].sequence } else { 0 };
                    expected.retain(|entry| entry.sequence >= oldest);
                    let mut found = entries_of(fixture, &visited);
                    assert!(found.is_sorted_by_key(|entry| entry.sequence));
                    found.sort_by_key(|entry| (Reverse(entry.sequence), entry.key.clone()));
                    assert_eq!((down_to, found), (Some(oldest), expected));
                }
            }
        });
    });
}

#[test]
fn a_range_is_read_in_order_after_any_key_until_the_caller_stops() {
    Fixture::new().at_each_step(|fixture| {
        let read = |low: &[u8], after: Option<&[u8]>, end: &[u8], max_count: usize| {
            let mut visited = Vec::new();
            let Fixture { memtable_index, memtable, index, .. } = fixture;
            memtable_index
                .visit(memtable, index, &JsonExtractor, (low, after, end), |key, repeated| {
                    visited.push((key.to_vec(), repeated));
                    visited.len() < max_count
                })
                .unwrap();
            entries_of(fixture, &visited)
        };
        check_pairs(fixture, |low, end| {
            let range = fixture.range(low, end);
            assert_eq!(read(low, None, end, usize::MAX), range);
            assert_eq!(read(low, None, end, 2), range[..range.len().min(2)]);
            for (at, after) in range.iter().enumerate() {
                assert_eq!(read(low, Some(&after.key), end, usize::MAX), range[at + 1..]);
            }
            // After the end of the range, and at it.
            assert!(read(low, Some(&[0xff; 10]), end, usize::MAX).is_empty());
            assert!(read(low, Some(end), end, usize::MAX).is_empty());
        });
        let mut all = Vec::new();
        fixture.memtable_index.visit_all(&fixture.index, |key| all.push((key.to_vec(), false)));
        assert_eq!(all.len(), fixture.entries.len());
        fixture.memtable_index.visit_all(&index_on(78, "a:embedded"), |_| panic!("an index without entries"));
    });
}

#[test]
fn records_without_extracted_attributes_are_listed_up_to_a_sequence_number() {
    let mut fixture = Fixture::new();
    let array = |elements: usize| {
        let elements: Vec<_> = (0..elements).map(|element| element.to_string()).collect();
        format!("{{\"tags\":[{}]}}", elements.join(","))
    };
    fixture.put_opaque(50, array(MAX_INDEXED_ELEMENTS + 1).as_bytes());
    // The maximum number of values is indexed.
    let largest = array(MAX_INDEXED_ELEMENTS);
    fixture.memtable.insert(b"largest", Trailer::new(51, EntryKind::Put), largest.as_bytes());
    fixture.at_each_step(|fixture| {
        for sequence in [0, 1, 49, 50, 51, 100, 120, 1000] {
            let Fixture { memtable_index, memtable, index, .. } = fixture;
            let mut expected = fixture.opaque.clone();
            expected.retain(|(written, _)| *written <= sequence);
            expected.sort_by_key(|(written, _)| Reverse(*written));
            assert_eq!(memtable_index.opaque(memtable, index, &JsonExtractor, sequence).unwrap(), expected);
        }
    });
}

#[test]
fn the_share_of_a_range_is_exact_in_a_short_list() {
    Fixture::new().at_each_step(|fixture| {
        let Fixture { memtable_index, memtable, index, entries, .. } = fixture;
        memtable_index.opaque(memtable, index, &JsonExtractor, 0).unwrap();
        assert_eq!(memtable_index.share(&index_on(78, "a:embedded"), &[], &[0xff; 9], 9), None);
        check_pairs(fixture, |low, end| {
            let within = fixture.range(low, end).len();
            let all = entries.len().max(1) as f64;
            for max_count in [1, 3, within.max(1), within + 1, 1000] {
                let expected =
                    if within < max_count { within as f64 } else { (within as f64).max(max_count as f64) };
                assert_eq!(
                    memtable_index.share(index, low, end, max_count),
                    Some((expected / all, entries.len())),
                    "max_count {max_count}"
                );
            }
        });
    });
}

#[test]
fn the_share_of_a_range_in_a_long_list_is_sampled() {
    let mut fixture = Fixture::new();
    // The first half of the writes has "a", the second "b": in the list by age they are separate.
    for sequence in 1..=4000 {
        fixture.put(sequence, &[if sequence <= 2000 { "a" } else { "b" }]);
    }
    let Fixture { memtable_index, memtable, index, .. } = &fixture;
    memtable_index.opaque(memtable, index, &JsonExtractor, 0).unwrap();
    let share = |low: &str, end: &str, max_count| {
        memtable_index.share(index, &encoded(low), &encoded(end), max_count).unwrap()
    };
    assert_eq!(share("a", "b", 10), (0.5, 4000));
    assert_eq!(share("b", "c", 10), (0.5, 4000));
    assert_eq!(share("a", "c", 10), (1.0, 4000));
    // At least the counted share.
    assert_eq!(share("b", "c", 2000), (0.5, 4000));
    fixture.put(4001, &["c"]);
    let Fixture { memtable_index, memtable, index, .. } = &fixture;
    memtable_index.opaque(memtable, index, &JsonExtractor, 0).unwrap();
    assert_eq!(memtable_index.share(index, &encoded("c"), &encoded("d"), 1).unwrap(), (1.0 / 4001.0, 4001));
}

#[test]
fn the_memory_of_all_entries_is_counted_once() {
    let empty = size_of::<MemtableIndex>();
    assert_eq!(MemtableIndex::default().memory_bytes(), empty);
    Fixture::new().at_each_step(|fixture| {
        let Fixture { memtable_index, memtable, index, .. } = fixture;
        let entries = fixture.entries.iter().map(|entry| entry.key.len() + ENTRY_BYTES);
        let opaque = fixture.opaque.iter().map(|(_, key)| size_of::<u64>() + key.len() + ENTRY_BYTES);
        for _ in 0..2 {
            memtable_index.opaque(memtable, index, &JsonExtractor, 0).unwrap();
            assert_eq!(
                memtable_index.memory_bytes(),
                empty + entries.clone().chain(opaque.clone()).sum::<usize>()
            );
        }
    });
}
