//! Updates and deletes of all records that satisfy a query: order, resumption, dry runs.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bolide::storage::{CrashMode, SimRuntime, SimVfs};
use bolide::{
    AttributeExtractor, AttributePath, AttributePlan, AttributeValues, BulkChange, BulkOptions, BulkProgress,
    Collection, CollectionOptions, Components, Db, Filter, JsonExtractor, Options, Query, Result, SyncMode,
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
        let record = format!(r#"{{"n":{n},"rare":{},"tags":["t{}","t{}"]}}"#, n % 100, n % 10, (n + 3) % 10);
        collection.put(&n.to_be_bytes(), record.as_bytes()).unwrap();
    }
}

fn numbers(collection: &Collection, query: &Query) -> Vec<u32> {
    let answers = collection.find(query).unwrap();
    answers.iter().map(|answer| u32::from_be_bytes(answer.key[..].try_into().unwrap())).collect()
}

fn filtered(text: &str) -> Query {
    Query::new().filter(Filter::parse(text).unwrap())
}

fn go_on<T>(_: &T) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn stop<T>(_: &T) -> ControlFlow<()> {
    ControlFlow::Break(())
}

#[test]
fn a_delete_is_resumed_and_spares_later_writes() {
    let db = database();
    let c = collection(&db, &["rare"]);
    fill(&c, 1_000);
    let query = Query::new().filter(Filter::parse("rare < 50 and n != 0").unwrap());
    let options = BulkOptions::default().batch(100);
    let mut batches = 0;
    let stopped = c
        .delete_where(&query, &options, |progress| {
            batches += 1;
            assert!(progress.position.is_some());
            assert_eq!(progress.changed, 100 * batches);
            if batches == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
    let position = stopped.position.expect("it is not complete").to_string();
    // Written since: stays.
    c.put(&949_u32.to_be_bytes(), br#"{"rare":1,"n":1}"#).unwrap();
    let done = c.delete_where(&query, &options.clone().resume(position.parse().unwrap()), go_on).unwrap();
    assert_eq!((done.position, stopped.changed + done.changed), (None, 498));
    assert_eq!(numbers(&c, &query), [949]);
    assert_eq!(c.iter().unwrap().count(), 502);
    assert!(c.delete_where(&Query::new().limit(1), &options, go_on).is_err());
    assert!(c.delete_where(&Query::new(), &options.resume(position.parse().unwrap()), go_on).is_err());
    assert!("5".parse::<bolide::BulkPosition>().is_err());
    assert!(db.check(true).unwrap().problems().is_empty());
}

#[test]
fn an_update_changes_each_record_once() {
    let db = database();
    let c = collection(&db, &["n"]);
    fill(&c, 500);
    // Each record satisfies the query after its change too.
    let increment = |_: &[u8], record: &[u8]| {
        let record: serde_json::Value = serde_json::from_slice(record).unwrap();
        Ok(BulkChange::Put(format!(r#"{{"n":{}}}"#, record["n"].as_u64().unwrap() + 1).into_bytes()))
    };
    let query = Query::new().range("n", 0..);
    let options = BulkOptions::default().batch(37);
    let mut resume = options.clone();
    let mut changed = 0;
    loop {
        // Every run does two batches.
        let mut batches = 0;
        let stop = |_: &bolide::BulkProgress| {
            batches += 1;
            if batches == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let done = c.update_where(&query, &resume, increment, stop).unwrap();
        changed += done.changed;
        let Some(position) = done.position else { break };
        resume = options.clone().resume(position);
    }
    assert_eq!(changed, 500);
    assert_eq!(c.summarize(&query, "n").unwrap().integer_sum, Some((1..=500).sum()));
    // A record that changes while the operation runs is skipped.
    let mut touched = false;
    let done = c
        .update_where(&query, &options, increment, |_| {
            if !std::mem::replace(&mut touched, true) {
                c.put(&400_u32.to_be_bytes(), br#"{"n":-7}"#).unwrap();
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((done.found, done.changed, done.skipped), (500, 499, 1));
    assert_eq!(c.get(&400_u32.to_be_bytes()).unwrap().unwrap(), br#"{"n":-7}"#);
}

#[test]
fn a_position_belongs_to_its_collection_and_its_query() {
    let db = database();
    let c = collection(&db, &["rare"]);
    let d = db.create_collection("d", Default::default()).unwrap();
    fill(&c, 500);
    fill(&d, 500);
    let options = BulkOptions::default().batch(10);
    for text in ["rare < 50", "n < 400", "true"] {
        let query = filtered(text);
        let position = c.delete_where(&query, &options, stop).unwrap().position.unwrap();
        let resume = options.clone().resume(position.to_string().parse().unwrap());
        let count = |collection: &Collection| collection.iter().unwrap().count();
        let before = (count(&c), count(&d));
        let error = d.delete_where(&query, &resume, go_on).unwrap_err();
        assert!(error.message().contains("another collection than \"d\""), "{}", error.message());
        for other in ["rare < 51", "n < 401", "not true"] {
            let error = c.delete_where(&filtered(other), &resume, go_on).unwrap_err();
            assert!(error.message().contains("with another query"), "{text}, {other}: {}", error.message());
        }
        assert_eq!((count(&c), count(&d)), before);
        c.delete_where(&query, &resume, stop).unwrap();
        assert_eq!(count(&c), before.0 - 10, "{text}");
    }
    // Another collection of the same name is another collection.
    let query = filtered("true");
    let position = d.delete_where(&query, &options, stop).unwrap().position.unwrap();
    drop(d);
    db.drop_collection("d").unwrap();
    let d = db.create_collection("d", Default::default()).unwrap();
    fill(&d, 20);
    assert!(d.delete_where(&query, &options.resume(position), go_on).is_err());
    for text in ["5", "5-", "", "abcd"] {
        let error = text.parse::<bolide::BulkPosition>().unwrap_err();
        assert!(error.message().contains("not a complete position"), "{}", error.message());
    }
}

#[test]
fn a_dry_run_counts_and_writes_nothing() {
    let db = database();
    let c = collection(&db, &["rare"]);
    fill(&c, 500);
    let before = db.snapshot().sequence();
    let options = BulkOptions::default().batch(64).dry_run(true);
    let mut batches = 0;
    let mut progress = |_: &BulkProgress| {
        batches += 1;
        ControlFlow::Continue(())
    };
    let done = c.delete_where(&filtered("rare < 50"), &options, &mut progress).unwrap();
    assert_eq!((done.found, done.changed, done.skipped, done.position), (250, 250, 0, None));
    let even = |key: &[u8], _: &[u8]| {
        Ok(if key[3].is_multiple_of(2) { BulkChange::Keep } else { BulkChange::Put(b"{}".to_vec()) })
    };
    let done = c.update_where(&filtered("n >= 0"), &options, even, &mut progress).unwrap();
    assert_eq!((done.found, done.changed, done.position), (500, 250, None));
    assert_eq!((db.snapshot().sequence(), batches), (before, 4 + 8));
}

#[test]
fn progress_is_reported_after_the_last_batch() {
    let db = database();
    for (count, batch, wanted) in [(0, 10, vec![0]), (5, 10, vec![5]), (25, 10, vec![10, 20, 25])] {
        let c = db.create_collection(&format!("c{count}"), Default::default()).unwrap();
        fill(&c, count);
        let mut reports = Vec::new();
        let mut is_complete = false;
        c.delete_where(&Query::new(), &BulkOptions::default().batch(batch), |progress| {
            reports.push(progress.changed);
            assert!(!is_complete);
            is_complete = progress.position.is_none();
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!((reports, is_complete), (wanted, true));
    }
}

#[test]
fn a_position_covers_no_change_that_a_power_cut_undoes() {
    for text in ["rare < 50", "n < 400"] {
        let disk = SimVfs::new(7);
        let open = |disk: &SimVfs| {
            let components =
                Components::in_memory().vfs(Arc::new(disk.clone())).runtime(Arc::new(SimRuntime::new(7)));
            Db::open_with("db", Options::default().sync(SyncMode::None), components).unwrap()
        };
        let db = open(&disk);
        let c = collection(&db, &["rare"]);
        fill(&c, 500);
        db.sync().unwrap();
        let query = filtered(text);
        let wanted = c.find(&query).unwrap().len() as u64;
        let options = BulkOptions::default().batch(50);
        let (mut position, mut changed, mut after_cut) = (None, 0, None);
        c.delete_where(&query, &options, |progress| {
            if changed < 100 {
                (position, changed) = (progress.position.clone(), progress.changed);
                after_cut = Some(disk.crash(CrashMode::None));
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        let db = open(&after_cut.unwrap());
        let c = db.collection("c").unwrap();
        assert_eq!(c.find(&query).unwrap().len() as u64, wanted - changed, "{text}");
        let rest = c.delete_where(&query, &options.resume(position.unwrap()), go_on).unwrap();
        assert_eq!((rest.changed, c.find(&query).unwrap().len()), (wanted - changed, 0), "{text}");
    }
}

#[test]
fn an_unfit_part_of_a_query_is_named() {
    let db = database();
    let c = collection(&db, &[]);
    fill(&c, 3);
    for (query, part) in [
        (Query::new().limit(1), "no limit:"),
        (Query::new().range("n", 0..).limit_per_value(1), "no limit per value:"),
        (Query::new().order(bolide::Order::Oldest), "no order:"),
        (Query::new().keys_only(), "no projection:"),
    ] {
        let error = c.delete_where(&query, &BulkOptions::default(), go_on).unwrap_err();
        assert!(error.message().contains(part), "{}", error.message());
        assert!(error.message().ends_with("remove it from the query"), "{}", error.message());
    }
    assert_eq!(c.iter().unwrap().count(), 3);
}

/// Reads JSON and counts the records.
#[derive(Debug, Default)]
struct Counting(AtomicU64);

impl AttributeExtractor for Counting {
    fn extract_into(&self, record: &[u8], plan: &AttributePlan, out: &mut AttributeValues) -> Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        JsonExtractor.extract_into(record, plan, out)
    }
}

#[test]
fn an_operation_without_an_index_reads_each_record_once() {
    let counting = Arc::new(Counting::default());
    let components = Components::in_memory().extractor("c", counting.clone());
    let db = Db::open_with("db", Options::default(), components).unwrap();
    let c = db.create_collection("c", CollectionOptions::bytes()).unwrap();
    fill(&c, 2_000);
    db.flush().unwrap();
    let query = filtered("rare < 50 and not n = 1");
    counting.0.store(0, Ordering::Relaxed);
    let mut options = BulkOptions::default().batch(100);
    let mut keys = Vec::new();
    loop {
        let keep = |key: &[u8], _: &[u8]| {
            keys.push(u32::from_be_bytes(key.try_into().unwrap()));
            Ok(BulkChange::Keep)
        };
        // Each run does one batch.
        let done = c.update_where(&query, &options, keep, stop).unwrap();
        let Some(position) = done.position else { break };
        options = options.resume(position.to_string().parse().unwrap());
    }
    let wanted: Vec<u32> = (0..2_000).filter(|n| n % 100 < 50 && *n != 1).collect();
    assert_eq!(keys, wanted);
    let read = counting.0.load(Ordering::Relaxed);
    assert!((2_000..2_100).contains(&read), "{read} records were evaluated");
}

#[test]
fn every_plan_changes_each_record_once_and_is_resumed() {
    let kinds = ["ps-tree", "composite", "eager", "lazy", "next", "embedded"];
    let texts = [
        "rare = 5",
        "rare < 50",
        "rare in (1, 2, 3)",
        "rare < 20 or tags[*] = \"t3\"",
        "rare = 5 and n > 100",
        "n > 100 and rare < 20",
        "tags[*] starts with \"t\"",
        "not rare = 5",
        "false",
        "true",
    ];
    for kind in kinds {
        for text in texts {
            let db = database();
            let indexes = [format!("rare:{kind}"), format!("tags[*]:{kind}")];
            let c = collection(&db, &[&indexes[0], &indexes[1]]);
            fill(&c, 600);
            db.flush().unwrap();
            let query = filtered(text);
            let mut wanted = numbers(&c, &query);
            wanted.sort_unstable();
            let mut changed: Vec<u32> = Vec::new();
            let mut options = BulkOptions::default().batch(7);
            loop {
                // The changed record satisfies the query too.
                let touch = |key: &[u8], record: &[u8]| {
                    changed.push(u32::from_be_bytes(key.try_into().unwrap()));
                    Ok(BulkChange::Put(record.to_vec()))
                };
                let mut batches = 0;
                let some = |_: &BulkProgress| {
                    batches += 1;
                    if batches == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                };
                let done = c.update_where(&query, &options, touch, some).unwrap();
                let Some(position) = done.position else { break };
                options = options.resume(position.to_string().parse().unwrap());
            }
            changed.sort_unstable();
            assert_eq!(changed, wanted, "{kind}: {text}");
        }
    }
}

#[test]
fn attributes_of_negations_that_no_record_has_are_named() {
    let db = database();
    let c = collection(&db, &["rare", "other"]);
    fill(&c, 100);
    db.flush().unwrap();
    let query =
        filtered("n = 1 and not (rare = 2 or othre = 3 or other in (1, 2)) and tags is absent and x != 4");
    let missing: Vec<String> =
        c.without_values(&query.negated_attributes()).unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(missing, ["other", "othre", "x"]);
    let paths: Vec<AttributePath> = vec!["rect(n)".parse().unwrap(), "n".parse().unwrap()];
    assert_eq!(c.without_values(&[&paths[0], &paths[1]]).unwrap(), [&paths[0]]);
}
