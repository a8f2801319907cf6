//! The trace counts the operations of a program, is bounded, and costs nothing while it is off.
#![allow(missing_docs, unused_crate_dependencies)]

use bolide::{
    Collection, CollectionOptions, Components, Db, FindOptions, IterOptions, Options, Order, Query, Trace,
    TracedAnswers, TracedCondition, TracedOrder, WriteBatch,
};

fn open(trace: bool) -> (Db, Collection) {
    let db = Db::open_with("db", Options::default().trace(trace), Components::in_memory()).unwrap();
    let options = CollectionOptions::default().index("user".parse().unwrap());
    let posts = db.create_collection("posts", options).unwrap();
    (db, posts)
}

#[test]
fn every_operation_is_counted() {
    let (db, posts) = open(true);
    let plain = db.create_collection("plain", CollectionOptions::default()).unwrap();
    plain.put(b"1", b"{}").unwrap();
    for key in [b"1", b"2", b"3"] {
        posts.put(key, br#"{"user":"ann"}"#).unwrap();
    }
    posts.delete(b"3").unwrap();
    posts.delete_range("8".."9").unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&posts, b"4", br#"{"user":"bob"}"#).unwrap();
    batch.delete(&posts, b"4").unwrap();
    batch.put(&plain, b"2", b"{}").unwrap();
    db.write(batch).unwrap();
    let snapshot = db.snapshot();
    posts.get(b"1").unwrap();
    posts.get_at(&snapshot, b"1").unwrap();
    posts.try_get_cached(b"1").unwrap();
    posts.multi_get(["1", "2", "7"]).unwrap();
    posts.iter().unwrap().count();
    posts.cursor(&IterOptions::default()).unwrap();
    let transaction = db.transaction(|transaction| {
        transaction.get(&posts, b"2")?;
        transaction.put(&posts, b"2", br#"{"user":"cid"}"#)
    });
    transaction.unwrap();
    let trace = db.trace().unwrap();
    let posts = trace.collection("posts").unwrap();
    assert_eq!((posts.puts, posts.deletes, posts.range_deletes), (5, 2, 1));
    assert_eq!((posts.gets, posts.scans, posts.queries.len()), (7, 2, 0));
    assert_eq!(trace.collection("plain").unwrap().puts, 2);
}

#[test]
fn queries_are_counted_by_form() {
    let (db, posts) = open(true);
    posts.put(b"1", br#"{"user":"ann","score":3}"#).unwrap();
    let newest = Query::new().eq("user", "ann").limit(10);
    for _ in 0..3 {
        posts.find(&newest).unwrap();
    }
    let mut prepared = posts.prepare(newest.clone().limit(12).keys_only(), FindOptions::default()).unwrap();
    prepared.visit(&"ann".into(), |_| Ok(std::ops::ControlFlow::Continue(()))).unwrap();
    posts.find(&newest.clone().limit(14)).unwrap();
    posts.find(&newest.limit(100)).unwrap();
    let range = Query::new().eq("user", "ann").range("score", 1..9).order(Order::Value).count();
    posts.answers(&range, &FindOptions::default()).unwrap().next().unwrap();
    posts.find(&Query::new().order(Order::Oldest)).unwrap();
    let trace = db.trace().unwrap();
    let queries = &trace.collection("posts").unwrap().queries;
    let count = |answers, limit| {
        let of = queries.iter().filter(|query| query.answers == answers && query.limit == limit);
        of.map(|query| query.count).sum::<u64>()
    };
    // (3 * 10 + 14) / 4 in the class of eight to fifteen.
    assert_eq!(count(TracedAnswers::Records, Some(11)), 4, "{queries:?}");
    assert_eq!(count(TracedAnswers::Records, Some(100)), 1);
    assert_eq!(count(TracedAnswers::Keys, Some(12)), 1);
    let range = queries.iter().find(|query| query.condition == TracedCondition::Range).unwrap();
    assert_eq!(range.attributes, ["score", "user"]);
    assert_eq!((range.order, range.answers, range.limit), (TracedOrder::Value, TracedAnswers::Count, None));
    let all = queries.iter().find(|query| query.attributes.is_empty()).unwrap();
    assert_eq!((all.condition, all.order, all.count), (TracedCondition::Other, TracedOrder::Oldest, 1));
    assert_eq!(trace.to_string().parse::<Trace>().unwrap(), trace);
}

#[test]
fn a_trace_is_bounded_and_off_by_default() {
    let (off, posts) = open(false);
    posts.put(b"1", b"{}").unwrap();
    assert!(off.trace().is_none());
    assert!(!Options::default().trace);
    drop((off, posts));
    let (db, posts) = open(true);
    for number in 0..3_000 {
        posts.find(&Query::new().eq(&format!("attribute_{number}"), 1).limit(1)).unwrap();
    }
    let trace = db.trace().unwrap();
    let found = trace.collection("posts").unwrap();
    assert_eq!((found.queries.len(), found.other_queries), (1_024, 1_976));
    assert_eq!(found.reads(), 3_000);
    // Long names are bounded by their bytes.
    let (db, posts) = open(true);
    for number in 0..600 {
        posts
            .find(&Query::new().eq(&format!("{}{number}", "a".repeat(200)), 1).eq(&"b".repeat(200), 1))
            .unwrap();
    }
    let text = db.trace().unwrap().to_string();
    assert!(text.len() < 2 << 20, "{}", text.len());
    assert!(text.parse::<Trace>().is_ok());
}
