//! The largest batch and the longest index declaration: accepted, present after a reopen, and refused above.

mod support;

use bolide::{
    Collection, CollectionOptions, Db, ErrorKind, IndexSpec, Options, Query, SyncMode, WriteBatch, limits,
};
use support::{components, tiny_db};

/// Bytes that a batch reserves for the header of an operation.
const OPERATION_BYTES: usize = 32;

/// The longest record under a key of one byte that fits in `batch`.
fn room(batch: &WriteBatch) -> usize {
    limits::MAX_BATCH_BYTES - batch.len_bytes() - OPERATION_BYTES - 1
}

/// Puts records of at most the largest size until one more of them fits in `batch`, and not two.
fn fill(batch: &mut WriteBatch, blobs: &Collection) {
    let record = vec![7; limits::MAX_VALUE_BYTES];
    for key in b'a'.. {
        if room(batch) <= limits::MAX_VALUE_BYTES {
            return;
        }
        batch.put(blobs, &[key], &record).unwrap();
    }
}

#[test]
fn a_batch_of_the_largest_size_is_written_and_recovered() {
    let options = || Options::default().background_threads(0).memtable_bytes(64 << 20).sync(SyncMode::None);
    let parts = components(1);
    let db = Db::open_with("db", options(), parts.clone()).unwrap();
    let blobs = db.create_collection("blobs", CollectionOptions::bytes()).unwrap();
    let mut batch = WriteBatch::new();
    fill(&mut batch, &blobs);
    let (len, bytes, room) = (batch.len(), batch.len_bytes(), room(&batch));
    let too_long = batch.put(&blobs, b"z", &vec![8; room + 1]).unwrap_err();
    assert_eq!(too_long.kind(), ErrorKind::LimitExceeded);
    assert_eq!((batch.len(), batch.len_bytes()), (len, bytes));
    batch.put(&blobs, b"z", &vec![8; room]).unwrap();
    // A delete has no record, but its header has to fit.
    assert_eq!(batch.delete(&blobs, &[b'k'; 100]).unwrap_err().kind(), ErrorKind::LimitExceeded);
    db.write(batch).unwrap();
    let lens = |blobs: &Collection| {
        let mut records = blobs.iter().unwrap();
        std::iter::from_fn(|| records.next().map(|record| record.unwrap().1.len())).collect::<Vec<_>>()
    };
    let wanted: Vec<usize> = std::iter::repeat_n(limits::MAX_VALUE_BYTES, len).chain([room]).collect();
    assert_eq!(lens(&blobs), wanted);
    drop((blobs, db));
    let db = Db::open_with("db", options(), parts).unwrap();
    assert_eq!(lens(&db.collection("blobs").unwrap()), wanted);
}

#[test]
fn index_writes_count_and_a_commit_over_the_limit_changes_nothing() {
    let db = tiny_db();
    let index = "a:composite:maintenance=synchronous";
    let options = CollectionOptions::json().index(index.parse().unwrap());
    let texts = db.create_collection("texts", options).unwrap();
    let blobs = db.create_collection("blobs", CollectionOptions::bytes()).unwrap();
    texts.put(b"1", br#"{"a":1}"#).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&texts, b"1", br#"{"a":2}"#).unwrap();
    fill(&mut batch, &blobs);
    let room = room(&batch);
    batch.put(&blobs, b"z", &vec![8; room]).unwrap();
    // The entry of the old record would have to be deleted in the same batch.
    assert_eq!(db.write(batch).unwrap_err().kind(), ErrorKind::LimitExceeded);
    let find = |value: i64| texts.find(&Query::new().eq("a", value)).unwrap().len();
    assert_eq!((find(1), find(2)), (1, 0));
    assert!(blobs.get(b"z").unwrap().is_none());
    // The handle is not poisoned.
    texts.put(b"1", br#"{"a":2}"#).unwrap();
    assert_eq!((find(1), find(2)), (0, 1));
    assert!(db.check(true).unwrap().problems().is_empty());
}

#[test]
fn the_longest_declaration_of_an_index_survives_a_reopen() {
    let options = || Options::default().background_threads(0);
    let parts = components(1);
    let db = Db::open_with("db", options(), parts.clone()).unwrap();
    let texts = db.create_collection("texts", CollectionOptions::json()).unwrap();
    // Sixteen attributes of the longest path, under the longest name.
    let path = |number: usize| format!("{number:02}{}", "f".repeat(1_022));
    let paths: Vec<String> = (0..16).map(path).collect();
    let spec = format!("{}={}:composite", "n".repeat(limits::MAX_NAME_BYTES), paths.join("+"));
    texts.create_index(spec.parse().unwrap()).unwrap();
    assert!(format!("{}f:composite", path(0)).parse::<IndexSpec>().is_err());
    drop((texts, db));
    let db = Db::open_with("db", options(), parts).unwrap();
    let indexes = db.collection("texts").unwrap().indexes();
    assert_eq!(indexes.iter().map(|index| index.spec().to_string()).collect::<Vec<_>>(), [spec]);
}
