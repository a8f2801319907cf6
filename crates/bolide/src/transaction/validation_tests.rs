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
        |from: usize| (from..from + 200).for_each(|at| notes.put(&at.to_be_bytes(), &record(at)).unwrap());
    put(0);
    let error = checked(&validation, &batch).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().contains("faster than they can be compared"), "{error}");
    assert_eq!(notes.get(b"own").unwrap(), None);
    // The next attempt has done that work before.
    assert!(validation.locked.grows());
    validation.validate_ahead().unwrap();
    checked(&validation, &batch).unwrap();
    assert!(!validation.locked.grows());
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
        assert!(validation.locked.grows());
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
}
