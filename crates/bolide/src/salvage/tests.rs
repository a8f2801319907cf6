use std::path::Path;

use bolide_lsm::TreeOptions;

use super::*;
use crate::key::KeyFormat;
use crate::{Collection, CollectionOptions, Compression, Layout, Order, Query};

fn open(path: &str, components: &Components) -> Db {
    Db::open_with(path, Options::default(), components.clone()).unwrap()
}

fn repaired(components: &Components) -> (RepairReport, Db) {
    let report = repair("db", "new", RepairOptions::default(), components.clone()).unwrap();
    (report, open("new", components))
}

/// Stores a record without validation.
fn store(collection: &Collection, key: &[u8], record: &str) {
    let mut batch = StoreBatch::new();
    batch.put(collection.state.tree, key, record.as_bytes()).unwrap();
    collection.handle.engine.store.commit(batch, None, SyncMode::Always).unwrap();
}

fn settings_of(db: &Db) -> Vec<(TreeOptions, std::sync::Arc<[u8]>)> {
    let trees = db.handle.engine.store.trees();
    trees.into_iter().map(|tree| (tree.options, tree.descriptor)).collect()
}

#[test]
fn a_repair_preserves_settings_key_formats_and_the_order_of_writes() {
    let components = Components::in_memory();
    let db = open("db", &components);
    for (number, layout) in Layout::ALL.into_iter().enumerate() {
        let options = CollectionOptions::json()
            .layout(layout)
            .compression(Compression::Zstd(3))
            .block_bytes(1000)
            .keys(if number % 2 == 0 { KeyFormat::Typed } else { KeyFormat::Bytes });
        let collection = db.create_collection(&format!("c{number}"), options).unwrap();
        for key in [7, 3, 5, 1] {
            collection.put(&[key], br#"{"a":1}"#).unwrap();
        }
        collection.put(&[3], br#"{"a":1,"again":true}"#).unwrap();
        collection.delete(&[5]).unwrap();
    }
    let settings = settings_of(&db);
    let last = db.snapshot().sequence();
    drop(db);
    let (report, db) = repaired(&components);
    assert!(report.is_complete() && report.notes.is_empty(), "{report}");
    assert_eq!(settings_of(&db), settings);
    assert!(db.snapshot().sequence() >= last);
    for number in 0..Layout::ALL.len() {
        let found = db.collection(&format!("c{number}")).unwrap();
        let newest = found.find(&Query::new().eq("a", 1).order(Order::Newest)).unwrap();
        assert_eq!(newest.iter().map(|answer| answer.key[0]).collect::<Vec<_>>(), [3, 1, 7]);
        assert!(report.collections[number].records == 3 && report.collections[number].malformed == 0);
    }
    assert!(db.check(true).unwrap().is_sound());
}

#[test]
fn malformed_records_are_copied_and_counted() {
    let components = Components::in_memory();
    let db = open("db", &components);
    let options = CollectionOptions::json().index("a:composite".parse().unwrap());
    let collection = db.create_collection("c", options).unwrap();
    collection.put(b"good", br#"{"a":1}"#).unwrap();
    store(&collection, b"bad", r#"{"a":1,"x":1e999}"#);
    store(&collection, b"truncated", r#"{"a":1"#);
    drop((collection, db));
    let (report, db) = repaired(&components);
    assert!(report.is_complete(), "{report}");
    assert_eq!((report.collections[0].records, report.collections[0].malformed), (3, 2));
    assert!(report.to_string().contains("3 records, 2 of them malformed"), "{report}");
    assert_eq!(report.rebuilt.len(), 1);
    let collection = db.collection("c").unwrap();
    assert_eq!(collection.get(b"truncated").unwrap().as_deref(), Some(&br#"{"a":1"#[..]));
    assert_eq!(collection.find(&Query::new().eq("a", 1)).unwrap().len(), 1);
    assert_eq!(db.check(true).unwrap().malformed_records, 2);
}

#[test]
fn an_index_that_cannot_be_built_is_a_loss_and_the_records_stay() {
    use bolide_index::{AttributeExtractor, AttributePlan, AttributeValues};

    #[derive(Debug)]
    struct NoAttributes;

    impl AttributeExtractor for NoAttributes {
        fn extract_into(&self, _: &[u8], _: &AttributePlan, _: &mut AttributeValues) -> Result<()> {
            Ok(())
        }
    }

    let plain = Components::in_memory();
    let components = plain.clone().extractor("c", std::sync::Arc::new(NoAttributes));
    let db = open("db", &components);
    let options = CollectionOptions::bytes().index("a:composite".parse().unwrap());
    db.create_collection("c", options).unwrap().put(b"key", &[0xff]).unwrap();
    drop(db);
    let (report, db) = repaired(&plain);
    let [loss] = &report.losses[..] else { panic!("{report}") };
    assert_eq!((loss.kind, loss.collection.as_deref()), (bolide_lsm::salvage::LossKind::Index, Some("c")));
    assert_eq!(db.collection("c").unwrap().get(b"key").unwrap().as_deref(), Some(&[0xff][..]));
    drop(db);
    let report = repair("db", "other", RepairOptions::default(), components).unwrap();
    assert!(report.is_complete() && report.rebuilt.len() == 1, "{report}");
}

#[test]
fn a_full_disk_leaves_nothing_of_the_new_database() {
    use bolide_storage::{SimRuntime, SimVfs};

    let disk = SimVfs::new(1);
    let components = Components::system()
        .vfs(std::sync::Arc::new(disk.clone()))
        .runtime(std::sync::Arc::new(SimRuntime::new(1)));
    let options = || Options::default().background_threads(0).cache_bytes(0);
    let db = Db::open_with("db", options(), components.clone()).unwrap();
    let collection = db.create_collection("c", CollectionOptions::bytes()).unwrap();
    for number in 0..200_u32 {
        collection.put(&number.to_be_bytes(), &number.to_be_bytes().repeat(300)).unwrap();
    }
    drop((collection, db));
    let files = disk.files();
    disk.set_capacity(Some(disk.used_bytes() + 100_000));
    let run = || repair("db", "new", RepairOptions::default().options(options()), components.clone());
    let error = run().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error:?}");
    assert_eq!(disk.files(), files);
    disk.set_capacity(None);
    assert!(run().unwrap().is_complete());
}

#[test]
fn directories_that_would_be_overwritten_are_refused() {
    let components = Components::in_memory();
    let db = open("db", &components);
    db.create_collection("c", CollectionOptions::json()).unwrap().put(b"1", b"{}").unwrap();
    let kind = |from: &str, to: &str| {
        repair(from, to, RepairOptions::default(), components.clone()).unwrap_err().kind()
    };
    assert_eq!(kind("db", "new"), ErrorKind::Locked);
    drop(db);
    assert_eq!(kind("nowhere", "new"), ErrorKind::NotFound);
    assert_eq!(kind("db", "db"), ErrorKind::InvalidInput);
    assert_eq!(kind("db", "db/new"), ErrorKind::InvalidInput);
    assert_eq!(kind("db", ".."), ErrorKind::InvalidInput);
    components.vfs.rename(Path::new("db"), Path::new("db.incomplete")).unwrap();
    assert_eq!(kind("db.incomplete", "db"), ErrorKind::InvalidInput);
    components.vfs.rename(Path::new("db.incomplete"), Path::new("db")).unwrap();
    for full in ["new", "new.incomplete"] {
        let path = Path::new(full).join("file");
        components.vfs.create_dir_all(Path::new(full)).unwrap();
        components.vfs.create(&path).unwrap();
        assert_eq!(kind("db", "new"), ErrorKind::Conflict);
        components.vfs.remove(&path).unwrap();
    }
    // Empty directories are accepted.
    repair("db", "new", RepairOptions::default(), components.clone()).unwrap();
    assert!(!components.vfs.exists(Path::new("new.incomplete")).unwrap());
    assert!(open("new", &components).collection("c").unwrap().get(b"1").unwrap().is_some());
}
