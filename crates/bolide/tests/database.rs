//! Public operations of databases: open, reopen, copy, share, misuse.

mod support;

use std::sync::Arc;

use bolide::key::KeyFormat;
use bolide::storage::{DiskVfs, Vfs};
use bolide::{
    AttributeExtractor, AttributePlan, AttributeValues, Collection, CollectionOptions, Components, Db,
    ErrorKind, FindOptions, IndexState, IterOptions, Layout, Options, Order, Query, RecordKind, Result,
    SyncMode, Value, WriteBatch, WriteOptions, limits,
};
use support::{components, dump, find_keys, tiny, tiny_collection, tiny_db};

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn a_reopened_database_has_all_data() {
    let components = components(1);
    let db = Db::open_with("db", tiny(), components.clone()).unwrap();
    let options = tiny_collection().keys(KeyFormat::Typed).layout(Layout::Tiered).index("a".parse().unwrap());
    let one = db.create_collection("one", options).unwrap();
    let two = db.create_collection("two", CollectionOptions::bytes()).unwrap();
    db.create_collection("gone", CollectionOptions::default()).unwrap();
    for number in 0..500_u64 {
        let key = bolide::key::encode_uint(number);
        one.put(&key, format!(r#"{{"a":{}}}"#, number % 7).as_bytes()).unwrap();
        two.put(&key, &number.to_le_bytes()).unwrap();
    }
    one.create_index("named=a:composite:maintenance=synchronous".parse().unwrap()).unwrap();
    db.drop_collection("gone").unwrap();
    let (first, second) = (dump(&one), dump(&two));
    let newest = find_keys(&one, &Query::new().eq("a", 3).limit(20)).unwrap();
    let sequence = db.snapshot().sequence();
    drop((one, two, db));

    let db = Db::open_with("db", tiny(), components).unwrap();
    assert_eq!(db.collections(), ["one", "two"]);
    assert_eq!(db.snapshot().sequence(), sequence);
    let (one, two) = (db.collection("one").unwrap(), db.collection("two").unwrap());
    assert_eq!((one.records(), one.key_format()), (RecordKind::Json, KeyFormat::Typed));
    assert_eq!((two.records(), two.key_format()), (RecordKind::Bytes, KeyFormat::Bytes));
    assert_eq!((dump(&one), dump(&two)), (first, second));
    let names: Vec<String> = one.indexes().iter().map(|index| index.spec().to_string()).collect();
    assert_eq!(names, ["a:ps-tree", "named=a:composite:maintenance=synchronous"]);
    for index in ["a", "named"] {
        let query = Query::new().eq("a", 3).limit(20).using_index(index);
        assert_eq!(find_keys(&one, &query).unwrap(), newest);
    }
    let stats = db.stats();
    assert_eq!(stats.collections[0].table.layout, Layout::Tiered);
    assert_eq!(stats.collections[0].indexes[1].state, IndexState::Ready);
    assert!(db.check(true).unwrap().is_sound());
}

#[test]
fn a_batch_over_several_collections_applies_in_order() {
    let db = tiny_db();
    let one = db.create_collection("one", tiny_collection().index("a".parse().unwrap())).unwrap();
    let two = db.create_collection("two", CollectionOptions::bytes()).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&one, b"k", br#"{"a":1}"#).unwrap();
    batch.put(&two, b"k", b"x").unwrap();
    batch.put(&one, b"k", br#"{"a":2}"#).unwrap();
    batch.put(&one, b"l", br#"{"a":1}"#).unwrap();
    batch.delete_range(&one, "l".."m").unwrap();
    batch.delete_range(&one, "m".."a").unwrap();
    batch.put(&one, b"m", br#"{"a":1}"#).unwrap();
    batch.delete(&two, b"k").unwrap();
    assert_eq!(batch.len(), 7);
    let before = db.snapshot().sequence();
    let last = db.write_with(batch, &WriteOptions::default().sync(SyncMode::Always)).unwrap();
    assert_eq!(last, before + 7);
    assert_eq!(find_keys(&one, &Query::new().eq("a", 1)).unwrap(), [b"m"]);
    assert_eq!(find_keys(&one, &Query::new().eq("a", 2)).unwrap(), [b"k"]);
    assert_eq!(two.get(b"k").unwrap(), None);
    assert!(db.check(true).unwrap().is_sound());
}

#[test]
fn a_refused_write_leaves_its_batch_as_it_was() {
    let db = tiny_db();
    let one = db.create_collection("one", tiny_collection().index("a".parse().unwrap())).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&one, b"1", br#"{"a":1}"#).unwrap();
    let bytes = batch.len_bytes();
    let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(limits::MAX_SECONDARY_KEY_BYTES));
    for (record, refusal) in [
        (&b"[1]"[..], ErrorKind::InvalidInput),
        (b"", ErrorKind::InvalidInput),
        (b"{\"a\":1", ErrorKind::InvalidInput),
        (b"{\"a\":\xff}", ErrorKind::InvalidInput),
        (b"{} {}", ErrorKind::InvalidInput),
        (long.as_bytes(), ErrorKind::LimitExceeded),
    ] {
        assert_eq!(kind(batch.put(&one, b"2", record)), refusal);
        assert_eq!(kind(one.put(b"2", record)), refusal);
        assert_eq!((batch.len(), batch.len_bytes()), (1, bytes));
    }
    db.write(batch).unwrap();
    assert_eq!(dump(&one).len(), 1);
    assert_eq!(find_keys(&one, &Query::new().range("a", 0..)).unwrap().len(), 1);
}

#[test]
fn a_batch_built_before_an_index_contains_its_entries_when_committed_after_it() {
    let db = tiny_db();
    let one = db.create_collection("one", tiny_collection()).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&one, b"1", br#"{"a":1}"#).unwrap();
    one.create_index("a".parse().unwrap()).unwrap();
    let mut later = WriteBatch::new();
    later.put(&one, b"2", br#"{"a":1}"#).unwrap();
    db.write(batch).unwrap();
    one.drop_index("a").unwrap();
    db.write(later).unwrap();
    one.create_index("a".parse().unwrap()).unwrap();
    let answers = one.find(&Query::new().eq("a", 1)).unwrap();
    assert_eq!((answers.len(), answers.explain().is_full_scan()), (2, false));
    assert!(db.check(true).unwrap().is_sound());
}

#[test]
fn one_directory_is_open_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep/er/db");
    let db = Db::open(&path, Options::default()).unwrap();
    assert_eq!(kind(Db::open(&path, Options::default())), ErrorKind::Locked);
    let collection = db.create_collection("c", CollectionOptions::default()).unwrap();
    assert_eq!(kind(db.clone().close()), ErrorKind::Conflict);
    drop(db);
    assert_eq!(kind(Db::open(&path, Options::default())), ErrorKind::Locked, "a collection keeps it open");
    drop(collection);
    let db = Db::open(&path, Options::default()).unwrap();
    db.close().unwrap();
    let missing = Options::default().create_if_missing(false);
    assert_eq!(kind(Db::open(dir.path().join("none"), missing)), ErrorKind::NotFound);
    assert!(!DiskVfs::new().exists(&dir.path().join("none")).unwrap());
    assert_eq!(kind(Db::open_read_only(dir.path().join("none"), Options::default())), ErrorKind::NotFound);
}

#[test]
fn read_only_changes_no_byte() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = Db::open(&path, tiny()).unwrap();
    let one = db.create_collection("one", tiny_collection().index("a".parse().unwrap())).unwrap();
    for number in 0..300 {
        one.put(format!("{number:03}").as_bytes(), format!(r#"{{"a":{}}}"#, number % 3).as_bytes()).unwrap();
    }
    let wanted = dump(&one);
    drop((one, db));
    let vfs = DiskVfs::new();
    let read = |name: &String| {
        let file = vfs.open(&path.join(name)).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(0, &mut bytes).unwrap();
        bytes
    };
    let files = || -> Vec<(String, Vec<u8>)> {
        vfs.list(&path).unwrap().into_iter().map(|name| (name.clone(), read(&name))).collect()
    };
    let before = files();
    let db = Db::open_read_only(&path, tiny()).unwrap();
    assert!(db.is_read_only());
    let one = db.collection("one").unwrap();
    assert_eq!(dump(&one), wanted);
    assert_eq!(one.find(&Query::new().eq("a", 1)).unwrap().len(), 100);
    assert!(db.check(true).unwrap().is_sound());
    let refusals = [
        kind(one.put(b"x", b"{}")),
        kind(one.delete(b"x")),
        kind(one.delete_range("a".."b")),
        kind(one.create_index("b".parse().unwrap())),
        kind(one.drop_index("a")),
        kind(db.create_collection("two", CollectionOptions::default())),
        kind(db.drop_collection("one")),
        kind(db.flush()),
        kind(db.compact()),
        kind(db.sync()),
    ];
    assert_eq!(refusals, [ErrorKind::ReadOnly; 10]);
    drop((one, db));
    assert_eq!(files(), before);
}

#[test]
fn a_checkpoint_is_a_database_of_its_own() {
    let components = components(1);
    let db = Db::open_with("db", tiny(), components.clone()).unwrap();
    let one = db.create_collection("one", tiny_collection().index("a".parse().unwrap())).unwrap();
    let write = |collection: &Collection, numbers: std::ops::Range<u32>| {
        for number in numbers {
            let record = format!(r#"{{"a":{}}}"#, number % 5);
            collection.put(format!("{number:04}").as_bytes(), record.as_bytes()).unwrap();
        }
    };
    write(&one, 0..400);
    let wanted = dump(&one);
    db.checkpoint("copy").unwrap();
    assert_eq!(kind(db.checkpoint("copy")), ErrorKind::Conflict);
    write(&one, 200..600);
    one.delete_range("0000".."0100").unwrap();
    db.compact().unwrap();

    let copied = Db::open_with("copy", tiny(), components.clone()).unwrap();
    let other = copied.collection("one").unwrap();
    assert_eq!(dump(&other), wanted);
    assert_eq!(other.find(&Query::new().eq("a", 2)).unwrap().len(), 80);
    assert!(copied.check(true).unwrap().is_sound());
    write(&other, 0..900);
    copied.compact().unwrap();
    drop((other, copied));
    assert_eq!(dump(&one).len(), 500);
    assert!(db.check(true).unwrap().is_sound());
    assert_eq!(
        dump(&Db::open_with("copy", tiny(), components.clone()).unwrap().collection("one").unwrap()).len(),
        900
    );
}

/// The files after a crash of the process: the log has all writes, and a mapped log ends with preallocated space.
#[test]
fn records_survive_the_end_of_the_process() {
    let temp = tempfile::tempdir().unwrap();
    let (original, left) = (temp.path().join("original"), temp.path().join("left"));
    let options = || Options::default().sync(SyncMode::None).memtable_bytes(64 << 20);
    let mut mapped = Components::system();
    mapped.vfs = Arc::new(DiskVfs::new().map_logs());
    let db = Db::open_with(&original, options(), mapped).unwrap();
    let bytes = db.create_collection("bytes", CollectionOptions::bytes()).unwrap();
    let record = |number: u64| -> Vec<u8> { number.to_le_bytes().repeat(16) };
    let disk = DiskVfs::new();
    let read = |name: &str| {
        let file = disk.open(&original.join(name)).unwrap();
        let mut content = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(0, &mut content).unwrap();
        content
    };
    // The log is longer than its records by more than an extent once the next one is preallocated.
    let (mut count, mut zeros) = (0, 0);
    while count < 200_000 && zeros <= 4 << 20 {
        bytes.put(&bolide::key::encode_uint(count), &record(count)).unwrap();
        count += 1;
        if count >= 100_000 && count % 2_000 == 0 {
            let names = disk.list(&original).unwrap();
            let log = names.iter().rfind(|name| name.ends_with(".wal")).unwrap();
            zeros = read(log).iter().rev().take_while(|&&byte| byte == 0).count();
        }
    }
    // None if logs are not mapped on the file system of the temporary directory.
    assert!(zeros == 0 || zeros > 4 << 20, "{zeros} zeros at the end of the log");
    disk.create_dir_all(&left).unwrap();
    for name in disk.list(&original).unwrap() {
        disk.create(&left.join(&name)).unwrap().append(&read(&name)).unwrap();
    }
    drop((bytes, db));

    let db = Db::open(&left, options()).unwrap();
    let bytes = db.collection("bytes").unwrap();
    assert!((0..count).all(|number| {
        let found = bytes.get(&bolide::key::encode_uint(number)).unwrap();
        found.is_some_and(|found| found[..] == record(number)[..])
    }));
    assert_eq!(bytes.get(&bolide::key::encode_uint(count)).unwrap(), None);
    assert!(db.check(true).unwrap().is_sound());
}

#[test]
fn names_and_counts_are_limited() {
    let db = tiny_db();
    let make = |name: &str| db.create_collection(name, CollectionOptions::default());
    for len in [0, 1, limits::MAX_NAME_BYTES - 1, limits::MAX_NAME_BYTES, limits::MAX_NAME_BYTES + 1] {
        let name = "n".repeat(len);
        let refusal = make(&name).err().map(|error| error.kind());
        let wanted = match len {
            0 => Some(ErrorKind::InvalidInput),
            len if len > limits::MAX_NAME_BYTES => Some(ErrorKind::LimitExceeded),
            _ => None,
        };
        assert_eq!(refusal, wanted, "{len}");
    }
    assert_eq!(kind(make("n")), ErrorKind::Conflict);
    assert_eq!(kind(db.drop_collection("none")), ErrorKind::NotFound);
    let one = make("one").unwrap();
    for number in 0..=limits::MAX_INDEXES_PER_COLLECTION {
        let made = one.create_index(format!("a{number}").parse().unwrap());
        assert_eq!(made.is_ok(), number < limits::MAX_INDEXES_PER_COLLECTION, "{number}");
    }
    assert_eq!(kind(one.create_index("a0".parse().unwrap())), ErrorKind::Conflict);
    assert_eq!(kind(one.drop_index("none")), ErrorKind::NotFound);
    let many = (0..=limits::MAX_INDEXES_PER_COLLECTION)
        .fold(CollectionOptions::default(), |options, number| {
            options.index(format!("a{number}").parse().unwrap())
        });
    assert_eq!(kind(db.create_collection("many", many)), ErrorKind::LimitExceeded);
    let twice = CollectionOptions::default().index("a".parse().unwrap()).index("a=b".parse().unwrap());
    assert_eq!(kind(db.create_collection("twice", twice)), ErrorKind::InvalidInput);
    assert_eq!(kind(db.collection("many")), ErrorKind::NotFound);
}

#[test]
fn the_number_of_collections_is_limited() {
    let db = Db::open_with("db", Options::default().background_threads(0), components(1)).unwrap();
    for number in 0..=limits::MAX_COLLECTIONS {
        let made = db.create_collection(&format!("c{number}"), CollectionOptions::bytes());
        assert_eq!(made.is_ok(), number < limits::MAX_COLLECTIONS, "{number}");
        if let Err(error) = made {
            assert_eq!(error.kind(), ErrorKind::LimitExceeded);
        }
    }
    db.drop_collection("c7").unwrap();
    db.create_collection("again", CollectionOptions::bytes()).unwrap();
}

#[test]
fn the_number_of_deleted_ranges_is_limited_until_a_compaction() {
    let options = Options::default().background_threads(0).sync(SyncMode::None);
    let db = Db::open_with("db", options, components(1)).unwrap();
    let one = db.create_collection("one", CollectionOptions::bytes()).unwrap();
    one.put(b"k", b"v").unwrap();
    let mut batch = WriteBatch::new();
    for number in 0..limits::MAX_RANGE_TOMBSTONES as u32 {
        let start = number.to_be_bytes();
        batch.delete_range(&one, start..=start).unwrap();
    }
    db.write(batch).unwrap();
    assert_eq!(kind(one.delete_range("a".."b")), ErrorKind::LimitExceeded);
    one.put(b"l", b"v").unwrap();
    assert_eq!(dump(&one).len(), 2);
    db.compact().unwrap();
    one.delete_range("k"..="k").unwrap();
    assert_eq!(dump(&one).len(), 1);
}

#[test]
fn keys_and_records_are_limited_at_their_edges() {
    let options = Options::default().background_threads(0).memtable_bytes(256 << 20).sync(SyncMode::None);
    let db = Db::open_with("db", options, components(1)).unwrap();
    let blobs = db.create_collection("blobs", CollectionOptions::bytes()).unwrap();
    let texts = db.create_collection("texts", CollectionOptions::json().index("a".parse().unwrap())).unwrap();
    for len in [0, 1, limits::MAX_KEY_BYTES - 1, limits::MAX_KEY_BYTES, limits::MAX_KEY_BYTES + 1] {
        let key = vec![b'k'; len];
        let wanted = (len > limits::MAX_KEY_BYTES).then_some(ErrorKind::LimitExceeded);
        for collection in [&blobs, &texts] {
            assert_eq!(collection.put(&key, br#"{"a":1}"#).err().map(|error| error.kind()), wanted, "{len}");
            assert_eq!(collection.get(&key).unwrap().is_some(), wanted.is_none());
        }
        assert_eq!(blobs.delete(&key).err().map(|error| error.kind()), wanted);
        let emptied = blobs.delete_range(&key..=&key);
        assert_eq!(emptied.err().map(|error| error.kind()), wanted);
    }
    assert_eq!(texts.find(&Query::new().eq("a", 1)).unwrap().len(), 4);
    for len in [0, 1, limits::MAX_VALUE_BYTES - 1, limits::MAX_VALUE_BYTES, limits::MAX_VALUE_BYTES + 1] {
        let wanted = (len > limits::MAX_VALUE_BYTES).then_some(ErrorKind::LimitExceeded);
        assert_eq!(blobs.put(b"v", &vec![7; len]).err().map(|error| error.kind()), wanted, "{len}");
        let found = blobs.get_pinned(b"v").unwrap().map(|(_, record)| record.len());
        assert_eq!(found, Some(len.min(limits::MAX_VALUE_BYTES)));
    }
}

#[test]
fn attributes_are_limited_at_their_edges() {
    let db = tiny_db();
    let one = db.create_collection("one", CollectionOptions::json().index("a".parse().unwrap())).unwrap();
    let array = |len: usize| {
        let elements: Vec<String> = (0..len).map(|number| number.to_string()).collect();
        format!(r#"{{"a":[{}]}}"#, elements.join(","))
    };
    let limit = limits::MAX_INDEXED_ELEMENTS;
    for len in [0, 1, limit - 1, limit, limit + 1] {
        let wanted = (len > limit).then_some(ErrorKind::LimitExceeded);
        let put = one.put(b"1", array(len).as_bytes());
        assert_eq!(put.err().map(|error| error.kind()), wanted, "{len}");
    }
    assert_eq!(find_keys(&one, &Query::new().eq("a", limit as i64 - 1)).unwrap(), [b"1"]);
    let deep = |depth: usize| format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    for depth in
        [1, limits::MAX_JSON_DEPTH - 1, limits::MAX_JSON_DEPTH, limits::MAX_JSON_DEPTH + 1, 1_000_000]
    {
        let wanted = (depth > limits::MAX_JSON_DEPTH).then_some(ErrorKind::LimitExceeded);
        let put = one.put(b"2", deep(depth).as_bytes());
        assert_eq!(put.err().map(|error| error.kind()), wanted, "{depth}");
    }
}

/// The attribute `len` of any bytes.
#[derive(Debug)]
struct Length;

impl AttributeExtractor for Length {
    fn extract_into(&self, record: &[u8], plan: &AttributePlan, out: &mut AttributeValues) -> Result<()> {
        if let Some(slot) = plan.slot(&"len".parse()?) {
            out.push(slot, &Value::from(record.len() as u64))?;
        }
        Ok(())
    }
}

#[test]
fn bytes_have_indexes_with_an_extractor_of_the_program() {
    let components = components(1);
    let with = components.clone().extractor("c", Arc::new(Length));
    let bytes = || CollectionOptions::bytes().index("len".parse().unwrap());
    let db = Db::open_with("db", tiny(), components.clone()).unwrap();
    assert_eq!(kind(db.create_collection("c", bytes())), ErrorKind::InvalidInput);
    drop(db);

    let db = Db::open_with("db", tiny(), with.clone()).unwrap();
    let c = db.create_collection("c", bytes()).unwrap();
    c.put(b"1", b"four").unwrap();
    c.put(b"2", b"five!").unwrap();
    c.create_index("again=len:composite:maintenance=synchronous".parse().unwrap()).unwrap();
    c.put(b"2", b"4444").unwrap();
    for index in ["len", "again"] {
        let query = Query::new().eq("len", 4).using_index(index).keys_only();
        assert_eq!(find_keys(&c, &query).unwrap(), [b"2", b"1"]);
    }
    assert!(db.check(true).unwrap().is_sound());
    drop((c, db));

    // Without the extractor records can be read, but not written or queried by attribute.
    let db = Db::open_with("db", tiny(), components).unwrap();
    let c = db.collection("c").unwrap();
    assert_eq!(c.get(b"1").unwrap().as_deref(), Some(&b"four"[..]));
    assert_eq!(kind(c.put(b"3", b"x")), ErrorKind::InvalidInput);
    assert_eq!(kind(c.find(&Query::new().eq("len", 4))), ErrorKind::InvalidInput);
    assert_eq!(c.find(&Query::new()).unwrap().len(), 2);
    assert_eq!(db.check(true).unwrap().problems().len(), 1);
    drop((c, db));

    let db = Db::open_with("db", tiny(), with).unwrap();
    assert!(db.check(true).unwrap().is_sound());
}

#[test]
fn handles_of_other_databases_are_refused() {
    let components = components(1);
    let one = Db::open_with("one", tiny(), components.clone()).unwrap();
    let two = Db::open_with("two", tiny(), components).unwrap();
    let (here, there) = (
        one.create_collection("c", tiny_collection()).unwrap(),
        two.create_collection("c", tiny_collection()).unwrap(),
    );
    let mut batch = WriteBatch::new();
    batch.put(&here, b"1", b"{}").unwrap();
    batch.put(&there, b"1", b"{}").unwrap();
    assert_eq!(kind(one.write(batch)), ErrorKind::InvalidInput);
    let snapshot = one.snapshot();
    assert_eq!(kind(there.get_at(&snapshot, b"1")), ErrorKind::InvalidInput);
    let options = IterOptions::default().snapshot(&snapshot);
    assert_eq!(kind(there.iter_with(&options).map(drop)), ErrorKind::InvalidInput);
    assert_eq!(kind(there.find_at(&snapshot, &Query::new())), ErrorKind::InvalidInput);
}

#[test]
fn handles_of_a_dropped_collection_fail_and_its_readers_continue() {
    let db = tiny_db();
    let one = db.create_collection("one", tiny_collection().index("a".parse().unwrap())).unwrap();
    for number in 0..300 {
        one.put(format!("{number:03}").as_bytes(), br#"{"a":1}"#).unwrap();
    }
    db.flush().unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&one, b"x", b"{}").unwrap();
    let mut reader = one.cursor(&IterOptions::default()).unwrap();
    reader.seek_to_first().unwrap();
    db.drop_collection("one").unwrap();
    let mut count = 0;
    while reader.valid() {
        count += 1;
        reader.next().unwrap();
    }
    assert_eq!(count, 300);
    assert_eq!(kind(one.get(b"000")), ErrorKind::NotFound);
    assert_eq!(kind(one.put(b"x", b"{}")), ErrorKind::NotFound);
    assert_eq!(kind(one.iter().map(drop)), ErrorKind::NotFound);
    assert_eq!(kind(one.find(&Query::new().eq("a", 1))), ErrorKind::NotFound);
    assert_eq!(kind(one.create_index("b".parse().unwrap())), ErrorKind::NotFound);
    assert_eq!(kind(db.write(batch)), ErrorKind::NotFound);
    let recreated = db.create_collection("one", tiny_collection()).unwrap();
    assert_eq!((recreated.iter().unwrap().count(), recreated.indexes().len()), (0, 0));
}

#[test]
fn a_snapshot_older_than_an_index_does_not_use_it() {
    let db = tiny_db();
    let one = db.create_collection("one", tiny_collection()).unwrap();
    one.put(b"1", br#"{"a":1}"#).unwrap();
    let old = db.snapshot();
    one.put(b"1", br#"{"a":2}"#).unwrap();
    one.create_index("a".parse().unwrap()).unwrap();
    let query = Query::new().eq("a", 1);
    let answers = one.find_at(&old, &query).unwrap();
    assert_eq!((answers.len(), answers.explain().is_full_scan()), (1, true));
    assert_eq!(kind(one.find_at(&old, &query.clone().using_index("a"))), ErrorKind::InvalidInput);
    let now = one.find_at(&db.snapshot(), &query).unwrap();
    assert_eq!((now.len(), now.explain().is_full_scan()), (0, false));
    assert_eq!(kind(one.find(&query.clone().using_index("b"))), ErrorKind::NotFound);
    assert_eq!(kind(one.find(&Query::new().eq("b", 1).using_index("a"))), ErrorKind::InvalidInput);
    assert_eq!(kind(one.find(&Query::new().eq("a..b", 1))), ErrorKind::InvalidInput);
    assert_eq!(
        kind(one.find(&Query::new().range("a", Value::from(1)..=Value::from("x")))),
        ErrorKind::InvalidInput
    );
}

#[test]
fn a_snapshot_directly_before_an_index_does_not_use_it() {
    let db = tiny_db();
    let one = db.create_collection("one", tiny_collection()).unwrap();
    one.put(b"1", br#"{"a":1}"#).unwrap();
    let old = db.snapshot();
    one.create_index("a".parse().unwrap()).unwrap();
    let query = Query::new().eq("a", 1);
    let answers = one.find_at(&old, &query).unwrap();
    assert_eq!((answers.len(), answers.explain().is_full_scan()), (1, true));
    let answers = one.find(&query).unwrap();
    assert_eq!((answers.len(), answers.explain().is_full_scan()), (1, false));
}

#[test]
fn a_compaction_drops_stale_entries_unless_a_snapshot_needs_them() {
    let db = tiny_db();
    let one = db.create_collection("one", tiny_collection().index("a:composite".parse().unwrap())).unwrap();
    let write = |value: u32| {
        for number in 0..200 {
            one.put(format!("{number:03}").as_bytes(), format!(r#"{{"a":{value}}}"#).as_bytes()).unwrap();
        }
    };
    write(1);
    let snapshot = db.snapshot();
    write(2);
    db.compact().unwrap();
    assert_eq!(one.find_at(&snapshot, &Query::new().eq("a", 1).using_index("a")).unwrap().len(), 200);
    drop(snapshot);
    write(3);
    db.compact().unwrap();
    // If few entries are stale the compaction checks a sample, so some stay.
    let found = &db.check(true).unwrap().indexes[0].found;
    assert!(found.records == 200 && found.stale < 40, "{found:?}");
    one.delete_range(..).unwrap();
    db.compact().unwrap();
    let found = &db.check(true).unwrap().indexes[0].found;
    assert!(found.records == 0 && found.entries < 40, "{found:?}");
}

#[test]
fn queries_answer_exactly_with_little_memory() {
    let db = tiny_db();
    let one = db.create_collection("one", tiny_collection().index("a:composite".parse().unwrap())).unwrap();
    for number in 0..500 {
        one.put(format!("{number:03}").as_bytes(), format!(r#"{{"a":{}}}"#, number % 50).as_bytes()).unwrap();
    }
    let query = Query::new().range("a", 10..30).order(Order::Oldest);
    let roomy = one.find(&query).unwrap();
    let tight = one.find_with(&query, &FindOptions::default().collect_bytes(512).measure(true)).unwrap();
    assert_eq!(&*roomy, &*tight);
    assert_eq!(roomy.len(), 200);
    assert!(tight.explain().passes > roomy.explain().passes);
}

#[test]
fn multi_get_and_iteration_read_one_sequence_number() {
    let db = tiny_db();
    let one = db.create_collection("one", tiny_collection()).unwrap();
    one.put(b"a", br#"{"v":1}"#).unwrap();
    one.put(b"b", br#"{"v":1}"#).unwrap();
    let mut iter = one.iter().unwrap();
    one.delete(b"a").unwrap();
    one.put(b"c", b"{}").unwrap();
    assert_eq!(iter.next().unwrap().unwrap().0, b"a");
    assert_eq!(iter.next_back().unwrap().unwrap().0, b"b");
    assert!(iter.next().is_none() && iter.next_back().is_none());
    let found = one.multi_get(["c", "a", "b", "b"]).unwrap();
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true, true]);
    assert_eq!(one.range("b"..).unwrap().count(), 2);
    assert_eq!(one.range(.."b").unwrap().count(), 0);
    assert_eq!(one.range("c".."a").unwrap().count(), 0);
    assert_eq!(one.range("c".."a").unwrap().rev().count(), 0);
}

#[test]
fn the_debug_form_of_components_omits_their_content() {
    let text = format!("{:?}", Components::in_memory().extractor("c", Arc::new(Length)));
    assert!(text.contains("\"c\""), "{text}");
    let db = tiny_db();
    let one = db.create_collection("one", tiny_collection()).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&one, b"1", b"{}").unwrap();
    for text in [format!("{db:?}"), format!("{one:?}"), format!("{:?}", db.snapshot())] {
        assert!(text.len() < 100, "{text}");
    }
}
