//! Input that is invalid or excessive: an error, never a panic.

use bolide_sql::SqlState;

use crate::harness::{Harness, block_on};

#[test]
fn hostile_statements_have_errors() {
    block_on(async {
        let mut harness = Harness::with_posts(20);
        let deep = format!("SELECT {}1{}", "(".repeat(1_000_000), ")".repeat(1_000_000));
        let wide = format!("SELECT 1 FROM posts WHERE {}", vec!["score = 1"; 50].join(" OR "));
        let wider = format!("SELECT 1 FROM posts WHERE {}", vec!["score = 1"; 200_000].join(" OR "));
        let sums = format!("SELECT {}1", "score + ".repeat(95));
        let nots = format!("SELECT 1 FROM posts WHERE {} score = 1", "NOT ".repeat(100_000));
        let long_name = format!("SELECT \"{}\" FROM posts", "x".repeat(1_000_000));
        for statement in [
            deep.as_str(),
            &wider,
            &nots,
            &long_name,
            "SELECT",
            "'",
            "\"",
            "SELECT * FROM",
            "SELECT * FROM posts WHERE",
            ";",
            "SELECT \u{0} FROM posts",
            "CREATE TABLE",
            "CREATE TABLE \"\" (a TEXT)",
            "DROP INDEX posts.\"\"",
            "CREATE EXTERNAL TABLE x (a INT) STORED AS CSV LOCATION '/etc/passwd'",
            "COPY posts TO '/tmp/x'",
            "INSERT INTO posts SELECT * FROM posts",
            "SELECT * FROM posts; SELECT 1",
            "CREATE VIEW v AS SELECT 1",
            "SELECT 1/0",
            "SELECT CAST(1e30 AS BIGINT)",
            "EXPLAIN",
            "EXPLAIN EXPLAIN SELECT 1",
            "UPDATE posts SET",
            "DELETE posts",
            "CREATE SCHEMA s",
            "CREATE DATABASE d",
            "SET bolide.nothing = 1",
            "EXPLAIN PREPARE p AS SELECT 1",
            "EXPLAIN EXECUTE p",
        ] {
            match harness.session.execute(statement).await {
                Err(error) => assert_ne!(error.state(), SqlState::Internal, "{statement:.60}: {error:.200}"),
                Ok(bolide_sql::SqlResult::Rows(rows)) => {
                    let collected = rows.collect().await;
                    let error = collected.err().unwrap_or_else(|| panic!("{statement:.60} has no error"));
                    assert_ne!(error.state(), SqlState::Internal, "{statement:.60}: {error:.200}");
                }
                Ok(done) => panic!("{statement:.60}: {done:?}"),
            }
        }
        // Wide and valid.
        assert_eq!(harness.rows(&wide).await.len(), 0);
        assert_eq!(harness.rows(&format!("{sums} FROM posts LIMIT 1")).await, ["1"]);
        assert_eq!(harness.rows("SELECT count(*) FROM posts").await, ["20"]);
    });
}

#[test]
fn statements_beyond_the_memory_use_files() {
    block_on(async {
        let harness = Harness::with_posts(20_000);
        let options = bolide_sql::SessionOptions::default().memory_bytes(8 << 20).partitions(1);
        let mut session = bolide_sql::SqlSession::new(harness.db.clone(), &options).unwrap();
        let rows = session
            .query("SET datafusion.execution.batch_size = 256; SELECT title, score, repeat(title, 100) FROM posts ORDER BY 3")
            .await
            .unwrap();
        assert_eq!(rows.iter().map(|batch| batch.num_rows()).sum::<usize>(), 20_000);
        // Too many groups for the memory of an aggregate that cannot use files.
        let result = session.query("SELECT array_agg(title || repeat('x', 1000)) FROM posts").await;
        if let Err(error) = result {
            assert_eq!(error.state(), SqlState::OutOfMemory, "{error}");
        }
        // The session goes on.
        assert_eq!(crate::harness::texts(&session.query("SELECT 1").await.unwrap()), ["1"]);
    });
}

#[test]
fn a_dropped_query_releases_its_snapshot() {
    block_on(async {
        let mut harness = Harness::with_posts(5_000);
        let bolide_sql::SqlResult::Rows(mut rows) =
            harness.session.execute("SELECT * FROM posts").await.unwrap()
        else {
            panic!()
        };
        rows.next().await.unwrap().unwrap();
        drop(rows);
        for _ in 0..200 {
            if harness.db.stats().views == 0 {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("{} views are left", harness.db.stats().views);
    });
}

#[test]
fn long_chains_have_errors_and_wide_statements_run() {
    block_on(async {
        let mut harness = Harness::with_posts(20);
        for (prefix, link) in [
            ("SELECT 1", " IS NULL"),
            ("SELECT 1", " ISNULL"),
            ("SELECT 1", " IN (1)"),
            ("SELECT 'a'", " LIKE 'a'"),
            ("SELECT 'a'", " NOT ILIKE 'a'"),
            ("SELECT 'a'", " SIMILAR TO 'a'"),
            ("SELECT 'a'", " COLLATE \"C\""),
            ("SELECT now()", " AT TIME ZONE 'UTC'"),
            ("SELECT 1", " OPERATOR(pg_catalog.+) 1"),
            ("SELECT 1", " BETWEEN 1 AND 2"),
            ("SELECT 1", "::int"),
            ("SELECT tags", "[1]"),
            ("SELECT tags FROM posts WHERE a", ".a"),
            ("SELECT 1 FROM posts", ", posts"),
            ("SELECT 1 FROM posts", " CROSS JOIN posts"),
            ("WITH a AS (SELECT 1)", ", a AS (SELECT 1)"),
            ("SELECT 1", " UNION SELECT 1"),
        ] {
            let statement = format!("{prefix}{}", link.repeat(50_000));
            let error = harness.error(&statement).await;
            assert_eq!(error.state(), SqlState::LimitExceeded, "{prefix}{link}…: {error:.200}");
        }
        // Chains in the first operands of chains.
        let mut nested = "1".to_owned();
        for _ in 0..20 {
            nested = format!("({nested}{})", " + 1".repeat(20));
        }
        assert_eq!(harness.error(&format!("SELECT {nested}")).await.state(), SqlState::LimitExceeded);
        let columns: Vec<String> =
            (0..300).map(|at| format!("score + 1 IS DISTINCT FROM 2 AS c{at}")).collect();
        let wide = format!("SELECT {} FROM posts", columns.join(", "));
        assert_eq!(harness.rows(&wide).await.len(), 20);
        let groups = vec!["(score = 1 AND author IN ('a1', 'a2'))"; 60].join(" OR ");
        assert_eq!(harness.rows(&format!("SELECT 1 FROM posts WHERE {groups}")).await.len(), 0);
    });
}
