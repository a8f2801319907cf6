//! Indexes of kind `ps-tree`: content in memory, checkpoints on disk, and removal of obsolete entries.

use std::sync::Arc;

use bolide::storage::{MemVfs, SimVfs, Vfs};
use bolide::{
    CollectionOptions, Components, Db, FindOptions, IndexSpace, Options, Order, PsCosts, PsTreeFigures, Query,
};

fn options() -> Options {
    // Small memtables, so that flushes and checkpoints are frequent; no threads, so that they run at once.
    Options::default().memtable_bytes(16 << 10).background_threads(0)
}

fn record(group: u64, number: u64) -> Vec<u8> {
    format!(r#"{{"group":{group},"number":{number},"pad":"{}"}}"#, "x".repeat(60)).into_bytes()
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

fn keys_of(db: &Db, group: u64) -> Vec<Vec<u8>> {
    let query = Query::new().eq("group", group).order(Order::Newest).keys_only().using_index("group");
    db.collection("c").unwrap().find(&query).unwrap().into_iter().map(|answer| answer.key).collect()
}

fn region_files(vfs: &MemVfs) -> usize {
    let names = vfs.list(std::path::Path::new("db")).unwrap();
    names.iter().filter(|name| name.ends_with(".region")).count()
}

#[test]
fn a_reopened_index_has_the_writes_of_the_log_after_its_last_checkpoint() {
    let vfs = Arc::new(MemVfs::new());
    let components = Components::in_memory().vfs(vfs.clone());
    let db = Db::open_with("db", options(), components.clone()).unwrap();
    let made = CollectionOptions::json().index("group:ps-tree".parse().unwrap());
    let c = db.create_collection("c", made).unwrap();
    for number in 0..3_000 {
        c.put(&key(number), &record(number % 7, number)).unwrap();
    }
    db.flush().unwrap();
    assert!(region_files(&vfs) > 0, "the index was written to disk");
    for number in 0..40 {
        c.put(&key(number), &record(9, number)).unwrap();
    }
    c.delete(&key(3)).unwrap();
    let expected: Vec<_> = (0..40).rev().filter(|&number| number != 3).map(key).collect();
    assert_eq!(keys_of(&db, 9), expected);
    drop((c, db));
    let db = Db::open_with("db", options(), components.clone()).unwrap();
    assert_eq!(keys_of(&db, 9), expected);
    assert_eq!(keys_of(&db, 3).len(), (40..3_000).filter(|number| number % 7 == 3).count());
    assert!(db.check(true).unwrap().is_sound());
}

#[test]
fn queries_for_keys_read_no_record() {
    let db = Db::open_with("db", options(), Components::in_memory()).unwrap();
    let made = CollectionOptions::json().index("group:ps-tree:include=number".parse().unwrap());
    let c = db.create_collection("c", made).unwrap();
    for number in 0..2_000 {
        c.put(&key(number % 1_500), &record(number % 5, number)).unwrap();
    }
    let query = Query::new().eq("group", 2).order(Order::Newest).limit(10).keys_only();
    let found = c.find_with(&query, &FindOptions::default().measure(true)).unwrap();
    let explain = found.explain().clone();
    assert_eq!(found.count(), 10);
    assert_eq!((explain.records_fetched, explain.unknown), (0, 0), "{explain}");
    assert!(
        explain.costs_of::<PsCosts>().entries >= 10 && explain.costs_of::<PsCosts>().keys == 1,
        "{explain}"
    );
    // The first query that reads an obsolete entry flags it, and the next one does not validate it.
    let all = Query::new().eq("group", 2).order(Order::Newest).keys_only();
    let first = c.find(&all).unwrap().explain().costs_of::<PsCosts>();
    let second = c.find(&all).unwrap().explain().costs_of::<PsCosts>();
    assert!(
        first.obsolete > 0 && first.flagged == first.obsolete && second.obsolete == 0,
        "{first:?}, {second:?}"
    );
}

#[test]
fn a_snapshot_contains_entries_replaced_later() {
    let db = Db::open_with("db", options(), Components::in_memory()).unwrap();
    let made = CollectionOptions::json().index("group:ps-tree".parse().unwrap());
    let c = db.create_collection("c", made).unwrap();
    for number in 0..300 {
        c.put(&key(number), &record(1, number)).unwrap();
    }
    let before = db.snapshot();
    for number in 0..300 {
        if number % 3 == 0 {
            c.delete(&key(number)).unwrap()
        } else {
            c.put(&key(number), &record(2, number)).unwrap()
        };
    }
    db.flush().unwrap();
    assert_eq!(keys_of(&db, 1).len(), 0);
    let all = Query::new().eq("group", 1).order(Order::Newest).keys_only();
    assert_eq!(c.find_at(&before, &all).unwrap().count(), 300);
    drop(before);
    assert_eq!(c.find(&all).unwrap().count(), 0);
    assert!(db.check(true).unwrap().is_sound());
}

#[test]
fn range_tombstones_are_dropped_once_the_index_has_no_covered_entries() {
    let db = Db::open_with("db", options(), Components::in_memory()).unwrap();
    let made = CollectionOptions::json().index("group:ps-tree".parse().unwrap());
    let c = db.create_collection("c", made).unwrap();
    for number in 0..1_000 {
        c.put(&key(number), &record(number % 3, number)).unwrap();
    }
    c.delete_range(key(100)..key(900)).unwrap();
    assert_eq!(keys_of(&db, 0).len(), (0..1_000).filter(|n| n % 3 == 0 && !(100..900).contains(n)).count());
    c.compact().unwrap();
    // The tombstone waits for the index, which checks all its entries before its next checkpoint.
    for number in 2_000..2_400 {
        c.put(&key(number), &record(5, number)).unwrap();
    }
    db.flush().unwrap();
    c.compact().unwrap();
    db.flush().unwrap();
    let tombstones = db.stats().collections[0].table.range_tombstones;
    assert_eq!(tombstones, 0);
    assert_eq!(keys_of(&db, 0).len(), (0..1_000).filter(|n| n % 3 == 0 && !(100..900).contains(n)).count());
    assert!(db.check(true).unwrap().is_sound());
}

#[test]
fn statistics_report_memory_and_the_lag_of_the_files() {
    let db = Db::open_with("db", options(), Components::in_memory()).unwrap();
    let made = CollectionOptions::json().index("group".parse().unwrap());
    let c = db.create_collection("c", made).unwrap();
    let figures = || db.stats().collections[0].indexes[0].figures_of::<PsTreeFigures>().copied().unwrap();
    for number in 0..1_000 {
        c.put(&key(number % 600), &record(number % 7, number)).unwrap();
    }
    let before = figures();
    assert_eq!(before.keys, 7);
    assert!((600..=1_000).contains(&before.entries), "{before:?}");
    assert!(before.version_keys <= 400 && before.filter_bytes > 0, "{before:?}");
    assert!(before.unwritten_bytes > 0 && before.unwritten_sequences > 0, "{before:?}");
    db.flush().unwrap();
    let after = figures();
    assert_eq!((after.unwritten_bytes, after.unwritten_sequences), (0, 0), "{after:?}");
    assert!(after.disk_live_bytes > 1_000 && after.disk_live_bytes <= after.disk_bytes, "{after:?}");
    assert!(after.allocated_bytes + after.free_bytes <= after.region_bytes && !after.in_place, "{after:?}");
    let space = c.index_space("group").unwrap().unwrap();
    let space = space.get::<IndexSpace>().unwrap();
    assert_eq!(space.skey.keys, 7);
    assert!(space.garbage_bytes() <= space.filled_bytes, "{space:?}");
    assert!(space.filled_bytes <= space.head_page_bytes + space.sealed_page_bytes, "{space:?}");
    assert!(space.total_bytes() <= after.allocated_bytes, "{space:?}");
}

#[test]
fn a_check_reads_the_page_segments() {
    let vfs = SimVfs::new(1);
    let components = Components::system().vfs(Arc::new(vfs.clone()));
    let db = Db::open_with("db", options(), components).unwrap();
    let c = db.create_collection("c", CollectionOptions::json().index("group".parse().unwrap())).unwrap();
    for number in 0..500 {
        c.put(&key(number), &record(number % 7, number)).unwrap();
    }
    db.flush().unwrap();
    let report = db.check(false).unwrap();
    assert!(report.is_sound() && report.files.external_files > 0, "{report}");
    assert!(report.to_string().contains("page segments"), "{report}");
    let segment =
        vfs.files().into_iter().find(|path| path.extension().is_some_and(|end| end == "region")).unwrap();
    vfs.damage(&segment, |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    })
    .unwrap();
    let report = db.check(false).unwrap();
    let name = segment.file_name().unwrap().to_str().unwrap();
    assert!(report.problems().iter().any(|problem| problem.contains(name)), "{report}");
}

/// A scan answers queries of a database with a damaged index, and the next opening for writing builds the index again.
#[test]
fn an_index_with_a_damaged_region_is_isolated_and_built_again() {
    let vfs = SimVfs::new(2);
    let components = || Components::system().vfs(Arc::new(vfs.clone()));
    let db = Db::open_with("db", options(), components()).unwrap();
    let c = db.create_collection("c", CollectionOptions::json().index("group".parse().unwrap())).unwrap();
    (0..500).for_each(|number| c.put(&key(number), &record(number % 7, number)).unwrap());
    drop(c);
    db.close().unwrap();
    let is_segment = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "region");
    let segment = vfs.files().into_iter().find(is_segment).unwrap();
    let found = |db: &Db| {
        let query = Query::new().eq("group", 3).limit(200).keys_only();
        db.collection("c").unwrap().find(&query).unwrap().into_vec()
    };
    let whole = found(&Db::open_with("db", options(), components()).unwrap());
    vfs.damage(&segment, |bytes| bytes[300] ^= 4).unwrap();
    let db = Db::open_read_only_with("db", options(), components()).unwrap();
    assert_eq!(found(&db), whole, "a scan answers");
    let c = db.collection("c").unwrap();
    let index = c.index("group").unwrap();
    assert_eq!(index.state(), bolide::IndexState::Damaged);
    let (problem, name) =
        (index.problem().unwrap().to_string(), segment.file_name().unwrap().to_str().unwrap());
    assert!(problem.contains(name) && problem.contains("rebuild"), "{problem}");
    let forced = c.find(&Query::new().eq("group", 3).using_index("group").keys_only()).unwrap_err();
    assert_eq!(forced.kind(), bolide::ErrorKind::Corruption, "{forced}");
    let report = db.check(false).unwrap();
    assert!(report.problems().iter().any(|problem| problem.contains(name)), "{report}");
    drop((c, db));

    // The opening reads no region. Writes do not need it; the first query finds the damage, and a scan answers.
    let db = Db::open_with("db", options(), components()).unwrap();
    let c = db.collection("c").unwrap();
    assert_eq!(c.index("group").unwrap().state(), bolide::IndexState::Ready);
    (0..500).for_each(|number| c.put(&key(number), &record(number % 7, number)).unwrap());
    db.flush().unwrap();
    let keys = |answers: &[bolide::Answer]| answers.iter().map(|one| one.key.clone()).collect::<Vec<_>>();
    assert_eq!(keys(&found(&db)), keys(&whole));
    let whole = found(&db);
    assert_eq!(c.index("group").unwrap().state(), bolide::IndexState::Damaged);
    drop((c, db));

    let db = Db::open_with("db", options(), components()).unwrap();
    let c = db.collection("c").unwrap();
    assert_eq!(c.index("group").unwrap().state(), bolide::IndexState::Ready);
    assert_eq!(found(&db), whole);
    (500..600).for_each(|number| c.put(&key(number), &record(number % 7, number)).unwrap());
    c.delete_range("key00010".."key00200").unwrap();
    let since = found(&db);
    assert!(since.len() < whole.len());
    assert!(db.check(true).unwrap().is_sound());
    drop(c);
    db.close().unwrap();
    let db = Db::open_with("db", options(), components()).unwrap();
    assert_eq!(found(&db), since, "after a reopen");
    let report = db.check(true).unwrap();
    assert!(report.is_sound(), "{report}");
}

#[test]
fn an_intersection_reports_what_each_index_read() {
    let db = Db::open_with("db", Options::default(), Components::in_memory()).unwrap();
    let options = ["a:ps-tree", "b:ps-tree"]
        .iter()
        .fold(CollectionOptions::default(), |options, spec| options.index(spec.parse().unwrap()));
    let c = db.create_collection("c", options).unwrap();
    for number in 0..4_000 {
        let record = format!(r#"{{"a":{},"b":{},"pad":"{number:0>200}"}}"#, number % 50, number % 49);
        c.put(format!("{number:05}").as_bytes(), record.as_bytes()).unwrap();
    }
    for order in [Order::Newest, Order::Oldest, Order::Value] {
        let query = Query::new().eq("a", 3).eq("b", 5).order(order);
        let answers = c.find(&query).unwrap();
        let explain = answers.explain();
        assert!(!answers.is_empty() && explain.intersected.len() == 1, "{order:?}: {explain}");
        assert_eq!(explain.costs_of::<PsCosts>().keys, 2, "{order:?}: {explain}");
    }
}
