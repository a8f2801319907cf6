//! Indexes of kind `ps-tree` in persistent memory: reopened, replayed, copied, refused.
#![allow(clippy::disallowed_methods, reason = "the test reads files itself")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide::storage::{CrashMode, DiskVfs, MemVfs, RecordImages, SimRng, SimRuntime, SimVfs, Vfs};
use bolide::{CollectionOptions, Components, Db, ErrorKind, IndexState, Options, Order, Query, SyncMode};

const DAX: &str = "group:ps-tree:region=dax";

fn options() -> Options {
    Options::default().memtable_bytes(16 << 10).background_threads(0)
}

fn with_index(spec: &str) -> CollectionOptions {
    CollectionOptions::json().index(spec.parse().unwrap())
}

fn record(group: u64, number: u64) -> Vec<u8> {
    format!(r#"{{"group":{group},"number":{number},"pad":"{}"}}"#, "x".repeat(40)).into_bytes()
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

/// Checks that the index has the entries of the records, in both directions.
fn verify(db: &Db, context: &str) {
    let c = db.collection("c").unwrap();
    let mut expected = vec![BTreeSet::new(); 6];
    for key in (0..200).map(key) {
        if let Some(record) = c.get(&key).unwrap() {
            // `{"group":N,`
            expected[(record[9] - b'0') as usize].insert(key);
        }
    }
    for (group, expected) in (0..).zip(expected) {
        let query = Query::new().eq("group", group).order(Order::Newest).keys_only().using_index("group");
        let found = c.find(&query).unwrap_or_else(|error| panic!("{context}: {error}"));
        let found: BTreeSet<_> = found.into_iter().map(|answer| answer.key).collect();
        assert!(found == expected, "{context}: group {group}: {} of {} keys", found.len(), expected.len());
    }
    let report = db.check(true).unwrap();
    assert!(report.is_sound(), "{context}: {:?}", report.problems());
}

fn fill(db: &Db, rng: &mut SimRng, writes: u64) {
    let c = db.collection("c").unwrap();
    for _ in 0..writes {
        let (number, group) = (rng.below(200), rng.below(6));
        if rng.one_in(6) {
            c.delete(&key(number)).unwrap()
        } else {
            c.put(&key(number), &record(group, number)).unwrap()
        };
    }
}

fn regions(dir: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "pmem")).collect()
}

#[test]
fn a_file_system_without_persistent_memory_is_refused_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path().join("db"), options()).unwrap();
    let Err(error) = db.create_collection("c", with_index(DAX)) else {
        // On persistent memory nothing is refused.
        return;
    };
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.message().contains("MAP_SYNC") && error.message().contains("region=disk"), "{error}");
    // The database stays usable, and can be reopened.
    db.create_collection("c", with_index("group:ps-tree")).unwrap().put(&key(1), &record(1, 1)).unwrap();
    db.close().unwrap();
    let db = Db::open(dir.path().join("db"), options()).unwrap();
    assert_eq!(db.collections(), ["c"]);
    verify(&db, "after the refusal");
    assert!(regions(&dir.path().join("db")).is_empty());
}

#[test]
fn an_index_in_a_mapped_file_is_reopened_and_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let (path, pmem) = (dir.path().join("db"), dir.path().join("pmem"));
    fs::create_dir(&pmem).unwrap();
    let components = Components::system().vfs(Arc::new(DiskVfs::new().assume_durable()));
    let open = |options: Options| Db::open_with(&path, options, components.clone());
    let db = open(options().dax_dir(&pmem)).unwrap();
    db.create_collection("c", with_index(DAX)).unwrap();
    let mut rng = SimRng::new(1);
    fill(&db, &mut rng, 800);
    verify(&db, "while it is open");
    assert_eq!(regions(&pmem).len(), 1);
    db.close().unwrap();
    // The database stores the location of the file.
    let db = open(options()).unwrap();
    verify(&db, "after a close");
    fill(&db, &mut rng, 50);
    db.close().unwrap();
    // A read-only opening changes nothing in it.
    let file = regions(&pmem).remove(0);
    let before = fs::read(&file).unwrap();
    let read_only = Db::open_read_only_with(&path, options(), components.clone()).unwrap();
    verify(&read_only, "read-only");
    drop(read_only);
    assert!(fs::read(&file).unwrap() == before, "a read-only opening changed the file");
    // The directory may move.
    let moved = dir.path().join("moved");
    fs::rename(&pmem, &moved).unwrap();
    let db = open(options()).unwrap();
    let index = db.collection("c").unwrap().index("group").unwrap();
    assert_eq!(index.state(), IndexState::Damaged);
    let problem = index.problem().unwrap().to_string();
    assert!(problem.contains("dax_dir") && problem.contains(".pmem"), "{problem}");
    fill(&db, &mut rng, 70);
    db.close().unwrap();
    let db = open(options().dax_dir(&moved)).unwrap();
    verify(&db, "after a move");
    db.collection("c").unwrap().drop_index("group").unwrap();
    assert!(regions(&moved).is_empty());
    db.close().unwrap();
    let error = open(options().dax_dir("relative"))
        .and_then(|db| db.create_collection("e", with_index(DAX)).map(drop));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// The directory of the database is that of persistent memory too, by another path.
#[cfg(unix)]
#[test]
fn a_region_in_the_directory_of_the_database_is_found_by_any_path() {
    let dir = tempfile::tempdir().unwrap();
    let (path, link) = (dir.path().join("db"), dir.path().join("link"));
    fs::create_dir(&path).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let components = Components::system().vfs(Arc::new(DiskVfs::new().assume_durable()));
    let open = |options: Options| Db::open_with(&link, options, components.clone()).unwrap();
    let db = open(options().dax_dir(&path));
    db.create_collection("c", with_index(DAX)).unwrap();
    fill(&db, &mut SimRng::new(1), 300);
    db.close().unwrap();
    let db = open(options());
    verify(&db, "opened by another path");
    assert_eq!(regions(&path).len(), 1);
    assert!(db.check(true).unwrap().is_sound());
}

#[test]
fn an_index_is_built_beside_writers_and_dropped_with_its_collection() {
    let vfs = Arc::new(MemVfs::new());
    let components = Components::in_memory().vfs(vfs.clone());
    let db = Db::open_with("db", options(), components.clone()).unwrap();
    let c = db.create_collection("c", CollectionOptions::json()).unwrap();
    let mut rng = SimRng::new(2);
    fill(&db, &mut rng, 600);
    c.create_index(DAX.parse().unwrap()).unwrap();
    verify(&db, "built");
    fill(&db, &mut rng, 300);
    verify(&db, "written since");
    drop((c, db));
    let db = Db::open_with("db", options(), components.clone()).unwrap();
    verify(&db, "opened again");
    let files =
        || vfs.list(Path::new("db")).unwrap().into_iter().filter(|name| name.ends_with(".pmem")).count();
    assert_eq!(files(), 1);
    db.drop_collection("c").unwrap();
    assert_eq!(files(), 0);
}

#[test]
fn a_checkpoint_contains_the_index_and_continues_in_place() {
    let vfs = Arc::new(MemVfs::new());
    let components = Components::in_memory().vfs(vfs.clone());
    let db = Db::open_with("db", options(), components.clone()).unwrap();
    db.create_collection("c", with_index(DAX)).unwrap();
    let mut rng = SimRng::new(3);
    fill(&db, &mut rng, 700);
    db.checkpoint("copy").unwrap();
    fill(&db, &mut rng, 100);
    verify(&db, "the original");
    let endings = |ending: &str| {
        vfs.list(Path::new("copy")).unwrap().into_iter().filter(|name| name.ends_with(ending)).count()
    };
    assert_eq!((endings(".region"), endings(".pmem")), (1, 0), "the checkpoint has pages");
    let copy = Db::open_read_only_with("copy", options(), components.clone()).unwrap();
    verify(&copy, "the copy, read-only");
    drop(copy);
    for _ in 0..2 {
        let copy = Db::open_with("copy", options(), components.clone()).unwrap();
        verify(&copy, "the copy");
        fill(&copy, &mut rng, 200);
        verify(&copy, "the copy, written");
        copy.close().unwrap();
        assert_eq!((endings(".region"), endings(".pmem")), (0, 1), "in place again");
    }
}

#[test]
fn after_every_power_cut_the_index_has_the_writes_of_the_log() {
    let mut cuts = 0;
    for seed in 0..3 {
        let vfs = SimVfs::new(seed);
        let mut rng = SimRng::new(seed);
        let spec = ["", ",skey=trie", ",page_bytes=512"][seed as usize];
        let sync = [SyncMode::None, SyncMode::Always, SyncMode::Batch][seed as usize];
        let open = |vfs: &SimVfs| {
            let components =
                Components::system().vfs(Arc::new(vfs.clone())).runtime(Arc::new(SimRuntime::new(seed)));
            Db::open_with("db", options().sync(sync), components)
        };
        let mut db = open(&vfs).unwrap();
        db.create_collection("c", with_index(&format!("{DAX}{spec}"))).unwrap();
        vfs.record_images(RecordImages::SyncPoints);
        for step in 0..14 {
            fill(&db, &mut rng, 12);
            if step % 5 == 4 {
                db.close().unwrap();
                db = open(&vfs).unwrap();
            } else if step % 4 == 3 {
                db.flush().unwrap();
            }
            for image in vfs.take_images() {
                if !rng.one_in(8) {
                    continue;
                }
                let mode = *rng.pick(&CrashMode::EACH).unwrap();
                let disk = image.vfs.crash_with_seed(mode, rng.next_u64());
                let context = format!("seed {seed}, step {step}, before {}, {mode:?}", image.before);
                let found = open(&disk).unwrap_or_else(|error| panic!("{context}: {error:?}"));
                verify(&found, &context);
                fill(&found, &mut rng, 10);
                if rng.one_in(3) {
                    verify(&found, &format!("{context}, written"));
                }
                cuts += 1;
            }
        }
    }
    assert!(cuts > 30, "only {cuts} power cuts");
}

/// Both copies have the same names, and the same file except for later writes.
#[test]
fn the_region_of_another_copy_of_the_database_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let open = |name: &str| {
        let components = Components::system().vfs(Arc::new(DiskVfs::new().assume_durable()));
        Db::open_with(path(name), options(), components).unwrap()
    };
    let mut rng = SimRng::new(4);
    let db = open("one");
    db.create_collection("c", with_index(DAX)).unwrap();
    fill(&db, &mut rng, 300);
    db.close().unwrap();
    fs::create_dir(path("other")).unwrap();
    for file in fs::read_dir(path("one")).unwrap().map(|entry| entry.unwrap().path()) {
        fs::copy(&file, path("other").join(file.file_name().unwrap())).unwrap();
    }
    let region = regions(&path("one")).remove(0);
    let common = fs::read(&region).unwrap();
    for name in ["one", "other"] {
        let db = open(name);
        verify(&db, name);
        fill(&db, &mut rng, 100);
        db.close().unwrap();
    }
    let of_other = fs::read(path("other").join(region.file_name().unwrap())).unwrap();
    let own = fs::read(&region).unwrap();
    for (foreign, what) in [(&of_other, "of the other copy"), (&common, "from before the copy")] {
        fs::write(&region, foreign).unwrap();
        let components = Components::system().vfs(Arc::new(DiskVfs::new().assume_durable()));
        let db = Db::open_read_only_with(path("one"), options(), components).unwrap();
        let index = db.collection("c").unwrap().index("group").unwrap();
        assert_eq!(index.state(), IndexState::Damaged, "{what}");
        let damage = index.damage().unwrap().to_string();
        assert!(damage.contains("does not belong to this database"), "{what}: {damage}");
        assert_eq!(db.collection("c").unwrap().iter().unwrap().filter(Result::is_err).count(), 0);
    }
    // With its own file it is whole again; with the other one it can be rebuilt.
    fs::write(&region, own).unwrap();
    let db = open("one");
    verify(&db, "its own file");
    db.close().unwrap();
    fs::write(&region, common).unwrap();
    let db = open("one");
    let c = db.collection("c").unwrap();
    assert_eq!(c.index("group").unwrap().state(), IndexState::Damaged);
    fill(&db, &mut rng, 50);
    c.rebuild_index("group", &bolide::BuildOptions::default()).unwrap();
    verify(&db, "rebuilt");
    drop((c, db));
    verify(&open("one"), "opened again");
}
