//! Histories with a tiny memory budget, and the bugs that they must find.

use bolide_testkit::expected::expect;
use bolide_testkit::memory::{self, MemoryOptions, PlantedMemory};
use bolide_testkit::rule::Rule;
use bolide_testkit::seeds::SeedRun;

#[test]
fn a_tiny_budget_is_never_exceeded_and_changes_no_answer() {
    let run = SeedRun::of_test("memory", 0..8);
    let counts = run.run(|seed| memory::check(seed, MemoryOptions::default()));
    let counts = counts.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(
        counts.get("refused writes") > 0 && counts.get("crashes") > 0 && counts.get("queries") > 0,
        "{counts}"
    );
    println!("{counts}");
}

#[test]
fn a_budget_without_enforcement_and_an_owner_without_reports_are_found() {
    for (planted, text) in
        [(PlantedMemory::NoLimit, "over budget"), (PlantedMemory::HalfReport, "not reported")]
    {
        let options = MemoryOptions { planted: Some(planted), ..MemoryOptions::default() };
        let found = SeedRun::of_test("memory", 0..4).run(|seed| memory::check(seed, options));
        expect(&format!("{planted:?}"), found, &[Rule::Budget], &[text])
            .unwrap_or_else(|failure| panic!("{failure}"));
    }
}
