//! The program `bolide-sql`.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_bolide-sql"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn statements_run_from_arguments_files_and_standard_input() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let db = db.to_str().unwrap();
    let create = "CREATE TABLE t (id BIGINT PRIMARY KEY, s TEXT, l BIGINT[]); INSERT INTO t VALUES (1, 'a,b', [1, 2]), (2, NULL, NULL)";
    let missing = run(&[db, "SELECT 1"], "");
    assert!(!missing.status.success() && text(&missing.stderr).contains("there is no database"));
    let created = run(&["--create", db, create], "");
    assert!(created.status.success(), "{}", text(&created.stderr));
    assert_eq!(text(&created.stderr), "CREATE TABLE\nINSERT 0 2\n");

    let select = "SELECT id, s, l FROM t ORDER BY id";
    for (format, expected) in [
        ("ndjson", "{\"id\":1,\"s\":\"a,b\",\"l\":[1,2]}\n{\"id\":2}\n"),
        ("csv", "id,s,l\n1,\"a,b\",\"[1, 2]\"\n2,,\n"),
        (
            "table",
            "+----+------+--------+\n| id | s    | l      |\n+----+------+--------+\n| 1  | a,b  | [1, 2] |\n\
             | 2  | NULL | NULL   |\n+----+------+--------+\n(2 rows)\n",
        ),
    ] {
        let output = run(&[db, select, "--format", format], "");
        assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
    }
    let output = run(&[db, "--format", "arrow"], select);
    let reader = arrow::ipc::reader::StreamReader::try_new(&output.stdout[..], None).unwrap();
    assert_eq!(reader.map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 2);

    let file = dir.path().join("script.sql");
    std::fs::write(&file, "UPDATE t SET s = 'c;' WHERE id = 2; -- done;\nSELECT s FROM t WHERE id = 2")
        .unwrap();
    let output = run(&[db, "-f", file.to_str().unwrap(), "--format", "csv"], "");
    assert_eq!(text(&output.stdout), "s\nc;\n");
    // A comment at the end of an argument ends with it.
    let output = run(&[db, "SELECT 1 AS one -- the first", "SELECT 2 AS two"], "");
    assert_eq!(text(&output.stdout), "{\"one\":1}\n{\"two\":2}\n", "{}", text(&output.stderr));
    // A statement that fails ends the script.
    let output = run(&[db, "SELECT 1; SELECT x; SELECT 2"], "");
    assert_eq!((text(&output.stdout), output.status.code()), ("{\"Int64(1)\":1}\n", Some(1)));
    assert!(text(&output.stderr).contains("42703"), "{}", text(&output.stderr));
}

#[test]
fn a_reader_of_the_output_may_leave() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let db = db.to_str().unwrap();
    let created = run(
        &[
            "--create",
            db,
            "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT) AS SELECT value, repeat('x', 100) FROM generate_series(1, 20000)",
        ],
        "",
    );
    assert!(created.status.success(), "{}", text(&created.stderr));
    for format in ["ndjson", "csv", "table", "arrow"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_bolide-sql"))
            .args([db, "SELECT * FROM t", "--format", format])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)), "{format}");
    }
}
