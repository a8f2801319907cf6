//! Bounds of transactions: memory of reads, limits of queries, failed moves, dropped collections; prepared queries.

mod support;

use std::ops::ControlFlow;
use std::sync::Arc;

use bolide::storage::{Fault, FaultPlan, SimRuntime, SimVfs, Vfs};
use bolide::{
    Answer, Collection, Components, Db, ErrorKind, Filter, FindOptions, Isolation, IterOptions, Order, Query,
    Result, SortDirection, Transaction, TransactionOptions,
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

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

fn fill(notes: &Collection, records: i64) {
    (0..records).for_each(|at| notes.put(format!("k{at:05}").as_bytes(), &record(at)).unwrap());
}

#[test]
fn pages_of_one_query_take_the_memory_of_one() -> Result<()> {
    let db = support::tiny_db();
    let notes = notes(&db);
    fill(&notes, 100);
    let tx = begin(&db);
    let query = Query::new().range("n", 0..1_000).order(Order::Value).limit(5);
    let mut page = query.clone();
    let mut memory = Vec::new();
    loop {
        let answers = tx.find(&notes, &page)?;
        memory.push(tx.memory_bytes());
        let Some(token) = answers.next_token().cloned() else { break };
        page = query.clone().after(token);
    }
    tx.find(&notes, &Query::new().range("n", 0..1_000).keys_only())?;
    assert!(memory.len() >= 20, "{memory:?}");
    assert_eq!((memory[0], tx.memory_bytes()), (memory[19], memory[0]));
    Ok(())
}

#[test]
fn conditions_of_queries_count_for_the_memory() -> Result<()> {
    let db = support::tiny_db();
    let notes = notes(&db);
    let tx = db.begin(TransactionOptions::default().max_bytes(100_000))?;
    let list = |from: i64| Query::new().filter(Filter::one_of("n", from..from + 300));
    tx.find(&notes, &list(0))?;
    assert!(tx.memory_bytes() > 300 * 80, "{}", tx.memory_bytes());
    let over = (1..100).find_map(|from| tx.find(&notes, &list(1_000 * from)).err()).expect("a limit");
    assert_eq!(over.kind(), ErrorKind::LimitExceeded);
    assert!(tx.memory_bytes() <= 100_000, "{}", tx.memory_bytes());
    tx.find(&notes, &list(0))?;
    // The isolation that does not validate queries does not record them.
    let options = TransactionOptions::default().isolation(Isolation::Snapshot).max_bytes(1_000);
    let tx = db.begin(options)?;
    tx.find(&notes, &list(0))?;
    assert_eq!(tx.memory_bytes(), begin(&db).memory_bytes());
    Ok(())
}

#[test]
fn seeks_of_a_cursor_are_limited_and_their_common_ranges_are_merged() -> Result<()> {
    let db = support::tiny_db();
    let notes = notes(&db);
    fill(&notes, 2_000);
    let tx = db.begin(TransactionOptions::default().max_bytes(20_000))?;
    let mut cursor = tx.cursor(&notes, &IterOptions::default().range("k".."l"))?;
    // Again and again over the same keys.
    for at in 0..10_000 {
        cursor.seek(format!("k{:05}", at % 50).as_bytes())?;
    }
    let over = (0..2_000).find_map(|at| cursor.seek(format!("k{at:05}").as_bytes()).err()).expect("a limit");
    assert_eq!(over.kind(), ErrorKind::LimitExceeded);
    assert!(!cursor.valid() && tx.memory_bytes() < 21_000, "{}", tx.memory_bytes());
    drop(cursor);
    // Both places count as read, not what lies between.
    for (changed, conflicts) in [("k00007", true), ("k01999", true), ("k00900", false)] {
        let tx = begin(&db);
        let mut cursor = tx.cursor(&notes, &IterOptions::default().range("k".."l"))?;
        cursor.seek(b"k00007")?;
        cursor.seek(b"k01999")?;
        drop(cursor);
        tx.put(&notes, b"own", &record(1))?;
        notes.put(changed.as_bytes(), &record(-1))?;
        assert_eq!(tx.commit().is_err(), conflicts, "{changed}");
    }
    Ok(())
}

#[test]
fn open_cursors_count_for_the_memory() -> Result<()> {
    let db = support::tiny_db();
    let notes = notes(&db);
    let tx = db.begin(TransactionOptions::default().max_bytes(10_000))?;
    let bounded = IterOptions::default().range("a".."b");
    let mut cursors = Vec::new();
    let over = loop {
        match tx.cursor(&notes, &bounded) {
            Ok(cursor) => cursors.push(cursor),
            Err(error) => break error,
        }
        assert!(cursors.len() < 100);
    };
    assert_eq!((over.kind(), cursors.len() > 5), (ErrorKind::LimitExceeded, true));
    drop(cursors);
    assert!(tx.cursor(&notes, &bounded).is_ok());
    Ok(())
}

#[test]
fn a_cursor_is_not_valid_after_a_failed_move() -> Result<()> {
    let vfs = SimVfs::new(1);
    let disk: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let components = Components::system().vfs(disk).runtime(Arc::new(SimRuntime::new(1)));
    let db = Db::open_with("db", support::tiny().cache_bytes(0), components)?;
    let notes = notes(&db);
    fill(&notes, 2_000);
    db.flush()?;
    let tx = begin(&db);
    tx.put(&notes, b"k00500a", &record(1))?;
    let mut cursor = tx.cursor(&notes, &IterOptions::default())?;
    let mut failed = |cursor_move: &dyn Fn(&mut bolide::TransactionCursor<'_>) -> Result<()>| -> Result<()> {
        cursor.seek(b"k00500")?;
        assert_eq!(cursor.key(), b"k00500");
        vfs.set_fault(Some(FaultPlan { fault: Fault::Io, at: 1, sticky: true }));
        // A block that is in memory is read without the disk.
        let error = (0..1_000).find_map(|_| match cursor_move(&mut cursor) {
            Ok(()) if cursor.valid() => None,
            Ok(()) => Some(None),
            Err(error) => Some(Some(error)),
        });
        vfs.set_fault(None);
        assert_eq!(error.flatten().map(|error| error.kind()), Some(ErrorKind::Io));
        assert!(!cursor.valid() && cursor.key().is_empty() && cursor.value().is_empty());
        assert_eq!(cursor.sequence(), 0);
        Ok(())
    };
    failed(&|cursor| cursor.next())?;
    failed(&|cursor| cursor.prev())?;
    failed(&|cursor| cursor.seek(b"k01900"))?;
    failed(&|cursor| cursor.seek_for_prev(b"k01900"))?;
    failed(&|cursor| cursor.seek_to_first())?;
    failed(&|cursor| cursor.seek_to_last())?;
    Ok(())
}

#[test]
fn a_collection_that_was_only_touched_before_a_rollback_may_be_dropped() -> Result<()> {
    let db = support::tiny_db();
    let (one, two) = (notes(&db), db.create_collection("two", support::tiny_collection())?);
    let tx = begin(&db);
    tx.put(&two, b"k", &record(1))?;
    let savepoint = tx.savepoint();
    tx.put(&one, b"k", &record(1))?;
    tx.rollback_to(&savepoint)?;
    // A refused write touches nothing.
    assert_eq!(kind(tx.put(&one, b"k", b"no json")), Some(ErrorKind::InvalidInput));
    db.drop_collection("notes")?;
    tx.commit()?;
    assert!(two.get(b"k")?.is_some());
    Ok(())
}

#[test]
fn dropped_collections_give_one_error_each() -> Result<()> {
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        for (reads, writes) in [(false, true), (true, false), (true, true)] {
            let db = support::tiny_db();
            let (one, two) = (notes(&db), db.create_collection("two", support::tiny_collection())?);
            let tx = db.begin(TransactionOptions::default().isolation(isolation))?;
            tx.put(&two, b"k", &record(1))?;
            if reads {
                tx.get_for_update(&one, b"k")?;
            }
            if writes {
                tx.put(&one, b"k", &record(2))?;
            }
            db.drop_collection("notes")?;
            let error = tx.commit().unwrap_err();
            let want = if reads { ErrorKind::Conflict } else { ErrorKind::NotFound };
            assert_eq!(error.kind(), want, "{isolation:?}, reads {reads}, writes {writes}: {error}");
            assert!(error.message().contains("\"notes\" was dropped"), "{error}");
            assert_eq!(two.get(b"k")?, None);
        }
    }
    Ok(())
}

#[test]
fn blind_serializable_transactions_are_never_too_old() -> Result<()> {
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let db = support::tiny_db();
        let notes = notes(&db);
        let tx = db.begin(TransactionOptions::default().isolation(isolation))?;
        tx.put(&notes, b"own", &record(1))?;
        assert_eq!(tx.get(&notes, b"own")?, Some(record(1)), "an own write is no read");
        // More than the record of recent commits takes.
        fill(&notes, 500);
        match isolation {
            Isolation::Serializable => {
                tx.commit()?;
                assert_eq!(notes.get(b"own")?, Some(record(1)));
            }
            _ => assert_eq!(kind(tx.commit()), Some(ErrorKind::Conflict)),
        }
    }
    Ok(())
}

#[test]
fn a_deleted_range_keeps_the_limit_of_a_query() -> Result<()> {
    let db = support::tiny_db();
    let notes = notes(&db);
    fill(&notes, 3_000);
    let tx = begin(&db);
    tx.delete_range(&notes, "k02990".."k02995")?;
    let newest = Query::new().range("n", 0..).limit(10);
    for query in [newest.clone(), newest.clone().order(Order::Value), newest.clone().count()] {
        let found = tx.find(&notes, &query)?;
        assert_eq!(found.count(), 10);
        assert!(found.explain().candidates < 300, "{query:?}: {}", found.explain());
    }
    let found = tx.find(&notes, &newest)?;
    let keys: Vec<_> = found.iter().map(|answer| String::from_utf8_lossy(&answer.key).into_owned()).collect();
    let want: Vec<_> =
        (0..3_000).rev().filter(|at| !(2_990..2_995).contains(at)).map(|at| format!("k{at:05}")).collect();
    assert_eq!(keys, want[..10]);
    // A range that hides more than the additional answers: the query continues.
    tx.delete_range(&notes, "k02000".."k02995")?;
    let sorted = newest.clone().sort_by("n", SortDirection::Descending);
    for query in [newest, sorted] {
        let found = tx.find(&notes, &query)?;
        let keys: Vec<_> = found.iter().map(|answer| answer.key.clone()).collect();
        let want = (2_995..3_000).rev().chain((1_995..2_000).rev());
        assert_eq!(keys, want.map(|at| format!("k{at:05}").into_bytes()).collect::<Vec<_>>(), "{query:?}");
        assert!(found.explain().candidates >= 1_010, "the costs of all pages: {}", found.explain());
    }
    Ok(())
}

fn visit(tx: &Transaction, prepared: &mut bolide::PreparedQuery, value: i64) -> Result<Vec<Answer>> {
    let mut answers = Vec::new();
    let count = tx.visit(prepared, &value.into(), |answer| {
        answers.push(answer.to_answer());
        Ok(ControlFlow::Continue(()))
    })?;
    assert_eq!(count, prepared.outcome().expect("a run").count());
    Ok(answers)
}

#[test]
fn prepared_queries_see_own_writes_and_count_as_read() -> Result<()> {
    for kind_of_index in ["ps-tree", "composite", "lazy", "next"] {
        for (limit, keys_only) in [(3, true), (3, false), (1_000, false)] {
            let db = support::tiny_db();
            let index = format!("n=n:{kind_of_index}").parse()?;
            let notes = db.create_collection("notes", support::tiny_collection().index(index))?;
            for at in 0..40 {
                notes.put(format!("k{at:02}").as_bytes(), &record(at % 4))?;
            }
            let query = |value: i64| {
                let query = Query::new().eq("n", value).limit(limit);
                if keys_only { query.keys_only() } else { query }
            };
            let mut prepared = notes.prepare(query(0), FindOptions::default())?;
            let outside = |prepared: &mut bolide::PreparedQuery| {
                prepared.visit(&1.into(), |_| Ok(ControlFlow::Continue(()))).unwrap();
                prepared.outcome().unwrap().next_token().cloned()
            };
            let tx = begin(&db);
            // Not visible at the snapshot.
            notes.put(b"later", &record(1))?;
            for writes in [false, true] {
                if writes {
                    tx.put(&notes, b"own", &record(1))?;
                    tx.delete(&notes, b"k37")?;
                    tx.put(&notes, b"k33", &record(2))?;
                }
                for value in [1, 2, 9] {
                    let (want, got) = (tx.find(&notes, &query(value))?, visit(&tx, &mut prepared, value)?);
                    assert_eq!(got, *want, "{kind_of_index}, {limit}, writes {writes}, value {value}");
                    let token = prepared.outcome().unwrap().next_token().cloned();
                    assert_eq!(token.as_ref(), want.next_token());
                    if let Some(token) = token {
                        let next = query(value).after(token);
                        assert_eq!(kind(notes.find(&next)), Some(ErrorKind::Expired));
                        tx.find(&notes, &next)?;
                    }
                }
                let token = outside(&mut prepared);
                assert!(token.is_none_or(|token| token.transaction().is_none()), "outside again");
            }
            tx.rollback();
            // It counts as read, and only for its value.
            for (value, conflicts) in [(1, true), (3, false)] {
                let tx = begin(&db);
                visit(&tx, &mut prepared, 1)?;
                tx.put(&notes, b"own", &record(0))?;
                notes.put(b"new", &record(value))?;
                assert_eq!(tx.commit().is_err(), conflicts, "{kind_of_index}, {value}");
                notes.delete(b"new")?;
            }
            let tx = begin(&db);
            let failed = tx.visit(&mut prepared, &f64::NAN.into(), |_| Ok(ControlFlow::Continue(())));
            assert_eq!(kind(failed), Some(ErrorKind::InvalidInput));
        }
    }
    Ok(())
}

#[test]
fn a_panic_in_a_prepared_query_leaves_it_outside_of_the_transaction() -> Result<()> {
    for index in ["ps-tree", "composite"] {
        let db = support::tiny_db();
        let index = format!("n=n:{index}").parse()?;
        let notes = db.create_collection("notes", support::tiny_collection().index(index))?;
        notes.put(b"1", &record(1))?;
        let query = Query::new().eq("n", 0).limit(9).keys_only();
        let mut prepared = notes.prepare(query, FindOptions::default())?;
        let tx = begin(&db);
        let visit = || tx.visit(&mut prepared, &1.into(), |_| panic!("in a test"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(visit)).is_err());
        notes.put(b"2", &record(1))?;
        let answers = prepared.visit(&1.into(), |_| Ok(ControlFlow::Continue(())))?;
        assert_eq!(answers, 2, "at the present state");
    }
    Ok(())
}
