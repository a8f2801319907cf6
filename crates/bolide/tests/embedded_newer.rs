//! An embedded index reads records of one component while newer versions are in others: the answers are those of a
//! scan, and no record is fetched that the index has already read.

mod support;

use bolide::{Collection, Db, EmbeddedCosts, Layout, Options, Order, Query, Snapshot};
use support::{components, tiny, tiny_collection};

/// A database whose collection has embedded indexes `n` and `both`, without compactions of its own.
fn open(layout: Layout) -> (Db, Collection) {
    let options: Options = tiny().memtable_bytes(4 << 20);
    let db = Db::open_with("db", options, components(1)).unwrap();
    let collection = tiny_collection().layout(layout).target_file_bytes(1 << 20);
    let collection = ["n:embedded", "both=n+m:embedded"]
        .iter()
        .fold(collection, |collection, spec| collection.index(spec.parse().unwrap()));
    let collection = db.create_collection("c", collection).unwrap();
    (db, collection)
}

fn put(collection: &Collection, key: u64, n: u64) {
    put_wide(collection, key, n, 40);
}

fn put_wide(collection: &Collection, key: u64, n: u64, pad: usize) {
    let record = format!(r#"{{"n":{n},"m":{key},"pad":"{:x>pad$}"}}"#, "");
    collection.put(&key.to_be_bytes(), record.as_bytes()).unwrap();
}

/// The queries of the tests: points, ranges, orders, residual predicates, limits.
fn queries() -> Vec<Query> {
    let mut queries = Vec::new();
    for order in [Order::Newest, Order::Oldest, Order::Value, Order::ValueDescending] {
        for limit in [1, 3, usize::MAX] {
            let ranges = [
                Query::new().range("n", 1..=2),
                Query::new().range("n", 0..1000),
                Query::new().range("n", 0..1000).range("m", 3..90),
            ];
            let points =
                [Query::new().eq("n", 1), Query::new().eq("n", 2), Query::new().eq("n", 1).range("m", 3..90)];
            // Values order ranges only.
            let by_value = matches!(order, Order::Value | Order::ValueDescending);
            let selected = ranges.into_iter().chain(points.into_iter().filter(|_| !by_value));
            queries.extend(selected.map(|query| query.order(order).limit(limit)));
        }
    }
    queries
}

/// Compares each index with a scan: records, keys and counts; returns the number of fetched records.
fn compare(collection: &Collection, scanned: &Collection, at: Option<&Snapshot>) -> u64 {
    let find = |collection: &Collection, query: &Query| match at {
        Some(at) => collection.find_at(at, query).unwrap(),
        None => collection.find(query).unwrap(),
    };
    let mut fetched = 0;
    for query in queries() {
        let expected = find(scanned, &query);
        assert!(expected.explain().is_full_scan());
        for index in ["n", "both"] {
            let query = query.clone().using_index(index);
            let answers = find(collection, &query);
            fetched += answers.explain().records_fetched;
            let rows = |answers: &bolide::Answers| {
                answers.iter().map(|answer| (answer.key.clone(), answer.record.clone())).collect::<Vec<_>>()
            };
            assert_eq!(rows(&answers), rows(&expected), "{index}: {query:?}");
            let keys = find(collection, &query.clone().keys_only());
            assert!(keys.iter().map(|answer| &answer.key).eq(expected.iter().map(|answer| &answer.key)));
            assert_eq!(find(collection, &query.count()).count(), expected.count());
        }
    }
    fetched
}

/// Runs the same writes on a collection with indexes and on one without, and compares after each step.
struct Pair {
    db: Db,
    indexed: Collection,
    plain: Collection,
}

impl Pair {
    fn new(layout: Layout) -> Self {
        let (db, indexed) = open(layout);
        let plain = db.create_collection("plain", tiny_collection().target_file_bytes(1 << 20)).unwrap();
        Self { db, indexed, plain }
    }

    fn put(&self, key: u64, n: u64) {
        let _ = [&self.indexed, &self.plain].map(|collection| put(collection, key, n));
    }

    fn delete(&self, key: u64) {
        let _ = [&self.indexed, &self.plain].map(|collection| collection.delete(&key.to_be_bytes()).unwrap());
    }

    fn delete_range(&self, from: u64, to: u64) {
        let (from, to) = (from.to_be_bytes(), to.to_be_bytes());
        let _ = [&self.indexed, &self.plain]
            .map(|collection| collection.delete_range(from.as_slice()..to.as_slice()).unwrap());
    }

    fn check(&self, at: Option<&Snapshot>) -> u64 {
        compare(&self.indexed, &self.plain, at)
    }
}

const LAYOUTS: [Layout; 2] = [Layout::Leveled, Layout::Tiered];

#[test]
fn updates_in_the_same_memtable_and_in_the_same_flush() {
    for layout in LAYOUTS {
        let pair = Pair::new(layout);
        let early = pair.db.snapshot();
        for key in 0..100 {
            pair.put(key, key % 3);
        }
        let middle = pair.db.snapshot();
        for key in (0..100).step_by(2) {
            pair.put(key, 1 + key % 3);
        }
        pair.delete(7);
        for _ in 0..3 {
            pair.check(None);
            pair.check(Some(&early));
            pair.check(Some(&middle));
            pair.db.flush().unwrap();
            pair.db.compact().unwrap();
        }
    }
}

#[test]
fn a_key_whose_newest_version_was_compacted_below_components_of_newer_sequences() {
    for layout in LAYOUTS {
        let pair = Pair::new(layout);
        for key in 0..100 {
            pair.put(key, key % 3);
        }
        pair.db.flush().unwrap();
        for key in (0..100).step_by(3) {
            pair.put(key, (key + 1) % 3);
        }
        // Old and new versions in one component, whose range of sequence numbers spans both.
        pair.db.flush().unwrap();
        let snapshot = pair.db.snapshot();
        pair.db.compact().unwrap();
        for key in (0..100).step_by(5) {
            pair.put(key, 2 - key % 3);
        }
        pair.db.flush().unwrap();
        pair.check(None);
        pair.check(Some(&snapshot));
        // A component with newer sequence numbers and the same range of keys that has none of the keys.
        pair.put(1000, 1);
        pair.put(0, 2);
        pair.delete(99);
        pair.db.flush().unwrap();
        pair.check(None);
        pair.check(Some(&snapshot));
        pair.db.compact().unwrap();
        pair.check(None);
        pair.check(Some(&snapshot));
    }
}

#[test]
fn tiered_runs_with_overlapping_keys_and_sequences() {
    let pair = Pair::new(Layout::Tiered);
    let mut snapshots = Vec::new();
    for round in 0..9 {
        for key in 0..60 {
            if (key + round) % 4 != 0 {
                pair.put(key, (key * 7 + round) % 5);
            }
        }
        snapshots.push(pair.db.snapshot());
        if round % 2 == 0 {
            pair.db.flush().unwrap();
        }
        pair.check(snapshots.get(round as usize / 2));
        pair.check(None);
    }
    for snapshot in &snapshots {
        pair.check(Some(snapshot));
    }
}

#[test]
fn ranges_deleted_in_newer_components() {
    for layout in LAYOUTS {
        let pair = Pair::new(layout);
        for key in 0..100 {
            pair.put(key, key % 3);
        }
        pair.db.flush().unwrap();
        let before = pair.db.snapshot();
        pair.delete_range(20, 40);
        // In the memtable, in an sstable, and with records put back into the range.
        for step in 0..3 {
            pair.check(None);
            pair.check(Some(&before));
            pair.put(25 + step, 1);
            pair.db.flush().unwrap();
        }
        pair.check(None);
        pair.db.compact().unwrap();
        pair.check(None);
        pair.check(Some(&before));
    }
}

#[test]
fn many_versions_of_one_key_over_many_blocks() {
    for layout in LAYOUTS {
        let pair = Pair::new(layout);
        let mut snapshots = Vec::new();
        for version in 0..60 {
            pair.put(5, version % 3);
            pair.put(6 + version % 2, 1);
            snapshots.push(pair.db.snapshot());
        }
        pair.db.flush().unwrap();
        for snapshot in snapshots.iter().step_by(7) {
            pair.check(Some(snapshot));
        }
        pair.db.compact().unwrap();
        for snapshot in snapshots.iter().step_by(7) {
            pair.check(Some(snapshot));
        }
        drop(snapshots);
        pair.db.compact().unwrap();
        pair.check(None);
    }
}

#[test]
fn records_that_the_index_has_read_are_not_fetched_again() {
    let (db, collection) = open(Layout::Leveled);
    for key in 0..400 {
        put(&collection, key, key / 10);
    }
    db.flush().unwrap();
    db.compact().unwrap();
    let explain = |query: &Query| collection.find(query).unwrap().explain().clone();
    for query in [
        Query::new().range("n", 5..=20),
        Query::new().range("n", 5..=20).limit(7),
        Query::new().eq("n", 30),
        Query::new().range("n", 5..=20).range("m", 55..90),
        Query::new().range("n", 5..=20).order(Order::Value),
        Query::new().range("n", 5..=20).order(Order::Oldest).limit(9),
    ] {
        let records = explain(&query.clone().using_index("n"));
        assert!(records.answers > 0);
        assert_eq!((records.records_fetched, records.unknown), (0, 0), "{query:?}: {records:?}");
        assert!(records.records_in_hand >= records.answers, "{query:?}");
        let keys = explain(&query.keys_only().using_index("n"));
        assert_eq!((keys.answers, keys.unknown, keys.records_fetched), (records.answers, 0, 0));
    }
}

#[test]
fn records_too_long_to_be_passed_on_are_fetched() {
    let (db, collection) = open(Layout::Leveled);
    for key in 0..30 {
        put_wide(&collection, key, 1, if key % 2 == 0 { 10 } else { 9_000 });
    }
    db.flush().unwrap();
    let answers = collection.find(&Query::new().eq("n", 1).using_index("n")).unwrap();
    assert_eq!(answers.count(), 30);
    assert_eq!((answers.explain().records_fetched, answers.explain().records_in_hand), (15, 15));
    for (answer, key) in answers.iter().zip((0..30_u64).rev()) {
        assert_eq!(answer.key, key.to_be_bytes());
        assert_eq!(answer.record.as_ref().unwrap().len() > 9_000, key % 2 == 1);
    }
}

#[test]
fn the_newest_of_a_wide_range_in_a_large_memtable() {
    let pair = Pair::new(Layout::Leveled);
    let early = pair.db.snapshot();
    for write in 0..6_000 {
        pair.put(write % 5_000, write * 7919 % 1_000);
    }
    let middle = pair.db.snapshot();
    pair.delete(4_998);
    for write in 0..300 {
        pair.put(write * 13, write);
    }
    for at in [None, Some(&early), Some(&middle)] {
        for (low, high) in [(0, 1_000), (100, 150), (100, 900), (999, 1_000)] {
            for limit in [1, 10, 300, 2_000, usize::MAX] {
                let query = Query::new().range("n", low..high).limit(limit);
                let find = |collection: &Collection, query: &Query| match at {
                    Some(at) => collection.find_at(at, query).unwrap(),
                    None => collection.find(query).unwrap(),
                };
                let (found, expected) =
                    (find(&pair.indexed, &query.clone().using_index("n")), find(&pair.plain, &query));
                let keys = |answers: &bolide::Answers| -> Vec<_> {
                    answers.iter().map(|answer| (answer.key.clone(), answer.record.clone())).collect()
                };
                assert_eq!(keys(&found), keys(&expected), "{low}..{high}, {limit}");
            }
        }
    }
    // A query for the newest few reads few entries.
    let query = Query::new().range("n", 100..900).limit(10).using_index("n");
    let looked = pair.indexed.find(&query).unwrap().explain().costs_of::<EmbeddedCosts>().memtable_entries;
    assert!(looked <= 1_024, "{looked}");
}
