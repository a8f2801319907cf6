//! Every kind of index passes the conformance suite.

use bolide_testkit::conformance;
use bolide_testkit::kinds::{ANNOUNCED, BUILT};

#[test]
fn what_is_built_answers_as_a_scan_does() {
    for kind in BUILT {
        let counts = conformance::check(kind).unwrap_or_else(|failure| panic!("{failure}"));
        println!("{kind}: {counts}");
        assert!(counts.get("refused") == 0 && counts.get("answers") > 100_000, "{kind}: {counts}");
    }
}

#[test]
fn what_is_announced_is_refused_or_answers_as_a_scan_does() {
    for kind in ANNOUNCED {
        let counts = conformance::check(kind).unwrap_or_else(|failure| panic!("{failure}"));
        println!("{kind}: {counts}");
    }
}
