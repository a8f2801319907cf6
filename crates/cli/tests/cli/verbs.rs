//! The other verbs: single records, scans, statistics, checks, compaction, dumps, help.

use std::io::Read;
use std::process::Stdio;

use crate::program::Place;
use serde_json::json;

#[test]
fn single_records_are_put_and_deleted() {
    let place = Place::new();
    place.run_with("put --create db c first", &["{\"n\": 1}"], "").expect_status(0, "put");
    place.run_with("put db c -5", &["{\"n\":\n 2}"], "").expect_status(0, "put");
    place.run_with("put db c", &["\"-5\"", "{\"n\":3}"], "").expect_status(0, "put");
    let got = place.ok("get db c -5 first").json();
    assert_eq!(got, [json!({"key": -5, "record": {"n": 2}}), json!({"key": "first", "record": {"n": 1}})]);
    assert_eq!(place.ok("scan db c").keys(), ["-5", "\"-5\"", "\"first\""]);
    place.ok("delete db c -5");
    place.ok("delete db c never-there");
    let run = place.run("get db c first -5").expect_status(1, "get");
    assert_eq!(run.keys(), ["\"first\""]);
    assert!(run.stderr.contains("no record under -5; for the text"), "{}", run.stderr);
}

#[test]
fn a_record_must_be_a_json_object() {
    let place = Place::new();
    for json in [
        "[1]",
        "1",
        "{",
        "",
        "{\"a\":1}x",
        "{\"a\":NaN}",
        "{\"a\":1e999}",
        "{\"a\":1,\"a\":1}",
        "{\"a\":\"\\ud800\"}",
    ] {
        let run = place.run_with("put --create db c k", &[json], "").expect_status(1, json);
        assert!(run.stderr.contains("what to do: "), "{json}: {}", run.stderr);
    }
    assert!(!place.path("db").exists());
    let long = "k".repeat(65_536);
    let run = place.run_with("put --create db c", &[&long, "{}"], "").expect_status(1, "a long key");
    assert!(run.stderr.contains("65535"), "{}", run.stderr);
    assert!(!place.path("db").exists());
}

#[test]
fn only_an_import_and_an_explicit_option_create_a_database() {
    let place = Place::new();
    for line in [
        "put typo.csv c k {}",
        "delete typo.csv c k",
        "index add typo.csv c n",
        "compact typo.csv",
        "layout typo.csv c tiered",
        "check typo.csv --repair",
    ] {
        let run = place.run(line).expect_status(1, line);
        assert!(run.stderr.contains("there is no database in typo.csv"), "{line}: {}", run.stderr);
        assert!(run.stderr.contains("put --create"), "{line}: {}", run.stderr);
        assert!(!place.path("typo.csv").exists(), "{line}");
    }
    place.ok("put db c k {} --create");
    place.ok("put db d k {}");
    assert_eq!(place.ok("scan db d").keys(), ["\"k\""]);
}

#[test]
fn options_may_follow_keys() {
    let place = Place::new();
    place.import("{\"id\":3,\"n\":1}\n{\"id\":-3,\"n\":2}\n{\"id\":\"-x\",\"n\":3}\n", "");
    for line in ["get db c 3 --format csv", "get db c --format csv 3", "get --format=csv db c 3"] {
        assert_eq!(place.ok(line).stdout, "key,id,n\n3,3,1\n", "{line}");
    }
    assert_eq!(place.ok("get db c 3 -3 --format ndjson").keys(), ["3", "-3"]);
    assert_eq!(place.ok("get db c --format ndjson -- -x -3").keys(), ["\"-x\"", "-3"]);
    let run = place.run("get db c 3 --formt table").expect_status(2, "get");
    assert!(run.stderr.contains("--format"), "{}", run.stderr);
    place.run("delete db c --quiet").expect_status(2, "delete");
    place.ok("delete db c -- -x");
    assert_eq!(place.ok("scan db c").keys(), ["-3", "3"]);
}

#[test]
fn scans_go_both_ways_within_bounds() {
    let place = Place::new();
    let rows: String = ["b", "d", "a", "c"].map(|id| format!("{{\"id\":\"{id}\"}}\n")).concat();
    place.import(&rows, "");
    assert_eq!(place.ok("scan db c --reverse --limit 2").keys(), ["\"d\"", "\"c\""]);
    assert_eq!(place.ok("scan db c --from b --to c").keys(), ["\"b\"", "\"c\""]);
    assert_eq!(place.ok("scan db c --from bb --reverse").keys(), ["\"d\"", "\"c\""]);
    assert_eq!(place.ok("scan db c --from c --to b").stdout, "");
    assert_eq!(place.ok("scan db c --limit 0").stdout, "");
    assert!(place.ok("scan db c --format csv").stdout.starts_with("key,sequence,id\na,"));
}

#[test]
fn stats_name_every_tree() {
    let place = Place::new();
    let rows: String = (0..3000).map(|id| format!("{{\"id\":{id},\"n\":{}}}\n", id % 7)).collect();
    place.import(&rows, "--index n");
    place.ok("compact db");
    let stats = place.ok("stats db").json();
    let trees: Vec<&str> = stats.iter().filter_map(|row| row["tree"].as_str()).collect();
    assert!(trees.contains(&"records") && trees.contains(&"index n") && trees.contains(&"log"), "{trees:?}");
    let named = place.ok("stats db c").stdout;
    assert!(named.contains("\"live_records\":3000") && named.contains("\"stale_entries\":0"), "{named}");

    // Entries that only the log has take space, too.
    let space = |place: &Place| {
        let stats = place.ok("stats db c").json();
        let sum = stats.iter().find(|row| row["tree"] == "records" && row["level"] == "all");
        sum.and_then(|row| row["space_amplification"].as_f64()).expect("a figure")
    };
    let large = Place::new();
    large.import(&format!("{{\"id\":1,\"text\":\"{}\"}}\n", "x".repeat(100_000)), "");
    assert_eq!(space(&large), 1.0);
    large.ok("compact db");
    let packed = space(&large);
    assert!(packed > 0.0 && packed < 0.1, "{packed}");
    assert!(place.ok("stats db --format table").stdout.contains("entries"));
    place.run("stats db nothing").expect_status(1, "stats of nothing");
}

#[test]
fn layouts_change_and_answers_stay() {
    let place = Place::new();
    let rows: String = (0..3_000).map(|id| format!("{{\"id\":{id},\"n\":{}}}\n", id % 7)).collect();
    place.import(&rows, "--index n:composite --layout partitioned");
    let before = place.found("--eq n=3 --limit 50");
    for layout in ["fragmented", "leveled", "partitioned", "tiered"] {
        place.ok(&format!("layout db c {layout}"));
        let stats = place.ok("stats db c").stdout;
        assert_eq!(
            stats.matches(&format!("\"layout\":\"{layout}\"")).count(),
            stats.lines().count(),
            "{stats}"
        );
        assert_eq!(place.found("--eq n=3 --limit 50"), before);
        place.ok("check db --deep");
    }
    place.run("layout db nothing tiered").expect_status(1, "no such collection");
    place.run("layout db c square").expect_status(2, "no such layout");
}

#[test]
fn compaction_does_not_change_answers() {
    let place = Place::new();
    let rows: String = (0..2000).map(|id| format!("{{\"id\":{},\"n\":{}}}\n", id % 500, id % 7)).collect();
    place.import(&rows, "--index n");
    let before = place.found("--eq n=3");
    place.ok("compact db");
    place.ok("compact db c");
    assert_eq!(place.found("--eq n=3"), before);
    place.ok("check db --deep");
    place.run("compact db nothing").expect_status(1, "compact nothing");
}

#[test]
fn damaged_and_foreign_files_are_refused() {
    let place = Place::new();
    place.import("{\"id\":1}\n", "");
    std::fs::write(place.path("db/CURRENT"), "MANIFEST-000099\n").unwrap();
    for line in ["get db c 1", "check db", "import db c - --key id"] {
        let run = place.run(line).expect_status(1, line);
        assert!(run.stderr.contains("CURRENT"), "{line}: {}", run.stderr);
    }
    place.file("plain", "x");
    let run = place.run("get plain c 1").expect_status(1, "a file as database");
    assert!(run.stderr.starts_with("error: "), "{}", run.stderr);
}

#[test]
fn embedded_indexes_show_in_stats_and_dumps() {
    let place = Place::new();
    let rows: String = (0..3000).map(|id| format!("{{\"id\":{id},\"n\":{}}}\n", id % 7)).collect();
    place.import(&rows, "--index n:embedded:bloom_bits=12");
    place.ok("compact db");
    let stats = place.ok("stats db").json();
    let row = stats.iter().find(|row| row["tree"] == "index n").expect("a row of the index");
    assert_eq!((&row["embedded_sstables"], &row["sstables_without"]), (&1.into(), &0.into()), "{row:?}");
    assert!(row["embedded_bytes"].as_u64().is_some_and(|bytes| bytes > 100), "{row:?}");
    assert!(row["embedded_resident_bytes"].is_u64(), "{row:?}");
    assert!(place.ok("stats db --format table").stdout.contains("embedded_bytes"));
    let path = place.database_file(".sst");
    let path = path.to_str().unwrap();
    let dump = place.run_with("dump", &[path], "").expect_status(0, path).stdout;
    let line = dump.lines().find(|line| line.contains(": embedded index ")).unwrap_or_default();
    assert!(line.contains("from 0 to 6") && line.contains("12 bits a value"), "{line}\n{dump:.600}");
}

#[test]
fn indexes_of_kind_next_show_in_stats_dumps_and_plans() {
    let place = Place::new();
    let rows: String = (0..3000).map(|id| format!("{{\"id\":{id},\"n\":{}}}\n", id % 70)).collect();
    place.import(&rows, "--index n:next:block_bytes=1000");
    place.ok("compact db");
    place.ok("check db --deep");
    let stats = place.ok("stats db").json();
    let row = stats.iter().find(|row| row["tree"] == "index n").expect("a row of the index");
    assert_eq!((&row["next_sstables"], &row["sstables_without"]), (&1.into(), &0.into()), "{row:?}");
    assert!(row["index_block_bytes"].as_u64().is_some_and(|bytes| bytes > 3000), "{row:?}");
    assert!(row["global_index_bytes"].is_u64(), "{row:?}");
    let listed = place.ok("index list db c").json().remove(0);
    assert_eq!((&listed["kind"], &listed["validation"]), (&"next".into(), &"get-lite".into()), "{listed:?}");
    assert_eq!(listed["disk_bytes"], row["index_block_bytes"]);
    let plan = place.ok("find db c --eq n=5 --limit 10 --explain");
    let text = format!("{}{}", plan.stdout, plan.stderr);
    assert!(text.contains("met by the global index") && text.contains("10 "), "{text}");
    let path = place.database_file(".sst");
    let path = path.to_str().unwrap();
    let dump = place.run_with("dump", &[path], "").expect_status(0, path).stdout;
    let line = dump.lines().find(|line| line.contains("of kind next: directory of")).unwrap_or_default();
    assert!(line.contains("3000 entries") && line.contains("from 0 to 69"), "{line}\n{dump:.600}");
    assert!(dump.contains("of kind next: index block 0:"), "{dump:.600}");
}

#[test]
fn the_list_shows_the_share_of_old_data_with_blocks_of_a_new_index() {
    let place = Place::new();
    let rows: String = (0..3000).map(|id| format!("{{\"id\":{id},\"n\":{}}}\n", id % 70)).collect();
    place.import(&rows, "");
    let db = bolide::Db::open(place.path("db"), bolide::Options::default()).expect("the database opens");
    let collection = db.collection("c").expect("the collection");
    db.flush().expect("an sstable");
    let lazily = bolide::BuildOptions::default().leaves_old_sstables(true);
    collection.create_index_with("n:next".parse().expect("a declaration"), &lazily).expect("an index");
    drop(collection);
    db.close().expect("a clean close");
    let done = || {
        let listed = place.ok("index list db c").json().remove(0);
        assert_eq!(listed["state"], "ready", "{listed:?}");
        listed["done_percent"].clone()
    };
    assert_eq!(done(), 0.0);
    place.ok("compact db");
    assert_eq!(done(), serde_json::Value::Null);
}

#[test]
fn dumps_show_every_kind_of_file() {
    let place = Place::new();
    let rows: String = (0..50).map(|id| format!("{{\"id\":\"key-{id}\",\"n\":{}}}\n", id % 7)).collect();
    place.import(&rows, "--index n:composite --index in_memory=n");
    place.ok("compact db");
    place.run_with("put db c late", &["{\"n\":1}"], "").expect_status(0, "put");
    let dump = |end: &str| {
        let path = place.database_file(end);
        let path = path.to_str().unwrap();
        place.run_with("dump", &[path], "").expect_status(0, path).stdout
    };
    assert!(dump(".sst").contains("entries"), "{}", dump(".sst"));
    assert!(dump("MANIFEST-").starts_with("manifest"), "{}", dump("MANIFEST-"));
    assert!(dump(".wal").starts_with("WAL"), "{}", dump(".wal"));
    assert!(dump("CURRENT").contains("manifest"), "{}", dump("CURRENT"));
    assert!(dump(".region").starts_with("page segment"), "{}", dump(".region"));
    // The sstable of the index describes its entries.
    let tables = place.database_files(".sst");
    let tables: Vec<String> = tables
        .iter()
        .map(|path| {
            let path = path.to_str().unwrap();
            place.run_with("dump", &[path], "").expect_status(0, path).stdout
        })
        .collect();
    let of_index: Vec<_> =
        tables.iter().filter(|text| text.contains("of index         n:composite")).collect();
    assert!(of_index.len() == 1 && of_index[0].contains("    6: #7 of "), "{tables:?}");
    place.file("notes.txt", "x");
    place.file("000001.sst", "this is no sstable");
    for (name, reason) in [
        ("notes.txt", "not named like a file of Bolide"),
        ("000001.sst", "000001.sst"),
        ("000009.wal", "000009.wal"),
    ] {
        let run = place.run(&format!("dump {name}")).expect_status(1, name);
        assert!(run.stderr.contains(reason), "{name}: {}", run.stderr);
    }
}

#[test]
fn a_second_opener_is_refused_while_an_import_runs() {
    let place = Place::new();
    let mut command = place.command();
    command.args(["import", "db", "c", "-", "--key", "id", "--acknowledge"]);
    let mut import =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = import.stdin.take().unwrap();
    let rows: String = (0..1000).map(|id| format!("{{\"id\":{id}}}\n")).collect();
    std::io::Write::write_all(&mut stdin, rows.as_bytes()).unwrap();
    let mut first = [0];
    import.stderr.as_mut().unwrap().read_exact(&mut first).unwrap();
    let run = place.run_with("put db c k", &["{}"], "").expect_status(1, "put");
    assert!(run.stderr.contains("close the other opener first"), "{}", run.stderr);
    drop(stdin);
    assert!(import.wait_with_output().unwrap().status.success());
}

#[test]
fn a_closed_standard_output_is_no_error() {
    let place = Place::new();
    let rows: String =
        (0..20_000).map(|id| format!("{{\"id\":{id},\"t\":\"{}\"}}\n", "x".repeat(50))).collect();
    place.import(&rows, "");
    let mut scan = place.command();
    let mut scan =
        scan.args(["scan", "db", "c"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 10];
    scan.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    drop(scan.stdout.take());
    let output = scan.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn a_read_only_folder_can_be_read() {
    let place = Place::new();
    place.import("{\"id\":1,\"n\":1}\n", "--index n");
    let files = |place: &Place| {
        let mut files: Vec<_> = std::fs::read_dir(place.path("db"))
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap()))
            .collect();
        files.sort();
        files
    };
    let before = files(&place);
    assert_eq!(place.found("--eq n=1"), ["1"]);
    place.ok("get db c 1");
    place.ok("stats db");
    place.ok("check db --deep");
    assert!(files(&place) == before, "reading changed a file");
}

#[test]
fn help_and_wrong_usage() {
    let place = Place::new();
    // All verbs, so that a new one is tested too.
    let help = place.ok("--help").stdout;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let verbs: Vec<&str> =
        listed.map_while(|line| line.split_whitespace().next()).filter(|verb| *verb != "help").collect();
    assert!(verbs.len() >= 15 && verbs.contains(&"repair") && verbs.contains(&"update"), "{verbs:?}");
    for verb in verbs {
        let run = place.ok(&format!("{verb} --help"));
        assert!(run.stdout.contains("Example:"), "{verb}: {}", run.stdout);
    }
    assert!(place.ok("--version").stdout.starts_with("bolide "));
    for line in
        ["", "frobnicate", "get db", "scan db c --limit many", "find db c --eq a=1 --count --keys-only"]
    {
        let run = place.run(line).expect_status(2, line);
        assert_eq!(run.stdout, "", "{line}");
    }
}
