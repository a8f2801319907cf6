//! The key index of a collection: exact through deletes, snapshots, reopens and builds.

mod support;

use bolide::storage::SimRng;
use bolide::{Collection, Components, Db, IndexState, Options, Query, Snapshot, WriteBatch};
use support::{seed, tiny, tiny_collection};

const BY_KEYS: &str = "i=a:composite:validation=key-index";

fn key(number: u64) -> Vec<u8> {
    format!("k{number:03}").into_bytes()
}

fn write(db: &Db, one: &Collection, rng: &mut SimRng) {
    let record = format!(r#"{{"a":{},"pad":"{:-<30}"}}"#, rng.below(5), "").into_bytes();
    match rng.below(8) {
        0 => one.delete(&key(rng.below(100))).unwrap(),
        1 => one.delete_range(key(rng.below(100))..key(rng.below(100))).unwrap(),
        2 => {
            let mut batch = WriteBatch::new();
            let twice = key(rng.below(100));
            batch.put(one, &twice, &record).unwrap();
            batch.delete_range(one, key(10)..key(12)).unwrap();
            batch.delete(one, &twice).unwrap();
            batch.put(one, &key(11), &record).unwrap();
            db.write(batch).unwrap();
        }
        _ => one.put(&key(rng.below(100)), &record).unwrap(),
    }
}

/// The keys that a query for keys alone returns, by the index and by a scan of the records.
fn assert_exact(one: &Collection, snapshot: Option<&Snapshot>) {
    for value in 0..5 {
        let find = |query: &Query| match snapshot {
            Some(snapshot) => one.find_at(snapshot, query).unwrap(),
            None => one.find(query).unwrap(),
        };
        let by_index = find(&Query::new().eq("a", value).using_index("i").keys_only());
        assert_eq!(by_index.explain().validation, "key-index");
        let wanted = format!("\"a\":{value},");
        let mut by_scan: Vec<(u64, Vec<u8>)> = find(&Query::new())
            .into_iter()
            .filter(|row| String::from_utf8_lossy(row.record.as_deref().unwrap()).contains(&wanted))
            .map(|row| (row.sequence, row.key))
            .collect();
        by_scan.sort_by(|left, right| right.cmp(left));
        let by_index: Vec<(u64, Vec<u8>)> = by_index.into_iter().map(|row| (row.sequence, row.key)).collect();
        assert_eq!(by_index, by_scan, "a = {value}");
    }
}

#[test]
fn keys_alone_are_validated_exactly_at_every_moment() {
    let mut rng = SimRng::new(seed());
    let components = Components::in_memory();
    let mut db = Db::open_with("db", tiny(), components.clone()).unwrap();
    let mut one = db.create_collection("one", tiny_collection().index(BY_KEYS.parse().unwrap())).unwrap();
    for _ in 0..6 {
        let mut snapshots = Vec::new();
        for round in 0..150 {
            write(&db, &one, &mut rng);
            if round % 50 == 20 {
                snapshots.push(db.snapshot());
            }
            if round % 60 == 40 {
                db.compact().unwrap();
            }
        }
        snapshots.iter().for_each(|snapshot| assert_exact(&one, Some(snapshot)));
        assert_exact(&one, None);
        let report = db.check(true).unwrap();
        assert!(report.is_sound(), "{:?}", report.problems());
        assert_eq!(report.indexes.len(), 2, "the index and the key index");
        drop((snapshots, one, db));
        db = Db::open_with("db", tiny(), components.clone()).unwrap();
        one = db.collection("one").unwrap();
        assert_exact(&one, None);
    }
}

#[test]
fn a_key_index_is_created_with_the_first_dependent_index_and_dropped_with_the_last() {
    let mut rng = SimRng::new(seed());
    let components = Components::in_memory();
    let db = Db::open_with("db", Options::default(), components.clone()).unwrap();
    let one = db.create_collection("one", tiny_collection().index("plain=a".parse().unwrap())).unwrap();
    for _ in 0..300 {
        write(&db, &one, &mut rng);
    }
    // The empty key is valid too.
    one.put(b"", br#"{"a":1,"pad":0}"#).unwrap();
    let has_keys = |db: &Db| db.stats().collections[0].key_index.is_some();
    assert!(!has_keys(&db));
    one.create_index(BY_KEYS.parse().unwrap()).unwrap();
    assert!(has_keys(&db));
    one.create_index("second=a:composite:validation=key-index".parse().unwrap()).unwrap();
    for _ in 0..100 {
        write(&db, &one, &mut rng);
    }
    assert_exact(&one, None);
    one.rebuild_index("i", &Default::default()).unwrap();
    assert_exact(&one, None);
    one.drop_index("second").unwrap();
    assert!(has_keys(&db) && one.indexes().len() == 2);
    drop((one, db));
    let db = Db::open_with("db", Options::default(), components.clone()).unwrap();
    let one = db.collection("one").unwrap();
    assert_eq!(one.index("i").unwrap().state(), IndexState::Ready);
    assert_exact(&one, None);
    one.drop_index("i").unwrap();
    assert!(!has_keys(&db));
    write(&db, &one, &mut rng);
    drop((one, db));
    let db = Db::open_with("db", Options::default(), components).unwrap();
    assert!(!has_keys(&db) && db.check(true).unwrap().is_sound());
}
