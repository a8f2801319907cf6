//! Collections as tables: inferred and declared columns, types, keys.

use bolide::key::{KeyFormat, encode_int, encode_string};
use bolide::{CollectionOptions, Components, Db, Options};
use bolide_sql::{SessionOptions, SqlSession, SqlState};

use crate::harness::{Harness, block_on};

#[test]
fn columns_are_inferred_from_records() {
    block_on(async {
        let mut harness = Harness::with_posts(100);
        let columns = harness.session.columns("posts").await.unwrap();
        let columns: Vec<String> = columns.iter().map(|(name, of)| format!("{name} {of}")).collect();
        assert_eq!(
            columns,
            [
                "_key string",
                "subreddit string",
                "author string",
                "score int64",
                "tags list<string>",
                "user.id int64",
                "title string",
                "_sequence int64"
            ]
        );
        let rows =
            harness.rows("SELECT _key, score, tags, \"user.id\" FROM posts WHERE _key = 'p00003'").await;
        assert_eq!(rows, ["p00003|111|[t3, u0]|3"]);
        assert_eq!(harness.rows("SELECT * FROM posts LIMIT 3").await.len(), 3);
        // Nothing was written.
        assert_eq!(harness.db.collections(), ["posts"]);
    });
}

#[test]
fn values_of_other_types_are_null() {
    block_on(async {
        let mut harness = Harness::new();
        harness.done("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT, f DOUBLE, s TEXT, b BOOLEAN, j JSON, l BIGINT[])").await;
        let t = harness.db.collection("t").unwrap();
        let records = [
            r#"{"n":1,"f":1,"s":"x","b":true,"j":{"a":[1]},"l":[1,2]}"#,
            r#"{"n":1.0,"f":2.5,"s":"","b":false,"j":null,"l":[]}"#,
            r#"{"n":"1","f":"2.5","s":1,"b":"true","j":"t","l":1}"#,
            r#"{"n":1.5,"f":null,"s":null,"b":1,"j":7,"l":[1,"x",null]}"#,
            r#"{"n":18446744073709551615}"#,
            "{}",
        ];
        for (at, record) in records.iter().enumerate() {
            t.put(&encode_int(at as i64), record.as_bytes()).unwrap();
        }
        let rows = harness.rows("SELECT id, n, f, s, b, j, l FROM t ORDER BY id").await;
        assert_eq!(
            rows,
            [
                "0|1|1.0|x|true|{\"a\":[1]}|[1, 2]",
                "1|1|2.5||false|NULL|[]",
                "2|NULL|NULL|NULL|NULL|\"t\"|NULL",
                "3|NULL|NULL|NULL|NULL|7|[1, NULL, NULL]",
                "4|NULL|NULL|NULL|NULL|NULL|NULL",
                "5|NULL|NULL|NULL|NULL|NULL|NULL",
            ]
        );
        // An index makes no difference.
        for _ in 0..2 {
            assert_eq!(harness.rows("SELECT id FROM t WHERE n = 1 ORDER BY id").await, ["0", "1"]);
            assert_eq!(harness.rows("SELECT id FROM t WHERE n >= 1 ORDER BY id").await, ["0", "1"]);
            assert_eq!(harness.rows("SELECT id FROM t WHERE n IS NOT NULL ORDER BY id").await, ["0", "1"]);
            assert_eq!(
                harness.rows("SELECT id FROM t WHERE j IS NOT NULL ORDER BY id").await,
                ["0", "2", "3"]
            );
            assert_eq!(harness.rows("SELECT id FROM t WHERE array_has(l, 1) ORDER BY id").await, ["0", "3"]);
            assert_eq!(harness.rows("SELECT count(*) FROM t WHERE n > 0").await, ["2"]);
            assert_eq!(harness.rows("SELECT min(n), max(n) FROM t").await, ["1|1"]);
            assert_eq!(harness.rows("SELECT min(n) FROM t").await, ["1"]);
            assert_eq!(
                harness.rows("SELECT id FROM t ORDER BY n NULLS LAST, _sequence DESC LIMIT 3").await,
                ["1", "0", "5"]
            );
            for column in ["n", "f", "s", "b", "l"] {
                let _ = harness
                    .session
                    .query(&format!("CREATE INDEX IF NOT EXISTS i_{column} ON t ({column})"))
                    .await;
            }
        }
    });
}

#[test]
fn declarations_are_in_the_database() {
    block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let open = || {
            SqlSession::new(Db::open(&path, Options::default()).unwrap(), &SessionOptions::default()).unwrap()
        };
        let mut session = open();
        session
            .query("CREATE TABLE t (id TEXT PRIMARY KEY, at TIMESTAMP, ms TIMESTAMP, day DATE NOT NULL) WITH (ms = 'ms');
                    INSERT INTO t VALUES ('a', '2026-11-26 12:00:00.5', '2026-11-26T12:00:00', '2026-11-26')")
            .await
            .unwrap();
        let rows = |batches: Vec<_>| crate::harness::texts(&batches);
        let expected = ["a|2026-11-26T12:00:00.500|2026-11-26T12:00:00|2026-11-26"];
        assert_eq!(rows(session.query("SELECT id, at, ms, day FROM t").await.unwrap()), expected);
        assert_eq!(session.tables(), ["t"]);
        drop(session);
        let mut session = open();
        assert_eq!(rows(session.query("SELECT id, at, ms, day FROM t").await.unwrap()), expected);
        assert_eq!(
            rows(
                session
                    .query("SELECT id FROM t WHERE ms > '2026-11-26T11:59:59' AND day = '2026-11-26'")
                    .await
                    .unwrap()
            ),
            ["a"]
        );
        let error = session.query("CREATE TABLE t (a TEXT)").await.unwrap_err();
        assert_eq!(error.state(), SqlState::DuplicateTable);
        session
            .query("CREATE TABLE IF NOT EXISTS t (a TEXT); DROP TABLE t; DROP TABLE IF EXISTS t")
            .await
            .unwrap();
        assert_eq!(session.query("SELECT * FROM t").await.unwrap_err().state(), SqlState::UndefinedTable);
        assert_eq!(session.query("SELECT * FROM _sql").await.unwrap_err().state(), SqlState::UndefinedTable);
    });
}

#[test]
fn analyze_stores_columns_and_figures() {
    block_on(async {
        let mut harness = Harness::with_posts(300);
        harness.db.collection("posts").unwrap().put(b"q", br#"{"new":1.5}"#).unwrap();
        assert_eq!(harness.done("ANALYZE posts").await, "ANALYZE 7");
        let rows = harness
            .rows("SELECT name, type, distinct_values FROM system.columns WHERE collection = 'posts' AND path IS NOT NULL ORDER BY place")
            .await;
        assert_eq!(rows[0], "subreddit|string|7");
        assert_eq!(rows[6], "new|float64|1");
        assert_eq!(harness.rows("SELECT new FROM posts WHERE new > 1").await, ["1.5"]);
    });
}

#[test]
fn keys_of_every_format_are_found() {
    block_on(async {
        for format in [KeyFormat::Bytes, KeyFormat::Typed] {
            let mut harness = Harness::new();
            let options = CollectionOptions::default().keys(format);
            let t = harness.db.create_collection("t", options).unwrap();
            for text in ["a", "b", "42", "", "zz"] {
                let key =
                    if format == KeyFormat::Typed { encode_string(text) } else { text.as_bytes().to_vec() };
                t.put(&key, b"{}").unwrap();
            }
            assert_eq!(
                harness.rows("SELECT _key FROM t WHERE _key >= 'a' AND _key < 'z' ORDER BY _key").await,
                ["a", "b"]
            );
            assert_eq!(
                harness.rows("SELECT _key FROM t WHERE _key IN ('b', '42', 'x') ORDER BY _key").await,
                ["42", "b"]
            );
            assert_eq!(harness.rows("SELECT _key FROM t ORDER BY _key DESC LIMIT 2").await, ["zz", "b"]);
            assert_eq!(harness.rows("SELECT _key FROM t WHERE _key > 'b' AND _key < 'a'").await, [""; 0]);
            if format == KeyFormat::Typed {
                // Two keys with one text, in another order than their bytes.
                t.put(&encode_int(42), b"{\"n\":1}").unwrap();
                assert_eq!(harness.rows("SELECT count(*) FROM t WHERE _key = '42'").await, ["2"]);
                assert_eq!(
                    harness.rows("SELECT _key FROM t WHERE _key > '0' ORDER BY _key").await,
                    ["42", "42", "a", "b", "zz"]
                );
            }
        }
        let db = Db::open_with("ints", Options::default(), Components::in_memory()).unwrap();
        let t = db.create_collection("t", CollectionOptions::json().keys(KeyFormat::Typed)).unwrap();
        for key in [-300, -1, 0, 7, 1_000_000] {
            t.put(&encode_int(key), format!(r#"{{"v":{key}}}"#).as_bytes()).unwrap();
        }
        let mut session = SqlSession::new(db, &SessionOptions::default()).unwrap();
        let rows =
            session.query("SELECT _key FROM t WHERE _key BETWEEN -1 AND 7 ORDER BY _key DESC").await.unwrap();
        assert_eq!(crate::harness::texts(&rows), ["7", "0", "-1"]);
    });
}

#[test]
fn all_scans_of_a_statement_read_one_snapshot() {
    block_on(async {
        let mut harness = Harness::with_posts(2_000);
        let posts = harness.db.collection("posts").unwrap();
        let is_done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let writer = std::thread::spawn({
            let is_done = is_done.clone();
            move || {
                let mut at = 0_u64;
                while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    posts.put(format!("new{at}").as_bytes(), br#"{"score":1}"#).unwrap();
                    at += 1;
                }
            }
        });
        for _ in 0..20 {
            let rows = harness
                .rows("SELECT (SELECT count(*) FROM posts) - count(*), (SELECT max(_sequence) FROM posts) - max(_sequence) FROM posts")
                .await;
            assert_eq!(rows, ["0|0"]);
        }
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        writer.join().unwrap();
    });
}

#[test]
fn the_key_may_stand_behind_other_columns() {
    block_on(async {
        let mut harness = Harness::new();
        harness.done("CREATE TABLE t (name TEXT, id TEXT PRIMARY KEY, n BIGINT)").await;
        harness.done("INSERT INTO t VALUES ('ann', 'p1', 1), ('bob', 'p0', 2)").await;
        // Behind them is the sequence number.
        assert!(harness.rows("SELECT * FROM t WHERE id = 'p1'").await[0].starts_with("ann|p1|1|"));
        assert_eq!(harness.rows("SELECT id FROM t ORDER BY id").await, ["p0", "p1"]);
        assert_eq!(harness.rows("SELECT name FROM t ORDER BY name").await, ["ann", "bob"]);
        let join = "SELECT a.name FROM t AS a JOIN t AS b ON a.id = b.id WHERE b.n = 2";
        assert_eq!(harness.rows(join).await, ["bob"]);
        let record = harness.db.collection("t").unwrap().get(&encode_string("p1")).unwrap();
        assert_eq!(record.unwrap(), br#"{"name":"ann","n":1}"#);
        harness.done("CREATE TABLE u AS SELECT name, id AS _key FROM t").await;
        assert_eq!(harness.rows("SELECT _key, name FROM u ORDER BY _key").await, ["p0|bob", "p1|ann"]);
        harness.done("INSERT INTO u SELECT name || '!', id || 'x' FROM t").await;
        assert_eq!(harness.rows("SELECT name FROM u WHERE _key = 'p0x'").await, ["bob!"]);
        // Another session reads the place from the declaration.
        let mut other = SqlSession::new(harness.db.clone(), &SessionOptions::default()).unwrap();
        let rows = other.query("SELECT * FROM t WHERE id = 'p0'").await.unwrap();
        assert!(crate::harness::texts(&rows)[0].starts_with("bob|p0|2|"));
        assert_eq!(harness.done("UPDATE t SET name = 'eve' WHERE id = 'p0'").await, "UPDATE 1");
        assert_eq!(harness.rows("DELETE FROM t RETURNING *").await, ["eve|p0|2", "ann|p1|1"]);
    });
}

#[test]
fn extremes_with_conditions_on_keys_are_those_of_the_named_rows() {
    block_on(async {
        // The scores are 37, 74, 111; and 999, 36.
        let mut harness = Harness::with_posts(100);
        for (aggregate, condition, expected) in [
            ("max(score)", "_key IN ('p00001', 'p00002', 'p00003')", "111"),
            ("max(score)", "_key = 'p00001' OR _key = 'p00003'", "111"),
            ("min(score)", "_key IN ('p00027', 'p00028')", "36"),
            ("max(score)", "_key >= 'p00001' AND _key < 'p00003'", "74"),
            ("min(score)", "_key >= 'p00027' AND _key <= 'p00028'", "36"),
            ("max(author)", "_key IN ('p00001', 'p00009')", "a9"),
        ] {
            let query = format!("SELECT {aggregate} FROM posts WHERE {condition}");
            assert_eq!(harness.rows(&query).await, [expected], "{query}");
        }
    });
}

#[test]
fn equal_floats_are_in_the_order_of_their_sequence_numbers() {
    block_on(async {
        let mut harness = Harness::new();
        harness.done("CREATE TABLE t (id TEXT PRIMARY KEY, f DOUBLE)").await;
        harness.done("CREATE INDEX ON t (f)").await;
        let t = harness.db.collection("t").unwrap();
        // One value of the column, two of the index.
        for (key, value) in [("old", "9007199254740992"), ("new", "9007199254740993")] {
            t.put(&encode_string(key), format!(r#"{{"f":{value}}}"#).as_bytes()).unwrap();
        }
        let query = "SELECT id FROM t WHERE f > 0 ORDER BY f, _sequence DESC LIMIT 2";
        assert_eq!(harness.rows(query).await, ["new", "old"]);
    });
}

#[test]
fn keys_of_several_types_are_read_and_changed() {
    block_on(async {
        // Texts, integers and other bytes: the key column has the stored bytes.
        let mut harness = Harness::new();
        let options = || CollectionOptions::default().keys(KeyFormat::Typed);
        let t = harness.db.create_collection("t", options()).unwrap();
        for key in [encode_string("a"), encode_int(7), vec![0xff, 0xfe]] {
            t.put(&key, br#"{"n":1}"#).unwrap();
        }
        assert_eq!(harness.rows("SELECT _key FROM t ORDER BY _key").await, ["1107", "1c61", "fffe"]);
        assert_eq!(harness.rows("SELECT n FROM t WHERE _key = X'1c61'").await, ["1"]);
        assert_eq!(harness.done("UPDATE t SET n = n + 1").await, "UPDATE 3");
        assert_eq!(t.get(&encode_int(7)).unwrap().unwrap(), br#"{"n":2}"#);
        assert_eq!(harness.done("DELETE FROM t WHERE n = 2").await, "DELETE 3");

        // A text that is in no sample of the integers.
        let u = harness.db.create_collection("u", options()).unwrap();
        u.put(&encode_string("text"), br#"{"n":-1}"#).unwrap();
        for key in 0..3_000 {
            u.put(&encode_int(key), format!(r#"{{"n":{key}}}"#).as_bytes()).unwrap();
        }
        assert_eq!(harness.rows("SELECT _key FROM u WHERE n < 1 ORDER BY n").await, ["text", "0"]);
        assert_eq!(harness.done("UPDATE u SET n = 0 WHERE n <= 1").await, "UPDATE 3");
    });
}
