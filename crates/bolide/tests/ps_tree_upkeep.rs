//! Indexes of kind `ps-tree` over time: the space of their regions under updates and deletes alone, and checks beside a
//! writer.

#![expect(clippy::disallowed_methods, reason = "tests may start threads")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bolide::storage::{MemVfs, Vfs};
use bolide::{Collection, CollectionOptions, Components, Db, FindOptions, Options, PsTreeFigures, Query};

const KINDS: [&str; 2] = ["ps-tree:skey=btree", "ps-tree:skey=trie"];
const RECORDS: u64 = 1_000;

fn record(time: u64, group: u64) -> Vec<u8> {
    format!(r#"{{"time":{time},"group":{group}}}"#).into_bytes()
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

/// A database with two indexes of `kind`: on values that change with each write, and on a few constant ones.
fn open(kind: &str, vfs: &Arc<MemVfs>) -> (Db, Collection) {
    // Small memtables, so that flushes and checkpoints are frequent; no threads, so that they run at once.
    let options = Options::default().memtable_bytes(64 << 10).background_threads(0);
    let db = Db::open_with("db", options, Components::in_memory().vfs(vfs.clone())).unwrap();
    let indexes = [format!("time:{kind}"), format!("group:{kind}")];
    let made =
        indexes.iter().fold(CollectionOptions::json(), |made, index| made.index(index.parse().unwrap()));
    let c = db.create_collection("c", made).unwrap();
    (db, c)
}

fn region_bytes(vfs: &MemVfs) -> u64 {
    let dir = Path::new("db");
    let names = vfs.list(dir).unwrap();
    let regions = names.iter().filter(|name| name.ends_with(".region"));
    regions.map(|name| vfs.open(&dir.join(name)).unwrap().len().unwrap()).sum()
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A checkpoint writes only the changes, however long the updates have lasted. `PS_TREE_SPACE_WRITES=1500000` makes it
/// a long run, in which segments are emptied as well and the files stop growing.
#[test]
fn checkpoints_cost_the_same_under_updates_and_deletes() {
    let writes = std::env::var("PS_TREE_SPACE_WRITES").ok().and_then(|writes| writes.parse().ok());
    let writes: u64 = writes.unwrap_or(24_000);
    for kind in KINDS {
        let vfs = Arc::new(MemVfs::new());
        let (db, c) = open(kind, &vfs);
        let mut random = Random(7);
        let mut groups = BTreeMap::new();
        let mut largest = [0; 4];
        for time in 0..writes {
            let number = random.below(RECORDS);
            if random.below(5) == 0 {
                c.delete(&key(number)).unwrap();
                groups.remove(&number);
            } else {
                let group = random.below(20);
                c.put(&key(number), &record(time, group)).unwrap();
                groups.insert(number, group);
            }
            if time % 500 == 499 {
                db.flush().unwrap();
                let quarter = &mut largest[(4 * time / writes) as usize];
                *quarter = region_bytes(&vfs).max(*quarter);
            }
        }
        println!(
            "{kind}: {writes} writes to {RECORDS} records; largest regions on disk by quarter: {largest:?}"
        );
        let grown = |quarter: usize| largest[quarter].saturating_sub(largest[quarter - 1]);
        assert!(largest[0] > 0 && grown(3) * 4 < largest[0].max(grown(1)) * 5, "{kind}: {largest:?}");
        assert!(writes < 1_000_000 || largest[3] * 4 < largest[1] * 5, "{kind}: {largest:?}");
        for group in 0..20 {
            let query = Query::new().eq("group", group).keys_only().using_index("group");
            let expected = groups.values().filter(|&&other| other == group).count() as u64;
            assert_eq!(c.find(&query).unwrap().count(), expected, "{kind}, group {group}");
        }
        let report = db.check(true).unwrap();
        assert!(report.is_sound(), "{kind}: {report:?}");
    }
}

#[test]
fn checks_beside_a_writer_find_nothing() {
    for kind in KINDS {
        let vfs = Arc::new(MemVfs::new());
        let (db, c) = open(kind, &vfs);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut random = Random(11);
                for time in 0..6_000 {
                    let number = random.below(RECORDS);
                    if random.below(9) == 0 {
                        c.delete(&key(number)).unwrap();
                    } else {
                        c.put(&key(number), &record(time, random.below(20))).unwrap();
                    }
                }
                done.store(true, Ordering::Relaxed);
            });
            let mut checks = 0;
            while checks < 3 || !done.load(Ordering::Relaxed) {
                let report = db.check(true).unwrap();
                assert!(report.is_sound(), "{kind}, check {checks}: {report:?}");
                checks += 1;
                if writer.is_finished() && !done.load(Ordering::Relaxed) {
                    break;
                }
            }
            writer.join().unwrap();
        });
    }
}

/// A database with partly replaced and deleted records, and the groups of the remaining ones.
fn updated(kind: &str, threads: usize) -> (Db, Collection, BTreeMap<u64, u64>) {
    let options = Options::default().background_threads(threads);
    let db = Db::open_with("db", options, Components::in_memory()).unwrap();
    let made = CollectionOptions::json().index(format!("group:{kind}").parse().unwrap());
    let c = db.create_collection("c", made).unwrap();
    let mut groups = BTreeMap::new();
    for number in 0..RECORDS {
        c.put(&key(number), &record(0, number % 20)).unwrap();
        groups.insert(number, number % 20);
    }
    (db, c, groups)
}

fn update(c: &Collection, groups: &mut BTreeMap<u64, u64>) {
    let mut random = Random(23);
    for time in 0..RECORDS / 3 {
        let (number, group) = (random.below(RECORDS), random.below(20));
        if time % 5 == 0 {
            c.delete(&key(number)).unwrap();
            groups.remove(&number);
        } else {
            c.put(&key(number), &record(time, group)).unwrap();
            groups.insert(number, group);
        }
    }
}

fn is_answered(c: &Collection, groups: &BTreeMap<u64, u64>) -> bool {
    (0..20).all(|group| {
        let query = Query::new().eq("group", group).keys_only().using_index("group");
        let mut found: Vec<_> = c.find(&query).unwrap().into_iter().map(|answer| answer.key).collect();
        found.sort_unstable();
        let expected: Vec<_> = groups.iter().filter(|one| *one.1 == group).map(|one| key(*one.0)).collect();
        found == expected
    })
}

fn version_keys(db: &Db) -> u64 {
    db.stats().collections[0].indexes[0].figures_of::<PsTreeFigures>().copied().unwrap().version_keys
}

#[test]
fn waiting_for_background_work_empties_the_version_table() {
    for (kind, threads) in KINDS.into_iter().flat_map(|kind| [(kind, 0), (kind, 2)]) {
        let (db, c, mut groups) = updated(kind, threads);
        update(&c, &mut groups);
        // Writers sweep only some of them.
        let versions = version_keys(&db);
        assert!(versions > RECORDS / 50, "{kind}: {versions}");
        db.wait_until_settled().unwrap();
        assert_eq!(version_keys(&db), 0, "{kind}, {threads} threads");
        let entries =
            db.stats().collections[0].indexes[0].figures_of::<PsTreeFigures>().copied().unwrap().entries;
        assert_eq!(entries, groups.len() as u64, "{kind}");
        assert!(is_answered(&c, &groups), "{kind}");
        assert!(db.check(true).unwrap().is_sound(), "{kind}");
    }
}

#[test]
fn a_pause_of_updates_empties_the_version_table() {
    let (db, c, mut groups) = updated("ps-tree", 1);
    update(&c, &mut groups);
    // A fifth of a second suffices on an idle machine.
    let mut turns = 0;
    while version_keys(&db) > 0 && turns < 600 {
        std::thread::sleep(std::time::Duration::from_millis(50));
        turns += 1;
    }
    assert_eq!(version_keys(&db), 0);
    assert!(is_answered(&c, &groups));
}

#[test]
fn entries_visible_to_a_snapshot_are_collected_after_it() {
    let (db, c, groups) = updated("ps-tree", 1);
    let snapshot = db.snapshot();
    let mut later = groups.clone();
    update(&c, &mut later);
    // The wait ends although most of the garbage has to stay.
    db.wait_until_settled().unwrap();
    assert!(version_keys(&db) > RECORDS / 5);
    let then = FindOptions::default().snapshot(&snapshot);
    let count = |group| {
        let query = Query::new().eq("group", group).keys_only().using_index("group");
        c.find_with(&query, &then).unwrap().count()
    };
    assert_eq!((0..20).map(count).sum::<u64>(), RECORDS);
    assert!(is_answered(&c, &later));
    drop((then, snapshot));
    db.wait_until_settled().unwrap();
    assert_eq!(version_keys(&db), 0);
    assert!(is_answered(&c, &later));
}
