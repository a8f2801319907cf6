//! The proofs detect their planted bugs, each by the rule that it breaks.

use bolide_testkit::expected::{expect, lost_by_panics, missing_syncs};
use bolide_testkit::flawed::Flaw;
use bolide_testkit::forks::{self, ForkOptions};
use bolide_testkit::planted::Planted;
use bolide_testkit::rule::Rule;
use bolide_testkit::seeds::{Counts, SeedRun};
use bolide_testkit::workloads::{self, WorkloadOptions};

#[test]
fn each_missing_sync_is_detected_by_its_rule() {
    let counts = missing_syncs().unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(counts.get("planted mistakes"), Planted::EACH.len() as u64);
    println!("{counts}");
}

#[test]
fn each_missing_sync_is_detected_by_a_short_workload() {
    // Only an open rewrites the manifest or `CURRENT`; an unsynced log is detected by any workload.
    let workloads = 0..workloads::count(1);
    for planted in [Planted::LogSync, Planted::TableSync, Planted::ManifestSync, Planted::DirectorySync] {
        let options = WorkloadOptions { planted: Some(planted), ..WorkloadOptions::default() };
        let run = SeedRun::of_test("workloads", workloads.clone());
        let (rules, texts) = planted.expected();
        let found = run.run(|number| workloads::check(number, options));
        expect(&planted, found, rules, texts).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn each_planted_panic_bug_is_detected_by_its_rule() {
    let counts = lost_by_panics().unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(counts.get("planted mistakes"), 3);
}

#[test]
fn files_with_equal_tags_are_detected_by_their_contents() {
    let options = ForkOptions { same_tags: true, ..ForkOptions::default() };
    let found = SeedRun::of_test("forks", 0..6).run(|seed| forks::check(seed, options));
    expect(&"equal tags", found, &[Rule::State], &[]).unwrap_or_else(|failure| panic!("{failure}"));
}

/// `expect` rejects a failure of another rule, a panic, and a success.
#[test]
fn another_failure_is_not_accepted_as_the_expected_one() {
    let missing = || Err(format!("find records: {} got a; want a b", Rule::Complete));
    let wanted = Flaw::DropsFirst.breaks();
    assert!(expect(&"it", missing(), wanted, &[]).is_ok());
    assert!(expect(&"it", missing(), Flaw::TrustsAll.breaks(), &[]).is_err());
    assert!(expect(&"it", missing(), wanted, &["want c"]).is_err());
    assert!(expect(&"it", Err("panic: index out of bounds".to_owned()), wanted, &[]).is_err());
    assert!(expect(&"it", Ok(Counts::default()), wanted, &[]).is_err());
}
