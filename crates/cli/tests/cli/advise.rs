//! `index advise` on records whose attributes are known.

use std::fmt::Write;

use crate::program::Place;

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
fn advice_follows_the_data_and_the_workload() {
    let place = place_with_records();
    for (line, spec, paper) in [
        ("time", "time:embedded", "embedded"),
        ("user", "user:ps-tree", "lazy"),
        ("user --all", "user:ps-tree", "composite"),
        ("user --writes 80 --reads 1", "user:embedded", "embedded"),
        ("user --space-is-scarce", "user:embedded", "embedded"),
        ("user --writes 5 --keys-only", "user:ps-tree", "lazy"),
    ] {
        let advice = place.ok(&format!("index advise db c {line}")).json().remove(0);
        assert_eq!((&advice["spec"], &advice["paper"]), (&spec.into(), &paper.into()), "{line}");
        assert_eq!(advice["records"], 3_000);
        assert!(!advice["reasons"].as_array().unwrap().is_empty());
    }
    let text = place.ok("index advise db c time --format table").stdout;
    assert!(text.contains("time:embedded\n  because the attribute follows time"), "{text}");
    assert!(text.contains("measured: 3000 records"), "{text}");
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
