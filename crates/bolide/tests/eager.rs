//! The eager index: deleted ranges under synchronous maintenance, and the limit of lists that are not split.

mod support;

use bolide::{BuildOptions, Collection, Components, Db, ErrorKind, Query, WriteBatch};
use support::{tiny, tiny_collection, tiny_db};

fn key(number: u64) -> Vec<u8> {
    format!("k{number:05}").into_bytes()
}

fn collection(db: &Db, spec: &str) -> Collection {
    db.create_collection("one", tiny_collection().index(spec.parse().unwrap())).unwrap()
}

/// The number of keys that the index returns without reading records.
fn count(one: &Collection) -> u64 {
    let found = one.find(&Query::new().eq("a", 1).using_index("i").keys_only()).unwrap();
    assert_eq!(found.explain().validation, "synchronous");
    found.count()
}

#[test]
fn entries_of_a_deleted_range_stay_deleted_as_long_as_their_pieces_exist() {
    let components = Components::in_memory();
    let mut db = Db::open_with("db", tiny(), components.clone()).unwrap();
    let mut one = collection(&db, "i=a:eager:maintenance=synchronous");
    for number in 0..600 {
        one.put(&key(number), br#"{"a":1}"#).unwrap();
    }
    let snapshot = db.snapshot();
    one.delete_range(key(100)..key(200)).unwrap();
    let mut batch = WriteBatch::new();
    batch.delete_range(&one, key(590)..key(595)).unwrap();
    batch.put(&one, &key(592), br#"{"a":1}"#).unwrap();
    db.write(batch).unwrap();
    assert_eq!(count(&one), 496);
    let query = Query::new().eq("a", 1).using_index("i").keys_only();
    assert_eq!(one.find_at(&snapshot, &query).unwrap().count(), 600);
    drop(snapshot);
    for _ in 0..3 {
        // Compactions drop the records, and their tree does not need the tombstones any more.
        db.compact().unwrap();
        one.put(&key(700), br#"{"a":2}"#).unwrap();
        assert_eq!(count(&one), 496);
        drop((one, db));
        db = Db::open_with("db", tiny(), components.clone()).unwrap();
        one = db.collection("one").unwrap();
        assert_eq!(count(&one), 496);
        assert!(db.check(true).unwrap().is_sound());
    }
    let report = db.check(true).unwrap();
    assert!(report.is_sound() && report.indexes[0].found.stale == 0, "{report}");
    one.rebuild_index("i", &BuildOptions::default()).unwrap();
    db.compact().unwrap();
    assert_eq!(count(&one), 496);
}

#[test]
fn compactions_drop_stale_postings_from_pieces_without_further_writes() {
    for options in ["eager", "eager:split=off", "eager:include=b"] {
        let db = Db::open_with("db", tiny(), Components::in_memory()).unwrap();
        let one = collection(&db, &format!("i=a:{options}"));
        let put = |numbers: std::ops::Range<u64>, a: u64| {
            for number in numbers {
                one.put(&key(number), format!(r#"{{"a":{a},"b":"some text"}}"#).as_bytes()).unwrap();
            }
        };
        put(0..2_000, 1);
        let snapshot = db.snapshot();
        put(0..1_500, 2);
        one.delete_range(key(1_500)..key(1_700)).unwrap();
        db.compact().unwrap();
        // The snapshot contains all old ones.
        let found = || {
            let report = db.check(true).unwrap();
            assert!(report.is_sound(), "{report}");
            (report.indexes[0].found.entries, report.indexes[0].found.stale)
        };
        assert_eq!(found(), (3_500, 1_700), "{options}");
        let query = |a: u64| Query::new().eq("a", a).using_index("i").keys_only();
        assert_eq!(one.find_at(&snapshot, &query(1)).unwrap().count(), 2_000);
        drop(snapshot);
        one.put(&key(5_000), br#"{"a":3}"#).unwrap();
        db.compact().unwrap();
        // If few are stale, compactions check only a sample.
        let (entries, stale) = found();
        assert!(entries - stale == 1_801 && stale < 20, "{options}: {entries}, {stale}");
        for (a, expected) in [(1, 300), (2, 1_500), (3, 1)] {
            assert_eq!(one.find(&query(a)).unwrap().count(), expected, "{options}");
        }
        // Pieces that are empty or nearly empty accept postings like all pieces.
        put(0..2_000, 1);
        assert_eq!(one.find(&query(1)).unwrap().count(), 2_000);
        assert!(db.check(true).unwrap().is_sound());
    }
}

#[test]
fn an_unsplit_list_has_the_size_limit_of_a_value() {
    let db = tiny_db();
    let one = collection(&db, "i=a:eager:split=off");
    let write = |numbers: std::ops::Range<u64>| {
        let mut batch = WriteBatch::new();
        for number in numbers {
            batch.put(&one, format!("{number:0>65000}").as_bytes(), br#"{"a":1}"#).unwrap();
        }
        db.write(batch)
    };
    write(0..1_000).unwrap();
    let refused = write(1_000..1_040).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::LimitExceeded);
    assert!(refused.message().contains("posting list of index i"), "{refused}");
    let count = |query: Query| one.find(&query.keys_only()).unwrap().count();
    assert_eq!((count(Query::new()), count(Query::new().eq("a", 1).using_index("i"))), (1_000, 1_000));
    write(1_000..1_010).unwrap();
    assert_eq!(count(Query::new().eq("a", 1).using_index("i")), 1_010);
}
