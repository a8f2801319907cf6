//! Queries for the newest records of one value: those that the fast path answers, those that it leaves to the lookup
//! driver, and the effect of errors.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bolide::{Collection, CollectionOptions, Components, Db, FindOptions, Options, Query, Result};
use bolide_base::{Error, ErrorKind, SequenceNumber, TreeId};
use bolide_index::{
    Access, CandidateCursor, CheckedTable, IndexCheck, IndexSpec, IndexWrites, IndexedRecord, NewestKeys,
    Order, SecondaryIndex, Validator,
};
use bolide_lsm::{ReadView, TreeView};

/// The event during the next query of the fast path.
#[derive(Debug, Default)]
enum Event {
    #[default]
    None,
    /// The index answers with the entries of the value that was looked up before.
    OtherValue,
    /// The collection is dropped once the index has answered.
    Drop(Db),
}

#[derive(Debug, Default)]
struct Control {
    /// Cursors that the lookup driver opened.
    cursors: AtomicUsize,
    event: Mutex<Event>,
    last_value: Mutex<Vec<u8>>,
}

/// An index that counts the cursors of the driver: the fast path opens none.
#[derive(Debug)]
struct CountingIndex {
    inner: Arc<dyn SecondaryIndex<ReadView>>,
    control: Arc<Control>,
}

impl SecondaryIndex<ReadView> for CountingIndex {
    fn newest_keys(
        &self,
        secondary_key: &[u8],
        limit: usize,
        at: SequenceNumber,
        oldest_in_use: &dyn Fn() -> SequenceNumber,
        out: &mut NewestKeys,
    ) -> Result<bool> {
        let event = std::mem::take(&mut *self.control.event.lock().unwrap());
        let before = std::mem::replace(&mut *self.control.last_value.lock().unwrap(), secondary_key.to_vec());
        let value = if matches!(event, Event::OtherValue) { &before } else { secondary_key };
        let answered = self.inner.newest_keys(value, limit, at, oldest_in_use, out)?;
        if let Event::Drop(db) = event {
            db.drop_collection("c")?;
        }
        Ok(answered)
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
        self.control.cursors.fetch_add(1, Ordering::Relaxed);
        self.inner.candidates(access, order, view)
    }

    fn validator(&self) -> &dyn Validator<TreeView> {
        self.inner.validator()
    }

    fn check(&self, view: &ReadView, table: &CheckedTable<'_>, report: &mut IndexCheck) -> Result<()> {
        self.inner.check(view, table, report)
    }
}

struct Setup {
    db: Db,
    collection: Collection,
    control: Arc<Control>,
}

impl Setup {
    fn new() -> Self {
        let control = Arc::new(Control::default());
        let shared = Arc::clone(&control);
        let wrapper = move |inner, _| -> Arc<dyn SecondaryIndex<ReadView>> {
            Arc::new(CountingIndex { inner, control: Arc::clone(&shared) })
        };
        let components = Components::in_memory().index_wrapper(Arc::new(wrapper));
        let options = Options::default().memtable_bytes(4 << 20).background_threads(0);
        let db = Db::open_with("db", options, components).unwrap();
        let indexes = CollectionOptions::json().index("group:ps-tree".parse().unwrap());
        let indexes = indexes.index("other:ps-tree".parse().unwrap());
        let collection = db.create_collection("c", indexes).unwrap();
        Self { db, collection, control }
    }

    /// Puts `numbers` with a value of `group` and `bytes` incompressible bytes.
    fn put(&self, numbers: std::ops::Range<u64>, group: u64, bytes: usize) {
        for number in numbers {
            let mut state = number + 1;
            let mut pad = String::new();
            while pad.len() < bytes {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                pad.push_str(&format!("{:08x}", state >> 32));
            }
            let record = format!(r#"{{"group":{group},"other":1,"pad":"{pad}"}}"#);
            self.collection.put(&key(number), record.as_bytes()).unwrap();
        }
    }

    /// The keys that the query returns, and whether the driver answered.
    fn find(&self, query: &Query, options: &FindOptions) -> (Vec<Vec<u8>>, bool) {
        let before = self.control.cursors.load(Ordering::Relaxed);
        let answers = self.collection.find_with(query, options).unwrap();
        let keys = answers.into_iter().map(|answer| answer.key).collect();
        (keys, self.control.cursors.load(Ordering::Relaxed) > before)
    }

    /// Whether the driver answers a query for the `limit` newest records of value 1, all of which exist.
    fn driver_answers(&self, limit: usize, options: &FindOptions) -> bool {
        let (keys, by_driver) = self.find(&newest(1, limit), options);
        assert_eq!(keys.len(), limit);
        by_driver
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

/// The newest records of a value.
fn newest(group: u64, limit: usize) -> Query {
    Query::new().eq("group", group).limit(limit)
}

#[test]
fn the_fast_path_fetches_up_to_a_limit() {
    let setup = Setup::new();
    setup.put(0..100, 1, 8);
    let threads = |threads| FindOptions::default().fetch_threads(threads).fetch_shared_from(10);
    for limit in [1, 9, 10, 63, 64, 65, 100] {
        // One thread does not share; with several, fewer records justify the other threads.
        assert_eq!(setup.driver_answers(limit, &threads(1)), limit > 64, "{limit}");
        assert_eq!(setup.driver_answers(limit, &threads(2)), limit > 9, "{limit}");
    }
    let many = FindOptions::default().fetch_threads(2).fetch_shared_from(1_000);
    for limit in [7, 8, 64, 65] {
        for _ in 0..3 {
            // Queries of records in memory do not leave later ones to other threads.
            assert_eq!(setup.driver_answers(limit, &many), limit > 64, "{limit}");
        }
    }
    let by_key = FindOptions::default().fetch_threads(1).fetch_by_sequence(false);
    assert!(setup.driver_answers(1, &by_key));
}

#[test]
fn records_from_files_leave_the_next_queries_to_the_driver() {
    let setup = Setup::new();
    // Blocks of one record each, and one block of many: fewer blocks than records.
    setup.put(0..16, 1, 60);
    setup.put(16..64, 1, 6_000);
    setup.db.flush().unwrap();
    let options = FindOptions::default().fetch_threads(2).fetch_shared_from(1_000);
    // Too few records to share.
    assert!(!setup.driver_answers(7, &options));
    assert!(!setup.driver_answers(64, &options));
    for turn in 0..16 {
        assert!(setup.driver_answers(8, &options), "{turn}");
        assert!(!setup.driver_answers(7, &options), "{turn}: too few to share");
        let one = FindOptions::default().fetch_threads(1);
        assert!(!setup.driver_answers(8, &one), "{turn}: no other thread to share with");
    }
    assert!(!setup.driver_answers(8, &options));
}

#[test]
fn the_driver_answers_for_records_that_lack_the_value() {
    let setup = Setup::new();
    setup.put(0..5, 1, 8);
    setup.put(5..9, 2, 8);
    let options = FindOptions::default();
    let right = [4, 3, 2, 1, 0].map(key).to_vec();
    assert_eq!(setup.find(&newest(1, 10), &options), (right.clone(), false));
    assert_eq!(setup.find(&newest(2, 10), &options), ([8, 7, 6, 5].map(key).to_vec(), false));
    *setup.control.event.lock().unwrap() = Event::OtherValue;
    assert_eq!(setup.find(&newest(1, 10), &options), (right, true));
}

#[test]
fn the_fast_path_uses_only_the_forced_index() {
    let setup = Setup::new();
    setup.put(0..5, 1, 8);
    let options = FindOptions::default();
    for query in [newest(1, 3), newest(1, 3).keys_only()] {
        let found = setup.find(&query.clone().using_index("group"), &options);
        assert_eq!(found, ([4, 3, 2].map(key).to_vec(), false));
        let found = setup.find(&query, &options);
        assert_eq!(found, ([4, 3, 2].map(key).to_vec(), false));
        // An index on another path cannot serve, and an unknown name refers to none.
        for name in ["other", "unknown"] {
            assert!(
                setup.collection.find_with(&query.clone().using_index(name), &options).is_err(),
                "{name}"
            );
        }
    }
}

#[test]
fn an_error_of_the_receiver_ends_a_query() {
    for kind in [ErrorKind::NotFound, ErrorKind::InvalidInput] {
        let setup = Setup::new();
        setup.put(0..5, 1, 8);
        let mut delivered = 0;
        let result = setup.collection.find_each(&newest(1, 10), &FindOptions::default(), |_| {
            delivered += 1;
            Err(Error::new(kind, "the receiver failed"))
        });
        assert_eq!((delivered, result.unwrap_err().kind()), (1, kind), "answers are delivered once");
    }
    // The same if the collection was dropped meanwhile.
    let setup = Setup::new();
    setup.put(0..5, 1, 8);
    let result = setup.collection.find_each(&newest(1, 10), &FindOptions::default(), |_| {
        setup.db.drop_collection("c")?;
        Err(Error::new(ErrorKind::InvalidInput, "the receiver failed"))
    });
    assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_collection_that_is_dropped_before_the_fetch_is_reported_as_dropped() {
    let setup = Setup::new();
    setup.put(0..5, 1, 8);
    *setup.control.event.lock().unwrap() = Event::Drop(setup.db.clone());
    let during = setup.collection.find(&newest(1, 10)).unwrap_err();
    let after = setup.collection.find(&newest(1, 10)).unwrap_err();
    assert_eq!((during.kind(), during.to_string()), (ErrorKind::NotFound, after.to_string()));
}

#[test]
fn a_receiver_that_stops_gets_no_further_answer() {
    let setup = Setup::new();
    setup.put(0..5, 1, 8);
    let mut delivered = 0;
    let explain = setup
        .collection
        .find_each(&newest(1, 4), &FindOptions::default(), |_| {
            delivered += 1;
            Ok(if delivered == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
        .unwrap();
    assert_eq!((delivered, explain.answers), (2, 2));
}
