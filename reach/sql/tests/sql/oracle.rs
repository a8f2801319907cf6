//! Random queries over Bolide's tables and over tables in memory with the same rows: the results are equal, with every kind of
//! index and without one.
//!
//! `BOLIDE_SQL_SEED` repeats a run, `BOLIDE_SQL_QUERIES` sets the number of queries for each database.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, Int64Builder, ListBuilder, RecordBatch, StringArray,
    TimestampMillisecondArray,
};
use bolide::{CollectionOptions, Components, Db, IterOptions, Options};
use bolide_sql::{SessionOptions, SqlSession};
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use serde_json::Value;

use crate::harness::{block_on, texts};

/// A generator of random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

const INTS: &[&str] =
    &["0", "1", "2", "3", "-1", "7", "9007199254740993", "9223372036854775807", "-9223372036854775808"];
const FLOATS: &[&str] = &[
    "0.0",
    "1.0",
    "0.5",
    "-2.25",
    "1e17",
    "9007199254740992.0",
    "9007199254740994.0",
    "-0.0",
    "1e-300",
    "3.0",
];
const TEXTS: &[&str] = &["", "a", "ab", "abc", "abd", "b", "ä", "a%", "a_c", "Z", "12"];
const TIMES: &[&str] = &["0", "1000", "1796042096500", "-5"];

/// The value of a field: of the type that its column mostly has, or another one.
fn json_value(random: &mut Random, column: &str) -> Option<String> {
    let of = match random.below(10) {
        0 => return None,
        1 => return Some("null".to_owned()),
        2 => "ifsbx",
        _ => column,
    };
    let at = random.below(of.len());
    let of = &of[at..=at];
    Some(match of {
        "i" => random.one(INTS).to_owned(),
        "f" => {
            let of = if random.below(3) == 0 { INTS } else { FLOATS };
            random.one(of).to_owned()
        }
        "s" => format!("{:?}", random.one(TEXTS)),
        "b" => random.one(&["true", "false"]).to_owned(),
        "t" => random.one(TIMES).to_owned(),
        "l" => {
            let elements: Vec<&str> =
                (0..random.below(4)).map(|_| random.one(&["1", "2", "3", "null", "\"x\"", "2.0"])).collect();
            format!("[{}]", elements.join(","))
        }
        _ => random.one(&["{}", "{\"y\":1}", "[[1]]", "1.5"]).to_owned(),
    })
}

fn record(random: &mut Random) -> String {
    let fields = ["i", "f", "s", "b", "l", "t"].map(|column| (column, json_value(random, column)));
    let fields: Vec<String> = fields
        .iter()
        .filter_map(|(name, value)| value.as_ref().map(|value| format!("\"{name}\":{value}")))
        .collect();
    format!("{{{}}}", fields.join(","))
}

/// An integer, as a column of integers reads it.
fn int(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| {
        let float = value.as_f64().filter(|_| value.is_f64())?;
        (float.trunc() == float && (i64::MIN as f64..-(i64::MIN as f64)).contains(&float))
            .then_some(float as i64)
    })
}

/// The rows by the rules of reading, independently of the decoder.
fn expected_rows(db: &Db) -> RecordBatch {
    let collection = db.collection("t").unwrap();
    let (mut keys, mut sequences, mut records) = (Vec::new(), Vec::new(), Vec::new());
    let mut cursor = collection.cursor(&IterOptions::default()).unwrap();
    cursor.seek_to_first().unwrap();
    while cursor.valid() {
        keys.push(String::from_utf8(cursor.key().to_vec()).unwrap());
        sequences.push(cursor.sequence() as i64);
        records.push(serde_json::from_slice::<Value>(cursor.value()).unwrap());
        cursor.next().unwrap();
    }
    let field = |name: &'static str| records.iter().map(move |record| record.get(name));
    let mut lists = ListBuilder::new(Int64Builder::new());
    for value in field("l") {
        match value.and_then(Value::as_array) {
            Some(elements) => {
                elements.iter().for_each(|element| lists.values().append_option(int(element)));
                lists.append(true);
            }
            None => lists.append(false),
        }
    }
    RecordBatch::try_from_iter_with_nullable([
        ("_key", Arc::new(StringArray::from(keys)) as ArrayRef, false),
        ("i", Arc::new(field("i").map(|value| value.and_then(int)).collect::<Int64Array>()), true),
        (
            "f",
            Arc::new(field("f").map(|value| value.and_then(Value::as_f64)).collect::<Float64Array>()),
            true,
        ),
        ("s", Arc::new(field("s").map(|value| value.and_then(Value::as_str)).collect::<StringArray>()), true),
        (
            "b",
            Arc::new(field("b").map(|value| value.and_then(Value::as_bool)).collect::<BooleanArray>()),
            true,
        ),
        ("l", Arc::new(lists.finish()), true),
        (
            "t",
            Arc::new(field("t").map(|value| value.and_then(int)).collect::<TimestampMillisecondArray>()),
            true,
        ),
        ("_sequence", Arc::new(Int64Array::from(sequences)), false),
    ])
    .unwrap()
}

/// A predicate on the columns of the table `q`.
fn predicate(random: &mut Random, q: &str, depth: usize) -> String {
    if depth < 3 && random.below(3) == 0 {
        let (left, right) = (predicate(random, q, depth + 1), predicate(random, q, depth + 1));
        return match random.below(5) {
            0 => format!("NOT ({left})"),
            1 | 2 => format!("({left} OR {right})"),
            _ => format!("({left} AND {right})"),
        };
    }
    let compare = random.one(&["=", "<", "<=", ">", ">=", "<>"]);
    let int = random.one(&INTS[..7]);
    match random.below(17) {
        0 | 1 => format!("{q}i {compare} {int}"),
        2 => format!("{q}f {compare} {}", random.one(FLOATS)),
        3 => format!("{q}s {compare} '{}'", random.one(TEXTS)),
        4 => format!("{q}s LIKE '{}%'", random.one(TEXTS)),
        5 => format!("{q}i BETWEEN {int} AND {}", random.one(&INTS[..6])),
        6 => format!("{q}i IN ({int}, {}, {})", random.one(&INTS[..6]), random.one(&INTS[..6])),
        7 => format!("{q}s IN ('{}', '{}')", random.one(TEXTS), random.one(TEXTS)),
        8 => {
            format!("{q}{} IS {}NULL", random.one(&["i", "f", "s", "b", "l", "t"]), random.one(&["", "NOT "]))
        }
        9 => {
            random.one(&["b", "NOT b", "b IS TRUE", "b IS FALSE", "b = false"]).replace('b', &format!("{q}b"))
        }
        10 => format!("array_has({q}l, {})", random.one(&["1", "2", "3"])),
        11 => format!("{q}_key {compare} 'k{:04}'", random.below(400)),
        12 => format!("{q}_key IN ('k{:04}', 'k{:04}', 'none')", random.below(400), random.below(400)),
        13 => format!("{q}f IN ({}, {})", random.one(FLOATS), random.one(FLOATS)),
        14 => format!("{q}t {compare} to_timestamp_millis({})", random.one(TIMES)),
        15 => format!("starts_with({q}s, '{}')", random.one(TEXTS)),
        _ => format!("{q}i + 1 {compare} {q}f"),
    }
}

/// A query, and whether its rows have an order.
fn query(random: &mut Random) -> (String, bool) {
    let condition = match random.below(6) {
        0 => String::new(),
        _ => format!(" WHERE {}", predicate(random, "", 0)),
    };
    let column = random.one(&["i", "s", "b", "t", "_sequence", "_key"]);
    let direction = random.one(&["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]);
    match random.below(10) {
        0 => (format!("SELECT count(*) FROM t{condition}"), true),
        1 => {
            let aggregate = random.one(&["min", "max"]);
            (format!("SELECT {aggregate}({column}) FROM t{condition}"), true)
        }
        2 => (format!("SELECT count(i), count(DISTINCT s), min(i), max(s) FROM t{condition}"), true),
        3 => (format!("SELECT {column}, count(*) FROM t{condition} GROUP BY {column}"), false),
        // The values of the order are determined, the rows with equal ones are not.
        4 | 5 => {
            let limit = 1 + random.below(30);
            (format!("SELECT {column} FROM t{condition} ORDER BY {column}{direction} LIMIT {limit}"), true)
        }
        6 => {
            let limit = random.below(30);
            let order = format!("{column}{direction}, _sequence DESC");
            (format!("SELECT _key, i, s FROM t{condition} ORDER BY {order} LIMIT {limit}"), true)
        }
        7 => {
            let inner = predicate(random, "a.", 1);
            let on = random.one(&[
                "a.i = x.i",
                "a.s = x.s",
                "a.f = x.f",
                "a._key = x._key",
                "a.i = x.i AND a.s = x.s",
            ]);
            let kind = random.one(&["JOIN", "LEFT JOIN"]);
            (format!("SELECT a._key, x._key, x.i FROM t AS a {kind} t AS x ON {on} WHERE {inner}"), false)
        }
        8 => (format!("SELECT _key FROM t WHERE i IN (SELECT i FROM t{condition})"), false),
        _ => (format!("SELECT * FROM t{condition}"), false),
    }
}

async fn check(seed: u64, indexes: &[&str], queries: usize) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let db = Db::open_with("db", Options::default(), Components::in_memory()).unwrap();
    let mut session = SqlSession::new(db.clone(), &SessionOptions::default().partitions(2)).unwrap();
    let mut options = CollectionOptions::default();
    for index in indexes {
        options = options.index(index.parse().unwrap());
    }
    let collection = db.create_collection("t", options).unwrap();
    for _ in 0..600 {
        let key = format!("k{:04}", random.below(400));
        match random.below(12) {
            0 => collection.delete(key.as_bytes()).unwrap(),
            _ => collection.put(key.as_bytes(), record(&mut random).as_bytes()).unwrap(),
        }
        if random.below(200) == 0 {
            db.flush().unwrap();
        }
    }
    // The declaration, as CREATE TABLE would store it for this collection.
    let declarations =
        db.create_collection("_sql", CollectionOptions::json().keys(bolide::key::KeyFormat::Typed)).unwrap();
    let columns = [
        ("i", "int64"),
        ("f", "float64"),
        ("s", "string"),
        ("b", "bool"),
        ("l", "list<int64>"),
        ("t", "timestamp[ms]"),
    ];
    let columns: Vec<String> = columns
        .iter()
        .map(|(name, of)| format!(r#"{{"name":"{name}","path":"{name}","type":"{of}"}}"#))
        .collect();
    let declaration = format!(
        r#"{{"version":1,"key":{{"name":"_key","type":"string"}},"columns":[{}]}}"#,
        columns.join(",")
    );
    declarations.put(&bolide::key::encode_string("t"), declaration.as_bytes()).unwrap();

    let rows = expected_rows(&db);
    let config = SessionConfig::new().with_target_partitions(1);
    let memory = SessionContext::new_with_config(config);
    memory
        .register_table("t", Arc::new(MemTable::try_new(rows.schema(), vec![vec![rows]]).unwrap()))
        .unwrap();

    for number in 0..queries {
        let (query, is_ordered) = query(&mut random);
        let expected = match memory.sql(&query).await {
            Ok(frame) => frame.collect().await,
            Err(error) => Err(error),
        };
        let found = session.query(&query).await;
        let context = format!("BOLIDE_SQL_SEED={seed}, indexes {indexes:?}, query {number}: {query}");
        match (expected, found) {
            (Ok(expected), Ok(found)) => {
                let (mut expected, mut found) = (texts(&expected), texts(&found));
                if !is_ordered {
                    expected.sort();
                    found.sort();
                }
                if expected != found {
                    let plan = texts(&session.query(&format!("EXPLAIN {query}")).await.unwrap());
                    panic!("{context}\nexpected {expected:?}\nfound    {found:?}\n{}", plan.join("\n"));
                }
            }
            (Err(_), Err(_)) => {}
            (Ok(_), Err(error)) => panic!("{context}\nfails: {error}"),
            (Err(error), Ok(_)) => panic!("{context}\nhas no error, expected {error}"),
        }
    }
}

#[test]
fn random_queries_have_the_results_of_tables_in_memory() {
    let seed =
        std::env::var("BOLIDE_SQL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            u64::from(now.subsec_nanos()) + now.as_secs()
        });
    let queries = std::env::var("BOLIDE_SQL_QUERIES").ok().and_then(|count| count.parse().ok()).unwrap_or(50);
    println!("BOLIDE_SQL_SEED={seed}");
    let kinds = ["ps-tree", "composite", "lazy", "eager", "embedded", "next"];
    let with_kind =
        |kind: &str| ["i", "f", "s", "b", "l[*]", "t"].map(|attribute| format!("{attribute}:{kind}"));
    block_on(async {
        check(seed, &[], queries).await;
        for (number, kind) in kinds.iter().enumerate() {
            let indexes = with_kind(kind);
            let indexes: Vec<&str> = indexes.iter().map(String::as_str).collect();
            check(seed.wrapping_add(number as u64 + 1), &indexes, queries).await;
        }
        check(seed.wrapping_add(99), &["i+s:composite", "s", "f:lazy"], queries).await;
    });
}
