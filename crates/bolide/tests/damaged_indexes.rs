//! Damage of index files: with files of indexes missing or damaged, records are read and written as before, no query
//! answers differently, and the next opening for writing builds the indexes again.

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide::storage::{SimVfs, Vfs};
use bolide::{
    Answer, Answers, Collection, CollectionOptions, Components, Db, ErrorKind, FindOptions, IndexState,
    Layout, Options, Query, Result,
};
use support::tiny;

const KINDS: [&str; 9] = [
    "n:composite",
    "n:composite:maintenance=synchronous",
    "n:composite:order=primary-key",
    "n:composite:validation=key-index",
    "n:lazy",
    "n:eager",
    "n:eager:split=off",
    "n:ps-tree",
    "n:ps-tree:include=pad",
];
const RECORDS: u64 = 160;
const VALUES: u64 = 5;

type Model = BTreeMap<Vec<u8>, u64>;

fn components(disk: &SimVfs) -> Components {
    support::components(1).vfs(Arc::new(disk.clone()))
}

fn options() -> Options {
    tiny().memtable_bytes(4 << 20)
}

fn open(disk: &SimVfs) -> Result<Db> {
    Db::open_with("db", options(), components(disk))
}

fn put(collection: &Collection, model: &mut Model, key: u64, value: u64) {
    let name = format!("k{key:04}").into_bytes();
    collection.put(&name, format!(r#"{{"n":{value},"pad":"{key:030}"}}"#).as_bytes()).unwrap();
    model.insert(name, value);
}

fn delete(collection: &Collection, model: &mut Model, key: u64) {
    let name = format!("k{key:04}").into_bytes();
    collection.delete(&name).unwrap();
    model.remove(&name);
}

/// A database with an index of `kind`: its disk after a clean close or a crash, and its records.
fn sample(kind: &str, layout: Layout, closed: bool) -> (SimVfs, Model) {
    let disk = SimVfs::new(7);
    let mut model = Model::new();
    let db = open(&disk).unwrap();
    let made = CollectionOptions::json().layout(layout).index(kind.parse().unwrap());
    let collection = db.create_collection("c", made).unwrap();
    for round in 0..3 {
        for key in (0..RECORDS).filter(|key| round == 0 || (key + round) % 3 == 0) {
            put(&collection, &mut model, key, (key + round) % VALUES);
        }
        (0..10).for_each(|key| delete(&collection, &mut model, 7 * key + round));
        db.flush().unwrap();
    }
    // Writes that only the log has.
    (0..30).for_each(|key| put(&collection, &mut model, 5 * key, key % VALUES));
    delete(&collection, &mut model, 33);
    drop(collection);
    if closed {
        db.close().unwrap();
        return (disk, model);
    }
    db.sync().unwrap();
    let copy = disk.clone_disk();
    (copy, model)
}

fn verify(db: &Db, model: &Model, context: &str) {
    let collection = db.collection("c").unwrap();
    assert_eq!(collection.iter().unwrap().count(), model.len(), "{context}");
    for key in model.keys() {
        assert!(collection.get(key).unwrap().is_some(), "{context}");
    }
    for value in 0..=VALUES {
        let query = Query::new().eq("n", value).keys_only();
        // Each way to query is the first one after the damage in some contexts.
        let pulls = (value + context.len() as u64).is_multiple_of(2);
        let found: Result<Vec<Answer>> = match pulls {
            true => {
                let answers = collection.answers(&query, &FindOptions::default());
                answers.and_then(|answers| answers.into_iter().collect())
            }
            false => collection.find(&query).map(Answers::into_vec),
        };
        let found = found.unwrap_or_else(|error| panic!("{context}: {error}"));
        let mut keys: Vec<Vec<u8>> = found.into_iter().map(|answer| answer.key).collect();
        keys.sort();
        let wanted: Vec<Vec<u8>> =
            model.iter().filter(|(_, found)| **found == value).map(|(key, _)| key.clone()).collect();
        assert_eq!(keys, wanted, "{context}: the records with {value}");
    }
}

/// The files without which the database still opens: those of its index, and sorted views.
fn derived_files(disk: &SimVfs) -> Vec<PathBuf> {
    let is_derived = |path: &PathBuf| {
        let copy = disk.clone_disk();
        let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
        if !["sst", "region", "remix"].contains(&end) {
            return false;
        }
        copy.remove(path).unwrap();
        match Db::open_read_only_with("db", options(), components(&copy)) {
            Ok(_) => true,
            Err(error) => {
                assert!(error.kind() == ErrorKind::Corruption && end == "sst", "{}: {error}", path.display());
                false
            }
        }
    };
    disk.files().into_iter().filter(is_derived).collect()
}

/// Opens a damaged disk to read and to write, and checks that records and answers are right all the time.
fn survive(disk: &SimVfs, model: &Model, context: &str) {
    let mut model = model.clone();
    let db = Db::open_read_only_with("db", options(), components(disk)).unwrap();
    verify(&db, &model, &format!("{context}, read-only"));
    drop(db);
    let db = open(disk).unwrap_or_else(|error| panic!("{context}: {error}"));
    let collection = db.collection("c").unwrap();
    for key in 0..40 {
        put(&collection, &mut model, 3 * key, key % VALUES);
    }
    (0..8).for_each(|key| delete(&collection, &mut model, 11 * key));
    verify(&db, &model, &format!("{context}, written"));
    db.flush().unwrap();
    db.compact().unwrap();
    verify(&db, &model, &format!("{context}, compacted"));
    // Detects damage that no query read.
    db.check(false).unwrap();
    put(&collection, &mut model, 12, 3);
    delete(&collection, &mut model, 15);
    verify(&db, &model, &format!("{context}, checked"));
    drop((collection, db));
    let db = open(disk).unwrap();
    let index = db.collection("c").unwrap().index("n").unwrap();
    assert_eq!(index.state(), IndexState::Ready, "{context}");
    verify(&db, &model, &format!("{context}, opened again"));
    let report = db.check(true).unwrap();
    assert!(report.is_sound(), "{context}: {report}");
    drop(db);
    let db = open(disk).unwrap();
    verify(&db, &model, &format!("{context}, opened a third time"));
    assert!(db.check(true).unwrap().is_sound(), "{context}");
}

type Damage = fn(&SimVfs, &Path);
const DAMAGES: [(&str, Damage); 4] = [
    ("removed", |disk, path| disk.remove(path).unwrap()),
    ("truncated", |disk, path| disk.damage(path, |bytes| bytes.truncate(bytes.len() / 2)).unwrap()),
    ("a bit flipped", |disk, path| disk.damage(path, |bytes| bytes[40] ^= 4).unwrap()),
    ("the last bit flipped", |disk, path| {
        let flip = |bytes: &mut Vec<u8>| bytes.last_mut().into_iter().for_each(|byte| *byte ^= 1);
        disk.damage(path, flip).unwrap();
    }),
];

fn damage_indexes(layout: Layout) {
    for kind in KINDS {
        for closed in [true, false] {
            let (disk, model) = sample(kind, layout, closed);
            let files = derived_files(&disk);
            assert!(!files.is_empty(), "{kind}");
            for (what, damage) in DAMAGES {
                for path in &files {
                    let copy = disk.clone_disk();
                    damage(&copy, path);
                    survive(&copy, &model, &format!("{kind}, {layout:?}, {}, {what}", path.display()));
                }
                let copy = disk.clone_disk();
                files.iter().for_each(|path| damage(&copy, path));
                survive(&copy, &model, &format!("{kind}, {layout:?}, all files, {what}"));
            }
        }
    }
}

#[test]
fn records_survive_damage_of_index_files_in_leveled_trees() {
    damage_indexes(Layout::Leveled);
}

#[test]
fn records_survive_damage_of_index_files_in_partitioned_trees() {
    damage_indexes(Layout::Partitioned);
}

#[test]
fn a_damaged_index_is_named_with_its_cause() {
    let (disk, model) = sample("n:composite", Layout::Leveled, true);
    let file = derived_files(&disk).remove(0);
    let name = file.file_name().unwrap().to_str().unwrap();
    disk.damage(&file, |bytes| bytes[40] ^= 4).unwrap();
    let db = open(&disk).unwrap();
    verify(&db, &model, "after a query has read the damage");
    let collection = db.collection("c").unwrap();
    let info = collection.index("n").unwrap();
    assert_eq!(info.state(), IndexState::Damaged);
    assert!(info.damage().unwrap().message().contains(name), "{:?}", info.damage());
    let forced = collection.find(&Query::new().eq("n", 1).using_index("n")).unwrap_err();
    assert!(forced.is_corruption() && forced.message().contains(name), "{forced}");
    let report = db.check(true).unwrap();
    assert!(report.problems().iter().any(|what| what.contains("index \"n\"") && what.contains(name)));
    // An explicit rebuild needs no new opening.
    collection.rebuild_index("n", &bolide::BuildOptions::default()).unwrap();
    assert_eq!(collection.index("n").unwrap().state(), IndexState::Ready);
    let report = db.check(true).unwrap();
    assert!(report.is_sound(), "{report}");
    verify(&db, &model, "rebuilt");
}

/// A crash between the opening that empties the index and the end of the build.
#[test]
fn a_rebuild_continues_after_a_crash() {
    let (disk, mut model) = sample("n:eager", Layout::Leveled, false);
    derived_files(&disk).iter().for_each(|path| disk.remove(path).unwrap());
    for syncs in 0..40 {
        let copy = disk.clone_disk();
        copy.power_off_after_syncs(syncs);
        let _ = open(&copy);
        let rest = copy.crash(bolide::storage::CrashMode::None);
        let db = open(&rest).unwrap_or_else(|error| panic!("{syncs} syncs: {error}"));
        verify(&db, &model, &format!("{syncs} syncs"));
        let collection = db.collection("c").unwrap();
        assert_eq!(collection.index("n").unwrap().state(), IndexState::Ready);
        assert!(db.check(true).unwrap().is_sound(), "{syncs} syncs");
    }
    let db = open(&disk).unwrap();
    put(&db.collection("c").unwrap(), &mut model, 1, 1);
    verify(&db, &model, "at last");
}

/// Openings that close at once, as those of short commands.
#[test]
fn a_rebuild_completes_over_openings_that_close_at_once() {
    for kind in ["n:composite", "n:composite:maintenance=synchronous", "n:composite:validation=key-index"] {
        let disk = SimVfs::new(7);
        let components = || support::threaded().vfs(Arc::new(disk.clone()));
        let db = Db::open_with("db", Options::default(), components()).unwrap();
        let made = CollectionOptions::json().index(kind.parse().unwrap());
        let collection = db.create_collection("c", made).unwrap();
        for key in 0..6000 {
            collection.put(format!("k{key:05}").as_bytes(), br#"{"n":1}"#).unwrap();
        }
        db.compact().unwrap();
        drop(collection);
        db.close().unwrap();
        derived_files(&disk).iter().for_each(|path| disk.remove(path).unwrap());
        let mut openings = 0;
        loop {
            let db = Db::open_with("db", Options::default(), components()).unwrap();
            let info = db.collection("c").unwrap().index("n").unwrap();
            if info.state() == IndexState::Ready {
                break;
            }
            assert!(info.damage().is_some(), "{kind}: {openings} openings: {:?}", info.state());
            openings += 1;
            assert!(openings < 500, "{kind}: {:?}", info.progress());
        }
        println!("{kind}: {openings} openings");
        let db = Db::open_with("db", Options::default(), components()).unwrap();
        let found = db.collection("c").unwrap().find(&Query::new().eq("n", 1).using_index("n").keys_only());
        assert_eq!(found.unwrap().len(), 6000, "{kind}");
        assert!(db.check(true).unwrap().is_sound(), "{kind}");
    }
}

/// A build whose index is isolated while the database closes.
#[test]
fn a_build_that_is_isolated_stays_damaged() {
    let disk = SimVfs::new(7);
    let components = || support::threaded().vfs(Arc::new(disk.clone()));
    let db = Db::open_with("db", Options::default(), components()).unwrap();
    let collection = db.create_collection("c", CollectionOptions::json()).unwrap();
    for key in 0..3000 {
        collection.put(format!("k{key:05}").as_bytes(), br#"{"n":1}"#).unwrap();
    }
    db.flush().unwrap();
    let slow = bolide::BuildOptions::default().records_per_second(400);
    let build = collection.create_index_background("n:eager".parse().unwrap(), &slow).unwrap();
    while build.progress().records == 0 {
        std::thread::yield_now();
    }
    db.flush().unwrap();
    for file in derived_files(&disk) {
        disk.damage(&file, |bytes| bytes[40] ^= 4).unwrap();
    }
    assert!(!db.check(false).unwrap().is_sound());
    assert_eq!(collection.index("n").unwrap().state(), IndexState::Damaged);
    drop((build, collection));
    db.close().unwrap();
    let db = Db::open_read_only_with("db", Options::default(), components()).unwrap();
    assert_eq!(db.collection("c").unwrap().index("n").unwrap().state(), IndexState::Damaged);
}
