//! The pull cursor of a query: its snapshot, its laziness, its end, and errors.
#![allow(clippy::disallowed_methods, reason = "a cursor is sent to a thread of the test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bolide::{
    AnswerCursor, AttributeExtractor, AttributePlan, AttributeValues, Collection, CollectionOptions,
    Components, Db, ErrorKind, FindOptions, JsonExtractor, Options, Order, Query, Result,
};

const RECORDS: u64 = 3_000;

fn open(kinds: &[&str]) -> (Db, Collection) {
    let options = Options::default().background_threads(0);
    let db = Db::open_with("db", options, Components::in_memory()).unwrap();
    let mut options = CollectionOptions::default();
    for (number, kind) in kinds.iter().enumerate() {
        options = options.index(format!("i{number}=n:{kind}").parse().unwrap());
    }
    let records = db.create_collection("records", options).unwrap();
    for key in 0..RECORDS {
        put(&records, key, key % 2);
    }
    (db, records)
}

fn put(records: &Collection, key: u64, n: u64) {
    let record = format!(r#"{{"n":{n},"m":{}}}"#, key % 7);
    records.put(&key.to_be_bytes(), record.as_bytes()).unwrap();
}

fn key_of(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().unwrap())
}

fn rest(cursor: AnswerCursor) -> Vec<u64> {
    cursor.into_iter().map(|answer| key_of(&answer.unwrap().key)).collect()
}

#[test]
fn a_cursor_reads_one_state_and_releases_it() {
    let (db, records) = open(&["composite", "ps-tree", "next", "embedded", "lazy"]);
    let of_one = |index: &str, order| Query::new().eq("n", 1).using_index(index).order(order);
    for index in ["i0", "i1", "i2", "i3", "i4"] {
        for order in [Order::Newest, Order::Oldest] {
            let wanted: Vec<u64> = records
                .find(&of_one(index, order))
                .unwrap()
                .iter()
                .map(|answer| key_of(&answer.key))
                .collect();
            assert_eq!(wanted.len() as u64, RECORDS / 2);
            let mut cursor = records.answers(&of_one(index, order), &FindOptions::default()).unwrap();
            assert!(db.stats().views > 0);
            let mut found = Vec::new();
            for key in (0..RECORDS).step_by(100) {
                found.push(key_of(cursor.next().unwrap().unwrap().key));
                records.delete(&key.to_be_bytes()).unwrap();
                put(&records, key + 1, 0);
                if key % 1_000 == 0 {
                    db.flush().unwrap();
                    db.compact().unwrap();
                }
            }
            // In another thread.
            found.extend(std::thread::spawn(move || rest(cursor)).join().unwrap());
            assert_eq!(found, wanted, "{index} {order:?}");
            assert_eq!(db.stats().views, 0);
            for key in 0..RECORDS {
                put(&records, key, key % 2);
            }
            let mut dropped = records.answers(&of_one(index, order), &FindOptions::default()).unwrap();
            dropped.next().unwrap();
            drop(dropped);
            assert_eq!(db.stats().views, 0);
        }
    }
}

#[test]
fn answers_are_computed_when_they_are_pulled() {
    let (_db, records) = open(&["composite"]);
    let mut cursor = records.answers(&Query::new().eq("n", 1), &FindOptions::default()).unwrap();
    assert_eq!(cursor.outcome().explain().candidates, 0);
    assert!(cursor.outcome().next_token().is_none());
    let first = cursor.next().unwrap().unwrap().to_answer();
    assert_eq!((key_of(&first.key), first.record.is_some()), (RECORDS - 1, true));
    let explain = cursor.outcome().into_explain();
    assert!(explain.records_fetched < 100 && explain.answers == 1, "{explain}");
    assert!(
        explain.reads.blocks_cached + explain.reads.blocks_read == 0,
        "all of it is in memory: {explain}"
    );
    assert_eq!(rest(cursor).len() as u64, RECORDS / 2 - 1);
}

#[test]
fn the_end_and_the_count_are_those_of_find() {
    let (_db, records) = open(&["composite"]);
    for query in [
        Query::new().eq("n", 1).limit(10),
        Query::new().eq("n", 1).limit(RECORDS as usize / 2),
        Query::new().range("n", 0..=1).order(Order::Value).limit(7),
        Query::new().range("m", 2..=4).order(Order::ValueDescending).limit_per_value(3),
        Query::new().eq("n", 1).eq("m", 3).select(["m", "n"]),
        Query::new().eq("n", 0).keys_only(),
        Query::new().eq("n", 0).count(),
        Query::new().limit(0),
        Query::new(),
    ] {
        let found = records.find(&query).unwrap();
        let mut cursor = records.answers(&query, &FindOptions::default().collect_bytes(1 << 10)).unwrap();
        let mut pulled = Vec::new();
        while let Some(answer) = cursor.next().unwrap() {
            pulled.push(answer.to_answer());
        }
        assert!(cursor.next().unwrap().is_none());
        let outcome = cursor.outcome();
        assert_eq!(pulled, found.to_vec());
        assert_eq!((outcome.count(), outcome.next_token()), (found.count(), found.next_token()));
    }
}

#[test]
fn a_cursor_at_a_snapshot_continues_there() {
    let (db, records) = open(&["composite"]);
    let options = FindOptions::default().snapshot(&db.snapshot());
    let query = Query::new().range("m", 1..=5).order(Order::Value);
    let wanted = rest(records.answers(&query, &options).unwrap());
    let mut cursor = records.answers(&query, &options).unwrap();
    for wanted in &wanted[..1_000] {
        assert_eq!(key_of(cursor.next().unwrap().unwrap().key), *wanted);
    }
    let token = cursor.outcome().next_token().cloned().unwrap();
    drop(cursor);
    (0..RECORDS).for_each(|key| put(&records, key, 5));
    let continued = query.after(token);
    assert_eq!(rest(records.answers(&continued, &options).unwrap()), wanted[1_000..]);
    let error = records.answers(&continued, &FindOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Expired);
}

#[test]
fn a_wrong_query_is_refused_at_once() {
    let (db, records) = open(&[]);
    let refused = |query: &Query| records.answers(query, &FindOptions::default()).unwrap_err().kind();
    assert_eq!(refused(&Query::new().eq("n..m", 1)), ErrorKind::InvalidInput);
    assert_eq!(refused(&Query::new().eq("n", 1).using_index("none")), ErrorKind::NotFound);
    let mut cursor = records.answers(&Query::new().eq("n", 1).keys_only(), &FindOptions::default()).unwrap();
    cursor.next().unwrap();
    db.drop_collection("records").unwrap();
    assert_eq!(refused(&Query::new()), ErrorKind::NotFound);
    // The view still has its records.
    assert_eq!(rest(cursor).len() as u64, RECORDS / 2 - 1);
}

/// Reads JSON, and fails while it is armed.
#[derive(Debug, Default)]
struct Failing(AtomicBool);

impl AttributeExtractor for Failing {
    fn extract_into(&self, record: &[u8], plan: &AttributePlan, out: &mut AttributeValues) -> Result<()> {
        assert!(!self.0.load(Ordering::Acquire), "the extractor fails");
        JsonExtractor.extract_into(record, plan, out)
    }
}

#[test]
fn a_cursor_ends_with_an_error_and_may_be_continued() {
    let failing = Arc::new(Failing::default());
    let components = Components::in_memory().extractor("records", failing.clone());
    let db = Db::open_with("db", Options::default(), components).unwrap();
    let options = CollectionOptions::bytes().index("n".parse().unwrap());
    let records = db.create_collection("records", options).unwrap();
    (0..RECORDS).for_each(|key| put(&records, key, 1));
    let query = Query::new().eq("n", 1);
    let mut cursor = records.answers(&query, &FindOptions::default()).unwrap();
    let mut count = 0;
    for _ in 0..100 {
        cursor.next().unwrap();
        count += 1;
    }
    failing.0.store(true, Ordering::Release);
    let error = loop {
        match cursor.next() {
            Ok(answer) => count += u64::from(answer.is_some()),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert!(cursor.next().unwrap().is_none());
    let outcome = cursor.outcome();
    assert_eq!(outcome.count(), count);
    assert_eq!(db.stats().views, 0);
    failing.0.store(false, Ordering::Release);
    let continued = query.after(outcome.next_token().cloned().unwrap());
    let continued = records.answers(&continued, &FindOptions::default()).unwrap();
    assert_eq!(rest(continued), (0..RECORDS - count).rev().collect::<Vec<_>>());
}
