//! `bolide repair`: its output, its refusals, and the content of the new database.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use crate::program::{Place, name_of};

/// A database with sstables and with rows in the log alone, under typed keys, with an index.
fn place() -> Place {
    let place = Place::new();
    let rows: String =
        (0..3000).map(|id| format!("{{\"id\":{id},\"n\":{},\"pad\":\"{id:040}\"}}\n", id % 7)).collect();
    place.import(&rows, "--index n:composite");
    place.ok("compact db");
    let rows: String = (0..50).map(|id| format!("{{\"id\":{id},\"n\":100}}\n")).collect();
    place.import(&rows, "");
    place
}

/// The names and the bytes of a directory.
fn bytes_of(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.clone(), std::fs::read(&path).unwrap())).collect()
}

fn flip(path: &Path, at: impl Fn(usize) -> usize) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = at(bytes.len());
    bytes[at] ^= 4;
    std::fs::write(path, bytes).unwrap();
}

/// The sstable of the collection: the largest.
fn table_of_records(place: &Place) -> PathBuf {
    let tables = place.database_files(".sst");
    tables.into_iter().max_by_key(|path| std::fs::metadata(path).unwrap().len()).unwrap()
}

#[test]
fn an_intact_database_is_copied_and_not_changed() {
    let place = place();
    let before = bytes_of(&place.path("db"));
    let scan = place.ok("scan db c --format ndjson").stdout;
    let found = place.ok("find db c --eq n=100 --format ndjson").stdout;
    let run = place.ok("repair db");
    assert_eq!(bytes_of(&place.path("db")), before);
    let rows = run.json();
    assert_eq!(rows[0]["repaired"], "collection");
    assert_eq!((rows[0]["collection"].as_str(), rows[0]["records"].as_u64()), (Some("c"), Some(3000)));
    assert_eq!((rows[1]["repaired"].as_str(), rows[1]["index"].as_str()), (Some("index"), Some("n")));
    assert_eq!(rows.len(), 2, "{}", run.stdout);
    assert!(run.stderr.contains("the new database is db-repaired"), "{}", run.stderr);
    assert_eq!(place.ok("scan db-repaired c --format ndjson").stdout, scan);
    // Including sequence numbers.
    assert_eq!(place.ok("find db-repaired c --eq n=100 --format ndjson").stdout, found);
    place.ok("check db-repaired --deep");
    assert!(!place.path("db-repaired.incomplete").exists() && !place.path("db-repaired/scratch").exists());
}

#[test]
fn a_damaged_block_is_reported_with_its_keys() {
    let place = place();
    let path = table_of_records(&place);
    flip(&path, |length| length / 3);
    let before = bytes_of(&place.path("db"));
    let run = place.run("repair db --to new --format ndjson").expect_status(1, "repair");
    assert_eq!(bytes_of(&place.path("db")), before);
    let lost: Vec<_> = run.json().into_iter().filter(|row| row["lost"].is_string()).collect();
    let [loss] = &lost[..] else { panic!("{}", run.stdout) };
    assert_eq!((loss["lost"].as_str(), loss["collection"].as_str()), (Some("block"), Some("c")));
    assert_eq!(loss["file"], name_of(&path));
    assert!(loss["from_byte"].as_u64() < loss["to_byte"].as_u64(), "{loss}");
    assert!(run.stderr.contains("lost: block") && run.stderr.contains("what to do"), "{}", run.stderr);
    let left = place.ok("scan new c --format ndjson").stdout.lines().count();
    assert!((2800..3000).contains(&left), "{left}");
    place.ok("check new --deep");
}

#[test]
fn without_current_and_manifest_the_files_identify_themselves() {
    let place = place();
    let scan = place.ok("scan db c --format ndjson").stdout;
    for path in place.database_files("CURRENT").into_iter().chain(place.database_files("MANIFEST")) {
        std::fs::remove_file(path).unwrap();
    }
    let run = place.run("get db c 1").expect_status(1, "get");
    assert!(run.stderr.contains("bolide repair"), "{}", run.stderr);
    let run = place.run("repair db").expect_status(1, "repair");
    assert!(run.stderr.contains("lost: manifest"), "{}", run.stderr);
    assert_eq!(place.ok("scan db-repaired c --format ndjson").stdout, scan);
    assert_eq!(place.ok("find db-repaired c --eq n=100").keys().len(), 50);
    place.ok("check db-repaired --deep");
}

#[test]
fn a_damaged_log_is_read_after_the_damage() {
    let place = place();
    place.run_with("put db c 7", &["{\"id\":7,\"n\":101}"], "").expect_status(0, "put");
    // The rows of the second import are the last but one record of the last segment.
    let logs = place.database_files(".wal");
    let [.., path, _] = &logs[..] else { panic!("{logs:?}") };
    flip(path, |_| 200);
    place.run("get db c 1").expect_status(1, "get");
    let run = place.run("repair db --format ndjson").expect_status(1, "repair");
    let lost: Vec<_> = run.json().into_iter().filter(|row| row["lost"].is_string()).collect();
    let [loss] = &lost[..] else { panic!("{}", run.stdout) };
    assert_eq!((loss["lost"].as_str(), loss["file"].as_str()), (Some("log"), Some(&*name_of(path))));
    // The sstables have an older row under each key of the lost record; the records after it are read.
    assert_eq!(place.ok("scan db-repaired c --format ndjson").keys().len(), 3000);
    assert_eq!(place.ok("find db-repaired c --eq n=100").keys().len(), 0);
    assert_eq!(place.ok("find db-repaired c --eq n=101").keys(), ["7"]);
    place.ok("check db-repaired --deep");
}

#[test]
fn invalid_sources_and_targets_are_refused() {
    let place = place();
    std::fs::create_dir(place.path("empty")).unwrap();
    let run = place.run("repair empty").expect_status(1, "repair");
    assert!(run.stderr.contains("contains no file of a database"), "{}", run.stderr);
    let run = place.run("repair nowhere").expect_status(1, "repair");
    assert!(run.stderr.contains("nowhere does not exist"), "{}", run.stderr);
    std::fs::create_dir(place.path("full")).unwrap();
    std::fs::write(place.path("full/file"), "x").unwrap();
    let run = place.run("repair db --to full").expect_status(1, "repair");
    assert!(run.stderr.contains("full exists and is not empty"), "{}", run.stderr);
    let run = place.run("repair db --to full/file").expect_status(2, "repair");
    assert!(run.stderr.contains("it is a file"), "{}", run.stderr);
    place.run("repair db --to db/new").expect_status(2, "repair");
    place.run("repair db --to db").expect_status(2, "repair");
    // For any spelling of the path, the damaged database is not changed.
    std::fs::rename(place.path("db"), place.path("x.incomplete")).unwrap();
    let before = bytes_of(&place.path("x.incomplete"));
    for to in
        ["x", "y/../x", "n/m/../../x", "./x", "empty/../x", "x.incomplete/a", "x.incomplete/a/b", "nope/a"]
    {
        let run = place.run(&format!("repair x.incomplete --to {to}"));
        assert!(run.status == 1 || run.status == 2, "{to}: {}", run.stderr);
        assert_eq!(bytes_of(&place.path("x.incomplete")), before, "{to}");
    }
    std::fs::rename(place.path("x.incomplete"), place.path("db")).unwrap();
    let run = place.run("repair db/CURRENT").expect_status(2, "repair");
    assert!(run.stderr.contains("name the directory of the database"), "{}", run.stderr);
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("nothing", place.path("link")).unwrap();
        let run = place.run("repair db --to link").expect_status(2, "repair");
        assert!(run.stderr.contains("a link to nothing"), "{}", run.stderr);
    }
    let lock = File::open(place.path("db/LOCK")).unwrap();
    lock.lock().unwrap();
    let run = place.run("repair db").expect_status(1, "repair");
    assert!(run.stderr.contains("open for writing"), "{}", run.stderr);
    drop(lock);
    // An empty directory is accepted.
    place.ok("repair db --to empty");
    place.ok("get empty c 1");
    assert!(!place.path("db-repaired").exists());
}
