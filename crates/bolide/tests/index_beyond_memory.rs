//! Indexes of kind `ps-tree` that are larger than the memory budget allows: answers, bounds, builds, openings, crashes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bolide::storage::{CrashMode, SimRng, SimVfs};
use bolide::{
    BlockCache, Collection, CollectionOptions, Components, Db, ErrorKind, MemoryUse, Options, PsTreeFigures,
    Query, SyncMode,
};

const BUDGET: usize = 4 << 20;
/// The bound of the only index.
const BOUND: u64 = BUDGET as u64 / 4;

fn options() -> Options {
    Options::default()
        .memory_bytes(BUDGET)
        .memtable_bytes(64 << 10)
        .cache_bytes(256 << 10)
        .background_threads(0)
        .sync(SyncMode::None)
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:07}").into_bytes()
}

/// The values of each record, and the number of its write.
#[derive(Default)]
struct Model {
    records: BTreeMap<u64, (Vec<u64>, u64)>,
    writes: u64,
}

impl Model {
    fn put(&mut self, records: &Collection, number: u64, values: &[u64]) -> bolide::Result<()> {
        let text = format!(r#"{{"v":{values:?},"n":{number}}}"#);
        records.put(&key(number), text.as_bytes())?;
        self.writes += 1;
        self.records.insert(number, (values.to_vec(), self.writes));
        Ok(())
    }

    fn delete(&mut self, records: &Collection, number: u64) {
        records.delete(&key(number)).unwrap();
        self.writes += 1;
        self.records.remove(&number);
    }

    /// The keys of the records with a value, newest first.
    fn newest(&self, value: u64) -> Vec<Vec<u8>> {
        let with = self.records.iter().filter(|(_, (values, _))| values.contains(&value));
        let mut with: Vec<_> = with.map(|(number, (_, write))| (*write, *number)).collect();
        with.sort_unstable_by(|one, other| other.cmp(one));
        with.into_iter().map(|(_, number)| key(number)).collect()
    }

    fn check(&self, records: &Collection, values: impl Iterator<Item = u64>, context: &str) {
        for value in values {
            let expected = self.newest(value);
            for limit in [10, usize::MAX] {
                let mut query = Query::new().eq("v[*]", value).using_index("v");
                if limit != usize::MAX {
                    query = query.limit(limit);
                }
                let found = records.find(&query).unwrap().into_vec();
                let found: Vec<_> = found.into_iter().map(|row| row.key.to_vec()).collect();
                assert_eq!(found[..], expected[..limit.min(expected.len())], "{context}: value {value}");
            }
        }
    }
}

fn figures(db: &Db) -> PsTreeFigures {
    *db.stats().collections[0].indexes[0].figures_of::<PsTreeFigures>().unwrap()
}

fn counted(db: &Db) -> u64 {
    let users = db.stats().memory.users;
    let regions = users.iter().find(|user| user.memory_use == MemoryUse::IndexRegions && user.name.is_none());
    regions.unwrap().size.used
}

fn create(components: Components, index: Option<&str>) -> (Db, Collection) {
    let db = Db::open_with("db", options(), components).unwrap();
    let mut collection = CollectionOptions::json();
    if let Some(index) = index {
        collection = collection.index(index.parse().unwrap());
    }
    let records = db.create_collection("c", collection).unwrap();
    (db, records)
}

/// More than ten times the bound, without any option.
#[test]
fn the_default_index_goes_on_beyond_its_memory() {
    let components = Components::in_memory();
    let (db, records) = create(components.clone(), Some("v=v[*]"));
    let (mut model, mut rng, mut most) = (Model::default(), SimRng::new(1), 0);
    for number in 0..120_000_u64 {
        // A hot value, values of a few records, and unique ones.
        let values = match number % 4 {
            0 => vec![7],
            1 => vec![10_000 + rng.below(3_000), 7],
            _ => vec![1_000_000 + number, 10_000 + rng.below(3_000)],
        };
        model.put(&records, number, &values).unwrap();
        if number % 16 == 0 {
            let of = rng.below(number + 1);
            model.put(&records, of, &[20_000 + rng.below(50)]).unwrap();
        }
        if number % 500 == 0 {
            most = most.max(figures(&db).allocated_bytes);
        }
    }
    let figures = figures(&db);
    assert_eq!(figures.memory_limit_bytes, BOUND);
    assert!(figures.spilled_through > model.writes / 2, "{figures:?}");
    assert!(most <= BOUND && counted(&db) <= 2 * BOUND, "{most} in use, {} counted", counted(&db));
    let some = [7, 10_000, 10_001, 12_999, 20_003, 1_000_002, 1_119_999, 5];
    model.check(&records, some.into_iter(), "after the load");
    for number in (0..120_000).step_by(777) {
        model.delete(&records, number);
    }
    model.check(&records, some.into_iter(), "after deletes");
    assert!(db.check(true).unwrap().is_sound());
    drop(records);
    db.close().unwrap();
    let db = Db::open_with("db", options(), components).unwrap();
    let records = db.collection("c").unwrap();
    model.check(&records, some.into_iter(), "after an opening");
    assert!(counted(&db) <= 2 * BOUND, "{}", counted(&db));
    assert!(db.check(true).unwrap().is_sound());
}

/// With threads, writers wait instead of exceeding the bound by much.
#[test]
fn writers_do_not_outrun_spills() {
    let options = options().background_threads(2);
    let db = Db::open_with("db", options, Components::in_memory()).unwrap();
    let index = "v=v[*]".parse().unwrap();
    let records = db.create_collection("c", CollectionOptions::json().index(index)).unwrap();
    let (mut model, mut most) = (Model::default(), 0);
    for number in 0..60_000_u64 {
        model.put(&records, number, &[number, number % 100]).unwrap();
        if number % 100 == 0 {
            most = most.max(figures(&db).allocated_bytes);
        }
    }
    assert!(figures(&db).spilled_through > 0);
    assert!(most <= BOUND + BOUND / 4, "{most}");
    model.check(&records, [3, 59_999, 30_000].into_iter(), "with threads");
}

/// Entries of existing records stay in the sstables of the build, but for the newest.
#[test]
fn a_build_needs_no_more_than_the_bound() {
    for threads in [0, 2] {
        let components = Components::in_memory();
        let db = Db::open_with("db", options().background_threads(threads), components.clone()).unwrap();
        let records = db.create_collection("c", CollectionOptions::json()).unwrap();
        let mut model = Model::default();
        for number in 0..60_000_u64 {
            model.put(&records, number, &[number, number % 100, 100 + number % 7]).unwrap();
        }
        records.create_index("v=v[*]".parse().unwrap()).unwrap();
        let after = figures(&db);
        assert!(after.spilled_through > model.writes / 2, "{after:?}");
        assert!(after.allocated_bytes <= BOUND && counted(&db) <= 2 * BOUND, "{after:?}");
        let some = [0, 3, 99, 103, 59_999, 30_000];
        model.check(&records, some.into_iter(), "after the build");
        for number in 60_000..61_000 {
            model.put(&records, number, &[number, number % 100]).unwrap();
        }
        model.check(&records, some.into_iter(), "after writes");
        assert!(db.check(true).unwrap().is_sound());
        drop(records);
        db.close().unwrap();
        let db = Db::open_with("db", options(), components).unwrap();
        model.check(&db.collection("c").unwrap(), some.into_iter(), "after an opening");
        assert!(db.check(true).unwrap().is_sound());
    }
}

/// Writes while an index cannot be opened go to sstables; most of them stay there when it is opened.
#[test]
fn an_index_that_was_refused_is_opened_within_its_bound() {
    let vfs = SimVfs::new(3);
    let components = |vfs: &SimVfs| Components::system().vfs(Arc::new(vfs.clone()));
    let roomy = || options().memory_bytes(64 << 20);
    let db = Db::open_with("db", roomy(), components(&vfs)).unwrap();
    let index = "v=v[*]".parse().unwrap();
    let records = db.create_collection("c", CollectionOptions::json().index(index)).unwrap();
    let mut model = Model::default();
    for number in 0..30_000_u64 {
        model.put(&records, number, &[number, number % 100]).unwrap();
    }
    drop(records);
    db.close().unwrap();

    let tiny = || options().cache_bytes(64 << 10).memory_bytes(1 << 20);
    let db = Db::open_with("db", tiny(), components(&vfs)).unwrap();
    let records = db.collection("c").unwrap();
    let query = Query::new().eq("v[*]", 3_u64).using_index("v").limit(1);
    assert_eq!(records.find(&query).unwrap_err().kind(), ErrorKind::NoSpace);
    for number in 30_000..90_000_u64 {
        model.put(&records, number, &[number, number % 100]).unwrap();
    }
    drop(records);
    db.close().unwrap();

    for crash in [false, true] {
        let disk = if crash { vfs.crash(CrashMode::None) } else { vfs.clone() };
        let medium = options().memory_bytes(12 << 20);
        let db = Db::open_with("db", medium, components(&disk)).unwrap();
        let records = db.collection("c").unwrap();
        let some = [3, 57, 12_345, 29_999, 30_000, 89_999];
        model.check(&records, some.into_iter(), "opened");
        let figures = figures(&db);
        assert!(figures.spilled_through > 30_000 && figures.allocated_bytes <= 3 << 20, "{figures:?}");
        assert!(db.check(true).unwrap().is_sound());
        if !crash {
            for number in (0..90_000).step_by(101) {
                model.put(&records, number, &[number, 3]).unwrap();
            }
            db.sync().unwrap();
            model.check(&records, some.into_iter(), "after updates");
        }
    }
}

/// The spilled entries stay, whatever the memory of later openings is: none has to spill, or all.
#[test]
fn spilled_entries_outlive_openings_with_other_bounds() {
    let vfs = SimVfs::new(4);
    let components = || Components::system().vfs(Arc::new(vfs.clone()));
    let (db, records) = create(components(), Some("v=v[*]"));
    let mut model = Model::default();
    for number in 0..40_000_u64 {
        model.put(&records, number, &[number, number % 100]).unwrap();
    }
    let spilled = figures(&db).spilled_through;
    assert!(spilled > 20_000);
    drop(records);
    db.close().unwrap();

    let some = [0, 3, 57, 99, 12_345, 39_999];
    let shared = || components().cache(BlockCache::new(8 << 20));
    let openings = [
        ("a shared cache", options(), shared()),
        ("unlimited", options().memory_bytes(usize::MAX), components()),
        ("less memory", options().memory_bytes(3 << 20), components()),
        ("more memory", options().memory_bytes(64 << 20), components()),
        ("a shared cache again", options(), shared()),
        ("as at first", options(), components()),
    ];
    for (number, (context, options, components)) in openings.into_iter().enumerate() {
        let db = Db::open_with("db", options, components).unwrap();
        let records = db.collection("c").unwrap();
        model.check(&records, some.into_iter(), context);
        // Old records and new ones; enough for a checkpoint at the end.
        for step in 0..4_000 {
            let of =
                if step % 2 == 0 { step * 10 + number as u64 } else { 40_000 + 4_000 * number as u64 + step };
            model.put(&records, of, &[of, of % 100, 3]).unwrap();
        }
        model.check(&records, some.into_iter(), context);
        db.checkpoint(format!("copy{number}")).unwrap();
        model.check(&records, some.into_iter(), context);
        assert!(figures(&db).spilled_through >= spilled, "{context}");
        assert!(db.check(true).unwrap().is_sound(), "{context}");
        drop(records);
        db.close().unwrap();
    }
    let db = Db::open_with("db", options(), components()).unwrap();
    let records = db.collection("c").unwrap();
    model.check(&records, some.into_iter(), "at the end");
}
