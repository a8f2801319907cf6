//! `index advise` on records whose attributes are known. Which kind is advised depends on times, unless sizes decide it.

use std::fmt::Write;

use serde_json::Value;

use crate::program::Place;

const KINDS: [&str; 6] = ["composite", "lazy", "eager", "embedded", "next", "ps-tree"];

fn place_with_records() -> Place {
    let place = Place::new();
    let mut rows = String::new();
    for number in 0..3_000_u64 {
        let user = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        writeln!(rows, r#"{{"id":{number},"time":{},"user":"u{user}","text":"{number:0>90}"}}"#, number / 3)
            .unwrap();
    }
    place.import(&rows, "");
    place
}

#[test]
fn the_advice_has_predictions_and_the_choice_of_the_paper() {
    let place = place_with_records();
    for (line, paper) in [
        ("time", "embedded"),
        ("user", "lazy"),
        ("user --all", "composite"),
        ("user --writes 80 --reads 1", "embedded"),
        ("user --space-is-scarce", "embedded"),
    ] {
        let advice = place.ok(&format!("index advise db c {line}")).json().remove(0);
        assert_eq!(advice["paper"], paper, "{line}");
        assert_eq!((&advice["records"], &advice["sampled_by_value"]), (&3_000.into(), &3_000.into()));
        let predictions = advice["predictions"].as_array().unwrap();
        assert_eq!(predictions.iter().map(|one| &one["kind"]).collect::<Vec<_>>(), KINDS, "{line}");
        let kind = predictions.iter().find(|one| one["kind"] == advice["kind"]).unwrap();
        assert_eq!((&kind["fits"], advice["others"].as_array().unwrap().len()), (&true.into(), 5));
        assert!(advice["spec"].as_str().unwrap().contains(advice["kind"].as_str().unwrap()));
        let reasons = advice["reasons"].to_string();
        assert!(reasons.contains("records") && reasons.contains("of the memory budget"), "{reasons}");
        let least = |field: &str| predictions.iter().map(|one| one[field].as_u64().unwrap()).min().unwrap();
        let bytes = |one: &Value| one["memory_bytes"].as_u64().unwrap() + one["disk_bytes"].as_u64().unwrap();
        if line.ends_with("scarce") {
            let fewest = predictions.iter().map(bytes).min().unwrap();
            assert!(bytes(kind) * 10 <= fewest * 11, "{advice}");
        } else {
            let cost = kind["operation_nanos"].as_u64().unwrap();
            assert!(cost * 10 <= least("operation_nanos") * 11 + 10, "{advice}");
        }
    }
    let text = place.ok("index advise db c time --format table").stdout;
    assert!(text.contains("  because "), "{text}");
    assert!(text.contains("kind            memory"), "{text}");
    assert!(text.contains("the result of the decision tree of LevelDB++ is embedded"), "{text}");
    assert!(text.contains("measured: 3000 records"), "{text}");
}

#[test]
fn a_trace_determines_the_workload() {
    let place = place_with_records();
    let trace = r#"{"bolide_trace":1}
{"collection":"c","puts":30,"deletes":10,"range_deletes":0,"gets":20,"scans":0,"other_queries":0}
{"collection":"c","attributes":["user"],"condition":"equal","order":"newest","answers":"keys","limit":25,"count":40}
"#;
    place.file("sound.trace", trace);
    let advice = place.ok("index advise db c user --trace sound.trace").json().remove(0);
    assert_eq!((&advice["writes"], &advice["lookups"]), (&0.4.into(), &0.6667.into()));
    assert_eq!((&advice["limit"], &advice["keys_only"]), (&25.into(), &true.into()));
    place.file("bad.trace", trace.replace(r#""limit":25"#, r#""limit":"many""#));
    let run = place.run("index advise db c user --trace bad.trace").expect_status(1, "a malformed trace");
    assert!(
        run.stderr.contains("bad.trace: trace, line 3: the field `limit` is not a number"),
        "{}",
        run.stderr
    );
    place.file("other.trace", trace.replace(r#":"c""#, r#":"d""#));
    let run = place.run("index advise db c user --trace other.trace").expect_status(1, "another collection");
    assert!(run.stderr.contains("no operation on the collection \"c\"; it has: d"), "{}", run.stderr);
    place.run("index advise db c user --trace none.trace").expect_status(1, "a missing file");
    place.run("index advise db c user --trace sound.trace --all").expect_status(2, "two workloads");
}

#[test]
fn apply_creates_the_advised_index() {
    let place = place_with_records();
    let run = place.ok("index advise db c user --apply");
    let spec = run.json().remove(0)["spec"].clone();
    assert!(
        run.stderr.contains(&format!("created the index {} of c", spec.as_str().unwrap())),
        "{}",
        run.stderr
    );
    let listed = place.ok("index list db c --format ndjson").json().remove(0);
    assert_eq!((&listed["index"], &listed["state"]), (&"user".into(), &"ready".into()));
    assert!(spec.as_str().unwrap().contains(listed["kind"].as_str().unwrap()), "{spec} {listed}");
    assert_eq!(place.found("--eq user=u1 --limit 5 --explain").len(), 5);
    let run = place.run("index advise db c user --apply").expect_status(1, "an index of this name");
    assert!(run.stderr.contains("there is an index `user` already"), "{}", run.stderr);
    assert_eq!(place.ok("index list db c --format ndjson").json().len(), 1);
}

#[test]
fn invalid_workloads_are_refused() {
    let place = place_with_records();
    place.run("index advise db c a..b").expect_status(2, "a bad path");
    place.run("index advise db c user --writes 101").expect_status(2, "a bad share");
    place.run("index advise db none user").expect_status(1, "no such collection");
    let run = place.ok("index advise db c nothing");
    assert!(run.stderr.contains("no record of c has the attribute `nothing`"), "{}", run.stderr);
}
