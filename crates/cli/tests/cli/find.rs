//! `find` and `index`: predicates, orders, forms of answers.

use crate::program::Place;
use serde_json::json;

fn place_with(rows: &[serde_json::Value], options: &str) -> Place {
    let place = Place::new();
    let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
    place.import(&text, options);
    place
}

fn numbered() -> Place {
    let rows: Vec<_> = (1..=20)
        .map(|id| json!({"id": id, "n": id % 5, "tags": [format!("t{}", id % 2), format!("u{}", id % 3)]}))
        .collect();
    place_with(&rows, "--index n --index tags[*]:composite:maintenance=synchronous")
}

#[test]
fn the_newest_are_first_and_limits_apply() {
    let place = numbered();
    assert_eq!(place.found("--eq n=3"), ["18", "13", "8", "3"]);
    assert_eq!(place.found("--eq n=3 --limit 2"), ["18", "13"]);
    assert_eq!(place.found("--eq n=3 --limit 0"), Vec::<String>::new());
    assert_eq!(place.found("--eq n=3 --order oldest --limit 3"), ["3", "8", "13"]);
    assert_eq!(place.found("--range n=1..2 --order value --limit 5"), ["16", "11", "6", "1", "17"]);
    assert_eq!(place.found("--range n=..1 --order value-desc --limit 1"), ["16"]);
    assert_eq!(place.found("--eq tags[*]=\"t1\" --eq n=0"), ["15", "5"]);
    assert_eq!(place.found("--eq tags[*]=t0 --eq tags[*]=u0"), ["18", "12", "6"]);
}

#[test]
fn types_matter() {
    let rows = [json!({"id": 1, "v": 1}), json!({"id": 2, "v": "1"}), json!({"id": 3, "v": 1.0})];
    let more = [json!({"id": 4, "v": true}), json!({"id": 5, "v": null}), json!({"id": 6})];
    let place = place_with(&[rows, more].concat(), "--index v");
    let found = |predicate: &str| {
        let run = place.run_with("find db c --format ndjson", &[predicate], "").expect_status(0, predicate);
        run.keys()
    };
    assert_eq!(found("--eq=v=1"), ["3", "1"]);
    assert_eq!(found("--eq=v=\"1\""), ["2"]);
    assert_eq!(found("--eq=v=true"), ["4"]);
    assert_eq!(found("--eq=v=null"), ["5"]);
    assert_eq!(found("--range=v=0..9"), ["3", "1"]);
    assert_eq!(found("--range=v=\"\".."), ["2"]);
}

#[test]
fn answers_are_records_keys_or_a_count() {
    let place = numbered();
    let records = place.ok("find db c --eq n=3 --limit 1 --format ndjson");
    let line = &records.json()[0];
    assert_eq!(line["record"]["id"], 18);
    assert!(line["sequence"].is_u64());
    assert!(records.stdout.starts_with("{\"key\":18,\"sequence\":"), "{}", records.stdout);
    let keys = place.ok("find db c --eq n=3 --keys-only");
    assert!(!keys.stdout.contains("record") && keys.stdout.lines().count() == 4);
    assert_eq!(place.ok("find db c --eq n=3 --count").stdout, "{\"count\":4}\n");
    assert_eq!(place.ok("find db c --eq n=9 --count").stdout, "{\"count\":0}\n");
}

#[test]
fn forms_of_output() {
    let place = numbered();
    let csv = place.ok("find db c --eq n=3 --limit 2 --format csv").stdout;
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "key,sequence,id,n,tags");
    assert!(lines[1].starts_with("18,") && lines[1].ends_with(",18,3,\"[\"\"t0\"\",\"\"u0\"\"]\""), "{csv}");
    let table = place.ok("find db c --eq n=3 --limit 2 --format table").stdout;
    assert!(table.contains("key") && table.contains('─') && table.contains("18"), "{table}");
    assert!(place.ok("find db c --eq n=77 --format table").stdout.contains("(nothing)"));
}

#[test]
fn a_query_without_an_index_is_a_full_scan_with_a_note() {
    let place = numbered();
    let run = place.ok("find db c --eq id=7 --format ndjson");
    assert_eq!(run.keys(), ["7"]);
    assert!(run.stderr.contains("no index serves this query"), "{}", run.stderr);
    assert_eq!(place.ok("find db c --eq n=1").stderr, "");
}

#[test]
fn explain_prints_the_plan_on_standard_error() {
    let place = numbered();
    let run = place.ok("find db c --eq n=3 --limit 2 --explain");
    assert_eq!(run.stdout.lines().count(), 2);
    for word in [
        "index",
        "considered",
        "candidates",
        "current",
        "obsolete",
        "unknown",
        "records",
        "blocks",
        "bytes",
        "cache",
        "Bloom",
        "zone map",
        "sequence range",
        "time",
    ] {
        assert!(run.stderr.contains(word), "{word}: {}", run.stderr);
    }
}

#[test]
fn explain_prints_the_same_plan_as_json() {
    let place = numbered();
    let run = place.ok("find db c --eq n=3 --limit 2 --explain=json");
    assert_eq!(run.stdout.lines().count(), 2);
    let plan: serde_json::Value = serde_json::from_str(&run.stderr).unwrap();
    assert_eq!((&plan["answers"], &plan["records_fetched"]), (&2.into(), &2.into()), "{plan}");
    assert_eq!(plan["fetch"]["by_sequence"], true, "{plan}");
    assert!(plan["reads"]["tables_skipped"].is_u64() && plan["fetch_nanos"].is_u64(), "{plan}");
}

#[test]
fn a_limit_per_value_applies_beside_the_limit() {
    let place = numbered();
    assert_eq!(place.found("--range n=1..3 --limit-per-value 1"), ["18", "17", "16"]);
    assert_eq!(place.found("--range n=1..3 --limit-per-value 1 --order oldest"), ["1", "2", "3"]);
    let by_value = "--range n=1..3 --limit-per-value 2 --order value";
    assert_eq!(place.found(by_value), ["16", "11", "17", "12", "18", "13"]);
    assert_eq!(place.found(&format!("{by_value} --limit 3")), ["16", "11", "17"]);
    assert_eq!(place.ok(&format!("find db c {by_value} --count")).stdout, "{\"count\":6}\n");
}

#[test]
fn pages_go_on_from_a_token() {
    let place = numbered();
    for query in ["--eq n=3", "--range n=1..3 --order value-desc", "--range n=..9 --order oldest --keys-only"]
    {
        let all = place.found(query);
        let (mut paged, mut token) = (Vec::new(), "start".to_owned());
        for _ in 0..20 {
            let run = place.ok(&format!("find db c {query} --limit 3 --cursor {token} --format ndjson"));
            let mut lines = run.json();
            let next = lines.pop_if(|line| line.get("cursor").is_some());
            paged.extend(lines.iter().map(|line| line["key"].to_string()));
            match next {
                Some(next) => token = next["cursor"].as_str().unwrap().to_owned(),
                None => break,
            }
        }
        assert_eq!(paged, all, "{query}");
        assert!(token != "start");
    }
    // A record that is deleted or written between two pages leaves its place.
    let page = place.ok("find db c --eq n=3 --limit 1 --cursor start --format ndjson").json();
    place.ok("delete db c 13");
    let token = page[1]["cursor"].as_str().unwrap();
    assert_eq!(place.found(&format!("--eq n=3 --cursor {token}")), ["8", "3"]);
    let run = place.run(&format!("find db c --eq n=2 --cursor {token}")).expect_status(2, "another query");
    assert!(run.stderr.contains("belongs to another query"), "{}", run.stderr);
    let table = place.ok("find db c --eq n=3 --limit 1 --cursor start --format table");
    assert!(table.stderr.contains("note: more with --cursor "), "{}", table.stderr);
}

#[test]
fn selected_values_are_read_from_an_index_that_includes_them() {
    let place = numbered();
    place.ok("index add db c covering=n:composite:maintenance=synchronous,include=id|tags");
    for index in ["n", "covering"] {
        let query = format!("find db c --eq n=3 --limit 2 --index {index} --select id,tags,none --explain");
        let run = place.ok(&format!("{query} --format ndjson"));
        assert_eq!(run.json()[0]["record"], json!({"id": 18, "tags": ["t0", "u0"]}));
        let untouched = run.stderr.contains("records       0 fetched");
        assert!(!untouched, "`none` is not included: {}", run.stderr);
    }
    let run = place.ok("find db c --eq n=3 --eq id=8 --index covering --select id --explain --format ndjson");
    assert_eq!(run.json()[0]["record"], json!({"id": 8}));
    assert!(run.stderr.contains("records       0 fetched"), "{}", run.stderr);
    assert!(run.stderr.contains("by entry      id=8"), "{}", run.stderr);
    place.ok("check db --deep");
}

#[test]
fn selected_objects_and_arrays_are_printed_as_they_are() {
    let rows = [
        r#"{"id":1,"user":{"name":"ann","at":[1.50, 2]},"tags":["b","a"],"items":[{"p":1},{"p":2}],"e":[]}"#,
        r#"{"id":2,"user":"bob","tags":[],"n":null}"#,
    ];
    let place = Place::new();
    place.import(&rows.join("\n"), "--index id");
    let select = "find db c --where true --order oldest --format ndjson --select";
    let twice = place.ok(&format!("{select} user,e,user,e,n,n")).stdout;
    assert_eq!(twice, place.ok(&format!("{select} user,e,n")).stdout, "a path counts once");
    let lines = place.ok(&format!("{select} user,user.at,tags,items,items[*].p,e,n,none")).stdout;
    let (first, second) = lines.split_once('\n').unwrap();
    let wanted = r#""record":{"user":{"name":"ann","at":[1.50, 2]},"user.at":[1.5,2],"tags":["a","b"],"items":[{"p":1},{"p":2}],"items[*].p":[1,2],"e":[]}}"#;
    assert!(first.ends_with(wanted), "{first}");
    assert!(second.trim_end().ends_with(r#""record":{"user":"bob","tags":[],"n":null}}"#), "{second}");
}

#[test]
fn malformed_predicates_are_wrong_usage() {
    let place = numbered();
    for predicate in ["--eq=n", "--eq==1", "--range=n=1", "--range=n=..", "--range=n=1..\"a\"", "--eq=n=[1]"]
    {
        let run = place.run_with("find db c", &[predicate], "").expect_status(2, predicate);
        assert!(run.stderr.starts_with("error: "), "{predicate}: {}", run.stderr);
    }
    for (wrong, why) in [
        ("--within n=0,0,1,1", "`n` is not spatial"),
        ("--within rect(n)=0,0,1", "write MIN_X,MIN_Y,MAX_X,MAX_Y"),
        ("--within rect(n)=1,0,0,1", "above its maximum"),
        ("--within rect(n)=170,0,-170,1", "antimeridian"),
        ("--within rect(n)=nan,0,0,1", "not a finite number"),
        ("--within rect(n=0,0,1,1", "its bracket is not closed"),
        ("--nearest point(n,id)=0", "write X,Y"),
        ("--nearest point(n,id)=0,0 --order oldest", "cannot be used with"),
        ("--eq rect(n)=1", "use a predicate within a rectangle"),
        ("--range point(n,id)=1..2", "use a predicate within a rectangle"),
        ("--eq n=1 --limit-per-value 2", "a limit per value needs a range"),
        ("--eq n=1 --cursor x", "not a complete cursor token"),
        ("--eq n=1 --select a..b", "a field name is empty"),
        ("--range n=10..5", "contains nothing"),
        ("--range n=1..b", "the ends of a range must have one type; these are"),
        ("--range n=1..b", "`b` is no JSON, so it is a text"),
        ("--range n=1..\"2\"", "must have one type; these are a number and a string"),
        ("--where n=", "filter, position 3: a value is missing at the end"),
        ("--where n=x", "filter, position 3: `x` is no value"),
        ("--eq n=1 --sort rect(b)", "values have no order"),
        ("--eq n=1 --sort n --order oldest", "cannot be used with"),
    ] {
        let run = place.run(&format!("find db c {wrong}")).expect_status(2, wrong);
        assert!(run.stderr.contains(why), "{wrong}: {}", run.stderr);
    }
    place.run("find db c").expect_status(2, "find without a predicate and without a limit");
}

#[test]
fn points_are_found_by_window_and_by_distance() {
    let place = Place::new();
    let rows = [
        r#"{"id":1,"lon":0,"lat":0,"box":[0,0,1,1]}"#,
        r#"{"id":2,"lon":2,"lat":0,"box":[[1,1,2,2],[8,8,9,9]]}"#,
        r#"{"id":3,"lon":0,"lat":3,"box":[3,0,2,1]}"#,
        r#"{"id":4,"lon":-1,"box":[-1,-1,-0.5,5]}"#,
    ];
    place
        .run_with("import db c - --key id --index at=point(lon,lat)", &[], &rows.join("\n"))
        .expect_status(0, "import");
    assert_eq!(place.found("--within at=0,0,0,3 --index at"), ["3", "1"]);
    assert_eq!(place.found("--nearest at=0,1 --index at --limit 2"), ["1", "3"]);
    let spaced = ["--where", "point( lon, lat ) nearest (0, 1)", "--limit", "2"];
    assert_eq!(
        place.run_with("find db c --format ndjson", &spaced, "").expect_status(0, "spaces").keys(),
        ["1", "3"]
    );
    place.run("index add db c rect(box):composite").expect_status(2, "a kind with one order");
    assert_eq!(place.found("--within rect(box)=1,1,1,1"), ["2", "1"]);
    place.ok("index add db c rect(box)");
    place.ok("compact db");
    place.ok("check db --deep");
    let run = place.ok("find db c --within rect(box)=1,1,1,1 --index rect(box) --explain");
    assert_eq!(run.keys(), ["2", "1"]);
    assert!(run.stderr.contains("rect(box)=1,1,1,1"), "{}", run.stderr);
    assert_eq!(place.found("--within rect(box)=1,1,1,1 --range lon=..1 --order oldest"), ["1"]);
    assert_eq!(place.found("--within rect(box)=-9,-9,9,9 --within rect(box)=9,9,10,10"), ["2"]);
    assert_eq!(place.found("--nearest point(lon,lat)=0,1"), ["1", "3", "2"]);
    assert_eq!(place.found("--nearest rect(box)=0,2 --limit 2"), ["4", "2"]);
    let nearest = ["--where", "point(lon,lat) nearest (0, 1)"];
    let found = place.run_with("find db c --format ndjson", &nearest, "").expect_status(0, "a filter");
    assert_eq!(found.keys(), ["1", "3", "2"]);
    place.run_with("find db c --order oldest", &nearest, "").expect_status(2, "two orders");
    place.run_with("delete db c", &nearest, "").expect_status(1, "a point selects nothing");
    let count = place.ok("find db c --within point(lon,lat)=0,0,0,3 --count --format ndjson");
    assert_eq!(count.json(), [json!({"count": 2})]);
    let boxes = place.ok("find db c --eq id=2 --select rect(box) --format ndjson");
    assert_eq!(boxes.json()[0]["record"], json!({"rect(box)": [[1.0, 1.0, 2.0, 2.0], [8.0, 8.0, 9.0, 9.0]]}));
    let page =
        place.ok("find db c --nearest point(lon,lat)=0,1 --limit 2 --cursor start --format ndjson").json();
    let token = page[2]["cursor"].as_str().unwrap();
    assert_eq!(place.found(&format!("--nearest point(lon,lat)=0,1 --cursor {token}")), ["2"]);
}

#[test]
fn errors_of_unknown_names_list_the_existing_ones() {
    let place = numbered();
    let run = place.run("find db posts --eq n=1").expect_status(1, "find");
    assert!(run.stderr.contains("no collection `posts`: the database has c"), "{}", run.stderr);
    let run = place.run("find db c --eq n=1 --index m").expect_status(1, "find");
    assert!(run.stderr.contains("it has n, tags[*]"), "{}", run.stderr);
    let run = place.run("find nowhere c --eq n=1").expect_status(1, "find");
    assert!(run.stderr.contains("there is no database in nowhere"), "{}", run.stderr);
    assert!(!place.path("nowhere").exists());
}

#[test]
fn an_empty_answer_for_a_number_has_a_note_about_texts() {
    let place = numbered();
    let run = place.ok("find db c --eq n=77777 --count");
    assert!(run.stderr.contains("write --eq 'n=\"77777\"'"), "{}", run.stderr);
    let run = place.ok("find db c --eq n=3 --keys-only");
    assert!(!run.stderr.contains("is no text"), "{}", run.stderr);
    let run = place.ok("find db c --eq n=abc --keys-only");
    assert!(!run.stderr.contains("is no text"), "{}", run.stderr);
}

#[test]
fn indexes_are_added_and_dropped() {
    let place = numbered();
    place.ok("index add db c both=n+id");
    let list = place.ok("index list db c").json();
    let names: Vec<&str> = list.iter().filter_map(|index| index["index"].as_str()).collect();
    assert_eq!(names, ["n", "tags[*]", "both"]);
    assert_eq!(list[2]["attributes"], "n+id");
    assert_eq!(list[1]["maintenance"], "synchronous");
    assert!(list.iter().all(|index| index["state"] == "ready"), "{list:?}");
    // Its size: an embedded index is in the sstables of the records, whose bytes it shares.
    place.ok("index add db c m=id:embedded");
    place.ok("compact db c");
    let list = place.ok("index list db c").json();
    for index in &list {
        let is_embedded = index["kind"] == "embedded";
        assert!(index["disk_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{index}");
        assert_eq!(index["written_bytes"].as_u64().is_some_and(|bytes| bytes > 0), !is_embedded, "{index}");
        assert_eq!(index["validation"] == "get-lite", is_embedded, "{index}");
    }
    place.ok("index drop db c m");
    assert_eq!(place.found("--eq n=3 --eq id=8 --index both"), ["8"]);
    place.ok("index drop db c n");
    assert_eq!(place.ok("index list db").json().len(), 2);
    assert_eq!(place.found("--eq n=3"), ["18", "13", "8", "3"]);
    for (line, status) in [
        ("index add db c both=id", 1),
        ("index drop db c n", 1),
        ("index add db c x:btree", 2),
        ("index add db c rect(x):lazy", 2),
        ("index add db c n:composite:colour=red", 2),
        ("index add db nothing x", 1),
    ] {
        let run = place.run(line).expect_status(status, line);
        assert!(run.stderr.starts_with("error: "), "{line}: {}", run.stderr);
    }
    place.ok("check db --deep");
}

#[test]
fn filters_select_records() {
    let place = numbered();
    let found = |filter: &str, more: &str| {
        let line = format!("find db c --format ndjson {more}");
        place.run_with(&line, &["--where", filter], "").expect_status(0, filter).keys()
    };
    assert_eq!(found(r#"n = 3 and (id > 10 or tags[*] in ("u2"))"#, ""), ["18", "13", "8"]);
    assert_eq!(found("n in (1, 4) and not id in 5..15", ""), ["19", "16", "4", "1"]);
    assert_eq!(found("none is absent", "--limit 2"), ["20", "19"]);
    assert_eq!(found(r#"tags[*] starts with "t" and n != 0"#, "--limit 2 --eq id=7"), ["7"]);
    assert_eq!(found("true", "--sort n --sort id:desc --limit 5"), ["20", "15", "10", "5", "16"]);
    assert_eq!(place.found("--limit 2"), ["20", "19"]);
    let line = "find db c --explain --limit 3";
    let run = place.run_with(line, &["--where", r#"n in (1, 2) and not tags[*] = "t0""#], "");
    let run = run.expect_status(0, line);
    for text in [
        "index         n, 2 streams",
        "a negation is evaluated on records",
        "no condition on `tags[*]` applies",
    ] {
        assert!(run.stderr.contains(text), "{text}: {}", run.stderr);
    }
    assert!(place.ok("find db c --eq n=3 --limit 0").stderr.contains("--limit 0 allows no answer"));
    let never = place.ok("find db c --where false").stderr;
    assert!(never.contains("never true") && !never.contains("whole collection was read"), "{never}");
    assert!(place.ok("find db c --eq tags=null").stderr.contains("--where 'tags is absent'"));
}

#[test]
fn sort_directions_are_read_in_any_case() {
    let place =
        place_with(&[json!({"id": 1, "a:b": 2}), json!({"id": 2, "a:b": 1}), json!({"id": 3, "a:b": 3})], "");
    let sorted = |sort: &str| {
        place
            .run_with("find db c --limit 9 --format ndjson --sort", &[sort], "")
            .expect_status(0, sort)
            .keys()
    };
    for (direction, wanted) in [
        ("", ["2", "1", "3"]),
        (":asc", ["2", "1", "3"]),
        (":Ascending", ["2", "1", "3"]),
        (":DESC", ["3", "1", "2"]),
        (":descending", ["3", "1", "2"]),
    ] {
        assert_eq!(sorted(&format!(r"a\:b{direction}")), wanted, "{direction}");
    }
    for wrong in ["a:b", r"a\:b:down", "id:", "id:desc:asc:x"] {
        let run = place.run_with("find db c --limit 1 --sort", &[wrong], "").expect_status(2, wrong);
        let advice = "is not a direction: write asc or desc; a `:` in a field name has a backslash";
        assert!(run.stderr.contains(advice), "{wrong}: {}", run.stderr);
    }
}
