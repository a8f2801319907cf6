//! Transactions and conflicts.

use std::time::Duration;

use bolide_sql::{SessionOptions, SqlResult, SqlSession, SqlState};

use crate::harness::{Harness, block_on, texts};

#[test]
fn a_transaction_sees_its_own_writes_and_is_undone() {
    block_on(async {
        let mut harness = Harness::new();
        harness.done("CREATE TABLE t (id TEXT PRIMARY KEY, n BIGINT)").await;
        harness.done("CREATE INDEX ON t (n)").await;
        harness.done("INSERT INTO t VALUES ('a', 1)").await;
        let mut other = SqlSession::new(harness.db.clone(), &SessionOptions::default()).unwrap();
        harness.done("BEGIN").await;
        harness.done("INSERT INTO t VALUES ('b', 2), ('c', 3)").await;
        harness.done("UPDATE t SET n = n + 10 WHERE n < 3").await;
        assert_eq!(harness.rows("SELECT id, n FROM t ORDER BY n").await, ["c|3", "a|11", "b|12"]);
        assert_eq!(harness.rows("SELECT count(*) FROM t WHERE n > 10").await, ["2"]);
        assert_eq!(texts(&other.query("SELECT id, n FROM t").await.unwrap()), ["a|1"]);
        harness.done("SAVEPOINT s").await;
        harness.done("DELETE FROM t WHERE id <> 'a'").await;
        assert_eq!(harness.rows("SELECT id FROM t").await, ["a"]);
        harness.done("ROLLBACK TO s").await;
        // A failed statement has no effect, and the transaction goes on.
        assert_eq!(
            harness.error("INSERT INTO t VALUES ('d', 1), ('a', 1)").await.state(),
            SqlState::UniqueViolation
        );
        assert_eq!(harness.rows("SELECT count(*) FROM t").await, ["3"]);
        assert_eq!(harness.error("DROP TABLE t").await.state(), SqlState::ActiveTransaction);
        assert_eq!(harness.error("BEGIN").await.state(), SqlState::ActiveTransaction);
        assert_eq!(harness.error("ROLLBACK TO x").await.state(), SqlState::InvalidSavepoint);
        harness.done("COMMIT").await;
        assert_eq!(texts(&other.query("SELECT count(*) FROM t").await.unwrap()), ["3"]);
        harness.done("BEGIN").await;
        harness.done("DELETE FROM t").await;
        harness.done("ROLLBACK").await;
        assert_eq!(harness.rows("SELECT count(*) FROM t").await, ["3"]);
        assert_eq!(harness.error("COMMIT").await.state(), SqlState::NoActiveTransaction);
    });
}

#[test]
fn conflicting_transactions_are_refused() {
    block_on(async {
        let mut harness = Harness::new();
        harness.done("CREATE TABLE t (id TEXT PRIMARY KEY, n BIGINT)").await;
        harness.done("INSERT INTO t VALUES ('a', 1), ('b', 1)").await;
        let mut other = SqlSession::new(harness.db.clone(), &SessionOptions::default()).unwrap();
        harness.done("BEGIN").await;
        // Both read the sum and write different rows: not serializable.
        harness.done("UPDATE t SET n = (SELECT sum(n) FROM t) WHERE id = 'a'").await;
        other.query("UPDATE t SET n = 5 WHERE id = 'b'").await.unwrap();
        assert_eq!(harness.error("COMMIT").await.state(), SqlState::SerializationFailure);
        assert!(!harness.session.is_in_transaction());
        assert_eq!(harness.rows("SELECT id, n FROM t ORDER BY id").await, ["a|1", "b|5"]);
    });
}

#[test]
fn no_increment_is_lost() {
    let mut harness = Harness::new();
    block_on(async {
        harness.done("CREATE TABLE t (id TEXT PRIMARY KEY, n BIGINT)").await;
        harness.done("INSERT INTO t VALUES ('a', 0)").await;
    });
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let db = harness.db.clone();
            std::thread::spawn(move || {
                block_on(async {
                    let mut session = SqlSession::new(db, &SessionOptions::default().partitions(1)).unwrap();
                    for _ in 0..100 {
                        loop {
                            match session.query("UPDATE t SET n = n + 1 WHERE id = 'a'").await {
                                Ok(_) => break,
                                Err(error) => {
                                    assert_eq!(error.state(), SqlState::SerializationFailure, "{error}")
                                }
                            }
                        }
                    }
                });
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    block_on(async { assert_eq!(harness.rows("SELECT n FROM t").await, ["200"]) });
}

#[test]
fn statements_are_not_prepared() {
    block_on(async {
        let mut harness = Harness::with_posts(10);
        for statement in ["PREPARE p AS SELECT count(*) FROM posts", "EXECUTE p", "DEALLOCATE p"] {
            let error = harness.error(statement).await;
            assert_eq!(error.state(), SqlState::FeatureNotSupported, "{statement}: {error}");
            assert!(error.hint().is_some(), "{statement}");
        }
        assert_eq!(harness.rows("SELECT count(*) FROM posts").await, ["10"]);
        harness.done("SET datafusion.execution.batch_size = 256").await;
        harness.done("RESET datafusion.execution.batch_size").await;
    });
}

#[test]
fn the_end_of_a_transaction_ends_the_scans_whose_rows_are_not_read() {
    const ROWS: usize = 20_000;
    block_on(async {
        let mut harness = Harness::with_posts(ROWS as u64);
        let join = "SELECT p.title, q.title FROM posts p JOIN posts q ON p._key = q._key";
        for (end, query) in [
            ("COMMIT", "SELECT * FROM posts"),
            ("ROLLBACK", "SELECT * FROM posts"),
            ("COMMIT", "SELECT title FROM posts WHERE score >= 0"),
            ("COMMIT", join),
        ] {
            harness.done("BEGIN").await;
            let SqlResult::Rows(mut rows) = harness.session.execute(query).await.unwrap() else { panic!() };
            let first = rows.next().await.unwrap().unwrap().num_rows();
            assert!(first < ROWS);
            let ended = tokio::time::timeout(Duration::from_secs(20), harness.session.execute(end)).await;
            assert!(ended.expect("the end of the transaction waits for the reader").is_ok());
            // Rows that are missing are reported.
            match rows.collect().await {
                Err(error) => assert_eq!(error.state(), SqlState::NoActiveTransaction, "{query}: {error}"),
                // The scans had ended before, and the join holds their rows.
                Ok(rest) => {
                    let rest: usize = rest.iter().map(|batch| batch.num_rows()).sum();
                    assert_eq!((first + rest, query), (ROWS, join));
                }
            }
            assert_eq!(harness.rows("SELECT count(*) FROM posts").await, ["20000"]);
        }
    });
}

#[test]
fn the_schema_of_a_table_is_no_read_of_a_transaction() {
    block_on(async {
        let mut harness = Harness::with_posts(100);
        let mut other = SqlSession::new(harness.db.clone(), &SessionOptions::default()).unwrap();
        harness.done("BEGIN").await;
        // The first use of the table: its records are sampled.
        harness.done("UPDATE posts SET score = 1 WHERE _key = 'p00001'").await;
        other.query("UPDATE posts SET score = 2 WHERE _key = 'p00050'").await.unwrap();
        harness.done("COMMIT").await;
        let both = "SELECT score FROM posts WHERE _key IN ('p00001', 'p00050') ORDER BY _key";
        assert_eq!(harness.rows(both).await, ["1", "2"]);
    });
}

#[test]
fn the_records_of_an_update_are_within_the_memory_of_a_transaction() {
    block_on(async {
        let mut harness = Harness::new();
        harness.done("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT, s TEXT)").await;
        let fill = "INSERT INTO t SELECT value, 1, repeat('x', 10000) FROM generate_series(1, 100)";
        harness.done(fill).await;
        harness.done("SET bolide.transaction_bytes = 200000").await;
        // The new records are small, the old ones are not.
        let error = harness.error("UPDATE t SET s = NULL").await;
        assert_eq!(error.state(), SqlState::LimitExceeded, "{error}");
        assert!(error.message().contains("the records that the statement changes"), "{error}");
        assert_eq!(harness.done("UPDATE t SET s = NULL WHERE id <= 10").await, "UPDATE 10");
        assert_eq!(harness.rows("SELECT count(*) FROM t WHERE s IS NULL").await, ["10"]);
    });
}
