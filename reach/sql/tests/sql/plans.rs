//! Plans: what is pushed down, and what is not.

use crate::harness::{Harness, block_on};

/// Queries, and texts that their plans contain, or with `!` do not contain.
const PLANS: &[(&str, &[&str])] = &[
    ("SELECT * FROM posts WHERE subreddit = 's1'", &["index=subreddit", "!FilterExec"]),
    ("SELECT title FROM posts WHERE subreddit = 's1' AND score > 500", &["index=", "!FilterExec"]),
    ("SELECT title FROM posts WHERE score BETWEEN 10 AND 20", &["index=score", "!FilterExec"]),
    ("SELECT title FROM posts WHERE score IN (1, 2, 3)", &["index=score", "!FilterExec"]),
    ("SELECT title FROM posts WHERE array_has(tags, 't1')", &["index=tags[*]", "!FilterExec"]),
    ("SELECT title FROM posts WHERE \"user.id\" = 3", &["index=user.id", "!FilterExec"]),
    ("SELECT title FROM posts WHERE author LIKE 'a1%'", &["index=author", "!FilterExec"]),
    ("SELECT title FROM posts WHERE author = 'a1' OR score = 5", &["index=", "!FilterExec"]),
    ("SELECT title FROM posts WHERE title LIKE '%7%'", &["scan", "FilterExec"]),
    ("SELECT title FROM posts WHERE subreddit <> 's1'", &["scan", "FilterExec"]),
    (
        "SELECT title FROM posts WHERE subreddit = 's1' AND title LIKE '%77%' LIMIT 10",
        &["index=subreddit", "FilterExec", "fetch=10"],
    ),
    ("SELECT title FROM posts WHERE score IS NULL", &["scan", "FilterExec"]),
    ("SELECT * FROM posts WHERE _key = 'p00001'", &["keys=1", "!FilterExec"]),
    ("SELECT * FROM posts WHERE _key IN ('p00001', 'p00002')", &["keys=2", "!FilterExec"]),
    ("SELECT * FROM posts WHERE _key >= 'p00001' AND _key < 'p00005'", &["range of keys", "!FilterExec"]),
    ("SELECT * FROM posts LIMIT 5", &["fetch=5", "!LimitExec"]),
    ("SELECT * FROM posts WHERE subreddit = 's1' LIMIT 5", &["index=subreddit", "fetch=5"]),
    (
        "SELECT * FROM posts WHERE subreddit = 's1' ORDER BY _sequence DESC LIMIT 10",
        &["index=subreddit", "order=newest", "fetch=10", "!SortExec", "!FilterExec"],
    ),
    ("SELECT * FROM posts ORDER BY _sequence DESC LIMIT 10", &["order=newest", "fetch=10", "!SortExec"]),
    ("SELECT * FROM posts ORDER BY _sequence LIMIT 10", &["order=oldest", "fetch=10", "!SortExec"]),
    (
        "SELECT * FROM posts WHERE score >= 900 ORDER BY score DESC LIMIT 10",
        &["index=score", "order=score descending", "fetch=10", "!SortExec", "!FilterExec"],
    ),
    ("SELECT * FROM posts ORDER BY score LIMIT 10", &["index=score", "order=score", "fetch=10", "!SortExec"]),
    ("SELECT * FROM posts ORDER BY score DESC NULLS LAST LIMIT 10", &["order=score descending", "!SortExec"]),
    // NULL comes first: the index has no entries for it.
    ("SELECT * FROM posts ORDER BY score DESC LIMIT 10", &["SortExec"]),
    ("SELECT * FROM posts ORDER BY title LIMIT 10", &["SortExec"]),
    ("SELECT * FROM posts ORDER BY _key LIMIT 10", &["order=key", "!SortExec"]),
    (
        "SELECT * FROM posts WHERE _key > 'p00010' ORDER BY _key DESC LIMIT 10",
        &["order=key descending", "!SortExec"],
    ),
    ("SELECT count(*) FROM posts", &["BolideCount: posts, keys", "!AggregateExec"]),
    ("SELECT count(*) FROM posts WHERE subreddit = 's1'", &["BolideCount: posts, query", "!AggregateExec"]),
    // Numbers with a fraction are no integers.
    ("SELECT count(*) FROM posts WHERE score > 5", &["BolideScan", "AggregateExec"]),
    ("SELECT count(*) FROM posts WHERE subreddit = 's1' AND title LIKE '%1%'", &["AggregateExec"]),
    ("SELECT count(author) FROM posts", &["AggregateExec"]),
    ("SELECT min(score) FROM posts", &["index=score", "fetch=1"]),
    ("SELECT max(score) FROM posts WHERE subreddit = 's1'", &["fetch=1", "order=score descending"]),
    ("SELECT max(title) FROM posts", &["!fetch=1"]),
    ("SELECT author, count(*) FROM posts GROUP BY author", &["AggregateExec", "scan"]),
];

#[test]
fn predicates_orders_and_limits_are_pushed_down() {
    block_on(async {
        let mut harness = Harness::with_posts(3_000);
        for (query, texts) in PLANS {
            let plan = harness.plan(query).await;
            for text in *texts {
                let (text, is_wanted) = match text.strip_prefix('!') {
                    Some(text) => (text, false),
                    None => (*text, true),
                };
                assert_eq!(plan.contains(text), is_wanted, "`{text}` in the plan of {query}\n{plan}");
            }
            // The plan runs.
            harness.rows(query).await;
        }
    });
}

#[test]
fn a_join_looks_its_keys_up() {
    block_on(async {
        let mut harness = Harness::with_posts(5_000);
        harness.done("CREATE TABLE authors (name TEXT PRIMARY KEY, country TEXT)").await;
        harness.done("INSERT INTO authors VALUES ('a1', 'x'), ('a2', 'x'), ('a3', 'y')").await;
        let query = "SELECT count(*), min(p.score) FROM authors AS a JOIN posts AS p ON p.author = a.name WHERE a.country = 'x'";
        let plan = harness.rows(&format!("EXPLAIN ANALYZE {query}")).await.join("\n");
        assert!(plan.contains("join_keys=2"), "{plan}");
        assert!(plan.contains("candidates=200"), "{plan}");
        let expected = "SELECT count(*), min(score) FROM posts WHERE author IN ('a1', 'a2')";
        assert_eq!(harness.rows(query).await, harness.rows(expected).await);
        // By the key of the other table.
        let query =
            "SELECT count(*) FROM posts AS p JOIN authors AS a ON a.name = p.author WHERE p.score < 10";
        let expected = "SELECT count(*) FROM posts WHERE score < 10 AND author IN ('a1', 'a2', 'a3')";
        assert_eq!(harness.rows(query).await, harness.rows(expected).await);
    });
}

#[test]
fn the_costs_of_the_engine_are_reported() {
    block_on(async {
        let mut harness = Harness::with_posts(1_000);
        let query =
            "EXPLAIN ANALYZE SELECT title FROM posts WHERE subreddit = 's1' ORDER BY _sequence DESC LIMIT 7";
        let plan = harness.rows(query).await.join("\n");
        for text in ["candidates=", "records_fetched=", "record_bytes=", "rows_decoded=7", "output_rows=7"] {
            assert!(plan.contains(text), "{text} in\n{plan}");
        }
        // A statement that writes is explained by the query of its rows, and writes nothing.
        let plan = harness.plan("DELETE FROM posts WHERE subreddit = 's1'").await;
        assert!(plan.contains("index=subreddit"), "{plan}");
        assert_eq!(harness.rows("SELECT count(*) FROM posts").await, ["1000"]);
    });
}
