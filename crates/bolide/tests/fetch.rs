//! Fetching records by sequence number, and by several threads: the same answers in every combination, and the expected
//! savings.

mod support;

use bolide::storage::SimRng;
use bolide::{Answer, Collection, Db, Explain, FindOptions, IterOptions, Layout, Order, Query, Snapshot};
use support::{components, seed, threaded, tiny, tiny_collection};

/// Every kind of validation and of candidates.
const KINDS: [&str; 13] = [
    "composite",
    "composite:maintenance=synchronous",
    "composite:validation=key-index",
    "composite:validation=get-lite",
    "composite:include=pad",
    "lazy",
    "lazy:maintenance=synchronous",
    "eager",
    "eager:maintenance=synchronous",
    "embedded",
    "ps-tree",
    "ps-tree:skey=trie",
    "ps-tree:include=pad",
];

/// All combinations, the plain one first.
fn combinations() -> Vec<(bool, usize, FindOptions)> {
    let mut all = Vec::new();
    for by_sequence in [false, true] {
        for threads in [1, 2, 4] {
            let options = FindOptions::default().fetch_by_sequence(by_sequence).fetch_threads(threads);
            all.push((by_sequence, threads, options.fetch_shared_from(2)));
        }
    }
    all
}

fn record(rng: &mut SimRng) -> Vec<u8> {
    let (group, number) = (rng.below(3), rng.below(100));
    format!(r#"{{"group":"g{group}","number":{number},"pad":"{:x>60}"}}"#, rng.below(10)).into_bytes()
}

/// Records under a few hundred keys, most written several times, some deleted; with snapshots in between.
fn fill(db: &Db, collection: &Collection, rng: &mut SimRng) -> Vec<Snapshot> {
    let mut snapshots = Vec::new();
    let key = |number: u64| format!("{number:04}").into_bytes();
    for step in 0..900 {
        let number = rng.below(400);
        match rng.below(40) {
            0 => collection.delete_range(key(number)..key(number + rng.below(20))).unwrap(),
            1..=3 => collection.delete(&key(number)).unwrap(),
            _ => collection.put(&key(number), &record(rng)).unwrap(),
        }
        match rng.below(150) {
            0 => db.compact().unwrap(),
            1..=3 => db.flush().unwrap(),
            _ => {}
        }
        if step % 300 == 150 {
            snapshots.push(db.snapshot());
        }
    }
    snapshots
}

fn queries(index: &str) -> Vec<Query> {
    let group = |number: u64| Query::new().eq("group", format!("g{number}").as_str()).using_index(index);
    vec![
        group(0),
        group(1).limit(40),
        group(2).limit(7).order(Order::Oldest),
        group(0).range("number", 20..70),
        group(1).range("number", 10..90).order(Order::Value).limit(30),
        group(1).select(["number", "pad"]),
        group(2).keys_only(),
        group(2).count(),
    ]
}

/// The number of records of a group, by reading each.
fn count_by_scan(collection: &Collection, at: &Snapshot, group: u64) -> u64 {
    let wanted = format!(r#""group":"g{group}""#);
    let mut cursor = collection.cursor(&IterOptions::default().snapshot(at)).unwrap();
    cursor.seek_to_first().unwrap();
    let mut count = 0;
    while cursor.valid() {
        count += u64::from(String::from_utf8_lossy(cursor.value()).contains(&wanted));
        cursor.next().unwrap();
    }
    count
}

#[test]
fn every_combination_returns_the_same_answers_for_every_kind() {
    let seed = seed();
    let (mut exact, mut shared) = (0, 0);
    for (turn, kind) in KINDS.into_iter().enumerate() {
        let mut rng = SimRng::new(seed + turn as u64);
        let layout = if (turn + seed as usize).is_multiple_of(2) { Layout::Leveled } else { Layout::Tiered };
        let db = Db::open_with("db", tiny(), threaded()).unwrap();
        let spec = format!("ix=group:{kind}").parse().unwrap();
        let collection = db.create_collection("c", tiny_collection().layout(layout).index(spec)).unwrap();
        let mut moments = fill(&db, &collection, &mut rng);
        moments.push(db.snapshot());
        for at in &moments {
            let expected = count_by_scan(&collection, at, 0);
            for (number, query) in queries("ix").into_iter().enumerate() {
                let mut plain: Option<Vec<Answer>> = None;
                for (by_sequence, threads, options) in combinations() {
                    let found = collection.find_with(&query, &options.snapshot(at)).unwrap();
                    let costs = found.explain().fetch;
                    let context = || format!("{kind}, {layout:?}, {query:?}: {costs:?}");
                    assert!(number > 0 || found.count() == expected, "{}", context());
                    assert!(costs.threads <= threads as u64, "{}", context());
                    assert!(by_sequence || costs.exact + costs.missed + costs.spared == 0, "{}", context());
                    exact += costs.exact;
                    shared += costs.shared;
                    let answers = found.into_vec();
                    match &plain {
                        None => plain = Some(answers),
                        Some(plain) => assert_eq!(*plain, answers, "{}", context()),
                    }
                }
            }
        }
    }
    assert!(exact > 5_000 && shared > 10_000, "{exact} exact, {shared} shared");
}

/// Three runs of records that are not changed afterwards, and a memtable, 100 records each.
fn quiet(kind: &str) -> (Db, Collection) {
    let db = Db::open_with("db", tiny().memtable_bytes(4 << 20), components(1)).unwrap();
    let options = tiny_collection().layout(Layout::Tiered).index(format!("ix=group:{kind}").parse().unwrap());
    let collection = db.create_collection("c", options).unwrap();
    for number in 0..400_u64 {
        // The keys of all runs are interleaved.
        let key = format!("{:04}", number * 139 % 400);
        collection.put(key.as_bytes(), br#"{"group":"g","pad":"xxxxxxxxxxxxxxxxxxxx"}"#).unwrap();
        if number % 100 == 99 && number < 399 {
            db.flush().unwrap();
        }
    }
    (db, collection)
}

fn explain(collection: &Collection, options: &FindOptions) -> Explain {
    let query = Query::new().eq("group", "g").using_index("ix");
    // The first one opens the files.
    collection.find_with(&query, options).unwrap();
    let found = collection.find_with(&query, options).unwrap();
    assert_eq!(found.len(), 400);
    found.explain().clone()
}

#[test]
fn an_exact_index_needs_one_component_a_record_and_no_filter() {
    for kind in ["ps-tree", "composite:maintenance=synchronous", "lazy:maintenance=synchronous"] {
        let (_db, collection) = quiet(kind);
        let explained = explain(&collection, &FindOptions::default().fetch_threads(1));
        let (fetch, reads) = (explained.fetch, explained.reads);
        assert!(fetch.by_sequence && (fetch.exact, fetch.missed, fetch.spared) == (400, 0, 0), "{explained}");
        // Index trees have filters too, but no lookup uses them.
        assert_eq!((reads.bloom_checks, reads.filters_skipped), (0, 300), "{explained}");
        assert_eq!((reads.tables_skipped, reads.memtables_skipped), (3 * 300 - 300, 300), "{explained}");
        let text = explained.to_string();
        assert!(text.contains("by sequence number: 400 exact, 0 missed, 0 spared; one thread"), "{text}");
        assert!(
            text.contains("skipped       600 sstables and 300 memtables by sequence range, 300 filters"),
            "{text}"
        );
    }
}

#[test]
fn a_blind_index_skips_older_components() {
    let (_db, collection) = quiet("composite");
    let explained = explain(&collection, &FindOptions::default().fetch_threads(1));
    assert_eq!((explained.fetch.exact, explained.reads.filters_skipped), (0, 0), "{explained}");
    // Records in the newest sstable skip two sstables, those in the next one skip one.
    assert_eq!(explained.reads.tables_skipped, 300, "{explained}");
    let plain = explain(&collection, &FindOptions::default().fetch_threads(1).fetch_by_sequence(false));
    assert_eq!(plain.reads.tables_skipped + plain.reads.memtables_skipped, 0, "{plain}");
    assert!(plain.reads.bloom_checks >= explained.reads.bloom_checks + 250, "{plain}{explained}");
    assert!(plain.to_string().contains("by key alone"), "{plain}");
}

#[test]
fn deleted_ranges_are_applied_before_any_fetch() {
    let (_db, collection) = quiet("ps-tree");
    collection.delete_range(b"0100".to_vec()..b"0200".to_vec()).unwrap();
    let query = Query::new().eq("group", "g").using_index("ix");
    let found = collection.find(&query).unwrap();
    let costs = found.explain().fetch;
    assert_eq!((found.len(), costs.exact, costs.missed, costs.spared), (300, 300, 0, 100), "{costs:?}");
}

#[test]
fn several_threads_fetch_large_batches() {
    let (db, collection) = quiet("composite");
    // A simulated machine runs one thread at a time unless it is configured otherwise.
    let alone = explain(&collection, &FindOptions::default());
    assert_eq!((alone.fetch.threads, alone.fetch.shared, db.stats().fetch.threads), (0, 0, 0), "{alone}");
    // Cached records are left to one thread, unless there are many.
    let cached = explain(&collection, &FindOptions::default().fetch_threads(3));
    assert_eq!((cached.fetch.threads, cached.fetch.shared), (0, 0), "{cached}");
    let options = FindOptions::default().fetch_threads(3).fetch_shared_from(64);
    let few = Query::new().eq("group", "g").using_index("ix").limit(10);
    let found = collection.find_with(&few, &options).unwrap();
    assert_eq!((found.len(), found.explain().fetch.threads), (10, 0));
    let mut by_helpers = 0;
    for _ in 0..2_000 {
        let explained = explain(&collection, &options);
        let fetch = explained.fetch;
        assert!((1..=3).contains(&fetch.threads) && fetch.shared == 400, "{explained}");
        // The statistics count the records of all threads.
        assert_eq!(explained.reads.tables_skipped, alone.reads.tables_skipped, "{explained}");
        assert_eq!(explained.reads.bloom_checks, alone.reads.bloom_checks, "{explained}");
        by_helpers += fetch.by_helpers;
        if by_helpers > 100 {
            let stats = db.stats().fetch;
            assert!((1..=2).contains(&stats.threads) && stats.rows_by_helpers >= by_helpers, "{stats:?}");
            assert!(explained.to_string().contains("400 shared by "), "{explained}");
            return;
        }
    }
    panic!("no helper thread took a task");
}

#[test]
fn a_receiver_that_stops_gets_no_more_answers_and_the_view_is_released() {
    let (db, collection) = quiet("ps-tree");
    let options = FindOptions::default().fetch_threads(4).fetch_shared_from(2);
    let query = Query::new().eq("group", "g").using_index("ix");
    for stop_after in [1, 5, 63, 64, 65, 399] {
        let mut delivered = 0;
        let explained = collection
            .find_each(&query, &options, |_| {
                delivered += 1;
                Ok(match delivered == stop_after {
                    true => std::ops::ControlFlow::Break(()),
                    false => std::ops::ControlFlow::Continue(()),
                })
            })
            .unwrap();
        assert_eq!((delivered, explained.answers), (stop_after, stop_after));
        assert!(explained.next.is_some());
        assert_eq!(db.stats().views, 0);
    }
}

/// A validator that reads the table would repeat the read of the record's fetch.
#[test]
fn records_validate_themselves_unless_the_validator_reads_nothing() {
    for (kind, by_record) in [
        ("composite", true),
        ("composite:validation=key-index", true),
        ("composite:validation=get-lite", true),
        ("lazy", true),
        ("composite:maintenance=synchronous", false),
        ("lazy:maintenance=synchronous", false),
        ("ps-tree", false),
    ] {
        let options = tiny_collection().index(format!("group:{kind}").parse().unwrap());
        let db = Db::open_with("db", tiny(), components(1)).unwrap();
        let collection = db.create_collection("records", options).unwrap();
        for number in 0..60_u64 {
            // Half of the writes replaces a record.
            let record = format!(r#"{{"group":"g{}"}}"#, number % 3);
            collection.put(format!("{:04}", number % 30).as_bytes(), record.as_bytes()).unwrap();
        }
        // More than the fast path answers.
        let query = Query::new().eq("group", "g1").order(Order::Oldest).using_index("group");
        let records = collection.find(&query).unwrap().explain().clone();
        let keys = collection.find(&query.keys_only()).unwrap().explain().clone();
        assert_eq!((records.answers, keys.answers), (10, 10), "{kind}");
        assert_eq!(records.validation == "record", by_record, "{kind}: {}", records.validation);
        assert_ne!(keys.validation, "record", "{kind}");
        if by_record {
            assert_eq!(records.fetch.spared, 0, "{kind}: none is found obsolete without its record");
        }
    }
}
