//! Databases of many small collections: their flushes share edits of the manifest, and survive power cuts as a whole.

use std::sync::Arc;

use bolide::storage::{CrashMode, Fault, FaultPlan, RecordImages, SimRuntime, SimVfs};
use bolide::{CollectionOptions, Components, Db, ErrorKind, Options, Query, Result, SyncMode};

const COLLECTIONS: usize = 12;

fn components(vfs: &SimVfs) -> Components {
    Components::system().vfs(Arc::new(vfs.clone())).runtime(Arc::new(SimRuntime::new(1)))
}

fn open(vfs: &SimVfs) -> Result<Db> {
    let options = Options::default().background_threads(0).fetch_threads(1).sync(SyncMode::Always);
    Db::open_with("db", options.memtable_bytes(64 << 10).reserve_bytes(0), components(vfs))
}

/// Every other collection has an index of kind `ps-tree`, which writes checkpoints; the others one with sstables.
fn create(db: &Db) -> Result<()> {
    for number in 0..COLLECTIONS {
        let kind = if number % 2 == 0 { "ps-tree" } else { "composite" };
        let options = CollectionOptions::json().index(format!("group:{kind}").parse()?);
        db.create_collection(&format!("c{number}"), options)?;
    }
    Ok(())
}

fn put_all(db: &Db, key: &str) -> Result<()> {
    for number in 0..COLLECTIONS {
        let record = format!(r#"{{"group":{number}}}"#);
        db.collection(&format!("c{number}"))?.put(key.as_bytes(), record.as_bytes())?;
    }
    Ok(())
}

/// Checks that each collection has `keys`, by key and by its index.
fn check(db: &Db, keys: &[&str], what: &str) {
    for number in 0..COLLECTIONS {
        let collection = db.collection(&format!("c{number}")).unwrap();
        for key in keys {
            assert!(collection.get(key.as_bytes()).unwrap().is_some(), "{what}: {key} of c{number}");
        }
        let query = Query::new().eq("group", number as i64).using_index("group").keys_only();
        assert_eq!(collection.find(&query).unwrap().len(), keys.len(), "{what}: c{number}");
    }
    assert!(db.check(true).unwrap().is_sound(), "{what}");
}

#[test]
fn a_flush_of_many_collections_writes_one_edit() {
    let vfs = SimVfs::new(1);
    let db = open(&vfs).unwrap();
    create(&db).unwrap();
    put_all(&db, "a").unwrap();
    let before = vfs.counters();
    db.flush().unwrap();
    let (syncs, files) = (vfs.counters().sync_points - before.sync_points, 2 * COLLECTIONS as u64);
    // A sync of each file and of its name; the segments of the log and their edits, and one edit for all flushes.
    assert!(syncs <= 2 * files + 8, "{syncs} syncs for {files} files");
    check(&db, &["a"], "flushed");
    db.close().unwrap();
    // The second flush opens the indexes first.
    let db = open(&vfs).unwrap();
    put_all(&db, "b").unwrap();
    db.flush().unwrap();
    check(&db, &["a", "b"], "flushed again");
}

#[test]
fn a_creation_writes_two_edits() {
    let vfs = SimVfs::new(1);
    let db = open(&vfs).unwrap();
    let before = vfs.counters().sync_points;
    create(&db).unwrap();
    let syncs = vfs.counters().sync_points - before;
    assert!(syncs <= 2 * COLLECTIONS as u64, "{syncs} syncs for {COLLECTIONS} collections");
}

#[test]
fn a_power_cut_during_a_shared_flush_loses_nothing() {
    let vfs = SimVfs::new(2);
    let db = open(&vfs).unwrap();
    create(&db).unwrap();
    put_all(&db, "a").unwrap();
    db.flush().unwrap();
    put_all(&db, "b").unwrap();
    vfs.record_images(RecordImages::Writes);
    db.flush().unwrap();
    db.close().unwrap();
    let images = vfs.take_images();
    assert!(images.len() > 2 * COLLECTIONS, "{}", images.len());
    for (number, image) in images.iter().enumerate() {
        for mode in [CrashMode::None, CrashMode::All, CrashMode::Random] {
            let after = image.vfs.crash_with_seed(mode, number as u64);
            let what = format!("image {number}, {mode:?}, before {}", image.before);
            let db = open(&after).unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&db, &["a", "b"], &what);
            // The log is released as usual.
            db.flush().unwrap();
            check(&db, &["a", "b"], &what);
        }
    }
}

#[test]
fn a_failure_during_a_shared_flush_loses_nothing() {
    let mut failures = 0;
    for fault in [Fault::ShortAppend, Fault::LostSync, Fault::NoSpace] {
        for at in 1.. {
            let vfs = SimVfs::new(at);
            let db = open(&vfs).unwrap();
            create(&db).unwrap();
            put_all(&db, "a").unwrap();
            vfs.set_fault(Some(FaultPlan { fault, at, sticky: false }));
            let flushed = db.flush();
            let is_hit = vfs.counters().faults > 0;
            vfs.set_fault(None);
            let what = format!("{fault:?} {at}");
            if let Err(error) = flushed {
                failures += 1;
                // Once the disk has space again, everything is flushed.
                if error.kind() == ErrorKind::NoSpace {
                    db.flush().unwrap_or_else(|error| panic!("{what}: {error}"));
                    check(&db, &["a"], &what);
                }
            }
            drop(db);
            let db = open(&vfs.crash(CrashMode::Random)).unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&db, &["a"], &what);
            if !is_hit {
                break;
            }
        }
    }
    assert!(failures > 3 * COLLECTIONS, "{failures}");
}
