//! What the program says and does where files are damaged or missing, or somebody else writes them.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use bolide::key::KeyFormat;
use bolide::{CollectionOptions, Db, Layout, Options};

use crate::program::{Place, name_of};

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
    for line in ["check db", "check db --mend"] {
        let run = place.run(line).expect_status(1, line);
        assert!(run.stderr.contains(&name_of(&path)), "{line}: {}", run.stderr);
        assert!(run.stderr.contains("damaged"), "{line}: {}", run.stderr);
        assert!(run.stderr.contains("restore damaged files"), "{line}: {}", run.stderr);
        assert!(!run.stderr.contains("another process"), "{line}: {}", run.stderr);
    }
}

#[test]
fn check_has_damaged_and_missing_sorted_views_built_again() {
    let place = with_views();
    let before = place.ok("scan db c --format ndjson").stdout;
    for damage in [flip as fn(&Path), |path| std::fs::remove_file(path).unwrap()] {
        let path = place.database_file(".remix");
        damage(&path);
        let run = place.run("check db --deep").expect_status(1, "check");
        assert!(run.stderr.contains(&name_of(&path)), "{}", run.stderr);
        assert!(run.stderr.contains("check DB --mend"), "{}", run.stderr);
        assert!(!run.stderr.contains("restore"), "{}", run.stderr);
        assert_eq!(place.ok("scan db c --format ndjson").stdout, before);
        let run = place.ok("check db --mend");
        assert!(run.json().iter().any(|row| row["sorted_views"].as_u64() > Some(0)), "{}", run.stdout);
        assert!(!path.exists(), "{} was not replaced", path.display());
        place.ok("check db --deep");
        assert_eq!(place.ok("scan db c --format ndjson").stdout, before);
    }
}

#[test]
fn a_database_that_lacks_a_file_is_not_taken_for_none() {
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

/// A writer replaces the files of a view that was read from the manifest a moment before.
#[test]
fn reading_verbs_read_again_where_a_writer_replaced_a_file() {
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
    // It gives up.
    take();
    for line in ["get db c 1", "check db"] {
        let run = place.run(line).expect_status(1, line);
        assert!(run.stderr.contains(".sst"), "{line}: {}", run.stderr);
        assert!(run.stderr.contains("another process has db open to write"), "{line}: {}", run.stderr);
    }
}

#[test]
fn reading_verbs_say_that_somebody_writes() {
    let place = Place::new();
    place.import("{\"id\":1}\n", "");
    place.ok("compact db");
    flip(&place.database_file(".sst"));
    let lock = File::open(place.path("db/LOCK")).unwrap();
    lock.lock().unwrap();
    for line in ["get db c 1", "scan db c", "check db"] {
        let run = place.run(line).expect_status(1, line);
        assert!(run.stderr.contains("another process has db open to write"), "{line}: {}", run.stderr);
    }
    let run = place.run("put db c 2 {}").expect_status(1, "put");
    assert!(run.stderr.contains("locked by another process"), "{}", run.stderr);
    lock.unlock().unwrap();
    let run = place.run("get db c 1").expect_status(1, "get");
    assert!(!run.stderr.contains("another process"), "{}", run.stderr);
}
