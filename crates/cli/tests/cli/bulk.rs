//! `update` and `delete --where`.

use crate::program::Place;
use serde_json::json;

fn numbered() -> Place {
    let place = Place::new();
    let row =
        |id: u32| json!({"id": id, "n": id % 5, "tags": [format!("t{}", id % 2), format!("u{}", id % 3)]});
    let text: String = (1..=20).map(|id| format!("{}\n", row(id))).collect();
    place.import(&text, "--index n --index tags[*]:composite:maintenance=synchronous");
    place
}

#[test]
fn all_records_of_a_filter_are_changed_or_deleted() {
    let place = numbered();
    let run =
        |line: &str, filter: &str| place.run_with(line, &["--where", filter], "").expect_status(0, line);
    let done = run("update db c --set n=7 --set a.b=x --unset tags --batch 2", "n = 3");
    assert_eq!(done.stdout, "{\"found\":4,\"changed\":4,\"skipped\":0}\n");
    let position =
        done.stderr.split("--resume ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().to_owned();
    assert_eq!(place.found("--eq n=7"), ["18", "13", "8", "3"]);
    let record = &place.ok("find db c --eq n=7 --limit 1 --format ndjson").json()[0]["record"];
    assert_eq!(record, &json!({"id": 18, "n": 7, "a": {"b": "x"}}));
    // Nothing is left to do after that position.
    let again = run(&format!("update db c --set n=8 --resume {position}"), "n = 3");
    assert_eq!(again.json()[0]["changed"], 0);
    let deleted = run("delete db c", "n = 7 or id > 18");
    assert_eq!(deleted.json()[0]["changed"], 6);
    assert_eq!(place.ok("find db c --where true --count").stdout, "{\"count\":14}\n");
    place.run("update db c --where n=1").expect_status(2, "no change");
    for value in ["n=1e400", "n=NaN", "n=[1,2"] {
        place.run(&format!("update db c --where n=1 --set {value}")).expect_status(2, value);
    }
    let failed = place.run("update db c --where n=1 --set n.x=1").expect_status(1, "no object");
    assert!(failed.stderr.contains("\"n\" is not an object"), "{}", failed.stderr);
    place.run("update db c --set n=1").expect_status(2, "no filter");
    place.run("delete db c").expect_status(2, "neither key nor filter");
    place.run("delete db c 1 --where n=1").expect_status(2, "both");
    place.ok("check db --deep");
}

#[test]
fn a_dry_run_writes_nothing_and_shows_the_first_keys() {
    let place = numbered();
    let run =
        |line: &str, filter: &str| place.run_with(line, &["--where", filter], "").expect_status(0, line);
    let manifest = |place: &Place| std::fs::read(place.database_file("MANIFEST-")).unwrap();
    let before = (place.database_files(""), manifest(&place));
    let dry = run("delete db c --dry-run", "not id = 7").json();
    let wanted =
        json!({"found": 19, "changed": 19, "skipped": 0, "dry_run": true, "first_keys": [1, 2, 3, 4, 5]});
    assert_eq!(dry, [wanted]);
    let dry = run("update db c --dry-run --set n=3", "n >= 3").json();
    let wanted =
        json!({"found": 8, "changed": 4, "skipped": 0, "dry_run": true, "first_keys": [4, 9, 14, 19]});
    assert_eq!(dry, [wanted]);
    assert_eq!((place.database_files(""), manifest(&place)), before);
    assert_eq!(place.ok("find db c --where true --count").stdout, "{\"count\":20}\n");
    let failed = place.run("update db c --dry-run --where n=1 --set n.x=1").expect_status(1, "no object");
    assert!(failed.stderr.contains("\"n\" is not an object"), "{}", failed.stderr);
    place.run("delete db c 1 --dry-run").expect_status(2, "a key");
}

#[test]
fn a_misspelled_field_under_a_negation_is_named() {
    let place = numbered();
    let run =
        |line: &str, filter: &str| place.run_with(line, &["--where", filter], "").expect_status(0, line);
    let warning =
        "warning: no record has a value at `tgas[*]`, so a negated condition on it holds for every record";
    let all = run("delete db c --dry-run", r#"not tgas[*] = "t0" and n != 2"#);
    assert!(all.stderr.contains(warning) && !all.stderr.contains("`n`"), "{}", all.stderr);
    let all = run("update db c --set x=1", r#"tgas[*] not in ("t0", "t1")"#);
    assert!(all.stderr.contains(warning), "{}", all.stderr);
    let none = run("delete db c --dry-run", r#"tgas[*] = "t0" or not tags[*] = "t0""#);
    assert!(!none.stderr.contains("warning"), "{}", none.stderr);
}

#[test]
fn a_position_of_another_command_is_refused() {
    let place = numbered();
    place.run_with("import db d - --key id", &[], "{\"id\":1,\"n\":3}\n").expect_status(0, "import");
    let first = place.ok("delete db c --where n=3 --batch 2");
    let position = first.stderr.split("--resume ").nth(1).unwrap().split(' ').next().unwrap();
    let run = place.run(&format!("delete db c --where n=2 --resume {position}")).expect_status(1, "a query");
    assert!(run.stderr.contains("with another query"), "{}", run.stderr);
    let run = place.run(&format!("delete db d --where n=3 --resume {position}")).expect_status(1, "another");
    assert!(run.stderr.contains("of another collection than \"d\""), "{}", run.stderr);
    let run = place.run("delete db c --where n=2 --resume x").expect_status(2, "no position");
    assert!(run.stderr.contains("not a complete position"), "{}", run.stderr);
}
