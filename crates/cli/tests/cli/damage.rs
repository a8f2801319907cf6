//! Damaged or missing files, and concurrent writers: messages and repairs.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use bolide::key::KeyFormat;
use bolide::{CollectionOptions, Db, Layout, Options};

use serde_json::json;

use crate::program::{Place, Run, name_of};

/// A database with sorted views on disk, of partitions with several sorted runs.
fn with_views() -> Place {
    let place = Place::new();
    let db = Db::open(place.path("db"), Options::default().memtable_bytes(64 << 10)).unwrap();
    let options = CollectionOptions::json().keys(KeyFormat::Typed).layout(Layout::Partitioned);
    let collection = db.create_collection("c", options.index("n:composite".parse().unwrap())).unwrap();
    for round in 0..4 {
        for row in 0..4000_i64 {
            let id = row * 7919 % 4001;
            let record = format!("{{\"id\":{id},\"n\":{},\"round\":{round}}}", id % 7);
            collection.put(&KeyFormat::Typed.parse(&id.to_string()), record.as_bytes()).unwrap();
        }
        db.flush().unwrap();
    }
    db.wait_until_settled().unwrap();
    drop((collection, db));
    assert!(!place.database_files(".remix").is_empty(), "no sorted view");
    place
}

fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 4;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn check_names_the_damaged_file() {
    let place = Place::new();
    let rows: String = (0..3000).map(|id| format!("{{\"id\":{id},\"n\":{}}}\n", id % 7)).collect();
    place.import(&rows, "--index n");
    place.ok("compact db");
    let report = place.ok("check db --deep").json();
    assert!(!report.is_empty());
    let path = place.database_file(".sst");
    flip(&path);
    for line in ["check db", "check db --repair"] {
        let run = place.run(line).expect_status(1, line);
        assert!(run.stderr.contains(&name_of(&path)), "{line}: {}", run.stderr);
        assert!(run.stderr.contains("damaged"), "{line}: {}", run.stderr);
        assert!(run.stderr.contains("restore damaged files"), "{line}: {}", run.stderr);
        assert!(!run.stderr.contains("another process"), "{line}: {}", run.stderr);
    }
}

#[test]
fn check_rebuilds_damaged_and_missing_sorted_views() {
    let place = with_views();
    let before = place.ok("scan db c --format ndjson").stdout;
    for damage in [flip as fn(&Path), |path| std::fs::remove_file(path).unwrap()] {
        let path = place.database_file(".remix");
        damage(&path);
        let run = place.run("check db --deep").expect_status(1, "check");
        assert!(run.stderr.contains(&name_of(&path)), "{}", run.stderr);
        assert!(run.stderr.contains("check DB --repair"), "{}", run.stderr);
        assert!(!run.stderr.contains("restore"), "{}", run.stderr);
        assert_eq!(place.ok("scan db c --format ndjson").stdout, before);
        let run = place.ok("check db --repair");
        assert!(run.json().iter().any(|row| row["sorted_views"].as_u64() > Some(0)), "{}", run.stdout);
        assert!(!path.exists(), "{} was not replaced", path.display());
        place.ok("check db --deep");
        assert_eq!(place.ok("scan db c --format ndjson").stdout, before);
    }
}

/// A collection of many records with an index of kind `composite`, all in sstables, and the files of the index.
fn with_index(rows: u64) -> (Place, Vec<PathBuf>) {
    with_index_of(rows, "n:composite")
}

/// As [`with_index`], with an index of this specification; the files of its key index are included.
fn with_index_of(rows: u64, index: &str) -> (Place, Vec<PathBuf>) {
    let place = Place::new();
    let rows: String = (0..rows).map(|id| format!("{{\"id\":{id},\"n\":{}}}\n", id % 7)).collect();
    place.import(&rows, &format!("--index {index}"));
    place.ok("compact db");
    let files = place.database_files(".sst");
    let is_of_index = |path: &PathBuf| {
        let aside = path.with_extension("aside");
        std::fs::rename(path, &aside).unwrap();
        let opens = Db::open_read_only(place.path("db"), Options::default()).is_ok();
        std::fs::rename(&aside, path).unwrap();
        opens
    };
    let files: Vec<PathBuf> = files.into_iter().filter(is_of_index).collect();
    assert!(!files.is_empty());
    (place, files)
}

#[test]
fn each_verb_names_a_damaged_index_and_check_repairs_it() {
    let (place, files) = with_index(3000);
    std::fs::remove_file(&files[0]).unwrap();
    let name = name_of(&files[0]);
    for line in ["get db c 1", "find db c --eq n=1 --limit 1", "stats db", "check db", "index list db"] {
        let run = place.run(line);
        let note = "note: collection `c`: the index \"n\" is damaged: ";
        assert!(run.stderr.contains(note) && run.stderr.contains(&name), "{line}: {}", run.stderr);
    }
    let of_index = |run: &Run| run.json().into_iter().find(|row| row["tree"] == "index n").unwrap();
    let row = of_index(&place.ok("stats db"));
    assert_eq!(row["state"], "damaged");
    assert!(row["problem"].as_str().unwrap().contains(&name), "{row}");
    place.ok("check db --repair --deep");
    let run = place.ok("stats db");
    assert_eq!((&of_index(&run)["problem"], run.stderr.as_str()), (&json!(null), ""));
    assert_eq!(place.ok("index list db").json()[0]["state"], "ready");
    assert_eq!(place.found("--eq n=1 --index n").len(), 429);
}

#[test]
fn a_query_that_reads_a_damaged_index_names_it() {
    let (place, files) = with_index(3000);
    flip(&files[0]);
    for line in ["find db c --eq n=2 --limit 400", "find db c --eq n=2 --count"] {
        let run = place.ok(line);
        let note = "note: collection `c`: the index \"n\" is damaged: ";
        assert!(
            run.stderr.contains(note) && run.stderr.contains(&name_of(&files[0])),
            "{line}: {}",
            run.stderr
        );
        assert!(!run.stderr.contains("no index serves"), "{line}: {}", run.stderr);
    }
}

#[test]
fn a_rebuild_of_an_index_whose_key_index_is_damaged_is_refused() {
    let (place, files) = with_index_of(3000, "n:composite:validation=key-index");
    let damaged = |file: &&PathBuf| {
        let whole = std::fs::read(file).unwrap();
        flip(file);
        let run = place.run("index rebuild db c n");
        if run.status != 0 {
            assert!(run.stderr.contains("needs the key index, which is damaged"), "{}", run.stderr);
            assert!(run.stderr.contains(&name_of(file)) && run.stderr.contains("--repair"), "{}", run.stderr);
            return true;
        }
        std::fs::write(file, whole).unwrap();
        false
    };
    // A rebuild does not read the sstable of the index, which it replaces.
    assert!(files.iter().any(|file| damaged(&file)), "{files:?}");
    place.ok("check db --repair --deep");
    place.ok("check db --deep");
    assert_eq!(place.found("--eq n=1 --index n").len(), 429);
}

#[test]
fn check_repairs_an_index_whose_damage_it_detects() {
    let (place, files) = with_index(3000);
    flip(&files[0]);
    let list = place.ok("index list db").json();
    assert_eq!(list[0]["stale_percent"], json!(null));
    assert!(list[0]["problem"].as_str().unwrap().contains(&name_of(&files[0])), "{list:?}");
    place.run("check db --deep").expect_status(1, "check");
    let run = place.ok("check db --deep --repair");
    assert_eq!(run.json()[1]["entries"], 3000);
    assert_eq!(place.ok("index list db").json()[0]["problem"], json!(null));
    place.ok("check db --deep");
}

#[test]
fn a_directory_in_place_of_a_file_of_an_index_is_damage() {
    let (place, files) = with_index(300);
    std::fs::remove_file(&files[0]).unwrap();
    std::fs::create_dir(&files[0]).unwrap();
    assert_eq!(place.found("--eq n=1").len(), 43);
    place.ok("put db c 7 {\"id\":7,\"n\":1}");
    place.run("check db").expect_status(1, "check");
    place.ok("check db --repair --deep");
    assert_eq!(place.found("--eq n=1 --index n").len(), 44);
}

#[test]
fn zeroed_files_that_the_manifest_names_are_damage() {
    let place = Place::new();
    place.import("{\"id\":1}\n", "");
    place.ok("compact db");
    place.run_with("put db c 2 {\"id\":2}", &[], "").expect_status(0, "put");
    for end in [".sst", ".wal"] {
        let path = place.database_files(end).pop().unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, vec![0; whole.len()]).unwrap();
        let run = place.run("scan db c").expect_status(1, end);
        assert!(run.stderr.contains(&name_of(&path)) && run.stderr.contains("damaged"), "{}", run.stderr);
        assert!(!run.stderr.contains("a version of Bolide"), "{}", run.stderr);
        std::fs::write(&path, whole).unwrap();
    }
    place.ok("check db --deep");
}

#[test]
fn a_missing_marker_is_noted_only_after_a_crash() {
    let place = Place::new();
    place.import("{\"id\":1}\n", "");
    place.ok("put db c 2 {\"id\":2}");
    std::fs::remove_file(place.path("db/SYNCED")).unwrap();
    for line in ["check db", "stats db", "put db c 3 {\"id\":3}"] {
        let run = place.ok(line);
        assert_eq!(run.stderr, "", "{line}, after a clean close");
    }
    // A process that did not close it.
    let db = Db::open(place.path("db"), Options::default()).unwrap();
    let collection = db.collection("c").unwrap();
    collection.put(&KeyFormat::Typed.parse("4"), b"{\"id\":4}").unwrap();
    db.sync().unwrap();
    let killed = Place::new();
    std::fs::create_dir(killed.path("db")).unwrap();
    for file in std::fs::read_dir(place.path("db")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), killed.path("db").join(file.file_name())).unwrap();
    }
    drop((collection, db));
    assert_eq!(killed.ok("check db").stderr, "");
    std::fs::remove_file(killed.path("db/SYNCED")).unwrap();
    let note = "note: the marker SYNCED is missing or invalid";
    assert!(killed.ok("check db").stderr.contains(note));
    let stats = killed.ok("stats db").json();
    assert!(stats.iter().any(|row| row["problem"] == "the marker SYNCED is missing or invalid"), "{stats:?}");
    assert!(killed.ok("put db c 5 {\"id\":5}").stderr.contains(note));
    assert_eq!(killed.ok("put db c 6 {\"id\":6}").stderr, "");
}

#[test]
fn a_database_that_lacks_a_file_is_not_reported_as_missing() {
    let place = Place::new();
    place.import("{\"id\":1}\n", "");
    for name in ["CURRENT", "MANIFEST", ".wal"] {
        let path = place.database_file(name);
        let aside = place.path("aside");
        std::fs::rename(&path, &aside).unwrap();
        for line in
            ["get db c 1", "find db c --eq id=1", "stats db", "check db", "put db c 2 {}", "compact db"]
        {
            let run = place.run(line).expect_status(1, line);
            assert!(!run.stderr.contains("there is no database"), "{line} without {name}: {}", run.stderr);
            assert!(run.stderr.contains("missing"), "{line} without {name}: {}", run.stderr);
        }
        std::fs::rename(&aside, &path).unwrap();
        place.ok("get db c 1");
    }
    for line in ["get nowhere c 1", "compact nowhere", "check nowhere"] {
        let run = place.run(line).expect_status(1, line);
        assert!(run.stderr.contains("there is no database in nowhere"), "{line}: {}", run.stderr);
    }
}

/// A writer replaces the files of a view after the manifest was read.
#[test]
fn reading_verbs_retry_if_a_writer_replaced_a_file() {
    let place = Place::new();
    place.import("{\"id\":1,\"n\":1}\n", "--index n:composite");
    place.ok("compact db");
    let lock = File::open(place.path("db/LOCK")).unwrap();
    lock.lock().unwrap();
    let files = place.database_files(".sst");
    let aside = |path: &Path| path.with_extension("aside");
    let take = || files.iter().for_each(|path| std::fs::rename(path, aside(path)).unwrap());
    let put_back = || files.iter().for_each(|path| std::fs::rename(aside(path), path).unwrap());
    for line in ["get db c 1", "scan db c", "find db c --eq n=1", "index list db c", "stats db c"] {
        take();
        let mut command = place.command();
        let run =
            command.args(line.split(' ')).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(200));
        put_back();
        let output = run.wait_with_output().unwrap();
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{line}: {stdout}\n{stderr}");
        assert!(!stderr.contains("error") && !stderr.contains("another process"), "{line}: {stderr}");
        assert!(line.starts_with("stats") || stdout.lines().count() == 1, "{line}: {stdout}");
    }
    // After the last retry the verb fails.
    take();
    for line in ["get db c 1", "check db"] {
        let run = place.run(line).expect_status(1, line);
        assert!(run.stderr.contains(".sst"), "{line}: {}", run.stderr);
        assert!(run.stderr.contains("another process has db open for writing"), "{line}: {}", run.stderr);
    }
}

#[test]
fn reading_verbs_note_a_concurrent_writer() {
    let place = Place::new();
    place.import("{\"id\":1}\n", "");
    place.ok("compact db");
    flip(&place.database_file(".sst"));
    let lock = File::open(place.path("db/LOCK")).unwrap();
    lock.lock().unwrap();
    for line in ["get db c 1", "scan db c", "check db"] {
        let run = place.run(line).expect_status(1, line);
        assert!(run.stderr.contains("another process has db open for writing"), "{line}: {}", run.stderr);
    }
    let run = place.run("put db c 2 {}").expect_status(1, "put");
    assert!(run.stderr.contains("locked by another process"), "{}", run.stderr);
    lock.unlock().unwrap();
    let run = place.run("get db c 1").expect_status(1, "get");
    assert!(!run.stderr.contains("another process"), "{}", run.stderr);
}
