//! Malformed records: every write path refuses them; those that an older version stored are skipped, counted and named.

use bolide_base::ErrorKind;
use bolide_index::Query;
use bolide_lsm::{StoreBatch, SyncMode};

use crate::{Collection, CollectionOptions, Components, Db, Options, WriteBatch};

/// One record for each kind of malformation.
fn malformed() -> [String; 5] {
    [
        r#"{"id":1,"a":1,"s":"\ud800"}"#.to_owned(),
        r#"{"a":1,"x":1e999}"#.to_owned(),
        r#"{"a":1,"b":{"c":1,"c":1}}"#.to_owned(),
        r#"{"a":1"#.to_owned(),
        format!(r#"{{"a":1,"b":{}{}}}"#, "[".repeat(200), "]".repeat(200)),
    ]
}

const SPECS: [&str; 9] = [
    "a:composite",
    "a:composite:maintenance=synchronous",
    "a:composite:validation=key-index",
    "a:lazy",
    "a:eager",
    "a:embedded",
    "a:next",
    "a:ps-tree",
    "a+id:composite",
];

fn open() -> Db {
    Db::open_with("db", Options::default(), Components::in_memory()).unwrap()
}

/// Stores a record without validation.
fn store(collection: &Collection, key: &[u8], record: &str) {
    let mut batch = StoreBatch::new();
    batch.put(collection.state.tree, key, record.as_bytes()).unwrap();
    collection.handle.engine.store.commit(batch, None, SyncMode::None).unwrap();
}

/// The keys of the records with `a` = 1, and the number of skipped malformed records.
fn found(collection: &Collection) -> (Vec<String>, u64) {
    let answers = collection.find(&Query::new().eq("a", 1)).unwrap();
    let mut keys: Vec<String> =
        answers.iter().map(|answer| String::from_utf8(answer.key.clone()).unwrap()).collect();
    keys.sort();
    (keys, answers.explain().malformed)
}

#[test]
fn every_write_path_refuses_malformed_records_and_names_the_key() {
    for spec in [None].into_iter().chain(SPECS.map(Some)) {
        let db = open();
        let options = CollectionOptions::json();
        let options = spec.iter().fold(options, |options, spec| options.index(spec.parse().unwrap()));
        let c = db.create_collection("c", options).unwrap();
        for record in malformed() {
            let mut batch = WriteBatch::new();
            let (alone, batched) =
                (c.put(b"key 7", record.as_bytes()), batch.put(&c, b"key 7", record.as_bytes()));
            for error in [alone.unwrap_err(), batched.unwrap_err()] {
                assert!(
                    matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::LimitExceeded),
                    "{error}"
                );
                assert!(error.to_string().contains("key 7"), "{spec:?}: {error}");
            }
            assert!(batch.is_empty());
        }
        assert_eq!(c.iter().unwrap().count(), 0, "{spec:?}");
        // Records of bytes are not validated.
        let bytes = db.create_collection("bytes", CollectionOptions::bytes()).unwrap();
        bytes.put(b"1", malformed()[0].as_bytes()).unwrap();
    }
}

#[test]
fn stored_malformed_records_are_skipped_counted_and_named() {
    for spec in SPECS {
        let db = open();
        let c = db.create_collection("c", CollectionOptions::json()).unwrap();
        for key in 0..6 {
            c.put(format!("g{key}").as_bytes(), format!(r#"{{"id":{key},"a":{}}}"#, key % 2).as_bytes())
                .unwrap();
        }
        let good = vec!["g1".to_owned(), "g3".to_owned(), "g5".to_owned()];
        for (number, record) in malformed().iter().enumerate() {
            store(&c, format!("m{number}").as_bytes(), record);
        }
        assert_eq!(found(&c), (good.clone(), 5));
        let problems = db.check(false).unwrap();
        assert_eq!(problems.malformed_records, 5);
        for number in 0..5 {
            let named =
                problems.problems().iter().any(|problem| problem.contains(&format!("key m{number}: ")));
            assert!(named, "{number}: {:?}", problems.problems());
        }
        db.flush().unwrap();

        c.create_index(spec.parse().unwrap()).unwrap_or_else(|error| panic!("{spec}: {error}"));
        let build = *c.indexes()[0].progress();
        let reads_records = !spec.contains("embedded") && !spec.contains("next");
        assert_eq!(build.malformed, if reads_records { 5 } else { 0 }, "{spec}");
        assert_eq!(db.stats().collections[0].malformed, build.malformed, "{spec}");
        assert_eq!(found(&c).0, good, "{spec}");
        assert_eq!(c.profile(&"a".parse().unwrap()).unwrap().records, 11);

        // Another malformed record beside the index, in the memtable, and writes over all of them.
        store(&c, b"m5", &malformed()[0]);
        assert_eq!(found(&c).0, good, "{spec}");
        c.put(b"m0", br#"{"id":10,"a":1}"#).unwrap();
        c.delete(b"m1").unwrap();
        let mut batch = WriteBatch::new();
        batch.put(&c, b"m2", br#"{"id":12,"a":2}"#).unwrap();
        batch.delete(&c, b"m3").unwrap();
        batch.put(&c, b"m5", br#"{"id":15,"a":1}"#).unwrap();
        db.write(batch).unwrap();
        let good = [&good[..], &["m0".to_owned(), "m5".to_owned()]].concat();
        assert_eq!(found(&c).0, good, "{spec}");
        let report = db.check(true).unwrap();
        assert_eq!((report.malformed_records, report.problems().len()), (1, 1), "{spec}: {report}");
        c.delete_range("m4".."m5").unwrap();
        let report = db.check(true).unwrap();
        assert!(report.is_sound(), "{spec}: {report}");
        c.rebuild_index(c.indexes()[0].name(), &Default::default()).unwrap();
        assert_eq!(found(&c), (good, 0), "{spec}");
    }
}

#[test]
fn a_report_names_some_of_many_malformed_records() {
    let db = open();
    let c = db.create_collection("c", CollectionOptions::json()).unwrap();
    for number in 0..25 {
        store(&c, &[number], &malformed()[1]);
    }
    let report = db.check(false).unwrap();
    assert_eq!((report.malformed_records, report.problems().len()), (25, 11), "{report}");
    assert!(report.problems()[10].contains("15 further records"), "{report}");
}
