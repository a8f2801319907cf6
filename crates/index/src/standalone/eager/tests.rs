//! Lists under random batches, compared with a model at every snapshot.

use std::collections::BTreeMap;

use bolide_base::SequenceNumber;

use super::*;
use crate::attribute::Value;
use crate::attribute_plan::{AttributePlan, AttributeValues};
use crate::model::{ModelView, ModelWrites, TABLE};
use crate::secondary_index::{DeletedRange, StagedChange, slots_of};
use crate::source::{EntryCursor, ForwardCursor};
use crate::standalone::posting_list::{ListReader, ListStep};

const TREE: TreeId = TABLE + 1;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// The value and the sequence number of each record.
type Records = BTreeMap<Vec<u8>, (SequenceNumber, u64)>;

struct Lists {
    index: EagerIndex,
    view: ModelView,
    last: SequenceNumber,
    /// The records at every possible view.
    history: BTreeMap<SequenceNumber, Records>,
    records: Records,
}

/// A change of one batch: the key, and the value of a put.
type Change = (Vec<u8>, Option<u64>);

impl Lists {
    fn new(options: &str) -> Self {
        let index = EagerIndex::new(format!("i=a:eager{options}").parse().unwrap(), TREE);
        let (history, records) = (BTreeMap::from([(0, Records::new())]), Records::new());
        Self { index, view: ModelView::default(), last: 0, history, records }
    }

    /// Commits a batch of changes of distinct keys, after an optional deletion of a range.
    fn commit(&mut self, changes: &[Change], deleted: Option<(&[u8], &[u8])>) -> Result<()> {
        let before = self.view.at(self.last);
        let spec = self.index.base.spec.clone();
        let plan = AttributePlan::new(spec.paths().cloned());
        let slots = slots_of(&spec, &plan).unwrap();
        let values = |value: Option<u64>| {
            let mut values = AttributeValues::new();
            value.iter().for_each(|value| values.push(0, &Value::Uint(*value)).unwrap());
            values.finish();
            values
        };
        // The deletion comes first, so that it does not cover the puts.
        let first = self.last + 1 + u64::from(deleted.is_some());
        let deleted: Vec<DeletedRange> = deleted
            .iter()
            .map(|(start, end)| DeletedRange {
                start: start.to_vec(),
                end: end.to_vec(),
                sequence: first - 1,
            })
            .collect();
        let old = |key: &[u8]| self.records.get(key).copied();
        let all: Vec<_> = changes
            .iter()
            .map(|(key, value)| (values(old(key).map(|(_, value)| value)), values(*value)))
            .collect();
        let mut staged = Vec::new();
        for (number, ((key, value), (of_old, of_new))) in changes.iter().zip(&all).enumerate() {
            let sequence = first + number as u64;
            let indexed = |sequence, values| IndexedRecord {
                primary_key: key,
                sequence: Some(sequence),
                values,
                slots: &slots,
            };
            staged.push(StagedChange {
                sequence,
                old: old(key).map(|(written, _)| indexed(written, of_old)),
                new: value.map(|_| indexed(sequence, of_new)),
            });
        }
        let batch = StagedBatch { table: TABLE, changes: &staged, deleted: &deleted };
        let mut out = ModelWrites { view: &self.view, sequence: 0 };
        self.index.stage(&batch, &before, &mut Vec::new(), &mut out)?;
        for DeletedRange { start, end, sequence } in &deleted {
            self.view.write_range(TABLE, start, end, *sequence);
            self.records.retain(|key, _| !(*start <= *key && *key < *end));
        }
        for (number, (key, value)) in changes.iter().enumerate() {
            let sequence = first + number as u64;
            self.view.write(TABLE, key, value.map(|_| &b""[..]), sequence);
            match value {
                Some(value) => self.records.insert(key.clone(), (sequence, *value)),
                None => self.records.remove(key),
            };
        }
        self.last = first + changes.len() as u64 - 1;
        self.history.insert(self.last, self.records.clone());
        Ok(())
    }

    /// The postings of every list at `view`.
    fn read(&self, view: &ModelView) -> BTreeMap<Vec<u8>, Vec<(SequenceNumber, Vec<u8>)>> {
        let mut reader = self.index.reader(view, &[], None).unwrap();
        let mut lists: BTreeMap<Vec<u8>, Vec<_>> = BTreeMap::new();
        loop {
            match reader.step().unwrap() {
                ListStep::Posting => {
                    let posting = reader.posting();
                    let list = lists.entry(reader.secondary_key().to_vec()).or_default();
                    list.push((posting.sequence, posting.primary_key.to_vec()));
                }
                ListStep::End => return lists,
                other => panic!("{other:?}"),
            }
        }
    }

    /// Compares the validated postings of the lists with the records, at every number.
    fn assert_matches_model(&self, what: &str) {
        for (sequence, records) in &self.history {
            let view = self.view.at(*sequence);
            let table = view.tree(TABLE).unwrap();
            let validator: &dyn Validator<_> = self.index.base.validator();
            let mut found = BTreeMap::new();
            for (key, list) in self.read(&view) {
                assert!(list.is_sorted_by(|newer, older| newer.0 > older.0), "{what}");
                for (written, primary_key) in list {
                    let verdict = validator.verdict(&table, &primary_key, written).unwrap();
                    if verdict == crate::validation::Verdict::Current {
                        let Some((Value::Int(value), _)) = Value::decode(&key) else { panic!("a number") };
                        assert!(found.insert(primary_key, (written, value as u64)).is_none(), "{what}");
                    }
                }
            }
            assert_eq!(found, *records, "{what}, at {sequence}");
        }
    }

    /// Sizes of the pieces of all lists, newest first in each.
    fn pieces(&self) -> Vec<usize> {
        let mut cursor = self.view.at(self.last).tree(TREE).unwrap().cursor(&[], None).unwrap();
        let mut sizes = Vec::new();
        cursor.seek_to_first().unwrap();
        while cursor.valid() {
            sizes.push(cursor.value().len());
            cursor.next().unwrap();
        }
        sizes
    }
}

fn random_batches(seed: u64, options: &str) {
    let mut random = Random(seed);
    let mut lists = Lists::new(options);
    // Long keys fill pieces fast.
    let key = |number: u64| format!("{number:0>300}").into_bytes();
    for _ in 0..60 {
        let mut changes: BTreeMap<Vec<u8>, Option<u64>> = BTreeMap::new();
        for _ in 0..=random.below(6) {
            let value = (random.below(5) > 0).then(|| random.below(3));
            changes.insert(key(random.below(60)), value);
        }
        let (start, end) = (key(random.below(60)), key(random.below(60)));
        let deleted = (random.below(8) == 0).then_some((&start[..], &end[..]));
        lists.commit(&changes.into_iter().collect::<Vec<_>>(), deleted).unwrap();
    }
    lists.assert_matches_model(&format!("{options}, seed {seed}"));
}

#[test]
fn random_batches_match_the_model() {
    for seed in 0..20 {
        for options in ["", ":split=off", ":maintenance=synchronous", ":split=off,maintenance=synchronous"] {
            random_batches(seed, options);
        }
    }
}

#[test]
fn full_pieces_are_not_rewritten() {
    let mut lists = Lists::new("");
    for number in 0..2_000_u64 {
        lists.commit(&[(number.to_be_bytes().to_vec(), Some(1))], None).unwrap();
    }
    let pieces = lists.pieces();
    assert!(pieces.len() > 4 && pieces.iter().all(|bytes| *bytes < PIECE_BYTES + 100), "{pieces:?}");
    assert!(pieces[1..].iter().all(|bytes| *bytes > PIECE_BYTES / 2), "{pieces:?}");
    // The oldest piece was last written when it became full.
    let mut cursor = lists.view.at(lists.last).tree(TREE).unwrap().cursor(&[], None).unwrap();
    cursor.seek_to_last().unwrap();
    assert!(cursor.sequence() < 500);
    let whole = {
        let mut lists = Lists::new(":split=off");
        (0..2_000_u64).for_each(|number| {
            lists.commit(&[(number.to_be_bytes().to_vec(), Some(1))], None).unwrap();
        });
        lists
    };
    assert_eq!(whole.pieces().len(), 1);
    assert_eq!(whole.read(&whole.view.at(whole.last)), lists.read(&lists.view.at(lists.last)));
}

#[test]
fn a_back_fill_inserts_between_existing_postings() {
    back_fill(8);
}

#[test]
fn a_back_fill_inserts_into_pieces_of_few_postings() {
    back_fill(1_200);
}

/// Back-fills a list with records whose keys have `key_bytes` bytes.
fn back_fill(key_bytes: usize) {
    let mut random = Random(1);
    let mut lists = Lists::new("");
    let plan = AttributePlan::new(lists.index.base.spec.paths().cloned());
    let slots = slots_of(&lists.index.base.spec, &plan).unwrap();
    let mut values = AttributeValues::new();
    values.push(0, &Value::Int(1)).unwrap();
    values.finish();
    // Old records in random order, with concurrent new ones.
    let mut old: Vec<u64> = (1..1_500).collect();
    (1..old.len()).rev().for_each(|at| old.swap(at, random.below(at as u64 + 1) as usize));
    lists.last = 1_500;
    for (round, numbers) in old.chunks(7).enumerate() {
        lists.last += 1;
        let key = |number: &u64| {
            let mut key = number.to_be_bytes().to_vec();
            key.resize(key_bytes, b'k');
            key
        };
        let keys: Vec<Vec<u8>> = numbers.iter().map(key).collect();
        let changes: Vec<_> = numbers
            .iter()
            .zip(&keys)
            .map(|(number, key)| StagedChange {
                sequence: lists.last,
                old: None,
                new: Some(IndexedRecord {
                    primary_key: key,
                    sequence: Some(*number),
                    values: &values,
                    slots: &slots,
                }),
            })
            .collect();
        // Sometimes twice, as after an interrupted build.
        for _ in 0..=u64::from(random.below(5) == 0) {
            let view = lists.view.at(lists.last);
            lists.last += 1;
            let mut out = ModelWrites { view: &lists.view, sequence: 0 };
            let changes: Vec<_> =
                changes.iter().map(|change| StagedChange { sequence: lists.last, ..*change }).collect();
            let batch = StagedBatch { table: TABLE, changes: &changes, deleted: &[] };
            lists.index.stage(&batch, &view, &mut Vec::new(), &mut out).unwrap();
        }
        lists.commit(&[(format!("new{round}").into_bytes(), Some(1))], None).unwrap();
    }
    let list = lists.read(&lists.view.at(lists.last)).into_values().next().unwrap();
    assert!(list.is_sorted_by(|newer, older| newer.0 > older.0));
    assert_eq!(list.iter().filter(|(_, key)| !key.starts_with(b"new")).count(), old.len());
    assert_eq!(list.len(), old.len() + old.len().div_ceil(7));
    let pieces = lists.pieces();
    let total: usize = pieces.iter().sum();
    assert!(pieces.len() < 3 * total.div_ceil(PIECE_BYTES), "pieces are not too small: {pieces:?}");
}

#[test]
fn malformed_pieces_are_reported_and_skipped() {
    let mut lists = Lists::new("");
    lists.commit(&[(b"k".to_vec(), Some(1))], None).unwrap();
    let mut list = Vec::new();
    Value::Int(1).encode(&mut list).unwrap();
    let broken = |from: u64| piece_key::piece_key(&list, from);
    // A removal, a posting of another piece, a key without a number.
    lists.view.write(TREE, &broken(9), Some(&[1]), 10);
    lists.view.write(TREE, &broken(8), Some(&[2 << 2, 1, b'k']), 9);
    lists.view.write(TREE, b"x", Some(&[]), 8);
    let view = lists.view.at(20);
    let mut reader = lists.index.reader(&view, &[], None).unwrap();
    for expected in
        [ListStep::Malformed, ListStep::Malformed, ListStep::Posting, ListStep::Malformed, ListStep::End]
    {
        assert_eq!(reader.step().unwrap(), expected);
    }
    // A commit does not change a malformed list.
    lists.last = 20;
    let changed = lists.commit(&[(b"l".to_vec(), Some(1))], None);
    assert_eq!(changed.unwrap_err().kind(), bolide_base::ErrorKind::Corruption);
}
