//! Expectations of batches.

#![allow(clippy::disallowed_methods, reason = "threads of the test")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bolide::{Collection, Db, ErrorKind, Expected, Options, Result, SyncMode, WriteBatch};

fn kind(result: Result<u64>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

/// Commits `expected` of `key` alone.
fn check(db: &Db, notes: &Collection, key: &[u8], expected: Expected) -> Result<u64> {
    let mut batch = WriteBatch::new();
    batch.expect(notes, key, expected)?;
    assert!(batch.is_empty());
    db.write(batch)
}

#[test]
fn each_expectation_holds_in_its_state_alone() -> Result<()> {
    for index in [None, Some("n"), Some("n:composite:maintenance=synchronous")] {
        let db = support::tiny_db();
        let mut options = support::tiny_collection();
        if let Some(index) = index {
            options = options.index(index.parse()?);
        }
        let notes = db.create_collection("notes", options)?;
        let states = |absent: bool, sequence: u64| {
            let results = [Expected::Absent, Expected::Present, Expected::Sequence(sequence)]
                .map(|expected| kind(check(&db, &notes, b"k", expected)));
            let (holds, fails) = (None, Some(ErrorKind::Conflict));
            assert_eq!(results, if absent { [holds, fails, fails] } else { [fails, holds, holds] });
            assert_eq!(kind(check(&db, &notes, b"k", Expected::Sequence(sequence + 1))), fails);
        };
        states(true, 1);
        notes.put(b"k", br#"{"n":1}"#)?;
        let (sequence, _) = notes.get_pinned(b"k")?.unwrap();
        states(false, sequence);
        db.flush()?;
        states(false, sequence);
        notes.delete(b"k")?;
        states(true, sequence);
        notes.put(b"k", br#"{"n":2}"#)?;
        notes.delete_range("a".."z")?;
        db.compact()?;
        states(true, sequence);
        assert!(db.check(true)?.is_sound());
    }
    Ok(())
}

#[test]
fn the_message_names_collection_and_key_and_nothing_is_written() -> Result<()> {
    let db = support::tiny_db();
    let notes = db.create_collection("notes", support::tiny_collection())?;
    let sequence = db.write({
        let mut batch = WriteBatch::new();
        batch.put(&notes, b"user:7", b"{}")?;
        batch
    })?;
    let mut batch = WriteBatch::new();
    batch.put(&notes, b"other", b"{}")?;
    batch.expect(&notes, b"user:7", Expected::Absent)?;
    let error = db.write(batch).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let message =
        format!("collection \"notes\", key user:7: expected no record, but write {sequence} put one");
    assert_eq!(error.message(), message);
    assert_eq!(notes.get(b"other")?, None);
    Ok(())
}

#[test]
fn earlier_writes_of_the_batch_count() -> Result<()> {
    let db = support::tiny_db();
    let notes = db.create_collection("notes", support::tiny_collection().index("n".parse()?))?;
    let mut batch = WriteBatch::new();
    batch.expect(&notes, b"k", Expected::Absent)?;
    batch.put(&notes, b"k", br#"{"n":1}"#)?;
    batch.expect(&notes, b"k", Expected::Present)?;
    // The second write of the batch has this number.
    batch.put(&notes, b"k", br#"{"n":2}"#)?;
    batch.expect(&notes, b"k", Expected::Sequence(2))?;
    batch.delete_range(&notes, "a".."z")?;
    batch.expect(&notes, b"k", Expected::Absent)?;
    batch.put(&notes, b"k", br#"{"n":3}"#)?;
    batch.delete(&notes, b"k")?;
    batch.expect(&notes, b"k", Expected::Absent)?;
    batch.put(&notes, b"k", br#"{"n":4}"#)?;
    assert_eq!(db.write(batch.clone())?, 6);
    // An index that is created later makes the batch derive its entries again, with its expectations.
    notes.create_index("m=n:lazy".parse()?)?;
    assert_eq!(kind(db.write(batch)), Some(ErrorKind::Conflict));
    assert_eq!(notes.get(b"k")?.as_deref(), Some(&br#"{"n":4}"#[..]));
    Ok(())
}

#[test]
fn a_later_write_of_the_batch_does_not_count() -> Result<()> {
    let db = support::tiny_db();
    let notes = db.create_collection("notes", support::tiny_collection())?;
    let mut batch = WriteBatch::new();
    batch.expect(&notes, b"k", Expected::Present)?;
    batch.put(&notes, b"k", b"{}")?;
    assert_eq!(kind(db.write(batch)), Some(ErrorKind::Conflict));
    Ok(())
}

#[test]
fn limits_of_expectations_and_a_dropped_collection() -> Result<()> {
    let db = support::tiny_db();
    let notes = db.create_collection("notes", support::tiny_collection())?;
    let mut batch = WriteBatch::new();
    let long = vec![b'k'; bolide::limits::MAX_KEY_BYTES + 1];
    let over = batch.expect(&notes, &long, Expected::Absent);
    assert_eq!(over.unwrap_err().kind(), ErrorKind::LimitExceeded);
    batch.expect(&notes, &long[1..], Expected::Absent)?;
    db.write(batch.clone())?;
    db.drop_collection("notes")?;
    assert_eq!(kind(db.write(batch)), Some(ErrorKind::NotFound));
    Ok(())
}

/// Without the checks, the test of the states fails.
#[test]
fn a_planted_mistake_is_found() -> Result<()> {
    let components = support::components(1);
    let flawed = components.transaction_flaw(Some(bolide::TransactionFlaw::SkipsExpectations));
    let db = Db::open_with("db", support::tiny(), flawed)?;
    let notes = db.create_collection("notes", support::tiny_collection())?;
    assert_eq!(kind(check(&db, &notes, b"k", Expected::Present)), None);
    Ok(())
}

/// Counters by compare and swap: each increment reads a record and its number, and expects that number.
#[test]
fn concurrent_increments_lose_nothing() -> Result<()> {
    const THREADS: u64 = 4;
    const INCREMENTS: u64 = 500;
    for sync in [SyncMode::None, SyncMode::Always] {
        let db = Db::open_with("db", Options::default().sync(sync), support::threaded())?;
        let counters = db.create_collection("counters", support::tiny_collection())?;
        counters.put(b"c", br#"{"n":0}"#)?;
        let conflicts = Arc::new(AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..INCREMENTS {
                        while !increment(&db, &counters) {
                            conflicts.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let record = counters.get(b"c")?.unwrap();
        assert_eq!(String::from_utf8(record).unwrap(), format!(r#"{{"n":{}}}"#, THREADS * INCREMENTS));
        println!("{sync:?}: {} conflicts", conflicts.load(Ordering::Relaxed));
    }
    Ok(())
}

fn increment(db: &Db, counters: &Collection) -> bool {
    let (sequence, record) = counters.get_pinned(b"c").unwrap().unwrap();
    let text = std::str::from_utf8(&record).unwrap();
    let number: u64 = text.trim_start_matches(r#"{"n":"#).trim_end_matches('}').parse().unwrap();
    let mut batch = WriteBatch::new();
    batch.expect(counters, b"c", Expected::Sequence(sequence)).unwrap();
    batch.put(counters, b"c", format!(r#"{{"n":{}}}"#, number + 1).as_bytes()).unwrap();
    match db.write(batch) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            false
        }
    }
}
