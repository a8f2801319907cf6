//! Filters, sort attributes, aggregates, estimates, splits and reads of memory, through the facade.

use std::ops::Bound;

use bolide::{
    CachedGet, Collection, CollectionOptions, Components, Db, Filter, FindOptions, Options, Order, Point,
    Query, SortDirection, Value,
};

fn database() -> Db {
    Db::open_with("db", Options::default(), Components::in_memory()).unwrap()
}

fn collection(db: &Db, indexes: &[&str]) -> Collection {
    let options = indexes
        .iter()
        .fold(CollectionOptions::default(), |options, spec| options.index(spec.parse().unwrap()));
    db.create_collection("c", options).unwrap()
}

/// `count` records: `n` ascends, `rare` has a hundred values, `tags` two of ten.
fn fill(collection: &Collection, count: u32) {
    for n in 0..count {
        let record = format!(
            r#"{{"n":{n},"rare":{},"tags":["t{}","t{}"],"name":"name{:03}"}}"#,
            n % 100,
            n % 10,
            (n + 3) % 10,
            n % 250
        );
        collection.put(&n.to_be_bytes(), record.as_bytes()).unwrap();
    }
}

fn numbers(collection: &Collection, query: &Query) -> Vec<u32> {
    let answers = collection.find(query).unwrap();
    answers.iter().map(|answer| u32::from_be_bytes(answer.key[..].try_into().unwrap())).collect()
}

#[test]
fn rectangles_that_exist_are_found_at_every_snapshot() {
    let db = database();
    let areas = collection(&db, &["rect(a):next", "v:next", "point(x,y):next"]);
    let put = |key: &[u8], x: i32| {
        let record = format!(r#"{{"v":{x},"x":{x},"y":1,"a":[{x},{},{},{}.5]}}"#, -x, x + 1, -x + 1);
        areas.put(key, record.as_bytes()).unwrap();
    };
    put(b"a", 1);
    put(b"b", 2);
    let first = db.snapshot();
    put(b"a", 2);
    let second = db.snapshot();
    put(b"a", 1);
    let third = db.snapshot();
    put(b"b", 1);
    let apart = Filter::parse("rect(a) exists and not rect(a) within (0, -1, 1, 1)").unwrap();
    for (snapshot, all, wanted) in [(&first, "ba", "b"), (&second, "ab", "ab"), (&third, "ab", "b")] {
        let keys = |query: Query| {
            let answers = areas.find_at(snapshot, &query.using_index("rect(a)")).unwrap();
            answers.into_iter().map(|answer| char::from(answer.key[0])).collect::<String>()
        };
        let near = Query::new().nearest("rect(a)", Point::new(0.0, 0.0).unwrap());
        assert_eq!(keys(near.order(Order::Newest)), all);
        assert_eq!(keys(Query::new().filter(Filter::exists("rect(a)"))), all);
        assert_eq!(keys(Query::new().filter(apart.clone())), wanted);
    }
}

#[test]
fn unions_keep_the_order_and_stop_early() {
    for kind in ["composite", "eager", "lazy", "ps-tree", "next"] {
        let db = database();
        let c = collection(&db, &[&format!("rare:{kind}"), &format!("tags[*]:{kind}")]);
        fill(&c, 5_000);
        let list = Query::new().filter(Filter::one_of("rare", [3, 50, 7, 7])).limit(5);
        let answers = c.find_with(&list, &FindOptions::default().measure(true)).unwrap();
        let explain = answers.explain();
        assert_eq!(numbers(&c, &list), [4_950, 4_907, 4_903, 4_850, 4_807], "{kind}");
        assert_eq!((explain.streams, explain.index.as_deref()), (3, Some("rare")), "{kind}: {explain}");
        assert!(explain.candidates <= 10, "{kind}: {explain}");
        // One record has both alternatives, in two indexes.
        let any = Filter::parse(r#"rare = 3 or tags[*] = "t3""#).unwrap();
        let query = Query::new().filter(any).limit(4);
        let explain = c.find_with(&query, &FindOptions::default().measure(true)).unwrap().explain().clone();
        assert_eq!(numbers(&c, &query), [4_993, 4_990, 4_983, 4_980], "{kind}");
        assert_eq!(
            (explain.streams, &explain.united[..]),
            (2, &["tags[*]".to_owned()][..]),
            "{kind}: {explain}"
        );
        assert!(explain.candidates <= 16, "{kind}: {explain}");
        let pages: Vec<u32> = {
            let (mut all, mut next) = (Vec::new(), Some(list.clone()));
            while let Some(page) = next {
                let answers = c.find(&page).unwrap();
                all.extend(
                    answers.iter().map(|answer| u32::from_be_bytes(answer.key[..].try_into().unwrap())),
                );
                next = answers.next_token().map(|token| list.clone().after(token.clone()));
            }
            all
        };
        let wanted: Vec<u32> = (0..5_000).rev().filter(|n| [3, 50, 7].contains(&(n % 100))).collect();
        assert_eq!(pages, wanted, "{kind}");
    }
}

#[test]
fn explain_names_what_was_not_used() {
    let db = database();
    let c = collection(&db, &["rare", "other"]);
    fill(&c, 2_000);
    let explain = |text: &str| {
        let query = Query::new().filter(Filter::parse(text).unwrap()).limit(3);
        c.find_with(&query, &FindOptions::default().measure(true)).unwrap().explain().to_string()
    };
    let text = explain("rare = 5 and not n < 10");
    assert!(text.contains("other: no condition on `other` applies to all answers"), "{text}");
    assert!(text.contains("`not n < 10`: a negation is evaluated on records"), "{text}");
    let text = explain("rare = 5 or name = \"name001\"");
    assert!(text.contains("no index serves the alternative on `name`"), "{text}");
}

#[test]
fn a_list_of_ten_thousand_values_is_answered() {
    let db = database();
    let c = collection(&db, &["n"]);
    fill(&c, 3_000);
    let even = Query::new().filter(Filter::one_of("n", (0..20_000).step_by(2)));
    for query in [even.clone(), even.clone().limit(7), even.clone().using_index("n").limit(7)] {
        let found = numbers(&c, &query);
        let wanted = (0..3_000).rev().step_by(2).map(|n| n - 1).take(query.answer_limit().unwrap_or(1_500));
        assert_eq!(found, wanted.collect::<Vec<u32>>());
    }
    assert_eq!(c.find(&even.count()).unwrap().count(), 1_500);
}

#[test]
fn a_list_is_answered_by_a_synchronous_index_alone() {
    let db = database();
    let c = collection(&db, &["rare:composite:maintenance=synchronous"]);
    fill(&c, 2_000);
    db.flush().unwrap();
    let query = Query::new().filter(Filter::one_of("rare", [1, 2, 3])).keys_only();
    let answers = c.find(&query).unwrap();
    assert_eq!((answers.len(), answers.explain().records_fetched, answers.explain().unknown), (60, 0, 0));
    // The least and the greatest value too, by the first entries.
    assert_eq!(c.smallest(&Query::new(), "rare").unwrap(), Some(Value::Int(0)));
    assert_eq!(c.smallest(&Query::new().select(["n"]), "rare").unwrap(), Some(Value::Int(0)));
    assert_eq!(c.smallest(&Query::new().keys_only(), "rare").unwrap(), Some(Value::Int(0)));
    assert_eq!(c.largest(&Query::new().range("rare", ..50), "rare").unwrap(), Some(Value::Int(49)));
    let largest =
        Query::new().filter(Filter::exists("rare")).sort_by("rare", SortDirection::Descending).limit(1);
    let answers = c.find(&largest.select(["rare"])).unwrap();
    let explain = answers.explain();
    assert!(explain.streamed && explain.candidates <= 2 && explain.records_fetched == 0, "{explain}");
    let summary = c.summarize(&Query::new().range("rare", 10..20), "rare").unwrap();
    assert_eq!((summary.records, summary.integer_sum, summary.mean()), (200, Some(2_900), Some(14.5)));
    let values = c.distinct(&Query::new().range("rare", 10..13), "rare", 3).unwrap();
    assert_eq!(values, [10, 11, 12].map(|value| (Value::Int(value), 20)));
}

#[test]
fn parts_of_records_are_selected_in_every_way() {
    let db = database();
    let c = collection(&db, &["n", "rare:composite:maintenance=synchronous,include=n"]);
    for n in 0..50_u32 {
        let record = format!(r#"{{"n":{n},"rare":{},"user":{{"id":{n}.0,"tags":["x", {n}]}}}}"#, n % 5);
        c.put(&n.to_be_bytes(), record.as_bytes()).unwrap();
    }
    db.flush().unwrap();
    let wanted =
        |n: u32| format!(r#"{{"user.tags":["x", {n}],"user":{{"id":{n}.0,"tags":["x", {n}]}},"n":{n}}}"#);
    let paths = ["user.tags", "user", "n", "none"];
    for query in [
        Query::new().eq("rare", 3).limit(2),
        Query::new().range("n", 43..49).filter(Filter::parse("not n = 44").unwrap()).eq("rare", 3),
        Query::new().range("n", 40..49).eq("rare", 3).order(Order::ValueDescending),
        Query::new().filter(Filter::parse("user.id = 48 or n = 43").unwrap()),
    ] {
        let texts: Vec<String> = [48, 43].map(wanted).to_vec();
        let text = |record: Option<&[u8]>| String::from_utf8(record.unwrap().to_vec()).unwrap();
        let query = query.select_parts(paths);
        let found: Vec<String> =
            c.find(&query).unwrap().iter().map(|answer| text(answer.record.as_deref())).collect();
        assert_eq!(found, texts);
        let cursor = c.answers(&query, &FindOptions::default()).unwrap();
        let pulled: Vec<String> =
            cursor.into_iter().map(|answer| text(answer.unwrap().record.as_deref())).collect();
        assert_eq!(pulled, texts);
        // With an own write that does not match.
        let tx = db.begin(Default::default()).unwrap();
        tx.put(&c, b"own", b"{}").unwrap();
        let found = tx.find(&c, &query).unwrap();
        let in_transaction: Vec<String> = found.iter().map(|answer| text(answer.record.as_deref())).collect();
        assert_eq!(in_transaction, texts);
    }
    assert!(Query::new().select_parts(["a..b"]).check().is_err());
}

#[test]
fn sums_of_integers_are_exact() {
    let db = database();
    let c = collection(&db, &[]);
    // Added in any order, the sum of floats is another one.
    let large = 1_i64 << 54;
    let records = [large, 1, 1, 1, 1, -large];
    for (key, value) in records.iter().enumerate() {
        c.put(&[key as u8], format!(r#"{{"n":{value}}}"#).as_bytes()).unwrap();
    }
    let summary = c.summarize(&Query::new(), "n").unwrap();
    assert_eq!((summary.sum, summary.integer_sum, summary.numbers), (4.0, Some(4), 6));
    c.put(b"x", br#"{"n":0.5}"#).unwrap();
    c.put(b"y", format!(r#"{{"n":{}}}"#, u64::MAX).as_bytes()).unwrap();
    c.put(b"z", format!(r#"{{"n":-{}}}"#, i64::MAX).as_bytes()).unwrap();
    let summary = c.summarize(&Query::new(), "n").unwrap();
    let integers = 4 + i128::from(u64::MAX) - i128::from(i64::MAX);
    assert_eq!((summary.sum, summary.integer_sum), (integers as f64 + 0.5, None));
}

#[test]
fn a_named_index_that_cannot_serve_a_query_is_an_error_with_the_reason() {
    let db = database();
    let c = collection(&db, &["rare", "rect(a)"]);
    fill(&c, 10);
    for (text, why) in [
        ("n = 5", "no condition is on `rare`, its first attribute"),
        ("not rare = 5", "the condition on `rare` is negated"),
        ("rare = 5 or n = 1", "the condition on `rare` is one of several alternatives"),
        ("true", "the query has no condition"),
    ] {
        let query = Query::new().filter(Filter::parse(text).unwrap()).using_index("rare").limit(1);
        let error = c.find(&query).unwrap_err();
        assert!(error.message().contains(why), "{text}: {}", error.message());
    }
}

#[test]
fn several_attributes_sort_the_answers() {
    let db = database();
    let c = collection(&db, &["rare"]);
    fill(&c, 1_000);
    c.put(&1_000_u32.to_be_bytes(), br#"{"n":1000}"#).unwrap();
    let query =
        Query::new().sort_by("rare", SortDirection::Ascending).sort_by("n", SortDirection::Descending);
    let mut wanted: Vec<u32> = (0..1_000).collect();
    wanted.sort_by_key(|n| (n % 100, std::cmp::Reverse(*n)));
    wanted.insert(0, 1_000);
    assert_eq!(numbers(&c, &query), wanted);
    assert_eq!(numbers(&c, &query.clone().limit(30)), wanted[..30]);
    let last = c.find(&query.clone().limit(30)).unwrap();
    let next = query.clone().limit(30).after(last.next_token().unwrap().clone());
    assert_eq!(numbers(&c, &next), wanted[30..60]);
    assert!(Query::new().order(Order::Attributes).check().is_err());
}

#[test]
fn estimates_read_no_data() {
    let db = database();
    let c = collection(&db, &["rare"]);
    fill(&c, 5_000);
    db.compact().unwrap();
    for (query, low, high) in [
        (Query::new(), 4_000, 6_000),
        (Query::new().eq("rare", 5), 5, 500),
        (Query::new().filter(Filter::one_of("rare", [1, 2, 3, 4])), 20, 2_000),
        (Query::new().eq("rare", 5).limit(3), 3, 3),
        (Query::new().eq("rare", 5).using_index("rare"), 5, 500),
    ] {
        let estimate = c.estimate(&query).unwrap();
        assert!((low..=high).contains(&estimate.records) && !estimate.is_exact, "{estimate:?}");
        assert!(estimate.nanos > 0, "{estimate:?}");
    }
    let never = c.estimate(&Query::new().filter(Filter::any([]))).unwrap();
    assert!(never.records == 0 && never.is_exact);
}

#[test]
fn parts_have_about_equal_sizes_and_every_key_once() {
    let db = database();
    let c = collection(&db, &[]);
    assert_eq!(c.split(8).unwrap(), [(Bound::Unbounded, Bound::Unbounded)]);
    assert!(c.split(0).is_err());
    let check = |parts: usize, tolerance: f64| {
        let ranges = c.split(parts).unwrap();
        assert_eq!(ranges.len(), parts);
        let mut keys = Vec::new();
        for range in ranges {
            let within: Vec<_> = c.range(range).unwrap().map(|record| record.unwrap().0).collect();
            let share = within.len() as f64 * parts as f64 / 20_000.0;
            assert!((1.0 - tolerance..=1.0 + tolerance).contains(&share), "{share}");
            keys.extend(within);
        }
        assert_eq!(keys.len(), 20_000);
        assert!(keys.is_sorted_by(|left, right| left < right));
    };
    for n in 0..20_000_u32 {
        let key = format!("a long common prefix of all keys/{:05}", n.wrapping_mul(7_919) % 20_000);
        c.put(key.as_bytes(), br#"{"a":"some text that takes a few bytes in each record"}"#).unwrap();
    }
    check(4, 0.5);
    db.flush().unwrap();
    check(4, 0.2);
    db.compact().unwrap();
    check(7, 0.2);
}

#[test]
fn reads_of_memory_agree_with_reads_of_files() {
    let db = database();
    let c = collection(&db, &[]);
    let key = |n: u32| format!("key{n:05}").into_bytes();
    for n in 0..4_000 {
        c.put(&key(n), format!(r#"{{"n":{n}}}"#).as_bytes()).unwrap();
    }
    db.flush().unwrap();
    for n in (0..4_000).step_by(3) {
        c.put(&key(n), br#"{"n":-1}"#).unwrap();
    }
    db.flush().unwrap();
    c.delete(&key(1)).unwrap();
    c.delete_range(key(10)..key(20)).unwrap();
    let mut not_cached = [0, 0];
    for not_cached in &mut not_cached {
        for n in (0..4_100).chain(0..1) {
            let cached = c.try_get_cached(&key(n)).unwrap();
            let found = c.get_pinned(&key(n)).unwrap();
            match cached {
                CachedGet::NotCached => *not_cached += 1,
                CachedGet::Absent => assert!(found.is_none(), "{n}"),
                CachedGet::Found(sequence, record) => {
                    let (wanted, same) = found.expect("it was in memory");
                    assert_eq!((sequence, &*record), (wanted, &*same), "{n}");
                }
            }
        }
    }
    assert!(not_cached[0] > 0, "nothing was read before");
    // Rows that are read twice are cached instead of their blocks, but all blocks fit.
    assert_eq!(not_cached[1], 0);
}
