//! Plans over a store with sstables and memtables: every plan returns the answers of a scan.

use bolide::{
    Answer, Collection, CollectionOptions, Components, Db, ErrorKind, FindOptions, Options, Order, Query,
};

/// A small generator, so that a seed determines a run.
struct Seed(u64);

impl Seed {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// The same records in a collection with indexes and in one without, partly flushed, partly overwritten.
fn collections(db: &Db, seed: u64) -> (Collection, Collection) {
    let mut options = CollectionOptions::default();
    for spec in [
        "common",
        "fifth:composite:maintenance=synchronous",
        "tags[*]",
        "n:composite:include=common|fifth",
        "rare:composite:maintenance=synchronous,include=n|tags",
    ] {
        options = options.index(spec.parse().unwrap());
    }
    let indexed = db.create_collection("indexed", options).unwrap();
    let plain = db.create_collection("plain", CollectionOptions::default()).unwrap();
    let mut random = Seed(seed);
    for number in 0..6_000_u64 {
        // A third of the writes replaces records.
        let key = format!("k{:05}", if number % 3 == 2 { random.next(number) } else { number });
        if random.next(20) == 0 {
            indexed.delete(key.as_bytes()).unwrap();
            plain.delete(key.as_bytes()).unwrap();
            continue;
        }
        let record = format!(
            r#"{{"common":{},"fifth":{},"rare":{},"n":{number},"tags":[{},"t{}"]}}"#,
            random.next(2),
            random.next(5),
            random.next(500),
            random.next(10),
            random.next(4),
        );
        indexed.put(key.as_bytes(), record.as_bytes()).unwrap();
        plain.put(key.as_bytes(), record.as_bytes()).unwrap();
        if number % 2_500 == 2_499 {
            db.flush().unwrap();
        }
    }
    (indexed, plain)
}

fn keys(answers: &[Answer]) -> Vec<Vec<u8>> {
    answers.iter().map(|answer| answer.key.clone()).collect()
}

/// One to four predicates.
fn any_query(random: &mut Seed) -> Query {
    let orders = [Order::Newest, Order::Oldest, Order::Value, Order::ValueDescending];
    let mut query = Query::new().order(orders[random.next(4) as usize]);
    let mut ranges = false;
    for _ in 0..=random.next(4) {
        query = match random.next(6) {
            0 => query.eq("common", random.next(2) as i64),
            1 => query.eq("fifth", random.next(5) as i64),
            2 => query.eq("rare", random.next(500) as i64),
            3 => query.eq("tags[*]", random.next(10) as i64),
            4 => query.eq("tags", format!("t{}", random.next(4)).as_str()),
            _ => {
                ranges = true;
                let low = random.next(6_000) as i64;
                query.range("n", low..low + random.next(3_000) as i64)
            }
        };
    }
    if ranges && random.next(3) == 0 {
        query = query.limit_per_value(random.next(3) as usize);
    }
    query
}

#[test]
fn every_plan_answers_like_a_scan() {
    let seed = 0x9a7e;
    let db = Db::open_with("db", Options::default(), Components::in_memory()).unwrap();
    let (indexed, plain) = collections(&db, seed);
    let mut random = Seed(seed + 1);
    let (mut intersected, mut covered) = (0, 0);
    for round in 0..150 {
        let query = any_query(&mut random);
        let context = format!("seed {seed}, round {round}: {:?}", query.predicates());
        let snapshot = db.snapshot();
        let options = FindOptions::default().snapshot(&snapshot);
        let expected = plain.find_with(&query, &options).unwrap();
        let found = indexed.find_with(&query, &options).unwrap();
        assert_eq!(keys(&found), keys(&expected), "{context}\n{}", found.explain());
        intersected += usize::from(!found.explain().intersected.is_empty());
        let count = indexed.find(&query.clone().count()).unwrap();
        assert_eq!(count.count(), expected.len() as u64, "{context}\n{}", count.explain());
        let select = query.clone().select(["n", "tags"]).limit(7);
        let selected = indexed.find(&select).unwrap();
        covered += usize::from(selected.explain().records_fetched == 0 && !selected.is_empty());
        for (answer, wanted) in selected.iter().zip(plain.find(&select).unwrap().iter()) {
            assert_eq!((&answer.key, &answer.values), (&wanted.key, &wanted.values), "{context}");
        }
        // Pages of a snapshot are the whole answer, despite writes in between.
        let mut paged = Vec::new();
        let mut page = query.clone().limit(1 + expected.len() / 3);
        for _ in 0..5 {
            let answers = indexed.find_with(&page, &options).unwrap();
            paged.extend(keys(&answers));
            let Some(token) = answers.next_token().cloned() else { break };
            page = page.after(token);
            let key = format!("k{:05}", random.next(6_000));
            let record = br#"{"common":1,"fifth":3,"n":3000}"#;
            indexed.put(key.as_bytes(), record).unwrap();
            plain.put(key.as_bytes(), record).unwrap();
            if round == 0 {
                let refused = indexed.find(&page).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::Expired);
            }
        }
        assert_eq!(paged, keys(&expected), "{context}");
    }
    assert!(intersected > 5 && covered > 5, "{intersected} intersections, {covered} covered");
    assert!(db.check(true).unwrap().is_sound());
}

#[test]
fn explain_counts_the_reads() {
    let db = Db::open_with("db", Options::default(), Components::in_memory()).unwrap();
    let (indexed, _) = collections(&db, 7);
    db.flush().unwrap();
    let query = Query::new().eq("common", 1).eq("fifth", 3);
    let options = FindOptions::default().measure(true);
    let answers = indexed.find_with(&query, &options).unwrap();
    let explain = answers.explain();
    let reads = explain.reads;
    assert!(reads.blocks_read + reads.blocks_cached > 0 && reads.filters_skipped > 0, "{explain}");
    assert_eq!(reads.blocks_read == 0, reads.bytes_read == 0, "{explain}");
    assert!(explain.alternatives.len() >= 3, "{explain}");
    let again = indexed.find_with(&query, &options).unwrap();
    assert_eq!(again.explain().reads.blocks_read, 0, "{}", again.explain());
    let by_key = indexed.find_with(&query, &options.fetch_by_sequence(false)).unwrap();
    assert!(by_key.explain().reads.bloom_checks > 0, "{}", by_key.explain());
}

#[test]
fn posting_lists_estimate_their_length() {
    for kind in ["lazy", "lazy:maintenance=synchronous", "lazy:include=pad", "eager", "eager:split=off"] {
        let db =
            Db::open_with("db", Options::default().background_threads(0), Components::in_memory()).unwrap();
        let options = ["common", "fifth", "rare", "n"]
            .into_iter()
            .fold(CollectionOptions::default(), |options, attribute| {
                options.index(format!("{attribute}:{kind}").parse().unwrap())
            });
        let lists = db.create_collection("lists", options).unwrap();
        let put = |numbers: std::ops::Range<u64>| {
            for n in numbers {
                let (common, fifth, rare) = (n % 2, n % 5, n % 500);
                let record =
                    format!(r#"{{"common":{common},"fifth":{fifth},"rare":{rare},"n":{n},"pad":"xy"}}"#);
                lists.put(format!("k{n:05}").as_bytes(), record.as_bytes()).unwrap();
            }
        };
        let check = |records: u64, stage: &str| {
            let entries_of_two_blocks = 800;
            for (query, answers) in [
                (Query::new().eq("common", 1), records / 2),
                (Query::new().eq("fifth", 3), records / 5),
                (Query::new().eq("rare", 77), records / 500),
                (Query::new().range("n", records / 4..records / 2), records / 4),
                (Query::new().range("fifth", 1..3), records / 5 * 2),
            ] {
                let options = FindOptions::default().measure(true);
                let found = lists.find_with(&query, &options).unwrap();
                let plans = &found.explain().alternatives;
                let of_index = plans.iter().find(|plan| plan.indexes.len() == 1).unwrap();
                let max = 3 * answers + entries_of_two_blocks;
                let min = (answers / 3).saturating_sub(entries_of_two_blocks);
                assert!(
                    (min..=max).contains(&of_index.candidates),
                    "{kind}, {stage}: {answers} answers to {query:?}, {}",
                    found.explain()
                );
                assert_eq!(found.count(), answers, "{kind}, {stage}");
            }
            // The selective index, though the query names the other one first.
            let both = lists.find(&Query::new().eq("common", 1).eq("rare", 77)).unwrap();
            assert_eq!(both.explain().index.as_deref(), Some("rare"), "{kind}, {stage}: {}", both.explain());
        };
        put(0..4_000);
        check(4_000, "in memory");
        db.flush().unwrap();
        check(4_000, "flushed");
        put(4_000..8_000);
        check(8_000, "partly flushed");
        db.flush().unwrap();
        put(8_000..12_000);
        db.flush().unwrap();
        check(12_000, "in three runs");
        db.compact().unwrap();
        check(12_000, "compacted");
    }
}

#[test]
fn covered_queries_are_validated_without_records() {
    for kind in [
        "composite:include=n|title",
        "composite:order=primary-key,include=n|title",
        "composite:validation=get-lite,include=n|title",
        "composite:validation=key-index,include=n|title",
        "lazy:include=n|title",
        "eager:include=n|title",
    ] {
        let db =
            Db::open_with("db", Options::default().background_threads(0), Components::in_memory()).unwrap();
        let options = CollectionOptions::default().index(format!("a:{kind}").parse().unwrap());
        let records = db.create_collection("records", options).unwrap();
        for n in 0..3_000_u64 {
            // A third of the writes replaces records.
            let key = if n % 3 == 2 { n / 3 } else { n };
            let record = format!(r#"{{"a":{},"n":{n},"title":"t{n}","more":"text"}}"#, n % 7);
            records.put(format!("k{key:05}").as_bytes(), record.as_bytes()).unwrap();
            if n == 1_500 {
                db.flush().unwrap();
            }
        }
        let equal = Query::new().eq("a", 3);
        let range = Query::new().range("a", 2..5);
        for query in [
            equal.clone().select(["n"]),
            equal.clone().select(["title", "n"]).limit(10),
            equal.clone().keys_only(),
            equal.clone().select(["a"]),
            equal.clone().select(["n", "a"]).order(Order::Oldest).limit(10),
            equal.clone().range("n", 100..2_000).order(Order::Value).select(["a", "title"]),
            range.clone().select(["a"]),
            range.clone().order(Order::ValueDescending).select(["title", "a"]).limit(20),
            range.clone().range("n", 0..2_500).limit_per_value(3).select(["a"]),
            equal.clone().count(),
            equal.clone().range("n", 100..2_000).select(["title"]),
            equal.range("n", 100..2_000).order(Order::ValueDescending).select(["title"]),
            range.clone().select(["n"]),
            range.clone().order(Order::Oldest).select(["n", "title"]).limit(20),
            range.clone().order(Order::Value).select(["n"]).limit(20),
            range.clone().order(Order::ValueDescending).select(["n"]),
            range.clone().limit_per_value(3).select(["n"]),
            range.range("n", 0..2_500).count(),
        ] {
            let explain = records.find(&query.clone().using_index("a")).unwrap().explain().clone();
            assert!(explain.answers > 0 && explain.records_fetched == 0, "{kind}, {query:?}: {explain}");
            assert!(
                explain.current >= explain.answers && explain.obsolete + explain.current > 0,
                "{explain}"
            );
            let free = records.find(&query).unwrap();
            assert_eq!(free.explain().answers, explain.answers, "{kind}, {query:?}");
        }
    }
}

#[test]
fn selected_attributes_are_read_from_a_key_that_has_all_their_values() {
    for kind in ["composite", "composite:order=primary-key", "lazy", "eager", "eager:split=off"] {
        let db =
            Db::open_with("db", Options::default().background_threads(0), Components::in_memory()).unwrap();
        let options = ["s=a", "both=a+b", "tags=tags[*]"]
            .into_iter()
            .fold(CollectionOptions::default(), |options, attributes| {
                options.index(format!("{attributes}:{kind}").parse().unwrap())
            });
        let records = db.create_collection("records", options).unwrap();
        let texts = [
            r#"{"a":1}"#,
            r#"{"a":1.0,"b":null}"#,
            r#"{"a":-0.0,"b":"text","tags":["x"]}"#,
            r#"{"a":[3,1,3],"b":true,"tags":["x","y"]}"#,
            r#"{"a":[2],"b":[],"tags":"x"}"#,
            r#"{"a":2.5,"b":[7,"seven"],"tags":[]}"#,
            r#"{"a":18446744073709551615,"b":9007199254740993}"#,
        ];
        for (number, text) in texts.iter().enumerate() {
            records.put(&[number as u8], b"{}").unwrap();
            records.put(&[number as u8], text.as_bytes()).unwrap();
        }
        for (index, query, select, of_records) in [
            ("s", Query::new().range("a", 0..), vec!["a"], 1),
            ("s", Query::new().eq("a", 1), vec!["a"], 1),
            ("both", Query::new().eq("a", 1), vec!["b"], 1),
            ("both", Query::new().range("a", 0..), vec!["b", "a"], 2),
            ("both", Query::new().eq("a", 0).eq("b", "text"), vec!["a", "b"], 0),
            ("tags", Query::new().eq("tags[*]", "x"), vec!["tags[*]"], 1),
            ("tags", Query::new().range("tags[*]", "a"..), vec!["tags[*]"], 1),
        ] {
            for order in [Order::Newest, Order::Oldest, Order::Value, Order::ValueDescending] {
                let query = query.clone().order(order).select(select.iter().copied());
                let by_index = records.find(&query.clone().using_index(index)).unwrap();
                let explain = by_index.explain().clone();
                let values = |answers: bolide::Answers| {
                    answers
                        .into_iter()
                        .map(|answer| (answer.key.clone(), answer.values.clone()))
                        .collect::<Vec<_>>()
                };
                let plain = db.create_collection("plain", CollectionOptions::default()).unwrap();
                for (number, text) in texts.iter().enumerate() {
                    plain.put(&[number as u8], text.as_bytes()).unwrap();
                }
                let scanned = plain.find(&query).unwrap();
                assert!(scanned.explain().is_full_scan());
                assert_eq!(values(by_index), values(scanned), "{kind}, {query:?}: {explain}");
                // In an order of values a record is read once for its position, and again when it is returned.
                let is_right = match order {
                    Order::Newest | Order::Oldest => explain.records_fetched == of_records,
                    _ => (explain.records_fetched == 0) == (of_records == 0),
                };
                assert!(is_right, "{kind}, {query:?}: {explain}");
                drop(plain);
                db.drop_collection("plain").unwrap();
            }
        }
    }
}
