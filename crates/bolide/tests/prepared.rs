//! Prepared queries return the answers of the same queries built for each value.

use std::ops::ControlFlow;

use bolide::storage::SimRng;
use bolide::{
    Collection, CollectionOptions, Components, Db, ErrorKind, FindOptions, Options, PreparedQuery, Query,
    Snapshot, Value,
};

fn options() -> Options {
    Options::default().memtable_bytes(16 << 10).background_threads(0)
}

fn record(group: u64) -> Vec<u8> {
    format!(r#"{{"group":{group},"name":"n{group}","pad":"{}"}}"#, "x".repeat(40)).into_bytes()
}

fn key(number: u64) -> Vec<u8> {
    // Some are longer than the inline capacity of an answer.
    format!("key{number:0width$}", width = if number.is_multiple_of(3) { 40 } else { 5 }).into_bytes()
}

type Row = (Vec<u8>, u64, Option<Vec<u8>>);

fn run(prepared: &mut PreparedQuery, value: &Value) -> Vec<Row> {
    let mut rows = Vec::new();
    let count = prepared.visit(value, |answer| {
        rows.push((answer.key.to_vec(), answer.sequence, answer.record.map(<[u8]>::to_vec)));
        Ok(ControlFlow::Continue(()))
    });
    assert_eq!(count.unwrap(), rows.len() as u64);
    rows
}

/// Runs both queries, and compares answers and statistics.
fn compare(c: &Collection, shape: &Query, prepared: &mut PreparedQuery, at: Option<&Snapshot>, value: Value) {
    let mut query = shape.clone();
    query.set_equal(value.clone()).unwrap();
    let mut settings = FindOptions::default();
    settings.snapshot = at.cloned();
    prepared.set_snapshot(at);
    let rows = run(prepared, &value);
    // The fast path does not measure time.
    let expected = c.find_with(&query, &settings.measure(true)).unwrap();
    let outcome = prepared.outcome().unwrap();
    assert_eq!(outcome.next_token(), expected.next_token(), "{query:?}");
    assert_eq!(outcome.count(), expected.count());
    assert_eq!(outcome.explain().index, expected.explain().index);
    let row = |answer: bolide::Answer| (answer.key, answer.sequence, answer.record);
    assert_eq!(rows, expected.into_iter().map(row).collect::<Vec<_>>(), "{query:?}");
}

#[test]
fn prepared_queries_return_the_answers_of_queries() {
    for seed in 0..9 {
        let mut rng = SimRng::new(seed);
        let db = Db::open_with("db", options(), Components::in_memory()).unwrap();
        let kind = ["ps-tree", "ps-tree:skey=trie", "composite"][seed as usize % 3];
        let made = CollectionOptions::json()
            .index(format!("group:{kind}").parse().unwrap())
            .index(format!("name:{kind}").parse().unwrap());
        let c = db.create_collection("c", made).unwrap();
        let shapes = [
            Query::new().eq("group", 0).limit(5).keys_only(),
            Query::new().eq("group", 0).limit(40).keys_only(),
            Query::new().eq("group", 0).limit(5),
            Query::new().eq("name", "").limit(5).keys_only(),
            Query::new().eq("name", "").limit(60),
            // Queries that no single index answers.
            Query::new().eq("group", 0).range("name", "n2"..).limit(5),
            Query::new().eq("group", 0).keys_only(),
        ];
        let prepare = |shape: &Query| c.prepare(shape.clone(), FindOptions::default()).unwrap();
        let mut prepared: Vec<PreparedQuery> = shapes.iter().map(prepare).collect();
        let mut snapshot = db.snapshot();
        for step in 0..500 {
            match rng.below(100) {
                0..86 => c.put(&key(rng.below(120)), &record(rng.below(6))).unwrap(),
                86..94 => c.delete(&key(rng.below(120))).unwrap(),
                94 if seed % 2 == 0 => {
                    let first = rng.below(120);
                    c.delete_range(key(first)..key(first + 4)).unwrap();
                }
                95 => snapshot = db.snapshot(),
                96 => c.rebuild_index("group", &Default::default()).unwrap(),
                97 if c.index("name").is_ok() => c.drop_index("name").unwrap(),
                97 | 98 if c.index("name").is_err() => {
                    c.create_index(format!("name:{kind}").parse().unwrap()).unwrap();
                }
                _ => db.flush().unwrap(),
            }
            let at = rng.below(shapes.len() as u64) as usize;
            let group = rng.below(7);
            let of_names = shapes[at].predicates()[0].path().to_string() == "name";
            let value = if of_names { Value::from(format!("n{group}")) } else { Value::Uint(group) };
            let snapshot = (step % 2 == 0).then_some(&snapshot);
            compare(&c, &shapes[at], &mut prepared[at], snapshot, value);
        }
    }
}

#[test]
fn with_a_second_index_on_the_attribute_the_planner_chooses() {
    let db = Db::open_with("db", options(), Components::in_memory()).unwrap();
    let c =
        db.create_collection("c", CollectionOptions::json().index("group:ps-tree".parse().unwrap())).unwrap();
    (0..50).for_each(|number| c.put(&key(number), &record(number % 4)).unwrap());
    let shape = Query::new().eq("group", 0).limit(5).keys_only();
    let mut prepared = c.prepare(shape.clone(), FindOptions::default()).unwrap();
    assert!(prepared.outcome().is_none());
    compare(&c, &shape, &mut prepared, None, 1.into());
    c.create_index("group+name".parse().unwrap()).unwrap();
    compare(&c, &shape, &mut prepared, None, 2.into());
    c.drop_index("group").unwrap();
    compare(&c, &shape, &mut prepared, None, 3.into());
    c.drop_index("group+name").unwrap();
    compare(&c, &shape, &mut prepared, None, 3.into());
}

#[test]
fn invalid_queries_and_values_are_refused() {
    let db = Db::open_with("db", options(), Components::in_memory()).unwrap();
    let c =
        db.create_collection("c", CollectionOptions::json().index("group:ps-tree".parse().unwrap())).unwrap();
    (0..3).for_each(|number| c.put(&key(number), &record(1)).unwrap());
    let shape = || Query::new().eq("group", 0).limit(1).keys_only();
    let mut prepared = c.prepare(shape(), FindOptions::default()).unwrap();
    assert_eq!(run(&mut prepared, &1.into()).len(), 1);
    let refused = prepared.visit(&f64::NAN.into(), |_| Ok(ControlFlow::Continue(()))).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    assert!(prepared.outcome().is_none());
    run(&mut prepared, &1.into());
    let token = prepared.outcome().unwrap().next_token().cloned().unwrap();
    for query in [Query::new().limit(1), Query::new().eq("a..b", 0), {
        let mut query = shape();
        query.set_equal(1).unwrap();
        query.after(token)
    }] {
        let refused = c.prepare(query, FindOptions::default()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    }
    let stopped = prepared.visit(&1.into(), |_| Ok(ControlFlow::Break(()))).unwrap();
    assert_eq!(stopped, 1);
    db.drop_collection("c").unwrap();
    let gone = prepared.visit(&1.into(), |_| Ok(ControlFlow::Continue(()))).unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
}
