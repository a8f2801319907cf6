//! `repair=primary-compaction`: stale index entries are deleted when flushes and compactions of the records drop their
//! versions; entries that a snapshot needs stay.

mod support;

use bolide::{BuildOptions, Collection, CollectionOptions, Db, Layout, Options, Query, Snapshot};
use support::{components, threaded, tiny};

const RECORDS: u64 = 300;
const SPEC: &str = "n:composite:repair=primary-compaction";
/// Every kind with the option, in every form of its lists or entries.
const KINDS: [&str; 6] = [
    "composite:repair=primary-compaction",
    "composite:repair=primary-compaction,order=primary-key",
    "lazy:repair=primary-compaction",
    "lazy:repair=primary-compaction,include=m",
    "eager:repair=primary-compaction",
    "eager:repair=primary-compaction,split=off",
];

/// A database whose memtables are flushed by explicit calls alone.
fn large_memtables() -> Options {
    tiny().memtable_bytes(4 << 20)
}

fn collection(db: &Db, spec: &str) -> Collection {
    let options = CollectionOptions::json().layout(Layout::Tiered).index(spec.parse().unwrap());
    db.create_collection("c", options).unwrap()
}

fn key(i: u64) -> Vec<u8> {
    format!("k{i:04}").into_bytes()
}

/// Writes all records with the values of this round.
fn write_round(collection: &Collection, round: u64) {
    for i in 0..RECORDS {
        let record = format!(r#"{{"n":{},"tags":["a","b{}"]}}"#, round * RECORDS + i, i % 3);
        collection.put(&key(i), record.as_bytes()).unwrap();
    }
}

/// The number of entries of the index, and of its stale entries; the index must be sound.
fn entries(db: &Db) -> (u64, u64) {
    let report = db.check(true).unwrap();
    assert!(report.is_sound(), "{report}");
    let found = &report.indexes[0].found;
    (found.entries, found.stale)
}

/// Checks that each record is found by its value of `round`, at the latest state or at a snapshot.
fn check_round(collection: &Collection, at: Option<&Snapshot>, round: u64) {
    for i in (0..RECORDS).step_by(7) {
        let query = Query::new().eq("n", round * RECORDS + i);
        let answers = match at {
            Some(snapshot) => collection.find_at(snapshot, &query),
            None => collection.find(&query),
        };
        let keys: Vec<Vec<u8>> = answers.unwrap().into_iter().map(|answer| answer.key).collect();
        assert_eq!(keys, [key(i)], "round {round}");
    }
}

#[test]
fn a_flush_of_the_records_removes_stale_entries() {
    for kind in KINDS {
        let db = Db::open_with("db", large_memtables(), components(1)).unwrap();
        let collection = collection(&db, &format!("n:{kind}"));
        for round in 0..3 {
            write_round(&collection, round);
        }
        assert_eq!(entries(&db), (3 * RECORDS, 2 * RECORDS));
        // The index is flushed too, and never compacted: only the flush of the records reports stale entries.
        db.flush().unwrap();
        assert_eq!(entries(&db), (RECORDS, 0));
        check_round(&collection, None, 2);
    }
}

#[test]
fn without_the_option_a_flush_repairs_nothing() {
    let db = Db::open_with("db", large_memtables(), components(1)).unwrap();
    let collection = collection(&db, "n:composite");
    write_round(&collection, 0);
    write_round(&collection, 1);
    db.flush().unwrap();
    assert_eq!(entries(&db), (2 * RECORDS, RECORDS));
}

#[test]
fn compactions_of_the_records_repair_entries_that_no_snapshot_needs() {
    for kind in KINDS {
        let db = Db::open_with("db", large_memtables(), components(1)).unwrap();
        let collection = collection(&db, &format!("n:{kind}"));
        write_round(&collection, 0);
        let snapshot = db.snapshot();
        for round in 1..3 {
            db.flush().unwrap();
            write_round(&collection, round);
        }
        db.flush().unwrap();
        assert_eq!(entries(&db), (3 * RECORDS, 2 * RECORDS), "each flush had one version of each record");
        db.compact().unwrap();
        // The snapshot retains the first round; the second is invisible.
        assert_eq!(entries(&db), (2 * RECORDS, RECORDS));
        check_round(&collection, Some(&snapshot), 0);
        check_round(&collection, None, 2);

        drop(snapshot);
        collection.put(b"z", br#"{"n":-1}"#).unwrap();
        db.compact().unwrap();
        assert_eq!(entries(&db), (RECORDS + 1, 0));
        check_round(&collection, None, 2);
    }
}

#[test]
fn deletes_and_deleted_ranges_and_arrays_are_repaired() {
    for kind in KINDS {
        let db = Db::open_with("db", large_memtables(), components(1)).unwrap();
        let collection = collection(&db, &format!("tags=tags[*]:{kind}"));
        write_round(&collection, 0);
        db.flush().unwrap();
        for i in 0..RECORDS / 2 {
            collection.delete(&key(i)).unwrap();
        }
        collection.delete_range(&key(RECORDS / 2)[..]..&key(RECORDS - 10)[..]).unwrap();
        assert_eq!(entries(&db), (2 * RECORDS, 2 * (RECORDS - 10)));
        db.compact().unwrap();
        assert_eq!(entries(&db), (20, 0));
        assert_eq!(collection.find(&Query::new().eq("tags", "a")).unwrap().len(), 10);
    }
}

#[test]
fn an_index_created_later_and_a_reopened_index_are_repaired() {
    let components = components(1);
    let db = Db::open_with("db", large_memtables(), components.clone()).unwrap();
    let collection = db.create_collection("c", CollectionOptions::json()).unwrap();
    write_round(&collection, 0);
    collection.create_index(SPEC.parse().unwrap()).unwrap();
    write_round(&collection, 1);
    drop((collection, db));

    let db = Db::open_with("db", large_memtables(), components).unwrap();
    let collection = db.collection("c").unwrap();
    write_round(&collection, 2);
    db.compact().unwrap();
    assert_eq!(entries(&db), (RECORDS, 0));
    check_round(&collection, None, 2);
    collection.drop_index("n").unwrap();
    write_round(&collection, 3);
    db.compact().unwrap();
}

#[test]
fn background_threads_repair_beside_writers() {
    for kind in KINDS {
        let db = Db::open_with("db", tiny().background_threads(2), threaded()).unwrap();
        let collection = collection(&db, &format!("n:{kind}"));
        for round in 0..20 {
            write_round(&collection, round);
            check_round(&collection, None, round);
        }
        db.compact().unwrap();
        // A compaction that was running when newer inputs were written may need another one.
        db.compact().unwrap();
        assert_eq!(entries(&db), (RECORDS, 0));
        check_round(&collection, None, 19);
        drop(collection);
        db.close().unwrap();
    }
}

#[test]
fn an_entry_shared_with_a_newer_write_stays() {
    for kind in KINDS {
        let db = Db::open_with("db", large_memtables(), components(1)).unwrap();
        let collection = collection(&db, &format!("n:{kind}"));
        write_round(&collection, 0);
        write_round(&collection, 1);
        let snapshot = db.snapshot();
        // The values of the first round again, whose entries may be those of the first round too.
        write_round(&collection, 0);
        write_round(&collection, 0);
        db.flush().unwrap();
        assert_eq!(entries(&db), (2 * RECORDS, RECORDS), "{kind}");
        check_round(&collection, Some(&snapshot), 1);
        check_round(&collection, None, 0);
        drop(snapshot);
        write_round(&collection, 2);
        db.compact().unwrap();
        assert_eq!(entries(&db), (RECORDS, 0), "{kind}");
        check_round(&collection, None, 2);
    }
}

#[test]
fn an_index_built_while_versions_are_dropped_is_repaired_and_complete() {
    for kind in KINDS {
        let db = Db::open_with("db", tiny().background_threads(2), threaded()).unwrap();
        let collection = db.create_collection("c", CollectionOptions::json()).unwrap();
        write_round(&collection, 0);
        let spec = format!("n:{kind}").parse().unwrap();
        let build = collection.create_index_background(spec, &BuildOptions::default()).unwrap();
        for round in 1..6 {
            write_round(&collection, round);
        }
        build.wait().unwrap();
        check_round(&collection, None, 5);
        db.compact().unwrap();
        db.compact().unwrap();
        assert_eq!(entries(&db), (RECORDS, 0), "{kind}");
        drop(collection);
        db.close().unwrap();
    }
}
