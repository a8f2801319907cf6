use bolide_storage::SimRuntime;

use super::super::{Transaction, TransactionOptions};
use super::*;
use crate::{Collection, CollectionOptions, Components, Db, Options, Query};

fn open() -> (Db, Collection) {
    let components = Components::in_memory().runtime(Arc::new(SimRuntime::new(1)));
    let db = Db::open_with("db", Options::default().background_threads(0), components).unwrap();
    let notes = db.create_collection("notes", CollectionOptions::json()).unwrap();
    (db, notes)
}

fn record(number: usize) -> Vec<u8> {
    format!(r#"{{"n":{number}}}"#).into_bytes()
}

/// The validation and the writes of a transaction.
fn parts(tx: Transaction) -> (Arc<Validation>, WriteBatch) {
    let (validation, batch, _) = tx.into_validation();
    (Arc::new(validation), batch)
}

fn checked(validation: &Arc<Validation>, batch: &WriteBatch) -> Result<SequenceNumber> {
    let mut batch = batch.clone();
    batch.set_check(validation.clone());
    validation.handle.engine.write(batch, None)
}

#[test]
fn the_work_under_the_lock_is_bounded_and_done_ahead_instead() {
    let (db, notes) = open();
    let tx = db.begin(TransactionOptions::default()).unwrap();
    for value in 0..100_u64 {
        tx.count(&notes, &Query::new().eq("m", value)).unwrap();
    }
    tx.put(&notes, b"own", &record(0)).unwrap();
    let (validation, batch) = parts(tx);
    validation.validate_ahead().unwrap();
    // After that, more commits arrive than may be compared under the lock, none of which conflicts.
    let put =
        |from: usize| (from..from + 300).for_each(|at| notes.put(&at.to_be_bytes(), &record(at)).unwrap());
    put(0);
    let error = checked(&validation, &batch).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().contains("faster than they can be compared"), "{error}");
    assert_eq!(notes.get(b"own").unwrap(), None);
    // The next attempt has done that work before.
    assert!(validation.locked.double_if_exhausted());
    validation.validate_ahead().unwrap();
    // The failed commit has kept its writes.
    let (writes, parts) = validation.again.lock().take().unwrap();
    let again = WriteBatch::of_parts(writes, parts);
    assert_eq!((again.len(), again.is_checked()), (batch.len(), false));
    validation.attempt(again, None).unwrap();
    assert!(!validation.locked.double_if_exhausted() && validation.again.lock().is_none());
    assert_eq!(notes.get(b"own").unwrap(), Some(record(0)));
}

#[test]
fn each_attempt_may_do_more() {
    let (db, notes) = open();
    let tx = db.begin(TransactionOptions::default()).unwrap();
    tx.count(&notes, &Query::new().eq("m", 1)).unwrap();
    tx.put(&notes, b"own", &record(0)).unwrap();
    let (validation, batch) = parts(tx);
    let keys = 5 * LOCKED_WORK as usize / (2 * READ_WORK as usize);
    (0..keys).for_each(|at| notes.put(&at.to_be_bytes(), &record(at)).unwrap());
    let mut attempts = 1;
    while checked(&validation, &batch).is_err() {
        assert!(validation.locked.double_if_exhausted());
        attempts += 1;
    }
    assert_eq!(attempts, 4, "five times the work of the first attempt, and three doublings");
}

#[test]
fn deleted_ranges_over_scanned_ranges_are_bounded_too() {
    let (db, notes) = open();
    let tx = db.begin(TransactionOptions::default()).unwrap();
    for at in 0..LOCKED_WORK / READ_WORK + 10 {
        let key = at.to_be_bytes();
        assert_eq!(tx.range(&notes, &key[..]..=&key[..]).unwrap().count(), 0);
    }
    tx.put(&notes, b"own", &record(0)).unwrap();
    let (validation, batch) = parts(tx);
    notes.delete_range(..).unwrap();
    let error = checked(&validation, &batch).unwrap_err();
    assert!(error.message().contains("faster than they can be compared"), "{error}");
    validation.validate_ahead().unwrap();
    checked(&validation, &batch).unwrap();
}

#[test]
fn keys_alone_need_no_bound() {
    let (db, notes) = open();
    let tx = db.begin(TransactionOptions::default()).unwrap();
    tx.get(&notes, b"k").unwrap();
    tx.put(&notes, b"own", &record(0)).unwrap();
    let (validation, batch) = parts(tx);
    (0..LOCKED_WORK as usize + 10).for_each(|at| notes.put(&at.to_be_bytes(), &record(at)).unwrap());
    checked(&validation, &batch).unwrap();
    assert!(!validation.locked.double_if_exhausted());
    // All of them are compared: the last one conflicts.
    notes.put(b"k", &record(1)).unwrap();
    let error = checked(&validation, &batch).unwrap_err();
    assert!(error.message().contains("key k"), "{error}");
    assert!(!validation.locked.double_if_exhausted(), "it is no lack of work");
}

/// Whether `validation` needs more work than it may do at its first attempt, and succeeds after a validation ahead.
fn is_left_to_the_next_attempt(validation: &Arc<Validation>, batch: &WriteBatch) -> bool {
    let error = checked(validation, batch).unwrap_err();
    assert!(error.message().contains("faster than they can be compared"), "{error}");
    let is_left = validation.locked.double_if_exhausted();
    validation.validate_ahead().unwrap();
    checked(validation, batch).unwrap();
    is_left
}

#[test]
fn tombstones_in_a_deleted_range_are_work() {
    for scans in [false, true] {
        let (db, notes) = open();
        let keys = LOCKED_WORK as usize + 10;
        (0..keys).for_each(|at| notes.put(&at.to_be_bytes(), &record(at)).unwrap());
        (0..keys).for_each(|at| notes.delete(&at.to_be_bytes()).unwrap());
        let tx = db.begin(TransactionOptions::default()).unwrap();
        if scans {
            assert_eq!(tx.iter(&notes).unwrap().count(), 0);
        } else {
            tx.count(&notes, &Query::new().eq("m", 1)).unwrap();
        }
        tx.put(&notes, b"own", &record(0)).unwrap();
        let (validation, batch) = parts(tx);
        notes.delete_range(..).unwrap();
        assert!(is_left_to_the_next_attempt(&validation, &batch), "scans {scans}");
    }
}

#[test]
fn a_deleted_range_of_many_records_is_compared_ahead() {
    let (db, notes) = open();
    // More than can be compared at the first attempt.
    let keys = LOCKED_WORK as usize;
    (0..keys).for_each(|at| notes.put(&at.to_be_bytes(), &record(at)).unwrap());
    let tx = db.begin(TransactionOptions::default()).unwrap();
    tx.count(&notes, &Query::new().eq("m", 1)).unwrap();
    tx.put(&notes, b"own", &record(0)).unwrap();
    let (validation, batch) = parts(tx);
    notes.delete_range(..).unwrap();
    assert!(is_left_to_the_next_attempt(&validation, &batch));
    // A commit as a program does it.
    (0..keys).for_each(|at| notes.put(&at.to_be_bytes(), &record(at)).unwrap());
    let tx = db.begin(TransactionOptions::default()).unwrap();
    tx.count(&notes, &Query::new().eq("m", 1)).unwrap();
    tx.put(&notes, b"own", &record(0)).unwrap();
    notes.delete_range(..).unwrap();
    tx.commit().unwrap();
    // A record that satisfies the query is found among them.
    (0..keys).for_each(|at| notes.put(&at.to_be_bytes(), &record(at)).unwrap());
    let tx = db.begin(TransactionOptions::default()).unwrap();
    tx.count(&notes, &Query::new().eq("n", keys as u64 - 1)).unwrap();
    tx.put(&notes, b"own", &record(0)).unwrap();
    notes.delete_range(..).unwrap();
    assert_eq!(tx.commit().unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn overlapping_deleted_ranges_are_compared_once() {
    let (db, notes) = open();
    let keys = LOCKED_WORK as usize / (4 * EVALUATION_WORK as usize);
    (0..keys).for_each(|at| notes.put(&at.to_be_bytes(), &record(at)).unwrap());
    let tx = db.begin(TransactionOptions::default()).unwrap();
    tx.count(&notes, &Query::new().eq("m", 1)).unwrap();
    tx.put(&notes, b"own", &record(0)).unwrap();
    let (validation, batch) = parts(tx);
    // Each of them alone needs a quarter of the work of an attempt or more.
    for first in 0..10_usize {
        notes.delete_range(first.to_be_bytes()..).unwrap();
    }
    checked(&validation, &batch).unwrap();
    assert!(!validation.locked.double_if_exhausted());
    // The error names the commit that deleted the record.
    notes.put(b"k", &record(7)).unwrap();
    let tx = db.begin(TransactionOptions::default()).unwrap();
    tx.count(&notes, &Query::new().eq("n", 7)).unwrap();
    tx.put(&notes, b"own", &record(1)).unwrap();
    let before = tx.sequence();
    notes.delete_range(&b"a"[..]..&b"b"[..]).unwrap();
    notes.delete_range(&b"b"[..]..&b"l"[..]).unwrap();
    notes.delete_range(&b"c"[..]..&b"z"[..]).unwrap();
    let error = tx.commit().unwrap_err();
    assert!(error.message().contains(&format!("commit {} of", before + 2)), "{error}");
}

#[test]
fn long_records_are_work() {
    let (db, notes) = open();
    let tx = db.begin(TransactionOptions::default()).unwrap();
    tx.count(&notes, &Query::new().eq("m", 1)).unwrap();
    tx.put(&notes, b"own", &record(0)).unwrap();
    let (validation, batch) = parts(tx);
    let long = format!(r#"{{"n":1,"text":"{}"}}"#, "x".repeat(256 << 10)).into_bytes();
    (0..8_u64).for_each(|at| notes.put(&at.to_be_bytes(), &long).unwrap());
    assert!(is_left_to_the_next_attempt(&validation, &batch));
}

#[test]
fn each_condition_is_work() {
    let (db, notes) = open();
    let tx = db.begin(TransactionOptions::default()).unwrap();
    // One query of many conditions.
    let conditions = (0..900_i64).map(|at| crate::Filter::range("m", at..=at));
    tx.count(&notes, &Query::new().filter(crate::Filter::any(conditions))).unwrap();
    tx.put(&notes, b"own", &record(0)).unwrap();
    let (validation, batch) = parts(tx);
    (0..30_u64).for_each(|at| notes.put(&at.to_be_bytes(), &record(0)).unwrap());
    assert!(is_left_to_the_next_attempt(&validation, &batch));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "measures real time")]
fn a_deleted_range_over_many_absent_keys_costs_one_search() {
    let (db, notes) = open();
    let tx = db.begin(TransactionOptions::default()).unwrap();
    let keys = 20_000_u64;
    for at in 0..keys {
        assert_eq!(tx.get(&notes, &at.to_be_bytes()).unwrap(), None);
    }
    tx.put(&notes, b"own", &record(0)).unwrap();
    let (validation, batch) = parts(tx);
    let (start, end) = (0_u64.to_be_bytes(), keys.to_be_bytes());
    let reads = validation.reads.get(notes.state.tree).unwrap();
    // A walk over the keys would take 400 million steps each time.
    let search = || {
        let started = std::time::Instant::now();
        (0..20_000).for_each(|_| assert_eq!(std::hint::black_box(reads).first_present(&start, &end), None));
        started.elapsed()
    };
    let fastest = (0..3).map(|_| search()).min().unwrap();
    assert!(fastest.as_millis() < 500, "20,000 searches took {fastest:?}");
    notes.delete_range(&start[..]..&end[..]).unwrap();
    checked(&validation, &batch).unwrap();
}
