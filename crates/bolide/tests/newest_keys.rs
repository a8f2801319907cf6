//! Queries for the newest keys of one value use a fast path: it returns the same as the lookup driver.
#![allow(clippy::disallowed_methods, reason = "a test of threads starts some")]

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bolide::storage::SimRng;
use bolide::{
    Answer, Answers, Collection, CollectionOptions, Components, Db, FindOptions, Options, PsCosts, Query,
    Result,
};
use bolide_base::{SequenceNumber, TreeId};
use bolide_index::{
    Access, CandidateCursor, CheckedTable, IndexCheck, IndexSpec, IndexWrites, IndexedRecord, NewestKeys,
    Order, SecondaryIndex, Validator,
};
use bolide_lsm::{ReadView, TreeView};

fn options() -> Options {
    Options::default().memtable_bytes(16 << 10).background_threads(0)
}

fn collection(db: &Db, kind: &str) -> Collection {
    let made = CollectionOptions::json().index(format!("group:{kind}").parse().unwrap());
    db.create_collection("c", made).unwrap()
}

fn record(group: u64) -> Vec<u8> {
    format!(r#"{{"group":{group},"pad":"{}"}}"#, "x".repeat(40)).into_bytes()
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

fn newest(group: u64, limit: usize) -> Query {
    Query::new().eq("group", group).limit(limit).keys_only()
}

/// The same query for records.
fn with_records(keys: Query) -> Query {
    let limit = keys.answer_limit().unwrap_or(1);
    keys.predicates().iter().cloned().fold(Query::new().limit(limit), Query::predicate)
}

/// The answers and their statistics, independent of the path.
fn comparable(answers: &Answers) -> impl PartialEq + std::fmt::Debug + use<> {
    let explain = answers.explain();
    let row = |answer: &Answer| (answer.key.clone(), answer.sequence, answer.record.clone());
    let rows: Vec<_> = answers.iter().map(row).collect();
    let fetched = (explain.records_fetched, explain.record_bytes, explain.fetch.exact);
    let names = (explain.index.clone(), explain.access, explain.validation);
    let how = (explain.streamed, explain.passes, explain.answers);
    (rows, answers.next_token().cloned(), names, how, answers.count(), fetched)
}

#[test]
fn the_fast_path_returns_the_answers_of_the_driver() {
    for seed in 0..12 {
        let mut rng = SimRng::new(seed);
        let db = Db::open_with("db", options(), Components::in_memory()).unwrap();
        let kind = ["ps-tree", "ps-tree:page_bytes=512", "ps-tree:include=pad", "ps-tree:skey=trie"];
        let c = collection(&db, kind[seed as usize % 4]);
        let mut snapshots = vec![db.snapshot()];
        for step in 0..600 {
            match rng.below(100) {
                0..85 => c.put(&key(rng.below(120)), &record(rng.below(6))).unwrap(),
                85..95 => c.delete(&key(rng.below(120))).unwrap(),
                95 if seed % 3 == 0 => {
                    let first = rng.below(120);
                    c.delete_range(key(first)..key(first + 4)).unwrap();
                }
                96 => c.put(&key(rng.below(120)), br#"{"other":1}"#).unwrap(),
                97 => snapshots.push(db.snapshot()),
                98 => drop(snapshots.swap_remove(rng.below(snapshots.len() as u64) as usize)),
                _ => db.flush().unwrap(),
            }
            if snapshots.is_empty() {
                snapshots.push(db.snapshot());
            }
            let query = newest(rng.below(7), 1 + rng.below(40) as usize);
            let query = if step % 2 == 0 { with_records(query) } else { query };
            let at = &snapshots[rng.below(snapshots.len() as u64) as usize];
            for options in [FindOptions::default(), FindOptions::default().snapshot(at)] {
                let short = c.find_with(&query, &options).unwrap();
                let mut lent = Vec::new();
                c.visit(&query, &options, |answer| {
                    lent.push((answer.key.to_vec(), answer.sequence, answer.record.map(<[u8]>::to_vec)));
                    Ok(ControlFlow::Continue(()))
                })
                .unwrap();
                // The fast path does not measure time.
                let long = c.find_with(&query, &options.measure(true)).unwrap();
                assert_eq!(comparable(&short), comparable(&long), "seed {seed}, step {step}, {query:?}");
                let row = |answer: Answer| (answer.key, answer.sequence, answer.record);
                let long: Vec<_> = long.into_iter().map(row).collect();
                assert_eq!(lent, long, "seed {seed}, step {step}");
            }
        }
    }
}

#[test]
fn pages_of_the_fast_path_are_contiguous() {
    let db = Db::open_with("db", options(), Components::in_memory()).unwrap();
    let c = collection(&db, "ps-tree");
    (0..25).for_each(|number| c.put(&key(number), &record(1)).unwrap());
    let mut query = newest(1, 10);
    let mut keys = Vec::new();
    loop {
        let page = c.find(&query).unwrap();
        let next = page.next_token().cloned();
        keys.extend(page.into_iter().map(|answer| answer.key));
        match next {
            Some(token) => query = newest(1, 10).after(token),
            None => break,
        }
    }
    assert_eq!(keys, (0..25).rev().map(key).collect::<Vec<_>>());
    // The receiver stops: the next page starts after the last delivered key.
    let mut delivered = 0;
    let explain = c
        .find_each(&newest(1, 10), &FindOptions::default(), |_| {
            delivered += 1;
            Ok(if delivered == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
        .unwrap();
    assert_eq!((delivered, explain.answers), (3, 3));
    let rest = c.find(&newest(1, 2).after(explain.next.unwrap())).unwrap();
    assert_eq!(rest.iter().map(|answer| answer.key.clone()).collect::<Vec<_>>(), [key(21), key(20)]);
}

#[test]
fn a_key_dropped_from_the_version_table_during_a_query_is_not_current() {
    let db = Db::open_with("db", options(), Components::in_memory()).unwrap();
    let c = collection(&db, "ps-tree");
    c.put(b"moved", &record(1)).unwrap();
    c.put(b"stays", &record(2)).unwrap();
    c.put(b"moved", &record(3)).unwrap();
    // Newest first over a range, the entries of all its values are read before the first answer. Then another query
    // flags the old entry, and the version table drops the key.
    let mut keys = Vec::new();
    let range = Query::new().range("group", 1..=3).keys_only().using_index("group");
    c.find_each(&range, &FindOptions::default(), |answer| {
        keys.push(answer.key);
        let old = c.find(&newest(1, 10))?;
        assert!(old.is_empty());
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    assert_eq!(keys, [b"moved", b"stays"]);
}

#[test]
fn queries_may_run_while_answers_are_lent() {
    let db = Db::open_with("db", options(), Components::in_memory()).unwrap();
    let c = collection(&db, "ps-tree");
    (0..9).for_each(|number| c.put(&key(number), &record(number % 3)).unwrap());
    let mut keys = Vec::new();
    c.visit(&newest(0, 3), &FindOptions::default(), |outer| {
        keys.push(outer.key.to_vec());
        keys.extend(c.find(&newest(1, 1))?.into_iter().map(|inner| inner.key));
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    assert_eq!(keys, [key(6), key(7), key(3), key(7), key(0), key(7)]);
}

/// Records are rewritten repeatedly under the value that they have: at every moment the value has all of them, once
/// each.
#[test]
fn readers_beside_a_writer_read_one_sequence_number() {
    const RECORDS: u64 = 400;
    let db =
        Db::open_with("db", Options::default().memtable_bytes(64 << 10), Components::in_memory()).unwrap();
    let c = collection(&db, "ps-tree:page_bytes=512");
    (0..RECORDS).for_each(|number| c.put(&key(number), &record(7)).unwrap());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let query = newest(7, RECORDS as usize + 10);
                while !done.load(Ordering::Relaxed) {
                    let answers = c.find(&query).unwrap();
                    assert!(answers.windows(2).all(|pair| pair[0].sequence > pair[1].sequence));
                    let mut keys: Vec<_> = answers.iter().map(|answer| &answer.key).collect();
                    keys.sort();
                    assert!(
                        keys.iter().copied().eq((0..RECORDS).map(key).collect::<Vec<_>>().iter()),
                        "{keys:?}"
                    );
                }
            });
        }
        let mut rng = SimRng::new(5);
        for _ in 0..8_000 {
            c.put(&key(rng.below(RECORDS)), &record(7)).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn the_driver_answers_for_many_records_and_for_records_in_files() {
    let db = Db::open_with("db", options(), Components::in_memory()).unwrap();
    let c = collection(&db, "ps-tree");
    (0..200).for_each(|number| c.put(&key(number), &record(1)).unwrap());
    db.flush().unwrap();
    for limit in [1, 7, 63, 64, 65, 100, 1_000, 5_000] {
        let query = with_records(newest(1, limit));
        // Repeated: the first query that reads files leaves the next ones to several threads.
        for threads in [1, 2, 2, 2] {
            let options = FindOptions::default().fetch_threads(threads);
            let short = c.find_with(&query, &options).unwrap();
            let long = c.find_with(&query, &options.measure(true)).unwrap();
            assert_eq!(comparable(&short), comparable(&long), "{limit}");
            assert_eq!(short.len(), limit.min(200));
        }
    }
    let by_key = FindOptions::default().fetch_by_sequence(false);
    let answers = c.find_with(&with_records(newest(1, 7)), &by_key).unwrap();
    assert_eq!((answers.len(), answers.explain().fetch.by_sequence), (7, false));
}

/// Records are replaced, and the old versions compacted away, between the read of the index and the fetch.
#[test]
fn records_beside_a_writer_are_those_of_one_sequence_number() {
    const RECORDS: u64 = 50;
    let db =
        Db::open_with("db", Options::default().memtable_bytes(16 << 10), Components::in_memory()).unwrap();
    let c = collection(&db, "ps-tree:page_bytes=512");
    (0..RECORDS).for_each(|number| c.put(&key(number), &record(7)).unwrap());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let query = with_records(newest(7, 64));
                while !done.load(Ordering::Relaxed) {
                    let answers = c.find(&query).unwrap();
                    assert!(answers.windows(2).all(|pair| pair[0].sequence > pair[1].sequence));
                    assert!(answers.iter().all(|answer| answer.record == Some(record(7))));
                    let mut keys: Vec<_> = answers.iter().map(|answer| answer.key.clone()).collect();
                    keys.sort();
                    assert_eq!(keys, (0..RECORDS).map(key).collect::<Vec<_>>());
                }
            });
        }
        let mut rng = SimRng::new(5);
        for _ in 0..8_000 {
            c.put(&key(rng.below(RECORDS)), &record(7)).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// An index that runs `event` during the first fast path, after the sequence number was chosen.
#[derive(Debug)]
struct EventDuringQuery {
    inner: Arc<dyn SecondaryIndex<ReadView>>,
    collection: Arc<OnceLock<Collection>>,
    event: fn(&Collection) -> Result<()>,
    happened: AtomicBool,
}

/// Components whose indexes run `event` on the collection, once that is set.
fn with_event(event: fn(&Collection) -> Result<()>) -> (Components, Arc<OnceLock<Collection>>) {
    let collection = Arc::new(OnceLock::new());
    let shared = collection.clone();
    let wrapper = move |inner, _| -> Arc<dyn SecondaryIndex<ReadView>> {
        let (collection, happened) = (shared.clone(), AtomicBool::new(false));
        Arc::new(EventDuringQuery { inner, collection, event, happened })
    };
    (Components::in_memory().index_wrapper(Arc::new(wrapper)), collection)
}

impl SecondaryIndex<ReadView> for EventDuringQuery {
    fn newest_keys(
        &self,
        secondary_key: &[u8],
        limit: usize,
        at: SequenceNumber,
        oldest_in_use: &dyn Fn() -> SequenceNumber,
        out: &mut NewestKeys,
    ) -> Result<bool> {
        if let (Some(collection), false) = (self.collection.get(), self.happened.swap(true, Ordering::SeqCst))
        {
            (self.event)(collection)?;
        }
        self.inner.newest_keys(secondary_key, limit, at, oldest_in_use, out)
    }

    fn spec(&self) -> &IndexSpec {
        self.inner.spec()
    }

    fn trees(&self) -> &[TreeId] {
        self.inner.trees()
    }

    fn derive(&self, record: &IndexedRecord<'_>, key: &mut Vec<u8>, out: &mut dyn IndexWrites) -> Result<()> {
        self.inner.derive(record, key, out)
    }

    fn candidates<'v>(
        &'v self,
        access: &'v Access,
        order: Order,
        view: &'v ReadView,
    ) -> Result<Box<dyn CandidateCursor + 'v>> {
        self.inner.candidates(access, order, view)
    }

    fn validator(&self) -> &dyn Validator<TreeView> {
        self.inner.validator()
    }

    fn check(&self, view: &ReadView, table: &CheckedTable<'_>, report: &mut IndexCheck) -> Result<()> {
        self.inner.check(view, table, report)
    }
}

#[test]
fn a_query_overtaken_by_a_write_runs_again() {
    // Writes a record again, and has its old entry flagged.
    let (components, collection) = with_event(|collection| {
        collection.put(&key(3), &record(7))?;
        assert_eq!(collection.find(&newest(7, 99))?.explain().costs_of::<PsCosts>().flagged, 1);
        Ok(())
    });
    let db = Db::open_with("db", options(), components).unwrap();
    let c = self::collection(&db, "ps-tree");
    (0..9).for_each(|number| c.put(&key(number), &record(7)).unwrap());
    let _ = collection.set(c.clone());
    // At the first sequence number the old entry is gone, and the new one is not visible yet.
    let keys: Vec<_> = c.find(&newest(7, 99)).unwrap().into_iter().map(|answer| answer.key).collect();
    assert_eq!(keys, [3, 8, 7, 6, 5, 4, 2, 1, 0].map(key));
    drop((c, db));
}

/// The index is dropped after it was chosen, before its region is opened: the query is planned again.
#[test]
fn a_query_whose_index_is_dropped_before_it_is_opened_is_answered() {
    let (components, collection) = with_event(|collection| collection.drop_index("group"));
    let db = Db::open_with("db", options(), components.clone()).unwrap();
    let c = self::collection(&db, "ps-tree");
    (0..9).for_each(|number| c.put(&key(number), &record(7)).unwrap());
    drop(c);
    db.close().unwrap();
    let db = Db::open_with("db", options(), components).unwrap();
    let c = db.collection("c").unwrap();
    let _ = collection.set(c.clone());
    let answers = c.find(&newest(7, 4)).unwrap();
    assert_eq!(answers.iter().map(|answer| answer.key.clone()).collect::<Vec<_>>(), [8, 7, 6, 5].map(key));
    assert_eq!(answers.explain().index, None);
    drop((c, db));
}

#[test]
fn keys_with_obsolete_entries_leave_the_version_table_when_updates_stop() {
    let db = Db::open_with("db", options().memtable_bytes(4 << 20), Components::in_memory()).unwrap();
    let c = collection(&db, "ps-tree");
    for number in 0..2_000 {
        c.put(&key(number % 1_000), &record(number % 7)).unwrap();
    }
    let share = || c.stale_share("group", 1_000).unwrap().unwrap();
    assert!(share() > 0.2, "{}", share());
    // A query that reads an obsolete entry flags it, on the fast path and in the driver.
    (0..3).for_each(|group| drop(c.find(&newest(group, 1_000)).unwrap()));
    let between = share();
    assert!((0.05..0.4).contains(&between), "{between}");
    (3..7).for_each(|group| drop(c.find(&Query::new().eq("group", group).keys_only()).unwrap()));
    assert!(share() < 0.01, "except for false positives of the novelty filter: {}", share());
}
