//! Merges of fragments, compared with a model list.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use bolide_lsm::MergeOperator;
use bolide_lsm::compaction::{MergeContext, MergedOperands, Operand};

use super::merge::FRAGMENT_BYTES;
use super::*;
use crate::source::ForwardCursor;
use crate::standalone::dropped_postings::PostingFilter;
use crate::standalone::posting_list::{ListReader, ListStep, decode_fragment};

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A filter that retains all postings.
#[derive(Debug)]
struct AllAlive;

impl PostingFilter for AllAlive {
    fn are_dead(
        &self,
        writes: &[(&[u8], SequenceNumber)],
        _: SequenceNumber,
        _: bool,
        out: &mut Vec<bool>,
    ) -> Result<()> {
        out.resize(out.len() + writes.len(), false);
        Ok(())
    }
}

/// The fragments of one list, in the order of a tree.
struct Fragments(Vec<(SequenceNumber, Vec<u8>)>, usize);

impl ForwardCursor for Fragments {
    fn valid(&self) -> bool {
        self.1 < self.0.len()
    }

    fn key(&self) -> &[u8] {
        b"list"
    }

    fn value(&self) -> &[u8] {
        &self.0[self.1].1
    }

    fn sequence(&self) -> SequenceNumber {
        self.0[self.1].0
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.1 = 0;
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.1 += 1;
        Ok(())
    }
}

fn read(fragments: &[(SequenceNumber, Vec<u8>)]) -> Vec<(SequenceNumber, Vec<u8>)> {
    let mut reader = FragmentReader::new(Fragments(fragments.to_vec(), 0), 0);
    let mut postings = Vec::new();
    loop {
        match reader.step().unwrap() {
            ListStep::Posting => {
                let posting = reader.posting();
                postings.push((posting.sequence, posting.primary_key.to_vec()));
            }
            ListStep::Duplicate => {}
            ListStep::End => return postings,
            other => panic!("{other:?}"),
        }
    }
}

/// The fragment of a write: its posting, and the number of a removed posting.
fn written(sequence: SequenceNumber, key: Option<&[u8]>, removed: Option<SequenceNumber>) -> Vec<u8> {
    let mut change = ListChange::new();
    if let Some(key) = key {
        let added =
            ListOperation::Posting { primary_key: key.to_vec(), repeated: false, covering: Vec::new() };
        change.insert(Reverse(sequence), added);
    }
    if let Some(removed) = removed {
        change.insert(Reverse(removed), ListOperation::Removal);
    }
    fragment(sequence, &change)
}

fn index(maintenance: &str) -> LazyIndex {
    LazyIndex::new(format!("i=a:lazy:maintenance={maintenance}").parse().unwrap(), 1)
}

/// A list with postings, removals with synchronous maintenance, merges of adjacent components as in a tree, and late
/// back-fills.
fn random_list(seed: u64, synchronous: bool) {
    let mut random = Random(seed);
    let index = index(if synchronous { "synchronous" } else { "validation" });
    let operator = LazyMerge::new(&index.base.spec, AllAlive);
    // The components as sorted (number, fragment) lists, newest first.
    let mut components: Vec<MergedOperands> = vec![Vec::new()];
    let mut expected: BTreeMap<SequenceNumber, Vec<u8>> = BTreeMap::new();
    let mut skipped = Vec::new();
    let mut repeated: Vec<(SequenceNumber, Vec<u8>)> = Vec::new();
    for sequence in 1..400 {
        let key = format!("key{}", random.below(40)).into_bytes();
        let mut puts = true;
        let mut removed = None;
        if synchronous {
            removed = expected.iter().find(|(_, of)| **of == key).map(|(old, _)| *old);
            expected.retain(|old, _| Some(*old) != removed);
            puts = removed.is_none() || random.below(2) == 0;
        }
        if random.below(8) == 0 && removed.is_none() {
            skipped.push((sequence, format!("late{sequence}").into_bytes()));
            continue;
        }
        let mut write = |sequence, key: Option<&[u8]>, removed| {
            components[0].retain(|entry| entry.0 != sequence);
            components[0].push((sequence, written(sequence, key, removed)));
            components[0].sort_by_key(|entry| Reverse(entry.0));
        };
        write(sequence, puts.then_some(&key), removed);
        if puts {
            expected.insert(sequence, key);
        }
        if random.below(8) == 0
            && let Some((sequence, key)) = skipped.pop()
        {
            write(sequence, Some(&key), None);
            if !synchronous {
                repeated.push((sequence, key.clone()));
            }
            expected.insert(sequence, key);
        }
        if random.below(10) == 0
            && let Some((sequence, key)) = repeated.last()
        {
            write(*sequence, Some(key), None);
        }
        match random.below(12) {
            0 => components.insert(0, Vec::new()),
            1 => {
                // Merges some adjacent components; the last one is the bottom.
                let first = random.below(components.len() as u64) as usize;
                let last = first + random.below((components.len() - first) as u64) as usize;
                let bottom = last + 1 == components.len();
                let mut merged: MergedOperands = components.drain(first..=last).flatten().collect();
                merged.sort_by_key(|entry| Reverse(entry.0));
                let operands: Vec<_> =
                    merged.iter().map(|(sequence, value)| Operand { sequence: *sequence, value }).collect();
                let context = MergeContext { read_from: sequence, above: 0, bottom, flush: false };
                let mut out = Vec::new();
                operator.merge(b"list", &operands, &context, &mut out).unwrap();
                assert!(out.is_sorted_by(|newer, older| newer.0 > older.0), "seed {seed}");
                components.insert(first, out);
                if first == 0 {
                    components.insert(0, Vec::new());
                }
            }
            _ => {}
        }
        let mut all: MergedOperands = components.iter().flatten().cloned().collect();
        all.sort_by_key(|entry| Reverse(entry.0));
        let mut found = read(&all);
        assert!(found.is_sorted_by(|newer, older| newer.0 > older.0), "newest first, seed {seed}");
        let mut wanted: Vec<_> = expected.clone().into_iter().rev().collect();
        if !synchronous {
            // Merges may drop older postings of a key.
            for list in [&mut found, &mut wanted] {
                let mut seen = BTreeSet::new();
                list.retain(|(_, key)| seen.insert(key.clone()));
            }
        }
        assert_eq!(found, wanted, "seed {seed}, write {sequence}");
    }
}

#[test]
fn random_lists_match_the_model() {
    for seed in 0..40 {
        random_list(seed, false);
        random_list(seed, true);
    }
}

#[test]
fn a_merged_list_is_split_into_fragments_of_bounded_size() {
    let index = index("validation");
    let operator = LazyMerge::new(&index.base.spec, AllAlive);
    let write = |sequence: u64| {
        (sequence, written(sequence, Some(format!("primary key {sequence}").as_bytes()), None))
    };
    let written: Vec<_> = (1..=2_000_u64).rev().map(write).collect();
    let operands: Vec<_> =
        written.iter().map(|(sequence, value)| Operand { sequence: *sequence, value }).collect();
    let context = MergeContext { read_from: 9_999, above: 0, bottom: true, flush: true };
    let mut merged = Vec::new();
    operator.merge(b"list", &operands, &context, &mut merged).unwrap();
    assert!(merged.len() > 2 && merged.iter().all(|(_, bytes)| bytes.len() < FRAGMENT_BYTES + 100));
    assert_eq!(read(&merged), read(&written));
    // The number of an entry is that of its first posting, so the newest postings cost only the first fragment.
    for (sequence, fragment) in &merged {
        assert_eq!(decode_fragment(fragment, *sequence, 0).unwrap()[0].sequence, *sequence);
    }
    // No fragment starts at or below the bound, and malformed operands are retained unchanged.
    merged.clear();
    operator.merge(b"list", &operands, &MergeContext { above: 1_900, ..context }, &mut merged).unwrap();
    assert!(merged.iter().all(|(sequence, _)| *sequence > 1_900));
    assert_eq!(read(&merged), read(&written));
    merged.clear();
    let broken = [operands[0], Operand { sequence: 7, value: &[0xff] }];
    operator.merge(b"list", &broken, &context, &mut merged).unwrap();
    assert_eq!(merged, [written[0].clone(), (7, vec![0xff])]);
}

#[test]
fn a_malformed_fragment_is_reported_and_skipped() {
    let good = written(5, Some(b"k"), None);
    let mut reader = FragmentReader::new(Fragments(vec![(9, vec![0, 9]), (5, good)], 0), 0);
    assert_eq!(reader.step().unwrap(), ListStep::Malformed);
    assert_eq!(reader.step().unwrap(), ListStep::Posting);
    assert_eq!((reader.posting().primary_key, reader.posting().sequence), (&b"k"[..], 5));
    assert_eq!(reader.step().unwrap(), ListStep::End);
}
