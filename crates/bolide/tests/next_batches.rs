//! Queries by an index of kind `next` that read many records at once: more than are sorted, more than are pinned in
//! memory, and some of them replaced, deleted or not flushed yet. A map contains the expected answers.

mod support;

use std::collections::BTreeMap;

use bolide::{
    Collection, CollectionOptions, Components, Db, FindOptions, Options, Order, Query, SequenceNumber,
    Snapshot,
};
use support::{tiny, tiny_collection};

/// The content of a collection: by key the value of `a`, and the record; in the order of their writes.
#[derive(Debug, Clone, Default)]
struct Model {
    written: u64,
    rows: BTreeMap<Vec<u8>, (u64, u64, Vec<u8>)>,
}

impl Model {
    fn put(&mut self, records: &Collection, key: &[u8], value: u64, len: usize) {
        self.written += 1;
        let mut record = format!(r#"{{"a":{value},"n":{},"pad":""#, self.written).into_bytes();
        record.resize(record.len().max(len.saturating_sub(2)), b'x');
        record.extend_from_slice(b"\"}");
        records.put(key, &record).unwrap();
        self.rows.insert(key.to_vec(), (self.written, value, record));
    }

    /// The keys and records with values from `low` on and below `end`, newest first.
    fn within(&self, low: u64, end: u64) -> Vec<(&[u8], &[u8])> {
        let within = self.rows.iter().filter(|(_, (_, value, _))| (low..end).contains(value));
        let mut rows: Vec<_> = within.collect();
        rows.sort_by_key(|(_, (written, ..))| std::cmp::Reverse(*written));
        rows.into_iter().map(|(key, (.., record))| (&key[..], &record[..])).collect()
    }

    /// Queries all, and some, in each order of recency, with records and without.
    fn check(&self, records: &Collection, low: u64, end: u64, snapshot: Option<&Snapshot>) {
        let newest = self.within(low, end);
        let options = match snapshot {
            Some(snapshot) => FindOptions::default().snapshot(snapshot),
            None => FindOptions::default(),
        };
        let base = Query::new().range("a", low..end).using_index("a");
        for limit in [usize::MAX, 7, newest.len() / 2 + 1] {
            for order in [Order::Newest, Order::Oldest] {
                let query = if limit == usize::MAX { base.clone() } else { base.clone().limit(limit) };
                let query = query.order(order);
                let mut expected = newest.clone();
                if order == Order::Oldest {
                    expected.reverse();
                }
                expected.truncate(limit);
                let found = records.find_with(&query, &options).unwrap();
                let numbers: Vec<SequenceNumber> = found.iter().map(|answer| answer.sequence).collect();
                let is_sorted = match order {
                    Order::Oldest => numbers.is_sorted_by(|left, right| left < right),
                    _ => numbers.is_sorted_by(|left, right| left > right),
                };
                assert!(is_sorted, "{order:?}, {limit}");
                let rows = found.iter().map(|it| (&it.key[..], it.record.as_deref().unwrap()));
                assert!(rows.eq(expected.iter().copied()), "{order:?}, {limit}: {} answers", found.len());
                let keys = records.find_with(&query.keys_only(), &options).unwrap();
                let keys = keys.iter().map(|it| &it.key[..]);
                assert!(keys.eq(expected.iter().map(|(key, _)| *key)), "{order:?}, {limit}");
            }
        }
    }
}

#[test]
fn more_answers_than_are_sorted_are_in_order() {
    let db =
        Db::open_with("db", Options::default().memtable_bytes(1 << 20), Components::in_memory()).unwrap();
    let records = CollectionOptions::json().index("a:next".parse().unwrap());
    let records = db.create_collection("records", records).unwrap();
    let mut model = Model::default();
    // More than 65,536 of them within the range.
    for number in 0..70_000_u64 {
        let key = number.wrapping_mul(0x2545_f491_4f6c_dd1d).to_be_bytes();
        model.put(&records, &key, number % 1_000, 0);
    }
    db.flush().unwrap();
    for (low, end, streams) in [(0, 1_000, false), (3, 60, true)] {
        let query = Query::new().range("a", low..end).using_index("a");
        let found = records.find(&query).unwrap();
        assert_eq!(found.explain().streamed, streams);
        let expected = model.within(low, end);
        let keys = found.iter().map(|answer| &answer.key[..]);
        assert!(keys.eq(expected.iter().map(|(key, _)| *key)), "{low}..{end}");
    }
}

#[test]
fn records_beyond_the_memory_limit_are_returned_too() {
    // About 50 MB. If records share blocks, all are read at once: the first 16 MiB are pinned, the next ones copied
    // except for the longest, the last ones neither. If almost each is in a block of its own, all fit, some at a time.
    for (count, width, has_room) in [(22_000_u64, 1_700, false), (13_000, 3_600, true)] {
        let options = Options::default().memtable_bytes(4 << 20);
        let db = Db::open_with("db", options, Components::in_memory()).unwrap();
        let records = CollectionOptions::json().index("a:next".parse().unwrap());
        let records = db.create_collection("records", records).unwrap();
        let mut model = Model::default();
        for number in 0..count {
            let key = number.wrapping_mul(0x2545_f491_4f6c_dd1d).to_be_bytes();
            model.put(&records, &key, number % 10, if number % 8 == 0 { 6_000 } else { width });
        }
        db.flush().unwrap();
        let found = records.find(&Query::new().range("a", 0..10).using_index("a")).unwrap();
        let rows = found.iter().map(|answer| (&answer.key[..], answer.record.as_deref().unwrap()));
        assert!(rows.eq(model.within(0, 10)), "{} answers", found.len());
        let explain = found.explain();
        let fetched = explain.records_fetched;
        assert!((fetched == 0) == has_room && explain.records_in_hand > 8_000, "{explain}");
    }
}

#[test]
fn replaced_deleted_and_unflushed_records_are_distinguished() {
    let db = Db::open_with("db", tiny(), Components::in_memory()).unwrap();
    let records =
        db.create_collection("records", tiny_collection().index("a:next".parse().unwrap())).unwrap();
    let mut model = Model::default();
    let key = |number: u64| format!("{number:04}").into_bytes();
    for number in 0..2_000 {
        model.put(&records, &key(number), number % 40, 90);
    }
    // All in sstables.
    db.flush().unwrap();
    model.check(&records, 5, 15, None);
    for number in (0..2_000).step_by(3) {
        model.put(&records, &key(number), (number + 1) % 40, 60);
    }
    let before = (db.snapshot(), model.clone());
    for number in (0..2_000).step_by(7) {
        records.delete(&key(number)).unwrap();
        model.rows.remove(&key(number));
    }
    records.delete_range(key(1_200)..key(1_300)).unwrap();
    model.rows.retain(|other, _| !(key(1_200)..key(1_300)).contains(other));
    for number in (0..2_000).step_by(11) {
        model.put(&records, &key(number), (number + 2) % 40, 60);
    }
    // Some of the records in memtables, then none, then compacted.
    for step in 0..3 {
        model.check(&records, 5, 15, None);
        model.check(&records, 0, 40, None);
        before.1.check(&records, 5, 15, Some(&before.0));
        match step {
            0 => db.flush().unwrap(),
            _ => db.compact().unwrap(),
        }
    }
}
