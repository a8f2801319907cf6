//! Full disks, failing disks, power cuts, and interrupted index builds.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bolide::storage::{CrashMode, Fault, FaultPlan, SimRuntime, SimVfs, Vfs};
use bolide::{
    BuildOptions, Collection, Components, Db, ErrorKind, IndexState, IterOptions, Options, Query, SyncMode,
    WriteBatch,
};
use support::{dump, threaded, tiny, tiny_collection};

fn open(vfs: &SimVfs) -> bolide::Result<Db> {
    open_with(vfs, tiny())
}

fn open_with(vfs: &SimVfs, options: Options) -> bolide::Result<Db> {
    let vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
    Db::open_with("db", options, Components::system().vfs(vfs).runtime(Arc::new(SimRuntime::new(1))))
}

fn put(collection: &Collection, number: u32) -> bolide::Result<()> {
    collection.put(format!("{number:04}").as_bytes(), format!(r#"{{"a":{}}}"#, number % 9).as_bytes())
}

#[test]
fn a_full_disk_refuses_writes_until_space_is_freed() {
    let vfs = SimVfs::new(1);
    let db = open(&vfs).unwrap();
    let one = db.create_collection("one", tiny_collection().index("a".parse().unwrap())).unwrap();
    (0..20).for_each(|number| put(&one, number).unwrap());
    vfs.set_fault(Some(FaultPlan { fault: Fault::NoSpace, at: 1, sticky: true }));
    for number in 20..25 {
        assert_eq!(put(&one, number).unwrap_err().kind(), ErrorKind::NoSpace);
    }
    assert_eq!(dump(&one).len(), 20);
    assert_eq!(one.find(&Query::new().eq("a", 3)).unwrap().len(), 2);
    vfs.set_fault(None);
    (20..300).for_each(|number| put(&one, number).unwrap());
    drop((one, db));
    let db = open(&vfs).unwrap();
    assert_eq!(dump(&db.collection("one").unwrap()).len(), 300);
    assert!(db.check(true).unwrap().is_sound());
}

#[test]
fn an_index_that_a_full_disk_does_not_drop_stays_complete() {
    for spec in ["a", "a:composite:maintenance=synchronous", "a:lazy", "a:eager", "a:embedded", "a:next"] {
        let vfs = SimVfs::new(1);
        let db = open(&vfs).unwrap();
        let one = db.create_collection("one", tiny_collection().index(spec.parse().unwrap())).unwrap();
        (0..20).for_each(|number| put(&one, number).unwrap());
        vfs.set_fault(Some(FaultPlan { fault: Fault::NoSpace, at: 1, sticky: true }));
        let error = one.drop_index("a").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{spec}: {error}");
        vfs.set_fault(None);
        assert_eq!(one.indexes().len(), 1, "{spec}");
        (10..40).for_each(|number| put(&one, number).unwrap());
        assert_eq!(one.find(&Query::new().eq("a", 3).using_index("a")).unwrap().len(), 5, "{spec}");
        drop((one, db));
        let db = open(&vfs).unwrap();
        let one = db.collection("one").unwrap();
        assert_eq!(one.find(&Query::new().eq("a", 3).using_index("a")).unwrap().len(), 5, "{spec}");
        assert!(db.check(true).unwrap().is_sound(), "{spec}");
        one.drop_index("a").unwrap();
        assert_eq!(one.indexes().len(), 0, "{spec}");
    }
}

/// A rebuild on a disk that becomes full at one call, each in turn: the old or the new index exists and is complete.
#[test]
fn a_full_disk_during_a_rebuild_removes_no_index() {
    for spec in ["a", "a:composite", "a:lazy", "a:next"] {
        for at in 1.. {
            let context = format!("{spec}, call {at}");
            let vfs = SimVfs::new(1);
            let db = open(&vfs).unwrap();
            let one = db.create_collection("one", tiny_collection().index(spec.parse().unwrap())).unwrap();
            (0..40).for_each(|number| put(&one, number).unwrap());
            vfs.set_fault(Some(FaultPlan { fault: Fault::NoSpace, at, sticky: false }));
            let rebuilt = one.rebuild_index("a", &BuildOptions::default());
            let calls = vfs.eligible_calls(Fault::NoSpace);
            vfs.set_fault(None);
            if let Err(error) = &rebuilt {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{context}: {error}");
            }
            let fives = |one: &Collection| one.find(&Query::new().eq("a", 5).using_index("a")).unwrap().len();
            assert_eq!(fives(&one), 4, "{context}: {rebuilt:?}");
            (20..80).for_each(|number| put(&one, number).unwrap());
            assert_eq!(fives(&one), 9, "{context}: {rebuilt:?}");
            drop((one, db));
            let db = open(&vfs).unwrap();
            let one = db.collection("one").unwrap();
            assert_eq!(one.indexes().len(), 1, "{context}");
            assert_eq!(fives(&one), 9, "{context}: {rebuilt:?}, opened again");
            assert!(db.check(true).unwrap().is_sound(), "{context}");
            if at > calls {
                assert!(at > 3, "{context}: nothing failed");
                break;
            }
        }
    }
}

#[test]
fn after_a_failed_write_the_handle_reads_and_refuses_to_write() {
    for fault in [Fault::ShortAppend, Fault::LostSync, Fault::Io] {
        println!("{fault:?}");
        let vfs = SimVfs::new(1);
        // Large memtables, so that the failing call is the one that writes to the log.
        let db = open_with(&vfs, tiny().memtable_bytes(4 << 20)).unwrap();
        let one = db.create_collection("one", tiny_collection().index("a".parse().unwrap())).unwrap();
        (0..20).for_each(|number| put(&one, number).unwrap());
        db.sync().unwrap();
        vfs.set_fault(Some(FaultPlan { fault, at: 1, sticky: false }));
        let mut batch = WriteBatch::new();
        batch.put(&one, b"x", b"{}").unwrap();
        let options = bolide::WriteOptions::default().sync(SyncMode::Always);
        db.write_with(batch, &options).unwrap_err();
        for _ in 0..2 {
            assert_eq!(put(&one, 30).unwrap_err().kind(), ErrorKind::Poisoned, "{fault:?}");
        }
        let refused = db.create_collection("two", tiny_collection()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Poisoned);
        assert_eq!(one.create_index("b".parse().unwrap()).unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(dump(&one).len(), 20);
        assert_eq!(one.find(&Query::new().eq("a", 3)).unwrap().len(), 2);
        drop((one, db));
        let db = open(&vfs).unwrap();
        let one = db.collection("one").unwrap();
        assert!((20..=21).contains(&dump(&one).len()), "{fault:?}");
        put(&one, 40).unwrap();
        assert!(db.check(true).unwrap().is_sound());
    }
}

/// Creates, fills and drops collections and indexes, with writes in between.
fn change_everything(db: &Db) -> bolide::Result<()> {
    let one = db.create_collection("one", tiny_collection().index("a".parse()?).index("first=a".parse()?))?;
    for number in 0..60 {
        put(&one, number)?;
    }
    db.sync()?;
    one.create_index("late=a".parse()?)?;
    one.create_index("sync=a:composite:maintenance=synchronous".parse()?)?;
    for number in 30..90 {
        put(&one, number)?;
    }
    one.drop_index("first")?;
    one.delete_range("0010".."0050")?;
    let two = db.create_collection("two", tiny_collection().index("a".parse()?))?;
    put(&two, 1)?;
    db.drop_collection("two")?;
    db.compact()?;
    db.sync()
}

/// Checks that the database is whole at any point: every index answers as a scan does.
fn check_whole(db: &Db, context: &str) {
    let report = db.check(true).unwrap();
    assert!(report.is_sound(), "{context}: {report}");
    for name in db.collections() {
        let collection = db.collection(&name).unwrap();
        let indexes = collection.indexes();
        assert!(indexes.iter().all(|index| index.state() == IndexState::Ready), "{context}: {indexes:?}");
        for index in indexes {
            let wanted = dump(&collection).len();
            let query = Query::new().range("a", 0..).using_index(index.name());
            let found = collection.find(&query.clone().keys_only()).unwrap().len();
            assert_eq!((found, collection.find(&query).unwrap().len()), (wanted, wanted), "{context}");
        }
    }
}

#[test]
fn a_power_cut_leaves_a_whole_database() {
    let mut cuts = 0;
    // A stride that covers each kind of sync point; the crash runner of the testkit covers all.
    for at in (0..).step_by(13) {
        let vfs = SimVfs::new(at);
        vfs.power_off_after_syncs(at);
        let done = open(&vfs).and_then(|db| change_everything(&db));
        for mode in [CrashMode::None, CrashMode::Random, CrashMode::All] {
            let after = vfs.crash(mode);
            let db = open(&after).unwrap_or_else(|error| panic!("cut {at} {mode:?}: {error:?}"));
            check_whole(&db, &format!("cut {at} {mode:?}"));
        }
        cuts += 1;
        if done.is_ok() {
            break;
        }
    }
    assert!(cuts > 20, "{cuts}");
}

#[test]
fn an_error_of_the_disk_leaves_a_whole_database() {
    for fault in [Fault::Io, Fault::NoSpace, Fault::LostSync] {
        // All calls would take long: a stride that covers all kinds.
        for at in (1..).step_by(61) {
            let vfs = SimVfs::new(at);
            vfs.set_fault(Some(FaultPlan { fault, at, sticky: at % 2 == 0 }));
            let done = open(&vfs).and_then(|db| change_everything(&db));
            vfs.set_fault(None);
            let db = open(&vfs).unwrap_or_else(|error| panic!("{fault:?} at {at}: {error:?}"));
            check_whole(&db, &format!("{fault:?} at {at}: {done:?}"));
            if done.is_ok() && vfs.counters().faults == 0 {
                break;
            }
        }
    }
}

/// Stops all threads of a test when one of them ends, also by a panic: the scope waits for the other threads, which
/// would otherwise run forever.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn threads_of_a_test_stop_when_one_of_them_panics() {
    let stop = AtomicBool::new(false);
    #[allow(clippy::disallowed_methods)] // The threads are the test's own.
    let ended = std::panic::catch_unwind(|| {
        std::thread::scope(|scope| {
            let _stopping = StopOnDrop(&stop);
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            });
            std::panic::resume_unwind(Box::new("the main loop ends"));
        });
    });
    assert!(ended.is_err());
}

#[test]
fn an_index_is_built_while_writers_write() {
    let options = Options::default().memtable_bytes(64 << 10).sync(SyncMode::None);
    let db = Db::open_with("db", options, threaded()).unwrap();
    let one = db.create_collection("one", tiny_collection().index("first=a".parse().unwrap())).unwrap();
    (0..2_000).for_each(|number| put(&one, number).unwrap());
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    #[allow(clippy::disallowed_methods)] // The writers are the test's own, not the database's.
    std::thread::scope(|scope| {
        let stopping = StopOnDrop(&stop);
        for writer in 0..2_u32 {
            let (one, stop, written) = (&one, &stop, &written);
            scope.spawn(move || {
                let _stopping = StopOnDrop(stop);
                let mut number = writer * 977;
                while !stop.load(Ordering::Relaxed) {
                    number = (number * 31 + 7 + writer) % 3_000;
                    if number.is_multiple_of(11) {
                        one.delete(format!("{number:04}").as_bytes()).unwrap();
                    } else {
                        put(one, number).unwrap();
                    }
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Queries that name no index use an existing one, or a scan, and return the same answers.
        let (collection, stop_queries) = (&one, &stop);
        let queried = db.clone();
        scope.spawn(move || {
            let _stopping = StopOnDrop(stop_queries);
            while !stop_queries.load(Ordering::Relaxed) {
                let query = Query::new().eq("a", 3).keys_only();
                collection.find(&query).unwrap();
                let snapshot = queried.snapshot();
                let found = collection.find_at(&snapshot, &query).unwrap();
                let records = IterOptions::default().snapshot(&snapshot);
                let matching =
                    |record: &bolide::Result<bolide::Record>| record.as_ref().unwrap().1 == b"{\"a\":3}";
                let expected = collection.iter_with(&records).unwrap().filter(matching).count();
                assert_eq!(found.len(), expected, "{}", found.explain());
            }
        });
        for round in 0..4 {
            one.create_index("blind=a".parse().unwrap()).unwrap();
            one.create_index("sync=a:composite:maintenance=synchronous".parse().unwrap()).unwrap();
            let report = db.check(true).unwrap();
            assert!(report.is_sound(), "round {round}: {report}");
            assert_eq!(report.indexes.len(), 3);
            let snapshot = db.snapshot();
            let count = |index: &str| {
                let query = Query::new().range("a", 0..).using_index(index).count();
                one.find_at(&snapshot, &query).unwrap().count()
            };
            assert_eq!(count("blind"), count("first"));
            assert_eq!(count("sync"), count("first"));
            one.drop_index("blind").unwrap();
            one.drop_index("sync").unwrap();
        }
        drop(stopping);
    });
    assert!(written.load(Ordering::Relaxed) > 0);
    let report = db.check(true).unwrap();
    assert!(report.is_sound(), "{report}");
}
