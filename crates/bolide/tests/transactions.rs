//! Transactions: increments by many threads, conflicts, own writes, savepoints, schema changes.

#![allow(clippy::disallowed_methods, reason = "threads of the test")]

mod support;

use bolide::{
    Collection, Db, ErrorKind, Expected, FindOptions, Isolation, IterOptions, Options, Order, Query, Result,
    SyncMode, Transaction, TransactionOptions, WriteBatch,
};

fn begin(db: &Db) -> Transaction {
    db.begin(TransactionOptions::default()).unwrap()
}

fn notes(db: &Db) -> Collection {
    db.create_collection("notes", support::tiny_collection().index("n".parse().unwrap())).unwrap()
}

fn record(number: i64) -> Vec<u8> {
    format!(r#"{{"n":{number}}}"#).into_bytes()
}

fn number(record: &[u8]) -> i64 {
    let text = std::str::from_utf8(record).unwrap();
    text.trim_start_matches(r#"{"n":"#).trim_end_matches('}').parse().unwrap()
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn four_threads_of_increments_lose_none() -> Result<()> {
    const THREADS: i64 = 4;
    const INCREMENTS: i64 = 2_000;
    for (sync, isolation) in [
        (SyncMode::None, Isolation::Serializable),
        (SyncMode::None, Isolation::Snapshot),
        (SyncMode::Always, Isolation::Serializable),
    ] {
        let db = Db::open_with("db", Options::default().sync(sync), support::threaded())?;
        let counters = notes(&db);
        counters.put(b"c", &record(0))?;
        let options = TransactionOptions::default().isolation(isolation).retries(10_000);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..INCREMENTS {
                        let increment = |tx: &Transaction| {
                            let before = number(&tx.get(&counters, b"c")?.unwrap());
                            tx.put(&counters, b"c", &record(before + 1))
                        };
                        db.transaction_with(&options, increment).unwrap();
                    }
                });
            }
        });
        assert_eq!(number(&counters.get(b"c")?.unwrap()), THREADS * INCREMENTS);
        assert!(db.check(true)?.is_sound());
    }
    Ok(())
}

/// Whether a transaction that did `reads` conflicts with `change`.
fn conflicts(reads: impl Fn(&Transaction, &Collection), change: impl Fn(&Db, &Collection)) -> bool {
    let db = support::tiny_db();
    let notes = notes(&db);
    for at in [2, 4, 6] {
        notes.put(format!("k{at}").as_bytes(), &record(at)).unwrap();
    }
    let tx = begin(&db);
    reads(&tx, &notes);
    tx.put(&notes, b"own", &record(0)).unwrap();
    change(&db, &notes);
    match tx.commit() {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            assert!(error.message().contains("\"notes\""), "{error}");
            assert_eq!(notes.get(b"own").unwrap(), None);
            true
        }
    }
}

#[test]
fn read_keys_conflict_with_writes_of_them_alone() {
    let get = |tx: &Transaction, notes: &Collection| drop(tx.get(notes, b"k4").unwrap());
    let get_absent = |tx: &Transaction, notes: &Collection| drop(tx.get(notes, b"k5").unwrap());
    assert!(!conflicts(get, |_, _| {}));
    assert!(!conflicts(get, |_, notes| notes.put(b"k5", &record(4)).unwrap()));
    assert!(conflicts(get, |_, notes| notes.put(b"k4", &record(4)).unwrap()));
    assert!(conflicts(get, |_, notes| notes.delete(b"k4").unwrap()));
    assert!(conflicts(get, |_, notes| notes.delete_range("k3".."k5").unwrap()));
    assert!(!conflicts(get, |_, notes| notes.delete_range("k5".."k9").unwrap()));
    assert!(conflicts(get_absent, |_, notes| notes.put(b"k5", &record(4)).unwrap()));
    assert!(!conflicts(get_absent, |_, notes| notes.delete_range("k5".."k6").unwrap()), "it stays absent");
}

#[test]
fn scanned_ranges_conflict_up_to_where_they_were_read() {
    let first_two = |tx: &Transaction, notes: &Collection| {
        let keys: Vec<_> = tx.iter(notes).unwrap().take(2).map(|record| record.unwrap().0).collect();
        assert_eq!(keys, [b"k2", b"k4"]);
    };
    assert!(conflicts(first_two, |_, notes| notes.put(b"a", &record(0)).unwrap()));
    assert!(conflicts(first_two, |_, notes| notes.put(b"k3", &record(0)).unwrap()));
    assert!(conflicts(first_two, |_, notes| notes.put(b"k4", &record(0)).unwrap()));
    assert!(!conflicts(first_two, |_, notes| notes.put(b"k5", &record(0)).unwrap()));
    assert!(!conflicts(first_two, |_, notes| notes.delete(b"k6").unwrap()));
    assert!(conflicts(first_two, |_, notes| notes.delete_range("k3".."k9").unwrap()));
    assert!(!conflicts(first_two, |_, notes| notes.delete_range("k2a".."k3").unwrap()), "nothing was there");
    let last = |tx: &Transaction, notes: &Collection| {
        assert_eq!(tx.iter(notes).unwrap().next_back().unwrap().unwrap().0, b"k6");
    };
    assert!(!conflicts(last, |_, notes| notes.put(b"k5", &record(0)).unwrap()));
    assert!(conflicts(last, |_, notes| notes.put(b"k7", &record(0)).unwrap()));
    let sought = |tx: &Transaction, notes: &Collection| {
        let mut cursor = tx.cursor(notes, &IterOptions::default()).unwrap();
        cursor.seek(b"k3").unwrap();
        assert_eq!(cursor.key(), b"k4");
        cursor.prev().unwrap();
        assert_eq!(cursor.key(), b"k2");
    };
    assert!(conflicts(sought, |_, notes| notes.put(b"k3", &record(0)).unwrap()));
    assert!(conflicts(sought, |_, notes| notes.put(b"k2", &record(0)).unwrap()));
    assert!(!conflicts(sought, |_, notes| notes.put(b"k1", &record(0)).unwrap()));
    let leaked = |tx: &Transaction, notes: &Collection| {
        let mut cursor = tx.cursor(notes, &IterOptions::default().range("k3"..)).unwrap();
        cursor.seek_to_first().unwrap();
        std::mem::forget(cursor);
    };
    assert!(conflicts(leaked, |_, notes| notes.put(b"k9", &record(0)).unwrap()), "a leaked cursor reads all");
    assert!(!conflicts(leaked, |_, notes| notes.put(b"k1", &record(0)).unwrap()));
}

#[test]
fn queries_conflict_with_records_that_satisfy_them_before_or_after() {
    let query = |tx: &Transaction, notes: &Collection| {
        assert_eq!(tx.count(notes, &Query::new().range("n", 3..=5)).unwrap(), 1);
    };
    assert!(conflicts(query, |_, notes| notes.put(b"new", &record(5)).unwrap()));
    assert!(!conflicts(query, |_, notes| notes.put(b"new", &record(6)).unwrap()));
    assert!(
        conflicts(query, |_, notes| notes.put(b"k4", &record(9)).unwrap()),
        "it satisfied the query before"
    );
    assert!(conflicts(query, |_, notes| notes.put(b"k6", &record(3)).unwrap()));
    assert!(!conflicts(query, |_, notes| notes.put(b"k6", &record(7)).unwrap()));
    assert!(conflicts(query, |_, notes| notes.delete(b"k4").unwrap()));
    assert!(!conflicts(query, |_, notes| notes.delete(b"k6").unwrap()));
    let failed = |tx: &Transaction, notes: &Collection| {
        assert!(tx.find(notes, &Query::new().eq("a..b", 1)).is_err());
        assert!(tx.find(notes, &Query::new().range("n", 3..=5).using_index("missing")).is_err());
    };
    assert!(!conflicts(failed, |_, notes| notes.put(b"k4", &record(9)).unwrap()), "it has read nothing");
    assert!(conflicts(query, |_, notes| notes.delete_range("k".."l").unwrap()));
    assert!(!conflicts(query, |_, notes| notes.delete_range("k5".."l").unwrap()));
    assert!(
        !conflicts(query, |_, notes| {
            notes.put(b"new", &record(5)).unwrap();
            notes.delete(b"new").unwrap();
        }),
        "it is gone again"
    );
    assert!(conflicts(
        |tx, notes| drop(tx.find(notes, &Query::new()).unwrap()),
        |_, notes| {
            notes.put(b"new", &record(50)).unwrap();
        }
    ));
}

#[test]
fn every_path_of_writes_conflicts() {
    let get = |tx: &Transaction, notes: &Collection| drop(tx.get(notes, b"k4").unwrap());
    let batch = |db: &Db, notes: &Collection, sync| {
        let mut batch = WriteBatch::new();
        batch.put(notes, b"other", &record(1)).unwrap();
        batch.put(notes, b"k4", &record(1)).unwrap();
        db.write_with(batch, &bolide::WriteOptions::default().sync(sync)).unwrap();
    };
    assert!(conflicts(get, |db, notes| batch(db, notes, SyncMode::None)));
    assert!(conflicts(get, |db, notes| batch(db, notes, SyncMode::Always)));
    assert!(conflicts(get, |db, notes| {
        let other = begin(db);
        other.put(notes, b"k4", &record(7)).unwrap();
        other.commit().unwrap();
    }));
    // Work of the database changes no record.
    assert!(!conflicts(get, |db, notes| {
        notes.create_index("m=n:lazy".parse().unwrap()).unwrap();
        notes.rebuild_index("n", &Default::default()).unwrap();
        db.flush().unwrap();
        db.compact().unwrap();
        notes.drop_index("n").unwrap();
    }));
}

#[test]
fn a_transaction_without_writes_always_commits() -> Result<()> {
    let db = support::tiny_db();
    let notes = notes(&db);
    notes.put(b"k", &record(1))?;
    let tx = begin(&db);
    let sequence = tx.sequence();
    assert_eq!(number(&tx.get(&notes, b"k")?.unwrap()), 1);
    notes.put(b"k", &record(2))?;
    assert_eq!(number(&tx.get(&notes, b"k")?.unwrap()), 1, "one snapshot");
    assert_eq!(tx.count(&notes, &Query::new().eq("n", 1))?, 1);
    assert_eq!(tx.commit()?, sequence);
    Ok(())
}

#[test]
fn snapshot_isolation_admits_write_skew_and_refuses_lost_updates() -> Result<()> {
    for (isolation, second) in
        [(Isolation::Snapshot, None), (Isolation::Serializable, Some(ErrorKind::Conflict))]
    {
        let db = support::tiny_db();
        let notes = notes(&db);
        let options = TransactionOptions::default().isolation(isolation);
        notes.put(b"x", &record(1))?;
        notes.put(b"y", &record(1))?;
        let (one, two) = (db.begin(options.clone())?, db.begin(options.clone())?);
        for tx in [&one, &two] {
            tx.get(&notes, b"x")?;
            tx.get(&notes, b"y")?;
        }
        one.put(&notes, b"x", &record(0))?;
        two.put(&notes, b"y", &record(0))?;
        one.commit()?;
        assert_eq!(kind(two.commit()), second, "{isolation:?}");
    }
    let db = support::tiny_db();
    let notes = notes(&db);
    let options = TransactionOptions::default().isolation(Isolation::Snapshot);
    let refused = |own: &dyn Fn(&Transaction), other: &dyn Fn()| {
        let tx = db.begin(options.clone()).unwrap();
        own(&tx);
        other();
        kind(tx.commit()) == Some(ErrorKind::Conflict)
    };
    let put = |tx: &Transaction| tx.put(&notes, b"x", &record(1)).unwrap();
    let range = |tx: &Transaction| tx.delete_range(&notes, "a".."m").unwrap();
    assert!(refused(&put, &|| notes.put(b"x", &record(2)).unwrap()));
    assert!(!refused(&put, &|| notes.put(b"y", &record(2)).unwrap()));
    assert!(refused(&put, &|| notes.delete_range("w".."z").unwrap()));
    assert!(refused(&range, &|| notes.put(b"b", &record(2)).unwrap()));
    assert!(!refused(&range, &|| notes.put(b"n", &record(2)).unwrap()));
    assert!(refused(&range, &|| notes.delete_range("l".."z").unwrap()));
    Ok(())
}

#[test]
fn savepoints_remove_later_writes() -> Result<()> {
    let db = support::tiny_db();
    let notes = notes(&db);
    notes.put(b"a", &record(0))?;
    let tx = begin(&db);
    tx.put(&notes, b"b", &record(1))?;
    let first = tx.savepoint();
    tx.delete_range(&notes, "a".."c")?;
    let second = tx.savepoint();
    tx.put(&notes, b"a", &record(2))?;
    assert_eq!((tx.get(&notes, b"a")?, tx.get(&notes, b"b")?), (Some(record(2)), None));
    tx.rollback_to(&second)?;
    assert_eq!((tx.get(&notes, b"a")?, tx.get(&notes, b"b")?), (None, None));
    tx.rollback_to(&second)?;
    tx.rollback_to(&first)?;
    assert_eq!((tx.get(&notes, b"a")?, tx.get(&notes, b"b")?), (Some(record(0)), Some(record(1))));
    assert_eq!(kind(tx.rollback_to(&second)), Some(ErrorKind::InvalidInput));
    assert_eq!(kind(begin(&db).rollback_to(&first)), Some(ErrorKind::InvalidInput));
    assert_eq!(tx.count(&notes, &Query::new().range("n", 0..))?, 2);
    tx.commit()?;
    assert_eq!((notes.get(b"a")?, notes.get(b"b")?), (Some(record(0)), Some(record(1))));
    begin(&db).rollback();
    Ok(())
}

#[test]
fn limits_and_wrong_uses_are_refused() -> Result<()> {
    let db = support::tiny_db();
    let notes = notes(&db);
    let other = support::tiny_db();
    let foreign = other.create_collection("notes", support::tiny_collection())?;
    let tx = begin(&db);
    for result in
        [tx.put(&foreign, b"k", &record(1)), tx.get(&foreign, b"k").map(drop), tx.iter(&foreign).map(drop)]
    {
        assert_eq!(kind(result), Some(ErrorKind::InvalidInput));
    }
    let snapshot = db.snapshot();
    let at = FindOptions::default().snapshot(&snapshot);
    assert_eq!(kind(tx.answers(&notes, &Query::new(), &at)), Some(ErrorKind::InvalidInput));
    let at = IterOptions::default().snapshot(&snapshot);
    assert_eq!(kind(tx.cursor(&notes, &at)), Some(ErrorKind::InvalidInput));
    assert_eq!(kind(tx.put(&notes, b"k", b"no json")), Some(ErrorKind::InvalidInput));
    assert_eq!(tx.get(&notes, b"k")?, None, "a refused write has no effect");
    let small = db.begin(TransactionOptions::default().max_bytes(2_000))?;
    let over = (0..100_u8).find_map(|key| small.put(&notes, &[key], &record(1)).err()).unwrap();
    assert_eq!(over.kind(), ErrorKind::LimitExceeded);
    assert!(over.message().contains("max_bytes"), "{over}");
    assert!(small.memory_bytes() <= 2_000, "{}", small.memory_bytes());
    let small = db.begin(TransactionOptions::default().max_bytes(2_000))?;
    let over = (0..100_u8).find_map(|key| small.get(&notes, &[key]).err()).unwrap();
    assert_eq!(over.kind(), ErrorKind::LimitExceeded);
    Ok(())
}

#[test]
fn a_dropped_collection_and_a_closed_database() -> Result<()> {
    let db = support::tiny_db();
    let (one, two) = (notes(&db), db.create_collection("two", support::tiny_collection())?);
    one.put(b"k", &record(1))?;
    let (reader, writer, unrelated) = (begin(&db), begin(&db), begin(&db));
    reader.get(&one, b"k")?;
    reader.put(&two, b"k", &record(1))?;
    writer.put(&one, b"k", &record(2))?;
    unrelated.put(&two, b"u", &record(1))?;
    db.drop_collection("notes")?;
    assert_eq!(kind(reader.get(&one, b"k")), Some(ErrorKind::NotFound));
    let error = reader.commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().contains("\"notes\" was dropped"), "{error}");
    assert!(matches!(kind(writer.commit()), Some(ErrorKind::NotFound | ErrorKind::Conflict)));
    unrelated.commit()?;
    let tx = begin(&db);
    tx.put(&two, b"late", &record(1))?;
    assert_eq!(kind(db.clone().close()), Some(ErrorKind::Conflict), "handles are in use");
    drop((db, two, one));
    tx.commit()?;
    Ok(())
}

#[test]
fn an_index_that_is_created_meanwhile_has_the_writes() -> Result<()> {
    let db = support::tiny_db();
    let notes = notes(&db);
    let tx = begin(&db);
    tx.put(&notes, b"k", br#"{"n":1,"m":2}"#)?;
    notes.create_index("m".parse()?)?;
    notes.drop_index("n")?;
    notes.create_index("n:lazy".parse()?)?;
    tx.put(&notes, b"l", br#"{"n":1,"m":2}"#)?;
    assert_eq!(tx.count(&notes, &Query::new().eq("m", 2))?, 2);
    tx.commit()?;
    for query in [Query::new().eq("m", 2).using_index("m"), Query::new().eq("n", 1).using_index("n")] {
        assert_eq!(notes.find(&query)?.len(), 2);
    }
    assert!(db.check(true)?.is_sound());
    Ok(())
}

#[test]
fn tokens_stay_in_their_transaction() -> Result<()> {
    let db = support::tiny_db();
    let notes = notes(&db);
    for at in 0..6 {
        notes.put(format!("k{at}").as_bytes(), &record(at))?;
    }
    let query = Query::new().range("n", 0..100).order(Order::Value).limit(2);
    for writes in [false, true] {
        let tx = begin(&db);
        if writes {
            tx.put(&notes, b"own", &record(1))?;
            tx.delete(&notes, b"k3")?;
        }
        let mut keys = Vec::new();
        let mut page = query.clone();
        loop {
            let answers = tx.find(&notes, &page)?;
            keys.extend(answers.iter().map(|answer| String::from_utf8(answer.key.clone()).unwrap()));
            let Some(token) = answers.next_token().cloned() else { break };
            let next = query.clone().after(token.to_string().parse()?);
            assert_eq!(kind(notes.find(&next)), Some(ErrorKind::Expired));
            assert_eq!(kind(notes.find_at(&db.snapshot(), &next)), Some(ErrorKind::Expired));
            assert_eq!(kind(begin(&db).find(&notes, &next)), Some(ErrorKind::Expired));
            page = next;
        }
        let want: &[&str] = match writes {
            true => &["k0", "own", "k1", "k2", "k4", "k5"],
            false => &["k0", "k1", "k2", "k3", "k4", "k5"],
        };
        assert_eq!(keys, want);
        let outside = notes.find(&query)?.next_token().cloned().unwrap();
        assert_eq!(kind(tx.find(&notes, &query.clone().after(outside))), Some(ErrorKind::Expired));
    }
    Ok(())
}

#[test]
fn a_transaction_older_than_the_record_of_commits_conflicts() -> Result<()> {
    // The record takes a quarter of 8 KiB and 32 KiB.
    let db = support::tiny_db();
    let notes = notes(&db);
    let tx = begin(&db);
    tx.get(&notes, b"k")?;
    tx.put(&notes, b"own", &record(1))?;
    for at in 0..500 {
        notes.put(format!("{at}").as_bytes(), &record(at))?;
    }
    let error = tx.commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().contains("too old"), "{error}");
    Ok(())
}

#[test]
fn retries_are_bounded_and_errors_of_the_work_end_it() -> Result<()> {
    let db = support::tiny_db();
    let notes = notes(&db);
    let mut runs = 0;
    let options = TransactionOptions::default().retries(3);
    let result: Result<()> = db.transaction_with(&options, |tx| {
        runs += 1;
        tx.get(&notes, b"k")?;
        notes.put(b"k", &record(runs))?;
        tx.put(&notes, b"l", &record(1))
    });
    let error = result.unwrap_err();
    assert_eq!((error.kind(), runs), (ErrorKind::Conflict, 4));
    assert!(error.message().starts_with("after 4 attempts: collection \"notes\", key k"), "{error}");
    let failed: Result<()> = db.transaction(|tx| {
        tx.put(&notes, b"m", &record(1))?;
        Err(bolide::Error::invalid_input("no"))
    });
    assert_eq!((kind(failed), notes.get(b"m")?), (Some(ErrorKind::InvalidInput), None));
    assert_eq!(db.transaction(|tx| tx.get(&notes, b"k"))?, Some(record(4)));
    Ok(())
}

#[test]
fn expectations_and_transactions_conflict_in_both_directions() -> Result<()> {
    let db = support::tiny_db();
    let notes = notes(&db);
    let tx = begin(&db);
    assert_eq!(tx.get(&notes, b"k")?, None);
    tx.put(&notes, b"k", &record(1))?;
    let mut batch = WriteBatch::new();
    batch.expect(&notes, b"k", Expected::Absent)?;
    batch.put(&notes, b"k", &record(2))?;
    db.write(batch.clone())?;
    assert_eq!(kind(tx.commit()), Some(ErrorKind::Conflict));
    assert_eq!(kind(db.write(batch)), Some(ErrorKind::Conflict));
    Ok(())
}
