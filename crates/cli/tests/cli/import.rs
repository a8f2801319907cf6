//! `import`: formats, compression, keys, change streams, bad rows.

use crate::program::{self, Place};
use serde_json::json;

const ROWS: &str = "{\"id\":\"a\",\"n\":1}\n{\"id\":\"b\",\"n\":2}\n\n{\"id\":\"c\",\"n\":3}\n";

fn summary_of(run: &program::Run) -> (u64, u64) {
    let lines = run.json();
    assert_eq!(lines.len(), 1, "{}", run.stdout);
    let fields: Vec<&str> = run.stdout.split('"').skip(1).step_by(2).collect();
    assert_eq!(fields, ["rows", "bad_rows", "seconds", "rows_per_second"]);
    assert!(lines[0]["seconds"].is_number() && lines[0]["rows_per_second"].is_number());
    (lines[0]["rows"].as_u64().unwrap(), lines[0]["bad_rows"].as_u64().unwrap())
}

#[test]
fn every_format_and_compression_yields_the_same_records() {
    let place = Place::new();
    let csv = "id,n\na,1\nb,2\nc,3\n";
    let gz = |text: &str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let zst = |text: &str| zstd::encode_all(text.as_bytes(), 3).unwrap();
    place.file("rows.ndjson", ROWS);
    place.file("rows.jsonl", ROWS);
    place.file("rows.csv", csv);
    place.file("rows.ndjson.gz", gz(ROWS));
    place.file("rows.jsonl.zst", zst(ROWS));
    place.file("rows.csv.gz", gz(csv));
    place.file("rows.csv.zst", zst(csv));
    for name in ["ndjson", "jsonl", "csv", "ndjson.gz", "jsonl.zst", "csv.gz", "csv.zst"] {
        let run = place.ok(&format!("import db-{name} c rows.{name} --key id --index n"));
        assert_eq!(summary_of(&run), (3, 0), "{name}");
        let scan = place.ok(&format!("scan db-{name} c")).json();
        assert_eq!(scan[1]["record"], json!({"id": "b", "n": 2}), "{name}");
        let find = place.ok(&format!("find db-{name} c --range n=2.. --format ndjson"));
        assert_eq!(find.keys(), ["\"c\"", "\"b\""], "{name}");
    }
}

#[test]
fn rows_replace_rows_of_the_same_key() {
    let place = Place::new();
    place.import(ROWS, "--index n");
    place.import("{\"id\":\"a\",\"n\":9}\n{\"id\":\"a\",\"n\":7}\n", "");
    assert_eq!(place.found("--range n=0.."), ["\"a\"", "\"c\"", "\"b\""]);
    assert_eq!(place.found("--eq n=1"), Vec::<String>::new());
    assert_eq!(place.found("--eq n=9"), Vec::<String>::new());
    assert_eq!(place.ok("get db c a").json()[0]["record"], json!({"id": "a", "n": 7}));
}

#[test]
fn keys_may_be_nested_and_integers_sort_as_numbers() {
    let place = Place::new();
    let rows: String = [10, 9, -3, 100].map(|id| format!("{{\"u\":{{\"id\":{id}}}}}\n")).concat();
    let run = place.run_with("import db c - --key u.id", &[], &rows).expect_status(0, "import");
    assert_eq!(summary_of(&run), (4, 0));
    assert_eq!(place.ok("scan db c").keys(), ["-3", "9", "10", "100"]);
    assert_eq!(place.ok("scan db c --from 9 --to 10").keys(), ["9", "10"]);
}

#[test]
fn change_streams_delete() {
    let place = Place::new();
    let stream = "{\"id\":1,\"op\":\"put\",\"n\":1}\n{\"id\":2,\"op\":\"put\",\"n\":1}\n\
                  {\"id\":1,\"op\":\"del\"}\n{\"id\":3,\"n\":1}\n{\"id\":3,\"op\":\"delete\"}\n\
                  {\"id\":3,\"op\":\"put\",\"n\":4}\n";
    let run = place.import(stream, "--op-field op --index n");
    assert_eq!(summary_of(&run), (6, 0));
    assert_eq!(place.ok("scan db c").keys(), ["2", "3"]);
    assert_eq!(place.found("--eq n=1"), ["2"]);
    place.ok("check db --deep");
}

#[test]
fn a_bad_row_stops_the_import_and_earlier_rows_stay() {
    let place = Place::new();
    place.import("", "");
    let rows = "{\"id\":\"a\",\"n\":1}\n\n{\"id\":\"b\",\"n\":2\n{\"id\":\"c\",\"n\":3}\n";
    place.file("rows.ndjson", rows);
    let run = place.run("import db c rows.ndjson --key id").expect_status(1, "import");
    assert_eq!(run.stdout, "");
    assert!(run.stderr.contains("line 3 of rows.ndjson: broken JSON at column"), "{}", run.stderr);
    assert!(run.stderr.contains("--bad-rows skip"), "{}", run.stderr);
    assert!(run.stderr.contains("the 1 rows before it are in the database"), "{}", run.stderr);
    assert_eq!(place.ok("scan db c").keys(), ["\"a\""]);
}

#[test]
fn unknown_operations_are_refused() {
    let place = Place::new();
    place.import("{\"id\":1}\n{\"id\":2}\n", "");
    place.file("changes.ndjson", "{\"id\":1,\"op\":\"DELETE\"}\n{\"id\":2,\"op\":\"remove\"}\n");
    let run = place.run("import db c changes.ndjson --key id --op-field op").expect_status(1, "import");
    assert!(run.stderr.contains("line 2 of changes.ndjson: its field `op`"), "{}", run.stderr);
    assert!(run.stderr.contains("put, insert, update, upsert"), "{}", run.stderr);
    assert_eq!(place.ok("scan db c").keys(), ["2"]);
    place.ok("import db c changes.ndjson --key id --op-field op --bad-rows skip");
    assert_eq!(place.ok("get db c 2").json()[0]["record"], json!({"id": 2}));
}

#[test]
fn a_failed_import_without_rows_leaves_nothing_new() {
    let place = Place::new();
    place.file("rows.ndjson", "{\"n\":1}\n");
    place.file("open.csv", "id,n\n1,\"x\n2,3\n");
    place.file("twice.csv", "id,id\n1,2\n");
    std::fs::create_dir(place.path("empty")).unwrap();
    std::fs::create_dir(place.path("other")).unwrap();
    place.file("other/notes.txt", "x");
    for (file, reason) in [
        ("rows.ndjson", "line 1 of rows.ndjson: it has no key field `id`; no row was loaded"),
        ("open.csv", "the quote that begins on line 2 is not closed"),
        ("twice.csv", "twice"),
    ] {
        for db in ["db", "empty", "other", "new/parents/db", "new/../new/db"] {
            let line = format!("import {db} c {file} --key id --index n");
            let run = place.run(&line).expect_status(1, &line);
            assert!(run.stderr.contains(reason), "{line}: {}", run.stderr);
            assert!(!run.stderr.contains("note:"), "{line}: {}", run.stderr);
        }
        assert!(!place.path("db").exists() && !place.path("new").exists(), "{file}");
        assert_eq!(std::fs::read_dir(place.path("empty")).unwrap().count(), 0, "{file}");
        assert_eq!(std::fs::read_dir(place.path("other")).unwrap().count(), 1, "{file}");
    }
    // An existing database stays, without the new collection.
    place.import(ROWS, "--index n");
    place.run("import db d rows.ndjson --key id").expect_status(1, "import");
    let run = place.run("scan db d").expect_status(1, "scan");
    assert!(run.stderr.contains("the database has c"), "{}", run.stderr);
    assert_eq!(place.found("--eq n=2"), ["\"b\""]);
    // So does a collection, without new indexes.
    for line in [
        "import db c rows.ndjson --key id --index m",
        "import db c rows.ndjson --key id --index m --index n=m",
    ] {
        place.run(line).expect_status(1, line);
        assert_eq!(place.ok("index list db").json().len(), 1, "{line}");
    }
}

#[test]
fn rows_stay_whose_net_effect_is_none() {
    let place = Place::new();
    place.file("rows.ndjson", "{\"id\":1}\n{\"id\":1,\"op\":\"delete\"}\n{\"n\":1}\n");
    let line = "import db c rows.ndjson --key id --op-field op";
    let run = place.run(line).expect_status(1, line);
    assert!(run.stderr.contains("the 2 rows before it are in the database"), "{}", run.stderr);
    assert_eq!(place.ok("scan db c").stdout, "");
}

#[test]
fn rows_that_a_failed_import_stored_stay() {
    let place = Place::new();
    let rows: String = (0..5000).map(|id| format!("{{\"id\":{id},\"n\":1}}\n")).collect();
    place.file("rows.ndjson", rows + "{\"n\":1}\n");
    // Into a new database, and into an existing one.
    for _ in 0..2 {
        let line = "import db c rows.ndjson --key id --index n --acknowledge --sync always";
        let run = place.run(line).expect_status(1, line);
        assert!(run.stderr.contains("acknowledged 5000 rows"), "{}", run.stderr);
        assert!(run.stderr.contains("the 5000 rows before it are in the database"), "{}", run.stderr);
        assert_eq!(place.ok("scan db c").keys().len(), 5000);
        place.ok("check db --deep");
    }
}

#[test]
fn records_that_no_query_could_read_are_bad_rows() {
    let place = Place::new();
    let rows = [
        r#"{"id":1,"a":5,"s":"\ud800"}"#,
        r#"{"id":2,"x":1e999}"#,
        r#"{"id":3,"a":1,"a":2}"#,
        r#"{"id":4,"a":1}"#,
    ];
    let run = place.import(&rows.join("\n"), "--bad-rows skip");
    assert_eq!(summary_of(&run), (1, 3));
    assert!(run.stderr.contains("the record under key 3: "), "{}", run.stderr);
    assert_eq!(place.found("--eq a=1"), ["4"]);
    place.ok("index add db c a");
}

#[test]
fn bad_rows_may_be_skipped_and_are_counted() {
    let place = Place::new();
    let deep = format!("{{\"id\":\"deep\",\"x\":{}{}}}", "[".repeat(200), "]".repeat(200));
    let long_key = format!("{{\"id\":\"{}\"}}", "k".repeat(70_000));
    let rows = [
        "{\"id\":\"a\"}",
        "[1]",
        "7",
        "{\"n\":1}",
        "{\"id\":1.5}",
        "{\"id\":null}",
        "{\"id\":\"x\"",
        "{\"id\":\"nan\",\"n\":NaN}",
        &deep,
        &long_key,
        "{\"id\":\"z\"}",
    ];
    let run = place.import(&rows.join("\n"), "--bad-rows skip --index n");
    assert_eq!(summary_of(&run), (2, 9));
    for (line, reason) in [(2, "array"), (4, "no key field `id`"), (5, "integer"), (7, "broken JSON")] {
        let reported =
            run.stderr.lines().find(|text| text.contains(&format!("line {line} of standard input")));
        assert!(reported.is_some_and(|text| text.contains(reason)), "{line}: {}", run.stderr);
    }
    assert_eq!(place.ok("scan db c").keys(), ["\"a\"", "\"z\""]);
}

#[test]
fn bytes_that_are_not_utf_8_are_a_bad_row() {
    let place = Place::new();
    place.file("rows.ndjson", b"{\"id\":\"a\"}\n{\"id\":\"\xff\"}\n");
    let run = place.run("import db c rows.ndjson --key id").expect_status(1, "import");
    assert!(run.stderr.contains("line 2 of rows.ndjson: it is not UTF-8"), "{}", run.stderr);
}

#[test]
fn csv_rows_are_checked_against_the_header() {
    let place = Place::new();
    place.file("rows.csv", "id,name\n1,\"x\ny\"\n2\n3,z\n");
    let run = place.run("import db c rows.csv --key id").expect_status(1, "import");
    assert!(
        run.stderr.contains("line 4 of rows.csv: it has 1 cells where the header has 2"),
        "{}",
        run.stderr
    );
    place.file("twice.csv", "id,id\n1,2\n");
    let run = place.run("import db c twice.csv --key id").expect_status(1, "import");
    assert!(run.stderr.contains("twice"), "{}", run.stderr);
}

#[test]
fn errors_of_unreadable_inputs_name_the_cause() {
    let place = Place::new();
    let zst = zstd::encode_all(ROWS.repeat(1000).as_bytes(), 3).unwrap();
    place.file("truncated.ndjson.zst", &zst[..zst.len() / 2]);
    place.file("no.ndjson.gz", "this is not gzip");
    place.file("rows.txt", ROWS);
    std::fs::create_dir(place.path("folder.csv")).unwrap();
    for (file, status, reason) in [
        ("truncated.ndjson.zst", 1, "cannot read truncated.ndjson.zst"),
        ("no.ndjson.gz", 1, "cannot read no.ndjson.gz"),
        ("missing.csv", 1, "cannot open missing.csv"),
        ("folder.csv", 1, "it is a directory"),
        ("rows.txt", 2, "the name rows.txt has no known format"),
    ] {
        let run = place.run(&format!("import db c {file} --key id")).expect_status(status, file);
        assert!(run.stderr.contains(reason), "{file}: {}", run.stderr);
    }
}

#[test]
fn wrong_options_are_wrong_usage() {
    let place = Place::new();
    for (options, reason) in [
        ("--layout square", "possible values"),
        ("--index point(n,m):lazy", "of the kinds of the library only next supports it"),
        ("--index n:bush", "there is no index kind `bush`"),
        ("--index a..b", "a field name is empty"),
        ("--op-field a[*]", "must lead to one value"),
        ("--sync often", "possible values"),
        ("--format tsv --separator ;", "for another --separator use --format csv"),
        ("--format csv --separator t", "for a tab write tab"),
        ("--format csv --type n=string --type n=number", "--type has the column `n` twice"),
    ] {
        let line = format!("import db c - --key id {options}");
        let run = place.run(&line).expect_status(2, &line);
        assert!(run.stderr.contains(reason), "{line}: {}", run.stderr);
        assert!(run.stderr.matches("index `").count() <= 1, "{line}: {}", run.stderr);
    }
    assert!(!place.path("db").exists(), "wrong usage left a database behind");
}

#[test]
fn an_existing_collection_gets_the_missing_indexes() {
    let place = Place::new();
    place.import(ROWS, "--index n --layout tiered --sync always");
    let run =
        place.import("{\"id\":\"d\",\"n\":3,\"m\":1}\n", "--index n --index m --layout leveled --sync none");
    assert!(run.stderr.contains("keeps its layout"), "{}", run.stderr);
    assert_eq!(place.found("--eq n=3"), ["\"d\"", "\"c\""]);
    assert_eq!(place.found("--eq m=1 --index m"), ["\"d\""]);
    let line = "import db c - --key id --index n:composite:maintenance=synchronous";
    let run = place.run_with(line, &[], ROWS).expect_status(1, line);
    assert!(run.stderr.contains("another index of this name"), "{}", run.stderr);
}

#[test]
fn acknowledgements_count_rows() {
    let place = Place::new();
    let rows: String = (0..2500).map(|id| format!("{{\"id\":{id}}}\n")).collect();
    let run = place.import(&rows, "--acknowledge");
    assert!(run.stderr.ends_with("acknowledged 2500 rows\n"), "{}", run.stderr);
    assert_eq!(place.ok("scan db c").keys().len(), 2500);
}

#[test]
fn an_empty_input_creates_an_empty_collection() {
    let place = Place::new();
    assert_eq!(summary_of(&place.import("", "--index n")), (0, 0));
    assert_eq!(place.ok("scan db c").stdout, "");
    assert_eq!(place.found("--eq n=1"), Vec::<String>::new());
}

#[test]
fn a_load_continues_with_standard_error_closed() {
    let place = Place::new();
    place.import(ROWS, "");
    let file =
        (0..3000).map(|id| format!("{{\"id\":{id}}}\n")).collect::<String>() + "no record\n{\"id\":3000}\n";
    place.file("rows.ndjson", file);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let line = "import db c rows.ndjson --key id --layout tiered --acknowledge --bad-rows skip";
    let run = place.command().args(line.split(' ')).stderr(writer).output().unwrap();
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let summary: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!((&summary["rows"], &summary["bad_rows"]), (&3001.into(), &1.into()));
    place.ok("get db c 3000");

    for (line, status) in
        [("get db c 9999", 1), ("find db c --eq m=1", 0), ("check nowhere", 1), ("get db c", 2)]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let run = place.command().args(line.split(' ')).stderr(writer).output().unwrap();
        assert_eq!(run.status.code(), Some(status), "{line}: {run:?}");
    }
}

#[test]
fn tables_of_other_forms_and_arrays_are_imported() {
    let place = Place::new();
    place.file("rows.tsv", "id\tzip\tn\n1\t01234\t1,5\n2\t99999\t\n");
    place.file("rows.json", "[\n  {\"id\":1,\"zip\":\"01234\"},\n  {\"id\":2,\n \"zip\":\"99999\"}\n]\n");
    place.file("semicolons.csv", "id;zip\n1;01234\n2;99999\n");
    place.file("rows.txt", "id,zip\n1,01234\n2,99999\n");
    let forced = "--key id --type zip=string";
    for (line, input) in [
        (format!("import db a rows.tsv {forced}"), ""),
        ("import db b rows.json --key id".to_owned(), ""),
        (format!("import db c semicolons.csv --separator ; {forced}"), ""),
        (format!("import db d rows.txt --format csv {forced}"), ""),
        (format!("import db e - --format csv {forced}"), "id,zip\n1,01234\n2,99999\n"),
        (format!("import db f - --separator ; {forced}"), "id;zip\n1;01234\n2;99999\n"),
        (format!("import db g - --format tsv {forced}"), "id\tzip\n1\t01234\n2\t99999\n"),
        (
            "import db h - --key id --format json".to_owned(),
            "[{\"id\":1,\"zip\":\"01234\"},{\"id\":2,\"zip\":\"99999\"}]",
        ),
    ] {
        let run = place.run_with(&line, &[], input).expect_status(0, &line);
        assert_eq!(summary_of(&run), (2, 0), "{line}");
        let collection = line.split(' ').nth(2).unwrap();
        let records = place.ok(&format!("scan db {collection} --format ndjson")).json();
        let zips: Vec<&serde_json::Value> = records.iter().map(|line| &line["record"]["zip"]).collect();
        assert_eq!(zips, ["01234", "99999"], "{line}");
    }
    for (line, input, status, why) in [
        ("import db x semicolons.csv --key id", "", 1, "add --separator ';'"),
        ("import db x rows.json --key id --separator ;", "", 2, "--separator applies to CSV and TSV"),
        ("import db x rows.json --key id --type a=string", "", 2, "--type applies to CSV and TSV"),
        ("import db x rows.tsv --key id --type a=string", "", 1, "the header has no such column"),
        (
            "import db x rows.tsv --key id --type n=number",
            "",
            1,
            "line 2 of rows.tsv: the cell of \"n\" is not a number",
        ),
        ("import db x rows.tsv --key id --type n=text", "", 2, "`text` is not a type"),
        ("import db x rows.txt --key id", "", 2, "or add --format"),
        (
            "import db x - --key id --format json",
            "[{\"id\":1},\n{\"id\":2}",
            1,
            "line 2: the array is not closed",
        ),
        (
            "import db x - --key id --format json",
            "[{\"id\":1},\n{\"n\":2}]",
            1,
            "line 2 of standard input: it has no key",
        ),
        (
            "import db x - --key id --format json",
            "{\"id\":1}",
            1,
            "for one object a line use --format ndjson",
        ),
        (
            "import db x - --key id --format json",
            "[{\"id\":1},\n{\"id\":2\n\n",
            1,
            "error: standard input: line 2: the element that begins here is not closed before the end of the file; \
             the 1 rows before it are in the database\n  what to do: fix the file, or its options --format",
        ),
        ("import db x - --key id --format json", "", 1, "the file is empty: an array begins with `[`"),
        ("import db x - --key id --format csv --type a=string", "", 1, "the file has no header"),
    ] {
        let run = place.run_with(line, &[], input).expect_status(status, line);
        assert!(run.stderr.contains(why), "{line}: {}", run.stderr);
    }
}
